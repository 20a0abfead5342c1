"""A wait is a consequence: of more loads, of more sectors or rounds a load, at a busy unit."""

import math

import pytest

from perfml.explain.tree.layer import layer_causes
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
    "inst_executed": 1e7,
    "ipc": 1.0,
    "issue_slot_utilization": 0.3,
    "stall_memory_dependency": 0.1,
    "stall_exec_dependency": 0.2,
    "stall_short_scoreboard": 0.1,
    "stall_mio_throttle": 0.0,
}
ELSEWHERE = {
    "local_load_transactions": 0.0,
    # of a build for debugging: L2's sectors are not those of loads alone, and stay as many
    "local_store_transactions": 4e6,
    "l2_utilization": 0.2,
    "l2_read_transactions": 4e6,
    "l2_write_transactions": 4e6,
    "inst_executed_async_copies": 0.0,
    "global_atomic_requests": 0.0,
    "global_reduction_requests": 0.0,
}
LOADS = {
    **BASE,
    **ELSEWHERE,
    "global_load_requests": 1e6,
    "global_store_requests": 1e5,
    "gld_transactions": 4e6,
    "gst_transactions": 4e5,
}
WAITS = {"time_us": 400.0, "ncu_time_us": 400.0, "ipc": 0.25, "stall_memory_dependency": 0.8}
SHARED = {
    **BASE,
    "shared_utilization": 0.3,
    "inst_executed_shared_loads": 1e6,
    "shared_load_transactions": 1e6,
}


def asked(before, **after):
    """Return the causes of two launches, the second of which differs from the first."""
    return layer_causes(launch(before), launch({**before, **after}), same_device=True)


def values(causes):
    return dict(zip(causes.terms["term"], causes.terms["log_ratio"], strict=True))


def test_waiting_for_as_many_loads_of_as_many_sectors_stays_a_wait():
    found = values(asked(LOADS, **WAITS))
    assert max(found, key=found.get) == "stall_memory_dependency"
    assert not {"global_requests", "redundant_traffic", "sectors_per_request"} & set(found)


def test_waiting_of_as_long_for_each_of_more_loads_is_the_loads():
    # 4 x the time, 8 x the share: 32 x the waiting of all warps, for 32 x the loads
    more = {"global_load_requests": 3.2e7, "gld_transactions": 1.28e8}
    found = values(asked(LOADS, **WAITS, **more))
    assert max(found, key=found.get) == "redundant_traffic"
    assert found["stall_memory_dependency"] == pytest.approx(0.0)
    assert sum(found.values()) == pytest.approx(math.log(4))


def test_loads_hold_the_part_of_longer_waiting_that_their_number_grew_by():
    more = {"global_load_requests": 2e6, "gld_transactions": 8e6}
    whole = values(asked(LOADS, **WAITS))["stall_memory_dependency"]
    found = values(asked(LOADS, **WAITS, **more))
    assert found["redundant_traffic"] == pytest.approx(whole * math.log(2) / math.log(32))


def test_loads_that_are_fewer_are_no_cause_of_longer_waiting():
    fewer = {"global_load_requests": 2.5e5, "gld_transactions": 1e6}
    found = values(asked(LOADS, **WAITS, **fewer))
    assert max(found, key=found.get) == "stall_memory_dependency"
    assert found.get("global_requests", 0.0) == 0.0


@pytest.mark.parametrize(("sectors", "first"), [(22, "sectors_per_request"), (12, None)])
def test_more_sectors_a_load_are_behind_waiting_where_they_queue(sectors, first):
    # a wavefront for each four: L1 is busy 55 % of the cycles, or 30 %
    loads = {**LOADS, "global_load_requests": 4e6, "gld_transactions": 8e6}
    causes = asked(loads, **WAITS, gld_transactions=sectors * 4e6)
    found = values(causes)
    assert max(found, key=found.get) == (first or "stall_memory_dependency")
    if first is None:
        assert causes.untold is not None
        assert [term.id for term in causes.untold.causes] == ["sectors_per_request"]


def test_more_sectors_a_load_at_an_idle_unit_are_not_said_to_be_behind_waiting():
    # even if each sector took a wavefront, L1 would be busy 8 % of the cycles
    causes = asked({**LOADS, "inst_executed": 1e8}, **WAITS, gld_transactions=3.2e7)
    found = values(causes)
    assert max(found, key=found.get) == "stall_memory_dependency"
    assert causes.untold is None or "sectors_per_request" not in {
        term.id for term in causes.untold.causes
    }


def test_scattered_loads_that_may_be_of_one_bank_are_told_as_a_rival():
    causes = asked(LOADS, **WAITS, gld_transactions=3.2e7)
    assert causes.untold is not None
    assert [term.id for term in causes.untold.causes] == ["sectors_per_request"]


def test_waiting_for_values_of_busy_shared_memory_is_the_rounds_of_its_loads():
    later = {"time_us": 300.0, "ncu_time_us": 300.0, "ipc": 1 / 3}
    waits = {"stall_exec_dependency": 0.7, "stall_short_scoreboard": 0.6}
    more = {"shared_load_transactions": 5e6}
    counted = {**SHARED, "shared_utilization": 0.58}
    found = values(asked(counted, **later, **waits, **more))
    assert max(found, key=found.get) == "wavefronts_per_shared_load"
    idle = values(asked({**SHARED, "shared_utilization": 0.1}, **later, **waits, **more))
    assert max(idle, key=idle.get) == "stall_exec_dependency"


def test_occupancy_is_no_more_than_what_it_gains():
    # a quarter more warps, each of which waits almost as much longer
    more = {"achieved_occupancy": 0.75, "time_us": 108.0, "ncu_time_us": 108.0, "ipc": 1 / 1.08}
    found = values(asked({**BASE, "achieved_occupancy": 0.94}, **more))
    assert max(found.values()) <= math.log(1.08) + 1e-9


def test_reads_of_dram_alone_are_its_work_and_not_firm():
    counted = {
        "kernel": "k",
        "kernels": 1.0,
        "time_us": 147.0,
        "ncu_time_us": 147.0,
        "waves_per_sm": 10.0,
        "theoretical_occupancy": 1.0,
        "dram_read_bytes": 2e8,
    }
    causes = asked(counted, time_us=100.0, ncu_time_us=100.0, dram_read_bytes=1e8)
    found = values(causes)
    assert min(found, key=found.get) == "dram_bytes"
    assert causes.untold is not None
    whole = asked(
        {**counted, "dram_write_bytes": 1e8}, time_us=100.0, ncu_time_us=100.0, dram_read_bytes=1e8
    )
    assert values(whole)["dram_bytes"] == pytest.approx(-math.log(1.47))


def test_block_slots_of_an_idle_device_are_not_told_from_atomics():
    small = {
        "kernel": "k",
        "kernels": 1.0,
        "time_us": 1600.0,
        "ncu_time_us": 1600.0,
        "waves_per_sm": 40.0,
        "theoretical_occupancy": 1 / 3,
        "achieved_occupancy": 0.32,
        "sm_efficiency": 0.9,
        "l2_utilization": 0.001,
        "resident_blocks_limit_slots": 16.0,
        **dict.fromkeys(("resident_blocks_limit_registers", "resident_blocks_limit_warps"), 128.0),
        "resident_blocks_limit_shared_memory": 28.0,
    }
    large = {
        "time_us": 430.0,
        "ncu_time_us": 430.0,
        "waves_per_sm": 13.0,
        "theoretical_occupancy": 1.0,
        "achieved_occupancy": 0.87,
        "l2_utilization": 0.003,
        "resident_blocks_limit_warps": 12.0,
    }
    causes = asked(small, **large)
    assert causes.terms["term"].iloc[0] == "block_slots"
    assert causes.untold is not None
    assert [term.id for term in causes.untold.causes] == ["global_atomics"]
    busy = asked({**small, "l2_utilization": 0.3}, **{**large, "l2_utilization": 0.5})
    assert busy.untold is None or busy.untold.instead_of.id != "block_slots"


def test_requests_for_fewer_bytes_are_told_where_l1_moves_more_for_as_many_asked():
    narrow = {
        **LOADS,
        "time_us": 526.0,
        "ncu_time_us": 526.0,
        "gld_efficiency": 1.0,
        "gst_efficiency": 1.0,
        "l2_read_transactions": 4e6,
        "l2_write_transactions": 4e5,
        "l2_utilization": 0.27,
        "stall_memory_dependency": 0.84,
    }
    wide = {
        "time_us": 408.0,
        "ncu_time_us": 408.0,
        "ipc": 1.0,
        "inst_executed": 7.76e6,
        "global_load_requests": 5e5,
        "global_store_requests": 2.5e4,
        "gld_transactions": 8e6,
        "gld_efficiency": 0.5,
        "l2_utilization": 0.35,
    }
    found = values(asked(narrow, **wide))
    assert found["narrow_access"] < 0


GENERIC = {
    **BASE,
    "global_load_requests": 0.0,
    "global_atomic_requests": 0.0,
    "local_load_requests": 0.0,
    "local_load_transactions": 0.0,
    "inst_executed_shared_loads": 1e6,
    "shared_load_transactions": 1e6,
    "shared_utilization": 0.01,
}


def test_a_wait_for_generic_loads_that_end_in_shared_memory_is_for_their_wavefronts():
    slow = {"time_us": 150.0, "ncu_time_us": 150.0, "stall_memory_dependency": 0.4, "ipc": 0.6667}
    columns = {**slow, "shared_load_transactions": 32e6}
    found = values(asked(GENERIC, **columns))
    assert max(found, key=found.get) == "wavefronts_per_shared_load"
    # global memory is loaded from, too: whose the wait is, nothing tells
    both = {"global_load_requests": 1e5}
    assert "wavefronts_per_shared_load" not in values(asked({**GENERIC, **both}, **columns))
