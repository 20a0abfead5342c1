"""Counters through CUPTI on a real GPU: agreement with Nsight Compute, all kinds of programs."""

import sys

import numpy as np
import pandas as pd
import pytest

from collectors.collect import collect
from collectors.profilers import cupti, ncu, timing
from collectors.profilers.cupti_failures import GraphError
from collectors.profilers.inject import COUNTERS, library
from collectors.profilers.process import ProfilerError
from perfml.ingest.profiles import ingest
from perfml.kernel_names import function_name
from perfml.metrics import load_catalogue
from perfml.readers import ReadOptions, read

COUNTED = (
    "smsp__inst_executed.sum",
    "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
    "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
)
pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def repeats(build):
    return build("repeats")


def profile(command, folder, *, metrics="published", **options):
    request = load_catalogue().ncu_request((metrics,))
    options = cupti.CuptiOptions(request, **options)
    log = folder / "log.txt"
    return cupti.profile(options, command, folder=folder, log=log, timeout_s=120)


def raw(path):
    return read(path, ReadOptions(raw=True)).frame


def test_counters_agree_with_nsight_compute(repeats, tmp_path):
    measured = profile([repeats, "30"], tmp_path, metrics="default")
    assert (measured.measurement.replay, measured.measurement.runs) == ("iterations", 1)
    options = ncu.NcuOptions(
        load_catalogue().ncu_request(("default",)), include=("iter_14/",), cache_control="none"
    )
    folder = tmp_path / "ncu"
    folder.mkdir()
    ncu.profile(options, [repeats, "30"], folder=folder, log=folder / "log.txt", timeout_s=120)
    left, right = raw(measured.table), raw(folder / "metrics.csv")
    instrumented = [name for name in left if "__sass_" in name]
    assert len(instrumented) > 10
    assert left["kernel"].map(function_name).tolist() == right["kernel"].map(function_name).tolist()
    for name in (*COUNTED, *instrumented):
        np.testing.assert_allclose(left[name], right[name], rtol=0.01, err_msg=name)
    for name in ("gld_efficiency", "shared_efficiency", "flop_count_sp", "inst_executed"):
        np.testing.assert_allclose(left[name], right[name], rtol=1e-3, err_msg=name)
    for name in ("registers_per_thread", "shared_memory_per_block", "threads", "waves_per_sm"):
        np.testing.assert_allclose(left[name], right[name], rtol=0.01, err_msg=name)


def test_times_are_those_of_a_process_without_counters(repeats, tmp_path):
    measured = profile([repeats, "40"], tmp_path, timed=20)
    log = tmp_path / "log.txt"
    alone = timing.trace([repeats, "40"], library(COUNTERS), log=log, timeout_s=120)

    def median_us(launches):
        layers = pd.DataFrame(
            {"iteration": launch.ranges[0], "ns": launch.end_ns - launch.start_ns}
            for launch in launches
            if launch.bytes is None  # the program fills its memory before it begins
        )
        return layers.groupby("iteration")["ns"].sum().median() / 1e3

    assert len(measured.timed) == 20 * 4
    assert median_us(measured.timed) == pytest.approx(median_us(alone.launches), rel=0.03)


@pytest.mark.parametrize("what", ["streams", "pairs", "contexts"])
def test_streams_pairs_and_contexts_are_measured_in_one_run(repeats, tmp_path, what):
    measured = profile([repeats, "30", what], tmp_path)
    assert (measured.measurement.replay, measured.measurement.runs) == ("iterations", 1)
    assert len(measured.rows) == (8 if what == "contexts" else 4)
    if what == "streams":
        assert len({row.stream for row in measured.rows}) == 2


@pytest.mark.parametrize("what", ["captured", "refused", "fork"])
def test_captures_refused_launches_and_children_are_no_launches(repeats, tmp_path, what):
    measured = profile([repeats, "30", what], tmp_path)
    assert (measured.measurement.replay, measured.measurement.runs) == ("iterations", 1)
    kernels = [function_name(row.kernel) for row in measured.rows]
    assert kernels == ["scale", "add", "reduce", "reduce"]


def test_instrumented_code_runs_once_and_counts_as_beside_the_hardware(repeats, tmp_path):
    several = profile([repeats, "60"], tmp_path, metrics="default", sets=3)
    assert several.measurement.once
    assert len(several.rows) == 12
    (tmp_path / "one").mkdir()
    one = profile([repeats, "60"], tmp_path / "one", metrics="default")
    left, right = raw(several.table), raw(one.table)
    for name in (name for name in left if "__sass_" in name):
        for number in range(3):
            part = left[name].iloc[4 * number : 4 * number + 4]
            np.testing.assert_allclose(part, right[name], rtol=1e-3, err_msg=name)


@pytest.mark.parametrize("what", ["odd", "once"])
def test_what_does_not_repeat_is_replayed_launch_by_launch(repeats, tmp_path, what):
    command = [repeats, "20", "odd"] if what == "odd" else [repeats, "1"]
    measured = profile(command, tmp_path)
    assert measured.measurement.replay == "kernel"
    assert len(measured.rows) == 4
    assert ("differs from" if what == "odd" else "no iterations") in measured.warnings[0]


def test_parts_that_count_their_iterations_anew_are_all_timed_and_measured(repeats, tmp_path):
    measured = profile([repeats, "9", "parts"], tmp_path, sets=2)
    assert measured.measurement.replay == "kernel"
    assert len({row.grid for row in measured.rows}) == 5  # two of the four kernels keep theirs
    assert len(measured.rows) == 3 * 2 * 4
    assert len(measured.timed) == 3 * 3 * 4


def test_few_iterations_take_several_runs(repeats, tmp_path):
    measured = profile([repeats, "5"], tmp_path)
    assert measured.measurement.replay == "iterations"
    assert measured.measurement.runs > 1


def test_a_graph_goes_to_nsight_compute_and_says_why(repeats, tmp_path):
    (result,) = collect(command=[repeats, "20", "graph"], out=tmp_path, metrics=("published",))
    assert result.status == "done", result.message
    assert result.record["profiler"] == "ncu"
    assert "CUDA graph" in " ".join(result.warnings)
    with pytest.raises(GraphError):
        profile([repeats, "20", "graph"], tmp_path)


def test_a_crash_and_a_hang_are_one_message(repeats, tmp_path):
    with pytest.raises(ProfilerError, match="exit status -6"):
        profile([repeats, "20", "crash"], tmp_path)
    options = cupti.CuptiOptions(load_catalogue().ncu_request(("published",)))
    with pytest.raises(ProfilerError, match="did not end within"):
        cupti.profile(
            options,
            [repeats, "20", "sleep"],
            folder=tmp_path,
            log=tmp_path / "log.txt",
            timeout_s=8,
        )


TORCHRUN = "-m torch.distributed.run --standalone --nproc-per-node 1 --no-python"


@pytest.mark.parametrize(
    ("launcher", "processes"),
    [
        (["bash", "-c", 'cd / && "$0" "$@"'], 1),
        ([sys.executable, *TORCHRUN.split()], 1),
        (["bash", "-c", '"$0" "$@" & "$0" "$@"; wait'], 2),
    ],
)
def test_a_program_behind_a_launcher_is_measured(repeats, tmp_path, launcher, processes):
    measured = profile([*launcher, repeats, "60"], tmp_path)
    assert (measured.measurement.replay, len(measured.rows)) == ("iterations", 4)
    assert [each for each in measured.warnings if "processes" in each] == (
        [f"{processes} processes launched kernels; the busiest one was measured"]
        if processes > 1
        else []
    )


def test_a_built_in_workload_is_measured_in_one_start(tmp_path):
    (result,) = collect("yolov4-tiny", backends=("cudnn",), out=tmp_path)
    assert result.status == "done", result.message
    assert (result.record["profiler"], result.record["runs"]) == ("cupti", 1)
    frame = ingest([tmp_path]).frame
    assert frame["time_source"].eq("timing").all()
    assert frame["layer"].dropna().str.startswith("conv_").any()
    assert frame["achieved_occupancy"].notna().all()
    assert frame["iteration"].nunique() == 10


def test_a_checked_workload_is_checked_in_the_same_start(tmp_path):
    (result,) = collect(
        "attention",
        backends=("mma",),
        precisions=("fp16",),
        workload_options=("--set", "sizes=6x1000x64"),
        out=tmp_path,
    )
    assert result.status == "done", result.message
    assert (result.record["profiler"], result.record["check"]["passed"]) == ("cupti", True)
