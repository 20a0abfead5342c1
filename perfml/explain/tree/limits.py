"""The limits of a launch as data: units, waits, and causes that stand in the place of others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from perfml.explain.launches import known
from perfml.explain.limits.state import LaunchState
from perfml.metrics.expressions import Expression, parse
from perfml.util.files import read_rows, record


@dataclass(frozen=True)
class Limit:
    """What can hold the time of a launch: a unit, or a wait for something."""

    id: str
    label: str  # what people read
    time: Expression  # the part of the launch's time that is this limit's
    cause: str  # what is named where no factor grew
    group: str  # units of one group serve the same accesses, one behind the other
    whole: str  # the cause that is named where factors make up for each other
    amount: str = ""  # what a unit has to do
    factors: Mapping[str, str] = field(default_factory=dict)  # its product, cause: quantity
    device: bool = False  # one for all multiprocessors, which works while any has a block
    ceiling: float = 1.0  # the largest part of the time that a unit sustains
    used: tuple[str, ...] = ()  # counters of which one is above 0 where a launch uses it at all
    units: tuple[str, ...] = ()  # of a wait: the units that it can be a wait for
    queued: Expression | None = None  # of a wait: its part in a queue; None if not known
    proportional: bool = False  # whether a unit's time can only grow with its amount
    opens: str = ""  # the code that looks further; empty where there is none


@dataclass(frozen=True)
class Instead:
    """A cause that stands in the place of what comes along with it."""

    cause: str
    of: tuple[str, ...]  # causes whose part it takes
    # by quantity: factors on the slow side over the fast one, and what the fast side has at least
    grew: Mapping[str, float] = field(default_factory=dict)
    fell: Mapping[str, float] = field(default_factory=dict)
    fast: Mapping[str, float] = field(default_factory=dict)


@cache
def load_limits() -> tuple[tuple[Limit, ...], tuple[Limit, ...], tuple[Instead, ...]]:
    """Return units, waits and replacements, as ``limits.toml`` has them."""
    rows = read_rows("perfml.explain.tree", "limits.toml")
    units, waits = (tuple(map(_limit, rows[kind])) for kind in ("unit", "wait"))
    return units, waits, tuple(record(Instead, row) for row in rows["instead"])


@cache
def limit_of(name: str) -> Limit:
    """Return a limit by its id."""
    units, waits, _ = load_limits()
    return next(limit for limit in (*units, *waits) if limit.id == name)


@cache
def unit_ids() -> frozenset[str]:
    """Return the ids of all units."""
    return frozenset(unit.id for unit in load_limits()[0])


def _limit(row: Mapping[str, Any]) -> Limit:
    formulas = {name: parse(row[name]) for name in ("time", "queued") if name in row}
    return record(Limit, {"group": row["id"], "whole": row["cause"], **row}, **formulas)


def fullest(state: LaunchState) -> float:
    """Return how near to its ceiling the fullest unit of a launch stands."""
    return max(nearness(state, unit.id) for unit in load_limits()[0] if unit.id != "idle")


def nearness(state: LaunchState, unit: str) -> float:
    """Return how near to its ceiling a unit stands over the time of a launch; 0 if not known."""
    limit = limit_of(unit)
    return known(state.value(limit.time) / limit.ceiling)
