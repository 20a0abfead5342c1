"""How sure advice is: of a launch alone, beside an explanation, and in words."""

from __future__ import annotations

import math

import pytest

from perfml.explain import TERMS, Causes, Contribution, PairCauses, TermTotal, advise
from perfml.explain.advice.fix import Fix
from perfml.explain.advice.how_sure import certainty_of, with_cause
from perfml.explain.advice.persons import what_to_do
from perfml.explain.advice.rules import shipped_rules
from perfml.explain.counters.evidence import Reason, Untold
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
DOUBLES = {"double_precision_fu_utilization": 0.6}


def advised(**cells):
    return advise(make_kernels([{"kernel": "mine", "time_us": 100.0, **cells}])).table


@pytest.mark.parametrize(
    ("rule", "gain", "sure"),
    [
        ("uncoalesced_load", 0.4, "firm"),
        ("tail_wave", 0.4, "firm"),
        ("small_grid", 0.4, "open"),
        ("small_grid", 0.6, "likely"),
        ("launch_bound", 0.2, "firm"),
        ("uncoalesced_load", 0.15, "likely"),
        ("uncoalesced_load", 0.05, "open"),
        ("memory_latency", 0.4, "open"),
        ("memory_latency", 0.6, "likely"),
        ("occupancy_registers", 0.5, "open"),
        ("occupancy_registers", 0.51, "likely"),
    ],
)
def test_what_is_counted_is_firmer_than_what_warps_wait_for(rule, gain, sure):
    assert certainty_of(RULES[rule], gain) == sure


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


def causes(first: float, rival: float, untold: Untold | None = None) -> Causes:
    parts = [
        Contribution(TERMS["instructions"], 1.0, 2.0, first),
        Contribution(TERMS["dram_bytes"], 1.0, 2.0, rival),
    ]
    found = Causes((PairCauses("k", None, tuple(parts)),), first + rival, (), untold)
    assert isinstance(found.totals[0], TermTotal)
    return found


def doubt(reason: Reason) -> Untold:
    terms = TERMS["dram_bytes"], TERMS["instructions"]
    return Untold((terms[0],), terms[1], (), (), "", 0.5, "why", reason, "run it twice")


def test_a_cause_is_firm_likely_or_open():
    assert causes(0.6, 0.1).certainty == "firm"
    rest = Contribution(TERMS["throughput"], 1.0, 2.0, 0.6)
    several = Causes((PairCauses("k", None, (*causes(0.3, 0.2).pairs[0].contributions,)),), 1.0)
    assert several.certainty == "likely"
    assert causes(0.6, 0.5, doubt(Reason.RIVAL)).certainty == "likely"
    assert causes(0.6, 0.1, doubt(Reason.ROOM)).certainty == "open"
    assert Causes((PairCauses("k", None, (rest,)),), 0.6).certainty == "open"
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
