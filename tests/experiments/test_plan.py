"""Which mutants are tried first, and what decides on a launch."""

import pytest

from perfml.experiments.mutation.programs import MUTATIONS
from perfml.experiments.proof import turns
from perfml.experiments.record import read_experiments
from perfml.experiments.responses import responses
from perfml.experiments.verdicts import Finding
from tests.support.paths import ROOT

RECORDED = ROOT / "studies" / "data" / "h100-experiments" / "probe.csv.xz"
POSSIBLE = ("dense_loads", "no_conflicts", "no_barriers", "single_precision")


@pytest.fixture(scope="module")
def launches():
    return {each.launch.ranges[-1]: each for each in responses(read_experiments(RECORDED))}


def test_causes_of_the_answer_come_first_and_decide_by_what_they_claim(launches):
    asked = [
        Finding("stream", "stall_sync", "", "low", claimed=0.4),
        Finding("elsewhere", "fp64_pipe_time", "", "low"),
        Finding("stream", "bank_conflicts", "", "low", claimed=0.01),
    ]
    made = turns(POSSIBLE, [launches["stream"]], asked)
    assert made["recompiled"][0] == 0
    assert made["no_barriers"] == (0, pytest.approx(0.8))
    # less than what a clean control may differ by is no saving
    assert made["no_conflicts"] == (1, pytest.approx(0.97))
    # a launch that waits for DRAM: loads come before arithmetic, which is implausible
    assert made["dense_loads"][0] == 2
    assert made["single_precision"][0] == 3


def test_without_an_answer_limits_say_what_comes_first(launches):
    units = turns(POSSIBLE, [launches["fma"]])
    assert units["single_precision"][0] == 0
    # a bound that no source reaches decides nothing
    assert turns(("cheap_functions",), [launches["sfu"]])["cheap_functions"] == (0, 0.0)
    memory = turns(POSSIBLE, [launches["stream"]])
    assert memory["dense_loads"] == (0, pytest.approx(0.5))


def test_everything_is_tried_where_all_is_asked_for_and_nothing_decides(launches):
    made = turns(tuple(MUTATIONS), [launches["stream"]], everything=True)
    assert set(made) == {*MUTATIONS, "recompiled"}
    assert {decides for _, decides in made.values()} == {0.0}
