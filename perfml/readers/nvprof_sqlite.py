"""Read the SQLite profile that ``nvprof --export-profile`` and the Visual Profiler write.

Kernels, their times and sizes, and NVTX ranges are read; a launch belongs to the ranges that
were open when its API call began. The collected metrics are not: the file has numbers where
their names should be, CUPTI gives a metric another number on every kind of device (the same
achieved_occupancy has been seen as 19923062 on one), and the file maps them nowhere.
"""

from __future__ import annotations

import functools
import sqlite3
import urllib.parse
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from perfml.errors import InputError
from perfml.readers._demangle import demangled
from perfml.readers._frame import kernels_frame
from perfml.readers._nvprof_ranges import Launch, Marker, default_domain, locate, pair
from perfml.readers._nvprof_values import dim3
from perfml.readers._options import ReadOptions
from perfml.readers._source import Source
from perfml.tables import Kernels

NAME = "nvprof-sqlite"

_MAGIC = b"SQLite format 3\0"
_ACTIVITY = "CUPTI_ACTIVITY_KIND_"
_KERNELS = ("KERNEL", "CONCURRENT_KERNEL")
_MEMORY = ("MEMCPY", "MEMCPY2", "MEMSET")
_METRICS = ("METRIC", "METRIC_INSTANCE")
_CALLS = ("RUNTIME", "DRIVER")
_SIZES = ("gridX", "gridY", "gridZ", "blockX", "blockY", "blockZ")
_KERNEL_COLUMNS = (
    *("start", "end", "deviceId", "correlationId", "name", *_SIZES, "registersPerThread"),
    *("staticSharedMemory", "dynamicSharedMemory"),
)
_LONGEST_CELL = 16 << 20
_AS_TEXT = "nvprof --import-profile FILE --print-gpu-trace --csv"


def recognises(source: Source) -> bool:
    """Tell whether the file is an SQLite database."""
    return source.head.startswith(_MAGIC)


def read(source: Source, options: ReadOptions | None = None) -> Kernels:
    """Read an exported nvprof profile.

    Raises
    ------
    InputError
        If the file is damaged or cut, is no profile of nvprof, or has no kernels.
    """
    del options
    _check_size(source)
    with _opened(source) as profile:
        return _Reader(source, profile).kernels()


def _check_size(source: Source) -> None:
    """Raise if the file is shorter than its own header says."""
    head = source.head[:100]
    page = int.from_bytes(head[16:18], "big")
    page = 65536 if page == 1 else page
    counted = head[24:28] == head[92:96]
    pages = int.from_bytes(head[28:32], "big") if counted else 0
    size = len(source.data) if source.compressed else source.path.stat().st_size
    if len(head) < 100 or size < page * pages:
        msg = "the SQLite file is cut off"
        raise InputError(
            msg,
            where=str(source.path),
            found=f"{size} bytes of {page * pages}",
            cure="Copy or export the profile again.",
        )


class _Profile:
    """A database opened for reading, whose tables come as frames."""

    def __init__(self, connection: sqlite3.Connection, where: str) -> None:
        self._connection = connection
        self.where = where
        rows = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        self.tables = {str(row[0]) for row in rows}

    def has(self, table: str) -> bool:
        """Tell whether there is such a table, and a row in it."""
        return table in self.tables and bool(
            self._connection.execute(f"SELECT 1 FROM {table} LIMIT 1").fetchone()  # noqa: S608
        )

    def count(self, table: str) -> int:
        """Return how many rows a table has; 0 if there is none."""
        if table not in self.tables:
            return 0
        query = f"SELECT COUNT(*) FROM {table}"  # noqa: S608 - our own constant names
        return int(self._connection.execute(query).fetchone()[0])

    def frame(
        self, table: str, columns: Sequence[str], optional: Sequence[str] = ()
    ) -> pd.DataFrame:
        """Return columns of a table as they are stored.

        Raises
        ------
        InputError
            If a column is missing.
        """
        if table not in self.tables:
            return pd.DataFrame({name: [] for name in (*columns, *optional)}, dtype="object")
        query = f"SELECT name FROM pragma_table_info('{table}')"  # noqa: S608
        known = {row[0] for row in self._connection.execute(query)}
        missing = [name for name in columns if name not in known]
        if missing:
            msg = f"the table {table} lacks the columns {', '.join(missing)}"
            raise InputError(msg, where=self.where, cure="Export the profile with nvprof again.")
        present = [*columns, *(name for name in optional if name in known)]
        quoted = ", ".join(f'"{name}"' for name in present)
        rows = self._connection.execute(f"SELECT {quoted} FROM {table}").fetchall()  # noqa: S608
        return pd.DataFrame(rows, columns=present, dtype="object")

    def integers(self, table: str, columns: Sequence[str]) -> pd.DataFrame:
        """Return columns of a table as 64-bit integers.

        Raises
        ------
        InputError
            If a cell is no integer.
        """
        frame = self.frame(table, columns)
        for name in columns:
            cells = frame[name].tolist()
            wrong = next((cell for cell in cells if type(cell) is not int), None)
            if wrong is not None or any(type(cell) is not int for cell in cells):
                msg = f"a cell of {table}.{name} is no integer"
                raise InputError(
                    msg,
                    where=self.where,
                    found=repr(wrong)[:80],
                    cure="The file is damaged; export the profile again.",
                )
            frame[name] = np.array(cells, dtype="int64")
        return frame


@contextmanager
def _opened(source: Source) -> Iterator[_Profile]:
    with source.local(".nvprof") as path:
        # Immutable: the file is opened without locks or journals, and cannot be changed.
        address = f"file:{urllib.parse.quote(str(Path(path).resolve()))}?mode=ro&immutable=1"
        try:
            with closing(sqlite3.connect(address, uri=True)) as connection:
                connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST_CELL)
                connection.text_factory = lambda raw: raw.decode("utf-8", errors="replace")
                connection.execute("PRAGMA trusted_schema = OFF")
                yield _Profile(connection, str(source.path))
        except (sqlite3.Error, sqlite3.Warning, UnicodeError, OverflowError) as error:
            msg = "the SQLite file cannot be read"
            raise InputError(
                msg,
                where=str(source.path),
                found=" ".join(str(error).split())[:200],
                cure="The file is damaged; export or copy the profile again.",
            ) from error


class _Reader:
    def __init__(self, source: Source, profile: _Profile) -> None:
        self.source = source
        self.profile = profile
        self.warnings: list[str] = []
        self.without_call = 0

    def kernels(self) -> Kernels:
        """Return the Kernels table of the whole profile."""
        self._require()
        raw = pd.concat(
            [self.profile.integers(_ACTIVITY + name, _KERNEL_COLUMNS) for name in _KERNELS],
            ignore_index=True,
        )
        if raw.empty:
            raise self._nothing()
        strings = self._strings()
        launched = self._launched(raw)
        began = raw["start"].tolist()
        order = sorted(range(len(raw)), key=lambda row: (launched[row].time, began[row]))
        raw = raw.iloc[order].reset_index(drop=True)
        devices = self._devices(strings)
        launches = self._launches(raw, strings, devices)
        paths, instances = self._ranges([launched[row] for row in order], strings)
        frame = kernels_frame(launches, paths, instances=instances)
        self._other_records()
        return Kernels(frame, self._provenance(devices), tuple(self.warnings))

    def _require(self) -> None:
        tables = self.profile.tables
        if "StringIds" in tables:
            msg = "this is an export of Nsight Systems, not of nvprof"
            raise InputError(
                msg,
                where=self.profile.where,
                cure="It has no metrics; collect them with Nsight Compute (perfml collect).",
            )
        if "StringTable" not in tables or not any(_ACTIVITY + k in tables for k in _KERNELS):
            msg = "this SQLite file is no profile of nvprof"
            raise InputError(
                msg,
                where=self.profile.where,
                found=f"tables {', '.join(sorted(tables)[:6])}" if tables else "no tables",
                cure="Write one with: nvprof --export-profile FILE CMD ...",
            )

    def _nothing(self) -> InputError:
        counts = {
            name: self.profile.count(name)
            for name in sorted(self.profile.tables)
            if name.startswith(_ACTIVITY)
        }
        shown = [
            f"{count} rows of {name.removeprefix(_ACTIVITY)}"
            for name, count in counts.items()
            if count
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
        start, end = raw["start"].to_numpy(), raw["end"].to_numpy()
        invalid = (start <= 0) | (end <= start)
        if invalid.any():
            self.warnings.append(
                f"{int(invalid.sum())} kernels have invalid timestamps; their times are missing."
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
                "time_us": np.where(invalid, np.nan, (end - start) / 1e3),
                "time_source": [None if wrong else "nvprof" for wrong in invalid],
                "launches": 1,
                "registers_per_thread": raw["registersPerThread"].astype(float),
                "shared_memory_per_block": raw["staticSharedMemory"].astype(float)
                + raw["dynamicSharedMemory"].astype(float),
                "threads": raw[list(_SIZES)].astype(float).prod(axis=1),
            }
        )

    def _names(self, numbers: list[int], strings: dict[int, str]) -> list[str]:
        unnamed = [number for number in numbers if not strings.get(number)]
        if unnamed:
            msg = f"{len(unnamed)} kernels have names that are not in the StringTable"
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
                f"{mangled} kernel names could not be demangled here and stay as they are; they "
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
                f"{self.without_call} kernels have no API call in the file; they were put into the "
                "NVTX ranges by the time they began on the GPU, which may be later than the launch."
            )
        threads = {each.thread for each in ranges} - {None}
        callers = {launch.thread for launch in launches} - {None}
        if threads and callers and not threads & callers:
            self.warnings.append(
                "The threads of the NVTX ranges and of the launches are numbered differently; "
                "ranges were matched by time alone."
            )
            launches = [Launch(launch.time, None) for launch in launches]
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

    def _other_records(self) -> None:
        """Say what the file holds that is not in the table."""
        memory = sum(self.profile.count(_ACTIVITY + name) for name in _MEMORY)
        if memory:
            self.warnings.append(
                f"{memory} memory copies and sets are no kernels and were left out."
            )
        nested = self.profile.count(_ACTIVITY + "CDP_KERNEL")
        if nested:
            self.warnings.append(
                f"{nested} kernels launched by other kernels were left out; their work is in the "
                "times of the kernels that launched them."
            )
        numbers = self.metric_numbers
        if numbers:
            self.warnings.append(
                f"The file has {len(numbers)} metrics without their names, so they were left out: "
                "CUPTI's numbers differ between devices and the file does not explain them. Print "
                f"them with {_AS_TEXT} (any machine with that nvprof) and ingest that."
            )

    @functools.cached_property
    def metric_numbers(self) -> list[int]:
        """The CUPTI numbers of the metrics collected, sorted."""
        found: set[int] = set()
        for name in _METRICS:
            found |= set(self.profile.integers(_ACTIVITY + name, ("id",))["id"].tolist())
        return sorted(found)

    def _provenance(self, devices: dict[int, tuple[str | None, str]]) -> dict[str, Any]:
        versions = self.profile.frame("Version", ("version",))["version"].tolist()
        return {
            "path": self.source.path.name,
            "sha256": self.source.sha256,
            "format": NAME,
            "tool": "nvprof",
            "tool_version": None,
            "device": ", ".join(dict.fromkeys(name or "?" for name, _ in devices.values())) or None,
            "compute_capability": ", ".join(dict.fromkeys(each for _, each in devices.values()))
            or None,
            "schema_version": versions[0] if versions and isinstance(versions[0], int) else None,
            "serialised": self.profile.has(_ACTIVITY + "KERNEL"),
            "metric_numbers": self.metric_numbers,
            "memory_operations": sum(self.profile.count(_ACTIVITY + name) for name in _MEMORY),
        }
