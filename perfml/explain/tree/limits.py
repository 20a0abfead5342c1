"""The limits of a launch as data: units, waits, and causes that stand in the place of others."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from perfml.metrics.expressions import Expression, parse


@dataclass(frozen=True)
class Limit:
    """What can hold the time of a launch: a unit, or a wait for something."""

    id: str  # its identity, and what people read
    label: str
    group: str  # units of one group serve the same accesses, one behind the other
    time: Expression  # the part of the launch's time that is this limit's
    # whether it is one for all multiprocessors, and works while any of them has a block
    device: bool
    ceiling: float  # the largest part of the time that a unit sustains
    used: tuple[str, ...]  # counters of which one is above 0 where a launch uses it at all
    units: tuple[str, ...]  # of a wait: the units that it can be a wait for
    # of a wait: the part of it that passes in a queue; None where that is not known
    queued: Expression | None
    proportional: bool  # whether a unit's time can only grow with its amount
    # what a unit has to do, the product that it is (cause: quantity), and the cause that is named
    # where factors make up for each other
    amount: str
    factors: Mapping[str, str]
    whole: str
    cause: str  # what is named where no factor grew
    opens: str  # the code that looks further; empty where there is none


@dataclass(frozen=True)
class Instead:
    """A cause that stands in the place of what comes along with it."""

    cause: str  # the cause, and those whose part it takes
    of: tuple[str, ...]
    # quantities that are larger (smaller) on the slow side by at least a factor
    grew: Mapping[str, float]
    fell: Mapping[str, float]
    fast: Mapping[str, float]  # quantities that are at least so large on the fast side


@cache
def load_limits() -> tuple[tuple[Limit, ...], tuple[Limit, ...], tuple[Instead, ...]]:
    """Return units, waits and replacements, as ``limits.toml`` has them."""
    path = resources.files("perfml.explain.tree").joinpath("limits.toml")
    rows = tomllib.loads(path.read_text(encoding="utf-8"))
    instead = tuple(
        Instead(
            row["cause"],
            tuple(row["of"]),
            row.get("grew", {}),
            row.get("fell", {}),
            row.get("fast", {}),
        )
        for row in rows["instead"]
    )
    return tuple(map(_limit, rows["unit"])), tuple(map(_limit, rows["wait"])), instead


@cache
def limit_of(name: str) -> Limit:
    """Return a limit by its id."""
    units, waits, _ = load_limits()
    return next(limit for limit in (*units, *waits) if limit.id == name)


@cache
def unit_ids() -> frozenset[str]:
    """Return the ids of all units."""
    return frozenset(unit.id for unit in load_limits()[0])


@cache
def limits_of(cause: str) -> frozenset[str]:
    """Return the groups of limits that a cause can hold the time of, by its id."""
    units, waits, _ = load_limits()
    return frozenset(
        limit.group
        for limit in (*units, *waits)
        if cause in (limit.cause, limit.whole, *limit.factors)
    )


def _limit(row: Mapping[str, Any]) -> Limit:
    return Limit(
        id=row["id"],
        label=row["label"],
        group=row.get("group", row["id"]),
        time=parse(row["time"]),
        device=row.get("device", False),
        ceiling=row.get("ceiling", 1.0),
        used=tuple(row.get("used", ())),
        units=tuple(row.get("units", ())),
        queued=parse(row["queued"]) if "queued" in row else None,
        proportional=row.get("proportional", False),
        amount=row.get("amount", ""),
        factors=row.get("factors", {}),
        whole=row.get("whole", row["cause"]),
        cause=row["cause"],
        opens=row.get("opens", ""),
    )
