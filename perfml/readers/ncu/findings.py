"""Advice of Nsight Compute's own rules, as it comes with a profile."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
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
    "compute": ("sm__throughput.avg.pct_of_peak_sustained_elapsed",),
    "memory": tuple(
        f"{name}_throughput.avg.pct_of_peak_sustained_elapsed"
        for name in (
            *("gpu__compute_memory", "gpu__compute_memory_access", "gpu__compute_memory_request"),
            "gpu__dram",
        )
    ),
}
"""The two bars of ncu's section "GPU Speed Of Light Throughput", which every set of it holds.

Where that of memory was not recorded, it is no lower than the largest of its parts: "Mem Busy",
"Max Bandwidth" and DRAM's.
"""

PRINTED_KINDS = {"OPT": "optimization", "WRN": "warning", "INF": "ok", "OK": "ok", "ERR": "error"}
"""What ncu prints before a rule's message, and the kind of the rule."""

_NUMBER = re.compile(r"\d[\d.,]*")
_ASKING = frozenset({"optimization", "warning", "error"})


@dataclass(frozen=True)
class Rule:
    """One result of one rule for one launch."""

    launch: int  # place of the launch in the file, from 0
    kernel: str  # its kernel
    rule: str  # ncu's identifiers
    section: str
    kind: str  # ``optimization``, ``warning``, ``ok``, ``error`` or ``none``
    message: str  # what the rule says
    speedup: float | None  # estimated speedup in per cent; None without an estimate
    # ``global`` if the estimate is of the whole kernel, ``local`` if of a part of it
    scope: str | None


COLUMNS = tuple(Rule.__dataclass_fields__)


def rules_frame(rules: Iterable[Rule]) -> pd.DataFrame:
    """Return rule results as a table, one row a result, in launch order."""
    return pd.DataFrame([asdict(rule) for rule in rules], columns=list(COLUMNS))


def most_promising(rules: Sequence[Rule], launches: pd.DataFrame) -> list[dict[str, Any]]:
    """Return what the rules ask for, largest estimated speedup first, `KEPT` results at most.

    Of the same advice for several launches of a kernel in one shape, the one that promises most is
    kept, with what all of them save: ``saves``, a fraction of the time of all launches of that
    kernel and shape, None without an estimate. A speedup is a decrease of the run time in per cent
    (NvRules API, ``frontend.speedup``). `launches` has ``kernel, grid, block, time_us``.
    """
    if not rules:
        return []
    units, times = _units(launches), launches["time_us"].fillna(0.0).to_numpy(dtype=float)
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

    Fractions of the peak, means over the launches weighted by time; `KEPT` kernels at most, and
    none where the section was not recorded. `launches` has ``kernel, grid, block, time_us``.
    """
    held = {
        name: np.fmax.reduce([np.asarray(counters[metric], dtype=float) for metric in names])
        for name, metrics in SPEED_OF_LIGHT.items()
        if (names := [metric for metric in metrics if metric in counters])
    }
    if not held:
        return []
    units = _units(launches)
    times = launches["time_us"].fillna(0.0).to_numpy(dtype=float)
    first = np.unique(units, return_index=True)[1]
    levels = {name: unit_means(values / 100.0, times, units) for name, values in held.items()}
    found = []
    for unit in np.argsort(-np.bincount(units, times), kind="stable")[:KEPT]:
        known = {name: float(level[unit]) for name, level in levels.items()}
        known = {name: level for name, level in known.items() if not math.isnan(level)}
        name = str(launches["kernel"].iloc[first[unit]])[:LONGEST]
        found += [{"kernel": name, **_shape(launches, first[unit]), **known}] if known else []
    return found


def unit_means(values: Any, times: Any, units: Any) -> Any:
    """Return the mean of each unit, weighted by time; NaN where it has no value with a time."""
    known = ~np.isnan(values) & (times > 0)
    most = int(units.max(initial=-1)) + 1
    weight = np.bincount(units[known], times[known], most)
    total = np.bincount(units[known], values[known] * times[known], most)
    return total / np.where(weight > 0, weight, np.nan)


def _units(launches: pd.DataFrame) -> Any:
    """Return the number of each launch's kernel in its shape, by first appearance."""
    keys = ["kernel", "grid", "block"]
    return launches.groupby(keys, dropna=False, sort=False).ngroup().to_numpy()


def _shape(launches: pd.DataFrame, place: Any) -> dict[str, str]:
    row = launches.iloc[place]
    return {name: "" if pd.isna(row[name]) else str(row[name]) for name in ("grid", "block")}
