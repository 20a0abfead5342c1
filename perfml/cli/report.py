"""The verb report: one page with the answer, its evidence and its provenance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perfml.cli import options
from perfml.cli.options import Form
from perfml.cli.output import Output
from perfml.cli.reading import read
from perfml.cli.verb import verb
from perfml.datasets import Selection
from perfml.errors import PerfmlError

if TYPE_CHECKING:
    import pandas as pd

    from perfml.report.document import Document

_ENDINGS = ("", ".html", ".htm", ".md")


@verb("dataset", "other", "ranks", "kernel", "kernel_b", "skip", "launches", "layer_map", "where")
def report(
    selection: Selection,
    output: Output,
    out: options.OptionalOut = None,
    form: options.Format = None,
    splits: options.Splits = 5,
    resamples: options.Resamples = 20,
    title: Annotated[str | None, typer.Option(help="Heading of the report.")] = None,
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
    if form not in (None, Form.html, Form.md):
        msg = "a report is HTML or Markdown"
        raise PerfmlError(msg, where="--format", found=str(form), cure="Choose html or md.")
    markdown = form is Form.md or (form is None and out is not None and out.suffix == ".md")
    out = out or Path("report.md" if markdown else "report.html")
    output.place(out)
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
                seed=seed,
                title=title,
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
                splits=splits,
                resamples=resamples,
                seed=seed,
                title=title,
                reports=reports_behind(given, launches),
                progress=progress,
            )
    output.warn_all(warnings)
    _write(output, out, document, markdown=markdown, warnings=warnings)


def _all_conditions(selection: Selection) -> pd.DataFrame | None:
    """Return the layers under all recorded conditions, where only some were chosen."""
    if not selection.where:
        return None
    from perfml.datasets import read_inputs

    return read_inputs(replace(selection, where=())).first.layers


def _write(
    output: Output, out: Path, document: Document, *, markdown: bool, warnings: Sequence[str]
) -> None:
    from perfml.report.document import in_words
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
            f"{place}. {each.title}: {each.gain} ({in_words(each.sure)})",
            *([f"   {each.text}"] if place == 1 else ()),
            *(f"   {line}" for line in each.command.splitlines()),
        )
    ]
    output.result(
        {"out": str(out), "bytes": len(text.encode()), "summary": lines, "warnings": warnings},
        [*(short if short and not output.verbose else lines), f"Report: {out.resolve()}"],
    )
