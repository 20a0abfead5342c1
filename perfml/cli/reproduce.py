"""The verb that repeats the published analysis: reproduce."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from perfml.cli.output import Json, Output, Quiet, Verbose
from perfml.util.words import count


def register(app: typer.Typer) -> None:
    """Add this room's verb to the command line."""
    app.command()(reproduce)


def reproduce(
    out: Annotated[Path, typer.Option(help="Folder for results.json, report.html, CSV and PNG.")],
    data: Annotated[
        Path | None,
        typer.Option(help="The published dataset.csv; else PERFML_DATA, else downloaded."),
    ] = None,
    splits: Annotated[int, typer.Option(min=2, help="Random splits.")] = 500,
    test_size: Annotated[
        float, typer.Option(min=0.05, max=0.95, help="Share of test rows (study: not stated).")
    ] = 0.3,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Judge each claim of the published study on its file.

    Example: perfml reproduce --data dataset.csv --out reproduction
    """
    out_ = Output(as_json, quiet, verbose)
    from perfml.reproduce import Plan, write
    from perfml.reproduce import reproduce as repeat
    from perfml.reproduce.files import (
        SCORE_COLUMNS,
        SCORE_SPARE,
        claim_lines,
        headline,
        make_folder,
        score_lines,
    )

    make_folder(out)
    with out_.progress("reproducing") as progress:
        found = repeat(data, plan=Plan(splits=splits, test_size=test_size), progress=progress)
    for note in found.notes:
        out_.warn(note)
    files = write(found, out)
    out_.result({"out": str(out), **found.results}, headline(found))
    out_.table(SCORE_COLUMNS, score_lines(found.results), spare=SCORE_SPARE)
    out_.table(["claim", "verdict", "evidence"], claim_lines(found))
    if not as_json:
        footnotes = [found.results["verdicts"], *found.results["footnotes"]]
        out_.result(
            {}, [*footnotes, f"{count(len(files), 'file')}, evidence in full: {out.resolve()}"]
        )
    for path in files:
        out_.note(str(path))
