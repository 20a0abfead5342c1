"""Read the SQLite profile that ``nvprof --export-profile`` and the Visual Profiler write.

Kernels, their times and sizes, and NVTX ranges are read; a launch belongs to the ranges that
were open when its API call began. The collected metrics are left out: CUPTI gives a metric another
number on every kind of device, and the file maps numbers to names nowhere.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from perfml.account.account import ACCOUNT
from perfml.account.build import account_without_host, kernels_of, moves_of
from perfml.account.device_time import Spans
from perfml.account.recording import Activity
from perfml.errors import InputError
from perfml.readers.demangle import demangled
from perfml.readers.frame import kernels_frame
from perfml.readers.launch_ranges import FOREVER, Launch, Range, default_domain, locate
from perfml.readers.nsys.recording import COPY_WAYS, spans_of
from perfml.readers.nvprof.values import dim3
from perfml.readers.source import ReadOptions, Source
from perfml.readers.sqlite_database import Database, is_database, on_the_clock, opened
from perfml.readers.timeline import moved_frame, timed_columns
from perfml.tables import Kernels
from perfml.util.ranges import joined_names
from perfml.util.words import count

NAME = "nvprof-sqlite"

_ACTIVITY = "CUPTI_ACTIVITY_KIND_"
_KERNELS = ("KERNEL", "CONCURRENT_KERNEL")
_MEMORY = ("MEMCPY", "MEMCPY2", "MEMSET")
_MOVED = ("copyKind", "srcKind", "dstKind")
_MEMORY_KINDS = {1: "Pageable", 2: "Pinned", 3: "Device", 4: "Array"}
"""CUPTI's CUpti_ActivityMemoryKind."""
_CALLS = ("RUNTIME", "DRIVER")
_SIZES = ("gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ")
_KERNEL_COLUMNS = (
    *("start", "end", "deviceId", "correlationId", "name", *_SIZES, "registersPerThread"),
    *("staticSharedMemory", "dynamicSharedMemory"),
)
_AS_TEXT = "nvprof --import-profile FILE --print-gpu-trace --csv"


_INSTANT, _START, _END = 1, 2, 4
"""Bits of a marker's flags (CUPTI's CUpti_ActivityFlag, MARKER_*)."""

_THREAD = 2
"""CUpti_ActivityObjectKind of a range that belongs to one thread (push and pop)."""


def recognises(source: Source) -> bool:
    """Tell whether the file is an SQLite database with the tables of nvprof."""
    return is_database(source, "StringTable", _ACTIVITY)


def read(source: Source, options: ReadOptions | None = None) -> Kernels:
    """Read an exported nvprof profile.

    Raises `InputError` if the file is damaged or cut, is no profile of nvprof, or has no kernels.
    """
    del options
    with opened(source, ".nvprof") as profile:
        return _Reader(source, profile).kernels()


class _Reader:
    def __init__(self, source: Source, profile: Database) -> None:
        self.source = source
        self.profile = profile
        self.warnings: list[str] = []
        self.without_call = 0

    def kernels(self) -> Kernels:
        """Return the Kernels table of the whole profile."""
        raw = pd.concat(
            [
                self.profile.integers(_ACTIVITY + name, _KERNEL_COLUMNS, ("streamId",))
                for name in _KERNELS
            ],
            ignore_index=True,
        )
        if raw.empty:
            return self._copied()
        raw = on_the_clock(raw)
        strings = self._strings()
        launched = self._launched(raw)
        began = raw["start"].tolist()
        order = sorted(range(len(raw)), key=lambda row: (launched[row].time, began[row]))
        raw = raw.iloc[order].reset_index(drop=True)
        devices = self._devices(strings)
        launches = self._launches(raw, strings, devices)
        numbers = self._metrics()
        paths, instances = self._ranges([launched[row] for row in order], strings)
        provenance = self._provenance(devices, numbers)
        # nanoseconds since 1970 are more than a number of microseconds holds
        first = int(raw["start"].where(raw["start"] > 0, raw["start"].max()).min())
        moved, copies = self._moves(first)
        spans, stream = spans_of(raw).after(first), raw["streamId"].to_numpy()
        launches = launches.assign(**timed_columns(spans, stream, "nvprof", copies))
        ran = [*kernels_of(launches["kernel"], spans, stream), *moved]
        account = account_without_host(ran, [*paths, *[()] * len(moved)])
        if account is not None and not numbers:  # counters run each kernel again and again
            provenance[ACCOUNT] = account.to_dict()
        frame = kernels_frame(launches, paths, instances=instances)
        timed = sum(move.end > move.start for move in moved)
        self._other_records(timed if ACCOUNT in provenance else 0)
        return Kernels(frame, provenance, tuple(self.warnings))

    def _copied(self) -> Kernels:
        """Return the table of a profile without kernels: of its copies and fills."""
        moved, _ = self._moves()
        account = account_without_host(moved)
        if account is None:
            raise self._nothing()
        devices = self._devices(self._strings())
        provenance = self._provenance(devices, []) | {ACCOUNT: account.to_dict()}
        moved = [move for move in moved if move.end > move.start]
        named = {number: name for number, (name, _) in devices.items()}
        return Kernels(moved_frame(moved, "nvprof", named), provenance, tuple(self.warnings))

    def _moves(self, first: int | None = None) -> tuple[list[Activity], Spans]:
        """Return copies and fills, and when they ran, from the first kernel or of them on."""
        rows = pd.concat(
            self.profile.integers(
                _ACTIVITY + name, (), ("start", "end", "deviceId", "bytes", *_MOVED)
            ).assign(fill=name == "MEMSET")
            for name in _MEMORY
        )
        rows = on_the_clock(rows.astype("int64"))
        ways = [f"Memcpy {COPY_WAYS.get(way, '')}" for way in rows["copyKind"]]
        ends = [[_MEMORY_KINDS.get(kind, "") for kind in rows[name]] for name in _MOVED[1:]]
        names = [
            "Memset" if fill else f"{way} ({source} -> {sink})"
            for fill, way, source, sink in zip(rows["fill"], ways, *ends, strict=True)
        ]
        first = int(rows["start"].min()) if first is None and len(rows) else first or 0
        copies = spans_of(rows).after(first)
        return moves_of(names, copies, rows["bytes"].clip(lower=0).tolist()), copies

    def _nothing(self) -> InputError:
        counts = {
            name: self.profile.count(name)
            for name in sorted(self.profile.tables)
            if name.startswith(_ACTIVITY)
        }
        shown = [
            f"{count(rows, 'row')} of {name.removeprefix(_ACTIVITY)}"
            for name, rows in counts.items()
            if rows
        ]
        msg = "this nvprof profile holds no kernels"
        return InputError(
            msg,
            where=self.profile.where,
            found=", ".join(shown[:8]) or "empty tables",
            cure="Profile a program that launches kernels.",
        )

    def _strings(self) -> dict[int, str]:
        frame = self.profile.frame("StringTable", ("_id_", "value"))
        return {key: str(value) for key, value in zip(frame["_id_"], frame["value"], strict=True)}

    def _devices(self, strings: dict[int, str]) -> dict[int, tuple[str | None, str]]:
        """Return the name and compute capability of each device id."""
        columns = ("id", "name", "computeCapabilityMajor", "computeCapabilityMinor")
        frame = self.profile.integers(_ACTIVITY + "DEVICE", columns)
        cells = (frame[name].tolist() for name in columns)
        return {
            number: (strings.get(name), f"{major}.{minor}")
            for number, name, major, minor in zip(*cells, strict=True)
        }

    def _launched(self, raw: pd.DataFrame) -> list[Launch]:
        """Return when and by which thread each kernel was launched, from its API call."""
        calls: dict[int, Launch] = {}
        for table in _CALLS:
            frame = self.profile.integers(_ACTIVITY + table, ("correlationId", "start", "threadId"))
            for key, start, thread in zip(
                frame["correlationId"].tolist(),
                frame["start"].tolist(),
                frame["threadId"].tolist(),
                strict=True,
            ):
                calls.setdefault(key, Launch(start, thread & 0xFFFFFFFF))
        keys = raw["correlationId"].tolist()
        self.without_call = sum(key not in calls for key in keys)
        return [
            calls.get(key, Launch(start, None))
            for key, start in zip(keys, raw["start"].tolist(), strict=True)
        ]

    def _launches(
        self,
        raw: pd.DataFrame,
        strings: dict[int, str],
        devices: dict[int, tuple[str | None, str]],
    ) -> pd.DataFrame:
        invalid = (raw["start"] <= 0) | np.isnan(spans_of(raw).length_us)
        if invalid.any():
            self.warnings.append(
                f"{count(int(invalid.sum()), 'kernel has', 'kernels have')} invalid timestamps; "
                "their times are missing."
            )
        sizes = {name: raw[name].tolist() for name in _SIZES}
        grids = list(zip(*(sizes[name] for name in _SIZES[:3]), strict=True))
        blocks = list(zip(*(sizes[name] for name in _SIZES[3:]), strict=True))
        known = [devices.get(number, (None, None)) for number in raw["deviceId"].tolist()]
        return pd.DataFrame(
            {
                "kernel": self._names(raw["name"].tolist(), strings),
                "grid": [dim3(grid) for grid in grids],
                "block": [dim3(block) for block in blocks],
                "device": [name for name, _ in known],
                "compute_capability": [capability for _, capability in known],
                "registers_per_thread": raw["registersPerThread"].astype(float),
                "shared_memory_per_block": raw["staticSharedMemory"].astype(float)
                + raw["dynamicSharedMemory"].astype(float),
                "threads": raw[list(_SIZES)].astype(float).prod(axis=1),
            }
        )

    def _names(self, numbers: list[int], strings: dict[int, str]) -> list[str]:
        unnamed = [number for number in numbers if not strings.get(number)]
        if unnamed:
            msg = f"{count(len(unnamed), 'kernel')} with names that are not in the StringTable"
            raise InputError(
                msg,
                where=self.profile.where,
                found=f"string {unnamed[0]}",
                cure="The file is damaged; export the profile again.",
            )
        names = demangled(strings[number] for number in numbers)
        readable = {number: names[strings[number]] for number in set(numbers)}
        mangled = sum(name is None for name in readable.values())
        if mangled:
            self.warnings.append(
                f"{mangled} kernel names could not be demangled here and stay as they are. They "
                "will not match the names in nvprof's text output."
            )
        return [readable[number] or strings[number] for number in numbers]

    def _ranges(
        self, launches: list[Launch], strings: dict[int, str]
    ) -> tuple[list[tuple[str, ...]], list[int] | None]:
        """Return the NVTX ranges around each launch."""
        markers = self._markers(strings)
        if not markers:
            return [()] * len(launches), None
        found, notes = pair(markers)
        ranges, more = default_domain(found)
        self.warnings += [*notes, *more]
        if not ranges:
            return [()] * len(launches), None
        if self.without_call:
            self.warnings.append(
                f"{count(self.without_call, 'kernel has', 'kernels have')} no API call in the "
                "file. Their NVTX ranges are those at their start on the GPU, which may be later "
                "than the launch."
            )
        threads = {span.thread for span in ranges} - {None}
        callers = {launch.thread for launch in launches} - {None}
        if threads and callers and not threads & callers:
            self.warnings.append(
                "The threads of the NVTX ranges and of the launches are numbered differently; "
                "ranges were matched by time alone."
            )
            launches = [Launch(launch.time, None) for launch in launches]
        common, joined = joined_names(span.name for span in ranges)
        self.warnings += joined
        ranges = [replace(span, name=common.get(span.name, span.name)) for span in ranges]
        paths, instances = locate(launches, ranges)
        if not any(paths):
            self.warnings.append(
                f"The file has {len(ranges)} NVTX ranges, and no kernel was launched in one."
            )
        return paths, instances

    def _markers(self, strings: dict[int, str]) -> list[Marker]:
        table = _ACTIVITY + "MARKER"
        if not self.profile.has(table):
            return []
        columns = ("timestamp", "flags", "id", "objectKind", "name")
        frame = self.profile.integers(table, columns)
        blobs = self.profile.frame(table, ("objectId",), ("domain",))
        domains = blobs["domain"].tolist() if "domain" in blobs else [0] * len(blobs)
        rows = zip(
            *(frame[name].tolist() for name in columns),
            blobs["objectId"].tolist(),
            domains,
            strict=True,
        )
        return [
            Marker(
                time,
                flags,
                number,
                kind,
                blob if isinstance(blob, bytes) else b"",
                strings.get(name),
                domain if isinstance(domain, int) else 0,
            )
            for time, flags, number, kind, name, blob, domain in rows
        ]

    def _other_records(self, clocked: int) -> None:
        """Say what the file holds beside the table, and `clocked` copies of the account."""
        memory = sum(self.profile.count(_ACTIVITY + name) for name in _MEMORY) - clocked
        if memory:
            self.warnings.append(
                f"{memory} memory copies and sets are no kernels and were left out."
            )
        nested = self.profile.count(_ACTIVITY + "CDP_KERNEL")
        if nested:
            self.warnings.append(
                f"{nested} kernels launched by other kernels were left out. Their work is in the "
                "times of the kernels that launched them."
            )

    def _metrics(self) -> list[int]:
        """Return the numbers of the nameless metrics, and say that they are left out."""
        tables = (_ACTIVITY + "METRIC", _ACTIVITY + "METRIC_INSTANCE")
        numbers = {n for table in tables for n in self.profile.integers(table, ("id",))["id"]}
        if numbers:
            self.warnings.append(
                f"The file has {len(numbers)} metrics without their names, so they were left out. "
                "CUPTI's numbers differ between devices and the file does not explain them. Print "
                f"them with {_AS_TEXT} (any machine with that nvprof) and ingest that."
            )
        return sorted(map(int, numbers))

    def _provenance(
        self, devices: dict[int, tuple[str | None, str]], metrics: list[int]
    ) -> dict[str, Any]:
        versions = self.profile.frame("Version", ("version",))["version"].tolist()
        return {
            **self.source.provenance(NAME, "nvprof"),
            "tool_version": None,
            "device": ", ".join(dict.fromkeys(name or "?" for name, _ in devices.values())) or None,
            "compute_capability": ", ".join(dict.fromkeys(each for _, each in devices.values()))
            or None,
            "schema_version": versions[0] if versions and isinstance(versions[0], int) else None,
            "serialised": self.profile.has(_ACTIVITY + "KERNEL"),
            "metric_numbers": metrics,
            "memory_operations": sum(self.profile.count(_ACTIVITY + name) for name in _MEMORY),
        }


@dataclass(frozen=True)
class Marker:
    """A record of CUPTI_ACTIVITY_KIND_MARKER: a range's start or its end."""

    time: int
    flags: int
    id: int
    object_kind: int
    object_id: bytes
    name: str | None
    domain: int


def pair(markers: Sequence[Marker]) -> tuple[list[Range], list[str]]:
    """Pair the starts and ends of ranges by their id.

    Ranges are in order of their starts; one without an end stays open. Warnings are sentences about
    starts without end and ends without start.
    """
    opened: dict[int, Marker] = {}
    ranges: list[Range] = []
    orphans = 0
    for marker in sorted(markers, key=lambda marker: marker.time):
        if marker.flags & _START:
            if marker.id in opened:
                ranges.append(_range(opened[marker.id], FOREVER))
            opened[marker.id] = marker
        elif marker.flags & _END:
            start = opened.pop(marker.id, None)
            if start is None:
                orphans += 1
            else:
                ranges.append(_range(start, marker.time))
    unended = len(opened)
    ranges.extend(_range(marker, FOREVER) for marker in opened.values())
    warnings = []
    if unended:
        warnings.append(f"{unended} NVTX ranges have no end; they are taken to last to the end.")
    if orphans:
        warnings.append(f"{orphans} NVTX range ends have no start and were left out.")
    return sorted(ranges, key=lambda each: (each.start, -each.end)), warnings


def _range(marker: Marker, end: int) -> Range:
    thread = None
    if marker.object_kind == _THREAD and len(marker.object_id) >= 8:
        thread = struct.unpack_from("<I", marker.object_id, 4)[0]
    return Range(marker.time, end, marker.name or "(unnamed)", thread, marker.domain)
