"""The verb predict: which layers are slower than layers like them usually are."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from perfml.cli.complete import datasets
from perfml.cli.dataset import Dataset, PeaksFile, Seed, Where, launches_behind, peaks_given, read
from perfml.cli.output import Json, Output, Quiet, Verbose
from perfml.errors import PerfmlError


def register(app: typer.Typer) -> None:
    """Add this room's verb to the command line."""
    app.command()(predict)


def predict(
    dataset: Dataset,
    model: Annotated[
        str,
        typer.Option(
            help="What to compare with: atlas, or a table or folder of runs of other networks.",
            autocompletion=datasets,
        ),
    ] = "atlas",
    top: Annotated[int, typer.Option(min=0, help="Slow layers to explain.")] = 3,
    kernels: Annotated[
        Path | None, typer.Option(help="The Kernels table behind a Layers table.")
    ] = None,
    peaks: PeaksFile = None,
    where: Where = None,
    seed: Seed = 0,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Say which layers are slower than layers like them usually are.

    And by how much, and why. Layers of the same kind, shape, precision and backend in other
    networks say what is usual; 90 % of them lie inside the interval. What is learned from comes
    with perfml; nothing is downloaded.

    Example: perfml collect torch:torchvision/resnet18 --out run/; perfml predict run/
    """
    out = Output(as_json, quiet, verbose)
    from perfml.predict.compare import predict as compare
    from perfml.predict.reference import kept, reference
    from perfml.report.sections.predicted import predict_document

    given = read(dataset, out, where)
    if not given.ranged:
        msg = "no launch of this lies in a range, so there are no layers to compare"
        cure = "Name them (with perfml.layers(model): ...), or use perfml collect torch:..."
        raise PerfmlError(msg, where=dataset, cure=cure)
    layers = given.layers
    with out.progress("comparing") as progress:
        found = compare(
            layers,
            reference(model),
            provenance=given.provenance,
            reference_name=model,
            kernels=launches_behind(given, kernels, where),
            peaks=peaks_given(peaks, layers),
            top=top,
            seed=seed,
            progress=progress,
            kept=kept(model),
        )
    for warning in found.warnings:
        out.warn(warning)
    out.document({"dataset": dataset, **found.to_dict()}, predict_document(found))
