"""One command collects a matrix of runs, keeps what is finished and goes on after a kill.

Stand-ins for ncu, nvidia-smi and srun replay what was recorded on an H200.
"""

import json
import signal
import subprocess
import sys

import pytest

from collectors.collect import collect
from collectors.profilers.counter_record import read_record
from collectors.profilers.counter_table import Measurement, write_counters
from collectors.profilers.cupti import CuptiProfile
from collectors.profilers.cupti_failures import UnableError
from collectors.profilers.timing import Timing
from collectors.run_folder import claimed
from collectors.run_spec import Run, metric_names
from collectors.settings import Settings
from perfml.errors import InputError, PerfmlError
from perfml.explain import explain
from perfml.ingest.merge.rule import merge
from perfml.ingest.profiles import ingest
from tests.support.collecting import names, workload
from tests.support.paths import DATA, ROOT
from tests.support.processes import PATIENCE_S, until

pytestmark = pytest.mark.process


def test_a_run_leaves_metrics_times_log_and_its_description(tmp_path, tools):
    (result,) = workload(tmp_path)
    assert result.status == "done", result.message
    assert names(result.folder) == [
        "log.txt",
        "metrics.csv",
        "metrics.ncu-rep",
        "run.json",
        "timing.csv",
    ]
    record = json.loads((result.folder / "run.json").read_text())
    assert record["run_id"] == result.run_id
    assert (record["launches_profiled"], record["passes"]) == (89, 8)
    assert record["timing"]["source"] == "cupti-activity"
    assert record["timing"]["unattributed_share"] == 0.0
    assert record["compute_capability"] == "9.0"
    assert record["clock_control"] == "none"
    assert len(record["layers"]) == 38


def test_collected_runs_can_be_ingested(tmp_path, tools):
    workload(tmp_path)
    kernels = ingest([tmp_path])
    conv = kernels.frame[kernels.frame["layer"].str.startswith("conv_", na=False)]
    assert conv["layer"].nunique() == 21
    assert conv["time_source"].eq("timing").all()
    assert conv["achieved_occupancy"].notna().all()
    assert set(kernels.frame["backend"]) == {"cublas"}


def test_finished_runs_are_kept_and_missing_ones_done(tmp_path, tools):
    (first,) = workload(tmp_path)
    before = (first.folder / "run.json").read_bytes()
    again = workload(tmp_path, backends=("cublas", "cudnn"))
    assert [each.status for each in again] == ["kept", "done"]
    assert (first.folder / "run.json").read_bytes() == before
    lines = (tmp_path / "manifest.jsonl").read_text().splitlines()
    assert [json.loads(line)["status"] for line in lines] == ["done", "done"]


def test_a_run_that_fails_does_not_stop_the_others(tmp_path, tools):
    tools.setenv("FAKE_FAILING_BACKEND", "cudnn")
    results = workload(tmp_path, backends=("cublas", "cudnn", "inductor"))
    assert [each.status for each in results] == ["done", "failed", "done"]
    assert "not for this machine" in results[1].message
    assert not results[1].folder.exists()
    log = tmp_path / ".failed" / results[1].run_id / "log.txt"
    assert "not for this machine" in log.read_text()
    assert str(log) in results[1].message
    tools.delenv("FAKE_FAILING_BACKEND")
    again = workload(tmp_path, backends=("cublas", "cudnn", "inductor"))
    assert [each.status for each in again] == ["kept", "done", "kept"]
    assert not log.exists()


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGTERM,
        pytest.param(signal.SIGINT, marks=pytest.mark.slow),
        pytest.param(signal.SIGHUP, marks=pytest.mark.slow),
    ],
)
def test_a_signal_leaves_nothing_half_done_and_the_same_command_goes_on(tmp_path, tools, number):
    # whoever runs the tests may ignore hang-ups, and children inherit that
    script = (
        "import signal; signal.signal(signal.SIGHUP, signal.SIG_DFL); "
        "from tests.support.collecting import workload; "
        f"workload({str(tmp_path)!r}, backends=('cublas', 'cudnn'))"
    )
    tools.setenv("FAKE_SECONDS", "600")
    tools.setenv("FAKE_SLOW_BACKEND", "cudnn")
    process = subprocess.Popen(
        [sys.executable, "-c", script], cwd=ROOT, stderr=subprocess.PIPE, start_new_session=True
    )
    until(lambda: list(tmp_path.glob("*/run.json")))
    until(lambda: list((tmp_path / ".partial").glob("*cudnn*/log.txt")))
    process.send_signal(number)
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode != 0
    assert [each for each in names(tmp_path) if "cudnn" in each or "partial" in each] == []
    tools.setenv("FAKE_SECONDS", "0")
    again = workload(tmp_path, backends=("cublas", "cudnn"))
    assert [each.status for each in again] == ["kept", "done"]


def test_after_a_kill_the_leftovers_are_cleared_away(tmp_path, tools):
    script = f"from tests.support.collecting import workload; workload({str(tmp_path)!r})"
    tools.setenv("FAKE_SECONDS", "60")
    process = subprocess.Popen([sys.executable, "-c", script], cwd=ROOT, start_new_session=True)
    until(lambda: list((tmp_path / ".partial").glob("*/log.txt")))
    process.kill()
    process.wait()
    assert names(tmp_path / ".partial")
    tools.setenv("FAKE_SECONDS", "0")
    # a child that the kill caught before its exec holds the claim a moment longer
    (again,) = until(lambda: [each for each in workload(tmp_path) if each.status != "busy"])
    assert again.status == "done"
    assert not (tmp_path / ".partial").exists()


def test_a_run_that_another_process_measures_is_left_to_it(tmp_path, tools):
    (planned,) = workload(tmp_path, dry_run=True)
    with claimed(tmp_path, planned.run_id) as mine:
        assert mine
        (result,) = workload(tmp_path)
    assert result.status == "busy"
    assert not result.folder.exists()


def test_a_damaged_result_is_measured_again(tmp_path, tools):
    (first,) = workload(tmp_path)
    (first.folder / "run.json").write_text("{")
    (again,) = workload(tmp_path)
    assert again.status == "done"
    assert json.loads((again.folder / "run.json").read_text())["run_id"] == first.run_id


def test_a_folder_that_cannot_be_written_is_one_error(tmp_path, tools):
    (tmp_path / "file").write_text("")
    with pytest.raises((PerfmlError, OSError)) as error:
        workload(tmp_path / "file" / "runs")
    assert isinstance(error.value, PerfmlError)
    assert "file" in str(error.value)


def test_dry_run_names_the_commands_and_runs_none(tmp_path, tools):
    tools.setenv("FAKE_NCU_ARGUMENTS", str(tmp_path / "seen"))
    results = collect(
        "yolov4-tiny",
        backends=("cublas", "cudnn"),
        precisions=("fp32", "fp16"),
        batches=(1, 8),
        out=tmp_path / "runs",
        dry_run=True,
    )
    assert len(results) == 8
    assert len({each.run_id for each in results}) == 8
    assert {each.status for each in results} == {"planned"}
    timing, profile, table = results[0].commands
    assert timing[timing.index("--mode") + 1] == "timing"
    assert profile[0] == "ncu"
    assert profile[profile.index("--mode") + 1] == "profile"
    assert "--import" in table
    assert not (tmp_path / "runs").exists()
    assert not (tmp_path / "seen").exists()


def test_the_launcher_goes_in_front_of_every_command(tmp_path):
    (result,) = collect(
        "yolov4-tiny", out=tmp_path, launcher="srun --gres=gpu:1 -J 'a b'", dry_run=True
    )
    assert all(each[:4] == ("srun", "--gres=gpu:1", "-J", "a b") for each in result.commands)


def test_a_run_id_changes_with_whatever_defines_the_run(tmp_path):
    program = tmp_path / "program"
    program.write_text("one")
    base = Run("program", program=(str(program),))
    ids = {base.run_id, Run("program", program=(str(program), "-v")).run_id}
    ids.add(Run("program", program=(str(program),), settings=Settings(replay="application")).run_id)
    program.write_text("two")
    ids.add(base.run_id)
    assert len(ids) == 4
    assert base.run_id == Run("program", program=(str(program),)).run_id


def test_a_program_is_profiled_and_timed_by_ncu_where_nothing_else_is(tmp_path, tools):
    (result,) = collect(command=["./vectors"], out=tmp_path, timing="ncu")
    assert result.status == "done", result.message
    assert result.record["timing"]["source"] == "ncu"
    assert result.record["device"] == "NVIDIA H200"
    assert not (result.folder / "timing.csv").exists()
    kernels = ingest([result.folder])
    assert len(kernels.frame) == 7
    assert set(kernels.frame["time_source"]) == {"ncu"}


def test_a_program_without_cupti_says_where_its_times_come_from(tmp_path, tools):
    tools.setattr("collectors.profilers.inject._roots", list)
    (result,) = collect(command=["./vectors"], out=tmp_path)
    assert result.status == "done", result.message
    assert any("serialised" in each for each in result.warnings)
    (strict,) = collect(command=["./vectors"], out=tmp_path, timing="cupti")
    assert strict.status == "failed"
    assert "CUPTI is not installed" in strict.message


def test_the_program_gets_variables_that_keep_jax_from_taking_all_memory():
    assert Run("p", program=("p",)).environment()["XLA_PYTHON_CLIENT_PREALLOCATE"] == "false"


def test_without_a_gpu_nothing_is_started(tmp_path, tools):
    tools.setenv("FAKE_GPU", "none")
    with pytest.raises(PerfmlError, match="shows no GPU"):
        collect("yolov4-tiny", out=tmp_path / "runs")
    assert not (tmp_path / "runs").exists()


@pytest.fixture
def by_iterations(tools, tmp_path):
    """Let CUPTI measure the stand-in program `measured`, or refuse with an error."""

    def answer(outcome):
        def profile(options, program, *, folder, **_):
            if isinstance(outcome, Exception):
                raise outcome
            return outcome(folder)

        tools.setattr("collectors.measure_cupti.cupti.profile", profile)
        tools.setattr("collectors.profilers.cupti.require", lambda gpu: None)

    return answer


def measured(folder):
    """Give what was recorded of a program on an H100."""
    record = read_record(DATA / "cupti" / "h100_repeats.tsv")
    measurement = Measurement(record.machine, "iterations", 12)
    table = folder / "metrics.csv"
    write_counters(table, record.rows, record.group_metrics[0], measurement)
    timed = tuple(launch for launch in record.timed if launch.profiled)
    rest = (), tuple(record.pass_costs), 1.5, ("./p",)
    return CuptiProfile(table, timed, tuple(record.rows), measurement, False, *rest)


def test_auto_measures_a_program_by_its_iterations_where_that_works(tmp_path, by_iterations):
    by_iterations(measured)
    (result,) = collect(command=["./p"], out=tmp_path)
    assert result.status == "done", result.message
    assert (result.record["profiler"], result.record["passes"]) == ("cupti", 12)
    assert result.record["caches"] == "as the program left them"
    assert result.record["profiler_version"] == "130001"
    assert names(result.folder) == ["metrics.csv", "run.json", "timing.csv"]
    kernels = ingest([tmp_path])
    assert kernels.frame["time_source"].eq("timing").all()
    assert kernels.frame["layer"].tolist() == ["update", "update", "reduce", "reduce"] * 3
    assert kernels.frame["achieved_occupancy"].notna().all()


def test_auto_goes_to_nsight_compute_where_cupti_is_unable_and_says_so(
    tmp_path, tools, by_iterations
):
    by_iterations(UnableError("the program replays a CUDA graph"))
    tools.setattr("collectors.profilers.inject._roots", list)  # no timing pass of its own either
    (result,) = collect(command=["./p"], out=tmp_path)
    assert result.status == "done", result.message
    assert result.record["profiler"] == "ncu"
    assert "measured by Nsight Compute, launch by launch: the program replays" in " ".join(
        result.warnings
    )
    (refused,) = collect(command=["./p"], out=tmp_path / "asked", profiler="cupti")
    assert (refused.status, "CUDA graph" in refused.message) == ("failed", True)


def test_options_of_nsight_compute_keep_auto_with_it(tmp_path, by_iterations):
    by_iterations(measured)
    (result,) = collect(command=["./p"], out=tmp_path, timing="ncu")
    assert result.record["profiler"] == "ncu"


def test_an_old_gpu_gets_nvprof_and_refuses_ncu(tmp_path, tools):
    tools.setenv("FAKE_GPU", "pascal")
    (planned,) = collect(command=["./p"], out=tmp_path, dry_run=True)
    assert [each[0] for each in planned.commands] == ["nvprof", "nvprof"]
    (done,) = collect(command=["./p"], out=tmp_path)
    assert done.status == "done", done.message
    assert names(done.folder) == ["log.txt", "metrics.csv", "run.json", "trace.nvvp"]
    (refused,) = collect(command=["./p"], out=tmp_path, profiler="ncu")
    assert "7.0" in refused.message


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "name a workload"),
        ({"workload": "yolov4-tiny", "command": ["x"]}, "name a workload"),
        ({"workload": "no-such"}, "no built-in workload"),
        ({"workload": "yolov4-tiny", "iterations": 0}, "--iterations: must be at least 1"),
        ({"workload": "yolov4-tiny", "batches": [0]}, "at least one image"),
        ({"workload": "yolov4-tiny", "profiler": "nsys"}, "--profiler"),
        ({"workload": "yolov4-tiny", "metrics": ["publishd"]}, "published"),
        ({"workload": "yolov4-tiny", "layers": "("}, "regular expression"),
        ({"workload": "yolov4-tiny", "layer_map": "x.toml"}, "without ranges"),
        ({"workload": "yolov4-tiny", "launcher": "srun 'x"}, "quotes"),
    ],
)
def test_a_wrong_request_is_refused_before_anything_starts(tmp_path, given, says):
    with pytest.raises(PerfmlError) as error:
        collect(out=tmp_path / "runs", **given)
    assert says in str(error.value)
    assert not (tmp_path / "runs").exists()


def test_metrics_come_from_sets_files_and_the_profilers_own_names(tmp_path):
    listed = tmp_path / "list.txt"
    listed.write_text("# mine\nachieved_occupancy\nsm__cycles_active.avg  # raw\n\n")
    known, raw = metric_names([str(listed), "stall_sync"])
    assert known == ("achieved_occupancy", "stall_sync")
    assert raw == ("sm__cycles_active.avg",)
    with pytest.raises(InputError, match="cannot read"):
        metric_names([str(tmp_path / "none.txt")])


def test_few_iterations_of_a_program_are_profiled(tmp_path, tools):
    from collectors import measure

    subject = Run("p", program=("p",), settings=Settings(metric_iterations=2))
    names = ("step_0", "step_1", "step_2")
    timed = measure._Timed({}, {}, region_only=False, iterations=names)
    assert measure._include(subject, timed) == ("step_0/", "step_1/")
    layered = Run("p", program=("p",), settings=Settings(metric_iterations=2, layers="conv_.*"))
    assert measure._include(layered, timed) == ("regex:(step_0|step_1)/(conv_.*)/",)


def test_a_layer_map_travels_in_the_description(tmp_path, tools):
    path = tmp_path / "map.toml"
    path.write_text("[[layer]]\nname = 'first'\nkernels = ['scale']\n")
    (result,) = collect(command=["./p"], layer_map=path, timing="ncu", out=tmp_path / "runs")
    layers = result.record["layer_map"]["layer"]
    assert layers == [{"name": "first", "kernels": ["scale"]}]


@pytest.mark.slow
def test_further_processes_are_timed_and_intervals_are_taken_over_them(tmp_path, tools):
    (result,) = workload(tmp_path, processes=3)
    assert result.status == "done", result.message
    times = [each for each in names(result.folder) if each.startswith("timing")]
    assert times == ["timing.csv", "timing_2.csv", "timing_3.csv"]
    assert result.record["timing"]["processes"] == 3
    layers = merge(ingest([tmp_path]).frame)
    assert layers["process"].value_counts().to_dict() == {1: 68, 2: 68, 3: 68}
    assert layers.groupby("process")["iteration"].unique().map(list).tolist() == [
        [0, 1],
        [2, 3],
        [4, 5],
    ]
    assert layers["time_source"].eq("timing").all()
    total = explain(layers, layers, model=None, top=0).total
    assert total.processes == (3, 3)


@pytest.mark.slow
def test_a_run_of_one_process_says_so_and_another_number_is_another_run(tmp_path, tools):
    (one,) = workload(tmp_path)
    (two,) = workload(tmp_path, processes=2)
    assert one.run_id != two.run_id
    layers = merge(ingest([one.folder]).frame)
    assert "process" not in layers.columns
    assert "within one process" in explain(layers, layers, model=None, top=0).total.sentence()


def test_times_of_a_profiler_are_not_repeated_and_that_is_said(tmp_path, tools):
    (result,) = collect(command=["./vectors"], out=tmp_path, timing="ncu", processes=2)
    assert result.status == "done", result.message
    assert any("timed in one process, not 2" in each for each in result.warnings)
    assert "processes" not in result.record["timing"]


def test_a_program_measured_by_its_iterations_is_traced_again(tmp_path, by_iterations, tools):
    by_iterations(measured)
    record = read_record(DATA / "cupti" / "h100_repeats.tsv")
    launches = tuple(launch for launch in record.timed if launch.profiled)
    again = Timing(launches, region=True, seconds=1.0, command=("./p",))
    tools.setattr("collectors.timing_passes.timing.trace", lambda *_, **__: again)
    (result,) = collect(command=["./p"], out=tmp_path, processes=2)
    assert result.status == "done", result.message
    frame = ingest([tmp_path]).frame
    assert frame.groupby("process")["iteration"].unique().map(list).tolist() == [
        [0, 1, 2],
        [3, 4, 5],
    ]
    assert frame["achieved_occupancy"].notna().all()
