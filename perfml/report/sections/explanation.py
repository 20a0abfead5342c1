"""Why one side is slower than the other: of all layers, and of the layers where it costs most."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING

import pandas as pd

from perfml.kernel_names import shortened
from perfml.report import figures
from perfml.report.conditions import EVERY_RUN
from perfml.report.document import (
    Block,
    Cell,
    Document,
    Fold,
    Notices,
    Panels,
    Picture,
    Pictures,
    Points,
    ReportTable,
    Section,
    Sentence,
    Text,
    numbers,
    section,
    words,
)
from perfml.report.figures.comparisons import SMALLEST
from perfml.report.figures.metrics import stall_shares
from perfml.report.labels import listed, model, percent
from perfml.report.results import Pair
from perfml.report.sections.advice import findings_table
from perfml.report.sections.main_points import main_points
from perfml.report.sections.steps import step_section
from perfml.report.tables import amount, sentences_of, share, time_texts, value_text
from perfml.util.words import count, factor_text, micros, micros_alike, multiple, number, ratio_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from perfml.explain.model.attribution import ModelAttribution
    from perfml.explain.results import Explanation, LayerDiff

_MAIN = 0.15
"""A term of at least this share of all (absolute) terms is named in a sentence."""

PIECE = 0.02
"""Causes below 2 % of the time are summed up."""

_MOST = 10
"""Rows of the tables below the causes, in the short forms."""

_KERNEL = 56
"""Characters of a kernel's name; all of it opens."""

_CURES = 2
"""Causes whose cure is told."""

_FIRST_LAYERS = 6
"""Layers on the first screen of an explanation."""

_MORE = "--more: kernels, all causes, metrics, the model and the advice of these layers."

_FINDINGS = 3
"""Findings of the rules on either side, in the short forms."""

_ATTRIBUTION_WIDTH = 520
_SIDES = {"baseline": "−", "target": "+", "both": "="}


def why_section(pairs: Iterable[Pair], title: str, lead: str, *, several: bool) -> Section | None:
    """Return why one side of every pair is slower; None without pairs.

    Parameters
    ----------
    pairs
        What was explained.
    title, lead
        Of the section.
    several
        Whether the page shows more than one condition, so that a label must say which.
    """
    panels = []
    for pair in pairs:
        explanation = pair.explanation
        label = f"{explanation.target} against {explanation.baseline}"
        at = "" if pair.label == EVERY_RUN else pair.label
        if several and at:
            label = f"{pair.label}: {label}"
        differing = [each for each in explanation.details if each.time.verdict != "no difference"]
        layers: list[Block] = [
            layer_section(detail, explanation, rows=pair.rows, at=at) for detail in differing
        ]
        nothing = Text("No layer is explained in detail: none of them differs.")
        panels.append(
            section(
                label,
                *(layers or [nothing]),
                Notices(sentences_of(explanation.warnings), "this comparison"),
                *time_texts(explanation.further_notes),
                summary=f"all layers of both together: {explanation.headline}",
            )
        )
    blocks = Panels("pair", tuple(panels))
    return section(title, blocks, anchor="why", link="Why", lead=lead) if panels else None


def explanation_document(explanation: Explanation) -> Document:
    """Return one explanation with all that is known of it, layer by layer."""
    title = f"{explanation.target} against {explanation.baseline}"
    overview = section(
        f"{title}, all layers of both",
        *(Text(text) for text in explanation.pairing),
        layers_table(explanation, by_share=True),
        *(Text(text) for text in (undecided_note(explanation), *layers_alone(explanation)) if text),
        *time_texts(explanation.further_notes),
        summary=_of_layers(explanation),
    )
    layers = (layer_section(each, explanation, evidence=True) for each in explanation.details)
    return Document(title, (*_step(explanation), overview, *layers))


def _step(explanation: Explanation) -> tuple[Section, ...]:
    """Return a step on the clock, where that is known."""
    return () if explanation.step is None else (step_section(explanation.step),)


def _of_layers(explanation: Explanation) -> str:
    """Say what all layers take together, where a step on the clock does not say more."""
    return "" if explanation.step is not None else explanation.headline


def explanation_summary(explanation: Explanation, *, named: bool = False) -> Document:
    """Return what fits on one screen: the layers that matter, their main cause, what to do.

    Parameters
    ----------
    explanation
        Of two sides.
    named
        Somebody asked for these layers: they come first, and of all others only the sum is told.
    """
    title = f"{explanation.target} against {explanation.baseline}"
    table = layers_table(explanation, by_share=True, most=_FIRST_LAYERS)
    # of a single layer the sum of all layers would say everything twice
    single = len(explanation.layers) == 1 == len(explanation.details)
    overview = section(
        "" if single else f"{title}, all layers of both",
        *(Text(text) for text in explanation.pairing),
        *(() if named or single else (table,)),
        *(Text(text) for text in (undecided_note(explanation),) if text and not named),
        *time_texts(explanation.time_notes if single else explanation.further_notes),
        summary="" if single else _of_layers(explanation),
    )
    layers = (
        section(
            f"{title}: {_names(each)}" if single else _names(each),
            *(
                (Text(f"{_capital(each.time.sentence())}."),)
                # the points say the sentence of what does not differ
                if each.time.verdict in ("slower", "faster")
                and (single or (named and each.time.interval))
                else ()
            ),
            main_points(each, explanation, short=place > 0),
        )
        for place, each in enumerate(explanation.details)
    )
    sections = (*layers, overview) if named or single else (overview, *layers)
    return Document(title, (*_step(explanation), *sections, section("", Text(_MORE))))


def _names(detail: LayerDiff) -> str:
    times = " against ".join(micros_alike(detail.time.target_us, detail.time.baseline_us))
    whose = "" if detail.on_the_clock is None else ", kernels alone"
    verdict = f"{detail.time.verdict}{whose}"
    return f"{_aligned(detail)}: {verdict}, {times} ({multiple(detail.time.ratio)})"


def _aligned(detail: LayerDiff) -> str:
    """Name a layer, by both names where it has two."""
    if detail.target_layer == detail.layer:
        return detail.layer
    return f"{detail.layer} -> {detail.target_layer} (aligned: {detail.aligned_by})"


def layers_alone(explanation: Explanation) -> list[str]:
    """Say which layers only one side has."""
    sides = (
        (explanation.baseline, explanation.only_baseline),
        (explanation.target, explanation.only_target),
    )
    return [f"Only in {name}: {listed(layers, 12)}." for name, layers in sides if layers]


def undecided_note(explanation: Explanation) -> str:
    """Say why layers are undecided whose own intervals lie clear of 1; empty without any.

    With few repeats an interval alone is not sure enough to hold for all layers at once
    (`perfml.explain.times.corrected_verdicts`).
    """
    from perfml.explain.times import TOLERANCE

    rows = explanation.layers
    undecided = rows[rows["verdict"] == "undecided"]
    clear = (undecided["low"] > 1 + TOLERANCE) | (undecided["high"] < 1 / (1 + TOLERANCE))
    if not clear.any() or not explanation.details:
        return ""
    repeats = min(explanation.details[0].time.repeats)
    which = f"{int(clear.sum())} of the {count(len(undecided), 'undecided layer')}"
    return (
        f"{which} differ by their own intervals, but not so surely that all verdicts on "
        f"{count(len(rows), 'layer')} hold together (Holm's correction): measure more than "
        f"{count(repeats, 'repeat')} of each side."
    )


def layers_table(
    explanation: Explanation,
    changed: pd.DataFrame | None = None,
    *,
    by_share: bool = False,
    most: int | None = None,
) -> ReportTable:
    """Return the aligned layers: both times, ratio with interval, verdict, share.

    Parameters
    ----------
    explanation
        Of two sides.
    changed
        Metrics that changed beyond their noise (``layer, metric``), for a column of them.
    by_share
        Put the layers first that make most of the difference.
    most
        Rows in the short forms.
    """
    rows = explanation.layers
    if by_share:
        rows = rows.sort_values("share", ascending=False, kind="stable")
    cells = []
    for row in rows.to_dict("records"):
        layer, partner = str(row["layer"]), str(row["target_layer"])
        known = row["low"] == row["low"]
        bounds = "no interval"
        if known:
            bounds = f"{ratio_text(float(row['low']))}–{ratio_text(float(row['high']))}"
        line = [
            Cell(layer, f"{partner}, aligned by {row['aligned_by']}" if partner != layer else ""),
            amount(float(row["baseline_us"])),
            amount(float(row["target_us"])),
            Cell(f"{ratio_text(float(row['ratio']))}×", bounds, float(row["ratio"])),
            Cell(str(row["verdict"]), strong=row["verdict"] in ("slower", "faster")),
            share(float(row["share"]), bar=float(row["share"])),
        ]
        if changed is not None:
            names = [str(name) for name in changed.loc[changed["layer"] == layer, "metric"]]
            line.append(Cell(str(len(names)), value=float(len(names)), fold=", ".join(names)))
        cells.append(line)
    columns = (
        *words("layer"),
        *numbers(f"{explanation.baseline}, µs", f"{explanation.target}, µs", "ratio"),
        *words("verdict"),
        *numbers("share of difference", *(["metrics changed"] if changed is not None else [])),
    )
    caption = f"Times of every layer: {explanation.target} against {explanation.baseline}"
    return ReportTable(
        caption, columns, cells, title="Every layer", most=most, spare=("metrics changed",)
    )


def why_sentence(pair: Pair, of: str | None = None) -> Sentence | None:
    """Say what the largest difference of a pair is made of.

    Parameters
    ----------
    pair
        What was explained.
    of
        Beginning of the sentence; the condition without.

    Returns
    -------
    Sentence or None
        Likely where the counters split at least half of the difference and nothing contradicts
        them, else open; None where no difference was explained.
    """
    explanation = pair.explanation
    details = [each for each in explanation.details if each.time.verdict in ("slower", "faster")]
    if not details:
        return None
    first = details[0]
    where = "" if pair.label == EVERY_RUN else f"At {pair.label}, "
    where = where if of is None else of
    times = f"{micros(first.time.target_us)} against {micros(first.time.baseline_us)}"
    text = (
        f"{where}{explanation.target} differs most from {explanation.baseline} on {first.layer}: "
        f"{times} ({multiple(first.time.ratio)})"
    )
    causes = main_causes(first)
    if not causes:
        return Sentence("why", "open", f"{text}; no counter splits the difference.")
    sizes = [(abs(total.log_ratio), total.term.residual) for total in first.causes.totals]
    split = sum(size for size, residual in sizes if not residual)
    untold = first.causes.untold
    likely = split >= sum(size for size, _ in sizes) / 2 and not first.disagreements
    likely = likely and untold is None
    text = f"{text}. By the counters: {listed(causes)}."
    if untold is not None:
        text = f"{text} But perfml {untold.sentence()}."
    return Sentence("why", "likely" if likely else "open", text)


def main_causes(detail: LayerDiff) -> list[str]:
    """Return the largest causes, with their factors."""
    totals = detail.causes.totals
    least = _MAIN * sum(abs(total.log_ratio) for total in totals)
    main = [total for total in totals if abs(total.log_ratio) >= least > 0]
    return [f"{total.term.label} {factor_text(total.factor)}" for total in main]


def layer_section(
    detail: LayerDiff,
    explanation: Explanation,
    *,
    rows: pd.DataFrame | None = None,
    at: str = "",
    evidence: bool = False,
) -> Section:
    """Return what is known of one layer.

    Parameters
    ----------
    detail
        The layer.
    explanation
        That it is a part of.
    rows
        The Layers rows of both sides, to draw their stall reasons.
    at
        Precision, batch and what else both sides have in common, for captions.
    evidence
        Show the single kernels' causes, the model's numbers and the advice, too.
    """
    name = _aligned(detail)
    missing = "; ".join(detail.causes.missing)
    metrics = metrics_table(detail, explanation)
    blocks: list[Block | None] = [
        Points(_reasons(detail)) if _reasons(detail) else None,
        Notices(sentences_of(detail.warnings), "this layer"),
        _disagreements(detail),
        _pictures(detail, f"{name}, {at}," if at else name),
        None if rows is None else _stalls(detail, rows, at),
        causes_table(detail),
        _lines(detail),
        _cures(detail),
        _kinds(detail),
        pieces_table(detail) if evidence else None,
        Text(f"Not collected: {missing}.", note=True) if missing else None,
        launches_table(detail, explanation),
    ]
    if evidence and detail.model is not None:
        blocks += [model_table(detail.model), Text(_model_caption(detail.model))]
    blocks.append(None if metrics is None else Fold(metrics.heading, (metrics,), page_only=False))
    if evidence and metrics is None:
        blocks.append(Text("No metric changed beyond its noise."))
    if evidence:
        blocks.append(_advice(detail))
    return section(name, *blocks, summary=detail.time.sentence())


_WHICH_TO_BELIEVE = (
    "Believe the counters for this layer: they were measured on it. The model is fitted to all "
    "layers, and knows only the metrics that it was given."
)


def _disagreements(detail: LayerDiff) -> Block | None:
    if detail.disagreements:
        points = (*detail.disagreements, _WHICH_TO_BELIEVE)
        return Points(points, "Where the evidence disagrees")
    if detail.model is None:
        return None
    return Text("Causes and model do not contradict each other by perfml's rules.", note=True)


def _pictures(detail: LayerDiff, name: str) -> Pictures | None:
    caption = (
        f"By the counters: what makes {name} differ. A kernel's work is that of the unit which "
        "limits it."
    )
    pictures = [(detail.causes.terms, caption)]
    if detail.model is not None:
        pictures.append((detail.model.values, _model_caption(detail.model)))
    drawn = tuple(
        Picture(
            "Bars of factors; the table below has its numbers",
            caption,
            functools.partial(_draw_attribution, terms),
        )
        for terms, caption in pictures
        # two sides that do not differ have no terms
        if (terms["log_ratio"].abs() > SMALLEST).any()
    )
    return Pictures(drawn) if drawn else None


def _draw_attribution(terms: pd.DataFrame, width: int) -> Axes:
    return figures.attribution(terms, width=min(width, _ATTRIBUTION_WIDTH))


def _model_caption(found: ModelAttribution) -> str:
    text = f"By a model ({model(found.model)}, exact Shapley values)"
    if found.held_out_errors is None:
        return f"{text}; its error on this layer is unknown: too few other layers."
    before, after = found.held_out_errors
    return (
        f"{text}; fitted without this layer it is off by {percent(abs(before))} on the baseline "
        f"and by {percent(abs(after))} on the target."
    )


def _stalls(detail: LayerDiff, rows: pd.DataFrame, at: str) -> Pictures | None:
    chosen = rows[rows["layer"].isin([detail.layer, detail.target_layer])]
    if not len(stall_shares(chosen).columns):
        return None
    names = [str(name) for name in dict.fromkeys(chosen["backend"])]
    where = f", {at}" if at else ""
    caption = f"Why the warps of {detail.layer} waited, under {listed(names)}{where}."
    draw = functools.partial(_draw_stalls, chosen)
    return Pictures((Picture("Stacked bars of stall reasons", caption, draw),))


def _draw_stalls(rows: pd.DataFrame, width: int) -> Axes:
    return figures.stall_breakdown(rows, width=width)


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
                Cell(f"{_SIDES[str(row['side'])]}\u00a0{row['change']}", note),
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
    shown = [total for total in totals if abs(total.log_ratio) >= PIECE]
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


def _cures(detail: LayerDiff) -> Points | None:
    """Say what helps against the main cause; None where no counter names one."""
    from perfml.explain.tree.sentences import sided_causes

    title = "What to do (open: the evidence disagrees)" if detail.disagreements else "What to do"
    if detail.fix is not None:
        told = detail.fix.sentence().removeprefix("what to do ")
        return Points((_capital(told),), title, "advised")
    causes, _ = sided_causes(detail.time, detail.causes)
    main = [total.term for total in causes if not total.term.residual][:_CURES]
    if detail.time.verdict != "slower" or not main:
        return None
    return Points(tuple(f"{term.label}: {term.action}" for term in main), title, "advised")


def _lines(detail: LayerDiff) -> Points | None:
    """Say which instructions carry the causes; None where no report tells."""
    labels = {total.term.id: total.term.label for total in detail.causes.totals}
    told = tuple(f"{labels[line.term]}: {line.sentence()}" for line in detail.lines)
    return Points(told, "Where", "advised") if told else None


def _reasons(detail: LayerDiff) -> tuple[str, ...]:
    """Return the causes in sentences; what to do stands by itself."""
    told = None if detail.fix is None else detail.fix.sentence()
    return tuple(each for each in detail.reasons if each != told)


def _capital(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"


def _kinds(detail: LayerDiff) -> Text | None:
    """Say the causes summed up by what they are about, those that matter."""
    from perfml.explain.tree.causes import Kind

    kinds = [
        f"{'unexplained' if kind == Kind.RESIDUAL else kind} {factor_text(math.exp(value))}"
        for kind, value in detail.causes.by_kind.items()
        if f"{math.exp(value):.2f}" != "1.00"
    ]
    if not kinds:
        return None
    return Text(f"By kind, as factors on the time: {', '.join(kinds)}.", note=True)


def pieces_table(detail: LayerDiff) -> ReportTable | None:
    """Return the causes of single kernels, with the numbers they come from."""
    pieces = detail.causes.by_kernel
    size = pieces["log_ratio"].abs()
    order = size[size >= PIECE].sort_values(ascending=False, kind="stable").index
    if order.empty:
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
        for row in pieces.loc[order].to_dict("records")
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


def _advice(detail: LayerDiff) -> Block:
    """Return the rules' findings of both sides, those with the largest likely saving first."""
    if detail.advice.empty:
        return Text("Advice: no rule finds a hazard on either side.")
    title = "Advice (at most so much of the layer's time; gains do not add up)"
    place = detail.advice.groupby("side", sort=False).cumcount()
    first, later = detail.advice[place < _FINDINGS], detail.advice[place >= _FINDINGS]
    return findings_table(pd.concat([first, later]), title, first="side", most=len(first))
