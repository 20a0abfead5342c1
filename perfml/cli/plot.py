"""The verb plot: one figure into one file."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perfml.cli.complete import backends, datasets, layers
from perfml.cli.dataset import (
    KernelPattern,
    Seed,
    Skip,
    Where,
    by_kernel,
    launches_behind,
    read_several,
)
from perfml.cli.output import Json, Output, Quiet, Verbose
from perfml.errors import PerfmlError

if TYPE_CHECKING:
    import pandas as pd

FORMATS = ("png", "svg", "pdf")

_DPI = 144
"""Of PNG: two pixels a point."""


class Figure(StrEnum):
    """What can be drawn; `perfml.report.figures.registry.PLOTS` has the same names."""

    times = "times"
    kernels = "kernels"
    importances = "importances"
    models = "models"
    ranks = "ranks"
    tree = "tree"
    predictions = "predictions"
    roofline = "roofline"
    stalls = "stalls"
    ratios = "ratios"
    attribution = "attribution"


def register(app: typer.Typer) -> None:
    """Add this room's verb to the command line."""
    app.command()(plot)


def plot(
    figure: Annotated[
        Figure | None,
        typer.Argument(help="Which one, such as times; --list describes all."),
    ] = None,
    dataset: Annotated[
        list[str] | None,
        typer.Argument(
            help="Profiles, runs, tables, dataset.csv, or datasets' names; of several, the "
            "backends are named after their table.",
            autocompletion=datasets,
        ),
    ] = None,
    show: Annotated[bool, typer.Option("--list", help="Describe the figures.")] = False,
    out: Annotated[
        Path | None, typer.Option(help="A .png, .svg or .pdf file; FIGURE.png without.")
    ] = None,
    layer: Annotated[str | None, typer.Option(help="One layer.", autocompletion=layers)] = None,
    baseline: Annotated[
        str | None, typer.Option(help="Of ratios, attribution.", autocompletion=backends)
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="Of ratios, attribution.", autocompletion=backends)
    ] = None,
    task: Annotated[str | None, typer.Option(help="regression or classification.")] = None,
    model: Annotated[str | None, typer.Option(help="dt, gbr, lmt; or dt, lr, rf.")] = None,
    method: Annotated[
        str | None, typer.Option(help="Of importances: builtin, permutation, ...")
    ] = None,
    protocol: Annotated[
        str | None, typer.Option(help="Of predictions: leave-one-layer-out, random, ...")
    ] = None,
    splits: Annotated[int | None, typer.Option(min=2, help="Random splits.")] = None,
    resamples: Annotated[int | None, typer.Option(min=2, help="Bootstrap resamples.")] = None,
    top: Annotated[int | None, typer.Option(min=1, help="Metrics drawn.")] = None,
    kernel: KernelPattern = None,
    skip: Skip = 0,
    kernels: Annotated[
        Path | None, typer.Option(help="The Kernels table behind a Layers table.")
    ] = None,
    width: Annotated[
        float | None, typer.Option(min=200, max=4000, help="Width in points (1/72 inch).")
    ] = None,
    where: Where = None,
    seed: Seed = 0,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Draw one figure of one or more datasets into a file.

    Example: perfml plot times h200-yolov4-tiny --where batch=1 --out times.svg;
    perfml plot kernels kernels.parquet --layer conv_03 --out kernels.png
    """
    out_ = Output(as_json, quiet, verbose)
    if show:
        _describe(out_)
        return
    if figure is None or not dataset:
        msg = f"plot needs a figure ({', '.join(Figure)}) and a dataset; see perfml plot --list."
        raise typer.BadParameter(msg)
    target_file = _file(figure, out)
    out_.place(target_file)
    asked = {
        "layer": layer,
        "baseline": baseline,
        "target": target,
        "task": task,
        "model": model,
        "method": method,
        "protocol": protocol,
        "splits": splits,
        "resamples": resamples,
        "top": top,
        "seed": seed or None,
    }
    from perfml.report.figures.registry import Request, draw_plot

    table, launches, provenance = _tables(dataset, out_, kernels, where, kernel, skip)
    with out_.progress("drawing") as progress:
        ax = draw_plot(figure.value, Request(table, launches, provenance, asked, width, progress))
        _save(ax, target_file)
    size = target_file.stat().st_size
    document = {
        "figure": figure.value,
        "datasets": list(dataset),
        "out": str(target_file),
        "bytes": size,
    }
    out_.result(document, [f"Figure: {target_file.resolve()}"])


def _describe(out_: Output) -> None:
    from perfml.report.figures.registry import PLOTS

    rows = [
        (name, each.what, ", ".join(f"--{option}" for option in each.options) or "-")
        for name, each in PLOTS.items()
    ]
    columns = ["figure", "what it shows", "options"]
    keys = ("figure", "what", "options")
    out_.result({"figures": [dict(zip(keys, row, strict=True)) for row in rows]})
    out_.table(columns, rows)


def _file(figure: Figure, out: Path | None) -> Path:
    found = Path(f"{figure.value}.png") if out is None else out
    if found.suffix.lower().removeprefix(".") not in FORMATS:
        msg = "a figure is written as .png, .svg or .pdf"
        raise PerfmlError(
            msg, where=str(found), found=found.suffix or "no suffix", cure="Name it FILE.png."
        )
    return found


def _tables(
    datasets: Sequence[str],
    out_: Output,
    kernels: Path | None,
    where: list[str] | None,
    kernel: str | None,
    skip: int,
) -> tuple[pd.DataFrame, pd.DataFrame | None, dict[str, Any]]:
    """Return the rows of every dataset, the launches behind them, and the first provenance."""
    import pandas as pd

    from perfml.explain.compared import make_side
    from perfml.report.figures.registry import named_apart

    read = read_several(datasets, out_, where, kernel, skip)
    given = [by_kernel(each, out_) for each in read]
    sides = [make_side(each.name, each.layers, each.kernels) for each in given]
    tables = [side.layers for side in sides]
    launches = [side.kernels for side in sides]
    if kernels is not None:
        behind = launches_behind(given[0], kernels, where)
        launches = [behind, *[None] * (len(datasets) - 1)]
    names = [Path(each).stem for each in datasets]
    tables = named_apart(tables, names)
    behind_all = [each for each in named_apart(launches, names) if each is not None]
    frame = pd.concat(tables, ignore_index=True) if len(tables) > 1 else tables[0]
    whole = pd.concat(behind_all, ignore_index=True) if behind_all else None
    return frame, whole, given[0].provenance


def _save(ax: Any, path: Path) -> None:
    from perfml.tables import replacing

    form = path.suffix.lower().removeprefix(".")
    # without a date, the same table gives the same file
    metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(form)
    with replacing(path) as temporary:
        ax.figure.savefig(temporary, format=form, dpi=_DPI, metadata=metadata)
