"""The verbs that make tables and say what is in them: ingest, merge, inspect, metrics, datasets."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perfml.cli import options
from perfml.cli.output import Output
from perfml.cli.verb import show_ranks, show_step, verb
from perfml.datasets import Selection
from perfml.datasets.inspected import kernel_times, metric_ranges, run_summary
from perfml.util.files import temporary_folder
from perfml.util.json_values import json_object
from perfml.util.words import Readable, count, number

if TYPE_CHECKING:
    from perfml.ingest.merge.write import MergeResult
    from perfml.metrics import Catalogue


@verb()
def ingest(
    files: Annotated[list[Path], typer.Argument(help="Profiler exports, run folders, or folders.")],
    output: Output,
    out: Annotated[Path, options.OUT] = Path("kernels.parquet"),
    label: Annotated[
        list[str] | None,
        typer.Option(
            help="What all runs are, such as backend=cublas (workload, precision, batch); "
            "repeatable."
        ),
    ] = None,
    raw: Annotated[bool, typer.Option(help="Keep the profiler's own metric columns too.")] = False,
    layer_map: options.LayerMap = None,
    other_layer: Annotated[
        str | None, typer.Option(help="Layer of launches outside every range (a log of one layer).")
    ] = None,
) -> None:
    """Read profiler exports into one table of kernels.

    The format is recognised from the content: Nsight Compute .ncu-rep and CSV, nvprof logs,
    traces, CSV and SQLite, compressed or not. Workload, backend, precision and batch come from
    run.json, --label, or the file's name (yolov4tiny_cublas_fp32_b1.csv).

    Example: perfml ingest run/ --out kernels.parquet
    """
    from perfml.account.time_sources import time_notes
    from perfml.ingest.layer_map import read_layer_map
    from perfml.ingest.profiles import IngestSettings
    from perfml.ingest.profiles import ingest as read_all
    from perfml.ingest.run_labels import Identity
    from perfml.metrics.sets import formulas, substitutes_note
    from perfml.readers import ReadOptions
    from perfml.tables import metric_columns, write_table
    from perfml.util.files import require_other_file, require_parquet_name

    settings = IngestSettings(
        Identity.from_words(label or ()),
        ReadOptions(raw=raw),
        read_layer_map(layer_map) if layer_map else None,
        other_layer,
    )
    require_other_file(out, files)
    output.place(out)
    cure = "Name it kernels.parquet; for exchange: perfml merge kernels.parquet --out dataset.csv"
    require_parquet_name(out, cure)
    with output.progress("reading") as progress:
        kernels = read_all(files, settings=settings, progress=progress)
    sources = kernels.provenance["sources"]
    output.warn_all([*kernels.warnings, *substitutes_note(sources)])
    output.note_all(formulas(sources))
    frame = kernels.frame
    write_table(frame, out, kind="kernels", provenance=kernels.provenance)
    from perfml.datasets.inspected import run_summary

    runs, notes = run_summary(frame), time_notes(("", frame))
    names = metric_columns(frame)
    document = {
        "out": str(out),
        "kernels": len(frame),
        "backends": sorted(frame["backend"].dropna().unique()),
        "runs": runs,
        "metrics": names,
        "warnings": list(kernels.warnings),
        "time_notes": list(notes),
    }
    backends = frame["backend"].nunique()
    amounts = (len(frame), "kernel"), (len(runs), "run"), (backends, "backend")
    kernels_of, runs_in, in_backends = (count(*amount) for amount in amounts)
    line = f"{kernels_of} of {runs_in} in {in_backends}, {count(len(names), 'metric')}"
    output.result(document, [f"{line} -> {out}"])
    show_runs(output, runs)
    if notes and not output.as_json:
        output.result({}, notes)


@verb()
def merge(
    kernels: Annotated[
        Path, typer.Argument(help="Kernels from perfml ingest (a table or folder), or a profile.")
    ],
    output: Output,
    out: Annotated[Path, options.OUT] = Path("layers.parquet"),
    layer: options.Layers = None,
) -> None:
    """Merge the kernels of each layer, weighted by running time.

    --out is layers.parquet, or dataset.csv in the published schema.

    Example: perfml merge kernels.parquet --out layers.parquet
    """
    from perfml.util.files import require_other_file

    require_other_file(out, [kernels, *kernels.rglob("*.parquet")])
    with _tables_of(kernels, output) as source:
        _merge(output, source, out, layer or ())


SPARE = ("workload", "device", "rows", "iterations", "layers", "precision", "backend", "batch")
"""Of a table of runs, what a narrow terminal leaves out first: the name of a run says most."""

SHOWN = 40
"""Runs that a table on the terminal lists; the JSON document has them all."""


@contextmanager
def _tables_of(kernels: Path, output: Output) -> Iterator[Path]:
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
    with temporary_folder() as folder:
        made = folder / "kernels.parquet"
        write_table(given.launches, made, kind="kernels", provenance=given.provenance)
        yield made


def _merge(output: Output, kernels: Path, out: Path, layers: Sequence[str]) -> None:
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

    with temporary_folder() as folder:
        table = folder / "layers.parquet"
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


@verb()
def metrics(
    output: Output,
    names: Annotated[list[str] | None, typer.Argument(help="Metrics or sets; all without.")] = None,
    request: Annotated[
        bool, typer.Option("--request", help="Print what to ask ncu --metrics for.")
    ] = False,
) -> None:
    """Explain metrics, and how Nsight Compute spells them.

    Its own names are looked up, too.

    Example: perfml metrics gld_efficiency; perfml metrics sm__warps_active;
    ncu --metrics $(perfml metrics published --request) ...
    """
    from perfml.metrics import load_catalogue
    from perfml.util.json_values import json_object

    catalogue = load_catalogue()
    named = [metric for name in names or () for metric in _spelled(name, catalogue)]
    chosen = catalogue.select(named) if names else catalogue.names
    if request:
        wanted = catalogue.ncu_request([name for name in chosen if catalogue[name].ncu])
        output.result({"request": wanted}, [",".join(wanted)])
        return
    found = [json_object(catalogue[name]) for name in chosen]
    if len(found) == 1 and not output.as_json:
        # a counter's name is there to be copied: whole, however narrow the terminal is
        output.result({}, [f"{key}: {value}" for key, value in found[0].items() if value])
        return
    output.result({"metrics": found})
    shown = ("metric", "unit", "merge", "match", "description")
    rows = [[each[name] for name in shown] for each in found]
    output.table(shown, rows, spare=("match", "merge", "unit"))


def _spelled(name: str, catalogue: Catalogue) -> tuple[str, ...]:
    """Return what is asked for: a metric or set, or the metrics that read one of ncu's counters."""
    return catalogue.read_from(name) if "__" in name else (name,)


@verb()
def datasets(
    output: Output,
    name: Annotated[
        str | None, typer.Argument(help="Get this one, and print where it lies; without, list all.")
    ] = None,
) -> None:
    """List the datasets; or get one, and print where it lies.

    Most come with perfml; one is downloaded, and its sha256 checked.

    Example: perfml datasets; perfml datasets nazir2024
    """
    from perfml.datasets import DATASETS, fetch, find

    if name is not None:
        place = str(fetch(name))
        output.result({"name": name, "path": place}, [place])
        return
    absent = "not here: perfml datasets NAME"
    found = [(dataset, find(dataset.name)) for dataset in DATASETS.values()]
    listed = [
        {"name": each.name, "what": each.what, "path": str(path or absent)} for each, path in found
    ]
    output.result({"datasets": listed})
    # a folder that many share stands in a line of its own, where no column cuts it
    folders = Counter(path.parent for _, path in found if path)
    shared = max(folders, key=folders.__getitem__, default=None)
    rows = [
        [each.name, each.what, "here" if path and path.parent == shared else str(path or absent)]
        for each, path in found
    ]
    output.table(["name", "what", "where"], rows)
    if shared and not output.as_json:
        here = str(shared).removeprefix(f"{Path.cwd()}{os.sep}")
        output.result({}, [f"here: in {here}"], whole=True)


KERNELS = 20
"""Kernels that are listed without -v."""


@verb("dataset", "kernel", "skip", "layer_map")
def inspect(
    selection: Selection,
    output: Output,
) -> None:
    """Show what a table or a profile holds and where it came from.

    Example: perfml inspect profile.ncu-rep
    """
    from perfml.account.time_sources import time_notes
    from perfml.datasets import read_inputs
    from perfml.metrics import load_catalogue

    given = read_inputs(selection).first
    if given.note:
        output.warn(f"{given.title}: {given.note}")
    found = given.as_read()
    frame, runs = found.frame, run_summary(found.frame)
    notes = time_notes(("", frame))
    columns = metric_ranges(frame)
    launches = frame if found.kind == "kernels" else given.kernels
    account, ranks = given.account, given.ranks
    clock = (
        []
        if account is None
        else [device.recorded for device in account.devices if device.recorded]
    )
    kernels = [] if launches is None else kernel_times(launches)
    document = {
        "table": selection.names[0],
        "kind": found.kind,
        "rows": len(frame),
        "runs": runs,
        "time_notes": list(notes),
        "clock": [each.to_dict() for each in clock],
        "kernels": kernels,
        "metrics": columns,
        "provenance": found.provenance,
    }
    counts = f"{count(len(frame), 'row')}, {count(len(runs), 'run')}"
    output.result(document, [f"{found.kind} table, {counts}"])
    # beside a clock the sum of kernels, which may run side by side, is no second time
    hidden = () if account is None else ("us_per_iteration",)
    show_runs(output, [{k: run[k] for k in run if k not in hidden} for run in runs], "Runs")
    if notes and not output.as_json:
        output.result({}, notes)
    if ranks is not None and not output.as_json:
        show_ranks(output, ranks)
    if account is None:
        _show_kernels(output, kernels)
    elif not output.as_json:
        show_step(output, account, "" if ranks is None else f"Rank {ranks.last.rank}")
    catalogue = load_catalogue()
    measured = [
        (column["metric"], catalogue[str(column["metric"])].unit, column) for column in columns
    ]
    shown = [(name, unit, each["rows"], each["low"], each["high"]) for name, unit, each in measured]
    heads = ["metric", "unit", "rows", "lowest", "highest"]
    output.table(heads, shown, spare=("unit", "rows"))
    provenance = found.provenance
    facts = [(key, value) for key, value in provenance.items() if isinstance(value, (str, int))]
    output.table(["provenance", ""], facts)
    records = provenance.get("sources", [])
    keys = ("run_id", "path", "format", "tool_version")
    sources = [(*map(record.get, keys), str(record.get("sha256"))[:12]) for record in records]
    if sources:
        heads = ["run", "source", "format", "tool version", "sha256"]
        output.table(heads, sources, spare=("tool version", "sha256", "format"))
    from perfml.metrics import StudyNote

    said = provenance.get("warnings", [])
    output.warn_all(said if output.verbose else StudyNote.without(said))


def _show_kernels(output: Output, kernels: list[dict[str, Any]]) -> None:
    """Print the list of kernels with their calls and times."""
    from perfml.kernel_names import kernel_label
    from perfml.util.words import number, percent

    shown = kernels if output.verbose else kernels[:KERNELS]
    names = ("total_us", "mean_us", "least_us", "largest_us")
    rows = [
        (
            percent(row["share"], 3),
            f"{row['calls']:,}",
            *("-" if math.isnan(row[name]) else number(row[name]) for name in names),
            kernel_label(row["kernel"], 64),
        )
        for row in shown
    ]
    if not rows:
        return
    left = len(kernels) - len(shown)
    more = f"; {left} more with -v or --json" if left else ""
    title = f"Kernels, the longest in all first{more}"
    output.table(["time", "calls", "total, µs", "mean", "min", "max", "kernel"], rows, title)
