"""nvprof's two commands, and what happens where it is missing or does not fit the GPU."""

import pytest

from collectors.collect import collect
from collectors.profilers import nvprof
from collectors.profilers.process import ProfilerError
from collectors.settings import Settings
from tests.support.processes import PATIENCE_S

pytestmark = pytest.mark.process

OPTIONS = nvprof.NvprofOptions(("achieved_occupancy", "ipc"), region_only=True)


PROGRAM = ["./p", "a b"]


def profile(tmp_path, **options):
    programs = nvprof.Programs(PROGRAM, PROGRAM)
    log = tmp_path / "log.txt"
    return nvprof.profile(
        OPTIONS, programs, folder=tmp_path, log=log, timeout_s=PATIENCE_S, **options
    )


def test_metrics_come_as_rows_of_launches_with_names_and_times_as_a_database(tmp_path):
    metrics = nvprof.metrics_command(OPTIONS, PROGRAM, tmp_path)
    trace = nvprof.trace_command(OPTIONS, PROGRAM, tmp_path)
    assert metrics[metrics.index("--metrics") + 1] == "achieved_occupancy,ipc"
    assert {"--csv", "--print-gpu-trace"} <= set(metrics)
    assert metrics[metrics.index("--log-file") + 1] == str(tmp_path / "metrics.csv")
    assert trace[trace.index("--export-profile") + 1] == str(tmp_path / "trace.nvvp")
    assert not {"--metrics", "--csv", "--log-file"} & set(trace)
    for command in (metrics, trace):
        assert command[0] == "nvprof"
        assert command[-2:] == PROGRAM
        assert command[command.index("--profile-from-start") + 1] == "off"


def test_both_exports_are_left_in_the_folder(tmp_path, tools):
    tools.setenv("FAKE_NVPROF", "done")
    commands = profile(tmp_path, launcher=["env"])
    assert [each[0] for each in commands] == ["env", "env"]
    assert (tmp_path / "metrics.csv").is_file()
    assert (tmp_path / "trace.nvvp").is_file()


@pytest.mark.parametrize(
    ("scenario", "what", "cure"),
    [
        ("unsupported", "does not support this GPU", "--profiler ncu"),
        ("exit3", "exit status 3 (found: hello)", "without perfml first"),
        ("permission", "may not read", "NVreg_RestrictProfilingToAdminUsers"),
        ("no_export", "left no export", "disk"),
    ],
)
def test_each_failure_is_one_message_with_its_cure(tmp_path, tools, scenario, what, cure):
    tools.setenv("FAKE_NVPROF", scenario)
    with pytest.raises(ProfilerError) as error:
        profile(tmp_path)
    assert what in str(error.value)
    assert cure in str(error.value)
    assert "==" in (tmp_path / "log.txt").read_text(), "nvprof's own messages are in the log"


def planned(tmp_path, tools, **options):
    tools.setenv("FAKE_GPU", "pascal")
    options = {"workload": "yolov4-tiny", "backends": ["cublas"], "precisions": ["fp32"], **options}
    (run,) = collect(batches=[1], out=tmp_path, profiler="nvprof", dry_run=True, **options)
    return [words for words in run.commands if words[0] == "nvprof"]


def test_as_many_iterations_are_timed_as_were_asked_for(tmp_path, tools):
    def iterations(words):
        return int(words[words.index("--iterations") + 1])

    metrics, trace = planned(tmp_path, tools)
    assert (iterations(metrics), iterations(trace)) == (3, 10)
    metrics, trace = planned(tmp_path, tools, iterations=25, metric_iterations=2)
    assert (iterations(metrics), iterations(trace)) == (2, 25)


@pytest.mark.parametrize("asked", [["all"], ["published,all"]])
def test_all_metrics_are_asked_of_nvprof_in_its_own_word(tmp_path, tools, asked):
    metrics, _ = planned(tmp_path, tools, metrics=asked)
    assert metrics[metrics.index("--metrics") + 1] == "all"


def test_a_dry_run_asks_for_the_metrics_that_a_run_asks_for(tmp_path, tools):
    metrics, _ = planned(tmp_path, tools)
    names = metrics[metrics.index("--metrics") + 1].split(",")
    assert "gld_efficiency" in names
    assert "default" not in names


def test_all_metrics_of_nsight_compute_are_those_it_has():
    request = Settings(metrics=("all",)).ncu_metrics
    assert set(Settings(metrics=("default",)).ncu_metrics) < set(request)


def test_a_missing_nvprof_says_which_toolkit_has_it(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ProfilerError, match="before 13"):
        nvprof.require("6.1")
    with pytest.raises(ProfilerError, match="before 13"):
        profile(tmp_path)


def test_a_newer_gpu_is_sent_to_ncu(tools):
    nvprof.require("7.2")
    for capability in ("7.5", "9.0", "12.0"):
        with pytest.raises(ProfilerError, match="--profiler ncu"):
            nvprof.require(capability)


def test_lines_are_refused_before_nvprof_measures_anything(tmp_path, tools):
    tools.setenv("FAKE_GPU", "pascal")
    tools.setenv("FAKE_NVPROF_ARGUMENTS", str(tmp_path / "seen"))
    (refused,) = collect(command=["./p"], out=tmp_path / "runs", lines=True)
    assert refused.status == "failed"
    assert "--lines" in refused.message
    assert not (tmp_path / "seen").exists()
