"""What comes along with other work is no cause of its own: each pair is worked out by hand."""

import math

import pytest

from perfml.explain.tree.layer import decompose_pair
from tests.support.launches import launch

BASE = {
    "kernel": "k",
    "kernels": 1.0,
    "time_us": 100.0,
    "ncu_time_us": 100.0,
    "waves_per_sm": 4.0,
    "theoretical_occupancy": 1.0,
    "achieved_occupancy": 0.9,
    "sm_efficiency": 1.0,
    "warp_execution_efficiency": 1.0,
    "inst_executed": 4e7,
    "ipc": 2.0,
    "issue_slot_utilization": 0.5,
}


def parts(before, after, ratio=2.0):
    """Return what each term contributes, as a share of the logarithm of the ratio."""
    longer = {"time_us": ratio * 100.0, "ncu_time_us": ratio * 100.0}
    one, two = launch({**BASE, **before}), launch({**BASE, **before, **longer, **after})
    _, found = decompose_pair(one, two, same_device=True, single=True)
    return {each.term.id: each.log_ratio / math.log(ratio) for each in found}


LOADS = {
    "global_load_requests": 4e6,
    "global_store_requests": 1e6,
    "gld_transactions": 1.6e7,
    "gst_transactions": 4e6,
    "inst_integer": 5e6 * 32,
}


def test_addresses_of_more_loads_are_the_loads():
    # fifteen million more loads, with an integer instruction each as before, and ten others
    more = {"global_load_requests": 1.9e7, "gld_transactions": 7.6e7, "inst_executed": 8e7}
    found = parts(LOADS, {**more, "inst_integer": 2e7 * 32})
    assert found["redundant_traffic"] > 0.7
    assert found["integer_arithmetic"] == pytest.approx(0.0, abs=1e-9)


def test_integers_beyond_what_an_address_takes_are_a_cause_of_their_own():
    # twenty integer instructions an access before, sixty after: six of them may be addresses
    integer = {"inst_integer": 1e8 * 32, "inst_executed": 1.5e8}
    more = {"global_load_requests": 8e6, "gld_transactions": 3.2e7, "inst_executed": 6e8}
    found = parts({**LOADS, **integer}, {**more, "inst_integer": 5.4e8 * 32})
    assert max(found, key=found.get) == "integer_arithmetic"
    assert found.get("global_requests", 0.0) + found.get("redundant_traffic", 0.0) < 0.2


def test_integers_of_as_many_loads_are_a_cause_of_their_own():
    found = parts(LOADS, {"inst_executed": 8e7, "inst_integer": 4e7 * 32})
    assert found["integer_arithmetic"] > 0.8
    assert "redundant_traffic" not in found


def test_conversions_of_an_integer_division_are_integer_arithmetic():
    before = {"special_fu_utilization": 0.0, "inst_bit_convert": 0.0, "inst_integer": 1e7 * 32}
    after = {"special_fu_utilization": 0.9, "inst_bit_convert": 6e6 * 32}
    division = parts(before, {**after, "inst_integer": 4.2e7 * 32})
    assert division["integer_arithmetic"] == pytest.approx(1.0)
    conversions = parts(before, {**after, "inst_integer": 1.1e7 * 32})
    assert conversions["special_function_pipe_time"] == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("capability", "cost"), [("9.0", 64), ("", 64), ("8.0", 32), ("8.9", 2), ("7.5", 2)]
)
def test_doubles_among_more_instructions_cost_what_the_chip_takes_for_them(capability, cost):
    # as many doubles as integers are added: of these a multiprocessor takes 64 lanes a cycle
    before = {"capability": capability, "inst_integer": 0.0, "double_precision_fu_utilization": 0.1}
    before |= dict.fromkeys(("flop_count_dp_add", "flop_count_dp_mul", "flop_count_dp_fma"), 0.0)
    more = {"inst_integer": 2e7 * 32, "flop_count_dp_fma": 2e7 * 32}
    found = parts(before, {**more, "inst_executed": 8e7})
    assert found["fp64_pipe_time"] / found["integer_arithmetic"] == pytest.approx(64 / cost)


def _operations(warps):
    counted = {f"flop_count_sp_{kind}": 0.0 for kind in ("add", "mul")}
    return {**counted, "flop_count_sp_fma": warps * 32, "flop_count_sp": 2 * warps * 32}


def test_conversions_of_floating_point_are_no_integer_division():
    # accurate divisions and roots: more multiply-adds than integers beside each of them
    before = {"special_fu_utilization": 0.0, "inst_bit_convert": 0.0, "inst_integer": 1e7 * 32}
    after = {"special_fu_utilization": 0.9, "inst_bit_convert": 6e6 * 32}
    after |= {"inst_integer": 4.2e7 * 32, **_operations(9e7)}
    found = parts({**before, **_operations(1e7)}, after)
    assert found["special_function_pipe_time"] == pytest.approx(1.0)


def test_more_of_every_kind_is_instructions():
    half = {"inst_integer": 1e7 * 32, "inst_inter_thread_communication": 2e6 * 32}
    twice = {name: 2 * value for name, value in half.items()}
    more = {"inst_executed": 8e7, **_operations(3e7)}
    found = parts({**half, **_operations(1.5e7)}, {**more, **twice})
    assert max(found, key=found.get) == "instructions"
    # lanes exchange at a quarter of the rate: theirs were the largest part for it
    assert found["lsu_pipe_time"] == pytest.approx(0.0)
    # most of what was added, and what grew beyond all others, are named
    assert found["fp32_operations"] > 0.2
    beyond = parts({**half, **_operations(1.5e7)}, {**more, **twice, "inst_integer": 3e7 * 32})
    assert beyond["integer_arithmetic"] > 0.2


def test_doubles_bring_their_instructions_and_conversions_with_them():
    none = dict.fromkeys(("flop_count_dp_add", "flop_count_dp_mul", "flop_count_dp_fma"), 0.0)
    before = {**none, "double_precision_fu_utilization": 0.0, "inst_bit_convert": 0.0}
    doubles = {"flop_count_dp_fma": 3e7 * 32, "double_precision_fu_utilization": 0.4}
    issued = {"issue_slot_utilization": 0.8, "inst_executed": 8e7, "ipc": 3.2}
    found = parts({**before, "ipc": 3.2, "issue_slot_utilization": 0.8}, {**doubles, **issued})
    assert max(found, key=found.get) == "fp64_pipe_time"
    assert found["fp64_pipe_time"] > 0.7
    before |= {"special_fu_utilization": 0.0}
    converts = {"special_fu_utilization": 0.9, "inst_bit_convert": 6e6 * 32}
    found = parts(before, {**converts, "flop_count_dp_fma": 3e6 * 32})
    assert found["fp64_pipe_time"] == pytest.approx(1.0)


def test_multiplications_of_integers_are_no_arithmetic_in_floating_point():
    before = {
        "flop_count_sp": 3.2e8,
        "flop_count_sp_add": 3.2e8,
        "flop_count_sp_mul": 0.0,
        "flop_count_sp_fma": 0.0,
        "single_precision_fu_utilization": 0.3,
        "inst_integer": 1e6 * 32,
    }
    # twice the time, and busy 0.8 of it: 10 million more additions would make it no busier
    after = {"single_precision_fu_utilization": 0.8, "inst_executed": 1.2e8, "ipc": 3.0}
    found = parts(before, {**after, "inst_integer": 6e7 * 32})
    assert found["integer_arithmetic"] > 0.8
    assert max(found, key=found.get) == "integer_arithmetic"


def test_wider_requests_are_more_bytes_not_scattered_lanes():
    before = {
        **LOADS,
        "gld_efficiency": 1.0,
        "gst_efficiency": 1.0,
        "dram_utilization": 0.9,
        "dram_read_bytes": 5e8,
        "dram_write_bytes": 1.2e8,
    }
    twice = {name: 2 * before[name] for name in ("gld_transactions", "gst_transactions")}
    twice |= {name: 2 * before[name] for name in ("dram_read_bytes", "dram_write_bytes")}
    wider = parts(before, twice)
    assert wider["dram_bytes"] == pytest.approx(1.0)
    scattered = parts(before, {**twice, "gld_efficiency": 0.5, "gst_efficiency": 0.5})
    assert scattered["sectors_per_request"] == pytest.approx(1.0)


def test_conflicts_are_told_where_stores_were_half_of_the_faster_side():
    # 31 passes a load instead of 1; beside a store a load, shared memory is busy 12 times as long
    before = {
        "shared_utilization": 0.15,
        "inst_executed_shared_loads": 1e6,
        "shared_load_transactions": 1e6,
    }
    found = parts(before, {"shared_utilization": 0.9, "shared_load_transactions": 3.1e7})
    assert max(found, key=found.get) == "wavefronts_per_shared_load"
    assert found["wavefronts_per_shared_load"] == pytest.approx(1.0)


def test_conflicts_of_stores_show_in_what_a_round_carries():
    before = {
        "shared_utilization": 0.2,
        "shared_efficiency": 1.0,
        "inst_executed_shared_loads": 1e6,
        "shared_load_transactions": 1e6,
    }
    found = parts(before, {"shared_utilization": 0.9, "shared_efficiency": 0.1})
    assert max(found, key=found.get) == "bank_conflicts"
    as_full = parts(before, {"shared_utilization": 0.9})
    assert "bank_conflicts" not in as_full


def test_the_unit_that_is_busy_longer_comes_before_one_that_is_as_busy_on_the_faster_side():
    # L2 works 92 us longer, integers 45, of 154; warps wait at barriers for whoever waits for L2
    before = {
        **LOADS,
        "alu_utilization": 0.52,
        "l2_utilization": 0.03,
        "l2_read_transactions": 1.6e7,
        "l2_write_transactions": 4e6,
        "issue_slot_utilization": 0.4,
        "stall_sync": 0.3,
        "stall_memory_dependency": 0.05,
    }
    more = {
        "alu_utilization": 0.4,
        "l2_utilization": 0.34,
        "l2_read_transactions": 5e7,
        "l2_write_transactions": 4e7,
        "global_load_requests": 9e6,
        "global_store_requests": 8e6,
        "gld_transactions": 5e7,
        "gst_transactions": 4e7,
        "stall_sync": 0.45,
        "stall_memory_dependency": 0.25,
    }
    found = parts(before, {**more, "inst_integer": 1.4 * LOADS["inst_integer"]}, ratio=2.24)
    assert max(found, key=found.get) == "global_requests"


def test_memory_that_the_faster_side_waits_for_as_long_is_not_what_the_time_went_to():
    # 33 of 61 us, and 30 of 40: shared memory is busy 22 us longer, with 14 passes a load for 1
    before = {
        **LOADS,
        "shared_utilization": 0.21,
        "inst_executed_shared_loads": 1e6,
        "shared_load_transactions": 1.2e6,
        "stall_memory_dependency": 0.74,
        "stall_exec_dependency": 0.08,
        "l2_utilization": 0.25,
        "l2_read_transactions": 1.6e7,
        "l2_write_transactions": 4e6,
        "issue_slot_utilization": 0.1,
    }
    more = {
        "shared_utilization": 0.49,
        "shared_load_transactions": 6.7e6,
        "stall_memory_dependency": 0.55,
        "stall_exec_dependency": 0.22,
        "l2_utilization": 0.17,
    }
    found = parts(before, more, ratio=1.54)
    assert max(found, key=found.get) == "wavefronts_per_shared_load"
