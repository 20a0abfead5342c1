"""The verbs advise and roofline: what a slow layer suffers from, and how far it is from peaks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from perfml.cli.dataset import (
    BriefAnswer,
    Dataset,
    KernelPattern,
    PeaksFile,
    Skip,
    Where,
    by_kernel,
    launches_behind,
    peaks_given,
    read,
)
from perfml.cli.output import Json, Output, Quiet, Verbose
from perfml.cli.step import show_step
from perfml.errors import PerfmlError, did_you_mean

Layer = Annotated[list[str] | None, typer.Option(help="Only this layer; repeatable.")]
Launches = Annotated[Path | None, typer.Option(help="The Kernels table behind a Layers table.")]


def register(app: typer.Typer) -> None:
    """Add this room's verbs to the command line."""
    app.command()(advise)
    app.command()(roofline)


def advise(
    dataset: Dataset,
    layer: Layer = None,
    top: Annotated[int, typer.Option(min=1, help="Show so many findings.")] = 10,
    kernel: KernelPattern = None,
    skip: Skip = 0,
    kernels: Launches = None,
    peaks: PeaksFile = None,
    where: Where = None,
    brief: BriefAnswer = False,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Say what slow layers suffer from, and what helps.

    With the numbers that show it, and how much it can give at most.

    Example: perfml advise h200-yolov4-tiny --where batch=1 --where backend=cudnn;
    perfml advise profile.ncu-rep
    """
    out = Output(as_json, quiet, verbose)
    from perfml.explain import advise as check
    from perfml.explain.brief import brief_advice
    from perfml.explain.lines import advice_with_lines
    from perfml.explain.reports import reports_behind
    from perfml.explain.speed_of_light import is_ordinary, kernel_levels
    from perfml.report.verbs import advice_document
    from perfml.util.json_values import json_value

    found = read(dataset, out, where, kernel, skip)
    given = by_kernel(found, out)
    layers, launches = given.layers, launches_behind(given, kernels, where)
    advice = check(
        layers,
        kernels=launches,
        peaks=peaks_given(peaks, layers),
        layers=layer,
        account=found.account,
        sources=found.sources,
    )
    advice = advice_with_lines(advice, launches, reports_behind(found, launches))
    for warning in advice.warnings:
        out.warn(warning)
    if brief:
        short = brief_advice(advice, (dataset,))
        out.result(short.to_dict(), short.lines)
        return
    rows = launches if found.ranged else found.timed
    told = not found.ranged or is_ordinary(found.sources)
    levels = kernel_levels(rows, found.sources) if told and rows is not None else ()
    if found.account is not None and not as_json:
        show_step(out, found.account)
    shown = advice_document(advice, top, everything=bool(out.verbose), levels=levels)
    out.document({"table": dataset, "kernels": json_value(levels), **advice.to_dict()}, shown)


def roofline(
    dataset: Dataset,
    layer: Layer = None,
    by: Annotated[str, typer.Option(help="layer or kernel.")] = "layer",
    peaks: PeaksFile = None,
    kernel: KernelPattern = None,
    skip: Skip = 0,
    kernels: Launches = None,
    where: Where = None,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Place layers or kernels under the roofs of their device.

    Example: perfml roofline h200-yolov4-tiny --where batch=8 --where precision=fp32;
    perfml roofline kernels.parquet --peaks peaks.json --layer conv_20 --by kernel
    """
    out = Output(as_json, quiet, verbose)
    from perfml.account.time_sources import time_notes
    from perfml.datasets.loading import DEVICE_FACTS
    from perfml.explain.roofs.by_layer import with_described_flops
    from perfml.explain.roofs.peaks import REPORTED, peaks_of
    from perfml.explain.roofs.table import usual_roofline
    from perfml.report.verbs import roofline_document

    if by not in ("layer", "kernel"):
        msg = f"--by must be layer or kernel, not {by!r}"
        raise PerfmlError(msg)
    given = by_kernel(read(dataset, out, where, kernel, skip), out)
    layers, launches = given.layers, launches_behind(given, kernels, where)
    table = with_described_flops(layers, given.provenance) if by == "layer" else launches
    if table is None:
        msg = "only merged layers are known"
        raise PerfmlError(msg, cure="Give the Kernels table with --kernels.")
    if layer:
        known = set(table["layer"].dropna())
        for name in layer:
            if name not in known:
                msg = f"no layer is called {name!r}"
                found = ", ".join(sorted(map(str, known))[:12])
                raise PerfmlError(
                    msg, found=found, cure=did_you_mean(name, known, "Name one of these.")
                )
        table = table[table["layer"].isin(layer)]
    devices = sorted(map(str, table["device"].dropna().unique()))
    roofs = peaks_of(devices, peaks_given(peaks, table), table.attrs.get(DEVICE_FACTS))
    rows = usual_roofline(table, roofs)
    if REPORTED in roofs.kinds.values():
        ran = {str(each) for each in table["precision"].dropna()} - {"unknown", *roofs.values}
        if ran:
            out.warn(
                f"the report does not say what its GPU reaches in {', '.join(sorted(ran))}, so "
                "those bounds are unknown: perfml doctor --measure-peaks --out peaks.json, then "
                "--peaks peaks.json"
            )
    notes = time_notes(("", table))
    result = {"table": dataset, "peaks": roofs.to_dict(), "rows": rows, "time_notes": list(notes)}
    shown = roofline_document(rows, roofs, by_kernel=by == "kernel", time_notes=notes)
    out.document(result, shown)
