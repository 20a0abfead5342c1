"""What an export of Nsight Systems recorded of host and devices, and its account."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from perfml.account.account import Account
from perfml.account.audit import Audit, Fact, audited
from perfml.account.build import account_of
from perfml.account.device_time import Spans, recorded_times
from perfml.account.origins import Origins
from perfml.account.recording import Activity, DeviceKind, HostKind, HostSpan, Recording
from perfml.account.steps import find_steps
from perfml.account.window import LEAST, MOST
from perfml.readers.launch_ranges import FOREVER, NOWHERE, RangeTable
from perfml.readers.nsys.nvtx import process_of
from perfml.readers.sqlite_database import Database, on_the_clock
from perfml.util.typing import Ints

CALLS = "CUPTI_ACTIVITY_KIND_RUNTIME"
COPIES, FILLS = "CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET"
_VERSION = re.compile(r"_v\d+$")
COPY_WAYS = {1: "HtoD", 2: "DtoH", 8: "DtoD", 10: "PtoP"}
COPY_WAYS |= {10 + key: f"Unified {COPY_WAYS[way]}" for key, way in ((1, 1), (2, 2), (3, 8))}
"""``copyKind``: CUPTI's CUpti_ActivityMemcpyKind."""
_PYTORCH = re.compile(r"at::native|^aten::")
"""Namespace of PyTorch's own kernels, some of which every program of it launches, and operators."""
_OPERATOR = re.compile(
    r"(aten|prims?|c10d\w*|_c10d_\w+|autograd|torch\w*|inductor|quantized|fbgemm|xformers|"
    r"flash_attn\w*|vllm|_C\w*)::.*|nccl:\w.*|\w+Backward\d*",
    re.DOTALL,
)
"""Ranges that PyTorch makes of its operators (``emit_nvtx``, ``--pytorch=autograd-nvtx``): no steps
of the program."""
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
    start, end, correlation, thread, name = (rows[row].to_numpy() for row in rows)
    codes, ids = pd.factorize(name)
    strings = database.texts_of("StringIds", "id", "value", ids.tolist())
    names = [_VERSION.sub("", strings.get(number, "")) for number in ids.tolist()]
    return Calls(start, np.maximum(start, end), correlation, thread, codes, names)


@dataclass(frozen=True)
class Export:
    """What an export holds, of which a recording is the beginning.

    Attributes
    ----------
    database
        The export.
    kernels
        Start, end, device, stream, process and correlation of each kernel, when it was ``called``
        and its ``name``, an index of `names`.
    moves
        Copies and fills.
    calls
        API calls.
    ranges
        The program's own ranges by process.
    by_process
        Whether kernels name their process; ids of calls count within one.
    multiprocessors
        Of each device, where they are known.
    """

    database: Database
    kernels: pd.DataFrame
    names: Sequence[str]
    moves: Mapping[DeviceKind, pd.DataFrame]
    calls: Calls
    ranges: Mapping[int, RangeTable]
    by_process: bool
    multiprocessors: Mapping[int, float]

    def account(self, facts: Iterable[Fact]) -> tuple[Account | None, int, Audit]:
        """Return the account, how many launches its steps rest on, and the recording's audit.

        Of a long export with steps the first ones are accounted for (`perfml.account.window`).
        None where no operation has a time. `facts` are what Nsight Systems said.
        """
        operations = (self.kernels, *self.moves.values())
        ends = [*(operation["end"].to_numpy() for operation in operations), self.calls.end]
        last = max(int(end.max()) for end in ends if len(end))
        begins = [self.calls.start, *(span.start for span in self.ranges.values())]
        begun, most = np.concatenate(begins), MOST
        while True:
            until = last + 1 if len(begun) <= most else int(np.partition(begun, most)[most])
            recording = self._recording(until)
            if not recording.activities:
                return None, 0, Audit(tuple(facts))
            steps = find_steps(recording)
            if until > last or (steps.name and len(steps.starts) > LEAST):
                break
            most *= 2
        if until <= last:
            until = steps.starts[-1]  # that step was cut
            recording = self._recording(until)
            steps = find_steps(recording)
        recording, audit = audited(recording, facts)
        finder = Origins(recording, steps)
        ranges = {name for table in self.ranges.values() for name in table.names}
        pytorch = any(_PYTORCH.search(name) for name in {*self.names, *ranges})
        origins = finder.all(recording.activities)
        every = recorded_times(spans_of(self.kernels), spans_of(pd.concat(self.moves.values())))
        account = account_of(
            recording,
            steps,
            finder,
            origins,
            pytorch=pytorch,
            recorded=every,
            unknown=audit.unknown,
            multiprocessors=self.multiprocessors,
        )
        return account, int((self.kernels["called"] < until).sum()), audit

    def _recording(self, until: int) -> Recording:
        """Return what the host began, and what it launched, until a time."""
        calls = self.calls
        early = np.flatnonzero(calls.start < until)
        process = np.where(calls.thread >= 0, process_of(calls.thread), 0)
        ids = self._unique(calls.correlation, process)
        columns = (calls.name, calls.start, calls.end, calls.thread, ids)
        rows = zip(*(column[early].tolist() for column in columns), strict=True)
        spans = [HostSpan(HostKind.CALL, calls.names[name], *rest) for name, *rest in rows]
        ranges = (span for table in self.ranges.values() for span in _ranges(table, calls, until))
        ran = self.kernels[self.kernels["called"] < until]
        names = [self.names[at] for at in ran["name"].tolist()]
        moves = (
            move
            for kind, rows in self.moves.items()
            for move in self._moves(kind, rows[rows["start"] < until])
        )
        activities = [*self._activities(DeviceKind.KERNEL, ran, names), *moves]
        return Recording.of(
            [*spans, *ranges],
            (activity for activity in activities if activity.end > activity.start),
        )

    def moved(self) -> list[Activity]:
        """Return all copies and fills that have times."""
        moves = (move for kind, rows in self.moves.items() for move in self._moves(kind, rows))
        return [move for move in moves if move.end > move.start]

    def _unique(self, correlation: Ints, process: Ints) -> Ints:
        """Return ids of calls that count over all processes; each counts its own from 1."""
        return np.where(correlation > 0, correlation + (process << 36) * self.by_process, -1)

    def _moves(self, kind: DeviceKind, rows: pd.DataFrame) -> list[Activity]:
        places: dict[int, str] = {}
        if {"id", "label"} <= self.database.columns(_KINDS):
            ends = [*rows["srcKind"], *rows["dstKind"]]
            places = self.database.texts_of(_KINDS, "id", "label", ends)
        names = ["Memset"] * len(rows)
        if kind is DeviceKind.COPY:
            ways = [COPY_WAYS.get(way, "") for way in rows["copyKind"]]
            ends = [[places.get(end, "") for end in rows[name]] for name in ("srcKind", "dstKind")]
            names = [
                f"Memcpy {way} ({source} -> {sink})"
                for way, source, sink in zip(ways, *ends, strict=True)
            ]
        return self._activities(kind, rows, names)

    def _activities(
        self, kind: DeviceKind, rows: pd.DataFrame, names: Sequence[str]
    ) -> list[Activity]:
        ids = self._unique(
            rows["correlationId"].to_numpy(), process_of(rows["globalPid"].to_numpy())
        )
        columns = [rows[name].tolist() for name in ("start", "end", "deviceId", "streamId")]
        grid, block = (
            rows.reindex(columns=[f"{of}{axis}" for axis in "XYZ"]).clip(lower=0).fillna(0)
            for of in ("grid", "block")
        )
        blocks, threads = grid.prod(axis=1), grid.prod(axis=1) * block.prod(axis=1)
        sizes = rows["bytes"].clip(lower=0).tolist() if "bytes" in rows else [0] * len(rows)
        return [
            Activity(kind, name, start, max(start, end), device, stream, number, *has)
            for name, start, end, device, stream, number, *has in zip(
                names, *columns, ids.tolist(), sizes, blocks.tolist(), threads.tolist(), strict=True
            )
        ]


def read_moves(database: Database) -> dict[DeviceKind, pd.DataFrame]:
    """Return the copies and fills of an export."""
    optional = ("correlationId", "streamId", "bytes", "copyKind", "srcKind", "dstKind", "globalPid")
    tables = {DeviceKind.COPY: COPIES, DeviceKind.FILL: FILLS}
    return {
        kind: on_the_clock(database.integers(table, ("start", "end"), ("deviceId", *optional)))
        for kind, table in tables.items()
    }


def spans_of(rows: pd.DataFrame) -> Spans:
    """Return when operations began and ended."""
    return Spans(*(rows[name].to_numpy() for name in ("deviceId", "start", "end")))


def _ranges(ranges: RangeTable, calls: Calls, until: int) -> list[HostSpan]:
    """Return the program's own ranges; those of no thread are put on the one that calls most."""
    nested = ranges.thread != NOWHERE
    held = np.flatnonzero((ranges.start < until) & (nested | ~nested.any()))
    threads, times = np.unique(calls.thread, return_counts=True)
    busiest = threads[np.argmax(times)] if len(threads) else 0
    thread = np.where(nested[held], ranges.thread[held], busiest)
    end = ranges.end[held]
    end = np.where(end == FOREVER, np.maximum(ranges.start[held], until - 1), end)
    rows = zip(
        *(column.tolist() for column in (ranges.name[held], ranges.start[held], end, thread)),
        strict=True,
    )
    kinds = [
        HostKind.OPERATOR if _OPERATOR.fullmatch(name) else HostKind.RANGE for name in ranges.names
    ]
    return [HostSpan(kinds[name], ranges.names[name], *rest) for name, *rest in rows]
