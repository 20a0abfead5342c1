"""Merge and ingest on disk, as the verbs of those names do it: their steps and what they say."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfml.cli.output import Output
from perfml.util.json_values import json_object
from perfml.util.words import Readable, count, number

if TYPE_CHECKING:
    from perfml.ingest.merge.write import MergeResult
    from perfml.ingest.profiles import IngestSettings

SPARE = ("workload", "device", "rows", "iterations", "layers", "precision", "backend", "batch")
"""Of a table of runs, what a narrow terminal leaves out first: the name of a run says most."""

SHOWN = 40
"""Runs that a table on the terminal lists; the JSON document has them all."""


@contextmanager
def tables_of(kernels: Path, output: Output) -> Iterator[Path]:
    """Give Kernels tables on disk: those named, or one of a profile or run, for the time being."""
    tables = kernels.rglob("*.parquet") if kernels.is_dir() else iter(())
    ranged = kernels.suffix == ".parquet" and not (kernels.is_file() and _rangeless(kernels))
    if not kernels.exists() or ranged or next(tables, None) is not None:
        yield kernels
        return
    from perfml.cli.verb import read
    from perfml.datasets import Selection
    from perfml.tables import write_table

    given = read(Selection((str(kernels),)), output, in_layers=True).first.in_layers
    with tempfile.TemporaryDirectory(prefix="perfml-") as folder:
        made = Path(folder) / "kernels.parquet"
        write_table(given.launches, made, kind="kernels", provenance=given.provenance)
        yield made


def merge(output: Output, kernels: Path, out: Path, layers: Sequence[str]) -> None:
    """Merge a table of kernels, or a folder of them, and say what came of it."""
    with output.progress("merging") as progress:
        if out.suffix == ".csv":
            merged = _published(kernels, out, layers)
        else:
            from perfml.ingest.merge.batches import merge_files

            merged = merge_files(kernels, out, layers=layers, progress=progress)
    from perfml.ingest.run_labels import run_name

    one, more = "launch outside every layer is", "launches outside every layer are"
    for row in merged.unattributed:
        if row["share"] > 0.05:
            output.warn(
                f"{run_name(row['run_id'])}: {count(int(row['launches']), one, more)} left out "
                f"({Readable(row['share']):.1%} of the time)"
            )
    output.warn_all([*merged.warnings, *merged.time_notes])
    document = {"out": str(out), "weights": "own", **json_object(merged)}
    output.result(
        document, [f"{count(merged.rows, 'row')}, {count(merged.layers, 'layer')} -> {out}"]
    )
    show_runs(output, merged.runs)


def ingest(
    output: Output, files: list[Path], folder: Path, settings: IngestSettings, jobs: int | None
) -> None:
    """Read profiles into a folder of tables, and say what came of it."""
    from perfml.errors import PerfmlError
    from perfml.ingest.folder import ingest_folder
    from perfml.metrics.sets import formulas, substitutes_note

    with output.progress("reading") as progress:
        landed = ingest_folder(files, folder, settings=settings, n_jobs=jobs, progress=progress)
    output.warn_all([*landed.warnings, *substitutes_note(landed.substituted)])
    output.note_all(formulas(landed.substituted))
    for source, error in landed.failed:
        output.warn(f"{source} is left out: {error}")
    document = {"out": str(folder), **json_object(landed)}
    if landed.failed:
        total = len(landed.failed)
        msg = f"{total} of the sources could not be read; what could be lies in {folder}"
        raise PerfmlError(msg, found=landed.failed[0][0], cure="Mend or leave out those named.")
    counts = ", ".join(
        f"{count(len(runs), 'run')} {what}"
        for what, runs in (
            ("added", landed.added),
            ("replaced", landed.replaced),
            ("there already", landed.present),
        )
        if runs
    )
    output.result(document, [f"{count(landed.kernels, 'kernel')}, {counts} -> {folder}"])


def show_runs(output: Output, runs: Sequence[Mapping[str, Any]], caption: str = "") -> None:
    """Print the table of runs; of very many, the first. Times have four digits."""
    heads = ["µs an iteration" if name == "us_per_iteration" else name for name in runs[0]]
    rows = [
        [
            number(value, 4) if name == "us_per_iteration" and value is not None else value
            for name, value in run.items()
        ]
        for run in runs[:SHOWN]
    ]
    output.table(heads, rows, caption, SPARE)
    if len(runs) > SHOWN:
        output.note(f"{len(runs) - SHOWN} more runs: --json lists all")


def _published(kernels: Path, out: Path, layers: Sequence[str]) -> MergeResult:
    """Merge into the published schema, which is text and takes all layers at once."""
    from perfml.datasets import to_published
    from perfml.ingest.merge.batches import merge_files
    from perfml.tables import read_table, replacing

    with tempfile.TemporaryDirectory(prefix="perfml-") as folder:
        table = Path(folder) / "layers.parquet"
        merged = merge_files(kernels, table, layers=layers)
        with replacing(out) as temporary:
            frame = to_published(read_table(table, kind="layers").frame)
            frame.to_csv(temporary, index=False)
    return merged


def _rangeless(path: Path) -> bool:
    """Tell from its statistics that no launch of a table lies in a range."""
    import pyarrow.parquet as pq

    from perfml.tables import readable

    with readable(path):
        groups = pq.read_metadata(path)
    if "layer" not in groups.schema.names:
        return False
    place = groups.schema.names.index("layer")
    columns = [groups.row_group(number).column(place) for number in range(groups.num_row_groups)]
    known = [column.statistics for column in columns if column.statistics is not None]
    return bool(known) and all(each.null_count and not each.num_values for each in known)
