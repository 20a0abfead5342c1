"""Which finding is told first: what makes warps wait, or the wait."""

from __future__ import annotations

import math

import pandas as pd
import pytest

from perfml.explain.advice.joined import COLUMNS, symptoms_behind
from perfml.explain.advice.rules import shipped_rules

BOOK = {rule.id: rule for rule in shipped_rules()}


def order(*findings, person="kernel author"):
    """Return rules as they are told, of (rule, gain, level) with the largest gain first."""
    rows = [
        dict.fromkeys(COLUMNS, "")
        | {"rules": (rule,), "gain": gain, "level": level, "person": person}
        | {"kernel": "k" if BOOK[rule].scope == "kernel" else "whole layer"}
        for rule, gain, level in sorted(findings, key=lambda each: -each[1])
    ]
    table = symptoms_behind(pd.DataFrame(rows, columns=list(COLUMNS)), BOOK)
    return [rules[0] for rules in table["rules"]]


@pytest.mark.parametrize(
    ("gain", "level", "first"),
    [
        (0.2, 0.7, "uncoalesced_load"),
        (0.2, 0.3, "memory_latency"),
        (0.4, 0.3, "uncoalesced_load"),
        (0.05, 0.7, "memory_latency"),
    ],
)
def test_scattered_loads_make_the_wait_where_a_unit_is_busy_or_they_gain_half_as_much(
    gain, level, first
):
    assert order(("memory_latency", 0.7, math.nan), ("uncoalesced_load", gain, level))[0] == first


@pytest.mark.parametrize(
    ("gain", "level", "first"),
    [
        (0.4, 0.6, "bank_conflicts"),
        (0.4, 0.4, "occupancy_shared"),
        (0.2, 0.6, "occupancy_shared"),
    ],
)
def test_few_warps_stand_behind_a_busy_unit_that_explains_the_wait(gain, level, first):
    assert order(("occupancy_shared", 0.5, math.nan), ("bank_conflicts", gain, level))[0] == first


def test_a_full_memory_stands_behind_the_sectors_that_nobody_asked_for():
    assert order(("dram_bound", 0.4, 0.98), ("uncoalesced_load", 0.3, 0.98)) == [
        "uncoalesced_load",
        "dram_bound",
    ]
    assert order(("dram_bound", 0.4, 0.98), ("uncoalesced_load", 0.05, 0.98))[0] == "dram_bound"


@pytest.mark.parametrize(
    ("gain", "first"), [(0.45, "occupancy_registers"), (0.2, "memory_latency")]
)
def test_a_wait_stands_behind_the_limit_of_warps_that_lets_it_be_seen(gain, first):
    assert order(("memory_latency", 0.7, math.nan), ("occupancy_registers", gain, math.nan))[0] == (
        first
    )


def test_idle_lanes_stand_before_the_unit_that_works_for_them():
    assert order(("divergence", 0.5, math.nan), ("special_functions", 0.2, 0.9))[0] == "divergence"
    assert order(("divergence", 0.3, math.nan), ("special_functions", 0.4, 0.9)) == [
        "special_functions",
        "divergence",
    ]
    # memory moves bytes for lanes that work alone
    assert order(("divergence", 0.5, math.nan), ("dram_bound", 0.2, 0.9))[0] == "dram_bound"


def test_launches_of_a_layer_stand_before_the_idle_machine_of_one_kernel():
    assert order(("small_grid", 0.4, math.nan), ("launch_bound", 0.3, math.nan)) == [
        "launch_bound",
        "small_grid",
    ]
