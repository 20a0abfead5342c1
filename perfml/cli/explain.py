"""The verb explain: why is one side slower than the other."""

from __future__ import annotations

from typing import Annotated

import typer

from perfml.cli import options
from perfml.cli.output import Output
from perfml.cli.reading import read
from perfml.cli.verb import verb
from perfml.datasets import Selection


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
    peaks: options.Peaks = None,
    more: Annotated[
        bool, typer.Option("--more", help="All of it: kernels, causes, metrics, model, advice.")
    ] = False,
    brief: options.Brief = False,
) -> None:
    """Explain why one side is slower than the other.

    One screen; --more shows all of it: kernels, causes by counters, metrics that changed, a
    model's view, and what to do. The layers of --layer, or the --top slowest, are explained in
    detail. The model is gbr; none where kernels without ranges are compared, which are too few.

    Example: perfml explain before.ncu-rep after.ncu-rep;
    perfml explain A.ncu-rep --kernel naive --kernel-b tiled;
    perfml explain h200-yolov4-tiny --where precision=fp32 --where batch=1 --baseline cublas
    --target cudnn --layer conv_20
    """
    from perfml.datasets.choosing import layers_named
    from perfml.explain import explain as explain_sides
    from perfml.explain.brief import brief_explanation
    from perfml.explain.experiments import with_experiments
    from perfml.explain.lines import with_lines
    from perfml.explain.load import load_sides
    from perfml.report.sections.explanation import explanation_document, explanation_summary

    with output.progress("explaining") as progress:
        sides = load_sides(read(selection, output))
        if model is None and sides.alignment is None:
            model = "gbr"
        explanation = explain_sides(
            sides.baseline,
            sides.target,
            layers=layers_named(sides.baseline.layers, selection.layers),
            top=top,
            model=None if model == "none" else model,
            training=sides.training,
            tolerance=tolerance,
            seed=seed,
            peaks=options.peaks_named(peaks, sides.target.layers["device"]),
            alignment=sides.alignment,
            progress=progress,
        )
    explanation = with_experiments(with_lines(explanation, *sides.reports), *selection.names)
    output.warn_all(explanation.warnings)
    if brief:
        short = brief_explanation(explanation, selection.names)
        output.result(short.to_dict(), short.lines)
        return
    if more or output.verbose:
        shown = explanation_document(explanation)
    else:
        shown = explanation_summary(explanation, named=bool(selection.layers))
    output.document({"tables": selection.names, **explanation.to_dict()}, shown)
