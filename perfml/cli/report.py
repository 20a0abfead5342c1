"""The verbs report and plot: one page with the answer and its evidence; one figure in one file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perfml.cli import options
from perfml.cli.output import Output
from perfml.cli.verb import read, verb
from perfml.datasets import Selection
from perfml.errors import PerfmlError

if TYPE_CHECKING:
    import pandas as pd

    from perfml.datasets import Inputs
    from perfml.report.document import Document


_ENDINGS = ("", ".html", ".htm", ".md")


@verb("dataset", "other", "ranks", "kernel", "kernel_b", "skip", "launches", "layer_map", "where")
def report(
    selection: Selection,
    output: Output,
    out: options.OptionalOut = None,
    form: options.Format = None,
    models: Annotated[
        bool, typer.Option("--models", help="Train models: a ranking of the metrics, scores.")
    ] = False,
    seed: options.Seed = 0,
) -> None:
    """Write one HTML file: the answer, its evidence, its provenance.

    With a second dataset the page compares both: times, what changed, and why. Three or more are
    traces of the ranks of one job: the page says which rank the others wait for. A name ending in
    .md, or --format md, gives Markdown for a pull request. It is report.html where --out names
    nothing else.

    Example: perfml report layers.parquet --launches kernels.parquet --out report.html;
    perfml report before.parquet after.parquet --out comparison.html;
    perfml report rank0.json.gz rank1.json.gz rank2.json.gz
    """
    if form not in (None, "html", "md"):
        msg = "a report is HTML or Markdown"
        raise PerfmlError(msg, where="--format", found=str(form), cure="Choose html or md.")
    markdown = form == "md" or (form is None and out is not None and out.suffix == ".md")
    out = out or Path("report.md" if markdown else "report.html")
    output.place(out)
    require_own(out)
    if form is None and out.suffix not in _ENDINGS:
        msg = f"a report is HTML or Markdown, and {out.suffix} promises something else"
        raise PerfmlError(msg, where=str(out), cure="End the name in .html or .md.")
    compares = len(selection.inputs) == 2
    with output.progress("comparing" if compares else "analysing") as progress:
        if compares:
            from perfml.explain.load import load_sides
            from perfml.report import build_comparison

            inputs = read(selection, output)
            sides = load_sides(inputs)
            for sentence in sides.alignment.said if sides.alignment else ():
                output.warn(sentence)
            document = build_comparison(
                *sides.tables,
                provenance=(inputs.tables[0].provenance, inputs.tables[1].provenance),
                model="gbr" if models else None,
                seed=seed,
                progress=progress,
            )
            warnings: Sequence[str] = ()
        else:
            from perfml.explain.reports import reports_behind
            from perfml.report.write import analysed

            given = read(selection, output, in_layers=True).first
            launches = given.in_layers.kernels
            document, warnings = analysed(
                given.reported_layers,
                launches,
                provenance=given.provenance,
                recorded=_all_conditions(selection) if given.ranged else None,
                models=models,
                seed=seed,
                reports=reports_behind(given, launches),
                progress=progress,
            )
    output.warn_all(warnings)
    _write(output, out, document, markdown=markdown, warnings=warnings)


_OWN = re.compile(rb'<meta name="generator" content="perfml |\nperfml \d\S*\s*\Z')
"""What a page and what Markdown of perfml hold."""


def require_own(out: Path) -> None:
    """Raise `PerfmlError` if a file would be replaced that is no report of perfml."""
    if not out.is_file() or not out.stat().st_size:
        return
    if not _OWN.search(out.read_bytes()):
        msg = "this file exists, and is no report of perfml"
        cure = "Name another file with --out, or delete this one."
        raise PerfmlError(msg, where="--out", found=str(out), cure=cure)


def _all_conditions(selection: Selection) -> pd.DataFrame | None:
    """Return the layers under all recorded conditions, where only some were chosen."""
    if not selection.where:
        return None
    from perfml.datasets import read_inputs

    return read_inputs(replace(selection, where=())).first.layers


def _write(
    output: Output, out: Path, document: Document, *, markdown: bool, warnings: Sequence[str]
) -> None:
    from perfml.report.labels import clean
    from perfml.report.write import rendered
    from perfml.tables import replacing

    text = rendered(document, markdown=markdown)
    with replacing(out) as temporary:
        temporary.write_text(text, encoding="utf-8")
    lines = [clean(line) for line in document.lines]
    steps = [] if document.answer is None else document.answer.first
    short = [
        clean(line)
        for place, each in enumerate(steps, start=1)
        for line in (
            f"{place}. {each.title}: {each.gain} ({each.confidence})",
            *([f"   {each.text}"] if place == 1 else ()),
            *(f"   {line}" for line in each.command.splitlines()),
        )
    ]
    output.result(
        {"out": str(out), "bytes": len(text.encode()), "summary": lines, "warnings": warnings},
        [*(short if short and not output.verbose else lines), f"Report: {out.resolve()}"],
    )


FORMATS = ("png", "svg", "pdf")

_DPI = 144
"""Of PNG: two pixels a point."""


Figure = StrEnum(
    "Figure",
    "times kernels importances models ranks tree predictions roofline stalls ratios attribution",
)
"""What can be drawn; `perfml.report.figures.registry.PLOTS` has the same names."""


@verb("layer", "baseline", "target", "kernel", "skip", "launches", "layer_map", "where")
def plot(
    selection: Selection,
    output: Output,
    figure: Annotated[
        Figure | None,
        typer.Argument(help="Which one, such as times; --list describes all."),
    ] = None,
    dataset: Annotated[
        list[str] | None,
        typer.Argument(
            help="Profiles, runs, tables, dataset.csv, or datasets' names; of several, the "
            "backends are named after their table.",
            autocompletion=options.datasets,
        ),
    ] = None,
    show: Annotated[bool, typer.Option("--list", help="Describe the figures.")] = False,
    out: options.OptionalOut = None,
    predict: Annotated[options.Predicted | None, options.PREDICT] = None,
    model: options.Model = None,
    method: options.Method = None,
    protocol: Annotated[str | None, options.PROTOCOL] = None,
    splits: Annotated[int | None, options.SPLITS] = None,
    resamples: Annotated[int | None, options.RESAMPLES] = None,
    top: Annotated[int | None, options.TOP] = None,
    seed: options.Seed = 0,
) -> None:
    """Draw one figure of one or more datasets into a file.

    A .png, .svg or .pdf file: FIGURE.png where --out names none.

    Example: perfml plot times h200-yolov4-tiny --where batch=1 --out times.svg;
    perfml plot kernels kernels.parquet --layer conv_03 --out kernels.png
    """
    if show:
        _describe(output)
        return
    if figure is None or not dataset:
        msg = f"plot needs a figure ({', '.join(Figure)}) and a dataset; see perfml plot --list."
        raise typer.BadParameter(msg)
    if predict is not None and options.target_of(predict) != "time":
        msg = "figures are of the time or of the backend"
        raise PerfmlError(msg, where="--predict", found=predict, cure="Choose time or backend.")
    target_file = _file(figure, out)
    output.place(target_file)
    from perfml.datasets.choosing import layers_named
    from perfml.report.figures.registry import Request, draw_plot

    inputs = read(replace(selection, names=tuple(dataset)), output, in_layers=True)
    layers = layers_named(inputs.first.in_layers.layers, selection.layers)
    asked = {
        "layer": options.only_one("--layer", layers),
        "baseline": selection.baseline,
        "target": selection.target,
        "task": predict and options.task_of(predict),
        "model": model,
        "method": method,
        "protocol": protocol,
        "splits": splits,
        "resamples": resamples,
        "top": top,
        "seed": seed or None,
    }
    table, launches = _tables(inputs)
    with output.progress("drawing") as progress:
        ax = draw_plot(figure.value, Request(table, launches, asked, progress))
        _save(ax, target_file)
    document = {
        "figure": figure.value,
        "datasets": list(dataset),
        "out": str(target_file),
        "bytes": target_file.stat().st_size,
    }
    output.result(document, [f"Figure: {target_file.resolve()}"])


def _describe(output: Output) -> None:
    from perfml.report.figures.registry import PLOTS, flag, options_of, shown_by

    rows = [(name, shown_by(name), ", ".join(map(flag, options_of(name))) or "-") for name in PLOTS]
    columns = ["figure", "what it shows", "options"]
    keys = ("figure", "what", "options")
    output.result({"figures": [dict(zip(keys, row, strict=True)) for row in rows]})
    output.table(columns, rows)


def _file(figure: Figure, out: Path | None) -> Path:
    found = Path(f"{figure.value}.png") if out is None else out
    if found.suffix.lower().removeprefix(".") not in FORMATS:
        msg = "a figure is written as .png, .svg or .pdf"
        raise PerfmlError(
            msg, where=str(found), found=found.suffix or "no suffix", cure="Name it FILE.png."
        )
    return found


def _tables(inputs: Inputs) -> tuple[pd.DataFrame, pd.DataFrame | None]:
    """Return the rows of every input, and the launches behind them."""
    import pandas as pd

    from perfml.explain.compared import make_side
    from perfml.report.figures.registry import named_apart

    given = [table.in_layers for table in inputs.tables]
    sides = [make_side(each.name, each.layers, each.kernels) for each in given]
    tables = named_apart([side.layers for side in sides], inputs.names)
    launches = named_apart([side.kernels for side in sides], inputs.names)
    behind = [launch for launch in launches if launch is not None]
    return pd.concat(tables, ignore_index=True) if len(tables) > 1 else tables[0], (
        pd.concat(behind, ignore_index=True) if behind else None
    )


def _save(ax: Any, path: Path) -> None:
    from perfml.tables import replacing

    form = path.suffix.lower().removeprefix(".")
    # without a date, the same table gives the same file
    metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(form)
    with replacing(path) as temporary:
        ax.figure.savefig(temporary, format=form, dpi=_DPI, metadata=metadata)
