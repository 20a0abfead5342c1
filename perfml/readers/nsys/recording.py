"""What an export of Nsight Systems recorded of host and devices, and its account of a step."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from perfml.account.account import Account
from perfml.account.build import account_of
from perfml.account.origins import Origins
from perfml.account.recording import Activity, DeviceKind, HostKind, HostSpan, Recording
from perfml.account.steps import find_steps
from perfml.account.window import LEAST, MOST
from perfml.readers.launch_ranges import FOREVER, NOWHERE, RangeTable
from perfml.readers.sqlite_database import Database, on_the_clock
from perfml.util.typing import Ints

CALLS = "CUPTI_ACTIVITY_KIND_RUNTIME"
COPIES, FILLS = "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET"
_VERSION = re.compile(r"_v\d+$")
_WAYS = {1: "HtoD", 2: "DtoH", 8: "DtoD", 10: "PtoP"}
"""``copyKind``: CUPTI's CUpti_ActivityMemcpyKind."""
_PYTORCH = "at::native"
"""Namespace of PyTorch's own kernels, of which every program of it launches some."""
_KINDS = "ENUM_CUDA_MEM_KIND"
"""Table with the names of ``srcKind`` and ``dstKind``: the numbers changed with the exporter."""


@dataclass(frozen=True)
class Calls:
    """API calls, shape (n,) each.

    Attributes
    ----------
    start, end, correlation, thread
        Nanoseconds, and ids; the thread is -1 where the file does not tell.
    name
        An index of `names`.
    names
        What functions are called, without their version.
    """

    start: Ints
    end: Ints
    correlation: Ints
    thread: Ints
    name: Ints
    names: Sequence[str]

    def __len__(self) -> int:
        return len(self.start)

    def launching(self, correlation: Ints, process: Ints, owner: Ints) -> Ints:
        """Return the row of the call that launched each of some activities, else -1.

        Parameters
        ----------
        correlation, owner
            Id of the call and number of the process of each activity, shape (m,).
        process
            Number of the process of each call, shape (n,); ids count within a process.
        """
        keys, _ = pd.factorize(np.concatenate([self.correlation, correlation]))
        keys = (keys << 24) | np.concatenate([process, owner])
        mine, wanted = keys[: len(self)], keys[len(self) :]
        order = np.argsort(mine, kind="stable")
        place = np.searchsorted(mine[order], wanted, side="left")
        found = np.append(order, -1)[np.minimum(place, len(order))]
        known = (found >= 0) & (correlation >= 0)
        return np.where(known & (np.append(mine, -1)[found] == wanted), found, -1)


def read_calls(database: Database) -> Calls:
    """Return the API calls of an export."""
    optional = ("end", "correlationId", "globalTid", "nameId")
    rows = on_the_clock(database.integers(CALLS, ("start",), optional))
    start, end, correlation, thread, name = (rows[each].to_numpy() for each in rows)
    codes, ids = pd.factorize(name)
    strings = database.texts_of("StringIds", "id", "value", ids.tolist())
    names = [_VERSION.sub("", strings.get(each, "")) for each in ids.tolist()]
    return Calls(start, np.maximum(start, end), correlation, thread, codes, names)


def step_account(
    database: Database,
    kernels: pd.DataFrame,
    names: Sequence[str],
    calls: Calls,
    ranges: RangeTable,
) -> tuple[Account | None, int]:
    """Return what a step takes on the clock, and why, and how many launches that rests on.

    The export is of one process. `kernels` are start, end, device, stream and correlation of each
    kernel, when it was ``called`` and its ``name``, an index of `names`. None without
    API calls, which tell what the host did, or without ranges that repeat. Of a long export the
    first steps are accounted for (`perfml.account.window`).
    """
    if not len(calls):
        return None, 0
    last = max(int(kernels["end"].max()), int(calls.end.max()))
    begun, most = np.concatenate([calls.start, ranges.start]), MOST
    while True:
        until = last + 1 if len(begun) <= most else int(np.partition(begun, most)[most])
        recording = _recording(database, kernels, names, calls, ranges, until)
        steps = find_steps(recording)
        if until > last or (steps.name and len(steps.starts) > LEAST):
            break
        most *= 2
    if until <= last:
        until = steps.starts[-1]  # that step was cut
        recording = _recording(database, kernels, names, calls, ranges, until)
        steps = find_steps(recording)
    if not steps.name:
        return None, 0
    finder = Origins(recording, steps)
    pytorch = any(_PYTORCH in name for name in set(names))
    origins = finder.all(recording.activities)
    account = account_of(recording, steps, finder, origins, pytorch=pytorch)
    return account, int((kernels["called"] < until).sum())


def _recording(
    database: Database,
    kernels: pd.DataFrame,
    names: Sequence[str],
    calls: Calls,
    ranges: RangeTable,
    until: int,
) -> Recording:
    """Return what the host began, and what it launched, until a time."""
    early = np.flatnonzero(calls.start < until)
    columns = (calls.name, calls.start, calls.end, calls.thread, calls.correlation)
    rows = zip(*(column[early].tolist() for column in columns), strict=True)
    spans = [HostSpan(HostKind.CALL, calls.names[name], *rest) for name, *rest in rows]
    launched = np.flatnonzero(kernels["called"] < until)
    named = kernels["name"].to_numpy()[launched].tolist()
    return Recording.of(
        [*spans, *_ranges(ranges, calls, until)],
        [
            *_activities(kernels.iloc[launched], DeviceKind.KERNEL, [names[at] for at in named]),
            *_moves(database, COPIES, DeviceKind.COPY, until),
            *_moves(database, FILLS, DeviceKind.FILL, until),
        ],
    )


def _ranges(ranges: RangeTable, calls: Calls, until: int) -> list[HostSpan]:
    """Return the program's own ranges; those of no thread are put on the one that calls most."""
    nested = ranges.thread != NOWHERE
    held = np.flatnonzero((ranges.start < until) & (nested | ~nested.any()))
    threads, times = np.unique(calls.thread, return_counts=True)
    thread = np.where(nested[held], ranges.thread[held], threads[np.argmax(times)])
    end = ranges.end[held]
    end = np.where(end == FOREVER, np.maximum(ranges.start[held], until - 1), end)
    rows = zip(
        *(column.tolist() for column in (ranges.name[held], ranges.start[held], end, thread)),
        strict=True,
    )
    return [HostSpan(HostKind.RANGE, ranges.names[name], *rest) for name, *rest in rows]


def _moves(database: Database, table: str, kind: DeviceKind, until: int) -> list[Activity]:
    optional = ("correlationId", "streamId", "bytes", "copyKind", "srcKind", "dstKind")
    rows = on_the_clock(database.integers(table, ("start", "end", "deviceId"), optional))
    rows = rows[rows["start"] < until]
    places: dict[int, str] = {}
    if {"id", "label"} <= database.columns(_KINDS):
        places = database.texts_of(_KINDS, "id", "label", [*rows["srcKind"], *rows["dstKind"]])
    names = ["Memset"] * len(rows)
    if kind is DeviceKind.COPY:
        columns = (rows[name].tolist() for name in ("copyKind", "srcKind", "dstKind"))
        names = [
            f"Memcpy {_WAYS.get(way, '')} ({places.get(source, '')} -> {places.get(sink, '')})"
            for way, source, sink in zip(*columns, strict=True)
        ]
    return _activities(rows, kind, names)


def _activities(rows: pd.DataFrame, kind: DeviceKind, names: Sequence[str]) -> list[Activity]:
    wanted = ("start", "end", "deviceId", "streamId", "correlationId")
    columns = [rows[name].tolist() for name in wanted]
    sizes = rows["bytes"].clip(lower=0).tolist() if "bytes" in rows else [0] * len(rows)
    return [
        Activity(kind, name, start, max(start, end), device, stream, number, float(size))
        for name, size, start, end, device, stream, number in zip(
            names, sizes, *columns, strict=True
        )
    ]
