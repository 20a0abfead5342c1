"""The vocabulary of causes and the tables of the tree: every row can be collected and read."""

import string

import pytest

from perfml.explain.limits.state import LaunchState, derived
from perfml.explain.tree.causes import TERMS, Kind
from perfml.explain.tree.engine import _OPENS
from perfml.explain.tree.layer_causes import sections_of
from perfml.explain.tree.limits import load_limits
from perfml.metrics import HOPPER, STALLS, load_catalogue, ncu_name, with_ncu_name
from perfml.tables import MOVED_COLUMNS
from tests.support.launches import launch

COLUMNS = {"time_us", "ncu_time_us", "kernels", "gap_us", "start_us", *MOVED_COLUMNS}
"""Evidence that is a column of a launch, not a metric."""

UNITS, WAITS, INSTEAD = load_limits()
LIMITS = {limit.id: limit for limit in (*UNITS, *WAITS)}


@pytest.mark.parametrize("term", TERMS.values(), ids=str)
def test_a_term_has_evidence_that_can_be_collected_and_words(term):
    unknown = [name for name in term.evidence if name not in load_catalogue()]
    assert set(unknown) <= COLUMNS
    assert bool(term.evidence) is (term.kind is not Kind.RESIDUAL)
    assert term.resolved_by
    fields = {field for _, field, _, _ in string.Formatter().parse(term.words) if field}
    assert fields <= {"baseline", "target", "time", "kernels"}
    assert set(term.limits) <= set(LIMITS)


def test_labels_are_unique_and_ids_are_names():
    assert len({term.label for term in TERMS.values()}) == len(TERMS)
    assert all(name == term.id and name.isidentifier() for name, term in TERMS.items())


def test_every_stall_that_is_named_is_shown_with_nsight_computes_name():
    stalls = [term for name, term in TERMS.items() if name.startswith("stall_")]
    assert {term.id for term in stalls} == set(STALLS) - {"stall_other", "stall_selected"}
    label = TERMS["stall_memory_dependency"].label
    assert label == "stall_memory_dependency (ncu: long_scoreboard)"
    assert all(ncu_name(term.id) in term.label for term in stalls)
    assert with_ncu_name("ipc") == "ipc (ncu: sm__inst_executed.avg.per_cycle_active)"


def test_limits_name_causes_units_and_code_that_exist():
    assert len(LIMITS) == len(UNITS) + len(WAITS)
    for limit in LIMITS.values():
        assert {limit.cause, limit.whole} <= set(TERMS)
        assert set(limit.factors) - {"requests"} <= set(TERMS)
        assert set(limit.units) <= {unit.id for unit in UNITS}
        assert limit.opens in ("", *_OPENS)
        assert 0 < limit.ceiling <= 1
    for row in INSTEAD:
        assert {row.cause, *row.of} <= set(TERMS)
        assert row.grew or row.fell


def test_every_quantity_of_the_tree_is_a_counter_or_derived_from_some():
    catalogue = load_catalogue()
    state = LaunchState(launch({"time_us": 1.0}))

    def known(name):
        if name.startswith(("wait.", "share.")) or name in catalogue:
            return True
        if name in derived():
            return all(map(known, derived()[name].names))
        return name in state.functions

    asked = [name for limit in LIMITS.values() for name in (*limit.time.names, *limit.used)]
    asked += [name for limit in LIMITS.values() for name in limit.factors.values()]
    asked += [limit.amount for limit in LIMITS.values() if limit.amount]
    asked += [name for term in TERMS.values() if term.level for name in term.level.names]
    asked += [name for term in TERMS.values() for name in term.none_where]
    asked += [name for row in INSTEAD for part in (row.grew, row.fell, row.fast) for name in part]
    assert [name for name in asked if not known(name)] == []


def test_the_set_causes_holds_the_evidence_of_every_term():
    held = {*load_catalogue().computable(["causes"]), *COLUMNS, *HOPPER}
    assert {name for term in TERMS.values() for name in term.evidence} <= held


@pytest.mark.parametrize(
    ("metric", "section"),
    [
        # as the section files of Nsight Compute have them
        ("resident_blocks_limit_slots", "Occupancy"),
        ("waves_per_sm", "LaunchStats"),
        ("ipc", "ComputeWorkloadAnalysis"),
        ("inst_executed", "InstructionStats"),
        ("warp_execution_efficiency", "WarpStateStats"),
        ("sm_active_cycles_max", "WorkloadDistribution"),
        ("gld_transactions", "MemoryWorkloadAnalysis_Tables"),
    ],
)
def test_a_missing_counter_is_looked_for_in_the_section_that_collects_it(metric, section):
    assert set(sections_of([metric])) == {section}
