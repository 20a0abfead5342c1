"""The verbs that answer: train, rank, report."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perfml.cli._output import Json, Output, Quiet, Verbose
from perfml.errors import PerfmlError

if TYPE_CHECKING:
    from perfml.tables import Table

Dataset = Annotated[str, typer.Argument(help="layers.parquet, dataset.csv, or a dataset's name.")]
Models = Annotated[
    str | None, typer.Option("--model", help="Comma-separated: dt,gbr,lmt or dt,lr,rf.")
]
Seed = Annotated[int, typer.Option(help="Seed of splits, models and resamples.")]
Features = Annotated[
    str, typer.Option(help="published, collected, before-run, published+before-run, or names.")
]
Target = Annotated[str, typer.Option(help="time, log-time, time-per-flop, time-per-byte.")]
Where = Annotated[
    list[str] | None,
    typer.Option("--where", help="Keep rows where COLUMN=VALUE, such as batch=1; repeatable."),
]


_SHOWN = ("builtin", "permutation", "group-permutation")
"""What a report ranks by: drop-column takes longest and has no part in the summary."""


class Task(StrEnum):
    """What is predicted: the time, or which backend ran."""

    regression = "regression"
    classification = "classification"


def register(app: typer.Typer) -> None:
    """Add this room's verbs to the command line."""
    app.command()(train)
    app.command()(rank)
    app.command()(report)


def train(
    dataset: Dataset,
    task: Annotated[Task, typer.Option(help="Predict time, or the backend.")] = Task.regression,
    model: Models = None,
    protocol: Annotated[
        str, typer.Option(help="Comma-separated protocols; a grouped one is always shown.")
    ] = "random,leave-one-layer-out",
    splits: Annotated[int, typer.Option(min=2, help="Random splits.")] = 20,
    features: Features = "published",
    target: Target = "time",
    where: Where = None,
    seed: Seed = 0,
    out: Annotated[Path | None, typer.Option(help="Also write the scores, as CSV.")] = None,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Train the models and score them on random splits and on unseen layers, side by side.

    Example: perfml train layers.parquet --task regression --where batch=1
    """
    out_ = Output(as_json, quiet, verbose)
    from perfml.modeling import evaluate

    table = _load(dataset, where, out_)
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
            features=_features(features),
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
    out_.result({"dataset": dataset, **evaluation.to_dict()})
    scores = evaluation.scores
    out_.table(list(scores.columns), scores.itertuples(index=False, name=None))
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
    features: Features = "published",
    target: Target = "time",
    where: Where = None,
    seed: Seed = 0,
    out: Annotated[Path | None, typer.Option(help="Also write the whole table, as CSV.")] = None,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Rank the metrics, with intervals and the probability of being among the first three.

    With --kernels also by weights that do not hold the row's own time: does the ranking stay.

    Example: perfml rank layers.parquet --where batch=1 --kernels kernels.parquet
    """
    out_ = Output(as_json, quiet, verbose)
    table = _load(dataset, where, out_)
    options: dict[str, Any] = {
        "task": task.value,
        "models": _names(model),
        "features": _features(features),
        "target": target,
        "methods": _names(method),
        "resamples": resamples,
        "seed": seed,
    }
    if kernels is not None:
        _rank_both(dataset, table, kernels, options, top, out, out_)
        return
    from perfml.modeling import rank as rank_metrics

    with out_.progress("ranking") as progress:
        ranking = rank_metrics(table.frame, progress=progress, **options)
    for warning in ranking.warnings:
        out_.warn(warning)
    if out is not None:
        from perfml.tables import replacing

        with replacing(out) as temporary:
            ranking.table.to_csv(temporary, index=False)
    out_.result({"dataset": dataset, **ranking.to_dict()})
    summary = ranking.summary.head(top)
    out_.table(list(summary.columns), summary.itertuples(index=False, name=None))


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
    from perfml.tables import read_table, replacing

    launches = read_table(kernels, kind="kernels").frame
    with out_.progress("ranking twice") as progress:
        both = rank_both_weights(table.frame, launches, progress=progress, **options)
    for warning in both.own.warnings:
        out_.warn(warning)
    if out is not None:
        with replacing(out) as temporary:
            both.table.to_csv(temporary, index=False)
    shown = both.groups.drop(columns="group").head(top)
    out_.table(list(shown.columns), shown.itertuples(index=False, name=None))
    document = {"dataset": dataset, **both.own.to_dict(), "weights": both.to_dict()}
    out_.result(document, [both.verdict])


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

    table = _load(dataset, where, out_)
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


def _names(models: str | None) -> tuple[str, ...] | None:
    return tuple(name.strip() for name in models.split(",") if name.strip()) if models else None


def _features(names: str) -> str | tuple[str, ...]:
    from perfml.modeling.features import FEATURE_SETS

    return names if names in FEATURE_SETS else tuple(_names(names) or ())


def _load(dataset: str, where: list[str] | None, out_: Output) -> Table:
    import warnings

    from perfml.datasets import load
    from perfml.tables import Table

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        table = load(dataset)
    for each in caught:
        out_.warn(str(each.message))
    frame = table.frame
    for condition in where or []:
        column, equals, value = condition.partition("=")
        if not equals or column not in frame.columns:
            msg = f"--where needs COLUMN=VALUE with a column of the table, not {condition!r}"
            raise PerfmlError(msg, cure=f"Columns are: {', '.join(map(str, frame.columns[:12]))}.")
        kept = frame[frame[column].astype("string") == value]
        if kept.empty:
            values: list[Any] = sorted(map(str, frame[column].dropna().unique()))[:8]
            msg = f"no row has {column}={value}"
            raise PerfmlError(msg, found=", ".join(values), cure="Choose one of these values.")
        frame = kept.reset_index(drop=True)
    return Table(frame, table.kind, {**table.provenance, **({"where": where} if where else {})})
