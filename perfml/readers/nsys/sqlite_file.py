"""Read the SQLite file that ``nsys export --type sqlite`` makes of an Nsight Systems report.

Kernels, their times, sizes and streams are read, and the NVTX ranges that were open when their
API calls began. A CUDA graph that was traced as a whole is a row as a kernel is: it takes time, and
what ran in it is not known. There are no counters in the file. Tables are made lazily and columns
came and went from 2020 to 2026, so everything but a kernel's name, times, device and shape may be
absent. The file also holds the environment of the profiled program; none of that is read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd

from perfml import chips
from perfml.account.account import ACCOUNT
from perfml.account.audit import AUDIT, COPYING, Fact, is_launch, said
from perfml.account.device_time import busy_share
from perfml.account.window import of_the_first
from perfml.errors import InputError, plain
from perfml.readers.frame import kernels_frame, text_column
from perfml.readers.launch_ranges import NOWHERE
from perfml.readers.nsys.nvtx import TABLE as NVTX
from perfml.readers.nsys.nvtx import LaunchCalls, process_of, ranges_around, read_ranges
from perfml.readers.nsys.recording import (
    CALLS,
    COPIES,
    FILLS,
    Export,
    read_calls,
    read_moves,
    spans_of,
)
from perfml.readers.source import ReadOptions, Source, at_most
from perfml.readers.sqlite_database import Database, is_database, on_the_clock, opened
from perfml.readers.timeline import moved_frame, timed_columns
from perfml.tables import Kernels
from perfml.util.typing import Ints
from perfml.util.words import Readable, count

NAME = "nsys-sqlite"

_STRINGS = "StringIds"
_KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"
_GRAPHS = "CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
_MEMORY = (COPIES, FILLS)
_EXPORT_FACTS = ("META_DATA_EXPORT", "EXPORT_META_DATA")
_SIZES = ("gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ")
_REQUIRED = ("start", "end", "deviceId", *_SIZES)
_GRAPH_REQUIRED, _GRAPH_OPTIONAL = ("start", "end", "deviceId"), ("graphId", "graphExecId")
_LAUNCHED = ("correlationId", "globalPid", "streamId")
_OPTIONAL = (
    *("correlationId", "globalPid", "streamId", "demangledName", "shortName"),
    *("registersPerThread", "staticSharedMemory", "dynamicSharedMemory", "graphNodeId"),
)
_SIDE = {
    CALLS: ("start",),
    NVTX: ("start", "eventType"),
    COPIES: ("start", "end", "deviceId"),
    FILLS: ("start", "end", "deviceId"),
    _GRAPHS: ("start", "end", "deviceId"),
    **dict.fromkeys(_EXPORT_FACTS, ("name", "value")),
}
"""What is needed of tables beside the kernels: one that lacks a column is left out."""
_WARNING = 2
"""Severity in DIAGNOSTIC_EVENT from which on a message is a warning."""


def recognises(source: Source) -> bool:
    """Tell whether the file is an SQLite database with the tables of Nsight Systems."""
    return is_database(source, _STRINGS)


def read(source: Source, options: ReadOptions | None = None) -> Kernels:
    """Read an export of Nsight Systems; metrics are absent from the table.

    Raises `InputError` if the file is damaged or cut, or holds no kernels.
    """
    del options
    with opened(source, ".sqlite") as database:
        return _Reader(source, database).kernels()


class _Reader:
    def __init__(self, source: Source, database: Database) -> None:
        self.source = source
        self.database = database
        lacking = (database.leave_out(table, *columns) for table, columns in _SIDE.items())
        self.warnings = [said for said in lacking if said is not None]
        self.calls, self.moves = read_calls(database), read_moves(database)
        self.devices = self._devices()

    def kernels(self) -> Kernels:
        """Return the Kernels table of the whole export."""
        raw, graphs = self.database.integers(_KERNELS, _REQUIRED, _OPTIONAL), self._graphs()
        raw = raw.assign(graph=-1)
        if len(graphs):
            raw = pd.concat([raw, graphs], ignore_index=True).fillna(-1).astype("int64")
        if raw.empty and (self._called(is_launch) or not any(map(len, self.moves.values()))):
            raise self._nothing()
        raw = on_the_clock(raw)
        by_process = bool((raw["globalPid"] >= 0).all())
        calls = self._launched(raw, by_process=by_process)
        order = np.lexsort((raw["start"], calls.time))
        raw = raw.iloc[order].reset_index(drop=True)
        calls = LaunchCalls(calls.process[order], calls.time[order], calls.thread[order])
        ranges, joined = read_ranges(self.database, by_process=by_process)
        around, instances, notes = ranges_around(calls, ranges)
        self.warnings += [*joined, *notes]
        without_call = int((calls.thread == NOWHERE).sum())
        if without_call and ranges:
            self.warnings.append(
                f"{count(without_call, 'kernel has', 'kernels have')} no API call in the file. "
                "Their NVTX ranges are those at their start on the GPU, which may be later than "
                "the launch."
            )
        names, codes = self._names(raw)
        processes = np.unique(calls.process)
        called = raw.assign(called=calls.time, name=codes)
        own = {process: table for process, (table, _) in ranges.items()}
        many = {number: has for number, (*_, has) in self.devices.items()}
        moves, export = self.moves, (self.calls, own, by_process, many)
        recorded = Export(self.database, called, names, moves, *export)
        account, counted, audit = recorded.account(said(self._messages()))
        self.warnings += at_most(audit.sentences)
        # millions of ranges, and the table takes as much again
        del ranges, own, export
        if raw.empty and account is None:
            raise self._nothing()
        if raw.empty:
            named = {number: name for number, (name, *_) in self.devices.items()}
            frame = moved_frame(recorded.moved(), "nsys", named)
        else:
            launches = self._launches(raw, text_column(codes, names))
            inside = instances if any(around.around) else None
            frame = kernels_frame(launches, around, instances=inside)
        self._other_records(len(processes), raw)
        provenance = self._provenance(raw, frame)
        provenance |= {AUDIT: audit.to_dict()} if audit.facts else {}
        if account is not None:
            provenance[ACCOUNT] = account.to_dict()
            if counted < len(raw):
                self.warnings.append(of_the_first(len(account.walls_us), counted, len(raw)))
        return Kernels(frame, provenance, tuple(self.warnings))

    def _called(self, kind: Callable[[str], object]) -> int:
        """Return how many API calls are of a kind, by their names."""
        return sum(bool(kind(self.calls.names[at])) for at in self.calls.name.tolist())

    def _nothing(self) -> InputError:
        held = [
            f"{count(rows, 'row')} of {name.removeprefix('CUPTI_ACTIVITY_KIND_')}"
            for name in sorted(self.database.tables)
            if name in (CALLS, *_MEMORY, NVTX) and (rows := self.database.count(name))
        ]
        msg, found = "this Nsight Systems export holds no kernels", ", ".join(held)
        cure = "Record a program that launches kernels: nsys profile --trace=cuda,nvtx CMD ..."
        launches, copies = self._called(is_launch), self._called(COPYING.fullmatch)
        lost = Fact("launches_without_kernels", launches, launches)
        if said := self._messages():
            found = "; ".join(said)[:400]
            cure = "Nsight Systems says why. Mend that, or record with a newer version of it."
        elif launches:
            found, cure = lost.words, lost.cure
        elif copies:
            copying = count(copies, "call that copies", "calls that copy")
            found = f"{copying} memory, and nothing that a device did"
            cure = lost.cure
        where = self.database.where
        return InputError(msg, where=where, found=found or "no CUDA activity", cure=cure)

    def _graphs(self) -> pd.DataFrame:
        """Return the launches of CUDA graphs that were traced as a whole, by the graph's number."""
        optional = (*_GRAPH_OPTIONAL, *_LAUNCHED)
        rows = self.database.integers(_GRAPHS, _GRAPH_REQUIRED, optional)
        number = rows["graphId"].where(rows["graphId"] >= 0, rows["graphExecId"]).clip(lower=0)
        return rows[[*_GRAPH_REQUIRED, *_LAUNCHED]].assign(graph=number)

    def _launched(self, raw: pd.DataFrame, *, by_process: bool) -> LaunchCalls:
        """Return the API call of each kernel; correlation ids count within a process."""
        calls, owner = self.calls, process_of(raw["globalPid"].to_numpy()) * by_process
        process = np.where(by_process & (calls.thread >= 0), process_of(calls.thread), 0)
        row = calls.launching(raw["correlationId"].to_numpy(), process, owner)
        if not len(calls):
            return LaunchCalls(owner, raw["start"].to_numpy(), row)
        time = np.where(row >= 0, calls.start[row], raw["start"])
        return LaunchCalls(owner, time, np.where(row >= 0, calls.thread[row], NOWHERE))

    def _devices(self) -> dict[int, tuple[str | None, str | None, float]]:
        """Return name, compute capability and multiprocessors of each CUDA device id."""
        table = "TARGET_INFO_GPU"
        # exports of 2020 and 2021 number them as `deviceId`
        ids, optional = ("cuDevice", "id", "deviceId"), ("computeMajor", "computeMinor", "smCount")
        numbers = self.database.integers(table, (), (*ids, *optional))
        texts = self.database.frame(table, (), ("name",))
        names = texts["name"].tolist() if "name" in texts else [None] * len(numbers)
        devices: dict[int, tuple[str | None, str | None, float]] = {}
        columns = (numbers[name].tolist() for name in numbers)
        for *known, major, minor, many, name in zip(*columns, names, strict=True):
            capability = f"{major}.{minor}" if major > 0 and minor >= 0 else None
            named = name if isinstance(name, str) and name else None
            number = next((each for each in known if each >= 0), len(devices))
            has = many if many > 0 else chips.chip(named, capability).known("multiprocessors", 0.0)
            devices.setdefault(number, (named, capability, float(has)))
        return devices

    def _launches(self, raw: pd.DataFrame, names: pd.Series[str]) -> dict[str, Any]:
        spans = spans_of(raw)
        invalid = spans.end <= spans.start
        if invalid.any():
            self.warnings.append(
                f"{count(int(invalid.sum()), 'kernel has', 'kernels have')} invalid timestamps; "
                "their times are missing."
            )
        device, numbers = pd.factorize(raw["deviceId"])
        known = [self.devices.get(number, (None, None, 0.0)) for number in numbers.tolist()]
        shared = raw["staticSharedMemory"] + raw["dynamicSharedMemory"]
        told = (raw["staticSharedMemory"] >= 0) & (raw["dynamicSharedMemory"] >= 0)
        registers = raw["registersPerThread"].astype(float)
        columns: dict[str, Any] = {
            "kernel": names,
            "grid": _shapes(raw, _SIZES[:3]),
            "block": _shapes(raw, _SIZES[3:]),
            "device": text_column(device, [name for name, *_ in known]),
            "compute_capability": text_column(device, [capability for _, capability, _ in known]),
            **timed_columns(
                spans, raw["streamId"].to_numpy(), "nsys", spans_of(pd.concat(self.moves.values()))
            ),
            "registers_per_thread": registers.where(registers >= 0).to_numpy(),
            "shared_memory_per_block": shared.astype(float).where(told).to_numpy(),
            "threads": raw[list(_SIZES)].where(raw["graph"] < 0).prod(axis=1, min_count=1),
        }
        if (replayed := raw["graphNodeId"] > 0).any():
            columns["replay"] = raw["correlationId"].where(replayed)
        return columns

    def _names(self, raw: pd.DataFrame) -> tuple[list[str], Ints]:
        """Return names of kernels, and which of them each launch has."""
        rows, codes = _distinct(raw[["demangledName", "shortName", "graph"]])
        triples = list(rows.itertuples(index=False, name=None))
        wanted = [number for triple in triples for number in triple[:2]]
        strings = self.database.texts_of(_STRINGS, "id", "value", wanted)
        names = [
            # a number stands for the kernel's name where a CUDA graph was traced as a whole
            (strings.get(name) or strings.get(short) or "") if graph < 0 else f"CUDA_graph_{graph}"
            for name, short, graph in triples
        ]
        if "" in names:
            unnamed = np.array([not name for name in names])[codes]
            msg = f"{count(int(unnamed.sum()), 'kernel')} with names that are not in {_STRINGS}"
            found = f"string {triples[names.index('')][0]}"
            cure = "The file is damaged; export the report again."
            raise InputError(msg, where=self.database.where, found=found, cure=cure)
        return names, codes

    def _other_records(self, processes: int, raw: pd.DataFrame) -> None:
        """Say what the file holds that is not in the table."""
        if processes > 1:
            self.warnings.append(f"Launches of {processes} processes are read as one run.")
        graphs = raw["graph"] >= 0
        if graphs.any():
            time = np.nan_to_num(spans_of(raw).length_us)
            share = Readable(time[graphs.to_numpy()].sum() / max(time.sum(), 1e-3))
            self.warnings.append(
                "Record with --cuda-graph-trace=node to have the kernels of CUDA graphs. "
                f"{count(int(graphs.sum()), 'launch was', 'launches were')} traced as a whole: "
                f"{share:.1%} of the kernels' time."
            )

    def _messages(self) -> list[str]:
        """Return the warnings and errors that Nsight Systems left in the file."""
        table = "DIAGNOSTIC_EVENT"
        rows = self.database.frame(table, (), ("severity", "text"))
        if not {"severity", "text"} <= set(rows.columns):
            return []
        severe = [
            plain(text)
            for severity, text in zip(rows["severity"], rows["text"], strict=True)
            if isinstance(severity, int) and severity >= _WARNING and isinstance(text, str)
        ]
        return list(dict.fromkeys(severe))

    def _provenance(self, raw: pd.DataFrame, frame: pd.DataFrame) -> dict[str, Any]:
        facts = self._export_facts()
        return {
            **self.source.provenance(NAME, "Nsight Systems"),
            "tool_version": facts.get("EXPORT_PRODUCT_VERSION"),
            "schema_version": facts.get("EXPORT_SCHEMA_VERSION"),
            "device": _joined(frame["device"]),
            "compute_capability": _joined(frame["compute_capability"]),
            "streams": int(raw["streamId"].nunique()),
            "kernels_busy": busy_share(spans_of(raw)),
            "memory_operations": sum(self.database.count(table) for table in _MEMORY),
        }

    def _export_facts(self) -> dict[str, str]:
        for table in _EXPORT_FACTS:
            if self.database.has(table):
                rows = self.database.frame(table, ("name", "value"))
                pairs = zip(rows["name"].tolist(), rows["value"].tolist(), strict=True)
                return {str(name): str(value)[:80] for name, value in pairs if value is not None}
        return {}


def _distinct(rows: pd.DataFrame) -> tuple[pd.DataFrame, Ints]:
    """Return the rows that differ, and which of them each row is."""
    codes: Ints = rows.groupby(list(rows), sort=False).ngroup().to_numpy().astype(np.int64)
    return rows.drop_duplicates(), codes


def _shapes(raw: pd.DataFrame, names: tuple[str, ...]) -> pd.Series[str]:
    rows, codes = _distinct(raw[list(names)])
    sizes = rows.itertuples(index=False, name=None)
    return text_column(codes, [f"({x}, {y}, {z})" if x >= 0 else None for x, y, z in sizes])


def _joined(column: pd.Series[Any]) -> str | None:
    """Return the distinct values of a column as one text; None without any."""
    return ", ".join(str(value) for value in column.dropna().unique()) or None
