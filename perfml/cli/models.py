"""The verbs that answer: train, rank."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perfml.cli.complete import models
from perfml.cli.dataset import Dataset, Seed, Where, load_dataset
from perfml.cli.output import Json, Output, Quiet, Verbose
from perfml.errors import PerfmlError

if TYPE_CHECKING:
    import pandas as pd

    from perfml.modeling.results import Evaluation
    from perfml.tables import Table
    from perfml.util.typing import Progress

Models = Annotated[
    str | None,
    typer.Option("--model", help="Comma-separated: dt,gbr,lmt or dt,lr,rf.", autocompletion=models),
]
Features = Annotated[
    str, typer.Option(help="default, published, collected, before-run, or names with commas.")
]
Target = Annotated[str, typer.Option(help="time, log-time, time-per-flop, time-per-byte.")]


class Task(StrEnum):
    """What is predicted: the time, or which backend ran."""

    regression = "regression"
    classification = "classification"


def register(app: typer.Typer) -> None:
    """Add this room's verbs to the command line."""
    app.command()(train)
    app.command()(rank)


def train(
    dataset: Dataset,
    task: Annotated[Task, typer.Option(help="Predict time, or the backend.")] = Task.regression,
    model: Models = None,
    protocol: Annotated[
        str, typer.Option(help="Comma-separated protocols; a grouped one is always shown.")
    ] = "random,leave-one-layer-out",
    splits: Annotated[int, typer.Option(min=2, help="Random splits.")] = 20,
    features: Features = "default",
    target: Target = "time",
    where: Where = None,
    seed: Seed = 0,
    out: Annotated[Path | None, typer.Option(help="Also write the scores, as CSV.")] = None,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Train models and score them on random splits and unseen layers.

    Example: perfml train layers.parquet --model gbr --where batch=1
    """
    out_ = Output(as_json, quiet, verbose)
    out_.place(out)
    from perfml.modeling import evaluate
    from perfml.report.verbs import train_document

    table = load_dataset(dataset, where, out_)
    protocols = tuple(name.strip() for name in protocol.split(",") if name.strip())
    if protocols == ("random",):
        # a random split of repeats alone says nothing of unseen layers
        protocols = ("random", "leave-one-layer-out")
    with out_.progress("training") as progress:
        evaluation = evaluate(
            table.frame,
            task=task.value,
            models=_names(model),
            protocols=protocols,
            features=feature_names(features),
            target=target,
            splits=splits,
            seed=seed,
            progress=progress,
        )
    for warning in evaluation.warnings:
        out_.warn(warning)
    if out is not None:
        from perfml.tables import replacing

        with replacing(out) as temporary:
            evaluation.scores.to_csv(temporary, index=False)
    out_.document({"dataset": dataset, **evaluation.to_dict()}, train_document(evaluation))
    for name, reason in evaluation.dropped.items():
        out_.note(f"{name} left out: {reason}")


def rank(
    dataset: Dataset,
    task: Annotated[Task, typer.Option(help="Explain time, or the backend.")] = Task.regression,
    model: Models = None,
    resamples: Annotated[int, typer.Option(min=2, help="Bootstrap resamples.")] = 50,
    method: Annotated[
        str | None,
        typer.Option(help="builtin, permutation, group-permutation, drop-column, shapley."),
    ] = None,
    kernels: Annotated[
        Path | None,
        typer.Option(help="The Kernels table of the same data: rank under both merge weights."),
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="Rows to print.")] = 10,
    features: Features = "default",
    target: Target = "time",
    where: Where = None,
    permutations: Annotated[
        int, typer.Option(min=19, help="Permutations of the times, for what chance gives.")
    ] = 40,
    seed: Seed = 0,
    out: Annotated[Path | None, typer.Option(help="Also write the whole table, as CSV.")] = None,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Rank the metrics, with intervals and a test against chance.

    The p-value says how often a leading metric does as well with the times permuted between layers.
    It needs five distinct layers. With --kernels also by weights that do not hold the row's own
    time: does the ranking stay.

    Example: perfml rank layers.parquet --where batch=1 --kernels kernels.parquet
    """
    out_ = Output(as_json, quiet, verbose)
    out_.place(out)
    table = load_dataset(dataset, where, out_)
    options: dict[str, Any] = {
        "task": task.value,
        "models": _names(model),
        "features": feature_names(features),
        "target": target,
        "methods": _names(method),
        "resamples": resamples,
        "permutations": permutations,
        "seed": seed,
    }
    if kernels is not None:
        _rank_both(dataset, table, kernels, options, top, out, out_)
        return
    from perfml.modeling import rank as rank_metrics
    from perfml.report.verbs import rank_document

    with out_.progress("ranking") as progress:
        ranking = rank_metrics(table.frame, progress=progress, **options)
        unseen = _unseen(table.frame, options, progress, out_)
    for warning in ranking.warnings:
        out_.warn(warning)
    if out is not None:
        from perfml.tables import replacing

        with replacing(out) as temporary:
            ranking.table.to_csv(temporary, index=False)
    scores = None if unseen is None else unseen.to_dict()["scores"]
    document = {"dataset": dataset, **ranking.to_dict(), "unseen": scores}
    out_.document(document, rank_document(ranking, top, unseen))


def _unseen(
    layers: pd.DataFrame, options: dict[str, Any], progress: Progress, out_: Output
) -> Evaluation | None:
    """Return the scores of the ranked models on unseen layers, from the means that are ranked."""
    from perfml.modeling import evaluate
    from perfml.modeling.own_data import in_few_folds

    same = ("task", "models", "features", "target", "seed")
    given = {name: options[name] for name in same}
    protocol = in_few_folds("leave-one-layer-out", layers["layer"].nunique())
    try:
        scored: Evaluation = evaluate(
            layers, protocols=protocol, progress=progress, average=True, quick=True, **given
        )
    except PerfmlError as error:
        out_.warn(f"the models have no score on unseen layers: {error.what}")
        return None
    return scored


def _rank_both(
    dataset: str,
    table: Table,
    kernels: Path,
    options: dict[str, Any],
    top: int,
    out: Path | None,
    out_: Output,
) -> None:
    from perfml.modeling import rank_both_weights
    from perfml.report.verbs import weights_document
    from perfml.tables import read_table, replacing

    launches = read_table(kernels, kind="kernels").frame
    with out_.progress("ranking twice") as progress:
        both = rank_both_weights(table.frame, launches, progress=progress, **options)
    for warning in both.own.warnings:
        out_.warn(warning)
    if out is not None:
        with replacing(out) as temporary:
            both.table.to_csv(temporary, index=False)
    document = {"dataset": dataset, **both.own.to_dict(), "weights": both.to_dict()}
    out_.document(document, weights_document(both, top))


def _names(models: str | None) -> tuple[str, ...] | None:
    return tuple(name.strip() for name in models.split(",") if name.strip()) if models else None


def feature_names(names: str) -> str | tuple[str, ...]:
    """Return a feature set's name, or the names that were listed with commas."""
    from perfml.modeling.features import FEATURE_SETS

    return names if names in FEATURE_SETS else tuple(_names(names) or ())
