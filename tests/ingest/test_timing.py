import pandas as pd
import pytest

from perfml.errors import InputError
from perfml.ingest.timing import function_name, join_timing, with_gaps
from tests.support.tables import make_kernels

OCC = "achieved_occupancy"


def profiled(*rows):
    return make_kernels([{"time_source": "ncu", "ncu_time_us": r["time_us"], **r} for r in rows])


def timed(*rows):
    return make_kernels([{"time_source": "timing", **row} for row in rows])


def test_matched_launches_take_the_timed_duration_and_the_profiled_metrics():
    frame, warnings = join_timing(
        profiled({"time_us": 10.0, OCC: 0.5}), timed({"time_us": 4.0}), where="run"
    )
    assert frame[["time_us", "ncu_time_us", OCC]].to_numpy().tolist() == [[4.0, 10.0, 0.5]]
    assert frame["time_source"].tolist() == ["timing"]
    assert warnings == []


def test_every_profiled_iteration_is_used_in_turn():
    metrics = profiled(
        {"iteration": 0, "time_us": 1.0, OCC: 0.1}, {"iteration": 1, "time_us": 1.0, OCC: 0.2}
    )
    times = timed(*[{"iteration": i, "time_us": float(i + 1)} for i in range(5)])
    frame, _ = join_timing(metrics, times, where="run")
    assert frame["iteration"].tolist() == [0, 1, 2, 3, 4]
    assert frame["metrics_iteration"].tolist() == [0, 1, 0, 1, 0]
    assert frame[OCC].tolist() == [0.1, 0.2, 0.1, 0.2, 0.1]


def test_another_number_of_kernels_shares_the_timed_total_by_profiled_durations():
    metrics = profiled(
        {"kernel": "a", "time_us": 1.0, OCC: 0.1}, {"kernel": "b", "time_us": 3.0, OCC: 0.9}
    )
    frame, warnings = join_timing(metrics, timed({"kernel": "c", "time_us": 8.0}), where="run")
    assert frame["time_us"].tolist() == [2.0, 6.0]
    assert frame["time_source"].tolist() == ["apportioned"] * 2
    assert "another number of kernels" in warnings[0]


def test_a_differently_named_kernel_in_the_same_place_is_pointed_out():
    _, warnings = join_timing(
        profiled({"kernel": "void winograd<float>(int)", "time_us": 1.0}),
        timed({"kernel": "void implicit_gemm<float>(int)", "time_us": 1.0}),
        where="run",
    )
    assert "called differently" in warnings[0]
    assert "conv_01" in warnings[0]


def test_a_timed_layer_that_was_not_profiled_keeps_its_time_without_metrics():
    frame, warnings = join_timing(
        profiled({"time_us": 1.0, OCC: 0.5}),
        timed({"time_us": 2.0}, {"layer": "pool_01", "time_us": 3.0}),
        where="run",
    )
    assert frame["time_us"].tolist() == [2.0, 3.0]
    assert frame[OCC].isna().tolist() == [False, True]
    assert frame["metrics_iteration"].isna().tolist() == [False, True]
    assert "not profiled" in warnings[0]


def test_a_profiled_layer_that_was_never_timed_is_an_error():
    with pytest.raises(InputError, match="no layer conv_02"):
        join_timing(
            profiled({"time_us": 1.0}, {"layer": "conv_02", "time_us": 1.0}),
            timed({"time_us": 1.0}),
            where="run",
        )


def test_launch_order_survives_the_join():
    metrics = profiled(
        {"layer": None, "kernel": "copy", "time_us": 1.0},
        {"layer": "conv_01", "kernel": "a", "time_us": 1.0},
        {"layer": "conv_01", "kernel": "b", "time_us": 1.0},
        {"layer": "conv_02", "kernel": "c", "time_us": 1.0},
    )
    times = timed(
        {"layer": None, "kernel": "copy", "time_us": 1.0},
        {"layer": "conv_01", "kernel": "ab", "time_us": 5.0},
        {"layer": "conv_02", "kernel": "c", "time_us": 1.0},
    )
    frame, _ = join_timing(metrics, times, where="run")
    assert frame["kernel"].tolist() == ["copy", "a", "b", "c"]
    assert frame["kernel_index"].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (
            "void at::<unnamed>::Cat<T1, (int)4>(T1 *)",
            "void at::(anonymous namespace)::Cat<float, 4>(float*)",
        ),
        ("ampere_sgemm_128x64_nn", "ampere_sgemm_128x64_nn"),
        ("void ns::k<(bool)1>(int)", "void ns::k<true>(int)"),
    ],
)
def test_tools_that_spell_a_kernel_differently_agree_on_its_function(left, right):
    assert function_name(left) == function_name(right)


def test_the_same_functions_in_another_order_are_matched_by_name():
    metrics = profiled(
        {"kernel": "void copy<float>(T1 *)", "time_us": 1.0, OCC: 0.1},
        {"kernel": "gemm", "time_us": 3.0, OCC: 0.9},
    )
    times = timed(
        {"kernel": "gemm", "time_us": 8.0}, {"kernel": "void copy<float>(float*)", "time_us": 2.0}
    )
    frame, warnings = join_timing(metrics, times, where="run")
    assert frame[["time_us", OCC]].to_numpy().tolist() == [[8.0, 0.9], [2.0, 0.1]]
    assert warnings == []


def test_an_iteration_whose_recording_was_cut_short_is_left_out_and_named():
    metrics = profiled({"time_us": 1.0}, {"layer": "conv_02", "time_us": 1.0})
    times = timed(
        {"iteration": 0, "time_us": 1.0},
        {"iteration": 0, "layer": "conv_02", "time_us": 1.0},
        {"iteration": 1, "time_us": 1.0},
    )
    frame, warnings = join_timing(metrics, times, where="run")
    assert frame["iteration"].tolist() == [0, 0]
    assert warnings == [
        "run: the timing ends in iteration 1, after 1 of 2 layers; that iteration is left out"
    ]


def test_layers_that_run_only_at_the_start_do_not_make_later_iterations_incomplete():
    first = {"iteration": 0, "time_us": 1.0}
    metrics = profiled({**first, "layer": "setup"}, first, {"iteration": 1, "time_us": 1.0})
    times = timed({**first, "layer": "setup"}, first, {"iteration": 1, "time_us": 2.0})
    frame, warnings = join_timing(metrics, times, where="run")
    assert frame["iteration"].tolist() == [0, 0, 1]
    assert warnings == []


def test_a_program_keeps_its_gaps_and_a_built_in_workload_only_when_its_kernels_began():
    timing = make_kernels([{"time_us": 10.0}, {"time_us": 5.0}, {"time_us": 5.0}])
    timing["start_us"] = [100.0, 130.0, 132.0]
    found = with_gaps(timing, program=True)["gap_us"].tolist()
    # before the first nothing is known; the third begins beside the second
    assert pd.isna(found[0])
    assert found[1:] == [20.0, 0.0]
    assert "start_us" in with_gaps(timing, program=False)
    assert "gap_us" not in with_gaps(timing.assign(gap_us=1.0), program=False)
    twice = pd.concat([timing, timing.assign(process=2)]).fillna({"process": 1})
    assert with_gaps(twice, program=True)["gap_us"].isna().sum() == 2
    bare = timing.drop(columns="start_us")
    assert with_gaps(bare, program=True) is bare
