"""One layer that two sides differ on: causes, kernels, metrics, what a model says, what to do."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING

import pandas as pd

from perfml.kernel_names import shortened
from perfml.report import figures
from perfml.report.document import (
    Block,
    Cell,
    Fold,
    Picture,
    Points,
    ReportTable,
    Section,
    Text,
    notices,
    numbers,
    section,
    words,
)
from perfml.report.figures.comparisons import differ
from perfml.report.figures.metrics import stall_shares
from perfml.report.labels import model
from perfml.report.tables import amount, sentences_of, value_text
from perfml.util.words import capital, count, listed, number, percent, ratio_text, say

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from perfml.explain.changed_metrics import ModelAttribution
    from perfml.explain.results import Explanation, LayerDiff

_MOST = 10
"""Rows of the tables below the causes, in the short forms."""

_KERNEL = 56
"""Characters of a kernel's name; all of it opens."""

_ATTRIBUTION_WIDTH = 520
_CHANGES = {"fused": "replaced"}
_SIDES = {"baseline": "−", "target": "+", "both": "="}


def aligned_name(detail: LayerDiff) -> str:
    """Name a layer, by both names where it has two."""
    if detail.target_layer == detail.layer:
        return detail.layer
    return f"{detail.layer} -> {detail.target_layer} (aligned: {detail.aligned_by})"


def layer_section(
    detail: LayerDiff,
    explanation: Explanation,
    *,
    rows: pd.DataFrame | None = None,
    at: str = "",
    evidence: bool = False,
) -> Section:
    """Return what is known of one layer.

    `rows` are the Layers rows of both sides, to draw their stall reasons; `at` is what both sides
    have in common, such as precision and batch, for captions. `evidence` shows the single kernels'
    causes, the model's numbers and the advice, too.
    """
    from perfml.explain.tree.causes import TERMS

    name = aligned_name(detail)
    missing = "; ".join(detail.causes.missing)
    metrics = metrics_table(detail, explanation)
    denied = [f"not {TERMS[id_].label}: {why}" for id_, why in detail.causes.denied.items()]
    blocks: list[Block | None] = [
        _points(detail),
        *notices(sentences_of(detail.warnings), "this layer"),
        _picture(detail.causes.terms, _CAPTION.format(f"{name}, {at}," if at else name)),
        launches_table(detail, explanation),
        _folded(
            "All causes, and what was not counted",
            causes_table(detail),
            pieces_table(detail) if evidence else None,
            Points(tuple(denied)) if evidence and denied else None,
            Text(f"Not collected: {missing}.", note=True) if missing else None,
        ),
        _folded(
            "What a fitted model says, and why warps waited",
            _disagreements(detail),
            *_of_model(detail, evidence=evidence),
            None if rows is None else _stalls(detail, rows, at),
        ),
        None if metrics is None else _folded(metrics.heading, metrics),
    ]
    if evidence:
        blocks.append(Text("No metric changed beyond its noise.") if metrics is None else None)
    return section(name, *blocks, summary=detail.time.sentence())


_CAPTION = "By the counters: what makes {} differ. A kernel's work is that of its limiting unit."


def _folded(summary: str, *blocks: Block | None) -> Fold | None:
    kept = tuple(block for block in blocks if block is not None)
    return Fold(summary, kept, page_only=False) if kept else None


def _of_model(detail: LayerDiff, *, evidence: bool) -> tuple[Block | None, ...]:
    if detail.model is None:
        return ()
    caption = _model_caption(detail.model)
    picture = _picture(detail.model.values, caption)
    return (picture, model_table(detail.model), Text(caption)) if evidence else (picture,)


def _disagreements(detail: LayerDiff) -> Block | None:
    if detail.disagreements:
        points = (*(each.text for each in detail.disagreements), say("report.lead.believe"))
        return Points(points, "Where the evidence disagrees")
    return None


def _picture(terms: pd.DataFrame, caption: str) -> Picture | None:
    if not differ(terms):
        return None  # two sides that do not differ have no terms
    draw = functools.partial(_draw_attribution, terms)
    return Picture("Bars of factors; the table below has its numbers", caption, draw)


def _draw_attribution(terms: pd.DataFrame, width: int) -> Axes:
    return figures.attribution(terms, width=min(width, _ATTRIBUTION_WIDTH))


def _model_caption(found: ModelAttribution) -> str:
    text = f"By a model ({model(found.model)}, exact Shapley values)"
    if found.held_out_errors is None:
        return f"{text}. Its error on this layer is unknown: there are too few other layers."
    before, after = found.held_out_errors
    return (
        f"{text}. Fitted without this layer, it is off by {percent(abs(before))} on the baseline "
        f"and by {percent(abs(after))} on the target."
    )


def _stalls(detail: LayerDiff, rows: pd.DataFrame, at: str) -> Picture | None:
    chosen = rows[rows["layer"].isin([detail.layer, detail.target_layer])]
    if not len(stall_shares(chosen).columns):
        return None
    names = [str(name) for name in dict.fromkeys(chosen["backend"])]
    where = f", {at}" if at else ""
    caption = f"Why the warps of {detail.layer} waited, under {listed(names, 4)}{where}."
    draw = functools.partial(figures.stall_breakdown, chosen)
    return Picture("Stacked bars of stall reasons", caption, draw)


def launches_table(detail: LayerDiff, explanation: Explanation) -> ReportTable | None:
    """Return the launches of both sides in order, as a diff; None where kernels are not named."""
    from perfml.explain.launches import kernel_label

    if detail.launches.empty:
        return None
    changes = detail.kernels.to_dict("records")
    rows, told = [], set()
    labels = {str(name): kernel_label(str(name)) for name in detail.launches["kernel"]}
    short = dict(zip(labels, shortened(list(labels.values()), _KERNEL), strict=True))
    for row in detail.launches.to_dict("records"):
        run, kernel = int(row["run"]), str(row["kernel"])
        note = "" if run in told else _change_note(changes[run], detail.launches, run)
        told.add(run)
        rows.append(
            [
                Cell(
                    f"{_SIDES[str(row['side'])]}\u00a0{_CHANGES.get(row['change'], row['change'])}",
                    note,
                ),
                Cell(short[kernel], fold=kernel if kernel != short[kernel] else ""),
                amount(float(row["baseline_us"])),
                amount(float(row["target_us"])),
            ]
        )
    columns = (
        *words("change", "kernel"),
        *numbers(f"{explanation.baseline}, µs", f"{explanation.target}, µs"),
    )
    title = "Kernels in launch order: − baseline only, + target only, = both"
    caption = f"Kernels of {detail.layer} in launch order"
    return ReportTable(caption, columns, rows, title=title, cards=True)


def _change_note(change: dict[object, object], launches: pd.DataFrame, run: int) -> str:
    """Say how many launches became how many, and what that did to the time."""
    if change["change"] in ("same", "variant"):
        return ""
    sides = launches.loc[launches["run"] == run, "side"]
    before, after = int((sides == "baseline").sum()), int((sides == "target").sum())
    times = " → ".join(number(float(str(change[f"{side}_us"]))) for side in ("baseline", "target"))
    return f"{before} → {count(after, 'launch', 'launches')}, {times} µs"


def causes_table(detail: LayerDiff) -> ReportTable | None:
    """Return the causes, the largest first; small ones are summed up."""
    totals = detail.causes.totals
    if not totals:
        return None
    shown = detail.causes.largest
    lines = [(total.term.label, total.log_ratio) for total in shown]
    if len(shown) < len(totals):
        others = detail.causes.log_ratio - sum(total.log_ratio for total in shown)
        lines.append((f"{len(totals) - len(shown)} smaller ones", others))
    lines.append(("all together", detail.time.log_ratio))
    rows = [[Cell(name), _factor(value)] for name, value in lines]
    columns = (*words("cause"), *numbers("factor"))
    title = "Causes by the counters, without a model; their factors multiply to the time ratio"
    return ReportTable(f"What the counters say of {detail.layer}", columns, rows, title=title)


def _factor(log_ratio: float) -> Cell:
    factor = math.exp(log_ratio)
    return Cell(f"×{ratio_text(factor)}", value=factor)


def _signed(value: float) -> Cell:
    return Cell(f"{round(value, 3) + 0.0:+.3f}", value=value)  # no -0.000


def _points(detail: LayerDiff) -> Points | None:
    """Lay out what to do, what it saves and why; None where nothing is known."""
    doubt = " (low confidence: the evidence disagrees)" if detail.disagreements else ""
    lines = tuple(map(capital, detail.reasons))
    return Points(lines, f"What to do, and why{doubt}", "advised") if lines else None


def pieces_table(detail: LayerDiff) -> ReportTable | None:
    """Return the causes of single kernels, with the numbers they come from."""
    pieces = detail.causes.largest_by_kernel
    if pieces.empty:
        return None
    rows = [
        [
            Cell(str(row["label"])),
            amount(float(row["baseline"])),
            amount(float(row["target"])),
            _factor(float(row["log_ratio"])),
            Cell(value_text(row["resource"])),
            Cell(str(row["kernels"])),
        ]
        for row in pieces.to_dict("records")
    ]
    columns = (
        *words("cause"),
        *numbers("baseline", "target", "factor"),
        *words("counted in", "kernel"),
    )
    title = (
        "The largest causes by kernel (busy times and kernels of one side in µs; throughput: work "
        "per µs and warp)"
    )
    return ReportTable(title, columns, rows, most=_MOST, spare=("kernel", "counted in"))


def model_table(attribution: ModelAttribution) -> ReportTable:
    """Return how a fitted model gets from the baseline's prediction to the target's."""
    shown = attribution.values[attribution.values["log_ratio"].abs() > 0].head(8)
    others = attribution.predicted_log_ratio - float(shown["log_ratio"].sum())
    rows = [
        [
            Cell(str(row["metric"])),
            amount(float(row["baseline"])),
            amount(float(row["target"])),
            _signed(float(row["log_ratio"])),
        ]
        for row in shown.to_dict("records")
    ]
    rows += [
        [Cell(name), Cell("–"), Cell("–"), _signed(value)]
        for name, value in (
            ("all others", others),
            ("sum = predicted", attribution.predicted_log_ratio),
        )
    ]
    title = (
        f"Model attribution (exact Shapley values of {attribution.model} on log time, "
        f"{count(attribution.training_rows, 'row')})"
    )
    return ReportTable(title, (*words("metric"), *numbers("baseline", "target", "log ratio")), rows)


def metrics_table(detail: LayerDiff, explanation: Explanation) -> ReportTable | None:
    """Return the metrics that changed beyond their noise, or all where it is unknown; or None."""
    unknown = bool(detail.metrics["changed"].isna().any())
    changed = detail.metrics if unknown else detail.metrics[detail.metrics["changed"].astype(bool)]
    if changed.empty:
        return None
    rows = []
    for row in changed.to_dict("records"):
        noise = "" if unknown else f"noise {number(float(row['noise']), 2)}"
        rows.append(
            [
                Cell(str(row["metric"])),
                amount(float(row["baseline"])),
                amount(float(row["target"])),
                amount(float(row["difference"]), note=noise),
            ]
        )
    columns = (*words("metric"), *numbers(explanation.baseline, explanation.target, "difference"))
    title = f"{count(len(changed), 'metric')} of {len(detail.metrics)} that changed beyond noise"
    if unknown:
        title = "Metrics (too few repeats to know their noise)"
    return ReportTable(f"{title}, {detail.layer}", columns, rows, most=_MOST)
