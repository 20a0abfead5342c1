"""The verb explain: why is one side slower than the other."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perfml.cli.complete import backends, datasets, layers
from perfml.cli.dataset import (
    BriefAnswer,
    Dataset,
    KernelPattern,
    PeaksFile,
    Skip,
    launches_behind,
    peaks_given,
    read,
    read_both,
    side_names,
)
from perfml.cli.output import Json, Output, Quiet, Verbose
from perfml.errors import PerfmlError

if TYPE_CHECKING:
    import pandas as pd

    from perfml.datasets import Given
    from perfml.explain.align import Alignment
    from perfml.explain.compared import Side
    from perfml.explain.reports import Report

Choices = tuple[tuple[str | None, int], tuple[str | None, int]]
"""Kernel and launches to skip of either side."""


def register(app: typer.Typer) -> None:
    """Add this room's verb to the command line."""
    app.command()(explain)


def explain(
    dataset: Dataset,
    other: Annotated[
        str | None,
        typer.Argument(help="The target, where the sides are two files.", autocompletion=datasets),
    ] = None,
    kernel: KernelPattern = None,
    kernel_b: Annotated[
        str | None,
        typer.Option(help="The target's kernel, where it is called otherwise than --kernel."),
    ] = None,
    skip: Skip = 0,
    baseline: Annotated[
        str | None,
        typer.Option(help="The side to compare with, such as cublas.", autocompletion=backends),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(help="The side to explain, such as cudnn.", autocompletion=backends),
    ] = None,
    by: Annotated[str, typer.Option(help="Column that tells the sides apart.")] = "backend",
    layer: Annotated[
        list[str] | None,
        typer.Option(help="Explain this layer in detail; repeatable.", autocompletion=layers),
    ] = None,
    top: Annotated[int, typer.Option(min=0, help="Without --layer: so many layers in detail.")] = 3,
    kernels: Annotated[
        Path | None, typer.Option(help="The Kernels table behind a Layers table.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="Model of the model attribution: gbr, dt, lmt, or none. By default gbr; none "
            "where kernels without ranges are compared, which are too few to learn from."
        ),
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(help="Keep rows where COLUMN=VALUE, such as batch=1; repeatable."),
    ] = None,
    tolerance: Annotated[
        float, typer.Option(min=0.0, max=10.0, help="Relative difference that is none.")
    ] = 0.01,
    seed: Annotated[int, typer.Option(help="Seed of the model.")] = 0,
    peaks: PeaksFile = None,
    more: Annotated[
        bool, typer.Option("--more", help="All of it: kernels, causes, metrics, model, advice.")
    ] = False,
    brief: BriefAnswer = False,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Explain why one side is slower than the other.

    One screen; --more shows all of it: kernels, causes by counters, metrics that changed, a
    model's view, and what to do.

    Example: perfml explain before.ncu-rep after.ncu-rep;
    perfml explain A.ncu-rep --kernel naive --kernel-b tiled;
    perfml explain h200-yolov4-tiny --where precision=fp32 --where batch=1 --baseline cublas
    --target cudnn --layer conv_20
    """
    out = Output(as_json, quiet, verbose)
    from perfml.explain import explain as explain_sides
    from perfml.explain.brief import brief_explanation
    from perfml.explain.experiments import with_experiments
    from perfml.explain.lines import with_lines
    from perfml.report.sections.explanation import explanation_document, explanation_summary

    with out.progress("explaining") as progress:
        sides = _sides(
            dataset,
            other,
            out,
            choices=((kernel, skip), (kernel_b or kernel, skip)),
            between=(by, baseline, target),
            kernels=kernels,
            where=where,
        )
        explanation = explain_sides(
            sides.baseline,
            sides.target,
            layers=layer or None,
            top=top,
            model=_model(model, sides.alignment),
            training=sides.training,
            tolerance=tolerance,
            seed=seed,
            peaks=peaks_given(peaks, sides.target.layers),
            alignment=sides.alignment,
            progress=progress,
        )
    explanation = with_experiments(with_lines(explanation, *sides.reports), dataset, other)
    for warning in explanation.warnings:
        out.warn(warning)
    named = [dataset] if other is None else [dataset, other]
    if brief:
        short = brief_explanation(explanation, tuple(named))
        out.result(short.to_dict(), short.lines)
        return
    if more or verbose:
        shown = explanation_document(explanation)
    else:
        shown = explanation_summary(explanation, named=bool(layer))
    out.document({"tables": named, **explanation.to_dict()}, shown)


@dataclass(frozen=True)
class _Sides:
    """What is compared.

    Attributes
    ----------
    baseline, target
        The sides.
    alignment
        Which of their layers answer to each other, if ranges do not tell.
    training
        What the model may learn from besides.
    reports
        The reports behind the baseline and behind the target.
    """

    baseline: Side
    target: Side
    alignment: Alignment | None
    training: pd.DataFrame | None
    reports: tuple[list[Report], list[Report]]


def _model(named: str | None, alignment: Alignment | None) -> str | None:
    """Return the model to fit, or None for none."""
    if named is None:
        return "gbr" if alignment is None else None
    return None if named == "none" else named


def _sides(
    dataset: str,
    other: str | None,
    out: Output,
    *,
    choices: Choices,
    between: tuple[str, str | None, str | None],
    kernels: Path | None,
    where: list[str] | None,
) -> _Sides:
    """Read what was named, and make two sides of it."""
    from perfml.explain.load import given_sides
    from perfml.explain.reports import reports_behind

    if other is None and choices[0] != choices[1]:
        other = dataset  # two kernels of one profile
    if other is None:
        return _of_one(read(dataset, out, where, *choices[0]), between, kernels, where)
    if any(between[1:]) or kernels:
        msg = "two tables are two sides already"
        raise PerfmlError(
            msg, cure="Leave out --baseline, --target and --kernels, or give one table."
        )
    given = read_both((dataset, other), out, where, choices)
    names = side_names(given, *(kernel for kernel, _ in choices))
    left, right, alignment = given_sides(names, given)
    reports = (reports_behind(given[0]), reports_behind(given[1]))
    return _Sides(left, right, alignment, None, reports)


def _of_one(
    given: Given,
    between: tuple[str, str | None, str | None],
    kernels: Path | None,
    where: list[str] | None,
) -> _Sides:
    """Return two sides of one table, told apart by a column."""
    from perfml.explain.compared import require_value, sides_of
    from perfml.explain.pairing import pair_kernels
    from perfml.explain.reports import reports_behind

    by, baseline, target = between
    table = given.table
    if baseline is None or target is None:
        raise _two_needed(given, by)
    if not given.ranged:
        before, after = (require_value(given.timed, by, name) for name in (baseline, target))
        paired = pair_kernels((baseline, before), (target, after), by=by)
        reports = (reports_behind(given, before), reports_behind(given, after))
        return _Sides(paired.baseline, paired.target, paired.alignment, None, reports)
    launches = launches_behind(given, kernels, where)
    left, right = sides_of(table, baseline, target, by=by, kernels=launches)
    reports = (reports_behind(given, left.kernels), reports_behind(given, right.kernels))
    return _Sides(left, right, None, table, reports)


def _two_needed(given: Given, by: str) -> PerfmlError:
    """Return the error that there is one side, with what would make two of it."""
    import pandas as pd

    from perfml.datasets.choosing import named

    frame = given.table
    values = sorted(map(str, frame[by].dropna().unique())) if by in frame.columns else []
    if len(values) > 1:
        msg = "one table needs --baseline and --target"
        return PerfmlError(
            msg,
            found=f"{by}: {', '.join(values[:8])}",
            cure="Name two of these values, or give a second table.",
        )
    names = pd.Series() if given.kernels is None else given.kernels["kernel"].dropna()
    known = list(names.unique())
    ways = ["Give a second file"]
    if len(known) > 1:
        ways.append(f"name two kernels: perfml explain {given.name} --kernel ONE --kernel-b OTHER")
    elif len(names) > 1:
        ways.append(f"two launches: perfml explain {given.name}@0 {given.name}@1")
    msg = "one side alone: there is nothing to compare it with"
    cure = f"{', or '.join(ways)}; perfml advise says what is slow in one."
    return PerfmlError(msg, where=given.name, found=named(known) or None, cure=cure)
