"""The page and the Markdown of two datasets compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd

from perfml._version import __version__
from perfml.report import figures
from perfml.report._canvas import PALETTE
from perfml.report._compare import (
    Comparison,
    compare_tables,
    comparison_sentences,
    layers_grid,
    moved_grid,
    verdicts,
)
from perfml.report._labels import clean, count, listed, micros
from perfml.report._page import provenance_section, render
from perfml.report._sections import picture_of, told_warnings
from perfml.report._why import why_section
from perfml.report.html import moment
from perfml.report.markdown import details_of, escape, folded, mark

Named = tuple[str, pd.DataFrame, pd.DataFrame | None]

RULES = {
    "firm": "the repeats of both sides give an interval, and it decides",
    "likely": "metrics moved beyond their noise, or counters split at least half of a difference "
    "and nothing contradicts them",
    "open": "the repeats scatter too much, or there is only one; or the cause is mostly "
    "unexplained or contradicted",
}
"""What the words of certainty mean on a comparison; printed on the page."""


def build_comparison(
    left: Named,
    right: Named,
    *,
    provenance: tuple[Mapping[str, Any], Mapping[str, Any]] = ({}, {}),
    markdown: bool = False,
    model: str | None = "gbr",
    seed: int = 0,
    title: str | None = None,
    progress: Callable[[int, int, str], None] | None = None,
) -> tuple[str, list[str]]:
    """Return two datasets compared as one page, and its answer in sentences.

    Parameters
    ----------
    left, right
        Name, Layers (or Kernels) table, and the Kernels table behind it or None: baseline and
        target.
    provenance
        Of either table.
    markdown
        Write Markdown for a pull request, not HTML.
    model, seed
        As for `perfml.explain.explain`; None leaves the model attribution out.
    title
        Heading; the names of both without.
    progress
        Called as ``progress(done, total, what)``.

    Returns
    -------
    tuple
        The page and the sentences at its top.

    Raises
    ------
    PerfmlError
        If no measurement of one dataset answers to one of the other.
    """
    found, left_out = compare_tables(left, right, model=model, seed=seed, progress=progress)
    first = found[0].pair.explanation
    heading = clean(title, 200) if title else f"{first.target} against {first.baseline}"
    answers = comparison_sentences(found)
    lines = [each.text for each in answers]
    if markdown:
        return _markdown(heading, found, answers, left_out), lines
    names = (first.baseline, first.target)
    palette = {name: PALETTE[place] for place, name in enumerate(names)}
    page = render(
        "comparison.html.j2",
        title=heading,
        facts=_facts(found, names, provenance),
        answers=answers,
        left_out=left_out,
        sure_rules=RULES,
        times=[_times(each, place) for place, each in enumerate(found)],
        why_pairs=[
            why_section(each.pair, place, palette, differing=True)
            for place, each in enumerate(found)
        ],
        moved=[
            {"label": each.pair.label, "grid": grid}
            for each in found
            if (grid := moved_grid(each)) is not None
        ],
        names=names,
        provenance=[
            {"name": name, "warnings": told_warnings(each.get("warnings")), **_origin(each)}
            for name, each in zip(names, provenance, strict=True)
        ],
    )
    return page, lines


def _origin(document: Mapping[str, Any]) -> dict[str, Any]:
    return provenance_section(document)


def _facts(
    found: Sequence[Comparison],
    names: tuple[str, str],
    provenance: tuple[Mapping[str, Any], Mapping[str, Any]],
) -> list[tuple[str, str]]:
    made = [moment(each.get("created")) for each in provenance]
    facts = [
        ("baseline", names[0] + (f", ingested {made[0]}" if made[0] else "")),
        ("target", names[1] + (f", ingested {made[1]}" if made[1] else "")),
        ("compared", listed([each.pair.label for each in found], 4)),
    ]
    return [(name, value) for name, value in facts if value]


def _times(comparison: Comparison, place: int) -> dict[str, Any]:
    explanation = comparison.pair.explanation
    counts = verdicts(comparison)
    total = explanation.total
    longest = max(total.baseline_us, total.target_us)
    bars = [
        {"name": name, "series": at, "total": micros(value), "length": value / longest}
        for at, (name, value) in enumerate(
            ((explanation.baseline, total.baseline_us), (explanation.target, total.target_us))
        )
    ]
    caption = (
        f"Time of {explanation.target} over {explanation.baseline}, {comparison.pair.label}: thick "
        "lines are 95 % intervals from the repeats."
    )
    return {
        "label": comparison.pair.label,
        "bars": bars,
        "sentence": total.sentence(),
        "counts": [(word, amount) for word, amount in counts.items()],
        "picture": picture_of(
            "Chart of time ratios",
            caption,
            f"c{place}",
            lambda width: figures.time_ratios(explanation, width=width),
        ),
        "grid": layers_grid(comparison),
        "alone": [
            (side, listed([clean(name, 80) for name in only], 12))
            for side, only in (
                (explanation.baseline, explanation.only_baseline),
                (explanation.target, explanation.only_target),
            )
            if only
        ],
        "metrics_alone": [
            (side, listed([clean(name, 80) for name in only], 8))
            for side, only in comparison.alone.items()
        ],
        "layers": count(len(explanation.layers), "aligned layer"),
    }


def _markdown(
    heading: str, found: Sequence[Comparison], answers: Sequence[Any], left_out: Sequence[str]
) -> str:
    lines = [f"# {escape(heading)}", ""]
    lines += [f"- {escape(each.text)}{mark(each.sure)}" for each in answers]
    lines += [f"- {escape(text)}" for text in left_out]
    for each in found:
        explanation = each.pair.explanation
        lines += ["", f"## {escape(each.pair.label)}", ""]
        lines += [f"{escape(explanation.total.sentence())}.", ""]
        lines += folded("Every layer", layers_grid(each))
        moved = moved_grid(each)
        if moved is not None:
            lines += ["", *folded("Metrics that moved beyond their noise", moved)]
        lines += details_of(each.pair, differing=True)
        for side, only in (
            (explanation.baseline, explanation.only_baseline),
            (explanation.target, explanation.only_target),
        ):
            if only:
                lines += ["", f"Only in {escape(side)}: {escape(listed(list(only), 12))}."]
        lines += [*([""] if explanation.warnings else [])]
        lines += [f"- {escape(text)}" for text in told_warnings(explanation.warnings)]
    return "\n".join([*lines, "", f"perfml {__version__}"]) + "\n"
