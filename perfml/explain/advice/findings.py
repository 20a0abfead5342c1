"""What one rule finds in a table: of launches, of whole layers; and what it could not check."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any, TypedDict

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfml.explain.advice.after_fix import state_after
from perfml.explain.advice.inputs import InputValues, why_missing
from perfml.explain.advice.layer_inputs import LAYER_INPUTS
from perfml.explain.advice.persons import Person, person_of, person_of_all
from perfml.explain.advice.pressures import busiest
from perfml.explain.advice.representative import condition_keys
from perfml.explain.advice.rules import Rule, Rules, filled
from perfml.explain.advice.slow_launch import OTHERS_SUSTAIN, SUSTAINED
from perfml.explain.roofs.peaks import Peaks
from perfml.explain.tree.library_kernels import is_product
from perfml.kernel_names import kernel_traits
from perfml.metrics.expressions import Array
from perfml.tables import metric_columns
from perfml.util.typing import Flags
from perfml.util.words import micros

Places = npt.NDArray[np.intp]

_CONVOLVES = ("convolution", "layout")
"""What kernels do where a layout of images matters (`perfml.kernel_names`)."""
_TENSOR_CORES = "tensor cores"
"""The cure of rules of arithmetic that tensor cores could do."""


def applies_to(rule: Rule, frame: pd.DataFrame, merged: bool = False) -> Flags:
    """Tell which rows a rule is about, by their precision and their number of kernels."""
    applies: Flags = np.ones(len(frame), dtype=bool)
    if rule.precisions and "precision" in frame.columns:
        precision = frame["precision"].astype("string").fillna("fp32")
        applies &= precision.isin(rule.precisions).to_numpy(dtype=bool)
    if rule.single and merged:
        # a mean over several kernels has no grid, no waves and no registers of its own
        alone = frame["kernels"].to_numpy(dtype=float) == 1 if "kernels" in frame else False
        applies &= alone
    return applies


def of_launches(rule: Rule, inputs: InputValues, merged: bool) -> list[dict[str, Any]]:
    """Return the findings of a rule of scope ``kernel``, one for each kernel of a layer."""
    rows = inputs.frame
    values, _ = inputs.of(tuple(dict.fromkeys((*rule.needed, *rule.said))))

    def lookup(name: str) -> Array:
        return values[name]

    met, _ = rule.holds(lookup, len(rows))
    met = met & applies_to(rule, rows, merged)
    if not met.any():
        return []
    low = np.clip(np.broadcast_to(rule.gain_low(lookup), len(rows)), 0, 1)
    high = np.clip(np.broadcast_to(rule.gain_high(lookup), len(rows)), 0, 1)
    high = np.minimum(high, 1 - busiest(rows, rule.relieves))
    low = np.minimum(low, high)
    flagged = np.flatnonzero(met & ~np.isnan(high))
    share = rows["share"].to_numpy(dtype=float)
    for place in flagged:
        # no fix of a kernel shortens what passes before its first instruction
        high[place] = min(high[place], 1 - inputs.states[place].start)
    low = np.minimum(low, high)
    likely = high.copy()
    if rule.term is not None:
        products = rule.cure == _TENSOR_CORES
        for place in flagged:
            # who lets a library use tensor cores has its whole kernel done by them
            turned = products and is_product(str(inputs.told[place].get("kernel", "")))
            after = state_after(inputs.states[place], "tensor_unused" if turned else rule.term)
            # what the rule's cause takes, at most the limit
            likely[place] = np.fmin(high[place], 1 - after)
    busy = _level(rule, inputs)
    found = []
    convolving = _convolving(rows)
    for same in _by_kernel(rows, flagged):
        worst = int(same[(high[same] * share[same]).argmax()])
        said = filled(rule.evidence, {name: float(values[name][worst]) for name in rule.said})
        if not merged:
            said = f"{_which(rows, same)}: {said}"
        found.append(
            _finding(
                rule,
                inputs.told[worst],
                said,
                (
                    float(low[same] @ share[same]),
                    float(likely[same] @ share[same]),
                    float(high[same] @ share[same]),
                ),
                person_of(str(inputs.told[worst]["kernel"])) if "kernel" in rows else Person.AUTHOR,
                float(busy[worst]),
                convolves=rows["group"].iloc[worst] in convolving,
            )
        )
    return found


def _level(rule: Rule, inputs: InputValues) -> Array:
    """Return how busy what a rule blames is, of what it sustains; NaN where that is no unit."""
    values, _ = inputs.of(rule.limit)
    levels = [values[name] / SUSTAINED.get(name, OTHERS_SUSTAIN) for name in rule.limit]
    return np.asarray(np.fmax.reduce([np.full(len(inputs.frame), np.nan), *levels]))


def _by_kernel(rows: pd.DataFrame, places: Places) -> list[Places]:
    """Return the places of a kernel of a layer together, in order of appearance."""
    groups, labels = rows["group"].to_numpy(), rows["label"].to_numpy(dtype=object)
    together: dict[tuple[Any, Any], list[int]] = defaultdict(list)
    for place in places.tolist():
        together[groups[place], labels[place]].append(place)
    return [np.array(same) for same in together.values()]


def _which(rows: pd.DataFrame, same: Places) -> str:
    many = f"{len(same)} launches, " if len(same) > 1 else ""
    layer = float(rows["layer_us"].iloc[same[0]])
    time = layer * rows["share"].to_numpy(dtype=float)[same].sum()
    return f"{many}{micros(time)} of the layer's {micros(layer)}"


def of_layers(rule: Rule, rows: pd.DataFrame, sums: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the findings of a rule of scope ``layer``."""
    firsts = rows.drop_duplicates("group").set_index("group").loc[sums.index]

    def lookup(name: str) -> Array:
        return np.asarray(sums[name] if name in sums else np.full(len(sums), np.nan))

    met, _ = rule.holds(lookup, len(sums))
    low, high = (
        np.clip(np.broadcast_to(gain(lookup), len(sums)), 0, 1)
        for gain in (rule.gain_low, rule.gain_high)
    )
    groups = sums.index.tolist()
    convolving = _convolving(rows)
    found = []
    for place in np.flatnonzero(met & applies_to(rule, firsts) & ~np.isnan(high)):
        values = {str(name): float(value) for name, value in sums.iloc[place].items()}
        said = filled(rule.evidence, values)
        most = float(high[place])
        least = min(float(low[place]), most)
        names = rows.loc[rows["group"] == groups[place], "kernel"].astype(str)
        gains = (least, most, most)
        found.append(
            _finding(
                rule,
                firsts.iloc[place].to_dict(),
                said,
                gains,
                person_of_all(names),
                convolves=groups[place] in convolving,
            )
        )
    return found


def _convolving(rows: pd.DataFrame) -> frozenset[Any]:
    """Return the layers in which convolutions run, by the names of their kernels."""
    if "kernel" not in rows.columns:
        return frozenset()
    names = rows["kernel"].astype(str)
    does = {name: kernel_traits(name).does for name in names.unique()}
    return frozenset(rows["group"][names.map(does).isin(_CONVOLVES)])


def _finding(
    rule: Rule,
    row: Mapping[Any, Any],
    evidence: str,
    gains: tuple[float, float, float],
    person: Person,
    level: float = np.nan,
    *,
    convolves: bool,
) -> dict[str, Any]:
    low, likely, high = gains
    own = rule.mitigation
    mitigation = own if person is Person.AUTHOR else rule.advice_for(person, convolves=convolves)
    cells = {name: row.get(name) for name in ("layer", "backend", "precision", "batch")}
    return {
        **cells,
        "kernel": row["label"] if rule.scope == "kernel" else "whole layer",
        "rules": (rule.id,),
        "hazard": rule.hazard,
        "evidence": evidence,
        "mitigation": mitigation,
        "gain_low": low,
        "gain": likely,
        "gain_high": high,
        "time_us": float(row["layer_us"]),
        "of_all": float(row.get("of_all", 1.0)),
        "saved_us": high * float(row["layer_us"]),
        "source": rule.source,
        "person": person.value,
        "for_author": None if mitigation == own else own,
        "faster": None,
        "certainty": "open",
        "tells": "",
        "level": min(level, 1.0),
    }


class NotChecked(TypedDict):
    """A rule that could not be checked, and why.

    Attributes
    ----------
    why
        ``not collected``, ``undefined: ...``, ``not known`` or ``not given``.
    """

    backend: str | None
    precision: str | None
    batch: int | None
    rule: str
    missing: str
    why: str


def not_checked_by(
    rows: pd.DataFrame, book: Rules, peaks: Peaks | None, merged: bool
) -> pd.DataFrame:
    """Return what could not be checked, and the metrics that would be needed, by condition."""
    shown = [name for name in ("backend", "precision", "batch") if name in rows.columns]
    found: list[dict[str, Any]] = []
    keys = [name for name in condition_keys(rows) if name != "layer"]
    for _, part in rows.groupby(keys or "share", dropna=False, sort=False):
        same = {name: part[name].iloc[0] for name in shown}
        inputs = InputValues(part, peaks)
        for rule in book:
            if rule.precisions and not applies_to(rule, part).any():
                if _unlabelled(part):
                    names = f"precision ({', '.join(rule.precisions)})"
                    found.append({**same, "rule": rule.id, "missing": names, "why": "not known"})
                continue
            if merged and (rule.scope == "layer" or rule.single):
                if rule.scope == "kernel" and applies_to(rule, part, merged).all():
                    continue
                needs = {"missing": "launches (a Kernels table)", "why": "not given"}
                found.append({**same, "rule": rule.id, **needs})
                continue
            if rule.scope == "layer":
                absent = [name for name in rule.needed if name not in LAYER_INPUTS]
            else:
                absent = inputs.missing(rule.needed)
            if absent:
                metrics = list(dict.fromkeys(", ".join(absent).split(", ")))
                lacking = {"missing": ", ".join(metrics), "why": why_missing(part, metrics)}
                found.append({**same, "rule": rule.id, **lacking})
        bare = part.groupby("layer", sort=False)[metric_columns(part)].count().sum(axis=1) == 0
        if bare.any():
            layers = ", ".join(map(str, bare[bare].index))
            lacking = {"missing": f"counters of {layers}", "why": "not collected"}
            found.append({**same, "rule": "all of a launch", **lacking})
    return pd.DataFrame(found, columns=[*shown, "rule", "missing", "why"])


def _unlabelled(rows: pd.DataFrame) -> bool:
    """Tell whether the precision of these launches is not known."""
    return "precision" in rows.columns and bool((rows["precision"] == "unknown").all())
