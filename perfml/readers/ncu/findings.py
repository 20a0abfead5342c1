"""Advice of Nsight Compute's own rules, as it comes with a profile."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd

KEPT = 100
"""Results that travel in a table's provenance; `rules` of the readers gives all of them."""

LONGEST = 600
"""Characters of a kernel's name that travel in a table's provenance."""

_LONGEST_MESSAGE = 1000

SPEED_OF_LIGHT = {
    "compute": "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "memory": "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed",
}
"""The two bars of ncu's section "GPU Speed Of Light Throughput", which every set of it holds."""

_NUMBER = re.compile(r"\d[\d.,]*")
_ASKING = frozenset({"optimization", "warning", "error"})


@dataclass(frozen=True)
class Rule:
    """One result of one rule for one launch.

    Attributes
    ----------
    launch
        Place of the launch in the file, from 0.
    kernel
        Its kernel.
    rule, section
        ncu's identifiers.
    kind
        ``optimization``, ``warning``, ``ok``, ``error`` or ``none``.
    message
        What the rule says.
    speedup
        Estimated speedup in per cent; None without an estimate.
    scope
        ``global`` if the estimate is of the whole kernel, ``local`` if of a part of it.
    """

    launch: int
    kernel: str
    rule: str
    section: str
    kind: str
    message: str
    speedup: float | None
    scope: str | None


COLUMNS = tuple(Rule.__dataclass_fields__)


def rules_frame(rules: Iterable[Rule]) -> pd.DataFrame:
    """Return rule results as a table, one row a result, in launch order."""
    return pd.DataFrame([asdict(rule) for rule in rules], columns=list(COLUMNS))


def most_promising(rules: Iterable[Rule], launches: pd.DataFrame) -> list[dict[str, Any]]:
    """Return what the rules ask for, largest estimated speedup first, `KEPT` results at most.

    Of the same advice for several launches of a kernel in one shape, the one that promises most is
    kept, with what all of them save.

    Parameters
    ----------
    rules
        Results, launch by launch.
    launches
        One row a launch of the file: ``kernel, grid, block, time_us``.

    Returns
    -------
    list of dict
        The fields of `Rule`; the launch's ``grid`` and ``block``; and ``saves``, the fraction of
        the time of all launches of that kernel and shape, None without an estimate. A speedup is a
        decrease of the run time in per cent (NvRules API, ``frontend.speedup``).
    """
    unit = launches.groupby(["kernel", "grid", "block"], dropna=False, sort=False).ngroup()
    units, times = unit.to_numpy(), launches["time_us"].fillna(0.0).to_numpy(dtype=float)
    whole = np.bincount(units, times)
    best: dict[tuple[int, str, str, str], Rule] = {}
    saved: dict[tuple[int, str, str, str], float] = defaultdict(float)
    for rule in rules:
        if rule.speedup is None and rule.kind not in _ASKING:
            continue
        key = (int(units[rule.launch]), rule.section, rule.rule, _NUMBER.sub("#", rule.message))
        saved[key] += min(rule.speedup or 0.0, 100.0) / 100.0 * times[rule.launch]
        if key not in best or (rule.speedup or 0.0) > (best[key].speedup or 0.0):
            best[key] = rule
    ordered = sorted(best.items(), key=lambda entry: (-(entry[1].speedup or 0.0), entry[1].launch))
    return [
        {
            **asdict(rule),
            "kernel": rule.kernel[:LONGEST],
            "message": rule.message[:_LONGEST_MESSAGE],
            **_shape(launches, rule.launch),
            "saves": None if rule.speedup is None else saved[key] / (whole[key[0]] or np.inf),
        }
        for key, rule in ordered[:KEPT]
    ]


def speed_of_light(launches: pd.DataFrame, counters: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return how busy compute and memory were in each kernel and shape, the longest first.

    Parameters
    ----------
    launches
        One row a launch of the file: ``kernel, grid, block, time_us``.
    counters
        ncu's metrics, one entry a launch.

    Returns
    -------
    list of dict
        ``kernel, grid, block``, and ``compute`` and ``memory``: fractions of the peak, means over
        the launches weighted by time; `KEPT` at most, and none where the section was not recorded.
    """
    held = {name: metric for name, metric in SPEED_OF_LIGHT.items() if metric in counters}
    if not held:
        return []
    keys = ["kernel", "grid", "block"]
    levels = {name: np.asarray(counters[metric], dtype=float) for name, metric in held.items()}
    table = launches[[*keys, "time_us"]].assign(place=np.arange(len(launches)), **levels)
    found = []
    for _, same in table.groupby(keys, dropna=False, sort=False):
        place = int(same["place"].iloc[0])
        row: dict[str, Any] = {
            "kernel": str(same["kernel"].iloc[0])[:LONGEST],
            **_shape(launches, place),
        }
        for name in held:
            known = same[same[name].notna() & (same["time_us"] > 0)]
            if len(known):
                row[name] = float(np.average(known[name], weights=known["time_us"])) / 100.0
        found.append((float(same["time_us"].sum()), row))
    found.sort(key=lambda entry: -entry[0])
    return [row for _, row in found[:KEPT] if len(row) > len(keys)]


def _shape(launches: pd.DataFrame, place: int) -> dict[str, str]:
    row = launches.iloc[place]
    return {name: "" if pd.isna(row[name]) else str(row[name]) for name in ("grid", "block")}
