"""The vocabulary of causes: every term has evidence, words and an action, and can be emitted."""

import math
import string
from dataclasses import replace

import pytest

from perfml.explain.tree.layer import decompose_pair, kernel_causes
from perfml.explain.counters.evidence import sections_of
from perfml.explain.counters.resources import RESOURCES
from perfml.explain.tree.causes import STALL_TERMS, TERMS, Kind
from perfml.explain.gaps import Gaps, Timeline
from perfml.explain.launches import Launch, Launches, changes_between
from perfml.metrics import HOPPER, STALLS, load_catalogue, ncu_name, with_ncu_name
from perfml.tables import MOVED_COLUMNS
from tests.support.causes import PLANTED, pair_with
from tests.support.launches import launch

COLUMNS = {"time_us", "ncu_time_us", "kernels", "gap_us", *MOVED_COLUMNS}
"""Evidence that is a column of a launch, not a metric."""


@pytest.mark.parametrize("term", TERMS.values(), ids=str)
def test_a_term_has_evidence_that_can_be_collected_words_and_an_action(term):
    unknown = [name for name in term.evidence if name not in load_catalogue()]
    assert set(unknown) <= COLUMNS
    assert bool(term.evidence) is (term.kind is not Kind.RESIDUAL)
    assert term.action.endswith(".")
    fields = {field for _, field, _, _ in string.Formatter().parse(term.words) if field}
    assert fields <= {"baseline", "target", "time", "kernels"}


def test_labels_are_unique_and_ids_are_names():
    assert len({term.label for term in TERMS.values()}) == len(TERMS)
    assert all(name == term.id and name.isidentifier() for name, term in TERMS.items())


def test_every_stall_that_is_named_is_shown_with_nsight_computes_name():
    assert {term.id for term in STALL_TERMS} == set(STALLS) - {"stall_other", "stall_selected"}
    label = TERMS["stall_memory_dependency"].label
    assert label == "stall_memory_dependency (ncu: long_scoreboard)"
    assert all(ncu_name(term.id) in term.label for term in STALL_TERMS)
    assert with_ncu_name("ipc") == "ipc (ncu: sm__inst_executed.avg.per_cycle_active)"


def busy(resource, **more):
    """Return a launch that this resource limits, with all that could be counted of it."""
    counters = {
        "kernel": "k",
        "time_us": 10.0,
        "ncu_time_us": 11.0,
        "theoretical_occupancy": 0.5,
        "achieved_occupancy": 0.4,
        "waves_per_sm": 1.5,
        "warp_execution_efficiency": 0.9,
        "ipc": 1.0,
        **{term.id: 0.05 for term in STALL_TERMS},
        **dict.fromkeys(resource.counters, 1e6),
        **({} if resource.work.or_evidence else dict.fromkeys(resource.work.evidence, 1e6)),
    }
    if resource.product is not None:
        counters |= dict.fromkeys(resource.product.request_counters, 1e5)
        counters |= dict.fromkeys(resource.product.part_counters, 1e6)
    return launch({**counters, resource.level: 0.9, **more})


def emitted():
    """Return the ids that the explanation can name, each from counters that prove it."""
    found = set()

    def take(before, after, single=True):
        _, contributions = decompose_pair(before, after, same_device=True, single=single)
        total = sum(one.log_ratio for one in contributions)
        assert total == pytest.approx(math.log(after.time_us / before.time_us), abs=1e-9)
        found.update(one.term.id for one in contributions)

    for resource in RESOURCES:
        one = busy(resource)
        two = busy(resource, time_us=20.0, warp_execution_efficiency=0.5)
        take(one, two)
        for lacking in ("ipc", "achieved_occupancy", "waves_per_sm", "theoretical_occupancy"):
            one, two = (_without(side, lacking) for side in (one, two))
            take(one, two)
        for lacking in resource.product.request_counters if resource.product else ():
            if lacking not in resource.counters:
                one, two = (_without(side, lacking) for side in (one, two))
        take(one, two)
        counted = [
            replace(side, counters={**side.counters, "kernels": count})
            for side, count in ((one, 2.0), (two, 4.0))
        ]
        take(*counted, single=False)
    for term in PLANTED:
        take(*pair_with(term))
    bare = launch({"kernel": "k", "time_us": 1.0})
    take(bare, bare)
    one, two = (replace(bare, kernel=name) for name in "ab")
    sides = [Launches(("a", "b"), (one, two), 1, 0), Launches(("a",), (one,), 1, 0)]
    for before, after in (sides, sides[::-1]):
        changes = changes_between(before.names, after.names)
        causes = kernel_causes(changes, before, after, same_device=True)
        found.update(total.term.id for total in causes.totals)
    sides = [Timeline(name, 2, 10.0, idle, idle) for name, idle in (("a", 0.0), ("b", 5.0))]
    found |= {Gaps(*sides).contribution.term.id, Gaps(*sides).copies.term.id}
    return found


def _without(side, name):
    return replace(side, counters={key: side.counters[key] for key in side.counters if key != name})


def test_every_term_can_be_emitted_and_nothing_else_is():
    assert emitted() == set(TERMS)


def test_the_work_of_one_launch_is_a_term_of_every_resource():
    assert {f"{resource.work.id}{PER_LAUNCH}" for resource in RESOURCES} <= set(TERMS)


def test_the_set_causes_holds_the_evidence_of_every_term():
    held = {*load_catalogue().computable(["causes"]), *COLUMNS, *HOPPER}
    assert {name for term in TERMS.values() for name in term.evidence} <= held


def test_the_set_causes_holds_every_counter_that_an_explanation_reads(monkeypatch):
    read = set()
    original = Launch.__getitem__

    def remember(self, name):
        read.add(name)
        return original(self, name)

    monkeypatch.setattr(Launch, "__getitem__", remember)
    emitted()
    assert len(read) > 50
    assert read <= {*load_catalogue().computable(["causes"]), *COLUMNS, *HOPPER}


@pytest.mark.parametrize(
    ("metric", "section"),
    [
        # as the section files of Nsight Compute have them
        ("resident_blocks_limit_slots", "Occupancy"),
        ("waves_per_sm", "LaunchStats"),
        ("theoretical_occupancy", "Occupancy"),
        ("ipc", "ComputeWorkloadAnalysis"),
        ("alu_utilization", "ComputeWorkloadAnalysis"),
        ("inst_executed", "InstructionStats"),
        ("warp_execution_efficiency", "WarpStateStats"),
        ("stall_membar", "WarpStateStats"),
        ("sm_active_cycles_max", "WorkloadDistribution"),
        ("gld_transactions", "MemoryWorkloadAnalysis_Tables"),
        ("local_load_transactions", "MemoryWorkloadAnalysis_Tables"),
    ],
)
def test_a_missing_counter_is_looked_for_in_the_section_that_collects_it(metric, section):
    assert set(sections_of([metric])) == {section}
