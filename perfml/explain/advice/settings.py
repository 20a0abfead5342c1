"""What another setting of PyTorch gives a whole network: precision, layout, library, batch.

Measured, where the same network was recorded under that setting too; otherwise a bound: no layer is
faster than its operations at the rate of the chip's tensor cores, or its bytes at that of DRAM.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import pandas as pd

from perfml import chips
from perfml.chips.lookup import UNKNOWN, Chip
from perfml.explain.advice.finding import Finding, Gain, KnownBy, Where
from perfml.explain.confidence import probability
from perfml.explain.remedies import Person, Remedy, Situation, remedy_for
from perfml.util.findings import Time

Kind = Literal["precision", "batch"]
WORTH = 0.05  # what gives less of the time is not told

_NETWORK = ("workload", "device")
_AMOUNTS = ["weight_bytes", "input_bytes", "output_bytes"]


PRECISIONS = ("tf32", "fp16", "bf16")
"""Narrower types than FP32, the most exact first, as the column ``precision`` has them."""


def setting(cause: str, name: str, chip: Chip = UNKNOWN) -> Remedy:
    """Return how to ask PyTorch for a setting; nothing to do where the device has no such type."""
    capability = math.nan if chip.capability is None else float(chip.capability)
    return remedy_for(cause, Situation(Person.PYTORCH, capability=capability, setting=name))


def _gain(
    rules: tuple[Kind, str], time_us: float, now_us: float, how: Remedy, backend: str = ""
) -> Finding:
    """Return what a setting gives: measured under a backend, or else a bound.

    `rules` are its kind and the precision, or the batch size. `time_us` is what the network takes
    then (of a bound, at least), and `now_us` now; of a batch for each item.
    """
    known_by: KnownBy = "measured" if backend else "bound"
    saved = now_us - time_us
    found = choice(rules, now_us, saved, saved, probability(known_by))
    gain = None if found.gain is None else replace(found.gain, known_by=known_by)
    where = Where(backend=backend or None)
    return replace(found, where=where, gain=gain, command=how.line, cost=how.cost)


def setting_gains(
    layers: pd.DataFrame, recorded: pd.DataFrame, runs: Sequence[Mapping[str, Any]] = ()
) -> tuple[Finding, ...]:
    """Return what other settings give a network: types, the most exact first, then batches.

    The rules of each are its kind (``precision``, ``batch``), and what to set.
    `layers` are the rows of one workload, device, precision and batch, `recorded` all that there
    are, and `runs` their manifests, for the layout of a run (``settings``).
    """
    names = (*_NETWORK, "precision", "batch")
    known = {*names, "iteration"} <= set(layers.columns)
    if not known or len(layers[list(names)].drop_duplicates()) != 1:
        return ()
    for name in _NETWORK:
        recorded = recorded[recorded[name] == layers[name].iloc[0]]
    times = _times(recorded, set(layers["layer"]))
    key = (layers["precision"].iloc[0], layers["batch"].iloc[0])
    same = times[(times["precision"] == key[0]) & (times["batch"] == key[1])]
    mine = same[same["backend"].isin(layers["backend"])]
    if mine.empty:
        return ()
    best = float(mine["time_us"].min())
    found = [
        _measured(row, "precision", best, runs)
        for row in _fastest(times[times["batch"] == key[1]], "precision")
        if row["precision"] in PRECISIONS and row["precision"] != key[0]
    ]
    if not found and key[0] == "fp32":
        found = _bounds(layers, best)
    each = times.assign(time_us=times["time_us"] / times["batch"])
    each = each[(each["precision"] == key[0]) & (each["batch"] > key[1])]
    found += [
        _measured(row, "batch", best / float(key[1]), runs) for row in _fastest(each, "batch")
    ]
    order = {name: place for place, name in enumerate(PRECISIONS)}
    found.sort(key=lambda gain: order.get(gain.rules[1], len(order)))
    return tuple(gain for gain in found if gain.likely_us >= WORTH * gain.holds.us)


def _times(rows: pd.DataFrame, wanted: set[Any]) -> pd.DataFrame:
    """Return the time of all of some layers, a row a setting that has all of them."""
    rows = rows[rows["layer"].isin(wanted)]
    keys = ["run_id", "backend", "precision", "batch"]
    sums = rows.groupby([*keys, "iteration"], sort=False)["time_us"].agg(["sum", "count"])
    whole = sums.loc[sums["count"] == len(wanted), "sum"].rename("time_us")
    medians: pd.DataFrame = whole.groupby(level=keys, sort=False).median().reset_index()
    return medians


def _fastest(times: pd.DataFrame, by: str) -> list[dict[Any, Any]]:
    return times.sort_values("time_us", kind="stable").drop_duplicates(by).to_dict("records")


def _measured(
    row: Mapping[Any, Any], kind: Kind, now_us: float, runs: Sequence[Mapping[str, Any]]
) -> Finding:
    manifest = next((each for each in runs if each.get("run_id") == row["run_id"]), {})
    layout = (manifest.get("settings") or {}).get("memory_format")
    narrow = setting("precision", str(row["precision"])) if kind == "precision" else None
    asked = [*([narrow] if narrow else ()), setting("backend", str(layout))]
    asked.append(setting("backend", str(row["backend"])))
    cost = narrow.cost if narrow else f"{row['batch']} items wait for each other"
    how = Remedy(line="\n".join(each.line for each in asked if each.line), cost=cost)
    return _gain((kind, str(row[kind])), float(row["time_us"]), now_us, how, str(row["backend"]))


def _bounds(layers: pd.DataFrame, now_us: float) -> list[Finding]:
    """Return what narrower types give at most, where the work of each layer is known."""
    chip = chips.of_table(layers)
    if not {"flops", *_AMOUNTS} <= set(layers.columns):
        return []
    work = layers.groupby("layer")[["time_us", "flops", *_AMOUNTS]].median()
    moved = work[_AMOUNTS].sum(axis=1) / chip.peak_dram_bytes_per_us()
    found = []
    for name in PRECISIONS:
        remedy = setting("precision", name, chip)
        if not remedy.helps:
            continue
        least = work["flops"] / chip.peak_flops_per_us(name)
        time = float(pd.concat([least, moved], axis=1).max(axis=1, skipna=False).sum(skipna=False))
        if not math.isnan(time):
            found.append(_gain(("precision", name), time, now_us, remedy))
    return found


def choice(
    rules: tuple[str, ...], now_us: float, likely_us: float, high_us: float, chance: float
) -> Finding:
    """Return a choice of settings as a finding, for its place in the order of all.

    `now_us` is what the network takes, `likely_us` and `high_us` what another choice saves of it;
    nothing is known where neither is above 0. Texts are the surface's.
    """
    likely, high = (Time(min(us, now_us)) for us in (likely_us, high_us))
    return Finding(
        rules=rules,
        where=Where(),
        holds=Time(now_us),
        gain=Gain(likely, high, "measured") if likely_us > 0 else None,
        probability=chance,
        hazard="",
        evidence="",
        mitigation="",
    )
