"""How certain a first cause is: measured, monotone, and with what stands against it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from perfml.explain.tree.causes import TERMS
from perfml.explain.tree.confidence import (
    FEATURES,
    Evidence,
    evidence_of,
    find_ambiguity,
    load_model,
    probability,
)
from perfml.explain.tree.layer import Match, answers_of, decompose_layer
from tests.support.causes import pair_with
from tests.support.launches import launch

SURE = Evidence(TERMS["fp64_pipe_time"], None, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0)


def ambiguity(*pairs):
    answered, others, ratio = answers_of([Match("k", *pair) for pair in pairs])
    return find_ambiguity(answered, others, ratio)


def test_the_model_is_the_measured_one_and_firm_answers_are_right_in_95_percent():
    model = load_model()
    assert tuple(model["features"]) == FEATURES
    assert all(weight >= 0 for weight in model["weights"])
    words = model["words, right of said, held out"]
    exams = [said for name, said in words.items() if "," not in name]
    assert len(exams) == 10
    # one thing changed: authors of exams, planted families; several: kernels with five toggles
    planted, several = (
        words[f"{part}, all that was recorded"] for part in ("planted", "factorial")
    )
    for some in (exams, [planted], [several]):
        for word, least in (("high", 0.95), ("medium", 0.6)):
            right, answers = (sum(said[word][at] for said in some) for at in (0, 1))
            assert right >= least * answers > 60, word


@pytest.mark.parametrize("name", FEATURES)
def test_less_evidence_never_makes_an_answer_more_certain(name):
    assert probability(SURE) >= load_model()["high"]
    assert probability(replace(SURE, **{name: 0.0})) <= probability(SURE)


def test_a_rest_is_never_certain():
    assert probability(replace(SURE, first=TERMS["throughput"])) == 0.0


def test_a_full_unit_with_all_the_difference_is_firm():
    row = {"kernel": "k", "double_precision_fu_utilization": 0.95, "sm_efficiency": 1.0}
    row |= {"flop_count_dp": 1e9, "inst_executed": 1e6, "issue_slot_utilization": 0.3}
    counted = {"inst_integer": 1.0, "inst_bit_convert": 1.0, "alu_utilization": 0.01}
    counted |= {"warp_execution_efficiency": 1.0, "tensor_cycles_utilization": 0.0}
    counted |= {"flop_count_sp": 0.0, "single_precision_fu_utilization": 0.0}
    counted |= {"special_fu_utilization": 0.0}
    fast = launch({**row, **counted, "time_us": 10.0, "double_precision_fu_utilization": 0.1})
    slow = launch({**row, **counted, "time_us": 100.0})
    untold, sure = ambiguity((fast, slow))
    assert untold is None
    assert sure >= load_model()["high"]


def test_missing_counters_of_another_cause_are_named_with_their_section():
    before, after = (
        launch({"kernel": "k", "time_us": time, "l2_utilization": 0.6}) for time in (10.0, 40.0)
    )
    untold, _ = ambiguity((before, after))
    assert untold is not None
    assert untold.reason == "counters"
    assert "global_load_requests" in untold.metrics
    assert "MemoryWorkloadAnalysis_Tables" in untold.sections
    assert "perfml collect --metrics" in untold.what_tells()


@pytest.mark.parametrize(("capability", "lacks"), [("7.5", True), ("9.0", False), (None, False)])
def test_what_a_device_has_no_instructions_for_is_no_rival_on_it(capability, lacks):
    known = {"kernel": "k", "capability": capability}
    untold, _ = ambiguity(tuple(launch({**known, "time_us": time}) for time in (10.0, 40.0)))
    rivals = {term.id for term in untold.causes}
    assert rivals.isdisjoint({"async_copy", "narrow_copies", "stall_gmma"}) is lacks
    assert len(rivals) > 5


def test_a_difference_as_small_as_that_of_two_runs_has_no_certain_cause():
    before, after = pair_with("constant_serialization")
    untold, sure = ambiguity((before, replace(after, time_us=1.01 * before.time_us)))
    assert untold is not None
    assert (untold.reason, sure) == ("small", 0.0)
    assert untold.sentence().startswith("cannot be certain of ")


def test_kernels_that_one_side_lacks_are_no_more_certain_where_the_other_has_some_instead():
    same, gone, new = (
        launch({"kernel": name, "time_us": time})
        for name, time in zip("abc", (9, 9, 30), strict=True)
    )
    sides = [Match("a", same, same), Match("c", None, new)]
    alone = decompose_layer(sides, same_device=True, single=True)
    sides.append(Match("b", gone, None))
    instead = decompose_layer(sides, same_device=True, single=True)
    assert alone.totals[0].term.id == instead.totals[0].term.id == "kernels_appeared"
    assert alone.probability >= instead.probability


def test_what_the_faster_side_has_too_makes_a_cause_less_certain():
    before, after = pair_with("shared_atomics")
    too = {**before.counters, "shared_atomic_transactions": 1.2e7}
    surer, less = (
        evidence_of(*answers_of([Match("k", one, after)]))
        for one in (before, replace(before, counters=too))
    )
    assert surer.first.id == less.first.id == "shared_atomics"
    assert surer.new > 0.9 > less.new
    assert probability(surer) > probability(less)


def test_another_change_beside_it_or_one_that_was_not_counted_makes_a_cause_less_certain():
    row = {"kernel": "k", "shared_atomic_transactions": 1e5, "shared_utilization": 0.1}
    slow = {"time_us": 100.0, "shared_atomic_transactions": 1e7, "shared_utilization": 0.95}
    counted = {"warp_execution_efficiency": 0.9, "inst_executed": 1e6}
    branches = {"warp_execution_efficiency": 0.4, "inst_executed": 2e6}

    def alone(both, more):
        sides = {**row, **both, "time_us": 10.0}, {**row, **both, **slow, **more}
        evidence = evidence_of(*answers_of([Match("k", *map(launch, sides))]))
        assert evidence.first.id == "shared_atomics"
        return evidence.alone

    assert alone(counted, {}) > 0.0
    assert alone(counted, branches) == 0.0
    assert alone({}, {}) < alone(counted, {})


def test_a_small_grid_is_no_proof_while_counters_of_other_causes_are_missing():
    row = {"kernel": "k", "stall_memory_dependency": 0.8, "theoretical_occupancy": 1.0}
    row |= {"global_load_requests": 1e6, "gld_transactions": 4e6, "dram_utilization": 0.1}
    enough, few = (
        launch({**row, "time_us": time, "waves_per_sm": waves, "achieved_occupancy": 0.8 * waves})
        for time, waves in ((10.0, 1.0), (40.0, 0.25))
    )
    evidence = evidence_of(*answers_of([Match("k", enough, few)]))
    assert evidence.first.id == "wave_quantization"
    assert evidence.complete == 0.0
