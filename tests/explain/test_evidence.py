"""What was not collected: never named, and said first where it could be the answer."""

import math

import pytest

from perfml.explain import explain, sides_of
from perfml.explain.tree.layer import layer_causes
from perfml.explain.counters.evidence import HIDES_IN, is_collected, is_proven
from perfml.explain.tree.sentences import summary_sentences
from perfml.explain.tree.causes import TERMS, Kind
from perfml.explain.results import Ratio
from perfml.metrics import HOPPER, load_catalogue
from perfml.report import to_markdown, to_text
from perfml.report.sections.explanation import explanation_document, explanation_summary
from tests.support.causes import PLANTED, pair_with
from tests.support.launches import launch
from tests.support.tables import make_kernels

SLOWER = Ratio(10.0, 40.0, math.log(4), None, None, (1, 1), "slower")
COUNTED = {
    "kernels": 1.0,
    "time_us": 10.0,
    "ncu_time_us": 10.0,
    "waves_per_sm": 4.0,
    "theoretical_occupancy": 1.0,
    "achieved_occupancy": 0.9,
    "sm_efficiency": 1.0,
    "l2_utilization": 0.8,
    "stall_memory_dependency": 0.6,
}
SLOW = {"time_us": 40.0, "ncu_time_us": 40.0}


def found(before, after):
    causes = layer_causes(
        launch({**COUNTED, **before}), launch({**COUNTED, **after}), same_device=True
    )
    return causes, summary_sentences(SLOWER, causes)


def test_scattered_lanes_that_nobody_counted_are_said_before_the_busy_unit():
    causes, said = found({}, SLOW)
    assert causes.terms["term"].iloc[0] == "l2_busy_time"
    assert said[0].startswith("cannot tell sectors per request or ")
    assert "from L2 busy time: collect global_load_requests, " in said[0]
    assert "gld_transactions" in said[0]
    assert "section MemoryWorkloadAnalysis_Tables; perfml collect --metrics default)" in said[0]
    assert said[1].startswith("makes it slower: work: L2 busy time ×4.00")


def test_sectors_of_l2_that_nobody_counted_are_said_where_l2_is_busy_longer_for_each_of_l1():
    counted = {"global_load_requests": 1e6, "gld_transactions": 4e6, "gld_efficiency": 1.0}
    counted |= {"global_store_requests": 1e6, "gst_transactions": 1.6e7, "gst_efficiency": 1.0}
    causes, said = found(counted, {**counted, **SLOW})
    assert causes.terms["term"].iloc[0] == "l2_time_per_sector"
    assert said[0].startswith("cannot tell L2 sectors per L1 sector ")
    assert "l2_write_transactions" in said[0]
    counted |= {"l2_read_transactions": 4e6, "l2_write_transactions": 4e6}
    causes, said = found(counted, {**counted, **SLOW, "l2_write_transactions": 2.8e7})
    assert causes.terms["term"].iloc[0] == "l2_sectors_per_l1_sector"
    assert not any("L2 sectors per L1 sector from" in each for each in said)


def test_more_requests_of_more_sectors_each_may_ask_for_as_many_bytes_further_apart():
    before = {"global_load_requests": 1e6, "gld_transactions": 4e6}
    before |= {"global_store_requests": 1e6, "gst_transactions": 4e6}
    more = {**SLOW, "global_load_requests": 4e6, "global_store_requests": 2e6}
    apart = {**before, **more, "gld_transactions": 1.6e7, "gst_transactions": 1.6e7}
    causes, said = found(before, apart)
    assert causes.terms["term"].iloc[0] == "global_requests"
    assert said[0].startswith("cannot tell uncoalesced stores from global requests: collect gst")
    _, said = found(before, {**apart, "gst_transactions": 8e6})
    assert not said[0].startswith("cannot tell uncoalesced stores")
    asked = {"gld_efficiency": 1.0, "gst_efficiency": 1.0}
    _, said = found({**before, **asked}, {**apart, **asked})
    assert not said[0].startswith("cannot tell uncoalesced stores")


def test_what_can_be_told_or_ruled_out_is_not_asked_for():
    requests = {"global_load_requests": 1e6, "global_store_requests": 1e3}
    sectors = {"gld_transactions": 4e6, "gst_transactions": 4e3}
    none = dict.fromkeys(
        (
            "global_atomic_requests",
            "global_reduction_requests",
            "local_load_transactions",
            "local_store_transactions",
        ),
        0.0,
    )
    counted = {**requests, **sectors, **none}
    more = {"global_load_requests": 4e6, "gld_transactions": 1.6e7}
    causes, said = found(counted, {**counted, **more, **SLOW})
    assert causes.untold is None
    assert said[0].startswith("makes it slower: redundant traffic")


def test_shared_memory_is_no_cause_that_is_asked_for_where_no_kernel_uses_it():
    waits = {"stall_memory_dependency": 0.0, "stall_exec_dependency": 0.8, "l2_utilization": 0.1}
    for level, asked in ((0.0, False), (0.4, True)):
        one = {**waits, "shared_utilization": level}
        causes, _ = found(one, {**one, **SLOW})
        assert causes.untold is not None
        named = {term.id for term in causes.untold.causes}
        assert ("shared_atomics" in named) is asked


def test_a_proven_cause_that_is_most_of_the_difference_stands_first():
    sync = {"stall_sync": 0.1, "stall_membar": 0.0, "l2_utilization": 0.04}
    waits = {"stall_sync": 0.9, "stall_memory_dependency": 0.05, "l2_utilization": 0.01}
    causes, said = found(sync, {**sync, **SLOW, **waits})
    assert causes.terms["term"].iloc[0] == "stall_sync"
    assert causes.untold is None
    assert said[0].startswith("makes it slower: stall_sync")


@pytest.mark.parametrize("term", PLANTED)
def test_a_cause_whose_counters_are_missing_is_never_named(term):
    lost = {*TERMS[term].evidence, *TERMS[term].or_evidence}
    sides = [
        launch(
            {
                "kernel": one.kernel,
                "time_us": one.time_us,
                **{name: value for name, value in one.counters.items() if name not in lost},
            }
        )
        for one in pair_with(term)
    ]
    causes = layer_causes(*sides, same_device=True)
    named = causes.terms[causes.terms["term"] == term]["log_ratio"]
    assert named.abs().sum() == 0
    assert causes.terms["log_ratio"].sum() == pytest.approx(math.log(4))


@pytest.mark.parametrize("term", TERMS.values(), ids=str)
def test_every_metric_that_is_asked_for_is_in_a_set_of_perfml(term):
    if term.id in HIDES_IN or term.kind is Kind.STALL:
        held = {*load_catalogue().computable(["causes"]), *HOPPER}
        assert set(term.evidence) <= held
    assert set(HIDES_IN.get(term.id, ())) <= set(TERMS)


def test_a_value_that_means_nothing_for_a_launch_was_collected():
    row = launch({"time_us": 1.0, "gld_efficiency": math.nan, "inst_executed": math.nan})
    assert is_collected("gld_efficiency", row)
    assert not is_collected("inst_executed", row)
    assert not is_collected("ipc", row)
    assert is_proven(TERMS["uncoalesced_loads"], row)


def test_the_first_line_is_in_the_result_the_json_and_every_page():
    rows = [
        {
            **{
                name: value
                for name, value in COUNTED.items()
                if name not in ("kernels", "ncu_time_us")
            },
            "layer": "conv",
            "backend": backend,
            "run_id": backend,
            "iteration": iteration,
            "time_us": time + iteration / 100,
        }
        for backend, time in (("one", 10.0), ("two", 40.0))
        for iteration in range(3)
    ]
    kernels = make_kernels(rows)
    explanation = explain(*sides_of(kernels, "one", "two"), model=None)
    (detail,) = explanation.details
    untold = detail.causes.untold
    assert untold is not None
    assert detail.reasons[0] == untold.sentence()
    document = explanation.to_dict()["details"][0]
    assert document["reasons"][0] == untold.sentence()
    assert document["causes"]["untold"]["collect"] == "default"
    assert document["causes"]["untold"]["sections"][0] == "MemoryWorkloadAnalysis_Tables"
    page, screen = explanation_document(explanation), explanation_summary(explanation)
    for text in (to_text(page), to_text(screen), to_markdown(page), explanation._repr_html_()):
        flat = " ".join(text.replace("\\_", "_").split())
        assert "cannot tell sectors per request" in flat
        assert flat.index("cannot tell sectors") < flat.index("work: L2 busy time ×4.00")
        assert "ithout this cause between" in flat, "what scattered lanes leave was not counted"


def test_where_several_terms_are_open_the_largest_is_what_is_asked_about():
    # L2 is busy longer for something that was not counted, and barriers may be fences
    waits = {"stall_sync": 0.1, "stall_memory_dependency": 0.0}
    before = {**waits, "l2_utilization": 0.5}
    after = {**SLOW, **waits, "l2_utilization": 0.27, "stall_sync": 0.7}
    causes, said = found(before, after)
    assert causes.untold is not None
    assert said[0].startswith("cannot tell")


def test_bulk_copies_may_hide_only_where_no_plain_load_was_seen():
    waits = {"stall_sync": 0.1, "stall_membar": 0.0, "stall_memory_dependency": 0.0}
    for loads, hidden in ((0.0, True), (1.0, False)):
        before = {**waits, "gld_efficiency": loads, "l2_utilization": 0.04}
        causes, _ = found(before, {**before, **SLOW, "stall_sync": 0.9, "l2_utilization": 0.01})
        named = set() if causes.untold is None else {term.id for term in causes.untold.causes}
        assert ("narrow_copies" in named) is hidden
