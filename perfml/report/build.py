"""Documents from tables: everything is computed here once, and the sections say it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from perfml.account.phase_times import phase_times
from perfml.account.ranks import account_in, ranks_in, ranks_of_runs
from perfml.account.time_sources import time_note
from perfml.report.conditions import EVERY_RUN, UNNAMED, Condition, conditions
from perfml.report.document import Document
from perfml.report.kernels import pack_kernels
from perfml.report.labels import short_models
from perfml.report.pairs import compare_tables
from perfml.report.results import (
    Pair,
    Results,
    colour_numbers,
    layer_shapes,
    roofs_of,
)
from perfml.report.sections.advice import advice_section
from perfml.report.sections.clock import phases_section, ranks_section
from perfml.report.sections.comparison import comparison_document
from perfml.report.sections.explanation import why_section
from perfml.report.sections.first import answer
from perfml.report.sections.limits import limits_section, lines_section, roofline_section
from perfml.report.sections.models import models_section
from perfml.report.sections.provenance import glossary_section, moment, of_runs, provenance_section
from perfml.report.sections.times import kernels_section, times_section
from perfml.util.words import listed, say

if TYPE_CHECKING:
    from perfml.explain import Advice
    from perfml.explain.advice.finding import Finding
    from perfml.explain.lines import SampledLine
    from perfml.explain.roofs.peaks import Peaks
    from perfml.explain.speed_of_light import KernelLevels
    from perfml.modeling.results import Evaluation, Ranking

Named = tuple[str, pd.DataFrame, pd.DataFrame | None]


def build_report(
    layers: pd.DataFrame,
    *,
    kernels: pd.DataFrame | None = None,
    evaluations: Sequence[Evaluation] = (),
    rankings: Sequence[Ranking] = (),
    pairs: Sequence[Pair] = (),
    advice: Mapping[str, Advice] | None = None,
    peaks: Mapping[str, float] | Peaks | None = None,
    provenance: Mapping[str, Any] | None = None,
    levels: Sequence[KernelLevels] = (),
    lines: Mapping[str, tuple[SampledLine, ...]] | None = None,
    recorded: pd.DataFrame | None = None,
) -> Document:
    """Return a report: the answer, its evidence, its provenance.

    Parameters
    ----------
    layers
        A Layers table.
    kernels
        The Kernels table it was merged from; without it the page has no kernels of a layer.
    evaluations, rankings
        Results of `perfml.modeling.evaluate` and `perfml.modeling.rank`.
    pairs
        Why backends are slower than the fastest one, from `perfml.report.explain_pairs`.
    advice
        What could be done, from `perfml.report.advise_conditions`.
    peaks
        Of the device, for its roofline; what perfml knows of the device without. The section is
        left out where nothing is known.
    provenance
        The table's provenance document. Run manifests in it (``runs``, each with ``layers``)
        give the shapes of the layers.
    levels
        How near each kernel is to its limits (`perfml.explain.speed_of_light`).
    lines
        Lines of the source by samples (`perfml.explain.lines`).
    recorded
        All Layers rows that there are, where the report is of a part: other precisions and
        batches tell what they would give.

    Raises
    ------
    TableError
        If there are no layers, or the table lacks what times need.
    """
    shown = tuple(conditions(layers))
    series = colour_numbers(shown)
    results = Results(
        conditions=shown,
        series=series,
        shapes=layer_shapes(provenance or {}),
        provenance=provenance or {},
        kernels=None if kernels is None else pack_kernels(kernels, shown, series),
        evaluations=tuple(evaluations),
        rankings=tuple(rankings),
        roofs=roofs_of(shown, peaks),
        pairs=tuple(pairs),
        advice=advice or {},
        levels=tuple(levels),
        lines=lines or {},
        gains=_gains(shown, layers if recorded is None else recorded, provenance or {}),
        phases=() if kernels is None or len(shown) > 1 else phase_times(kernels),
        ranks=ranks_in(provenance or {}) or ranks_of_runs(kernels, _runs(provenance)),
    )
    return report_document(results)


def _gains(
    shown: Sequence[Condition], recorded: pd.DataFrame, provenance: Mapping[str, Any]
) -> tuple[Finding, ...]:
    """Return what other settings give beside the plainest: the smallest batch in FP32."""
    from perfml.explain.advice.settings import setting_gains

    known = [each for each in shown if {"precision", "batch"} <= set(each.key)]
    if not known:
        return ()
    base = min(known, key=lambda each: (each.key["precision"] != "fp32", each.key["batch"]))
    return setting_gains(base.rows, recorded, _runs(provenance))


def _runs(provenance: Mapping[str, Any] | None) -> list[Mapping[str, Any]]:
    return [each for each in (provenance or {}).get("runs", ()) if isinstance(each, Mapping)]


def report_document(results: Results) -> Document:
    """Return the document of a report; sections without results are left out."""
    several = len(results.conditions) > 1
    limits = limits_section(results.levels, results.lines)
    advice = advice_section(results.advice)
    # without ranges a layer is a kernel, whose times are in the table of its limits
    labels = {each.kernel for each in results.levels}
    by_kernel = all(labels.issuperset(each.layers) for each in results.conditions)
    sections = (
        ranks_section(results.ranks),
        limits,
        # beside its bars a report of Nsight Compute has what helps, before all other views
        None if limits is None else advice,
        phases_section(results.phases),
        lines_section(results.lines, results.levels),
        None if by_kernel else times_section(results),
        why_section(
            results.pairs, "Why one backend is slower", say("report.lead.build"), several=several
        ),
        advice if limits is None else None,
        None if results.kernels is None or by_kernel else kernels_section(results.kernels),
        models_section(results),
        roofline_section(results),
        provenance_section(("", of_runs(results.provenance, results.named("run_id")))),
        glossary_section(),
    )
    kept = tuple(section for section in sections if section is not None)
    return Document(_title(results), kept, answer(results), _facts(results))


def _title(results: Results) -> str:
    workloads = results.named("workload")
    workload = listed([*short_models(workloads).values()], 3) or "Layer times"
    device = listed(results.named("device"), 2)
    return f"{workload} on {device}" if device else workload


def _facts(results: Results) -> tuple[tuple[str, str], ...]:
    shown = results.conditions
    labels = "; ".join(condition.label for condition in shown[:4])
    more = f"; {len(shown) - 4} more" if len(shown) > 4 else ""
    repeats = [int(value) for condition in shown for value in condition.times["repeats"]]
    low, high = min(repeats), max(repeats)
    facts = (
        ("device", listed(results.named("device"), 3)),
        ("backends", listed([name for name in results.series if name not in UNNAMED.values()], 8)),
        ("conditions", "" if labels == EVERY_RUN else labels + more),
        ("layers", f"{max(len(condition.layers) for condition in shown):,}"),
        ("repeats", f"{low}" if low == high else f"{low} to {high}"),
        ("times", _time_note(shown)),
        ("ingested", moment(results.provenance.get("created"))),
    )
    return tuple((name, value) for name, value in facts if value)


def _time_note(shown: Sequence[Condition]) -> str:
    """Say in the head that times are a profiler's; what that means is a note of the times."""
    note = time_note(pd.concat([condition.rows for condition in shown]))
    if note is None:
        return ""
    return "from under the profiler" + (", in part" if " rows)" in note else "")


def build_comparison(
    left: Named,
    right: Named,
    *,
    provenance: tuple[Mapping[str, Any], Mapping[str, Any]] = ({}, {}),
    model: str | None = "gbr",
    seed: int = 0,
    progress: Callable[[int, int, str], None] | None = None,
) -> Document:
    """Return two datasets compared.

    Parameters
    ----------
    left, right
        Name, Layers (or Kernels) table, and the Kernels table behind it or None: baseline and
        target.
    provenance
        Of either table.
    model, seed
        As for `perfml.explain.explain`; None leaves the model attribution out.
    progress
        Called as ``progress(done, total, what)``.

    Raises
    ------
    PerfmlError
        If no measurement of one dataset answers to one of the other.
    """
    accounts = (account_in(provenance[0]), account_in(provenance[1]))
    comparisons, left_out = compare_tables(
        left, right, accounts=accounts, model=model, seed=seed, progress=progress
    )
    return comparison_document(comparisons, left_out, provenance)
