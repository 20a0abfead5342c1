"""Kernels that a library chose: what they did is the cause, not how they are built."""

import math

import pytest

from perfml.explain import explain, sides_of
from perfml.explain.launches import Change
from perfml.explain.load import load_tables
from perfml.explain.tree.causes import TERMS, Contribution
from perfml.explain.tree.layer import decompose_layer, matches_of
from perfml.explain.tree.library_kernels import as_calls, judge_by_work
from tests.support.launches import launch
from tests.support.tables import make_kernels

WIDE = "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT"
NARROW = "cutlass_75_tensorop_bf16_s1688gemm_bf16_256x128_nn_align1"
COUNTED = {"dram_read_bytes": 9e7, "dram_write_bytes": 9e7, "dram_utilization": 0.2}
COUNTED |= {"inst_executed": 2e7, "issue_slot_utilization": 0.2}


def kernel(name, time_us, **counters):
    return launch({"kernel": name, "time_us": time_us, **COUNTED, **counters})


def terms(**values):
    return [Contribution(TERMS[name], 1.0, 1.0, value) for name, value in values.items()]


def judged(contributions, before, after):
    found = judge_by_work(contributions, [before], [after])
    return {one.term.id: one.log_ratio for one in found}


def test_ten_times_the_instructions_are_the_cause_not_the_other_kernel_s_occupancy():
    parts = terms(tensor_pipe_time=0.5, theoretical_occupancy=0.6, stall_memory_dependency=0.5)
    slow = kernel(NARROW, 500.0, inst_executed=2e8)
    found = judged(parts, kernel(WIDE, 100.0), slow)
    assert found["instructions"] == pytest.approx(1.1)
    assert found["theoretical_occupancy"] == found["stall_memory_dependency"] == 0
    assert found["tensor_pipe_time"] == 0.5
    assert sum(found.values()) == pytest.approx(1.6)


@pytest.mark.parametrize(
    ("parts", "first"),
    [
        ({"integer_arithmetic": 0.9, "instructions": 0.5, "lsu_pipe_time": 0.1}, 1.5),
        ({"integer_arithmetic": -0.2, "instructions": 1.5}, 1.5),
        ({"integer_arithmetic": 1.5}, 0.0),
        ({"fp32_operations": 0.9, "instructions": 0.6}, 0.6),
    ],
)
def test_addresses_and_exchanges_of_another_program_are_instructions_of_it(parts, first):
    found = judged(terms(**parts), kernel(WIDE, 100.0), kernel(NARROW, 500.0))
    assert found.get("instructions", 0.0) == pytest.approx(first)
    assert sum(found.values()) == pytest.approx(sum(parts.values()))


def test_work_takes_no_more_than_it_grew_by():
    parts = terms(block_slots=math.log(5))
    found = judged(parts, kernel(WIDE, 100.0), kernel(NARROW, 500.0, inst_executed=6e7))
    assert found["instructions"] == pytest.approx(math.log(3))
    assert found["block_slots"] == pytest.approx(math.log(5 / 3))


def test_without_more_work_occupancy_stays_the_cause():
    parts = terms(theoretical_occupancy=math.log(5))
    found = judged(parts, kernel(WIDE, 100.0), kernel(NARROW, 500.0))
    assert found == {"theoretical_occupancy": pytest.approx(math.log(5))}


def test_of_bytes_and_instructions_the_busier_unit_s_are_the_cause():
    parts = terms(block_slots=1.0)
    more = {"dram_read_bytes": 9e8, "inst_executed": 2e8, "dram_utilization": 0.6}
    assert "dram_bytes" in judged(parts, kernel(WIDE, 100.0), kernel(NARROW, 300.0, **more))


def test_dearer_sectors_are_no_cause_where_there_are_fewer_of_them():
    parts = terms(global_requests=-0.3, dram_bytes_per_sector=0.5, stall_exec_dependency=0.5)
    found = judged(parts, kernel(WIDE, 100.0), kernel(NARROW, 200.0))
    assert found["global_requests"] == pytest.approx(0)
    assert found["dram_bytes_per_sector"] == pytest.approx(0.2)
    scattered = terms(sectors_per_request=0.9, dram_bytes_per_sector=-0.5)
    found = judged(scattered, kernel(WIDE, 100.0), kernel(NARROW, 150.0))
    assert found["sectors_per_request"] == 0.9


@pytest.mark.parametrize(("time_us", "counts"), [(1000.0, False), (8.0, True)])
def test_long_passes_in_place_of_another_kernel_are_what_they_compute(time_us, counts):
    def of(name, us, work):
        return launch({"kernel": name, "time_us": us, **COUNTED, "inst_executed": work})

    before = [of("count(int*)", time_us * size, 1e6 * size) for size in (3, 2, 1)]
    after = [of("count_shared(int*)", time_us, 1e6)]
    change = Change("fused", range(3), range(1))
    causes = decompose_layer(matches_of(change, before, after), same_device=True, single=True)
    named = {each.term.id for each in causes.totals}
    assert ("launch_count" in named) is counts
    assert causes.log_ratio == pytest.approx(-math.log(6))
    assert sum(each.log_ratio for each in causes.totals) == pytest.approx(causes.log_ratio)


def test_a_batch_that_a_grid_s_limit_cuts_is_one_call():
    counters = {"inst_executed": 100.0, "achieved_occupancy": 0.5, "waves_per_sm": 31.0}
    full = [launch({"kernel": "gemv", "time_us": 2.0, **counters}) for _ in range(2)]
    last = launch({"kernel": "gemv", "time_us": 1.0, **counters, "achieved_occupancy": 0.25})
    limit = [type(one)(one.kernel, one.time_us, one.counters, "(1, 1, 65535)") for one in full]
    (call,) = as_calls([*limit, last])
    assert call.time_us == 5
    assert call["inst_executed"] == 300
    assert call["waves_per_sm"] == 93
    assert call["achieved_occupancy"] == pytest.approx(0.45)
    assert len(as_calls([*full, last])) == 3  # of small grids nobody knows what loops


def test_one_s_own_kernels_are_compared_as_they_are_built():
    change = Change("replaced", range(1), range(1))
    own = matches_of(change, [kernel("naive", 9.0)], [kernel("tiled", 1.0)])
    assert own[0].runs is None
    theirs = matches_of(change, [kernel(NARROW, 9.0)], [kernel(WIDE, 1.0)])
    assert theirs[0].runs is not None


def test_a_layer_that_ranges_within_cut_into_pieces_is_said_not_to_be_told():
    layers, kernels = load_tables("h200-torch-pairs")
    sides = sides_of(layers, "before", "after", kernels=kernels)
    cut, whole = explain(*sides, layers=["best_ten", "token_loss"], model=None).details
    (apart,) = (reason for reason in cut.reasons if "the other side lacks" in reason)
    assert "best_ten/cub::DeviceSegmentedRadixSort" in apart
    assert not any("the other side lacks" in reason for reason in whole.reasons)


@pytest.mark.parametrize(
    ("layer", "term"),
    [
        ("bag_of_words", "dram_bytes"),
        ("rotate_points", "instructions"),
        ("projection", "instructions"),
        ("window_signal", "fp64_pipe_time"),
        ("running_sum", "wave_quantization"),
        ("class_softmax", "sectors_per_request"),
    ],
)
def test_the_first_cause_of_recorded_blocks(layer, term):
    layers, kernels = load_tables("h200-torch-pairs")
    sides = sides_of(layers, "before", "after", kernels=kernels)
    (found,) = explain(*sides, layers=[layer], model=None).details
    assert found.causes.totals[0].term.id == term
    total = sum(one.log_ratio for pair in found.causes.pairs for one in pair.contributions)
    assert total == pytest.approx(found.causes.log_ratio)


def test_products_in_other_places_of_the_order_answer_to_each_other():
    first, both, last = (
        f"nvjet_sm90_tst_{tile}_64x4_1x2_h_bz_NNT" for tile in ("32x128", "256x128", "320x128")
    )
    names = {"a": ((first, 40.0), (both, 40.0)), "b": ((both, 15.0), (last, 700.0))}
    sides = [
        make_kernels(
            [
                {
                    "kernel": name,
                    "time_us": time,
                    "tensor_utilization": 0.9,
                    "tensor_cycles_utilization": 0.9,
                    "sm_efficiency": 1.0,
                }
                for name, time in names[side]
            ]
        )
        for side in "ab"
    ]
    found = explain(*sides, model=None).details[0].causes.terms
    assert found["term"].iloc[0] == "tensor_pipe_time"
    assert not set(found["term"]) & {"kernels_appeared", "kernels_vanished"}
