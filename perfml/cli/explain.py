"""The verb explain: why is one side slower than the other."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perfml.cli.complete import backends, datasets, layers
from perfml.cli.dataset import PeaksFile, peaks_given
from perfml.cli.output import Json, Output, Quiet, Verbose
from perfml.errors import PerfmlError

if TYPE_CHECKING:
    import pandas as pd

    from perfml.explain.compared import Side


def register(app: typer.Typer) -> None:
    """Add this room's verb to the command line."""
    app.command()(explain)


def explain(
    dataset: Annotated[
        str,
        typer.Argument(
            help="Kernels or layers table, dataset.csv, or a dataset's name.",
            autocompletion=datasets,
        ),
    ],
    other: Annotated[
        str | None,
        typer.Argument(help="The target, where the sides are two tables.", autocompletion=datasets),
    ] = None,
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
        str, typer.Option(help="Model of the model attribution: gbr, dt, lmt, or none.")
    ] = "gbr",
    where: Annotated[
        list[str] | None,
        typer.Option(help="Keep rows where COLUMN=VALUE, such as batch=1; repeatable."),
    ] = None,
    tolerance: Annotated[
        float, typer.Option(min=0.0, help="Relative difference that is none.")
    ] = 0.01,
    seed: Annotated[int, typer.Option(help="Seed of the model.")] = 0,
    peaks: PeaksFile = None,
    more: Annotated[
        bool, typer.Option("--more", help="All of it: kernels, causes, metrics, model, advice.")
    ] = False,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Explain why one side is slower than the other, on one screen; --more shows all of it.

    Kernels, causes by counters, metrics that changed, a model's view, and what to do.

    Example: perfml explain A.parquet B.parquet;
    perfml explain h200-sweep --where batch=1 --baseline cublas --target cudnn --layer conv_20
    """
    out = Output(as_json, quiet, verbose)
    from perfml.explain import explain as explain_sides
    from perfml.report.sections.explanation import explanation_document, explanation_summary

    with out.progress("explaining") as progress:
        left, right, training = _sides(dataset, other, baseline, target, by, kernels, where)
        explanation = explain_sides(
            left,
            right,
            layers=layer or None,
            top=top,
            model=None if model == "none" else model,
            training=training,
            tolerance=tolerance,
            seed=seed,
            peaks=peaks_given(peaks, right.layers),
            progress=progress,
        )
    for warning in explanation.warnings:
        out.warn(warning)
    named = [dataset] if other is None else [dataset, other]
    shown = explanation_document if more or verbose else explanation_summary
    out.document({"tables": named, **explanation.to_dict()}, shown(explanation))


def _sides(
    dataset: str,
    other: str | None,
    baseline: str | None,
    target: str | None,
    by: str,
    kernels: Path | None,
    where: list[str] | None,
) -> tuple[Side, Side, pd.DataFrame | None]:
    """Return both sides, and what the model may learn from (None: the sides)."""
    from perfml.explain.compared import make_side, sides_of
    from perfml.explain.load import load_tables, only
    from perfml.tables import read_table

    layers, launches = load_tables(dataset, where)
    if other is not None:
        if baseline or target or kernels:
            msg = "two tables are two sides already"
            raise PerfmlError(
                msg, cure="Leave out --baseline, --target and --kernels, or give one table."
            )
        layers_other, launches_other = load_tables(other, where)
        names = [Path(dataset).stem, Path(other).stem]
        if names[0] == names[1]:
            names = [dataset, other]
        return (
            make_side(names[0], layers, launches),
            make_side(names[1], layers_other, launches_other),
            None,
        )
    if baseline is None or target is None:
        values = sorted(map(str, layers[by].dropna().unique())) if by in layers.columns else []
        msg = "one table needs --baseline and --target"
        raise PerfmlError(
            msg,
            found=f"{by}: {', '.join(values[:8])}" if values else None,
            cure="Name two of these values, or give a second table.",
        )
    if kernels is not None:
        launches = only(read_table(kernels, kind="kernels").frame, where, strict=False)
    pair = sides_of(layers, baseline, target, by=by, kernels=launches)
    return (*pair, layers)
