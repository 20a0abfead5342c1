"""The verbs that choose metrics: select the fewest that suffice, plan what to collect next."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perfml.cli.dataset import Dataset, Seed, Where, load_dataset
from perfml.cli.models import Features, Target, Task, feature_names
from perfml.cli.output import Json, Output, Quiet, Verbose
from perfml.util.words import number, percentage

if TYPE_CHECKING:
    from perfml.modeling.selection.budget_plan import Plan

Model = Annotated[str, typer.Option(help="One model: dt, gbr, lmt or dt, lr, rf.")]
Protocol = Annotated[
    str, typer.Option(help="leave-one-layer-out, leave-one-shape-out, by-run, random, ...")
]


def register(app: typer.Typer) -> None:
    """Add this room's verbs to the command line."""
    app.command()(select)
    app.command()(plan)


def select(
    dataset: Dataset,
    task: Annotated[Task, typer.Option(help="Predict time, or the backend.")] = Task.regression,
    model: Model = "dt",
    protocol: Protocol = "leave-one-layer-out",
    most: Annotated[int, typer.Option(min=1, help="Largest set tried.")] = 3,
    tolerance: Annotated[
        float | None,
        typer.Option(min=0, max=10, help="How much worse than the best still suffices."),
    ] = None,
    features: Features = "published",
    target: Target = "log-time",
    where: Where = None,
    seed: Seed = 0,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Find the fewest metrics that predict about as well as all.

    The search is repeated without each quarter of the layers, and judged on that quarter.

    Example: perfml select layers.parquet --where batch=1 --where precision=fp32
    """
    out_ = Output(as_json, quiet, verbose)
    from perfml.modeling import smallest_sufficient_set
    from perfml.report.verbs import select_document

    table = load_dataset(dataset, where, out_)
    with out_.progress("selecting") as progress:
        chosen = smallest_sufficient_set(
            table.frame,
            task=task.value,
            model=model,
            protocol=protocol,
            features=feature_names(features),
            target="time" if task is Task.classification else target,
            tolerance=tolerance,
            most=most,
            seed=seed,
            progress=progress,
        )
    for warning in chosen.warnings:
        out_.warn(warning)
    out_.document({"dataset": dataset, **chosen.to_dict()}, select_document(chosen))


def plan(
    dataset: Dataset,
    passes: Annotated[int, typer.Option(min=1, help="Budget of ncu's replay passes.")] = 3,
    task: Annotated[Task, typer.Option(help="Predict time, or the backend.")] = Task.regression,
    model: Model = "dt",
    protocol: Protocol = "leave-one-layer-out",
    most: Annotated[int, typer.Option(min=1, help="Largest set tried.")] = 6,
    features: Features = "published",
    target: Target = "log-time",
    where: Where = None,
    seed: Seed = 0,
    out: Annotated[
        Path | None, typer.Option(help="Write the metrics, for: perfml collect --metrics FILE.txt")
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Choose what to collect next within a budget of replay passes.

    Passes are Nsight Compute's, measured on one chip; CUPTI, which perfml collect takes where it
    can, mostly needs one less, at a hundredth of the time. Every budget's error is shown, on
    layers that took no part in the choice, beside all metrics'.

    Example: perfml plan layers.parquet --passes 3 --out metrics.txt
    """
    out_ = Output(as_json, quiet, verbose)
    out_.place(out)
    from perfml.modeling import plan as make_plan

    table = load_dataset(dataset, where, out_)
    with out_.progress("planning") as progress:
        made = make_plan(
            table.frame,
            passes=passes,
            task=task.value,
            model=model,
            protocol=protocol,
            features=feature_names(features),
            target="time" if task is Task.classification else target,
            most=most,
            seed=seed,
            progress=progress,
        )
    for warning in made.warnings:
        out_.warn(warning)
    if out is not None:
        _write(made, out)
    document = {"dataset": dataset, "out": str(out) if out else None, **made.to_dict()}
    out_.result(document, [made.verdict])
    _show(made, out_)
    if out is not None and not as_json:
        out_.result({}, [f"Collect them with: perfml collect WORKLOAD --metrics {out}"])


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


def _show(made: Plan, out_: Output) -> None:
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
    out_.table(
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
    out_.table(
        ["metric", "share of searches"],
        [
            [metric, percent(share)]
            for metric, share in zip(wanted["metric"], wanted["share"], strict=True)
        ],
        title=f"{made.searches} searches within {made.budget} passes",
    )
