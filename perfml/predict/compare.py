"""Compare a profile's layers with layers like them: which are slower, and by how much."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from perfml.account.time_sources import time_note
from perfml.errors import PerfmlError
from perfml.explain.roofs.peaks import Peaks
from perfml.modeling.features import BOUND
from perfml.predict.comparable import (
    by_counters,
    condition,
    findings_of,
    named_peers,
    peers_of,
    slowest_kernel,
    unseen_axes,
    unusual_counts,
    weaker,
    why_not,
)
from perfml.predict.describe import MOST, WHOLE, knows_launches, prepare_layers, with_bounds
from perfml.predict.learned import NETWORK, FittedNow, Kept, KeptFor
from perfml.predict.model import CONFIDENCE, Intervals
from perfml.predict.results import PredictedLayer, Prediction, Why
from perfml.tables import metric_columns
from perfml.util.typing import Floats, Progress

USUAL_BACKEND = "cudnn"
"""PyTorch as it is: what a script that names no backend is taken for."""

LEAST_NETWORKS = 3
"""Networks that a reference needs beside the one in question."""

_SHAPE_CONFIDENCE = 0.98
"""Of what layers of a shape take, whatever they launch: wide, since all layers are asked twice. Of
networks held out 4 % of the layers are slower by either, as many as by their launches alone."""

_PRIOR_LAYERS = 5.0
"""Layers of a profile that tell as much of an unknown GPU's speed as its peaks do."""

_BY = {"launched": "shape and launches", "shape": "shape", "counted": "counted work"}
"""What a tier is called that layers are compared by."""

_SHIFTED = 1.15
"""Factor that all layers have in common from which on it is told."""

_MANY = 20
"""Layers from which on what they have in common is told."""

_Z90, _MAD = 1.645, 1.4826
"""Of normal numbers: standard deviations that hold 90 %, and those in a median deviation."""


@dataclass(frozen=True)
class _Compared:
    """What comparing gave, a value a row: logarithms of microseconds."""

    expected: Floats
    low: Floats
    high: Floats
    notes: list[str | None]


def predict(
    layers: pd.DataFrame,
    reference: pd.DataFrame,
    *,
    provenance: Mapping[str, Any] | None = None,
    reference_name: str = "atlas",
    kernels: pd.DataFrame | None = None,
    peaks: Peaks | None = None,
    top: int = 3,
    confidence: float = CONFIDENCE,
    seed: int = 0,
    progress: Progress | None = None,
    kept: Kept | None = None,
) -> Prediction:
    """Compare a Layers table with layers of other networks, as `perfml.predict` does with a file.

    `reference` is as `prepare_layers` returns it; networks of `layers` are left out of it, and
    `reference_name` is what sentences call it. `provenance` is the document of `layers`, `kernels`
    the launches behind them; `peaks` are of a GPU that is not tabulated. The reasons of `top` slow
    layers are looked for; an interval holds `confidence` of the layers like one. `seed` is of
    models that are fitted anew, which happens without `kept` (`perfml.predict.python.kept`).
    Raises `PerfmlError` if no layer can be compared; the message says why.
    """
    warnings, own = _named(layers)
    rows = _rows(own, provenance, peaks)
    has_bound = reference[reference[BOUND].notna()]
    other = ~has_bound["workload"].isin(rows["workload"]).to_numpy()
    known = has_bound[other]
    _require_networks(known, reference_name)
    by_shape = bool(rows["kind"].notna().any())
    if not by_shape:
        rows, known = by_counters(rows), by_counters(known)
        warnings.append(
            "the profile has no shapes, so layers are compared with layers of the same counted "
            "work. A layer that does too much work is not found so. "
            "perfml collect torch:... records shapes"
        )
    known = known[known[BOUND].notna()].reset_index(drop=True)
    refused = why_not(rows, known, by_shape=by_shape)
    fit = np.array([note is None for note in refused])
    if not fit.any():
        raise _nothing_left(refused)
    chosen = rows[fit].reset_index(drop=True)
    most_have = [name for name in metric_columns(chosen) if chosen[name].notna().mean() > MOST]
    tier = "shape" if by_shape else "counted"
    if by_shape and knows_launches(chosen) and knows_launches(known):
        tier = "launched"
    anew = FittedNow(known, most_have, seed, progress)
    learned: FittedNow | KeptFor = anew
    whole = kept is not None and len(kept.held_out["shape", NETWORK]) == len(has_bound)
    if kept is not None and whole and by_shape and seed == 0:
        learned = KeptFor(kept, np.flatnonzero(other), anew)
    axes = unseen_axes(chosen, known, by_shape=by_shape)
    compared = _compare(chosen, known, learned, axes, confidence, tier)
    of_shape = None
    if tier == "launched":
        of_shape = _compare(chosen, known, learned, axes, _SHAPE_CONFIDENCE, "shape")
    verdicts = _verdicts(rows, refused, compared, of_shape, _BY[tier])
    every = _slowest(verdicts) if top else []
    slow = every[:top]
    places = {at: condition(rows.iloc[at]) for at in every}
    findings = findings_of(own, kernels, list(places.values())) if every else {}
    for at in every:
        first = next(iter(findings.get(places[at], ())), None)
        verdicts[at] = replace(verdicts[at], limits=first)
    counted = tuple(name for name in learned.words.counted if name in most_have) if slow else ()
    for at in slow:
        row, verdict = rows.iloc[[at]], verdicts[at]
        peers = peers_of(row, known)
        why = Why(
            by_launches=verdict.by_launches,
            counted=bool(counted),
            unusual=unusual_counts(row.iloc[0], peers, counted),
            reasons=findings.get(places[at], ()),
            peers=named_peers(peers),
            kernel=slowest_kernel(kernels, places[at]),
        )
        verdicts[at] = replace(verdict, why=why)
    shift = float(np.median(np.log(chosen["time_us"].to_numpy(float)) - compared.expected))
    warnings += _said_of_all(verdicts, shift)
    note = time_note(layers)
    return Prediction(
        reference=reference_name,
        networks=int(known["workload"].nunique()),
        distinct_layers=len(known),
        layers=tuple(sorted(verdicts, key=_order)),
        confidence=confidence,
        shift=float(np.exp(shift)),
        warnings=(*warnings, *([] if note is None else [note])),
    )


def _named(layers: pd.DataFrame) -> tuple[list[str], pd.DataFrame]:
    """Return the layers with a backend, and what was taken for granted."""
    if layers["backend"].notna().any():
        return [], layers
    said = (
        f"no backend is named, so this is taken for PyTorch as it is ({USUAL_BACKEND}); "
        "perfml ingest --backend NAME says otherwise"
    )
    return [said], layers.assign(backend=pd.array([USUAL_BACKEND] * len(layers), dtype="string"))


def _rows(
    layers: pd.DataFrame, provenance: Mapping[str, Any] | None, peaks: Peaks | None
) -> pd.DataFrame:
    if (layers["layer"] == WHOLE).all():
        msg = "the model is compiled whole, so its kernels are one layer"
        cure = "Collect it with --set compile=layers: each module is compiled by itself then."
        raise PerfmlError(msg, found=f"the layer {WHOLE}", cure=cure)
    rows = prepare_layers(layers, provenance)
    if peaks is None:
        return rows
    return with_bounds(rows, {str(device): peaks for device in rows["device"].unique()})


def _require_networks(known: pd.DataFrame, name: str) -> None:
    networks = known["workload"].nunique()
    if networks < LEAST_NETWORKS:
        msg = f"too few other networks to compare with: {LEAST_NETWORKS} are needed"
        cure = "Leave out --reference, or give a table of more networks with their shapes."
        raise PerfmlError(msg, where=name, found=str(networks), cure=cure)


def _nothing_left(refused: list[PerfmlError | None]) -> PerfmlError:
    reasons = Counter((note.what, note.cure) for note in refused if note is not None)
    (((why, cure), times),) = reasons.most_common(1)
    msg = f"no layer can be compared: {why}"
    return PerfmlError(msg, found=f"{times} of {len(refused)} layers", cure=cure)


def _compare(
    rows: pd.DataFrame,
    known: pd.DataFrame,
    learned: FittedNow | KeptFor,
    axes: list[str | None],
    confidence: float,
    tier: str,
) -> _Compared:
    """Return what layers like the rows take, and where most of them lie."""
    expected = learned.expected(rows, tier)
    measured = np.log(rows["time_us"].to_numpy(float))
    low, high = np.empty(len(rows)), np.empty(len(rows))
    for axis in dict.fromkeys(axes):
        here = np.array([ax == axis for ax in axes])
        family = rows["family"][here]
        residuals = learned.residuals(NETWORK if axis in (None, "device") else str(axis), tier)
        if axis == "device":
            # the chips' peaks say how fast another GPU is, and the more layers there are the
            # better does the profile itself: of a network its own middle is known then, too
            own = int(here.sum()) / (int(here.sum()) + _PRIOR_LAYERS)
            expected[here] += own * float(np.median((measured - expected)[here]))
            middles = pd.Series(residuals).groupby(known[NETWORK].to_numpy()).transform("median")
            residuals = residuals - own * middles.to_numpy()
        usual = np.log(known["time_us"].to_numpy(float)) - residuals
        intervals = Intervals.calibrate(residuals, known["family"], usual, known[NETWORK])
        low[here], high[here] = intervals.around(expected[here], family, confidence)
        if axis == "device":
            half = _Z90 * _MAD * float(np.median(np.abs((measured - expected)[here])))
            apart = _Z90 * (1 - own) * _peaks_off(learned, known, tier)
            low[here] = np.minimum(low[here] - apart, expected[here] - half)
            high[here] = np.maximum(high[here] + apart, expected[here] + half)
    notes = [
        None if axis is None else weaker(axis, row)
        for axis, row in zip(axes, rows.to_dict("records"), strict=True)
    ]
    return _Compared(expected, low, high, notes)


def _peaks_off(learned: FittedNow | KeptFor, known: pd.DataFrame, tier: str) -> float:
    """Return how far the middle layer is off where only peaks tell how fast a GPU is.

    No GPU can be held out of a reference of one. A precision that was never seen is known by its
    peaks alone, too.
    """
    if len(set(known["precision"])) < 2:
        return float(np.log(_SHIFTED))
    residuals = pd.Series(learned.residuals("precision", tier))
    off = residuals.groupby(known["precision"].to_numpy()).median()
    return float(np.sqrt((off**2).mean()))


def _verdicts(
    rows: pd.DataFrame,
    refused: list[PerfmlError | None],
    compared: _Compared,
    of_shape: _Compared | None,
    by: str,
) -> list[PredictedLayer]:
    """Return a verdict a row, in the rows' order."""
    found, place = [], 0
    for row, note in zip(rows.to_dict("records"), refused, strict=True):
        if note is not None:
            found.append(_not_compared(row, note.what))
            continue
        verdict = _verdict(_not_compared(row, compared.notes[place]), compared, place, by)
        if of_shape is not None:
            shape_us, most = np.exp(of_shape.expected[place]), np.exp(of_shape.high[place])
            verdict = replace(verdict, shape_us=float(shape_us), shape_high_us=float(most))
            if verdict.verdict != "slower" and verdict.time_us > most:
                # as fast as its launches let expect, but layers of its shape launch others
                verdict = replace(_beside(verdict, float(shape_us), "shape"), verdict="slower")
        found.append(verdict)
        place += 1
    return found


def _verdict(row: PredictedLayer, compared: _Compared, place: int, by: str) -> PredictedLayer:
    expected, low, high = (
        float(np.exp(each[place])) for each in (compared.expected, compared.low, compared.high)
    )
    return replace(
        _beside(row, expected, by),
        expected_us=expected,
        low_us=low,
        high_us=high,
        verdict="slower" if row.time_us > high else "faster" if row.time_us < low else "usual",
    )


def _beside(row: PredictedLayer, usual_us: float, by: str) -> PredictedLayer:
    """Return a row with how much longer it takes than is usual."""
    excess = (row.time_us - usual_us) * row.copies
    return replace(row, ratio=row.time_us / usual_us, excess_us=excess, compared_by=by)


def _not_compared(row: Mapping[Any, Any], note: str | None) -> PredictedLayer:
    def text(name: str) -> str | None:
        return None if pd.isna(row[name]) else str(row[name])

    return PredictedLayer(
        layer=str(row["layer"]),
        kind=text("kind"),
        workload=text("workload"),
        backend=text("backend"),
        precision=text("precision"),
        batch=None if pd.isna(row["batch"]) else int(row["batch"]),
        device=text("device"),
        copies=int(row["copies"]),
        time_us=float(row["time_us"]),
        note=note,
    )


def _order(verdict: PredictedLayer) -> tuple[int, float]:
    rank = {"slower": 0, "usual": 1, "faster": 1, "not compared": 2}[verdict.verdict]
    return rank, -(verdict.excess_us or 0.0)


def _slowest(verdicts: list[PredictedLayer]) -> list[int]:
    """Return the places of the slow layers, of those that lose most first."""
    slow = [at for at, each in enumerate(verdicts) if each.verdict == "slower"]
    return sorted(slow, key=lambda at: _order(verdicts[at]))


def _said_of_all(verdicts: list[PredictedLayer], shift: float) -> list[str]:
    """Return sentences on what was not compared, and on what all layers have in common."""
    said = []
    left = [verdict for verdict in verdicts if verdict.verdict == "not compared"]
    for note, count in pd.Series([each.note for each in left], dtype=object).value_counts().items():
        said.append(f"{count} of {len(verdicts)} layers are not compared: {note}")
    compared = [verdict for verdict in verdicts if verdict.verdict != "not compared"]
    notes = pd.Series([each.note for each in compared], dtype=object).dropna()
    said += [f"{count} of {len(verdicts)} layers: {n}" for n, count in notes.value_counts().items()]
    if abs(shift) > np.log(_SHIFTED) and len(compared) >= _MANY:
        said.append(
            f"the median layer takes {np.exp(shift):.2f} times the usual. Clocks, versions of "
            "libraries or the way of measuring differ, besides what single layers do"
        )
    return said
