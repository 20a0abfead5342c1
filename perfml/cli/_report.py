"""The verb report: one page with the answer, its evidence and its provenance."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from perfml.cli._dataset import Dataset, Seed, Where, load_dataset
from perfml.cli._output import Json, Output, Quiet, Verbose
from perfml.errors import PerfmlError

_SHOWN = ("builtin", "permutation", "group-permutation")
"""What a report ranks by: drop-column takes longest and has no part in the summary."""


def register(app: typer.Typer) -> None:
    """Add this room's verb to the command line."""
    app.command()(report)


def report(
    dataset: Dataset,
    kernels: Annotated[
        Path | None, typer.Option(help="The Kernels table, to show the kernels of each layer.")
    ] = None,
    out: Annotated[Path, typer.Option(help="The HTML (or Markdown) file to write.")] = Path(
        "report.html"
    ),
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

    A name ending in .md gives Markdown for a pull request.

    Example: perfml report layers.parquet --kernels kernels.parquet --out report.html
    """
    out_ = Output(as_json, quiet, verbose)
    from perfml.modeling import evaluate
    from perfml.modeling import rank as rank_metrics
    from perfml.report import build_markdown, build_report
    from perfml.tables import read_table, replacing

    table = load_dataset(dataset, where, out_)
    launches = read_table(kernels, kind="kernels").frame if kernels is not None else None
    tasks = ["regression"]
    if table.frame["backend"].nunique() > 1:
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
    provenance = dict(table.provenance)
    provenance["warnings"] = [*provenance.get("warnings", []), *warnings]
    for warning in warnings:
        out_.warn(warning)
    build = build_markdown if out.suffix == ".md" else build_report
    text = build(
        table.frame,
        kernels=launches,
        evaluations=evaluations,
        rankings=rankings,
        provenance=provenance,
        title=title,
    )
    with replacing(out) as temporary:
        temporary.write_text(text, encoding="utf-8")
    from perfml.report import summary_lines

    lines = summary_lines(table.frame, evaluations=evaluations, rankings=rankings)
    out_.result(
        {"out": str(out), "bytes": len(text.encode()), "summary": lines, "warnings": warnings},
        [*lines, f"Report: {out.resolve()}"],
    )
