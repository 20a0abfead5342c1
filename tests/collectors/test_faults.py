"""What breaks around perfml: full disks, locked folders, profilers and programs that misbehave,
signals at every stage, two processes at once. Nothing is lost, half-written or left running.
"""

import json
import os
import resource
import signal
import stat
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from collectors import run_folder as folders
from collectors.collect import collect
from collectors.profilers import gpu, ncu, timing
from collectors.profilers.process import ProfilerError, ask, run
from perfml.cli import app
from perfml.errors import InputError
from perfml.ingest.merge.rule import merge
from perfml.tables import read_table, replacing, write_table
from tests.support.collecting import names, workload
from tests.support.paths import ROOT
from tests.support.processes import PATIENCE_S, Forked, alive, let_hang, ran, until
from tests.support.tables import make_kernels

pytestmark = pytest.mark.process

VECTORS = ROOT / "tests/data/ncu/vectors.csv"
OLD = b"an older result\nperfml 1.0\n"  # what ends a report of perfml: nothing else is replaced
ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
PLACES = ("file/result.parquet", "none/result.parquet", "/proc/result")


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    kernels = make_kernels([{"layer": f"conv_{n:02d}", "stall_sync": 0.1 * n} for n in range(3)])
    write_table(kernels, folder / "kernels.parquet", kind="kernels", provenance={})
    # one layer: a report that has nothing to learn from is made at once
    write_table(merge(kernels[:1]), folder / "one.parquet", kind="layers", provenance={})
    return folder


def command_of(verb, tables, out):
    """Return the arguments of a verb that writes one file."""
    return {
        "ingest": ["ingest", str(VECTORS), "--out", str(out)],
        "merge": ["merge", str(tables / "kernels.parquet"), "--out", str(out)],
        "report": ["report", str(tables / "one.parquet"), "--out", str(out)],
    }[verb]


def result_of(verb):
    return "result.html" if verb == "report" else "result.parquet"


def one_error(said):
    lines = [line for line in said.splitlines() if not line.startswith("warning: ")]
    assert lines[0].startswith("error: "), said
    assert len(lines) <= 2, said
    assert "internal error" not in said
    return said


# The disk is full


# without the cache of compiled modules: Python would keep 2000 bytes of a module that it meets now
LITTLE_ROOM = (
    "import resource, sys; sys.dont_write_bytecode = True; "
    "resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))"
)


@pytest.mark.parametrize(
    "verb", ["ingest", "merge", pytest.param("report", marks=pytest.mark.slow)]
)
def test_on_a_full_disk_the_older_result_stays_and_nothing_is_left(verb, tables, tmp_path):
    out = tmp_path / result_of(verb)
    out.write_bytes(OLD)
    process = Forked(command_of(verb, tables, out), LITTLE_ROOM)
    _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1
    assert "File too large" in one_error(said)
    assert out.read_bytes() == OLD
    assert names(tmp_path) == [out.name]


@pytest.mark.slow
def test_on_a_full_disk_a_run_fails_whole_and_the_next_try_does_it(tmp_path, tools):
    script = f"""
        {LITTLE_ROOM}
        from tests.support.collecting import workload
        (result,) = workload({str(tmp_path)!r})
        print(result.status, result.message)
    """
    ended = ran(sys.executable, "-c", textwrap.dedent(script))
    assert ended.stdout.startswith("failed"), ended.stderr
    assert not [each for each in names(tmp_path) if each.startswith("yolov4") or "partial" in each]
    for line in (tmp_path / "manifest.jsonl").read_text().splitlines():
        assert json.loads(line)["status"] == "failed"
    (again,) = workload(tmp_path)
    assert again.status == "done", again.message


def test_a_line_that_does_not_fit_is_left_out_of_the_manifest(tmp_path):
    folders.note(tmp_path, {"run_id": "first"})
    size = (tmp_path / folders.MANIFEST).stat().st_size
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    for room in (0, 1, 20):
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + room, before[1]))
        try:
            with pytest.raises(OSError, match=r"No space left|File too large"):
                folders.note(tmp_path, {"run_id": "second", "text": "x" * 100})
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert (tmp_path / folders.MANIFEST).stat().st_size == size
    with (tmp_path / folders.MANIFEST).open("a") as killed:
        killed.write('{"run_id": "hal')
    folders.note(tmp_path, {"run_id": "third"})
    lines = (tmp_path / folders.MANIFEST).read_text().splitlines()
    assert [json.loads(lines[n])["run_id"] for n in (0, 2)] == ["first", "third"]


def test_a_run_whose_line_cannot_be_written_is_done_all_the_same(tmp_path, tools):
    (tmp_path / folders.MANIFEST).mkdir()
    (result,) = workload(tmp_path)
    assert result.status == "done"
    assert (result.folder / "run.json").is_file()
    assert any("manifest.jsonl cannot be written" in each for each in result.warnings)


def test_a_log_that_cannot_grow_is_not_taken_for_a_missing_profiler(tmp_path, tools):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, before[1]))
    try:
        with pytest.raises(ProfilerError, match="cannot be kept") as error:
            ncu.profile(
                ncu.NcuOptions(("a.sum",)),
                ["p"],
                folder=tmp_path,
                log=tmp_path / "log.txt",
                timeout_s=PATIENCE_S,
            )
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "No space left" in str(error.value)


# The place cannot be written to


@pytest.mark.parametrize(
    ("verb", "place"),
    [
        *((verb, place) for verb in ("ingest", "merge") for place in PLACES),
        ("report", "file/result.parquet"),
    ],
)
def test_a_place_that_cannot_be_written_is_one_error(verb, place, tables, tmp_path):
    (tmp_path / "file").write_bytes(OLD)
    ended = CliRunner().invoke(app, command_of(verb, tables, tmp_path / place))
    assert ended.exit_code == 1
    assert "cannot write" in one_error(ended.stderr)
    assert names(tmp_path) == ["file"]


def test_a_link_is_written_through_and_a_device_or_folder_never_replaced(tmp_path):
    real = tmp_path / "real.txt"
    (tmp_path / "link").symlink_to(real)
    with replacing(tmp_path / "link") as temporary:
        temporary.write_bytes(b"new")
    assert real.read_bytes() == b"new"
    assert (tmp_path / "link").is_symlink()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "device").symlink_to("/dev/full")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for name in ("pipe", "folder", "device", "loop"):
        with pytest.raises(InputError), replacing(tmp_path / name) as temporary:
            temporary.write_bytes(b"new")
    assert stat.S_ISCHR(Path("/dev/full").stat().st_mode)
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


# Profilers and programs that misbehave


@pytest.mark.parametrize("scenario", ["killed", "bad_import"])
def test_a_profiler_that_misbehaves_fails_its_run_and_no_other(scenario, tmp_path, tools):
    tools.setenv("FAKE_NCU", scenario)
    out = tmp_path / "runs"
    (failed,) = collect(command=["./vectors"], out=out, timing="ncu")
    assert failed.status == "failed"
    assert 1 <= len(failed.message.splitlines()) <= 2
    assert not failed.folder.exists()
    assert names(out) == [".failed", ".locks", "manifest.jsonl"]
    tools.setenv("FAKE_NCU", "done")
    (done,) = collect(command=["./vectors"], out=out, timing="ncu")
    assert done.status == "done", done.message


def script(path, text):
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_a_driver_tool_that_hangs_is_ended_with_the_child_that_holds_its_output(
    tmp_path, monkeypatch
):
    pid = tmp_path / "pid"
    hanging = f"sleep 600 & echo $! > {pid}\nsleep 600"
    script(tmp_path / "nvidia-smi", hanging)
    script(tmp_path / "ncu", hanging)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    for module, question, error in ((gpu, gpu.gpus, "answer"), (ncu, ncu.version, "version")):

        def attempt(seconds, module=module, question=question, error=error):
            monkeypatch.setattr(module, "_PATIENCE_S", seconds)
            with pytest.raises(Exception, match=error):
                question()

        let_hang(pid, attempt)
        assert not alive(int(pid.read_text()))
        pid.unlink()


def test_a_conversion_that_hangs_is_ended_with_its_children(tmp_path, tools, monkeypatch):
    pid = tmp_path / "pid"
    converter = script(tmp_path / "convert", f"sleep 600 & echo $! > {pid}\nsleep 600")

    def attempt(seconds):
        monkeypatch.setattr(ncu, "_CONVERSION_S", seconds)
        with pytest.raises(ProfilerError, match="did not convert"):
            ncu._convert([str(converter)], tmp_path / "metrics.csv", tmp_path / "log.txt")

    let_hang(pid, attempt)
    assert not alive(int(pid.read_text()))


DAEMON = """
import os, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        with open(sys.argv[1], "w") as out:
            out.write(str(os.getpid()))
        time.sleep(600)
    os._exit(0)
while not (os.path.exists(sys.argv[1]) and open(sys.argv[1]).read()):
    time.sleep(0.01)
os._exit(int(sys.argv[2]))
"""


@pytest.mark.parametrize("code", [0, 7])
def test_a_program_that_leaves_a_daemon_behind_does_not_keep_it(tmp_path, code):
    pid = tmp_path / "pid"
    command = [sys.executable, "-c", DAEMON, str(pid), str(code)]
    ended = run(command, log=tmp_path / "log", timeout_s=PATIENCE_S)
    assert ended.returncode == code
    assert not alive(int(pid.read_text()))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_a_program_that_dies_of_a_signal_is_one_message(tmp_path, number):
    dying = f"echo working; kill -{int(number)} $$"
    ended = run(["sh", "-c", dying], log=tmp_path / "log", timeout_s=PATIENCE_S)
    with pytest.raises(ProfilerError, match=f"exit status -{int(number)}") as error:
        timing.check_ended(ended, 30)
    assert "working" in str(error.value)


def test_a_short_question_ends_with_its_children_too(tmp_path):
    pid = tmp_path / "pid"
    began = time.monotonic()
    answer = ask(["sh", "-c", f"sleep 600 & echo $! > {pid}; echo hello"], timeout_s=PATIENCE_S)
    assert answer.output == "hello\n"
    assert time.monotonic() - began < 300  # its child sleeps for 600
    assert not alive(int(pid.read_text()))


@pytest.mark.parametrize(
    "table",
    ["", "garbage\n", "iteration,layer,kernel,time_us\n0,a,k,fast\n", "layer,time_us\na\n"],
)
def test_a_timing_pass_that_left_garbage_is_an_error_of_ours(table, tmp_path):
    path = tmp_path / "timing.csv"
    path.write_text(table)
    with pytest.raises(ProfilerError, match="no readable table"):
        timing.unattributed_share(path)


def test_a_profilers_table_with_an_endless_cell_is_an_error_of_ours(tmp_path):
    path = tmp_path / "metrics.csv"
    path.write_text('"ID","Kernel Name"\n"",""\n"0","' + "k" * 200_000 + '"\n')
    with pytest.raises(ProfilerError, match="cannot be read"):
        ncu.read_outline(path, ("a.sum",))


# Signals


@pytest.mark.parametrize(
    ("verb", "number"),
    [
        *((verb, each) for verb in ("ingest", "merge") for each in ENDS),
        pytest.param("report", signal.SIGTERM, marks=pytest.mark.slow),
    ],
)
def test_a_signal_before_the_rename_leaves_the_older_result(verb, number, tables, tmp_path):
    out, reached = tmp_path / "out" / result_of(verb), tmp_path / "reached"
    out.parent.mkdir()
    out.write_bytes(OLD)
    stuck = f"""
        import os, pathlib, time
        def stuck(source, target):
            pathlib.Path({str(reached)!r}).touch()
            time.sleep(600)
        os.replace = stuck
    """
    process = Forked(command_of(verb, tables, out), stuck)
    try:
        until(reached.exists)
        assert len(names(out.parent)) == 2
        process.send_signal(number)
        _, said = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
    assert out.read_bytes() == OLD
    if number != signal.SIGKILL:
        assert process.returncode == 130
        assert said.splitlines()[-1].startswith("interrupted")
        assert "Traceback" not in said
        assert names(out.parent) == [out.name]


def test_a_second_ctrl_c_does_not_save_the_children(tmp_path):
    code = f"""
        from collectors.profilers.process import run
        from pathlib import Path
        folder = Path({str(tmp_path)!r})
        run(["sh", "-c", "trap '' TERM; sleep 600 & echo $! > {tmp_path}/pid; wait; sleep 600"],
            log=folder / "log", timeout_s=600)
    """
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)], cwd=ROOT, stderr=subprocess.DEVNULL
    )
    until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().strip())
    for _ in range(3):
        process.send_signal(signal.SIGINT)
        time.sleep(0.2)
    process.wait(PATIENCE_S)
    assert not alive(int((tmp_path / "pid").read_text()))


def test_a_signal_that_is_ignored_stays_ignored(tmp_path):
    code = """
        import os, signal
        from perfml.util.files import interruptible
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        with interruptible():
            os.kill(os.getpid(), signal.SIGHUP)
            try:
                os.kill(os.getpid(), signal.SIGTERM)
            except KeyboardInterrupt as error:
                print(error)
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    """
    ended = ran(sys.executable, "-c", textwrap.dedent(code), check=True)
    assert ended.stdout == "SIGTERM\n"


# Two processes


def test_two_processes_that_write_one_file_leave_one_whole_file(tmp_path):
    out = tmp_path / "out" / "kernels.parquet"
    out.parent.mkdir()
    processes = [Forked(["ingest", str(VECTORS), "--out", str(out)]) for _ in range(2)]
    for process in processes:
        _, said = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, said
    assert len(read_table(out, kind="kernels").frame) == 7
    assert names(out.parent) == ["kernels.parquet"]


@pytest.mark.slow
def test_of_two_processes_that_collect_one_run_one_does_it(tmp_path, tools):
    tools.setenv("FAKE_SECONDS", "1")
    code = (
        "from tests.support.collecting import workload; "
        f"print(*(each.status for each in workload({str(tmp_path)!r}, "
        "backends=('cublas', 'cudnn'))))"
    )
    processes = [
        subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    said = [process.communicate(timeout=PATIENCE_S)[0].split() for process in processes]
    for mine, other in zip(*said, strict=True):
        assert "done" in (mine, other)
        assert {mine, other} <= {"done", "busy", "kept"}
        assert [mine, other].count("done") == 1
    lines = [json.loads(each) for each in (tmp_path / "manifest.jsonl").read_text().splitlines()]
    assert [each["status"] for each in lines] == ["done", "done"]
    assert len(list(tmp_path.glob("*/run.json"))) == 2
    assert not (tmp_path / ".partial").exists()


NOTES = """
import sys
from pathlib import Path
from collectors import run_folder as folders
folder, number = Path(sys.argv[1]), sys.argv[2]
for each in range(50):
    folders.note(folder, {"run_id": f"{number}-{each}", "text": "x" * 5000})
"""


def test_lines_of_many_processes_do_not_mix(tmp_path):
    command = [sys.executable, "-c", NOTES, str(tmp_path)]
    processes = [subprocess.Popen([*command, str(number)], cwd=ROOT) for number in range(3)]
    assert [process.wait(PATIENCE_S) for process in processes] == [0, 0, 0]
    lines = (tmp_path / folders.MANIFEST).read_text().splitlines()
    found = {json.loads(line)["run_id"] for line in lines}
    assert found == {f"{number}-{each}" for number in range(3) for each in range(50)}
