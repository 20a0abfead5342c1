"""The verbs of a study: select and plan metrics, and reproduce the published one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perfml.cli import options
from perfml.cli.options import Predicted
from perfml.cli.output import Output
from perfml.cli.reading import read
from perfml.cli.verb import verb
from perfml.datasets import Selection
from perfml.util.words import count, number, percentage

if TYPE_CHECKING:
    from perfml.modeling.selection.budget_plan import Plan


@verb("dataset", "where", "layer_map")
def select(
    selection: Selection,
    output: Output,
    predict: options.Predict = Predicted.log_time,
    model: options.Model = "dt",
    protocol: options.Protocol = "leave-one-layer-out",
    most: options.Most = 3,
    tolerance: Annotated[float | None, options.TOLERANCE] = None,
    features: options.Features = "published",
    seed: options.Seed = 0,
) -> None:
    """Find the fewest metrics that predict about as well as all.

    The search is repeated without each quarter of the layers, and judged on that quarter.

    Example: perfml select layers.parquet --where batch=1 --where precision=fp32
    """
    from perfml.modeling import smallest_sufficient_set
    from perfml.report.verbs import select_document

    given = read(selection, output, study=features == "published", in_layers=True).first.in_layers
    with output.progress("selecting") as progress:
        chosen = smallest_sufficient_set(
            given.layers,
            task=predict.task,
            model=model or "dt",
            protocol=protocol,
            features=options.feature_names(features),
            target=predict.target,
            tolerance=tolerance,
            most=most,
            seed=seed,
            progress=progress,
        )
    output.warn_all(chosen.warnings)
    output.document({"dataset": given.name, **chosen.to_dict()}, select_document(chosen))


@verb("dataset", "where", "layer_map")
def plan(
    selection: Selection,
    output: Output,
    passes: Annotated[int, typer.Option(min=1, help="Budget of ncu's replay passes.")] = 3,
    predict: options.Predict = Predicted.log_time,
    model: options.Model = "dt",
    protocol: options.Protocol = "leave-one-layer-out",
    most: options.Most = 6,
    features: options.Features = "published",
    seed: options.Seed = 0,
    out: options.OptionalOut = None,
) -> None:
    """Choose what to collect next within a budget of replay passes.

    Passes are Nsight Compute's, measured on one chip; CUPTI, which perfml collect takes where it
    can, mostly needs one less, at a hundredth of the time. Every budget's error is shown, on
    layers that took no part in the choice, beside all metrics'. --out writes the metrics, for
    perfml collect --metrics FILE.txt.

    Example: perfml plan layers.parquet --passes 3 --out metrics.txt
    """
    output.place(out)
    from perfml.modeling import plan as make_plan

    given = read(selection, output, study=features == "published", in_layers=True).first.in_layers
    with output.progress("planning") as progress:
        made = make_plan(
            given.layers,
            passes=passes,
            task=predict.task,
            model=model or "dt",
            protocol=protocol,
            features=options.feature_names(features),
            target=predict.target,
            most=most,
            seed=seed,
            progress=progress,
        )
    output.warn_all(made.warnings)
    if out is not None:
        _write(made, out)
    document = {"dataset": given.name, "out": str(out) if out else None, **made.to_dict()}
    output.result(document, [made.verdict])
    _show(made, output)
    if out is not None and not output.as_json:
        output.result({}, [f"Collect them with: perfml collect WORKLOAD --metrics {out}"])


def _write(made: Plan, out: Path) -> None:
    from perfml.errors import InputError
    from perfml.tables import replacing

    if not made.metrics:
        msg = "this plan asks for no metric, so there is nothing to write"
        raise InputError(msg, where=str(out), cure="What needs no counter predicts best here.")
    if out.suffix not in (".txt", ".csv", ".list"):
        msg = "perfml collect knows a list of metrics by its ending"
        raise InputError(msg, where=str(out), cure="Name it .txt, such as metrics.txt.")
    with replacing(out) as temporary:
        temporary.write_text(made.to_text(), encoding="utf-8")


def _show(made: Plan, output: Output) -> None:
    from perfml.report.labels import percent

    shown: list[list[Any]] = []
    for row in made.curve.to_dict("records"):
        passes = str(row["passes"])
        if not row["measured"]:
            passes += f" ({row['low']} to {row['high']})"
        shown.append(
            [
                row["budget"],
                passes,
                f"{number(1e3 * row['seconds_per_launch'])} ms",
                f"{row['cupti_passes']} in {1e3 * row['cupti_seconds_per_launch']:.2g} ms",
                percentage(row["chosen_on"]),
                percentage(row["nested"]),
                f"{percentage(row['nested_low'])} to {percentage(row['nested_high'])}",
                f"{100 * row['worse_low']:+.3g} to {100 * row['worse_high']:+.3g}",
                f"{len(row['metrics'])} metrics"
                if row["budget"] == "all"
                else ", ".join(row["metrics"]),
            ]
        )
    output.table(
        [
            "budget",
            "passes",
            "a launch",
            "through CUPTI",
            "error where chosen",
            "error on new layers",
            "95 % interval",
            "points worse than all",
            "metrics",
        ],
        shown,
    )
    wanted = made.stability[made.stability["budget"].astype(str) == str(made.budget)]
    output.table(
        ["metric", "share of searches"],
        [
            [metric, percent(share)]
            for metric, share in zip(wanted["metric"], wanted["share"], strict=True)
        ],
        title=f"{made.searches} searches within {made.budget} passes",
    )


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
