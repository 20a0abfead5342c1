"""Why one backend is slower than another, for the layers where it costs most."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from perfml.errors import PerfmlError
from perfml.report import figures
from perfml.report._grids import Cell, Grid, amount
from perfml.report._kernels import printable
from perfml.report._labels import clean, count, listed, micros, model, number, percent
from perfml.report._sections import Picture, picture_of, told_warnings
from perfml.report._times import EVERY_RUN, Condition, conditions

MOST_PAIRS = 6
"""Pairs of backends explained in a report; the verb explain takes any other."""

_MOST_METRICS = 12
_MAIN = 0.15
"""A term of at least this share of all (absolute) terms is named in the sentence."""


@dataclass(frozen=True)
class Pair:
    """One comparison of a report.

    Attributes
    ----------
    label
        The condition, such as ``fp32, batch 8``.
    explanation
        From `perfml.explain.explain`.
    rows
        The Layers rows of both sides, for figures of both; their ``backend`` is the side.
    """

    label: str
    explanation: Any
    rows: pd.DataFrame


def explain_pairs(
    layers: pd.DataFrame,
    kernels: pd.DataFrame | None = None,
    *,
    top: int = 1,
    model: str | None = "gbr",
    seed: int = 0,
    most: int = MOST_PAIRS,
    progress: Callable[[int, int, str], None] | None = None,
) -> list[Pair]:
    """Explain, under every condition, why the other backends are slower than the fastest.

    Parameters
    ----------
    layers
        A Layers table.
    kernels
        The Kernels table behind it.
    top
        Layers explained of every pair: those with the largest time difference.
    model, seed
        As for `perfml.explain.explain`.
    most
        Pairs explained; of more, those with the largest difference of a layer.
    progress
        Called as ``progress(done, total, pair)``.

    Returns
    -------
    list of Pair
        Conditions in order, in each the largest difference first. Pairs that cannot be explained
        (a table without kernel names, no layer in common) are left out.
    """
    from perfml.explain import explain, sides_of

    shown = conditions(layers)
    named = None if kernels is None else printable(kernels)
    chosen = _largest(shown, most)
    found = []
    for done, (place, baseline, target) in enumerate(chosen):
        condition = shown[place]
        if progress is not None:
            progress(done, len(chosen), f"{target} against {baseline}")
        launches = None if named is None else condition.select(named)
        try:
            sides = sides_of(condition.rows, baseline, target, kernels=launches)
            explanation = explain(*sides, top=top, model=model, training=condition.rows, seed=seed)
        except PerfmlError:
            continue
        rows = condition.rows[condition.rows["backend"].isin([baseline, target])]
        found.append(Pair(condition.label, explanation, rows))
    return found


def _largest(shown: Sequence[Condition], most: int) -> list[tuple[int, str, str]]:
    """Return condition, baseline and target of the pairs with the largest differences."""
    found = []
    for place, condition in enumerate(shown):
        totals = condition.totals[condition.totals["total"].notna()]
        wide = condition.times.pivot_table(index="layer", columns="backend", values="median")
        names = [str(name) for name in totals["backend"]]
        for target in names[1:]:
            largest = (wide[target] - wide[names[0]]).abs().max()
            if math.isfinite(largest):
                found.append((float(largest), place, names[0], target))
    found.sort(key=lambda each: -each[0])
    kept = sorted(found[:most], key=lambda each: (each[1], -each[0]))
    return [(place, baseline, target) for _, place, baseline, target in kept]


def why_sentence(pair: Pair) -> tuple[str, bool] | None:
    """Say what the largest difference of a pair is made of, and whether that is likely.

    Returns
    -------
    tuple or None
        The sentence, and whether the counters split at least half of the difference and nothing
        contradicts them; None where no detail was explained or no difference was found.
    """
    explanation = pair.explanation
    details = [each for each in explanation.details if each.time.verdict in ("slower", "faster")]
    if not details:
        return None
    first = details[0]
    where = "" if pair.label == EVERY_RUN else f"At {pair.label}, "
    times = f"{micros(first.time.target_us)} against {micros(first.time.baseline_us)}"
    text = (
        f"{where}{clean(explanation.target, 80)} differs most from "
        f"{clean(explanation.baseline, 80)} on {clean(first.layer, 80)}: {times} "
        f"({first.time.ratio:.2f}×)"
    )
    causes = main_causes(first)
    if not causes:
        return f"{text}; no counter splits the difference.", False
    terms = first.causes.terms
    size = terms["log_ratio"].abs()
    split = float(size[~terms["residual"].astype(bool)].sum() / size.sum()) if size.sum() else 0.0
    sure = split >= 0.5 and not first.disagreements
    return f"{text}. By the counters: {listed(causes)}.", sure


def main_causes(detail: Any) -> list[str]:
    """Return the largest causes, with their factors."""
    terms: pd.DataFrame = detail.causes.terms
    size = terms["log_ratio"].abs()
    rows = terms[size >= _MAIN * size.sum()] if size.sum() > 0 else terms.iloc[:0]
    return [
        f"{clean(term, 80)} ×{factor:.2f}"
        for term, factor in zip(rows["cause"], rows["factor"], strict=True)
    ]


def why_section(
    pair: Pair,
    place: int,
    palette: Mapping[str, str],
    *,
    several: bool = True,
    differing: bool = False,
) -> dict[str, Any]:
    """Return one pair: the sentence of all layers, and the details of the explained ones.

    Parameters
    ----------
    pair
        What was explained.
    place
        Unique on the page among pairs.
    palette
        Backend to colour.
    several
        Whether the page shows more than one condition, so that the label must say which.
    differing
        Leave out explained layers whose times do not differ.
    """
    explanation = pair.explanation
    label = f"{clean(explanation.target, 80)} against {clean(explanation.baseline, 80)}"
    known = pair.label not in (EVERY_RUN, "")
    return {
        "label": f"{pair.label}: {label}" if several and known else label,
        "total": explanation.total.sentence(),
        "details": [
            _detail(pair, each, f"w{place}{index}", palette)
            for index, each in enumerate(_details(explanation, differing=differing))
        ],
        "warnings": told_warnings(explanation.warnings),
    }


def _details(explanation: Any, *, differing: bool) -> list[Any]:
    if not differing:
        return list(explanation.details)
    return [each for each in explanation.details if each.time.verdict != "no difference"]


def _detail(pair: Pair, detail: Any, prefix: str, palette: Mapping[str, str]) -> dict[str, Any]:
    explanation = pair.explanation
    name = clean(detail.layer, 120)
    if detail.target_layer != detail.layer:
        name += f" → {clean(detail.target_layer, 120)} (aligned: {detail.aligned_by})"
    account = detail.physical.account
    causes = main_causes(detail)
    return {
        "layer": name,
        "sentence": detail.time.sentence(),
        "causes": listed(causes, 6),
        "account": clean(account, 80) if account else "",
        "named": _bars(
            detail.causes.terms.assign(
                term=detail.causes.terms["cause"].str.replace("stalls: stall_", "stalls: ")
            ),
            f"By the counters: what makes {name} differ, each kernel counted in the work of its "
            "own limit.",
            f"{prefix}d",
        ),
        "physical": _bars(
            detail.physical.terms,
            "By the counters, stalls and lanes left in the rate"
            + (f"; work counted as {account}." if account else "."),
            f"{prefix}a",
        ),
        "model": _bars(
            None if detail.model is None else detail.model.values,
            "" if detail.model is None else _model_caption(detail.model),
            f"{prefix}b",
        ),
        "kernels": launches_grid(detail, explanation),
        "metrics": metrics_grid(detail, explanation),
        "stalls": _stalls(pair, detail, f"{prefix}c"),
        "missing": [clean(each, 200) for each in detail.physical.missing],
        "disagreements": told_warnings(detail.disagreements),
        "warnings": told_warnings(detail.warnings),
    }


def _bars(terms: pd.DataFrame | None, caption: str, prefix: str) -> Picture | None:
    if terms is None:
        return None
    try:
        return picture_of(
            "Bars of factors",
            caption,
            prefix,
            lambda width: figures.attribution(terms, width=min(width, 520)),
        )
    except PerfmlError:
        # two sides that do not differ have no terms
        return None


def _model_caption(found: Any) -> str:
    text = f"By a model ({model(found.model)}, exact Shapley values)"
    if found.held_out_errors is None:
        return f"{text}; its error on this layer is unknown: too few other layers."
    before, after = found.held_out_errors
    return (
        f"{text}; fitted without this layer it is off by {percent(abs(before))} on the baseline "
        f"and by {percent(abs(after))} on the target."
    )


def _stalls(pair: Pair, detail: Any, prefix: str) -> Picture | None:
    rows = pair.rows[pair.rows["layer"].isin([detail.layer, detail.target_layer])]
    names = [str(name) for name in dict.fromkeys(rows["backend"])]
    try:
        return picture_of(
            "Stacked bars of stall reasons",
            f"Why the warps of {clean(detail.layer, 120)} waited, under {listed(names)}.",
            prefix,
            lambda width: figures.stall_breakdown(rows, width=width),
        )
    except PerfmlError:
        # no stall reason was collected
        return None


_MARKS = {"baseline": "−", "target": "+", "both": "="}


def launches_grid(detail: Any, explanation: Any) -> Grid | None:
    """Return the launches of both sides in order, as a diff; None where kernels are not named."""
    from perfml.explain.launches import kernel_label

    if detail.launches.empty:
        return None
    rows = []
    for row in detail.launches.to_dict("records"):
        full = clean(row["kernel"], 2000)
        short = clean(kernel_label(str(row["kernel"]), 64), 120)
        rows.append(
            [
                Cell(f"{_MARKS[str(row['side'])]}\u00a0{row['change']}"),
                Cell(short, fold=full if full != short else ""),
                amount(float(row["baseline_us"])),
                amount(float(row["target_us"])),
            ]
        )
    columns = (
        ("change", False),
        ("kernel", False),
        (f"{clean(explanation.baseline, 60)}, µs", True),
        (f"{clean(explanation.target, 60)}, µs", True),
    )
    return Grid(f"Kernels of {clean(detail.layer, 120)} in launch order", columns, rows)


def metrics_grid(detail: Any, explanation: Any) -> Grid | None:
    """Return the metrics that moved beyond their noise; None without any."""
    metrics: pd.DataFrame = detail.metrics
    moved = metrics[metrics["moved"].fillna(False).astype(bool)].head(_MOST_METRICS)
    if moved.empty:
        return None
    rows = [
        [
            Cell(clean(row["metric"], 120)),
            amount(float(row["baseline"])),
            amount(float(row["target"])),
            amount(float(row["difference"]), note=f"noise {number(float(row['noise']), 2)}"),
        ]
        for row in moved.to_dict("records")
    ]
    columns = (
        ("metric", False),
        (clean(explanation.baseline, 60), True),
        (clean(explanation.target, 60), True),
        ("difference", True),
    )
    whole = int(metrics["moved"].fillna(False).sum())
    more = f"; the first {len(moved)} of them" if whole > len(moved) else ""
    said = f"{count(whole, 'metric')} that moved beyond noise{more}"
    return Grid(f"{said}, {clean(detail.layer, 120)}", columns, rows)


@dataclass(frozen=True)
class WhyText:
    """A pair in words and tables alone, for Markdown.

    Attributes
    ----------
    label, total
        What is compared, and the ratio of all layers.
    details
        Name, sentence and tables of every explained layer.
    """

    label: str
    total: str
    details: list[tuple[str, str, list[Grid]]]


def why_text(pair: Pair, *, differing: bool = False) -> WhyText:
    """Return a pair without figures; with `differing` only layers whose times differ."""
    explanation = pair.explanation
    label = f"{clean(explanation.target, 80)} against {clean(explanation.baseline, 80)}"
    if pair.label not in (EVERY_RUN, ""):
        label = f"{pair.label}: {label}"
    details = []
    for each in _details(explanation, differing=differing):
        causes = main_causes(each)
        text = each.time.sentence() + (
            f". By the counters mainly: {listed(causes, 6)}." if causes else "."
        )
        grids = [
            terms_grid(each),
            launches_grid(each, explanation),
            metrics_grid(each, explanation),
        ]
        kept = [grid for grid in grids if grid is not None]
        details.append((clean(each.layer, 120), text, kept))
    return WhyText(label, explanation.total.sentence(), details)


def terms_grid(detail: Any) -> Grid:
    """Return the causes."""
    rows = [
        [
            Cell(clean(row["cause"], 80), note="rest" if row["residual"] else ""),
            Cell(f"×{row['factor']:.3f}", value=float(row["factor"])),
        ]
        for row in detail.causes.terms.to_dict("records")
    ]
    name = clean(detail.layer, 120)
    return Grid(f"What the counters say of {name}", (("cause", False), ("factor", True)), rows)
