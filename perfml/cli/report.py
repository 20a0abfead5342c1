"""The verb report: one page with the answer, its evidence and its provenance."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perfml.cli.complete import datasets
from perfml.cli.dataset import Dataset, Seed, Where, load_dataset, provenance_of
from perfml.cli.output import Json, Output, Quiet, Verbose
from perfml.errors import PerfmlError

if TYPE_CHECKING:
    import pandas as pd

    from perfml.report.document import Document
    from perfml.tables import Kernels, Table

_SHOWN = ("builtin", "permutation", "group-permutation")
"""What a report ranks by: drop-column takes longest and has no part in the summary."""


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
    splits: Annotated[int, typer.Option(min=2, help="Random splits.")] = 20,
    resamples: Annotated[int, typer.Option(min=2, help="Bootstrap resamples.")] = 50,
    title: Annotated[str | None, typer.Option(help="Heading of the report.")] = None,
    where: Where = None,
    seed: Seed = 0,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Write one self-contained HTML file: the answer, its evidence, its provenance.

    With a second dataset the page compares both: times, what changed, and why. A name ending in
    .md, or --format md, gives Markdown for a pull request.

    Example: perfml report layers.parquet --kernels kernels.parquet --out report.html;
    perfml report before.parquet after.parquet --out comparison.html
    """
    out_ = Output(as_json, quiet, verbose)
    markdown = form is Form.md or (form is None and out is not None and out.suffix == ".md")
    if out is None:
        out = Path("report.md" if markdown else "report.html")
    if other is not None:
        if kernels is not None:
            msg = "two datasets bring their own kernels"
            raise PerfmlError(msg, cure="Leave out --kernels, or compare Kernels tables.")
        _compare(out_, (dataset, other), where, out, markdown=markdown, title=title, seed=seed)
        return
    from perfml.modeling import evaluate
    from perfml.modeling import rank as rank_metrics
    from perfml.report import advise_conditions, build_report, explain_pairs

    raw = _raw(dataset)
    table = load_dataset(dataset, where, out_, None if raw is None else lambda _: _merged(raw))
    launches = _launches(dataset, kernels, where, raw)
    tasks = ["regression"]
    if len(table.frame["backend"].dropna().unique()) > 1:
        tasks.append("classification")
    evaluations, rankings, warnings = [], [], []
    with out_.progress("analysing") as progress:
        for task in tasks:
            try:
                evaluations.append(
                    evaluate(table.frame, task=task, splits=splits, seed=seed, progress=progress)
                )
                rankings.append(
                    rank_metrics(
                        table.frame,
                        task=task,
                        resamples=resamples,
                        seed=seed,
                        progress=progress,
                        methods=_SHOWN,
                    )
                )
            except PerfmlError as error:
                # too few layers to learn from is no reason to withhold the times
                warnings.append(f"no {task} analysis: {error.what}")
    with out_.progress("explaining") as progress:
        pairs = explain_pairs(table.frame, launches, seed=seed, progress=progress)
        advice = advise_conditions(table.frame, launches)
    provenance = dict(table.provenance)
    provenance["warnings"] = [*provenance.get("warnings", []), *warnings]
    for warning in warnings:
        out_.warn(warning)
    document = build_report(
        table.frame,
        kernels=launches,
        evaluations=evaluations,
        rankings=rankings,
        pairs=pairs,
        advice=advice,
        provenance=provenance,
        title=title,
    )
    _write(out_, out, document, markdown=markdown, warnings=warnings)


def _compare(
    out_: Output,
    datasets: tuple[str, str],
    where: list[str] | None,
    out: Path,
    *,
    markdown: bool,
    title: str | None,
    seed: int,
) -> None:
    from perfml.report import build_comparison

    with out_.progress("comparing") as progress:
        names = [Path(each).stem for each in datasets]
        if names[0] == names[1]:
            names = list(datasets)
        sides, provenance = [], []
        for name, dataset in zip(names, datasets, strict=True):
            layers, launches, document = _side(dataset, where)
            sides.append((name, layers, launches))
            provenance.append(document)
        document = build_comparison(
            sides[0],
            sides[1],
            provenance=(provenance[0], provenance[1]),
            seed=seed,
            title=title,
            progress=progress,
        )
    _write(out_, out, document, markdown=markdown)


def _side(
    dataset: str, where: list[str] | None
) -> tuple[pd.DataFrame, pd.DataFrame | None, dict[str, Any]]:
    """Return the table of one side, the launches behind it, and where they came from."""
    from perfml.explain.load import load_tables

    return *load_tables(dataset, where), provenance_of(dataset)


def _folder(dataset: str) -> Path | None:
    """Return the folder that a dataset is, or None for a file."""
    from perfml.datasets import DATASETS, fetch

    path = Path(dataset)
    if dataset in DATASETS and not path.exists():
        path = fetch(dataset)
    return path if path.is_dir() else None


def _raw(dataset: str) -> Kernels | None:
    """Return the kernels of a folder of raw exports, which then need not be read twice."""
    folder = _folder(dataset)
    if folder is None or list(folder.glob("*layers*.parquet")):
        return None
    from perfml.ingest.profiles import ingest

    return ingest([folder])


def _merged(raw: Kernels) -> Table:
    """Return the layers of raw exports, with their shapes, as `perfml.datasets.load` does."""
    from perfml.explain.load import with_known_shapes
    from perfml.merge.rule import merge
    from perfml.tables import Table

    layers = with_known_shapes(merge(raw.frame), raw.provenance)
    return Table(layers, "layers", raw.provenance)


def _launches(
    dataset: str, kernels: Path | None, where: list[str] | None, raw: Kernels | None
) -> pd.DataFrame | None:
    """Return the launches behind the layers: as given, or beside a dataset's layers."""
    from perfml.explain.load import only
    from perfml.tables import read_table

    if kernels is not None:
        return only(read_table(kernels, kind="kernels").frame, where, strict=False)
    if raw is not None:
        return only(raw.frame, where, strict=False)
    folder = _folder(dataset)
    beside = [] if folder is None else sorted(folder.glob("*kernels*.parquet"))
    if len(beside) != 1:
        return None
    return only(read_table(beside[0], kind="kernels").frame, where, strict=False)


def _write(
    out_: Output, out: Path, document: Document, *, markdown: bool, warnings: Sequence[str] = ()
) -> None:
    from perfml.report import to_html, to_markdown
    from perfml.report.labels import clean
    from perfml.tables import replacing

    text = to_markdown(document) if markdown else to_html(document)
    with replacing(out) as temporary:
        temporary.write_text(text, encoding="utf-8")
    lines = [clean(line) for line in document.lines]
    out_.result(
        {"out": str(out), "bytes": len(text.encode()), "summary": lines, "warnings": warnings},
        [*lines, f"Report: {out.resolve()}"],
    )
