"""Measured repairs, on recordings of an H100: pairs of kernels, one of which has the repair."""

import dataclasses
import math

import pytest

from perfml.experiments.record import read_experiments
from perfml.experiments.repairs import (
    UNREACHED,
    habit_of,
    repair_of,
    repairs,
    without_number,
)
from perfml.experiments.responses import Response, responses
from perfml.experiments.verdicts import verdict
from tests.support.paths import ROOT

RECORDED = ROOT / "studies" / "data"


def launches(name, gpu="h100"):
    found = responses(read_experiments(RECORDED / f"{gpu}-experiments" / f"{name}.csv.xz"))
    return {each.launch.ranges[-1]: each for each in found}


@pytest.fixture(scope="module")
def sides():
    return launches("pairs-v1"), launches("pairs-v2")


@pytest.mark.parametrize(
    ("pair", "slow", "cause"),
    [
        ("hist", 0, "shared_atomics"),
        ("energy", 0, "uncoalesced_loads"),
        ("price", 1, "fp64_pipe_time"),
        ("accum", 1, "local_memory"),
        ("gamma", 1, "constant_serialization"),
    ],
)
def test_a_measured_gain_is_near_that_of_the_real_repair(sides, pair, slow, cause):
    launch = sides[slow][pair]
    real = sides[1 - slow][pair].time_us / launch.time_us
    repair = repair_of(launch, cause)
    assert repair.factor == pytest.approx(real, rel=0.1)
    assert repair.gain_us == pytest.approx(launch.time_us * (1 - repair.factor))
    assert repair.gain_low_us <= repair.gain_us <= repair.gain_high_us
    assert verdict(launch, cause, 1 - real).verdict == "proven"
    assert habit_of(sides[1 - slow][pair], cause) is None or (
        verdict(sides[1 - slow][pair], cause).verdict != "proven"
    )


def test_without_barriers_the_compiler_moves_loads_ahead_and_the_cause_is_proven():
    slow, fast = (launches(f"pair-fir-{side}", "h200")["fir"] for side in ("v2", "v1"))
    real = fast.time_us / slow.time_us
    assert repair_of(slow, "stall_sync").factor == pytest.approx(real, rel=0.1)
    assert verdict(slow, "stall_sync", 1 - real).verdict == "proven"


def test_a_habit_that_costs_nothing_is_refuted_however_the_launch_is_limited(sides):
    # a histogram of global and shared atomics: the shared ones collide, the global ones are few
    said = verdict(sides[0]["hist"], "global_atomics")
    assert said.verdict == "refuted"
    assert said.repair.low > 0.9


def test_what_no_change_of_the_source_reaches_is_the_last_repair_and_proves_a_cause_alone(sides):
    launch = sides[0]["energy"]
    cheap = {"cheap_functions": Response("cheap_functions", 0.01, 0.01, 0.01, 1)}
    launch = dataclasses.replace(launch, by_condition={**launch.by_condition, **cheap})
    assert repairs(launch)[0].mutation == "dense_loads"
    last = repairs(launch)[-1]
    assert (last.mutation, last.proves) == ("cheap_functions", False)
    assert habit_of(launch, "special_function_pipe_time") == last
    assert {"cheap_functions"} == UNREACHED


def test_a_control_that_is_slower_than_the_kernel_gives_no_number(sides):
    launch = sides[0]["spmv"]
    assert repair_of(launch, "uncoalesced_loads") is None
    assert verdict(launch, "uncoalesced_loads").verdict not in ("proven", "refuted")
    reasons = dict(without_number(launch))
    assert "dense_loads" in reasons
    assert "dense_loads" not in {each.mutation for each in repairs(launch)}


def test_a_mutant_that_takes_another_path_gives_no_number(sides):
    launch = sides[0]["energy"]
    assert repair_of(launch, "uncoalesced_loads") is not None
    conditions = [
        dataclasses.replace(each, same_path=False) if each.name == "dense_loads" else each
        for each in launch.launch.conditions
    ]
    other = dataclasses.replace(launch.launch, conditions=tuple(conditions))
    launch = dataclasses.replace(launch, launch=other)
    assert repair_of(launch, "uncoalesced_loads") is None
    assert "dense_loads" in dict(without_number(launch))


def test_a_cause_that_saves_a_little_is_neither_proven_nor_refuted(sides):
    launch = sides[0]["hist"]
    little = {"no_conflicts": Response("no_conflicts", 0.88, 0.87, 0.89, 1)}
    nothing = {"no_conflicts": Response("no_conflicts", 1.0, 0.99, 1.01, 1)}
    said = [
        verdict(dataclasses.replace(launch, by_condition={**launch.by_condition, **each}), cause)
        for each in (little, nothing)
        for cause in ("shared_atomics",)
    ]
    assert [each.verdict for each in said] == ["not decided", "refuted"]


def test_what_a_cause_claims_decides_how_much_its_habit_has_to_save(sides):
    launch = sides[0]["hist"]
    small = {"no_conflicts": Response("no_conflicts", 0.7, 0.69, 0.71, 1)}
    launch = dataclasses.replace(launch, by_condition={**launch.by_condition, **small})
    claims = {claimed: verdict(launch, "shared_atomics", claimed) for claimed in (1.0, 0.5)}
    # 29 to 31 % are saved: half of a half, and of all neither half nor less than a quarter
    assert {name: each.verdict for name, each in claims.items()} == {
        1.0: "not decided",
        0.5: "proven",
    }
    assert math.isclose(claims[0.5].repair.gain_us, 0.3 * launch.time_us)
