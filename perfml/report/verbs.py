"""Documents of single verbs: what the command line prints of a result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pandas as pd

from perfml.datasets.loading import UNKNOWN
from perfml.report.document import Block, Document, Points, Text, section
from perfml.report.labels import model, protocol
from perfml.report.sections.advice import (
    answer_table,
    more_with_other_sets,
)
from perfml.report.sections.first import error_sentence
from perfml.report.sections.limits import MOST_KERNELS, limits_table
from perfml.report.sections.models import MEANINGS, ranks_table
from perfml.report.tables import frame_table, time_texts
from perfml.util.words import count, number, percent

if TYPE_CHECKING:
    from perfml.explain import Advice
    from perfml.explain.roofs.peaks import Peaks
    from perfml.explain.speed_of_light import KernelLevels
    from perfml.modeling.results import Evaluation, Ranking
    from perfml.modeling.selection.metric_set import MetricSet

_UNDER_ROOFS = (
    "under ncu, µs",
    "L1, FLOP/B",
    "L2, FLOP/B",
    "batch",
    "precision",
    "DRAM, FLOP/B",
    "time, µs",
)
"""What a narrow terminal leaves out of a roofline first."""

_ROOFS = 40
"""Rows of a roofline without -v; of more, those that take longest."""

_LOW = 0.1
"""Fraction of every roof below which something else than a roof is the limit."""


def train_document(evaluation: Evaluation) -> Document:
    """Return the scores of every model under every protocol."""
    found = evaluation.scores
    spread = [
        f"{percent(low, 3)} to {percent(high, 3)}"
        for low, high in zip(found["q025"], found["q975"], strict=True)
    ]
    shown = pd.DataFrame(
        {
            "model": found["model"].map(model),
            "protocol": found["protocol"].map(protocol),
            "mean": found["mean"].map(lambda error: percent(error, 3)),
            "median": found["median"].map(lambda error: percent(error, 3)),
            "95 % of the scores": spread,
            "scores": found["splits"],
            "baseline": found["baseline"],
        }
    )
    scores = frame_table(shown, spare=("scores", "baseline", "95 % of the scores"))
    return _single("Scores", Text(MEANINGS.get(evaluation.task, "The score.")), scores)


def rank_document(ranking: Ranking, top: int, unseen: Evaluation | None = None) -> Document:
    """Return the first metric groups, with intervals and probabilities.

    `top` are rows of its short form; scores of the same models on layers that they never saw are
    told above the list.
    """
    title = f"{ranking.task}: ranking over {ranking.resamples} resamples of {ranking.resampling}"
    score = None if unseen is None else error_sentence(unseen)
    return _single(
        title,
        *(() if score is None else (Text(score.text),)),
        ranks_table(ranking.summary, top),
        Text(" ".join(said for said in (ranking.chance, ranking.tie) if said)),
    )


def select_document(chosen: MetricSet) -> Document:
    """Return the set to collect, what every limit costs, and how stable the choice is."""
    shares = [(name, percent(share)) for name, share in chosen.stability.items()]
    stability = pd.DataFrame(shares, columns=["metric", "share of searches"])
    searches = f"{chosen.searches} searches, each without a part of the layers"
    also = f"In the same passes: {', '.join(chosen.also)}."
    return _single(
        "Metrics to collect",
        Text(chosen.verdict),
        frame_table(chosen.table(), spare=("CUPTI", "ncu", "where chosen", "95 % interval")),
        *([Text(also)] if chosen.also else []),
        *([frame_table(stability, searches)] if len(stability) else []),
    )


def roofline_document(
    rows: pd.DataFrame, peaks: Peaks, *, by_kernel: bool, time_notes: Sequence[str] = ()
) -> Document:
    """Return rows under their device's roofs.

    Rows are from `perfml.explain.roofs.python.usual_roofline`; `time_notes` say what to know of the
    times (`perfml.account.time_sources`).
    """
    from perfml.explain.launches import kernel_label
    from perfml.explain.roofs.by_layer import PIPE

    many = len(rows) > _ROOFS
    rows = rows.sort_values("time_us", ascending=False, kind="stable") if many else rows
    names = [name for name in rows.columns if name not in ("flops", "flops_source", "kernel")]
    shown = [name for name in names if not name.endswith(("_bytes", "_rate"))]
    if by_kernel:
        shown.insert(1, "kernel")
        rows = rows.assign(kernel=[kernel_label(str(name)) for name in rows["kernel"]])
    if len(rows) and (rows["bound"] == UNKNOWN).all() and rows["flop_rate"].notna().any():
        return _arithmetic_rates(rows, peaks, by_kernel=by_kernel, time_notes=time_notes)
    notes = ["FLOP/B: operations a byte of that memory; of the roof: of the one that bounds."]
    if (rows["flops_source"] == PIPE).any():
        notes.append(
            "Tensor cores' operations are not counted: their share is of the pipe's own cycles."
        )
    precision = rows.get("precision", pd.Series("fp32", index=rows.index))
    if (rows["flops_source"].isna() & ~precision.isin(["fp32", "fp64"])).any():
        notes.append(
            "Unknown: collect tensor_cycles_utilization and sm_efficiency (for ncu --metrics: "
            "perfml metrics roofline --request), or give the layers' shapes. Tensor cores' "
            "operations have no counter, and instructions do not tell them."
        )
    if ((rows["bound"] == UNKNOWN) & rows["flops"].notna()).any():
        notes.append(
            "Where operations are known and the bound is not, bytes were not counted (collect "
            "with --metrics roofline)."
        )
    if (rows["flops_source"] == "derived").any():
        notes.append("Operations are derived from rates and cycles: no count was collected.")
    low = int((rows["fraction"] < _LOW).sum())
    if low:
        notes.append(
            f"{low} of {len(rows)} rows reach less than 10 % of every roof. Latency, launches or "
            "too few blocks limit them (perfml advise)."
        )
    blocks = (
        Text(f"Peaks, {peaks.sentence()}"),
        frame_table(
            _with_units(rows[shown]),
            "The longest first" if many else "",
            spare=(*_UNDER_ROOFS, *(("backend",) if by_kernel else ())),
            most=_ROOFS if many else None,
        ),
        Points(tuple(notes)),
    )
    return _single("Roofline", *blocks, *time_texts(time_notes))


_ROOF_HEADS = {
    "time_us": "time, µs",
    "ncu_time_us": "under ncu, µs",
    "dram_intensity": "DRAM, FLOP/B",
    "l2_intensity": "L2, FLOP/B",
    "l1_intensity": "L1, FLOP/B",
    "fraction": "of the roof",
}
"""What people read over the columns of `perfml.explain.roofline`."""


def _with_units(rows: pd.DataFrame) -> pd.DataFrame:
    """Return a roofline's rows as people read them: units in the heads, shares in percent."""
    shown = rows.assign(fraction=rows["fraction"].map(percent))
    for name in set(_ROOF_HEADS) & set(shown.columns) - {"fraction"}:
        shown[name] = shown[name].map(number)
    return shown.rename(columns=_ROOF_HEADS)


def _arithmetic_rates(
    rows: pd.DataFrame, peaks: Peaks, *, by_kernel: bool, time_notes: Sequence[str]
) -> Document:
    """Return what is known where no bytes were counted: the share of the arithmetic peak."""
    names = ("layer", *(("kernel",) if by_kernel else ()), "backend", "precision", "batch")
    shown = rows[[name for name in names if name in rows.columns]].copy()
    precision = rows.get("precision", pd.Series("unknown", index=rows.index)).astype(object)
    peak = precision.map(peaks.values).astype(float)
    shown["time, µs"] = rows["time_us"].map(number)
    rate = rows["flop_rate"].astype(float)  # of some launches it may be missing
    shown["TFLOP/s"] = (rate / 1e12).map(number)
    shown["of the peak"] = (rate / peak).map(percent)
    return _single(
        "Roofline",
        Text(
            "No roofline: the bytes that each memory moved were not counted (collect with "
            "--metrics roofline). What is known is the share of the arithmetic peak."
        ),
        Text(f"Peaks, {peaks.sentence()}"),
        frame_table(shown, spare=("batch", "precision")),
        *time_texts(time_notes),
    )


def advice_document(
    advice: Advice, top: int, *, everything: bool = False, levels: Sequence[KernelLevels] = ()
) -> Document:
    """Return the findings that are expected to save most, and which counters would tell more.

    `top` are findings of its short form; `everything` shows all. `levels` are of an ordinary report
    of Nsight Compute: its kernels and how near they are to limits.
    """
    summary = advice.title
    if advice.below:
        summary += f"; {advice.left_out}"
    caption = "What is expected to save most first (gains do not add up)"
    if all(each.gain is None for each in advice.findings):
        unchecked = len(set(advice.not_checked["rule"])) if len(advice.not_checked) else 0
        caption = "No cause was found"
        if unchecked:
            caption += f"; {count(unchecked, 'cause')} could not be checked"
    limits = (limits_table(levels, None if everything else MOST_KERNELS),) if levels else ()
    shown: Block = Text(f"{caption}.")
    if advice.findings:
        shown = answer_table(advice.findings, caption, None if everything else top)
    more = more_with_other_sets(advice)
    notes = (*time_texts(advice.time_notes), *(() if more is None else (more,)))
    advised = section("Advice", shown, *notes, summary=summary)
    return Document("", (section("", *limits), advised))


def _single(title: str, *blocks: Block) -> Document:
    return Document(title, (section(title, *blocks),))
