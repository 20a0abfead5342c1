"""The verb inspect: what a table or a profile holds."""

from __future__ import annotations

import math
from typing import Any

from perfml.cli.output import Output
from perfml.cli.partitioned import show_runs
from perfml.cli.reading import show_ranks, show_step
from perfml.cli.verb import verb
from perfml.datasets import Selection
from perfml.datasets.inspected import kernel_times, metric_ranges, run_summary
from perfml.util.words import count

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
    clock = [] if account is None else [each.recorded for each in account.devices if each.recorded]
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
