"""The verb report: one page with the answer, its evidence and its provenance."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perfml.cli.complete import datasets
from perfml.cli.dataset import (
    Dataset,
    KernelPattern,
    Seed,
    Skip,
    Where,
    by_kernel,
    launches_behind,
    paired,
    read,
    read_both,
    side_names,
)
from perfml.cli.output import Json, Output, Quiet, Verbose
from perfml.errors import PerfmlError

if TYPE_CHECKING:
    from perfml.report.document import Document


class Form(StrEnum):
    """What a report is written as."""

    html = "html"
    md = "md"


def register(app: typer.Typer) -> None:
    """Add this room's verb to the command line."""
    app.command()(report)


def report(
    dataset: Dataset,
    other: Annotated[
        str | None,
        typer.Argument(help="A second dataset: the page compares both.", autocompletion=datasets),
    ] = None,
    kernel: KernelPattern = None,
    skip: Skip = 0,
    kernels: Annotated[
        Path | None, typer.Option(help="The Kernels table, to show the kernels of each layer.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="The file to write; report.html (or report.md) without.")
    ] = None,
    form: Annotated[
        Form | None,
        typer.Option("--format", help="html, or md for a pull request; by the name of --out."),
    ] = None,
    splits: Annotated[int, typer.Option(min=2, help="Random splits.")] = 5,
    resamples: Annotated[int, typer.Option(min=2, help="Bootstrap resamples.")] = 20,
    title: Annotated[str | None, typer.Option(help="Heading of the report.")] = None,
    where: Where = None,
    seed: Seed = 0,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Write one HTML file: the answer, its evidence, its provenance.

    With a second dataset the page compares both: times, what changed, and why. A name ending in
    .md, or --format md, gives Markdown for a pull request.

    Example: perfml report layers.parquet --kernels kernels.parquet --out report.html;
    perfml report before.parquet after.parquet --out comparison.html
    """
    out_ = Output(as_json, quiet, verbose)
    markdown = form is Form.md or (form is None and out is not None and out.suffix == ".md")
    if out is None:
        out = Path("report.md" if markdown else "report.html")
    out_.place(out)
    if form is None and out.suffix not in ("", ".html", ".htm", ".md"):
        msg = f"a report is HTML or Markdown, and {out.suffix} promises something else"
        raise PerfmlError(msg, where=str(out), cure="End the name in .html or .md.")
    if other is not None:
        if kernels is not None:
            msg = "two datasets bring their own kernels"
            raise PerfmlError(msg, cure="Leave out --kernels, or compare Kernels tables.")
        _compare(
            out_,
            (dataset, other),
            where,
            out,
            kernel=kernel,
            skip=skip,
            markdown=markdown,
            title=title,
            seed=seed,
        )
        return
    from perfml.datasets import read_given
    from perfml.report.write import analysed

    found = read(dataset, out_, where, kernel, skip)
    given = by_kernel(found, out_, repeats=False)
    layers = given.layers if found.ranged else found.kernel_layers
    with out_.progress("analysing") as progress:
        document, warnings = analysed(
            layers,
            launches_behind(given, kernels, where),
            provenance=given.provenance,
            recorded=read_given(dataset).layers if where and found.ranged else None,
            splits=splits,
            resamples=resamples,
            seed=seed,
            title=title,
            progress=progress,
        )
    for warning in warnings:
        out_.warn(warning)
    _write(out_, out, document, markdown=markdown, warnings=warnings)


def _compare(
    out_: Output,
    datasets: tuple[str, str],
    where: list[str] | None,
    out: Path,
    *,
    kernel: str | None,
    skip: int,
    markdown: bool,
    title: str | None,
    seed: int,
) -> None:
    from perfml.report import build_comparison

    with out_.progress("comparing") as progress:
        pair = read_both(datasets, out_, where, ((kernel, skip), (kernel, skip)))
        names = side_names(pair)
        given = paired(names, pair, out_)
        sides, provenance = [], []
        for name, each in zip(names, given, strict=True):
            sides.append((name, each.layers, each.kernels))
            provenance.append(each.provenance)
        document = build_comparison(
            sides[0],
            sides[1],
            provenance=(provenance[0], provenance[1]),
            seed=seed,
            title=title,
            progress=progress,
        )
    _write(out_, out, document, markdown=markdown)


def _write(
    out_: Output, out: Path, document: Document, *, markdown: bool, warnings: Sequence[str] = ()
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
            f"{place}. {each.title}: {each.gain} ({each.sure})",
            *([f"   {each.text}"] if place == 1 else ()),
            *(f"   {line}" for line in each.command.splitlines()),
        )
    ]
    out_.result(
        {"out": str(out), "bytes": len(text.encode()), "summary": lines, "warnings": warnings},
        [*(short if short and not out_.verbose else lines), f"Report: {out.resolve()}"],
    )
