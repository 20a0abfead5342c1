"""The verbs of a study: select metrics to collect, and reproduce the published one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perfml.cli import options
from perfml.cli.output import Output
from perfml.cli.reading import read
from perfml.cli.verb import verb
from perfml.datasets import Selection
from perfml.util.words import count

if TYPE_CHECKING:
    from perfml.modeling.selection.metric_set import MetricSet


@verb("dataset", "where", "layer_map")
def select(
    selection: Selection,
    output: Output,
    passes: Annotated[
        int | None, typer.Option(min=1, help="Budget of ncu's replay passes; else metrics count.")
    ] = None,
    predict: options.Predict = "log-time",
    model: options.Model = "dt",
    protocol: options.Protocol = "leave-one-layer-out",
    most: Annotated[
        int | None, typer.Option(min=1, help="Largest set: 3, with --passes 6.", show_default=False)
    ] = None,
    tolerance: Annotated[float | None, options.TOLERANCE] = None,
    features: options.Features = "published",
    seed: options.Seed = 0,
    out: options.OptionalOut = None,
) -> None:
    """Choose which metrics to collect: few, or in few passes.

    It keeps the fewest metrics whose error is about that of all metrics. With --passes it keeps the
    set with the lowest error that Nsight Compute collects in at most that many replay passes. Every
    limit's error is shown on layers that took no part in the choice, beside all metrics'. Passes
    are Nsight Compute's, measured on one chip; CUPTI, which perfml collect takes where it can,
    mostly needs one less, at a hundredth of the time. --out writes the metrics, for perfml collect
    --metrics FILE.txt.

    Example: perfml select layers.parquet --where batch=1 --passes 3 --out metrics.txt
    """
    output.place(out)
    from perfml.modeling import select_metrics
    from perfml.report.verbs import select_document

    given = read(selection, output, study=features == "published", in_layers=True).first.in_layers
    with output.progress("selecting") as progress:
        chosen = select_metrics(
            given.layers,
            passes=passes,
            task=options.task_of(predict),
            model=model or "dt",
            protocol=protocol,
            features=options.feature_names(features),
            target=options.target_of(predict),
            tolerance=tolerance,
            most=most,
            seed=seed,
            progress=progress,
        )
    output.warn_all(chosen.warnings)
    if out is not None:
        _write(chosen, out)
    document = {"dataset": given.name, "out": str(out) if out else None, **chosen.to_dict()}
    output.document(document, select_document(chosen))
    if out is not None and not output.as_json:
        output.result({}, [f"Collect them with: perfml collect WORKLOAD --metrics {out}"])


def _write(chosen: MetricSet, out: Path) -> None:
    from perfml.errors import InputError
    from perfml.tables import replacing

    if not chosen.metrics:
        msg = "no metric was chosen, so there is nothing to write"
        raise InputError(msg, where=str(out), cure="What needs no counter predicts best here.")
    if out.suffix not in (".txt", ".csv", ".list"):
        msg = "perfml collect knows a list of metrics by its ending"
        raise InputError(msg, where=str(out), cure="Name it .txt, such as metrics.txt.")
    with replacing(out) as temporary:
        temporary.write_text(chosen.to_text(), encoding="utf-8")


@verb()
def reproduce(
    output: Output,
    out: Annotated[Path, options.OUT],
    data: Annotated[
        Path | None,
        typer.Option(help="The published dataset.csv; else PERFML_DATA, else downloaded."),
    ] = None,
    splits: options.Splits = 500,
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
        found = repeat(data, plan=Plan(splits=splits), progress=progress)
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
