"""The verb that repeats the published analysis: reproduce."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from perfml.cli import options
from perfml.cli.output import Output
from perfml.cli.verb import verb
from perfml.util.words import count


@verb()
def reproduce(
    output: Output,
    out: Annotated[Path, options.OUT],
    data: Annotated[
        Path | None,
        typer.Option(help="The published dataset.csv; else PERFML_DATA, else downloaded."),
    ] = None,
    splits: options.Splits = 500,
    test_size: Annotated[
        float, typer.Option(min=0.05, max=0.95, help="Share of test rows (study: not stated).")
    ] = 0.3,
) -> None:
    """Judge each claim of the published study on its file.

    The folder --out gets results.json, report.html, CSV and PNG.

    Example: perfml reproduce --data dataset.csv --out reproduction
    """
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
    with output.progress("reproducing") as progress:
        found = repeat(data, plan=Plan(splits=splits, test_size=test_size), progress=progress)
    for note in found.notes:
        output.warn(note)
    files = write(found, out)
    output.result({"out": str(out), **found.results}, headline(found))
    output.table(SCORE_COLUMNS, score_lines(found.results), spare=SCORE_SPARE)
    output.table(["claim", "verdict", "evidence"], claim_lines(found))
    if not output.as_json:
        footnotes = [found.results["verdicts"], *found.results["footnotes"]]
        output.result(
            {}, [*footnotes, f"{count(len(files), 'file')}, evidence in full: {out.resolve()}"]
        )
    for path in files:
        output.note(str(path))
