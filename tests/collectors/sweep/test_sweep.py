"""A sweep on a real Dask cluster: GPUs are not shared, and what dies takes no result with it.

Nsight Compute and nvidia-smi are stand-ins at the boundary of the process
(``data/fake_tools/two_gpus``); workers, scheduler and signals are real.
"""

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys

import pytest

from tests.support.paths import ROOT, TOOLS

pytest.importorskip("distributed")

from collectors.sweep.driver import run_sweep
from collectors.sweep.executors import Executor, choose_gpus
from collectors.sweep.spec import read_sweep
from collectors.sweep.task import lock_of
from perfml.errors import InputError, PerfmlError
from tests.support.processes import PATIENCE_S, alive, until
from tests.support.sweeps import FORKED, read_states, two_gpus

pytestmark = pytest.mark.process


@pytest.fixture
def host(tmp_path, short_folder, monkeypatch):
    two_gpus(monkeypatch, tmp_path, short_folder)
    return tmp_path


def write(host, *programs, **options):
    document = {"defaults": {"timing": "ncu"}, "matrix": {"command": list(programs)}, **options}
    path = host / "sweep.yaml"
    path.write_text(json.dumps(document))  # JSON is YAML
    return path


def sweeping(host, *arguments, **popen):
    command = [sys.executable, "-m", "perfml", "sweep", str(host / "sweep.yaml")]
    return subprocess.Popen(
        [*command, "--out", str(host / "runs"), *arguments],
        cwd=host,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **popen,
    )


def sweep(host, *arguments):
    process = sweeping(host, "--json", *arguments)
    answer, said = process.communicate(timeout=PATIENCE_S)
    return process.returncode, json.loads(answer or "null"), said


def notes(host):
    path = host / "notes"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def held(host):
    return [each for each in notes(host) if "child" in each]


@pytest.mark.slow
def test_two_gpus_share_the_runs_and_a_failing_one_stops_nobody(host):
    (host / "control/failing").touch()
    (host / "control/hold").touch()
    write(host, "./p 1", "./p a hold", "./p b hold", "./p 2", "./p fail", "./p 3")
    process = sweeping(host, "--json")
    both = until(lambda: len(found := held(host)) == 2 and found)
    # both at once, or the second GPU bought nothing
    assert {each["CUDA_VISIBLE_DEVICES"] for each in both} == {"0", "1"}
    (host / "control/hold").unlink()
    answer, said = process.communicate(timeout=PATIENCE_S)
    code, document = process.returncode, json.loads(answer)
    assert code == 1
    counts = document["summary"]
    assert (counts["runs"], counts["done"], counts["failed"]) == (6, 5, 1)
    assert counts["launches"] == 5 * 7
    assert "1 of 6 runs failed" in said
    failed = next(each for each in document["runs"] if each["state"] == "failed")
    assert "exit status 3" in failed["message"] or "hello" in failed["message"]
    seen = [each for each in notes(host) if "ended" in each]
    assert sorted(each["word"] for each in seen) == ["1", "2", "3", "fail", "hold", "hold"]
    on = {gpu: [e for e in seen if e["CUDA_VISIBLE_DEVICES"] == gpu] for gpu in ("0", "1")}
    for entries in on.values():
        entries.sort(key=lambda each: each["began"])
        assert len({each["TMPDIR"] for each in entries}) == 1
        for before, after in itertools.pairwise(entries):
            assert after["began"] >= before["ended"]
    assert on["0"][0]["TMPDIR"] != on["1"][0]["TMPDIR"]
    assert {each["OMP_NUM_THREADS"] for each in seen} == {None}

    (host / "control/failing").unlink()
    code, document, said = sweep(host, "--resume")
    assert code == 0, said
    assert document["summary"]["kept"] == 5
    assert [each["word"] for each in notes(host)[8:]] == ["fail"]
    states = read_states(host / "runs")
    assert {each["state"] for each in states.values()} == {"done"}
    assert states[failed["run_id"]]["attempts"] == 2


@pytest.mark.slow
def test_a_killed_workers_run_goes_on_elsewhere_and_its_profiler_is_ended(host):
    (host / "control/hold").touch()
    write(host, "./p hold", "./p 1", "./p deadly", "./p 2")
    process = sweeping(host, "--json")
    (first,) = until(lambda: held(host))
    os.kill(first["worker"], signal.SIGKILL)
    until(lambda: not alive(first["pid"]) and not alive(first["child"]))
    second = until(lambda: held(host)[1:])[0]
    # on the same GPU only after its first profiler was gone, on the other one at any time
    assert second["pid"] != first["pid"]
    (host / "control/hold").unlink()
    answer, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1
    document = json.loads(answer)
    assert "runs" in document, said
    runs = {each["run_id"]: each for each in document["runs"]}
    by_word = dict(zip(("hold", "1", "deadly", "2"), runs.values(), strict=True))
    assert [by_word[word]["state"] for word in ("hold", "1", "2")] == ["done"] * 3
    assert by_word["hold"]["attempts"] == 2
    assert by_word["deadly"]["state"] == "failed"
    assert by_word["deadly"]["attempts"] == 3
    assert "every worker that measured it died" in by_word["deadly"]["message"]
    assert document["summary"]["launches"] == 3 * 7
    assert document["summary"]["lost_attempts"] == 4
    assert len(list((host / "runs").glob("*/run.json"))) == 3
    assert "attempt 2" in said


@pytest.mark.slow
def test_a_run_whose_worker_died_before_it_could_answer_was_measured_by_this_sweep(host):
    (host / "control/hold").touch()
    write(host, "./p hold")
    process = sweeping(host, "--json", "--gpus", "1")
    (first,) = until(lambda: held(host))
    process.send_signal(signal.SIGSTOP)  # it takes no answer meanwhile
    (host / "control/hold").unlink()
    until(lambda: list((host / "runs").glob("*/run.json")))
    os.kill(first["worker"], signal.SIGKILL)
    process.send_signal(signal.SIGCONT)
    answer, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, said
    document = json.loads(answer)
    summary = document["summary"]
    assert (summary["done"], summary["launches"], summary["lost_attempts"]) == (1, 7, 0)
    assert [each["attempts"] for each in document["runs"]] == [1]
    assert len(held(host)) == 1


@pytest.mark.slow
def test_ctrl_c_leaves_nothing_half_written_and_says_how_to_go_on(host, monkeypatch):
    monkeypatch.delenv(FORKED)  # the signal goes to the processes that a user has
    (host / "control/hold").touch()
    write(host, "./p 1", "./p hold", "./p 2")
    process = sweeping(host, "--gpus", "1", start_new_session=True)
    (first,) = until(lambda: held(host))
    second = sweeping(host, "--resume", "--quiet")
    _, refused = second.communicate(timeout=PATIENCE_S)
    assert second.returncode == 1
    assert "another sweep is at work in this folder" in refused
    assert f'"pid": {process.pid}' in refused
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to workers and driver
    _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130, said
    assert "--resume" in said
    assert "Traceback" not in said
    until(lambda: all(not alive(first[name]) for name in ("pid", "child", "worker")))
    assert not (host / "runs/.partial").exists()
    states = read_states(host / "runs")
    assert [each["state"] for each in states.values()].count("running") == 0
    done = [each for each in states.values() if each["state"] == "done"]
    assert len(done) == len(list((host / "runs").glob("*/run.json")))
    assert {each["attempts"] for each in states.values() if each["state"] == "pending"} <= {0, 1}


@pytest.mark.slow
def test_a_killed_driver_loses_no_finished_run_here_nor_on_another_machine(
    host, tmp_path, monkeypatch
):
    (host / "control/hold").touch()
    (host / "p").write_text("a program")
    write(host, "./p 1", "./p hold", "./p 2")
    process = sweeping(host, "--gpus", "2")
    (first,) = until(lambda: held(host))
    finished = until(lambda: len(found := list((host / "runs").glob("*/run.json"))) == 2 and found)
    until(lambda: all(each["attempts"] for each in read_states(host / "runs").values()))
    stamps = {path: path.stat().st_mtime_ns for path in finished}
    other = tmp_path / "other"
    other.mkdir()
    # what a snapshot of the disk holds while the sweep runs: half a run, locks, the manifest;
    # a snapshot is of one moment, so the driver writes nothing meanwhile
    process.send_signal(signal.SIGSTOP)
    shutil.copytree(host / "runs", other / "runs", symlinks=True)
    for name in ("p", "sweep.yaml"):
        shutil.copy(host / name, other / name)
    process.kill()
    process.communicate()
    until(lambda: all(not alive(first[name]) for name in ("pid", "child", "worker")))
    (host / "control/hold").unlink()
    code, _, said = sweep(host)
    assert code == 1
    assert "--resume" in said
    code, document, said = sweep(host, "--resume", "--gpus", "1,")
    assert code == 0, said
    assert document["summary"]["kept"] == 2
    assert {path: path.stat().st_mtime_ns for path in finished} == stamps
    assert notes(host)[-1]["CUDA_VISIBLE_DEVICES"] == "1"
    assert sorted(each["attempts"] for each in document["runs"]) == [1, 1, 2]
    assert not (host / "runs/.partial").exists()

    assert list((other / "runs/.partial").iterdir())
    before = {path: path.stat().st_mtime_ns for path in (other / "runs").glob("*/run.json")}

    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text("import socket\nsocket.gethostname = lambda: 'other'\n")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(site), str(ROOT)]))
    monkeypatch.setenv("FAKE_MODEL", "NVIDIA B200")
    code, document, said = sweep(other, "--resume")
    assert code == 0, said
    summary = document["summary"]
    assert (summary["done"], summary["kept"], summary["launches"]) == (3, 2, 7)
    assert {path: path.stat().st_mtime_ns for path in before} == before
    (redone,) = [each for each in document["runs"] if each["attempts"] == 2]
    assert redone["host"] == "other"
    assert {each["word"] for each in notes(host)[3:]} == {"hold"}
    assert not (other / "runs/.partial").exists()
    # where the time went: the workers' start, and the part of a run that needs no GPU
    assert 0 < summary["seconds_to_first_run"] < summary["seconds"]
    record = json.loads((other / "runs" / redone["run_id"] / "run.json").read_text())
    assert 0 < record["conversion_seconds"] < redone["seconds"]
    # one sweep now holds two kinds of GPU, which is told
    assert summary["devices"] == {"NVIDIA H200": 2, "NVIDIA B200": 1}
    assert "2 on NVIDIA H200, 1 on NVIDIA B200" in said


@pytest.mark.slow
def test_a_scheduler_that_is_there_is_used(host):
    from distributed import LocalCluster

    plan = read_sweep(write(host, "./p 1", "./p 2", launcher=str(TOOLS / "launcher")))
    with LocalCluster(
        n_workers=1,
        threads_per_worker=1,
        resources={"GPU": 1},
        dashboard_address=None,
        worker_dashboard_address=None,
        silence_logs=50,
    ) as cluster:
        executor = Executor(address=cluster.scheduler_address)
        changes = []
        outcome = run_sweep(plan, host / "runs", executor, observer=changes.append)
        states = [each.state for each in outcome.states]
        assert states == ["done", "done"], [each.message for each in outcome.states]
        assert [each.finished for each in changes] == [0, 1, 1, 2]
        # the folder is what counts: a second driver with a lost manifest measures nothing
        (host / "runs/sweep.json").unlink()
        again = run_sweep(plan, host / "runs", executor, resume=True)
        assert (again.kept, again.launches) == (2, 0)
    with pytest.raises(PerfmlError, match="no Dask scheduler answers"):
        run_sweep(read_sweep(write(host, "./p 3")), host / "other", Executor(address="tcp://::1"))


def test_workers_without_a_gpu_are_told_how_to_have_one(host):
    from distributed import LocalCluster

    plan = read_sweep(write(host, "./p 1"))
    with (
        LocalCluster(n_workers=1, processes=False, dashboard_address=None) as cluster,
        pytest.raises(PerfmlError, match="--resources GPU=1"),
    ):
        run_sweep(plan, host / "runs", Executor(address=cluster.scheduler_address))


def test_a_gpu_that_another_sweep_measures_on_is_refused(host, monkeypatch):
    import fcntl

    monkeypatch.setattr("collectors.sweep.executors._FREED_S", 0.2)
    plan = read_sweep(write(host, "./p 1"))
    with lock_of("1").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(PerfmlError, match="GPU 1: another sweep"):
            run_sweep(plan, host / "runs", Executor(gpus=("0", "1")))
    assert notes(host) == []


def test_two_workers_make_and_remove_the_folder_of_unfinished_runs_at_once(tmp_path):
    script = (
        "import sys; from pathlib import Path; from collectors.run_folder import building\n"
        "for number in range(300):\n"
        "    with building(Path(sys.argv[1]), f'{sys.argv[2]}-{number}') as folder: pass\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    both = [subprocess.Popen([*command, name], cwd=ROOT) for name in ("one", "two")]
    assert [each.wait(PATIENCE_S) for each in both] == [0, 0]
    assert len(list(tmp_path.glob("*-*"))) == 600


@pytest.mark.parametrize(
    ("asked", "visible", "chosen"),
    [
        (None, None, ("0", "1")),
        ("1", None, ("0",)),
        ("1,", None, ("1",)),
        ("1,0", None, ("1", "0")),
        (None, "1", ("1",)),
        ("1", "1", ("1",)),
    ],
)
def test_gpus_are_chosen_by_number_or_list(host, monkeypatch, asked, visible, chosen):
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert choose_gpus(asked) == chosen


@pytest.mark.parametrize("asked", ["0", "3", "0,7", "x", ","])
def test_gpus_that_are_not_there_are_refused(host, asked):
    with pytest.raises(InputError, match="no such GPUs"):
        choose_gpus(asked)
