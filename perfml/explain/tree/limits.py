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
    """What can hold the time of a launch: a unit, or a wait for something.

    Attributes
    ----------
    id, label
        Its identity, and what people read.
    group
        Units of one group serve the same accesses, one behind the other.
    time
        The part of the launch's time that is this limit's.
    device
        Whether it is one for all multiprocessors, and works while any of them has a block.
    ceiling
        The largest part of the time that a unit sustains.
    used
        Counters of which one is above 0 where a launch uses it at all.
    units
        Of a wait: the units that it can be a wait for.
    queued
        Of a wait: the part of it that passes in a queue; None where that is not known.
    proportional
        Whether a unit's time can only grow with its amount.
    amount, factors, whole
        What a unit has to do, the product that it is (cause: quantity), and the cause that is named
        where factors make up for each other.
    cause
        What is named where no factor grew.
    opens
        The code that looks further; empty where there is none.
    """

    id: str
    label: str
    group: str
    time: Expression
    device: bool
    ceiling: float
    used: tuple[str, ...]
    units: tuple[str, ...]
    queued: Expression | None
    proportional: bool
    amount: str
    factors: Mapping[str, str]
    whole: str
    cause: str
    opens: str


@dataclass(frozen=True)
class Instead:
    """A cause that stands in the place of what comes along with it.

    Attributes
    ----------
    cause, of
        The cause, and those whose part it takes.
    grew, fell
        Quantities that are larger (smaller) on the slow side by at least a factor.
    fast
        Quantities that are at least so large on the fast side.
    """

    cause: str
    of: tuple[str, ...]
    grew: Mapping[str, float]
    fell: Mapping[str, float]
    fast: Mapping[str, float]


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
