"""Which experiments come first, and which mutants are made for findings."""

import itertools

import pytest

from perfml.experiments.proof import ANY, mutations, order, plan
from perfml.experiments.record import read_experiments
from perfml.experiments.verdicts import LIMITS_OF, Finding
from tests.support.paths import ROOT

RECORDED = ROOT / "studies" / "data" / "h100-experiments" / "probe.csv.xz"
CAUSES = (
    "instructions",
    "dram_busy_time",
    "theoretical_occupancy",
    "global_atomics",
    "launch_gaps",
)


@pytest.mark.parametrize(("first", "second"), list(itertools.permutations(CAUSES, 2)))
def test_a_control_comes_before_its_condition_and_nothing_is_asked_twice(first, second):
    made = order(first, second)
    assert len(set(made)) == len(made)
    controls = {
        each.name: each.control
        for launch in read_experiments(RECORDED).launches
        for each in launch.conditions
    }
    for name in made:
        assert controls[name] == name or controls[name] in made[: made.index(name)]


@pytest.mark.parametrize("first", [*LIMITS_OF, "launch_gaps"])
def test_the_seven_conditions_that_are_always_kept_tell_a_limit(first):
    for second in LIMITS_OF:
        kept = set(order(first, second)[:7])
        assert kept & {"sm_most", "sm_half"}
        assert kept & {"dram_traffic", "atomic_traffic"}


def test_what_two_causes_do_to_the_time_decides_what_comes_first():
    # both hold a launch back by waiting for memory: only fewer warps tell occupancy
    waits = order("theoretical_occupancy", "stall_memory_dependency")
    units = order("instructions", "dram_busy_time")
    assert units.index("warps_half") > units.index("dram_traffic")
    assert waits.index("warps_half") <= units.index("warps_half")
    # slices of L2 answer to atomics, and not to DRAM alone
    assert set(order("dram_busy_time", "l2_busy_time")) == set(units)


def test_findings_are_asked_in_their_layers_and_by_the_mutants_of_their_causes():
    assert list(plan([])) == [ANY]
    assert mutations([]) is None
    asked = [
        Finding("conv_1", "bank_conflicts", "", "low", second="stall_sync"),
        Finding("conv_2", "launch_gaps", "", "low"),
    ]
    assert list(plan(asked)) == ["conv_1", "conv_2"]
    unranged = Finding("copy", "dram_bytes", "", "low", kernel="copy")
    assert list(plan([unranged])) == [ANY]
    assert mutations(asked) == {"recompiled", "no_conflicts", "no_barriers"}
    assert mutations(asked[1:]) == set()
    assert "launch_gaps" not in LIMITS_OF
