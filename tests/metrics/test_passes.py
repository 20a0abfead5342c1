"""Replay passes of sets of metrics: what was measured, and how good the estimate is."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfml.metrics import PUBLISHED, load_catalogue
from perfml.metrics.passes import (
    ESTIMATES,
    PassCounts,
    cupti_passes,
    cupti_seconds,
    is_free,
    load_passes,
    read_sets,
)
from studies.plan import chip_passes
from tests.support.paths import ROOT


def test_a_measured_set_has_the_number_that_was_measured():
    counts = load_passes()
    for _, passes, names in read_sets():
        found = counts.estimate(names) if all(map(counts.known, names)) else None
        if found is not None:
            assert (found.passes, found.low, found.high, found.measured) == (passes,) * 3 + (True,)
    assert counts.estimate(PUBLISHED).passes == 8


def test_estimates_of_random_sets_that_the_fit_has_not_seen_are_as_good_as_is_said():
    sets = [(kind == "random", frozenset(names), passes) for kind, passes, names in read_sets()]
    drawn = [(names, passes) for random, names, passes in sets if random]
    others = [(names, passes) for random, names, passes in sets if not random]
    errors = []
    for part in range(10):
        counts = PassCounts([*others, *(row for i, row in enumerate(drawn) if i % 10 != part)])
        errors += [counts.estimate(names).passes - passes for names, passes in drawn[part::10]]
    said = f"Of {len(errors)} random sets the estimate is right for {errors.count(0)}"
    assert f"{said}, and wrong by {max(map(abs, errors))} at most." == ESTIMATES


@given(st.sets(st.sampled_from(PUBLISHED)))
def test_an_estimate_lies_between_its_limits_and_measured_parts(names):
    counts = load_passes()
    found = counts.estimate(names)
    assert 1 <= found.low <= found.passes <= found.high <= 8
    assert all(found.low >= p or found.high >= p for s, p in counts.measured.items() if s <= names)


def test_what_needs_no_counter_costs_nothing():
    counts = load_passes()
    assert counts.estimate(["waves_per_sm", "flops"]).passes == counts.estimate([]).passes == 1
    with_launch = counts.estimate(["gld_efficiency", "waves_per_sm"])
    assert with_launch == counts.estimate(["gld_efficiency"])
    assert is_free("flops")
    assert not is_free("stall_sync")


def test_a_metric_that_ncu_does_not_have_is_not_free():
    assert not is_free("sysmem_read_utilization")
    assert not load_passes().known("sysmem_read_utilization")


def test_an_unmeasured_metric_has_no_estimate():
    with pytest.raises(KeyError):
        load_passes().estimate(["nvlink_total_data_received"])


def test_the_shares_explain_sets_that_add_up():
    a, b, c, d, e, f = PUBLISHED[3:8] + PUBLISHED[9:10]
    alone = [((name,), 1) for name in (a, b, c, d, e, f)]
    # two to a pass, and one pass more from two on
    sets = [((a, b), 1), ((a, b, c), 3), ((c, d, e, f), 3)]
    sets += [((a, b, c, d, e, f), 4), ((b, d, f), 3), ((a, c, e, f), 3)]
    counts = PassCounts((frozenset(names), passes) for names, passes in [*alone, *sets])
    assert counts.estimate((b, c, d, e)).passes == 3
    five = counts.estimate((a, c, d, e, f))
    # one of them is measured alone, four of them together, and all six
    assert (five.low, five.high, five.measured) == (3, 4, False)


def test_cupti_takes_one_pass_less_than_nsight_compute_or_what_it_was_asked():
    assert cupti_passes(PUBLISHED, load_passes().estimate(PUBLISHED).passes) == 7
    assert cupti_passes(["gld_efficiency"], 3) == 2
    assert cupti_passes(["achieved_occupancy"], 1) == 1
    never_asked = ["gld_efficiency", "dram_utilization", "stall_sync", "tex_fu_utilization"]
    assert cupti_passes(never_asked, 5) == 4


def test_a_measurement_through_cupti_takes_as_long_as_was_measured():
    path = ROOT / "benchmarks" / "results" / "collect-h200-once.json"
    costs = json.loads(path.read_text(encoding="utf-8"))["costs"]
    # in an open session, instrumented code with it: the passes after those that open it
    published = next(cost for cost in costs if cost["metrics"] == "published")
    assert cupti_seconds(load_catalogue().select(("published",)), 6) == pytest.approx(
        published["again_ms_a_launch"] / 1e3, rel=0.06
    )
    several, one = (
        next(c for c in costs if c["tool"] == tool and c["network"] == "yolov4-tiny")
        for tool in ("cupti, 3 x", "cupti, 1 x")
    )
    hardware = several["again_ms_a_launch"] / (several["passes"] - 1)
    default = (7 * hardware + sum(one["pass_us"][-1]) / 1e3) / 1e3
    asked = load_catalogue().select(("default",))
    assert cupti_seconds(asked, 8) == pytest.approx(default, rel=0.05)
    assert cupti_seconds((), 0) == 0
    assert cupti_seconds(("achieved_occupancy",), 1) < 0.0011


@pytest.mark.process
def test_the_table_of_chips_is_what_cupti_plans(tmp_path):
    program = chip_passes.build(tmp_path)
    sets = read_sets()[::9]
    requests = [chip_passes.request(metrics) for _, _, metrics in sets]
    planned = chip_passes.passes_on("GH100", requests, program)
    shipped = [cupti_passes(metrics, -1) for _, _, metrics in sets]
    assert planned == shipped
    # a pass is about 1 ms a launch: what is added to a set has to fit into these
    named = [chip_passes.request([name]) for name in ("published", "default")]
    published, default = chip_passes.passes_on("GH100", named, program)
    assert published in (6, 7)  # in another order, which the profiler looks for
    assert default == 8
