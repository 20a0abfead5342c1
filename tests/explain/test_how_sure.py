"""How sure advice is: of a launch alone, beside an explanation, and in words."""

from __future__ import annotations

import math

import pytest

from perfml.explain import TERMS, Causes, Contribution, PairCauses, advise
from perfml.explain.advice.fix import Fix
from perfml.explain.advice.how_sure import certainty_of, with_cause
from perfml.explain.advice.inputs import INPUTS
from perfml.explain.advice.persons import what_to_do
from perfml.explain.advice.rules import shipped_rules
from perfml.explain.tree.ambiguity import Reason, Untold
from perfml.metrics import load_catalogue
from tests.support.tables import make_kernels

RULES = {rule.id: rule for rule in shipped_rules()}
WAITS = {"stall_memory_dependency": 0.5, "dram_utilization": 0.2, "l2_utilization": 0.2}
WAITS |= {"gld_efficiency": 1.0, "gst_efficiency": 1.0, "ldgsts_efficiency": 1.0}
WAITS |= {"sectors_per_load": 4.0, "gld_transactions": 4e6, "global_load_requests": 1e6}
WAITS |= dict.fromkeys(("gst_transactions", "global_store_requests", "l2_atomic_utilization"), 0.0)
WAITS |= dict.fromkeys(("local_load_transactions", "local_store_transactions"), 0.0)
WAITS |= dict.fromkeys(("global_atomic_requests", "global_reduction_requests"), 0.0)
WAITS |= {"l2_atomic_utilization_max": 0.0, "stall_membar": 0.0, "theoretical_occupancy": 1.0}
WAITS |= {"block": "(256, 1, 1)", "registers_per_thread": 32.0, "shared_memory_per_block": 1024.0}
WAITS |= {"grid": "(4224, 1, 1)", "stall_exec_dependency": 0.1, "device": "NVIDIA H200"}
WAITS |= {"achieved_occupancy": 0.9}
DOUBLES = {"double_precision_fu_utilization": 0.9}


def advised(**cells):
    return advise(make_kernels([{"kernel": "mine", "time_us": 100.0, **cells}])).table


@pytest.mark.parametrize(
    ("rule", "gain", "level", "sure"),
    [
        # a unit at its limit, a third of the time
        ("uncoalesced_load", 0.4, 0.95, "firm"),
        ("uncoalesced_load", 0.4, 0.4, "likely"),
        ("uncoalesced_load", 0.4, math.nan, "likely"),
        ("uncoalesced_load", 0.2, 0.95, "likely"),
        # nothing else can save as much
        ("uncoalesced_load", 0.6, 0.4, "firm"),
        ("uncoalesced_load", 0.05, 0.95, "open"),
        # idle time and launches are counted themselves
        ("tail_wave", 0.4, math.nan, "firm"),
        ("launch_bound", 0.4, math.nan, "firm"),
        ("launch_bound", 0.2, math.nan, "likely"),
        # no unit is blamed
        ("repeated_products", 0.6, math.nan, "likely"),
        ("small_grid", 0.4, math.nan, "open"),
        ("small_grid", 0.6, math.nan, "likely"),
        ("barrier_stalls", 0.6, math.nan, "likely"),
        ("occupancy_registers", 0.51, math.nan, "likely"),
        ("memory_latency", 0.6, math.nan, "open"),
    ],
)
def test_a_finding_is_firm_where_the_unit_it_blames_is_at_its_limit(rule, gain, level, sure):
    assert certainty_of(RULES[rule], gain, level) == sure


def test_every_unit_that_a_rule_blames_is_one_that_inputs_know():
    catalogue = load_catalogue()
    for rule in RULES.values():
        assert all(name in catalogue or name in INPUTS for name in rule.limit), rule.id
        assert not (rule.limit and rule.exact), rule.id


def test_how_busy_the_blamed_unit_is_decides_and_is_told():
    full, half = (advised(double_precision_fu_utilization=busy).iloc[0] for busy in (0.9, 0.7))
    assert (full["certainty"], half["certainty"]) == ("firm", "likely")
    assert (full["level"], half["level"]) == pytest.approx((0.9 / 0.95, 0.7 / 0.95))


def test_a_full_queue_of_loads_is_a_limit_though_no_memory_is_busy():
    scattered = {**WAITS, "gld_efficiency": 0.125, "gld_transactions": 32e6, "ipc": 1.0}
    scattered |= {"inst_executed": 4e7, "achieved_occupancy": 0.9, "stall_memory_dependency": 0.4}
    idle, queued = (
        advised(**scattered, stall_memory_throttle=share).set_index("rules")["level"]
        for share in (0.05, 0.5)
    )
    assert queued["uncoalesced_load",] == 1.0
    assert idle["uncoalesced_load",] < 0.9


def test_a_wait_says_what_would_tell_and_counted_work_needs_nothing():
    waits = advised(**WAITS).iloc[0]
    assert (waits["rules"], waits["certainty"]) == (("memory_latency",), "open")
    assert waits["tells"] == "section SourceCounters shows at which instructions warps wait"
    assert what_to_do(waits.to_dict()).startswith("Try this first to find out: ")
    assert what_to_do(waits.to_dict()).endswith(f"What tells: {waits['tells']}.")
    counted = advised(**DOUBLES).iloc[0]
    assert (counted["certainty"], counted["tells"]) == ("firm", "")
    assert what_to_do(counted.to_dict()) == counted["mitigation"]


def test_a_wait_whose_reason_nobody_counted_says_what_to_collect():
    bare = {name: value for name, value in WAITS.items() if name != "gld_efficiency"}
    waits = advised(**bare).iloc[0]
    assert waits["certainty"] == "open"
    assert waits["tells"].startswith("collect gld_efficiency")


def test_beside_an_explanation_both_have_to_be_firm():
    found = advised(**DOUBLES)
    both = found.assign(side="after")
    for cause, sure in (("firm", "firm"), ("likely", "likely"), ("open", "likely")):
        assert with_cause(both, "after", cause)["certainty"].iloc[0] == sure
    assert with_cause(both, "before", "open")["certainty"].iloc[0] == "firm"


def causes(probability: float, reason: Reason | None = None) -> Causes:
    parts = (Contribution(TERMS["instructions"], 1.0, 2.0, 0.6),)
    terms = TERMS["dram_bytes"], TERMS["instructions"]
    untold = None if reason is None else Untold(terms[:1], terms[1], reason=reason, why="why")
    return Causes((PairCauses("k", None, parts),), 0.6, (), untold, probability)


def test_a_cause_is_firm_likely_or_open():
    assert causes(0.95).certainty == "firm"
    assert causes(0.8, Reason.RIVAL).certainty == "likely"
    assert causes(0.4, Reason.COUNTERS).certainty == "open"
    assert causes(0.9, Reason.PIECES).certainty == "open"
    assert Causes((), 0.0).certainty == "open"


def test_a_fix_is_as_sure_as_its_cause_and_says_what_tells():
    fix = Fix("after", TERMS["instructions"], "k", "Do less.", 9.0, None)
    assert fix.sentence().startswith("what to do in after: Do less. What removing")
    doubted = Fix(
        "after", TERMS["instructions"], "k", "Do less.", 9.0, None, None, "open", "run it twice"
    )
    assert doubted.sentence().startswith("what to do in after (try this first to find out): Do")
    assert doubted.sentence().endswith(". What tells: run it twice")
    document = doubted.to_dict()
    assert (document["certainty"], document["tells"]) == ("open", "run it twice")
    assert math.isclose(document["now_us"], 9.0)
