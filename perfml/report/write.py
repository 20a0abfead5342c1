"""The report in one call: scores, rankings, causes and advice of a table, written as one page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from perfml.account.ranks import account_in
from perfml.datasets.selection import Source
from perfml.errors import PerfmlError
from perfml.metrics import StudyNote
from perfml.report.build import build_report
from perfml.report.conditions import conditions, named_layers
from perfml.report.document import Document
from perfml.util.files import require_place
from perfml.util.typing import Progress

if TYPE_CHECKING:
    from perfml.explain.lines import SampledLine
    from perfml.explain.reports import Report
    from perfml.explain.speed_of_light import KernelLevels
    from perfml.modeling.results import Evaluation, Ranking

SPLITS, RESAMPLES = 5, 20
"""Random splits and bootstrap resamples of a report, which has to be quick: `perfml.evaluate` and
`perfml.rank` take 20 and 50, and others where asked."""

MOST_ROWS, MOST_LAYERS = 4000, 100
"""With more rows than this, the models of a report learn from this number of whole layers. Each is
left out once, and all of them would take hours, not a minute."""

RANKED_BY = ("builtin", "permutation", "group-permutation")
"""What a report ranks by, which has to be quick."""


def analysed(
    layers: pd.DataFrame,
    kernels: pd.DataFrame | None = None,
    *,
    provenance: Mapping[str, Any] | None = None,
    recorded: pd.DataFrame | None = None,
    models: bool = False,
    seed: int = 0,
    reports: Sequence[Report] = (),
    progress: Progress | None = None,
) -> tuple[Document, list[str]]:
    """Return the report of a Layers table, and which analyses it lacks and why.

    Parameters are those of `report`; `recorded` of `perfml.report.build_report`. `reports` are the
    files of Nsight Compute that the table was read from.
    """
    from perfml.explain.lines import sampled_lines
    from perfml.explain.speed_of_light import is_ordinary, kernel_levels
    from perfml.report.pairs import advise_conditions, explain_pairs

    named_layers(layers)  # what is no Layers table is told here, before anything is computed
    evaluations, rankings, warnings = _modelled(layers, seed, progress) if models else ([], [], [])
    shown = conditions(layers)
    sources = [each for each in (provenance or {}).get("sources", ()) if isinstance(each, Mapping)]
    account = account_in(provenance or {})
    advice = advise_conditions(shown, kernels, sources, account)
    pairs = explain_pairs(
        shown, kernels, model="gbr" if models else None, seed=seed, progress=progress
    )
    known = dict(provenance or {})
    known["warnings"] = [*StudyNote.without(known.get("warnings", ())), *warnings]
    levels: tuple[KernelLevels, ...] = ()
    lines: dict[str, tuple[SampledLine, ...]] = {}
    if kernels is not None and is_ordinary(sources):
        levels = kernel_levels(kernels, sources)
        lines = sampled_lines(kernels, levels, reports)
    document = build_report(
        layers,
        kernels=kernels,
        evaluations=evaluations,
        rankings=rankings,
        pairs=pairs,
        advice=advice,
        provenance=known,
        recorded=recorded,
        levels=levels,
        lines=lines,
    )
    return document, warnings


def _modelled(
    layers: pd.DataFrame, seed: int, progress: Progress | None
) -> tuple[list[Evaluation], list[Ranking], list[str]]:
    """Return the scores and rankings of the models of a table, and which there are not and why."""
    from perfml.modeling.features import has_counters
    from perfml.modeling.layer_shapes import ENOUGH_LAYERS

    if not has_counters(layers):
        return [], [], []
    several = len(layers["backend"].dropna().unique()) > 1
    distinct = int(layers["layer"].nunique()) if "layer" in layers.columns else 0
    tasks = ("regression", "classification") if several else ("regression",)
    if distinct < ENOUGH_LAYERS:
        # a model of so few layers only tells their repeats apart
        number = f"there {'is' if distinct == 1 else 'are'} {distinct}"
        needs = f"it needs {ENOUGH_LAYERS} distinct layers or kernels, and {number}"
        return [], [], [f"no {task} analysis: {needs}" for task in tasks]
    from perfml.modeling import evaluate, rank  # what loads scikit-learn, which takes a second

    evaluations, rankings, warnings = [], [], []
    learnt = _learnt(layers, seed)
    if len(learnt) < len(layers):
        warnings.append(
            f"models are fitted to {learnt['layer'].nunique():,} of {distinct:,} layers, drawn at "
            "random: all of them would take hours. perfml train and perfml rank take all; --where "
            "workload=NAME reports on one network"
        )
    for task in tasks:
        words: dict[str, Any] = {"task": task, "seed": seed, "progress": progress}
        try:
            scored = evaluate(learnt, splits=SPLITS, average=True, quick=True, **words)
            evaluations.append(scored)
            ranking = {"resamples": RESAMPLES, "methods": RANKED_BY, "leakage": scored.leakage}
            rankings.append(rank(learnt, **ranking, **words))
        except PerfmlError as error:
            # too few layers to learn from is no reason to withhold the times
            warnings.append(f"no {task} analysis: {error.what}")
    return evaluations, rankings, warnings


def _learnt(layers: pd.DataFrame, seed: int) -> pd.DataFrame:
    """Return the rows that models learn from: all, or those of some whole layers of many."""
    if len(layers) <= MOST_ROWS or "layer" not in layers.columns:
        return layers
    keys = [name for name in ("workload", "layer") if name in layers.columns]
    code = layers.groupby(keys, sort=False, dropna=False).ngroup().to_numpy()
    order = np.random.default_rng(seed).permutation(code.max() + 1)
    rows = np.bincount(code)[order].cumsum()
    few_enough = int(np.searchsorted(rows, MOST_ROWS, side="right"))
    chosen = order[: min(max(1, few_enough), MOST_LAYERS)]
    return layers[np.isin(code, chosen)]


def report(
    data: pd.DataFrame | Source,
    other: pd.DataFrame | Source | None = None,
    *,
    out: str | Path | None = "report.html",
    kernels: pd.DataFrame | None = None,
    models: bool = False,
    seed: int = 0,
    progress: Progress | None = None,
) -> Document:
    """Write one page: what to do first, why one side is slower, which metrics explain the times.

    Parameters
    ----------
    data
        A Layers table, or the name of a profile, a folder, a table or a recorded data set.
    other
        The same, to compare with: `data` is the baseline then, and `kernels` means nothing.
    out
        The file: HTML, or Markdown if its name ends in ``.md``; None writes none.
    kernels
        The Kernels table behind a Layers table, to show the kernels of each layer.
    models
        Train models too: a ranking of the metrics, scores on unseen layers, and a model's view of
        the largest differences. They take longer than all else.
    seed
        Of the models.
    progress
        Called as ``progress(done, total, what)``.

    Returns
    -------
    Document
        What the page says; ``lines`` are its first sentences.

    Raises
    ------
    PerfmlError
        If the data cannot be read or hold no times, or the file cannot be written.

    Examples
    --------
    >>> import perfml
    >>> document = perfml.report("profile.ncu-rep", out="report.html")  # doctest: +SKIP
    >>> document.lines[0]  # doctest: +SKIP
    """
    require_place(None if out is None else Path(out))
    if other is None:
        document = _of_one(data, kernels, models, seed, progress)
    else:
        document = _compared(data, other, models, seed, progress)
    if out is not None:
        from perfml.tables import replacing

        with replacing(Path(out)) as temporary:
            temporary.write_text(rendered(document, markdown=str(out).endswith(".md")), "utf-8")
    return document


def _of_one(
    data: pd.DataFrame | Source,
    kernels: pd.DataFrame | None,
    models: bool,
    seed: int,
    progress: Progress | None,
) -> Document:
    provenance: Mapping[str, Any] = {}
    reports: Sequence[Report] = ()
    if isinstance(data, pd.DataFrame):
        layers = data
    else:
        from perfml.datasets import read_input
        from perfml.explain.reports import reports_behind

        given = read_input(data)
        layers, provenance = given.reported_layers, given.provenance
        kernels = given.in_layers.kernels if kernels is None else kernels
        reports = reports_behind(given, kernels)
    document, _ = analysed(
        layers,
        kernels,
        provenance=provenance,
        models=models,
        seed=seed,
        reports=reports,
        progress=progress,
    )
    return document


def _compared(
    data: pd.DataFrame | Source,
    other: pd.DataFrame | Source,
    models: bool,
    seed: int,
    progress: Progress | None,
) -> Document:
    from perfml.explain.load import inputs_of, load_sides
    from perfml.report.build import build_comparison

    inputs = inputs_of(data, other)
    sides = load_sides(inputs)
    provenance = (inputs.tables[0].provenance, inputs.tables[1].provenance)
    left, right = sides.tables
    return build_comparison(
        left,
        right,
        provenance=provenance,
        model="gbr" if models else None,
        seed=seed,
        progress=progress,
    )


def rendered(document: Document, *, markdown: bool) -> str:
    """Return a document as HTML or Markdown."""
    from perfml.report import to_html, to_markdown

    text: str = to_markdown(document) if markdown else to_html(document)
    return text
