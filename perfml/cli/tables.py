"""The verbs that make tables and name what is in them: ingest, merge, metrics, datasets."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perfml.cli.output import Json, Output, Quiet, Verbose
from perfml.cli.partitioned import SPARE, run_heads, run_rows
from perfml.errors import PerfmlError
from perfml.util.words import count

if TYPE_CHECKING:
    from perfml.metrics import Catalogue


class WeightChoice(StrEnum):
    """Which times weight a layer's metrics."""

    own = "own"
    layer_mean = "layer-mean"


class LocaleChoice(StrEnum):
    """Number conventions of text exports."""

    en = "en"
    de = "de"


def register(app: typer.Typer) -> None:
    """Add this room's verbs to the command line."""
    app.command()(ingest)
    app.command()(merge)
    app.command()(metrics)
    app.add_typer(datasets, name="datasets")


def ingest(
    files: Annotated[list[Path], typer.Argument(help="Profiler exports, run folders, or folders.")],
    out: Annotated[Path, typer.Option(help="The Kernels table to write.")] = Path(
        "kernels.parquet"
    ),
    workload: Annotated[str | None, typer.Option(help="Name of the workload.")] = None,
    backend: Annotated[str | None, typer.Option(help="Name of the backend.")] = None,
    precision: Annotated[str | None, typer.Option(help="fp32, tf32, fp16, ...")] = None,
    batch: Annotated[int | None, typer.Option(help="Batch size.")] = None,
    locale: Annotated[
        LocaleChoice | None,
        typer.Option(help="Number convention where the file cannot tell: 1,234.5 or 1.234,5."),
    ] = None,
    raw: Annotated[bool, typer.Option(help="Keep the profiler's own metric columns too.")] = False,
    layer_map: Annotated[
        Path | None, typer.Option(help="Ordered kernel patterns, for programs without NVTX ranges.")
    ] = None,
    layer: Annotated[
        str | None, typer.Option(help="Layer of launches outside every range (a log of one layer).")
    ] = None,
    partition: Annotated[
        bool,
        typer.Option("--partition", help="Into a folder, one file per run, on all cores; resumes."),
    ] = False,
    jobs: Annotated[
        int | None, typer.Option(help="With --partition: processes; up to one a core.", min=1)
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Read profiler exports into one table of kernels.

    The format is recognised from the content: Nsight Compute .ncu-rep and CSV, nvprof logs,
    traces, CSV and SQLite, compressed or not. Workload, backend, precision and batch come from
    run.json, the options, or the file's name (yolov4tiny_cublas_fp32_b1.csv).

    Example: perfml ingest run/ --out kernels.parquet; perfml ingest runs/ --partition --out kernels
    """
    out_ = Output(as_json, quiet, verbose)
    from perfml.account.time_sources import time_notes
    from perfml.ingest.layer_map import read_layer_map
    from perfml.ingest.profiles import ingest as read_all
    from perfml.ingest.run_labels import Identity
    from perfml.ingest.substitutes import formulas
    from perfml.readers import ReadOptions
    from perfml.tables import metric_columns, write_table
    from perfml.util.files import require_other_file, require_parquet_name

    identity = Identity(workload, backend, precision, batch)
    options = ReadOptions(locale=locale.value if locale else None, raw=raw)
    mapped = read_layer_map(layer_map) if layer_map else None
    if partition:
        from perfml.cli import partitioned
        from perfml.ingest.folder import IngestSettings

        folder = Path("kernels") if out == Path("kernels.parquet") else out
        partitioned.ingest(
            out_, files, folder, IngestSettings(identity, options, mapped, layer), jobs
        )
        return
    require_other_file(out, files)
    out_.place(out)
    cure = "Name it kernels.parquet; for exchange: perfml merge kernels.parquet --out dataset.csv"
    require_parquet_name(out, cure)
    with out_.progress("reading") as progress:
        kernels = read_all(
            files,
            identity=identity,
            options=options,
            layer_map=mapped,
            layer=layer,
            progress=progress,
        )
    out_.warn_all(kernels.warnings)
    out_.note_all(formulas(kernels.provenance["sources"]))
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
    kernels_of, runs_in, in_backends = (count(*each) for each in amounts)
    line = f"{kernels_of} of {runs_in} in {in_backends}, {count(len(names), 'metric')}"
    out_.result(document, [f"{line} -> {out}"])
    show_runs(out_, runs, notes)


def merge(
    kernels: Annotated[
        Path, typer.Argument(help="Kernels from perfml ingest (a table or folder), or a profile.")
    ],
    out: Annotated[
        Path, typer.Option(help="layers.parquet, or dataset.csv in the published schema.")
    ] = Path("layers.parquet"),
    weights: Annotated[
        WeightChoice,
        typer.Option(help="own: the row's kernel times, as published; layer-mean: over repeats."),
    ] = WeightChoice.own,
    layers: Annotated[
        str | None, typer.Option(help="Keep layers whose whole name matches, e.g. 'conv_.*'.")
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Merge the kernels of each layer, weighted by running time.

    Example: perfml merge kernels.parquet --out layers.parquet
    """
    out_ = Output(as_json, quiet, verbose)
    from perfml.cli import partitioned
    from perfml.util.files import require_other_file

    require_other_file(out, [kernels, *kernels.rglob("*.parquet")])
    with partitioned.tables_of(kernels, out_) as source:
        partitioned.merge(out_, source, out, weights.value, layers)


def metrics(
    names: Annotated[list[str] | None, typer.Argument(help="Metrics or sets; all without.")] = None,
    request: Annotated[
        bool, typer.Option("--request", help="Print what to ask ncu --metrics for.")
    ] = False,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Explain metrics, and how Nsight Compute spells them.

    Its own names are looked up, too.

    Example: perfml metrics gld_efficiency; perfml metrics sm__warps_active;
    ncu --metrics $(perfml metrics published --request) ...
    """
    out_ = Output(as_json, quiet, verbose)
    from perfml.metrics import load_catalogue
    from perfml.util.json_values import json_object

    catalogue = load_catalogue()
    named = [each for name in names or () for each in _spelled(name, catalogue)]
    chosen = catalogue.select(named) if names else catalogue.names
    if request:
        wanted = catalogue.ncu_request([name for name in chosen if catalogue[name].ncu])
        out_.result({"request": wanted}, [",".join(wanted)])
        return
    found = [json_object(catalogue[name]) for name in chosen]
    if len(found) == 1 and not as_json:
        # a counter's name is there to be copied: whole, however narrow the terminal is
        out_.result({}, [f"{key}: {value}" for key, value in found[0].items() if value])
        return
    out_.result({"metrics": found})
    shown = ("metric", "unit", "merge", "match", "description")
    rows = [[each[name] for name in shown] for each in found]
    out_.table(shown, rows, spare=("match", "merge", "unit"))


def _spelled(name: str, catalogue: Catalogue) -> tuple[str, ...]:
    """Return what is asked for: a metric or set, or the metrics that read one of ncu's counters."""
    return catalogue.read_from(name) if "__" in name else (name,)


datasets = typer.Typer(no_args_is_help=True, help="Recorded and published datasets.")


@datasets.command("list")
def datasets_list(as_json: Json = False, quiet: Quiet = False, verbose: Verbose = 0) -> None:
    """List the datasets, and whether each is on this machine.

    Example: perfml datasets list
    """
    out_ = Output(as_json, quiet, verbose)
    from perfml.datasets import DATASETS, find

    absent = "not here: perfml datasets fetch"
    found = [(each, find(each.name)) for each in DATASETS.values()]
    out_.result(
        {
            "datasets": [
                {"name": each.name, "what": each.what, "path": str(path or absent)}
                for each, path in found
            ]
        }
    )
    # A folder that many share stands in a line of its own, where no column cuts it.
    folders = Counter(path.parent for _, path in found if path)
    shared = max(folders, key=folders.__getitem__, default=None)
    rows = [
        [each.name, each.what, _place(path, shared) if path else absent] for each, path in found
    ]
    out_.table(["name", "what", "where"], rows)
    if shared and not as_json:
        out_.result({}, [f"here: in {_from_here(shared)}"], whole=True)


def _place(path: Path, shared: Path | None) -> str:
    return "here" if path.parent == shared else _from_here(path)


def _from_here(path: Path) -> str:
    """Return a path as short as it can be given here: relative where it lies below."""
    return str(path).removeprefix(f"{Path.cwd()}{os.sep}")


@datasets.command("path")
def datasets_path(
    name: str, as_json: Json = False, quiet: Quiet = False, verbose: Verbose = 0
) -> None:
    """Print where a dataset lies.

    Example: perfml datasets path h200-yolov4-tiny
    """
    out_ = Output(as_json, quiet, verbose)
    from perfml.datasets import find

    path = find(name)
    if path is None:
        msg = f"dataset {name} is not on this machine"
        raise PerfmlError(msg, cure=f"Get it with: perfml datasets fetch {name}")
    out_.result({"name": name, "path": str(path)}, [str(path)])


@datasets.command("fetch")
def datasets_fetch(
    name: str, as_json: Json = False, quiet: Quiet = False, verbose: Verbose = 0
) -> None:
    """Download a dataset and check its sha256.

    Example: perfml datasets fetch nazir2024
    """
    out_ = Output(as_json, quiet, verbose)
    from perfml.datasets import fetch

    path = fetch(name)
    out_.result({"name": name, "path": str(path)}, [str(path)])


def show_runs(
    out_: Output, runs: Sequence[dict[str, Any]], notes: Sequence[str], caption: str = ""
) -> None:
    """Print the table of runs, and where their times are from if a profiler took them."""
    out_.table(run_heads(runs[0]), run_rows(runs), caption, SPARE)
    if notes and not out_.as_json:
        out_.result({}, notes)
