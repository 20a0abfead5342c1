"""The verbs that answer from models: train, rank, predict, select, reproduce."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perfml.cli import options
from perfml.cli.output import Output
from perfml.cli.verb import read, verb
from perfml.datasets import Selection
from perfml.errors import PerfmlError
from perfml.util.words import count

if TYPE_CHECKING:
    import pandas as pd

    from perfml.modeling.results import Evaluation
    from perfml.modeling.selection.metric_set import MetricSet
    from perfml.util.typing import Progress


@verb("dataset", "where", "layer_map")
def train(
    selection: Selection,
    output: Output,
    predict: options.Predict = "time",
    model: options.Model = None,
    protocol: options.Protocol = "random,leave-one-layer-out",
    splits: options.Splits = 20,
    features: options.Features = "default",
    seed: options.Seed = 0,
    out: options.OptionalOut = None,
) -> None:
    """Train models and score them on random splits and unseen layers.

    A grouped protocol is always shown. --out also writes the scores, as CSV.

    Example: perfml train layers.parquet --model gbr --where batch=1
    """
    output.place(out)
    from perfml.modeling import evaluate
    from perfml.report.verbs import train_document

    given = read(selection, output, study=features == "published", in_layers=True).first.in_layers
    protocols = options.words(protocol) or ()
    if protocols == ("random",):
        # a random split of repeats alone says nothing of unseen layers
        protocols = ("random", "leave-one-layer-out")
    with output.progress("training") as progress:
        evaluation = evaluate(
            given.layers,
            task=options.task_of(predict),
            models=options.words(model),
            protocols=protocols,
            features=options.feature_names(features),
            target=options.target_of(predict),
            splits=splits,
            seed=seed,
            progress=progress,
        )
    output.warn_all(evaluation.warnings)
    output.csv(evaluation.scores, out)
    output.document({"dataset": given.name, **evaluation.to_dict()}, train_document(evaluation))
    for name, reason in evaluation.dropped.items():
        output.note(f"{name} left out: {reason}")


@verb("dataset", "where", "layer_map")
def rank(
    selection: Selection,
    output: Output,
    predict: options.Predict = "time",
    model: options.Model = None,
    resamples: options.Resamples = 50,
    method: options.Method = None,
    top: options.Top = 10,
    features: options.Features = "default",
    permutations: Annotated[
        int, typer.Option(min=19, help="Permutations of the times, for the test against chance.")
    ] = 999,
    target: Annotated[
        str | None,
        typer.Option(help="Rank the columns of your own CSV or Parquet table by this one."),
    ] = None,
    groups: Annotated[
        str | None, typer.Option(help="With --target: the column that says what rows repeat.")
    ] = None,
    seed: options.Seed = 0,
    out: options.OptionalOut = None,
) -> None:
    """Rank the metrics, with intervals and a test against chance.

    One permutation test says which metrics go with the time beyond chance; the models' importances
    order them. It needs five distinct layers or conditions. --out also writes the whole table, as
    CSV.

    Example: perfml rank layers.parquet --where batch=1;
    perfml rank own.csv --target latency_us --groups kernel
    """
    output.place(out)
    if target is None and groups is not None:
        msg = "--groups is a column of a table of your own"
        raise PerfmlError(msg, where="--groups", cure="Add --target COLUMN.")
    asked: dict[str, Any] = {
        "task": options.task_of(predict),
        "models": options.words(model),
        "features": options.feature_names(features),
        "target": options.target_of(predict),
        "methods": options.words(method),
        "resamples": resamples,
        "permutations": permutations,
        "seed": seed,
    }
    if target is not None:
        asked |= {
            "task": None,
            "features": options.words(features) if features != "default" else None,
        }
        table, name = _own_table(selection), selection.names[0]
        _rank_one(name, table, {"y": target, "groups": groups, **asked}, top, output, out)
        return
    given = read(selection, output, study=features == "published", in_layers=True).first.in_layers
    _rank_one(given.name, given.layers, asked, top, output, out)


def _own_table(selection: Selection) -> pd.DataFrame:
    from perfml.datasets.choosing import only
    from perfml.datasets.table_files import read_own_table

    return only(read_own_table(Path(selection.names[0])), selection.where)


def _rank_one(
    name: str,
    table: pd.DataFrame,
    asked: dict[str, Any],
    top: int,
    output: Output,
    out: Path | None,
) -> None:
    """Rank a table, and score its models on what they have not seen."""
    from perfml.modeling import rank as rank_metrics
    from perfml.report.verbs import rank_document

    with output.progress("ranking") as progress:
        ranking = rank_metrics(table, progress=progress, **asked)
        unseen = _unseen(table, asked, progress, output)
    output.warn_all(ranking.warnings)
    output.csv(ranking.table, out)
    scores = None if unseen is None else unseen.to_dict()["scores"]
    document = {"dataset": name, **ranking.to_dict(), "unseen": scores}
    output.document(document, rank_document(ranking, top, unseen))


def _unseen(
    table: pd.DataFrame, asked: dict[str, Any], progress: Progress, output: Output
) -> Evaluation | None:
    """Return the scores of the ranked models on unseen layers, from the means that are ranked."""
    from perfml.modeling import evaluate
    from perfml.modeling.scoring.protocols import in_few_folds

    same = ("y", "groups", "task", "models", "features", "target", "seed")
    given = {name: asked[name] for name in same if name in asked}
    protocol = "leave-one-layer-out"
    if "y" not in asked:
        protocol = in_few_folds(protocol, table["layer"].nunique())
    try:
        scored: Evaluation = evaluate(
            table, protocols=protocol, progress=progress, average=True, quick=True, **given
        )
    except PerfmlError as error:
        output.warn(f"the models have no score on unseen layers: {error.what}")
        return None
    return scored


@verb("dataset", "launches", "layer_map", "where")
def predict(
    selection: Selection,
    output: Output,
    reference: Annotated[
        str,
        typer.Option(
            help="What to compare with: atlas, or a table or folder of runs of other networks.",
            autocompletion=options.datasets,
        ),
    ] = "atlas",
    top: options.Top = 3,
    peaks: options.Peaks = None,
    seed: options.Seed = 0,
) -> None:
    """Say which layers are slower than layers like them usually are.

    And by how much, and why. Layers of the same kind, shape, precision and backend in other
    networks say what is usual, if they launch such kernels. 90 % of them lie inside the interval.
    What layers of its shape take with other kernels is compared, too. Nothing is downloaded.

    Example: perfml collect torch:torchvision/resnet18 --out run/; perfml predict run/
    """
    from perfml.predict.compare import predict as compare
    from perfml.predict.python import kept
    from perfml.predict.python import reference as rows_of
    from perfml.report.sections.predicted import predict_document

    given = read(selection, output).first
    if not given.ranged:
        msg = "no launch of this lies in a range, so there are no layers to compare"
        cure = "Name them (with perfml.layers(model): ...), or use perfml collect torch:..."
        raise PerfmlError(msg, where=given.name, cure=cure)
    with output.progress("comparing") as progress:
        found = compare(
            given.layers,
            rows_of(reference),
            provenance=given.provenance,
            reference_name=reference,
            kernels=given.kernels,
            peaks=options.peaks_named(peaks, given.layers["device"]),
            top=top,
            seed=seed,
            progress=progress,
            kept=kept(reference),
        )
    output.warn_all(found.warnings)
    output.document({"dataset": given.name, **found.to_dict()}, predict_document(found))


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
    from perfml.reproduce.files import make_folder, reproduction_document

    make_folder(out)
    with output.progress("reproducing") as progress:
        found = repeat(data, plan=Plan(splits=splits), progress=progress)
    files = write(found, out)
    output.document({"out": str(out), **found.results}, reproduction_document(found))
    if not output.as_json:
        output.result({}, [f"{count(len(files), 'file')}, evidence in full: {out.resolve()}"])
    for path in files:
        output.note(str(path))
