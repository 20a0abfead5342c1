"""The verb inspect: what a table or a profile holds, and what of it can be shared."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perfml.cli import options
from perfml.cli.output import Output
from perfml.cli.partitioned import show_runs
from perfml.cli.reading import show_ranks, show_step
from perfml.cli.verb import verb
from perfml.datasets import Selection
from perfml.datasets.inspected import kernel_times, metric_ranges, run_summary
from perfml.errors import PerfmlError
from perfml.util.words import count

if TYPE_CHECKING:
    from perfml.tables import Table

KERNELS = 20
"""Kernels that are listed without -v."""


@verb("dataset", "kernel", "skip", "layer_map")
def inspect(
    selection: Selection,
    output: Output,
    redact: Annotated[
        bool,
        typer.Option(
            "--redact",
            help="Without names of hosts and users, paths, environment; a run's folder too.",
        ),
    ] = False,
    out: options.OptionalOut = None,
    hide: Annotated[
        list[str] | None,
        typer.Option(help="With --redact: a further word to strike out; repeatable."),
    ] = None,
) -> None:
    """Show what a table or a profile holds and where it came from.

    With --redact what could be shared is shown, and written with --out; of a run's folder these
    are run.json and the CSV tables, without logs and binary reports.

    Example: perfml inspect profile.ncu-rep;
    perfml inspect layers.parquet --redact --out shared.parquet
    """
    from perfml.account.time_sources import time_notes
    from perfml.datasets import read_inputs
    from perfml.metrics import load_catalogue
    from perfml.tables import read_table

    if (out is not None or hide) and not redact:
        msg = "--out and --hide belong to --redact"
        raise PerfmlError(msg, cure="Add --redact, or leave them out.")
    table = selection.names[0]
    path = Path(table)
    if redact and path.is_dir():
        _redact_folder(path, out, hide or [], output)
        return
    if redact:
        found, launches = _redact_table(read_table(path), out, hide or [], output), None
    else:
        given = read_inputs(selection).first
        if given.note:
            output.warn(f"{given.title}: {given.note}")
        found, launches = given.as_read(), given.kernels
    frame, runs = found.frame, run_summary(found.frame)
    notes = time_notes(("", frame))
    columns = metric_ranges(frame)
    launches = frame if found.kind == "kernels" else launches
    account, ranks = (None, None) if redact else (given.account, given.ranks)
    clock = [] if account is None else [each.recorded for each in account.devices if each.recorded]
    kernels = [] if launches is None else kernel_times(launches)
    document = {
        "table": str(out or path.name) if redact else table,
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
    show_runs(output, runs, "Runs")
    if notes and not output.as_json:
        output.result({}, notes)
    if ranks is not None and not output.as_json:
        show_ranks(output, ranks)
    if account is None:
        _show_kernels(output, kernels)
    elif not output.as_json:
        show_step(output, account, "" if ranks is None else f"Rank {ranks.last.rank}")
    catalogue = load_catalogue()
    measured = [(each["metric"], catalogue[str(each["metric"])].unit, each) for each in columns]
    shown = [(name, unit, each["rows"], each["low"], each["high"]) for name, unit, each in measured]
    heads = ["metric", "unit", "rows", "lowest", "highest"]
    output.table(heads, shown, spare=("unit", "rows"))
    provenance = found.provenance
    facts = [(key, value) for key, value in provenance.items() if isinstance(value, (str, int))]
    output.table(["provenance", ""], facts)
    records = provenance.get("sources", [])
    keys = ("run_id", "path", "format", "tool_version")
    sources = [(*map(each.get, keys), str(each.get("sha256"))[:12]) for each in records]
    if sources:
        heads = ["run", "source", "format", "tool version", "sha256"]
        output.table(heads, sources, spare=("tool version", "sha256", "format"))
    from perfml.metrics import StudyNote

    said = provenance.get("warnings", [])
    output.warn_all(said if output.verbose else StudyNote.without(said))


def _show_kernels(output: Output, kernels: list[dict[str, Any]]) -> None:
    """Print the list of kernels with their calls and times."""
    from perfml.kernel_names import kernel_label
    from perfml.util.words import number, percentage

    shown = kernels if output.verbose else kernels[:KERNELS]
    names = ("total_us", "mean_us", "least_us", "largest_us")
    rows = [
        (
            percentage(row["share"]),
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


def _redact_table(found: Table, out: Path | None, hide: list[str], output: Output) -> Table:
    from perfml.datasets.redact import redact_table
    from perfml.tables import write_table

    found, dropped = redact_table(found, hide=hide)
    if out is not None:
        write_table(found.frame, out, kind=found.kind, provenance=found.provenance)
    if dropped:
        output.note(f"left out: {', '.join(dropped)}")
    return found


def _redact_folder(folder: Path, out: Path | None, hide: list[str], output: Output) -> None:
    from perfml.datasets.redact import redact_run

    if out is None:
        msg = "a run's folder is redacted into another folder"
        raise PerfmlError(msg, where="--redact", cure="Name it with --out FOLDER.")
    written, left = redact_run(folder, out, hide=hide)
    if left:
        output.warn(f"not copied, because what they hold cannot be vouched for: {', '.join(left)}")
    document = {"out": str(out), "written": [path.name for path in written], "left": left}
    output.result(document, [f"{count(len(written), 'file')} -> {out}"])
