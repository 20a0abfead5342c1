"""What a log of nvprof holds: rows become a Kernels table, metrics meet times."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from perfml.account.account import ACCOUNT, Account
from perfml.account.audit import Audit, said
from perfml.account.build import account_of_sums
from perfml.errors import InputError
from perfml.readers.frame import kernels_frame
from perfml.readers.nvprof.join import join
from perfml.readers.nvprof.values import (
    Log,
    Value,
    canonical,
    dim3,
    is_kernel,
    kernel_name,
    metric_name,
    parse_value,
)
from perfml.readers.source import ReadOptions, Source, at_most
from perfml.readers.timeline import printed_clock
from perfml.tables import Kernels, validate_kernels
from perfml.util.words import count, first_few

__all__ = ["Row", "Tables", "join"]

_MOVED = re.compile(r"mem(cpy|set)", re.IGNORECASE)
LOG_RUNS = "log_runs"
"""Key of the number of the run that each process of a log is of."""
_ORDINAL = re.compile(r"\(\d+\)$")
_MISSING = Value(float("nan"), "missing")


@dataclass
class Row:
    """A kernel of a metrics log or summary (an average over launches), or one launch of a trace.

    ``metrics`` maps nvprof's metric name to its average, or to (average, minimum, maximum). Of a
    trace it may be a copy or fill, with its `bytes`.
    """

    kernel: str
    device: str | None = None
    process: int | None = None
    launches: int = 1
    time_us: float = float("nan")
    grid: tuple[int, int, int] | None = None
    block: tuple[int, int, int] | None = None
    registers: float = float("nan")
    shared_memory: float = float("nan")
    metrics: dict[str, tuple[Value, ...]] = field(default_factory=dict)
    start_us: float = float("nan")
    stream: int = 0
    bytes: float = 0.0


@dataclass
class Tables:
    """The tables found in one log, filled row by row.

    Rows of metrics tables are `averages`; `titles` are the kinds of tables met, for messages;
    `moves` are the copies and fills of a trace, those of a summary stand in it. `events` are no
    metrics.
    """

    log: Log
    averages: list[Row] = field(default_factory=list)
    summary: list[Row] = field(default_factory=list)
    trace: list[Row] = field(default_factory=list)
    moves: list[Row] = field(default_factory=list)
    titles: list[str] = field(default_factory=list)
    events: set[str] = field(default_factory=set)
    notes: list[str] = field(default_factory=list)
    _groups: dict[tuple[int, int | None, str | None, str], Row] = field(default_factory=dict)
    _uneven: set[str] = field(default_factory=set)
    _section: int = 0

    def open(self, title: str) -> None:
        """Note the header of a table."""
        self._section += 1
        self.titles.append(title)

    def add_metric(
        self,
        kernel: str,
        device: str | None,
        process: int | None,
        launches: int,
        name: str,
        values: tuple[Value, ...],
    ) -> None:
        """Add one line of a metrics table to its kernel's row."""
        name = metric_name(name)
        key = (self._section, process, device, kernel)
        row = self._groups.get(key)
        if row is None or name in row.metrics:
            row = Row(kernel, device, process, launches)
            self._groups[key] = row
            self.averages.append(row)
        if row.launches != launches:
            self._uneven.add(kernel)
        row.metrics[name] = values

    def add_summary(
        self, name: str, process: int | None, launches: int, mean_us: float, kind: str
    ) -> None:
        """Add one line of a summary; ``kind`` is its type column, empty in old versions."""
        if kind.startswith("API"):
            return
        if kind not in {"", "GPU activities"}:
            self.notes.append(f"The summary's {kind!r} row {name!r} is no kernel and was left out.")
        else:
            self.summary.append(Row(kernel_name(name), None, process, launches, mean_us))

    def add_launch(
        self, row: Row, start_us: float | None, cells: Mapping[str, str], unit: str = ""
    ) -> None:
        """Add one line of a trace that has `cells`; `unit` is that of its sizes."""
        row.start_us = np.nan if start_us is None else start_us
        told = parse_value(cells.get("Size", ""), unit), parse_value(cells.get("Stream", ""))
        size, stream = (np.nan_to_num(each.number) if each else 0.0 for each in told)
        row.bytes, row.stream = float(size), int(stream)
        if not is_kernel(row.kernel):
            ends = (cells.get(f"{end}MemType") for end in ("Src", "Dst"))
            row.kernel += f" ({' -> '.join(end or '' for end in ends)})"
            self.moves.append(row)
        else:
            row.kernel = kernel_name(row.kernel)
            self.trace.append(row)

    def finish(self, source: Source, name: str, options: ReadOptions) -> Kernels:
        """Make the Kernels table of everything that was found.

        Where no kernel ran its rows are the copies and fills. Raises `InputError` if there is
        neither.
        """
        traced = [row for row in self.trace if row.metrics]
        counted = traced or self.averages
        timed = [row for row in self.trace if not row.metrics]
        timed = timed or [row for row in self.summary if is_kernel(row.kernel)]
        moves = [row for row in self._moved if _MOVED.search(row.kernel) and row.time_us > 0]
        rows = timed if counted or timed else moves
        if not counted and not rows:
            raise self._nothing()
        columns, account = (
            _clock(timed, moves, Audit(said(self.log.spoken)).unknown) if rows else ({}, None)
        )
        provenance = self._provenance(source, name, [*counted, *rows])
        if account is not None and not counted:
            provenance[ACCOUNT] = account.to_dict()
        found = self._warnings(bool(traced), clocked=ACCOUNT in provenance)
        results = [
            build(each, provenance, found if first else (), raw=options.raw)
            for first, each in ((True, counted), (not counted, rows))
            if each
        ]
        if columns:
            last = results[-1]
            results[-1] = replace(last, frame=validate_kernels(last.frame.assign(**columns)))
        if len(results) == 1:
            return results[0]
        both = join(results[0], results[1])
        own = {key: both.provenance[key] for key in both.provenance if key not in _JOINED}
        return Kernels(both.frame, own, both.warnings)

    @property
    def _moved(self) -> list[Row]:
        """What was copied and filled, and what else is no kernel."""
        return self.moves or [row for row in self.summary if not is_kernel(row.kernel)]

    def _nothing(self) -> InputError:
        memory = [f"{row.launches} x {row.kernel}" for row in self._moved]
        events = [f"{len(self.events)} events, which are no metrics"] if self.events else []
        error = self.log.nothing(list(dict.fromkeys(self.titles)))
        if memory or events:
            error = InputError(
                error.what,
                where=error.where,
                found=" ".join("; ".join([*memory[:6], *events, str(error.found)]).split()),
                cure=error.cure,
            )
        return error

    def _warnings(self, traced: bool, *, clocked: bool) -> tuple[str, ...]:
        found = [*self.log.warnings(), *at_most(list(dict.fromkeys(self.notes)))]
        moved = sum(row.launches for row in self._moved)
        if moved and not clocked:
            found.append(f"{moved} memory copies and sets are no kernels and were left out.")
        if self.events:
            found.append(
                f"{len(self.events)} events are no metrics and were left out: "
                f"{first_few(sorted(self.events), 6)}."
            )
        if self._uneven:
            found.append(
                "The metrics of a kernel were averaged over different numbers of invocations: "
                f"{first_few(sorted(self._uneven), 6)}."
            )
        if traced and self.averages:
            found.append("The table of averages was left out; the trace has every launch.")
        if any(not row.metrics for row in self.trace) and self.summary:
            found.append("The summary was left out; the trace has every launch.")
        return tuple(found)

    def _provenance(self, source: Source, name: str, rows: Sequence[Row]) -> dict[str, Any]:
        devices = list(dict.fromkeys(row.device for row in rows if row.device))
        commands = list(self.log.commands.values())
        return {
            **source.provenance(name, "nvprof"),
            "tool_version": None,
            "device": ", ".join(devices) or None,
            "compute_capability": None,
            "command": "; ".join(dict.fromkeys(commands)) or None,
            "processes": sorted({row.process for row in rows if row.process is not None}),
            "memory_operations": sum(row.launches for row in self._moved),
            LOG_RUNS: self.log.runs,
        }


_JOINED = ("times_path", "times_sha256", "times_format")


def _clock(
    timed: Sequence[Row], moves: Sequence[Row], unknown: Collection[str]
) -> tuple[dict[str, Any], Account | None]:
    """Return when kernels ran, as columns, and the account of kernels and copies.

    Without starts it is that of their sums. Printed starts are rounded: on its stream an operation
    begins when the one before is over. Of several processes there is none.
    """
    ran = [*timed, *moves]
    begun = [row for row in ran if row.start_us >= 0]
    if len({row.process for row in ran}) > 1 or len(begun) not in (0, len(ran)):
        return {}, None
    if not begun:
        if not all(np.isfinite(row.time_us) for row in ran):
            return {}, None
        kernels, copies = (
            [(row.kernel, row.time_us * row.launches, row.launches) for row in side]
            for side in (timed, moves)
        )
        return {}, account_of_sums(((name, "", us, n) for name, us, n in kernels), copies)
    over: dict[tuple[str | None, int], float] = {}
    for row in sorted(ran, key=lambda row: row.start_us):
        place = row.device, row.stream
        row.start_us = max(row.start_us, over.get(place, 0.0))
        over[place] = row.start_us + row.time_us
    names = ("kernel", "device", "stream", "start_us", "time_us", "bytes")
    columns = {name: [getattr(row, name) for row in ran] for name in names}
    table = pd.DataFrame(columns).rename(columns={"start_us": "start", "time_us": "time"})
    table[["start", "time"]] *= 1e3
    copied = table.loc[len(timed) :, ["kernel", "device", "start", "time", "bytes"]]
    known, account = printed_clock(
        table[: len(timed)], copied.to_numpy().tolist(), "nvprof", unknown
    )
    return {name: known[name] for name in known if timed and name != "time_source"}, account


def build(
    rows: Sequence[Row], provenance: dict[str, Any], warnings: Sequence[str], *, raw: bool
) -> Kernels:
    """Make a Kernels table of rows.

    Rows are in launch order, or in the order of the table; warnings about the values are added.
    `raw` also keeps ``<metric>_min`` and ``<metric>_max``, and metrics the catalogue does not know.
    """
    found = list(warnings)
    times = np.array([row.time_us for row in rows], dtype=float)
    launches = pd.DataFrame(
        {
            "kernel": [row.kernel for row in rows],
            "grid": [dim3(row.grid) if row.grid else None for row in rows],
            "block": [dim3(row.block) if row.block else None for row in rows],
            "device": [
                _ORDINAL.sub("", row.device).rstrip() if row.device else None for row in rows
            ],
            "time_us": times,
            "time_source": ["nvprof" if np.isfinite(time) else None for time in times],
            "launches": np.array([row.launches for row in rows], dtype="int64"),
        }
    )
    if len({row.process for row in rows}) > 1:
        launches["process"] = pd.array([row.process for row in rows], dtype="Int64")
    columns = _resources(rows)
    columns.update(_metrics(rows, found, raw=raw))
    launches = pd.concat([launches, pd.DataFrame(columns, index=launches.index)], axis=1)
    frame = kernels_frame(launches, [()] * len(rows))
    return Kernels(frame, dict(provenance), tuple(dict.fromkeys(found)))


def _resources(rows: Sequence[Row]) -> dict[str, Any]:
    """Return the launch attributes that the catalogue has, where any row knows them."""
    threads = [
        float(np.prod([*row.grid, *row.block], dtype=float)) if row.grid and row.block else np.nan
        for row in rows
    ]
    columns = {
        "registers_per_thread": [row.registers for row in rows],
        "shared_memory_per_block": [row.shared_memory for row in rows],
        "threads": threads,
    }
    return {name: values for name, values in columns.items() if not np.all(np.isnan(values))}


def _metrics(rows: Sequence[Row], warnings: list[str], *, raw: bool) -> dict[str, Any]:
    names = list(dict.fromkeys(name for row in rows for name in row.metrics))
    columns: dict[str, Any] = {}
    unknown: list[str] = []
    unusable, overflow, lacking, clipped = (Counter[str]() for _ in range(4))
    for name in names:
        values = [row.metrics.get(name, (_MISSING,)) for row in rows]
        mean = [value[0] for value in values]
        converted = canonical(name, mean)
        overflow[name] = sum(value.form == "overflow" for value in mean)
        lacking[name] = sum(name not in row.metrics for row in rows)
        if converted is None:
            unknown.append(name)
            if raw:
                columns[name] = [value.number for value in mean]
            continue
        columns[name], unusable[name], clipped[name] = converted
        if raw and any(len(value) == 3 for value in values):
            for place, suffix in ((1, "min"), (2, "max")):
                side = canonical(name, [v[place] if len(v) == 3 else _MISSING for v in values])
                if side is not None:
                    columns[f"{name}_{suffix}"] = side[0]
    if unknown:
        warnings.append(
            f"{count(len(unknown), 'metric is', 'metrics are')} not in the catalogue and left "
            f"out: {first_few(unknown, 6)}."
        )
    for counts, sentence in (
        (unusable, "Values printed in another form than nvprof gives the metric are missing: {}."),
        (overflow, "Counters overflowed, the values are missing: {}."),
        (lacking, "Some kernels lack metrics that others have; the log may be cut: {}."),
        (
            clipped,
            (
                "Values outside their metric's limits were clipped: {}. Threads that share words, "
                "or passes that disagree, give such values."
            ),
        ),
    ):
        of_name = [f"{name} ({count(rows, 'kernel')})" for name, rows in counts.items() if rows]
        warnings += [sentence.format(first_few(of_name, 6))] if of_name else []
    return columns
