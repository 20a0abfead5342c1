"""nvprof's two commands, and what happens where it is missing or does not fit the GPU."""

import pytest

from collectors.profilers import nvprof
from collectors.profilers._process import ProfilerError

OPTIONS = nvprof.NvprofOptions(("achieved_occupancy", "ipc"), region_only=True)


def profile(tmp_path, **options):
    return nvprof.profile(
        OPTIONS, ["./p", "a b"], folder=tmp_path, log=tmp_path / "log.txt", timeout_s=30, **options
    )


def test_metrics_and_times_are_two_runs_that_export_databases(tmp_path):
    metrics = nvprof.metrics_command(OPTIONS, ["./p", "a b"], tmp_path)
    trace = nvprof.trace_command(OPTIONS, ["./p", "a b"], tmp_path)
    assert metrics[metrics.index("--metrics") + 1] == "achieved_occupancy,ipc"
    assert "--metrics" not in trace
    for command, name in ((metrics, "metrics.nvvp"), (trace, "trace.nvvp")):
        assert command[0] == "nvprof"
        assert command[-2:] == ["./p", "a b"]
        assert command[command.index("--export-profile") + 1] == str(tmp_path / name)
        assert command[command.index("--profile-from-start") + 1] == "off"


def test_both_exports_are_left_in_the_folder(tmp_path, tools):
    tools.setenv("FAKE_NVPROF", "done")
    commands = profile(tmp_path, launcher=["env"])
    assert [each[0] for each in commands] == ["env", "env"]
    assert (tmp_path / "metrics.nvvp").is_file()
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
