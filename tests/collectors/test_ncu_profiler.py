"""Nsight Compute's command line, and one clear message for each way it can fail.

A stand-in executable prints what the real one printed (tests/data/fake_tools).
"""

import os

import pytest

from collectors.profilers import ncu
from collectors.profilers.ncu_failures import explain
from collectors.profilers.process import Finished, ProfilerError, descendants
from perfml.metrics import load_catalogue
from tests.support.paths import TOOLS
from tests.support.processes import PATIENCE_S, alive, let_hang

pytestmark = pytest.mark.process

PUBLISHED = load_catalogue().ncu_request(("published",))


def profile(tmp_path, scenario="done", tools=None, *, timeout_s=PATIENCE_S, **options):
    if tools is not None:
        tools.setenv("FAKE_NCU", scenario)
    return ncu.profile(
        ncu.NcuOptions(PUBLISHED, **options),
        ["./program", "--size", "a b"],
        folder=tmp_path,
        log=tmp_path / "log.txt",
        timeout_s=timeout_s,
    )


def test_command_asks_for_the_metrics_and_leaves_clocks_alone(tmp_path):
    options = ncu.NcuOptions(("a.sum", "b.pct"), region_only=True, include=("iter_0/",))
    command = ncu.profile_command(options, ["prog", "x y"], tmp_path / "m.ncu-rep")
    assert command[command.index("--metrics") + 1] == "a.sum,b.pct"
    assert command[command.index("--clock-control") + 1] == "none"
    assert command[command.index("--profile-from-start") + 1] == "off"
    assert command[command.index("--nvtx-include") + 1] == "iter_0/"
    assert command[-2:] == ["prog", "x y"]
    assert "--nvtx" in command


def test_a_profile_leaves_report_table_and_what_it_cost(tmp_path, tools):
    found = profile(tmp_path, tools=tools)
    assert (found.launches, found.passes, found.missing) == (7, 8, ())
    assert found.report.read_bytes() == (TOOLS.parent / "ncu/vectors.ncu-rep").read_bytes()
    assert found.table.read_bytes() == (TOOLS.parent / "ncu/vectors.csv").read_bytes()
    assert "8 passes" in (tmp_path / "log.txt").read_text()


def test_a_metric_the_gpu_does_not_deliver_is_named(tmp_path, tools):
    tools.setenv("FAKE_NCU", "done")
    options = ncu.NcuOptions((*PUBLISHED, "no__such_metric.sum"))
    found = ncu.profile(
        options, ["p"], folder=tmp_path, log=tmp_path / "log.txt", timeout_s=PATIENCE_S
    )
    assert found.missing == ("no__such_metric.sum",)


@pytest.mark.parametrize(
    ("scenario", "what", "cure"),
    [
        ("exit3", "exit status 3", "Run it without perfml first"),
        ("segfault", "SIGSEGV", "Run it without perfml first"),
        ("hidden_gpu", "no CUDA-capable device is detected", "Run it without perfml first"),
        ("no_kernels", "no kernel launch was profiled", "cudaProfilerStart"),
        ("no_region", "no kernel launch was profiled", "cudaProfilerStart"),
        ("no_program", "cannot be started", "executable"),
        ("range_metric", "cannot be measured over a range", "--replay kernel"),
        ("injected", "CUDA_INJECTION64_PATH", "Unset it"),
        ("no_report", "left no report", "disk"),
        ("garbage", "not the table", "Install Nsight Compute"),
        ("bad_import", "cannot read its own report", "collect again"),
        ("empty_table", "measured nothing", "query-metrics"),
        ("killed", "SIGKILL", "log.txt"),
    ],
)
def test_each_failure_is_one_message_with_its_cure(tmp_path, tools, scenario, what, cure):
    with pytest.raises(ProfilerError) as error:
        profile(tmp_path, scenario, tools)
    assert what in str(error.value)
    assert cure in str(error.value)
    assert str(error.value).count("\n") <= 1


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission", "may not read"),
        ("==ERROR== Profiling is not supported on device 0.", "does not support this GPU"),
        ("==ERROR== Failed to initialize the profiler: LibraryNotLoaded", "cannot reach"),
        ("==ERROR== Failed to profile: Driver resource was unavailable.", "another tool"),
    ],
)
def test_documented_refusals_are_recognised(tmp_path, line, what):
    ended = Finished(("ncu",), 1, f"hello\n{line}\n", 1.0)
    problem = explain(ended, timeout_s=1, launches=0, report=tmp_path / "none")
    assert problem is not None
    assert what in problem.what
    assert problem.cure


def test_a_missing_profiler_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ProfilerError, match="Install Nsight Compute"):
        profile(tmp_path)
    with pytest.raises(ProfilerError, match="Install Nsight Compute"):
        ncu.version()


def test_version_is_read_and_another_tool_of_that_name_refused(tools):
    tools.setenv("FAKE_NCU", "done")
    assert ncu.version() == "2025.3.1.0"
    tools.setenv("FAKE_NCU", "not_ncu")
    with pytest.raises(ProfilerError, match="not Nsight Compute"):
        ncu.version()


def test_a_hanging_profiler_is_killed_with_its_children(tmp_path, tools):
    tools.setenv("FAKE_NCU_PIDS", str(tmp_path / "pids"))

    def attempt(seconds):
        with pytest.raises(ProfilerError) as error:
            profile(tmp_path, "hang", tools, timeout_s=seconds)
        assert f"did not end within {seconds:g} s" in str(error.value)
        said.append(str(error.value))

    said = []
    let_hang(tmp_path / "pids", attempt)
    assert "device memory" in said[-1]
    pids = [int(each) for each in (tmp_path / "pids").read_text().split()]
    assert len(pids) == 2
    assert not any(alive(pid) for pid in pids)


def test_a_program_that_floods_its_output_is_ended(tmp_path, tools, monkeypatch):
    monkeypatch.setattr("collectors.profilers.process.LOG_LIMIT", 1_000_000)
    with pytest.raises(ProfilerError, match="printed more than perfml keeps"):
        profile(tmp_path, "flood", tools)
    assert (tmp_path / "log.txt").stat().st_size < 1_100_000


def test_descendants_are_found_through_the_process_table():
    assert os.getpid() in descendants(os.getppid())
