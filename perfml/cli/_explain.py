"""The verb explain: why is one side slower than the other."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perfml.cli._advise import PeaksFile, peaks_given
from perfml.cli._complete import backends, datasets, layers
from perfml.cli._output import Json, Output, Quiet, Verbose, cell
from perfml.errors import PerfmlError

if TYPE_CHECKING:
    import pandas as pd

    from perfml.explain.results import Explanation, LayerDiff


PIECE = 0.02
"""Pieces of the physical attribution below 2 % of the time are left to --json."""


def register(app: typer.Typer) -> None:
    """Add this room's verb to the command line."""
    app.command()(explain)


def explain(
    dataset: Annotated[
        str,
        typer.Argument(
            help="Kernels or layers table, dataset.csv, or a dataset's name.",
            autocompletion=datasets,
        ),
    ],
    other: Annotated[
        str | None,
        typer.Argument(help="The target, where the sides are two tables.", autocompletion=datasets),
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option(help="The side to compare with, such as cublas.", autocompletion=backends),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(help="The side to explain, such as cudnn.", autocompletion=backends),
    ] = None,
    by: Annotated[str, typer.Option(help="Column that tells the sides apart.")] = "backend",
    layer: Annotated[
        list[str] | None,
        typer.Option(help="Explain this layer in detail; repeatable.", autocompletion=layers),
    ] = None,
    top: Annotated[int, typer.Option(min=0, help="Without --layer: so many layers in detail.")] = 3,
    kernels: Annotated[
        Path | None, typer.Option(help="The Kernels table behind a Layers table.")
    ] = None,
    model: Annotated[
        str, typer.Option(help="Model of the model attribution: gbr, dt, lmt, or none.")
    ] = "gbr",
    where: Annotated[
        list[str] | None,
        typer.Option(help="Keep rows where COLUMN=VALUE, such as batch=1; repeatable."),
    ] = None,
    tolerance: Annotated[
        float, typer.Option(min=0.0, help="Relative difference that is none.")
    ] = 0.01,
    seed: Annotated[int, typer.Option(help="Seed of the model.")] = 0,
    peaks: PeaksFile = None,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Explain why one side is slower than the other: kernels, metrics, counters, a model.

    Example: perfml explain A.parquet B.parquet;
    perfml explain h200-sweep --where batch=1 --baseline cublas --target cudnn --layer conv_20
    """
    out = Output(as_json, quiet, verbose)
    from perfml.explain import explain as explain_sides

    with out.progress("explaining") as progress:
        left, right, training = _sides(dataset, other, baseline, target, by, kernels, where)
        found = explain_sides(
            left,
            right,
            layers=layer or None,
            top=top,
            model=None if model == "none" else model,
            training=training,
            tolerance=tolerance,
            seed=seed,
            peaks=peaks_given(peaks, right.layers),
            progress=progress,
        )
    for warning in found.warnings:
        out.warn(warning)
    named = [dataset] if other is None else [dataset, other]
    out.result({"tables": named, **found.to_dict()}, [])
    if not as_json:
        _page(out, found)


def _sides(
    dataset: str,
    other: str | None,
    baseline: str | None,
    target: str | None,
    by: str,
    kernels: Path | None,
    where: list[str] | None,
) -> tuple[Any, Any, Any]:
    """Return both sides, and what the model may learn from (None: the sides)."""
    from perfml.explain.load import load_tables, only
    from perfml.explain.sides import make_side, sides_of
    from perfml.tables import read_table

    layers, launches = load_tables(dataset, where)
    if other is not None:
        if baseline or target or kernels:
            msg = "two tables are two sides already"
            raise PerfmlError(
                msg, cure="Leave out --baseline, --target and --kernels, or give one table."
            )
        layers_other, launches_other = load_tables(other, where)
        names = [Path(dataset).stem, Path(other).stem]
        if names[0] == names[1]:
            names = [dataset, other]
        return (
            make_side(names[0], layers, launches),
            make_side(names[1], layers_other, launches_other),
            None,
        )
    if baseline is None or target is None:
        values = sorted(map(str, layers[by].dropna().unique())) if by in layers.columns else []
        msg = "one table needs --baseline and --target"
        raise PerfmlError(
            msg,
            found=f"{by}: {', '.join(values[:8])}" if values else None,
            cure="Name two of these values, or give a second table.",
        )
    if kernels is not None:
        launches = only(read_table(kernels, kind="kernels").frame, where, strict=False)
    pair = sides_of(layers, baseline, target, by=by, kernels=launches)
    return (*pair, layers)


def _page(out: Output, found: Explanation) -> None:
    out.result({}, [f"{found.target} against {found.baseline}, all aligned layers:"])
    out.result({}, [f"  {found.total.sentence()}", ""])
    columns = ["layer", "baseline_us", "target_us", "ratio", "low", "high", "share", "verdict"]
    shown = found.layers[columns].sort_values("share", ascending=False, kind="stable")
    out.table(columns, shown.itertuples(index=False, name=None))
    for side, names in (
        (found.baseline, found.only_baseline),
        (found.target, found.only_target),
    ):
        if names:
            out.result({}, [f"Only in {side}: {', '.join(names)}"])
    for detail in found.details:
        _detail(out, detail)


def _detail(out: Output, detail: LayerDiff) -> None:
    heading = detail.layer
    if detail.target_layer != detail.layer:
        heading += f" -> {detail.target_layer} (aligned: {detail.aligned_by})"
    out.result({}, ["", f"== {heading}: {detail.time.sentence()}"])
    out.result({}, [f"   {line}" for line in detail.reasons])
    out.result({}, [f"   note: {line}" for line in detail.warnings])
    _launches(out, detail)
    _causes(out, detail)
    physical = detail.physical
    account = physical.account or "no counter of work"
    _table(
        out,
        ["term", "log ratio", "factor", "unexplained rest"],
        [
            (term["term"], _signed(term["log_ratio"]), f"x{term['factor']:.3f}", term["residual"])
            for term in physical.to_dict()["terms"]
        ]
        + [("sum", _signed(physical.log_ratio), f"x{detail.time.ratio:.3f}", "")],
        f"Physical attribution (no model; work counted as: {account})",
    )
    _pieces(out, detail)
    _accounts(out, detail)
    if physical.missing:
        out.result({}, [f"   not collected: {'; '.join(physical.missing)}"])
    _model(out, detail)
    _metrics(out, detail.metrics)
    if detail.disagreements:
        out.result({}, ["Where they disagree:", *(f"  - {each}" for each in detail.disagreements)])
    elif detail.model is not None:
        out.result({}, ["The two attributions do not contradict each other by perfml's rules."])
    _advice(out, detail)


def _causes(out: Output, detail: LayerDiff) -> None:
    """Print the causes that matter; the small ones are summed up."""
    terms = [] if detail.causes is None else detail.causes.to_dict()["terms"]
    if not terms:
        return
    shown = [term for term in terms if out.verbose or abs(term["log_ratio"]) >= PIECE]
    others = sum(term["log_ratio"] for term in terms) - sum(term["log_ratio"] for term in shown)
    rows = [
        (term["cause"], _signed(term["log_ratio"]), f"x{term['factor']:.3f}", term["residual"])
        for term in shown
    ]
    if len(shown) < len(terms):
        name = f"{len(terms) - len(shown)} smaller ones"
        rows.append((name, _signed(others), f"x{math.exp(others):.3f}", ""))
    rows.append(("sum", _signed(detail.time.log_ratio), f"x{detail.time.ratio:.3f}", ""))
    _table(
        out,
        ["cause", "log ratio", "factor", "unexplained rest"],
        rows,
        "Causes (no model; each kernel counted in the work of its own limit)",
    )


def _advice(out: Output, detail: LayerDiff) -> None:
    """Print the rules' findings of both sides, those with the largest possible saving first."""
    if detail.advice.empty:
        out.result({}, ["Advice: no rule finds a hazard on either side."])
        return
    shown = detail.advice if out.verbose else detail.advice.groupby("side", sort=False).head(3)
    out.result({}, ["Advice (at most so much of the layer's time; gains do not add up):"])
    for row in shown.to_dict(orient="records"):
        out.result({}, [f"  {row['side']}: {finding(row)}"])
    if len(shown) < len(detail.advice):
        out.result({}, [f"  ({len(detail.advice) - len(shown)} more with -v or --json)"])


def _pieces(out: Output, detail: LayerDiff) -> None:
    """Print the terms of single kernels, with the numbers they come from."""
    pieces = detail.physical.by_kernel[detail.physical.by_kernel["log_ratio"].abs() >= PIECE]
    if pieces.empty:
        return
    order = pieces["log_ratio"].abs().sort_values(ascending=False, kind="stable").index
    _table(
        out,
        ["term", "baseline", "target", "log ratio", "kernel"],
        [
            (term, before, after, _signed(value), kernel)
            for term, before, after, value, kernel in zip(
                *[
                    pieces.loc[order[: None if out.verbose else 10], name].tolist()
                    for name in ("term", "baseline", "target", "log_ratio", "kernels")
                ],
                strict=True,
            )
        ],
        "Its largest pieces (kernels that vanished or appeared: us; rate: work a us and warp)",
    )


def _accounts(out: Output, detail: LayerDiff) -> None:
    """Print what the other accounts of work leave to the rate; their other terms are the same."""
    others = detail.physical.accounts
    work = others[others["term"].str.startswith("work: ")]
    if work.empty:
        return
    said = [
        f"{term.removeprefix('work: ')} {_signed(value)}"
        for term, value in zip(work["term"], work["log_ratio"], strict=True)
    ]
    out.result({}, [f"   other counts of work, each with its own rate: {'; '.join(said)}"])


def finding(row: dict[Any, Any]) -> str:
    """Return a finding of the rules as one line: gain, hazard, kernel, evidence, mitigation."""
    gain = f"{row['gain_low']:.0%} to {row['gain_high']:.0%}"
    kernel = "" if row["kernel"] == "whole layer" else f" [{row['kernel']}]"
    return f"{gain}  {row['hazard']}{kernel}: {row['evidence']}. {row['mitigation']}"


def _launches(out: Output, detail: LayerDiff) -> None:
    """Print the launches as a diff: - baseline only, + target only, = both."""
    from perfml.explain.launches import kernel_label

    if detail.launches.empty:
        out.result({}, ["Kernels: not named in this table."])
        return
    out.result({}, ["Kernels in launch order (- baseline only, + target only, = both), us:"])
    for run, change in enumerate(detail.kernels.to_dict(orient="records")):
        rows = detail.launches[detail.launches["run"] == run].to_dict(orient="records")
        if change["change"] == "variant":
            out.result({}, ["  variant (one function, other template arguments):"])
        elif change["change"] != "same":
            counts = [sum(row["side"] == side for row in rows) for side in ("baseline", "target")]
            times = f"{cell(change['baseline_us'])} -> {cell(change['target_us'])} us"
            heading = f"  {change['change']} ({counts[0]} -> {counts[1]} launches, {times}):"
            out.result({}, [heading])
        out.result({}, [f"  {_launch(row)}  {kernel_label(str(row['kernel']))}" for row in rows])


def _launch(row: dict[Any, Any]) -> str:
    before, after = cell(row["baseline_us"]), cell(row["target_us"])
    if row["side"] == "both":
        return f"= {before:>8} -> {after:>8}"
    mark, time = ("-", before) if row["side"] == "baseline" else ("+", after)
    return f"{mark} {time:>8}" + " " * 12


def _model(out: Output, detail: LayerDiff) -> None:
    model = detail.model
    if model is None:
        return
    shown = model.values[model.values["log_ratio"].abs() > 0].head(8)
    others = model.predicted_log_ratio - float(shown["log_ratio"].sum())
    _table(
        out,
        ["metric", "baseline", "target", "log ratio"],
        [
            (row["metric"], row["baseline"], row["target"], _signed(row["log_ratio"]))
            for row in shown.to_dict(orient="records")
        ]
        + [
            ("all others", None, None, _signed(others)),
            ("sum = predicted", None, None, _signed(model.predicted_log_ratio)),
        ],
        f"Model attribution (exact Shapley values of {model.model} on log time, "
        f"{model.training_rows} rows)",
    )
    if model.held_out_errors is None or model.held_out_log_ratio is None:
        out.result({}, ["   error on this layer: unknown, too few other layers"])
        return
    before, after = model.held_out_errors
    line = (
        f"   fitted without this layer: baseline off by {before:+.0%}, target by {after:+.0%}, "
        f"log ratio {_signed(model.held_out_log_ratio)} "
        f"(measured {_signed(detail.time.log_ratio)})"
    )
    out.result({}, [line])


def _metrics(out: Output, metrics: pd.DataFrame) -> None:
    unknown = bool(metrics["moved"].isna().any())
    moved = metrics if unknown else metrics[metrics["moved"].astype(bool)]
    title = f"Metrics that moved beyond their noise ({len(moved)} of {len(metrics)})"
    if unknown:
        title = "Metrics (too few repeats to know their noise)"
    if moved.empty:
        out.result({}, ["No metric moved beyond its noise."])
        return
    columns = ["metric", "baseline", "target", "difference", "noise"]
    rows = moved[columns] if out.verbose else moved[columns].head(10)
    _table(out, columns, rows.itertuples(index=False, name=None), title)


def _table(out: Output, columns: list[str], rows: Iterable[Sequence[Any]], title: str) -> None:
    # a title of rich's own would be folded to the width of a narrow table
    out.result({}, [title])
    out.table(columns, rows)


def _signed(value: float) -> str:
    return f"{round(value, 3) + 0.0:+.3f}"  # no -0.000
