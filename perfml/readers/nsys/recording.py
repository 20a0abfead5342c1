"""What an export of Nsight Systems recorded of host and devices, and its account of a step."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import pandas as pd

from perfml.account.account import Account
from perfml.account.build import account_of
from perfml.account.origins import Origins
from perfml.account.recording import Activity, DeviceKind, HostKind, HostSpan, Recording
from perfml.account.steps import find_steps
from perfml.readers.launch_ranges import FOREVER, Range, default_domain
from perfml.readers.sqlite_database import Database, on_the_clock

CALLS = "CUPTI_ACTIVITY_KIND_RUNTIME"
COPIES, FILLS = "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET"
_VERSION = re.compile(r"_v\d+$")
_WAYS = {1: "HtoD", 2: "DtoH", 8: "DtoD", 10: "PtoP"}
"""``copyKind``: CUPTI's CUpti_ActivityMemcpyKind."""
_PYTORCH = "at::native"
"""Namespace of PyTorch's own kernels, of which every program of it launches some."""
_KINDS = "ENUM_CUDA_MEM_KIND"
"""Table with the names of ``srcKind`` and ``dstKind``: the numbers changed with the exporter."""


def step_account(
    database: Database,
    kernels: pd.DataFrame,
    names: Sequence[str],
    calls: Sequence[HostSpan],
    ranges: Sequence[Range],
) -> Account | None:
    """Return what a step takes on the clock, and why.

    The export is of one process. `kernels` are start, end, device, stream and correlation of each
    kernel, `names` what it is called. None without API calls, which tell what the host did, or
    without ranges that repeat.
    """
    if not calls:
        return None
    last = max(int(kernels["end"].max()), *(call.end for call in calls))
    recording = Recording.of(
        [*calls, *_ranges(ranges, calls, last)],
        [
            *_activities(kernels, DeviceKind.KERNEL, names),
            *_moves(database, COPIES, DeviceKind.COPY),
            *_moves(database, FILLS, DeviceKind.FILL),
        ],
    )
    steps = find_steps(recording)
    if not steps.name:
        return None
    finder = Origins(recording, steps)
    pytorch = any(_PYTORCH in name for name in set(names))
    origins = finder.all(recording.activities)
    return account_of(recording, steps, finder, origins, pytorch=pytorch)


def read_calls(database: Database) -> list[HostSpan]:
    """Return the API calls of an export; the thread of one is -1 where the file does not tell."""
    optional = ("end", "correlationId", "globalTid", "nameId")
    rows = on_the_clock(database.integers(CALLS, ("start",), optional))
    strings = database.texts_of("StringIds", "id", "value", rows["nameId"].tolist())
    named = {at: _VERSION.sub("", strings.get(at, "")) for at in set(rows["nameId"].tolist())}
    columns = (rows[name].tolist() for name in ("start", *optional))
    return [
        HostSpan(HostKind.CALL, named[name], start, max(start, end), thread, number)
        for start, end, number, thread, name in zip(*columns, strict=True)
    ]


def _ranges(ranges: Sequence[Range], calls: Sequence[HostSpan], last: int) -> list[HostSpan]:
    """Return the program's own ranges; those of no thread are put on the one that calls most."""
    own, _ = default_domain(ranges)
    nested = [each for each in own if each.thread is not None]
    (main, _), *_rest = Counter(call.thread for call in calls).most_common(1)
    return [
        HostSpan(
            HostKind.RANGE,
            each.name,
            each.start,
            max(last, each.start) if each.end == FOREVER else each.end,
            main if each.thread is None else each.thread,
        )
        for each in nested or own
    ]


def _moves(database: Database, table: str, kind: DeviceKind) -> list[Activity]:
    optional = ("correlationId", "streamId", "bytes", "copyKind", "srcKind", "dstKind")
    rows = on_the_clock(database.integers(table, ("start", "end", "deviceId"), optional))
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
