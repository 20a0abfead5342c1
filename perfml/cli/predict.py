"""The verb predict: which layers are slower than layers like them usually are."""

from __future__ import annotations

from typing import Annotated

import typer

from perfml.cli import options
from perfml.cli.complete import datasets
from perfml.cli.output import Output
from perfml.cli.reading import read
from perfml.cli.verb import verb
from perfml.datasets import Selection
from perfml.errors import PerfmlError


@verb("dataset", "launches", "layer_map", "where")
def predict(
    selection: Selection,
    output: Output,
    reference: Annotated[
        str,
        typer.Option(
            help="What to compare with: atlas, or a table or folder of runs of other networks.",
            autocompletion=datasets,
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
