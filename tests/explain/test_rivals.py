"""Where another unit's work explains as much and no unit is busy, the first line says so."""

import pytest

from perfml.explain.tree.layer import layer_causes
from perfml.explain.tree.sentences import summary_sentences
from perfml.explain.results import Ratio
from tests.support.launches import launch

ATOMICS = ("global_atomic_requests", "global_reduction_requests")
LOCAL = ("local_load_transactions", "local_store_transactions")
PROBES = {
    **dict.fromkeys((*ATOMICS, *LOCAL), 0.0),
    "kernel": "probe",
    "kernels": 1.0,
    "time_us": 100.0,
    "ncu_time_us": 100.0,
    "waves_per_sm": 8.0,
    "theoretical_occupancy": 1.0,
    "achieved_occupancy": 0.9,
    "sm_efficiency": 1.0,
    "warp_execution_efficiency": 0.9,
    "inst_executed": 1e7,
    "inst_integer": 3.2e7,
    "ipc": 1.6,
    "issue_slot_utilization": 0.4,
    "l2_utilization": 0.2,
    "l2_read_transactions": 4e6,
    "l2_write_transactions": 1e5,
    "global_load_requests": 1e6,
    "global_store_requests": 1e5,
    "gld_transactions": 4e6,
    "gst_transactions": 4e5,
    "stall_memory_dependency": 0.7,
}
LONGER = {
    "time_us": 400.0,
    "ncu_time_us": 400.0,
    "inst_executed": 4e7,
    "inst_integer": 8e8,
    "global_load_requests": 4e6,
    "gld_transactions": 1.6e7,
    "l2_read_transactions": 1.6e7,
}


def found(**slow):
    return layer_causes(launch(PROBES), launch({**PROBES, **LONGER, **slow}), same_device=True)


def test_four_times_the_loads_or_the_integers_is_not_told_by_idle_units():
    causes = found()
    assert causes.terms["term"].iloc[0] == "redundant_traffic"
    assert causes.untold is not None
    assert [term.id for term in causes.untold.causes] == ["integer_arithmetic"]
    assert causes.untold.instead_of.id == "redundant_traffic"
    slower = Ratio(100.0, 400.0, causes.log_ratio, None, None, (1, 1), "slower")
    first = summary_sentences(slower, causes)[0]
    assert first.startswith(
        "cannot tell integer and address arithmetic from redundant traffic: no unit"
    )
    assert "section SourceCounters" in first
    document = causes.untold.to_dict()
    assert document["sections"] == ["SourceCounters"]
    assert document["share"] == pytest.approx(1.0, abs=0.2)


def test_four_times_the_loads_by_a_third_of_the_lanes_are_the_lanes():
    causes = found(warp_execution_efficiency=0.3, inst_integer=3.2e7)
    assert causes.terms["term"].iloc[0] == "active_threads_per_warp"
    assert causes.untold is None


def test_a_busy_unit_decides():
    assert found(l2_utilization=0.7).untold is None


def test_a_unit_that_is_next_to_idle_is_no_rival():
    assert found(issue_slot_utilization=0.1, ipc=0.4).untold is None
