"""The verbs explain, advise and roofline: why is it slow, what helps, how far from peaks."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Literal

import typer

from perfml.cli import options
from perfml.cli.output import Output
from perfml.cli.verb import read, show_ranks, show_step, verb
from perfml.datasets import Selection
from perfml.errors import PerfmlError


@verb(
    *("dataset", "other", "kernel", "kernel_b", "skip", "baseline", "target", "by", "layer"),
    *("launches", "layer_map", "where"),
)
def explain(
    selection: Selection,
    output: Output,
    top: options.Top = 3,
    model: options.Model = None,
    tolerance: Annotated[float, options.TOLERANCE] = 0.01,
    seed: options.Seed = 0,
    more: Annotated[
        bool, typer.Option("--more", help="All of it: kernels, causes, metrics, model.")
    ] = False,
    brief: options.Brief = False,
) -> None:
    """Explain why one side is slower than the other.

    One screen; --more shows all of it: kernels, causes by counters, metrics that changed, a
    model's view, and what to do. The layers of --layer, or the --top slowest, are explained in
    detail. --model gbr adds the view of a model that learns from the layers of both sides.

    Example: perfml explain before.ncu-rep after.ncu-rep;
    perfml explain A.ncu-rep --kernel naive --kernel-b tiled;
    perfml explain h200-yolov4-tiny --where precision=fp32 --where batch=1 --baseline cublas
    --target cudnn --layer conv_20
    """
    from perfml.datasets.choosing import layers_named
    from perfml.explain import advise as advise_side
    from perfml.explain import explain as explain_sides
    from perfml.explain.advice.measured import kept_answer, promised, promises_said
    from perfml.explain.brief import brief_explanation
    from perfml.explain.lines import with_lines
    from perfml.explain.load import load_sides
    from perfml.report.sections.explanation import explanation_document, explanation_summary

    with output.progress("explaining") as progress:
        sides = load_sides(read(selection, output))
        explanation = explain_sides(
            sides.baseline,
            sides.target,
            layers=layers_named(sides.baseline.layers, selection.layers),
            top=top,
            model=None if model == "none" else model,
            training=sides.training,
            tolerance=tolerance,
            seed=seed,
            alignment=sides.alignment,
            progress=progress,
        )
    explanation = with_lines(explanation, *sides.reports)
    output.warn_all(explanation.warnings)
    if brief:
        short = brief_explanation(explanation, selection.names)
        output.result(short.to_dict(), short.lines)
        return
    if more or output.verbose:
        shown = explanation_document(explanation)
    else:
        shown = explanation_summary(explanation, named=bool(selection.layers))
    rows = explanation.layers.to_dict("records") if len(selection.names) == 2 else []
    times = {r["layer"]: (r["target_layer"], r["baseline_us"], r["target_us"]) for r in rows}
    came = promised(kept_answer(selection.names[0]), selection.names[-1], times, advise_side)
    output.document({"tables": selection.names, "promised": came, **explanation.to_dict()}, shown)
    if not output.as_json:
        output.result({}, promises_said(came))


@verb("dataset", "layer", "kernel", "skip", "launches", "layer_map", "where")
def advise(
    selection: Selection,
    output: Output,
    top: options.Top = 10,
    peaks: options.Peaks = None,
    brief: options.Brief = False,
) -> None:
    """Say what slow layers suffer from, and what helps.

    With the numbers that show it, and how much it can give at most.

    Example: perfml advise h200-yolov4-tiny --where batch=1 --where backend=cudnn;
    perfml advise profile.ncu-rep
    """
    from perfml.datasets.choosing import layers_named
    from perfml.explain import advise as check
    from perfml.explain.brief import brief_advice
    from perfml.explain.lines import advice_with_lines
    from perfml.explain.reports import reports_behind
    from perfml.explain.speed_of_light import is_ordinary, kernel_levels
    from perfml.report.verbs import advice_document
    from perfml.util.json_values import json_value

    found = read(selection, output, in_layers=True).first
    given = found.in_layers
    advice = check(
        given.layers,
        kernels=given.kernels,
        peaks=options.peaks_named(peaks, given.layers["device"]),
        layers=layers_named(given.layers, selection.layers),
        account=found.account,
        sources=found.sources,
    )
    advice = advice_with_lines(advice, given.kernels, reports_behind(found, given.kernels))
    output.warn_all(advice.warnings)
    rows = given.kernels if found.ranged else found.timed
    levels = kernel_levels(rows, found.sources) if rows is not None else ()
    if brief:
        short = brief_advice(advice, selection.names, levels)
        output.result(short.to_dict(), short.lines)
        return
    if found.ranged and not is_ordinary(found.sources):
        levels = ()  # the layers say it
    ranks = found.ranks
    if ranks is not None and not output.as_json:
        show_ranks(output, ranks)
    if found.account is not None and not output.as_json:
        show_step(output, found.account, "" if ranks is None else f"Rank {ranks.last.rank}")
    shown = advice_document(advice, top, everything=bool(output.verbose), levels=levels)
    kernels = json_value([*map(asdict, levels)])
    document = {"table": found.name, "ranks": json_value(ranks), "kernels": kernels}
    document |= advice.to_dict()
    output.document(document, shown)


@verb("dataset", "layer", "kernel", "skip", "launches", "layer_map", "where")
def roofline(
    selection: Selection,
    output: Output,
    per: Annotated[
        Literal["layer", "kernel"], typer.Option(help="What a row is: a layer or a kernel.")
    ] = "layer",
    peaks: options.Peaks = None,
) -> None:
    """Place layers or kernels under the roofs of their device.

    Example: perfml roofline h200-yolov4-tiny --where batch=8 --where precision=fp32;
    perfml roofline kernels.parquet --peaks peaks.json --layer conv_20 --per kernel
    """
    from perfml.account.time_sources import time_notes
    from perfml.datasets.choosing import layers_named
    from perfml.datasets.loading import DEVICE_FACTS
    from perfml.explain.roofs.by_layer import with_described_flops
    from perfml.explain.roofs.peaks import REPORTED, peaks_of
    from perfml.explain.roofs.python import usual_roofline
    from perfml.report.verbs import roofline_document

    given = read(selection, output, in_layers=True).first.in_layers
    by_kernel = per == "kernel"
    table = given.kernels if by_kernel else with_described_flops(given.layers, given.provenance)
    if table is None:
        msg = "only merged layers are known"
        raise PerfmlError(msg, cure="Give the Kernels table with --launches.")
    if (names := layers_named(table, selection.layers)) is not None:
        table = table[table["layer"].isin(names)]
    devices = sorted(map(str, table["device"].dropna().unique()))
    named = options.peaks_named(peaks, table["device"])
    roofs = peaks_of(devices, named, table.attrs.get(DEVICE_FACTS))
    rows = usual_roofline(table, roofs)
    if REPORTED in roofs.kinds.values():
        ran = {str(precision) for precision in table["precision"].dropna()} - {
            "unknown",
            *roofs.values,
        }
        if ran:
            output.warn(
                f"the bounds in {', '.join(sorted(ran))} are unknown: the report has no such peak. "
                "Run perfml doctor --measure-peaks --out peaks.json, then add --peaks peaks.json"
            )
    notes = time_notes(("", table))
    answer = {"table": given.name, "peaks": roofs.to_dict(), "rows": rows}
    shown = roofline_document(rows, roofs, by_kernel=by_kernel, time_notes=notes)
    output.document({**answer, "time_notes": list(notes)}, shown)
