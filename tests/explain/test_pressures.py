"""Whose a shared unit's time is, worked out by hand."""

import numpy as np
import pandas as pd
import pytest

from perfml.explain.advice import pressures
from perfml.explain.advice.slow_launch import SlowLaunch
from perfml.explain.limits.traffic import shared_filled
from tests.support.launches import launch


def test_busy_or_waited_for_whichever_is_more():
    row = {
        "time_us": 1.0,
        "global_reduction_requests": 1e6,
        "l2_atomic_utilization_max": 0.3,
        "stall_lg_throttle": 0.4,
        "stall_drain": 0.1,
        "stall_memory_throttle": 0.5,
    }
    # all that is written are atomics, so all that waits for room waits for them
    assert pressures.global_atomics(launch(row)) == pytest.approx(0.5)
    busy = launch({**row, "l2_atomic_utilization_max": 0.9})
    assert pressures.global_atomics(busy) == pytest.approx(0.9)


def test_fewer_sectors_save_what_loads_wait_beyond_their_latency():
    # one warp of 1,000 cycles a load, of which 800 are waiting; what comes from L2 takes 350
    row = {
        "time_us": 1.0,
        "achieved_occupancy": 1 / 64,
        "inst_executed": 1e6,
        "ipc": 1.0,
        "stall_memory_dependency": 0.8,
        "global_load_requests": 1e3,
        "gld_transactions": 4e3,
        "l2_read_transactions": 4e3,
        "dram_read_bytes": 0.0,
    }
    latency = SlowLaunch(launch(row)).latency
    assert pressures.sectors(launch(row)) == pytest.approx(0.8 * (1 - latency / 800))
    alone = launch({**row, "global_load_requests": 4e3})
    assert pressures.sectors(alone) == pytest.approx(4e3 / 1e6)  # next to nothing but L1's own
    busy = launch({**row, "global_load_requests": 4e3, "l2_utilization": 0.31})
    assert pressures.sectors(busy) == pytest.approx(0.5)


def test_shared_memory_is_divided_by_what_passes_it():
    row = {
        "time_us": 1.0,
        "shared_load_transactions": 1e6,
        "shared_store_transactions": 0.0,
        "shared_atomic_transactions": 2e6,
        "inst_inter_thread_communication": 32e6,
        "shared_utilization": 0.8,
    }
    assert pressures.shared_atomics(launch(row)) == pytest.approx(0.8 / 2)
    assert pressures.lane_exchange(launch(row)) == pytest.approx(0.8 / 4)
    frame = pd.DataFrame([row, {**row, "shared_atomic_transactions": 0.0}])
    assert pressures.shared_access_share(frame).tolist() == pytest.approx([1 / 4, 1 / 2])


LOADS = {
    "time_us": 1.0,
    "shared_utilization": 0.4,
    "shared_load_transactions": 16e6,
    "shared_store_transactions": 4e6,
    "inst_executed_shared_loads": 1e6,
    "tensor_cycles_utilization": 0.0,
}


def test_what_a_round_of_shared_memory_carries_is_told_by_the_nearest_counter():
    bytes_asked = {"shared_efficiency": 0.7}
    conflicts = {"shared_load_bank_conflicts": 12e6, "shared_store_bank_conflicts": 3e6}
    assert shared_filled(launch({**LOADS, **conflicts, **bytes_asked})) == pytest.approx(0.7)
    assert shared_filled(launch({**LOADS, **conflicts})) == pytest.approx(1 - 15 / 20)
    # sixteen rounds a load, of which the widest needs four
    assert shared_filled(launch(LOADS)) == pytest.approx(4 / 16)


def test_rounds_that_wide_loads_may_need_and_those_of_matrix_instructions_prove_no_conflict():
    wide = {**LOADS, "shared_load_transactions": 7e6}
    assert shared_filled(launch(wide)) == 1.0
    assert np.isnan(shared_filled(launch({**LOADS, "tensor_cycles_utilization": 0.1})))
    unknown = {name: value for name, value in LOADS.items() if "tensor" not in name}
    assert np.isnan(shared_filled(launch(unknown)))


def test_shared_memory_is_busy_with_its_part_of_what_enters_l1():
    row = {
        "time_us": 1.0,
        "shared_utilization": 0.4,
        "ldst_fu_utilization": 0.2,
        "global_load_requests": 1e6,
        "global_store_requests": 0.0,
        "inst_executed_shared_loads": 8e6,
        "inst_executed_shared_stores": 1e6,
    }
    # nine of ten instructions, of a unit that does 0.2 of the 0.25 it can
    assert SlowLaunch(launch(row)).shared_level == pytest.approx(0.9 * 0.8)
    uncounted = launch({**row, "global_load_requests": np.nan})
    assert SlowLaunch(uncounted).shared_level == pytest.approx(0.4)


def test_a_data_stage_of_half_the_rate_is_as_busy_as_l1_says():
    row = {
        "time_us": 1.0,
        "shared_utilization": 0.42,
        "lsu_data_utilization": 0.46,
        "l1_utilization": 0.92,
        "global_load_requests": 0.0,
        "inst_executed_shared_loads": 1e6,
    }
    assert SlowLaunch(launch(row)).shared_level == pytest.approx(0.92 * 0.42 / 0.46)


def test_bytes_are_those_that_were_asked_for():
    row = {
        "time_us": 1.0,
        "gld_transactions": 8e6,
        "gld_efficiency": 0.5,
        "gst_transactions": 0.0,
        "gst_efficiency": np.nan,
        "global_load_requests": 1e6,
        "global_store_requests": 0.0,
        "dram_read_bytes": 64e6,
    }
    assert pressures.bytes_per_request(launch(row)) == pytest.approx(128.0)
    assert pressures.loads_for_dram(launch(row)) == pytest.approx(2.0)
    assert np.isnan(pressures.loads_for_dram(launch({**row, "dram_read_bytes": 0.0})))


def test_a_launch_without_local_memory_is_not_looked_at():
    frame = pd.DataFrame(
        {
            "local_load_transactions": [0.0, 1e6, np.nan],
            "local_store_transactions": [0.0, 0.0, np.nan],
            "gld_transactions": [1e6, 3e6, 1e6],
            "gst_transactions": 0.0,
            "time_us": 1.0,
        }
    )
    asked = []

    def of(one):
        asked.append(one)
        return pressures.local_share(one)

    made = pressures.per_launch(of, ("local_load_transactions", "local_store_transactions"))
    assert made(frame).tolist() == pytest.approx([0.0, 0.25, 0.0])
    assert len(asked) == 1
