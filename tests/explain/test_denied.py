"""A cause is denied by what must be seen beside it, and only by that; its part is given on."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from functools import cache

import pytest

from perfml.chips import chip
from perfml.datasets import find
from perfml.explain import explain, load_tables, make_side
from perfml.explain.advice.findings import in_order, launch_findings
from perfml.explain.advice.table import Layer
from perfml.explain.limits.state import LaunchState
from perfml.explain.tree.causes import TERMS, Kind
from perfml.explain.tree.engine import decompose_pair
from perfml.explain.tree.layer import Match, decompose_layer
from perfml.explain.tree.pair import Pair, why_denied
from perfml.explain.tree.work import KINDS
from perfml.ingest.merge.rule import merge
from perfml.report.sections.layer_detail import layer_section
from tests.support.causes import FAST, LOOK_ALIKES
from tests.support.launches import launch
from tests.support.paths import ROOT

pytestmark = pytest.mark.long

ALIKE = ROOT / "studies/workloads/planted/alike.toml"


def denied(cause, fast=(), **slow):
    """Why a cause is denied of a launch of twice the time, with counters that differ."""
    sides = launch(FAST | dict(fast)), launch({**FAST, "time_us": 100.0, **slow})
    return why_denied(Pair(*sides, single=True), cause)


COUNTED = (Kind.LAUNCH, Kind.MEASUREMENT, Kind.RESIDUAL)
"""Kinds of what is counted, or left over, and not concluded from counters."""


@pytest.mark.parametrize("cause", [n for n, term in TERMS.items() if term.kind not in COUNTED])
def test_each_cause_holds_and_its_look_alike_is_denied_with_a_reason(cause):
    assert cause in LOOK_ALIKES, (
        f"give LOOK_ALIKES a launch with {cause} and a look-alike that `beside` denies"
    )
    true, alike = LOOK_ALIKES[cause]
    assert denied(cause, **true) == ""
    assert denied(cause, **alike) in TERMS[cause].beside
    heir = TERMS[cause].gives
    assert heir != cause
    assert heir == "" or heir in TERMS


class Side:
    """A side of a pair of which every formula has one number."""

    def __init__(self, number):
        self.value = lambda formula: number
        self.launch = launch({"time_us": 1.0})


@pytest.mark.parametrize("cause", [term.id for term in TERMS.values() if term.level is not None])
def test_a_cause_is_denied_where_it_is_better_on_the_slower_side(cause):
    term, made = TERMS[cause], object.__new__(Pair)
    for slow, fast in ((2.0, 1.0), (1.0, 2.0)):
        made.slow, made.fast, made.ideal = Side(slow), Side(fast), True
        made.quantity = lambda name: float("nan")
        better = (slow > fast) if term.falls else (slow < fast)
        # what warps wait for is a share of a time that changed too
        assert bool(why_denied(made, cause)) is (better and term.kind is not Kind.STALL)


def test_look_alikes_say_which_causes_may_stand_first():
    text = ALIKE.read_text(encoding="utf-8")
    source = ALIKE.with_suffix(".cu").read_text(encoding="utf-8")
    for kernel, accepted in tomllib.loads(text).items():
        assert f"KERNEL({kernel})" in source
        assert {name for names in accepted for name in names} <= set(TERMS)


RECORDED = find("h200-alike")


@cache
def recorded():
    return load_tables(RECORDED)


def explained(kernel, *versions):
    chosen = []
    for version in versions:
        rows = recorded()[1].query("backend == @version and layer == @kernel")
        chosen.append(make_side(version, merge(rows), rows))
    answer = explain(*chosen, model=None)
    (detail,) = answer.details
    return answer, detail, detail.causes.towards(detail.time.log_ratio)[0].term.id


@pytest.mark.parametrize("version", ["cause", "alike"])
@pytest.mark.parametrize("kernel", tomllib.loads(ALIKE.read_text(encoding="utf-8")))
def test_recorded_look_alikes_have_the_cause_of_their_label_in_both_directions(kernel, version):
    accepted = tomllib.loads(ALIKE.read_text(encoding="utf-8"))[kernel][version == "alike"]
    _, _, first = explained(kernel, "base", version)
    assert explained(kernel, version, "base")[2] == first
    assert first in accepted


def test_why_a_cause_is_denied_is_in_the_json_and_in_all_that_more_shows():
    answer, detail, _ = explained("redundant_traffic", "base", "alike")
    (why,) = TERMS["redundant_traffic"].beside
    assert detail.to_dict()["causes"]["denied"]["redundant_traffic"] == why
    assert why in str(layer_section(detail, answer, evidence=True))
    assert (
        "redundant_traffic" not in explained("redundant_traffic", "base", "cause")[1].causes.denied
    )


def test_blocks_that_all_run_at_once_on_equally_busy_multiprocessors_are_not_uneven():
    assert denied("block_imbalance", achieved_occupancy=0.4, waves_per_sm=0.9)


def test_what_was_not_counted_denies_nothing():
    unknown = {name: float("nan") for name in ("gld_transactions", "dram_read_bytes")}
    assert not denied("narrow_access", global_load_requests=4e6, **unknown)
    assert not denied("redundant_traffic", global_load_requests=2e6, **unknown)


def test_the_part_of_a_denied_cause_is_given_on_and_nothing_is_lost():
    slow = {**FAST, "time_us": 100.0, "ncu_time_us": 100.0, "dram_utilization": 0.9}
    slow |= LOOK_ALIKES["redundant_traffic"][1]
    found = decompose_pair(launch(FAST), launch(slow), single=True)
    named = {one.term.id: one.log_ratio for one in found.contributions}
    assert "redundant_traffic" not in named
    assert max(named, key=lambda name: named[name]) == "dram_bytes"
    assert sum(named.values()) == pytest.approx(0.693, abs=1e-3)


@pytest.mark.parametrize(("capability", "rate"), [("7.5", 2), ("8.9", 2), ("8.0", 32), ("9.0", 64)])
def test_doubles_take_the_cycles_of_the_chip_at_hand(capability, rate):
    one = launch({"time_us": 1.0, "capability": capability})
    assert KINDS["fp64_pipe_time"].cycles(one) == pytest.approx(1 / rate)


def test_a_grid_that_leaves_multiprocessors_without_a_block_comes_before_the_busy_unit():
    row = {**FAST, "waves_per_sm": 0.001, "achieved_occupancy": 0.1, "sm_efficiency": 2 / 132}
    row |= {"double_precision_fu_utilization": 0.41, "flop_count_dp": 1e9, "time_us": 1000.0}
    row |= {"ncu_time_us": 1000.0, "sm_active_cycles_mean": 15.0}
    one = replace(launch(row), grid="(2, 1, 1)", chip=chip("NVIDIA H100 80GB HBM3"))
    assert LaunchState(one)["at_work"] == pytest.approx(2 / 132)
    layer = Layer({"layer": "l", "layer_us": 1000.0}, (one,), ("k",))
    first = in_order(launch_findings(layer))[0]
    assert first.rules[0] == "wave_quantization"
    numbers = {one.quantity: one.slow for one in first.numbers}
    assert (numbers["blocks"], numbers["multiprocessors"]) == (2.0, 132.0)


@pytest.mark.parametrize(("capability", "denied"), [("7.5", True), ("8.0", False), (None, False)])
def test_what_a_device_has_no_instructions_for_is_no_cause_on_it(capability, denied):
    counters = {**FAST, "capability": capability, "inst_executed_async_copies": 1e4}
    slow = {**counters, "time_us": 100.0, "inst_executed_async_copies": 1e3}
    pair = Pair(
        *(launch({**one, "stall_memory_dependency": 0.5}) for one in (counters, slow)), single=True
    )
    assert ("compute capability" in why_denied(pair, "async_copy")) is denied


@pytest.mark.parametrize(
    ("more", "first"),
    [
        ({}, "sectors_per_request"),
        # a level that was counted says where the time is
        ({"ipc": 2.0, "stall_memory_dependency": 0.5}, "sectors_per_request"),
        ({"gld_transactions": 4e6, "gst_transactions": 4e6}, "throughput"),
    ],
)
def test_work_that_grew_is_the_cause_where_no_unit_s_time_was_counted(more, first):
    counted = {"inst_executed": 4e6, "global_load_requests": 1e6, "global_store_requests": 1e6}
    fast = {"gld_transactions": 4e6, "gst_transactions": 4e6, **counted}
    slow = {"gld_transactions": 8e6, "gst_transactions": 8e6, **counted, **more}
    sides = [launch({"kernel": "copy(float*)", **each}) for each in
             ({**slow, "time_us": 65.0}, {**fast, "time_us": 60.0})]  # fmt: skip
    causes = decompose_layer([Match("copy", *sides)], same_device=True, single=True)
    assert causes.totals[0].term.id == first
    assert causes.confidence == "low"
