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
from perfml.predict.bounds import with_bounds
from perfml.predict.comparable import Refused, by_counters, unseen_axes, weaker, why_not
from perfml.predict.describe import WHOLE, Vocabulary, prepare_layers
from perfml.predict.intervals import CONFIDENCE, Intervals
from perfml.predict.learned import NETWORK, FittedNow, Kept, KeptFor, Learned
from perfml.predict.reasons import (
    condition,
    findings_of,
    named_peers,
    peers_of,
    slowest_kernel,
    unusual_counts,
)
from perfml.predict.results import PredictedLayer, Prediction, Why
from perfml.tables import metric_columns
from perfml.util.typing import Floats, Progress

USUAL_BACKEND = "cudnn"
"""PyTorch as it is: what a script that names no backend is taken for."""

LEAST_NETWORKS = 3
"""Networks that a reference needs beside the one in question."""

_MOST = 0.5
"""Share of the rows that have to have a metric for it to be used."""

_PRIOR_LAYERS = 5.0
"""Layers of a profile that tell as much of an unknown GPU's speed as its peaks do."""

_SHIFTED = 1.15
"""Factor that all layers have in common from which on it is told."""

_MANY = 20
"""Layers from which on what they have in common is told."""

_Z90, _MAD = 1.645, 1.4826
"""Of normal numbers: standard deviations that hold 90 %, and those in a median deviation."""


@dataclass(frozen=True)
class _Compared:
    """What comparing gave, a value a row: logarithms of microseconds, and shares."""

    expected: Floats
    low: Floats
    high: Floats
    slower: Floats
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
    """Compare layers with those of many networks.

    Parameters
    ----------
    layers
        A Layers table.
    reference
        Layers of other networks, as `perfml.predict.prepare_layers` returns them; those of the
        networks in `layers` are left out of it.
    provenance
        The document of `layers`, for what its runs say of each layer.
    reference_name
        What it is called in sentences.
    kernels
        The launches behind the layers, for the reasons.
    peaks
        Of the profile's GPU, where it is not tabulated.
    top
        Slow layers whose reasons are looked for.
    confidence
        Share of layers like one that its interval holds.
    seed
        Of the model, and of how networks are dealt out.
    progress
        Called as ``progress(done, total, what)``.
    kept
        What was fitted on the whole reference (`perfml.predict.reference.kept`); without it models
        are fitted anew.

    Returns
    -------
    Prediction

    Raises
    ------
    PerfmlError
        If no layer can be compared; the message says why.
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
    most_have = [name for name in metric_columns(chosen) if chosen[name].notna().mean() > _MOST]
    words = Vocabulary.of(known, most_have)
    tier = "shape" if by_shape else "counted"
    anew = FittedNow(known, words, tier, seed, progress)
    learned: Learned = anew
    whole = kept is not None and len(kept.held_out[NETWORK]) == len(has_bound)
    if kept is not None and whole and by_shape and seed == 0:
        learned = KeptFor(kept, np.flatnonzero(other), anew)
    compared = _compare(
        chosen, known, learned, unseen_axes(chosen, known, by_shape=by_shape), confidence
    )
    verdicts = _verdicts(rows, refused, compared, "shape" if by_shape else "counted work")
    every = _slowest(verdicts) if top else []
    slow = every[:top]
    places = {at: condition(rows.iloc[at]) for at in every}
    findings = findings_of(own, kernels, list(places.values())) if every else {}
    for at in every:
        first = next(iter(findings.get(places[at], ())), None)
        verdicts[at] = replace(verdicts[at], limits=first)
    work = None
    if slow and by_shape and words.counted:
        work = learned.by_work(rows.iloc[slow])
    for number, at in enumerate(slow):
        work_us = None if work is None else float(np.exp(work[number]))
        why = replace(
            _why(verdicts[at], rows.iloc[[at]], known, words, work_us),
            reasons=findings.get(places[at], ()),
            kernel=slowest_kernel(kernels, places[at]),
        )
        verdicts[at] = replace(verdicts[at], why=why)
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


def _nothing_left(refused: list[Refused | None]) -> PerfmlError:
    ((usual, times),) = Counter(each for each in refused if each is not None).most_common(1)
    msg = f"no layer can be compared: {usual.why}"
    return PerfmlError(msg, found=f"{times} of {len(refused)} layers", cure=usual.cure)


def _compare(
    rows: pd.DataFrame,
    known: pd.DataFrame,
    learned: Learned,
    axes: list[str | None],
    confidence: float,
) -> _Compared:
    """Return what layers like the rows take, and where most of them lie."""
    expected = learned.expected(rows)
    measured = np.log(rows["time_us"].to_numpy(float))
    low, high, slower = (np.empty(len(rows)) for _ in range(3))
    for axis in dict.fromkeys(axes):
        here = np.array([each == axis for each in axes])
        family = rows["family"][here]
        residuals = learned.residuals(NETWORK if axis in (None, "device") else axis)
        if axis == "device":
            # the chips' peaks say how fast another GPU is, and the more layers there are the
            # better does the profile itself: of a network its own middle is known then, too
            own = int(here.sum()) / (int(here.sum()) + _PRIOR_LAYERS)
            expected[here] += own * float(np.median((measured - expected)[here]))
            middles = pd.Series(residuals).groupby(known[NETWORK].to_numpy()).transform("median")
            residuals = residuals - own * middles.to_numpy()
        usual = np.log(known["time_us"].to_numpy(float)) - residuals
        intervals = Intervals.calibrate(residuals, known["family"], usual)
        low[here], high[here] = intervals.around(expected[here], family, confidence)
        slower[here] = intervals.share_slower(expected[here], measured[here], family)
        if axis == "device":
            half = _Z90 * _MAD * float(np.median(np.abs((measured - expected)[here])))
            apart = _Z90 * (1 - own) * _peaks_off(learned, known)
            low[here] = np.minimum(low[here] - apart, expected[here] - half)
            high[here] = np.maximum(high[here] + apart, expected[here] + half)
    notes = [
        None if axis is None else weaker(axis, rows[axis].iloc[place])
        for place, axis in enumerate(axes)
    ]
    return _Compared(expected, low, high, slower, notes)


def _peaks_off(learned: Learned, known: pd.DataFrame) -> float:
    """Return how far the middle layer is off where only peaks tell how fast a GPU is.

    No GPU can be held out of a reference of one. A precision that was never seen is known by its
    peaks alone, too.
    """
    if len(set(known["precision"])) < 2:
        return float(np.log(_SHIFTED))
    off = pd.Series(learned.residuals("precision")).groupby(known["precision"].to_numpy()).median()
    return float(np.sqrt((off**2).mean()))


def _verdicts(
    rows: pd.DataFrame, refused: list[Refused | None], compared: _Compared, by: str
) -> list[PredictedLayer]:
    """Return a verdict a row, in the rows' order."""
    found, place = [], 0
    for row, note in zip(rows.to_dict("records"), refused, strict=True):
        if note is not None:
            found.append(_not_compared(row, note.why))
            continue
        expected, low, high = (
            float(np.exp(each[place])) for each in (compared.expected, compared.low, compared.high)
        )
        time = float(row["time_us"])
        found.append(
            replace(
                _not_compared(row, compared.notes[place]),
                expected_us=expected,
                low_us=low,
                high_us=high,
                ratio=time / expected,
                excess_us=(time - expected) * int(row["copies"]),
                share_slower=float(compared.slower[place]),
                verdict="slower" if time > high else "faster" if time < low else "usual",
                compared_by=by,
            )
        )
        place += 1
    return found


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


def _why(
    verdict: PredictedLayer,
    row: pd.DataFrame,
    known: pd.DataFrame,
    words: Vocabulary,
    work_us: float | None,
) -> Why:
    peers = peers_of(row, known, words)
    by_work = beyond = None
    if work_us is not None and verdict.expected_us is not None:
        by_work, beyond = work_us / verdict.expected_us, verdict.time_us / work_us
    return Why(
        by_work=by_work,
        beyond_work=beyond,
        unusual=unusual_counts(row.iloc[0], peers, words.counted),
        peers=named_peers(peers),
    )


def _said_of_all(verdicts: list[PredictedLayer], shift: float) -> list[str]:
    """Return sentences on what was not compared, and on what all layers have in common."""
    said = []
    left = [each for each in verdicts if each.verdict == "not compared"]
    for note, count in pd.Series([each.note for each in left], dtype=object).value_counts().items():
        said.append(f"{count} of {len(verdicts)} layers are not compared: {note}")
    compared = [each for each in verdicts if each.verdict != "not compared"]
    notes = pd.Series([each.note for each in compared], dtype=object).dropna()
    said += [f"{count} of {len(verdicts)} layers: {n}" for n, count in notes.value_counts().items()]
    if abs(shift) > np.log(_SHIFTED) and len(compared) >= _MANY:
        said.append(
            f"the median layer takes {np.exp(shift):.2f} times the usual. Clocks, versions of "
            "libraries or the way of measuring differ, besides what single layers do"
        )
    return said
