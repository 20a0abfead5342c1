"""A small SQLite profile such as nvprof exports, made by hand."""

from __future__ import annotations

import sqlite3
import struct
from pathlib import Path

from perfml.readers.nvprof import sqlite_file as nvprof_sqlite
from perfml.readers.source import ReadOptions, Source
from perfml.tables import Kernels

# Table and column names as nvprof writes them (schema version 11); the columns no test needs are
# left out.
SCHEMA = """
CREATE TABLE StringTable(_id_ INTEGER PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE Version(version INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_{kernels}(_id_ INTEGER PRIMARY KEY, registersPerThread INT,
  start INT, end INT, deviceId INT, streamId INT, gridX INT, gridY INT, gridZ INT, blockX INT,
  blockY INT, blockZ INT, staticSharedMemory INT, dynamicSharedMemory INT, correlationId INT,
  name INT);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME(_id_ INTEGER PRIMARY KEY, cbid INT, start INT, end INT,
  processId INT, threadId INT, correlationId INT, returnValue INT);
CREATE TABLE CUPTI_ACTIVITY_KIND_METRIC(_id_ INTEGER PRIMARY KEY, id INT, value BLOB,
  correlationId INT, flags INT);
CREATE TABLE CUPTI_ACTIVITY_KIND_DEVICE(_id_ INTEGER PRIMARY KEY, computeCapabilityMajor INT,
  computeCapabilityMinor INT, id INT, name INT);
CREATE TABLE CUPTI_ACTIVITY_KIND_MARKER(_id_ INTEGER PRIMARY KEY, flags INT, timestamp INT,
  id INT, objectKind INT, objectId BLOB, name INT, domain INT);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY(_id_ INTEGER PRIMARY KEY, bytes INT);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMSET(_id_ INTEGER PRIMARY KEY, bytes INT);
"""
STRINGS = (
    "-- null --",
    "Tesla V100",
    "_Z20better_reduce_kernelILj1024EEvPfS0_jj",
    "volta_sgemm_128x64_nn",
    "iter_0",
    "iter_1",
    "conv_01",
    "conv_02",
    "library_domain",
    "inner",
)
EPOCH = 1_522_565_786_762_190_868
THREAD = 7001


class Profile:
    """A small profile: two iterations of two layers, launched long before they run."""

    def __init__(self, path: Path, kernels: str = "CONCURRENT_KERNEL") -> None:
        self.path = path
        self.kernels = kernels
        self.connection = sqlite3.connect(path)
        self.connection.execute("PRAGMA synchronous = OFF")  # nobody waits for the disk
        self.connection.executescript(SCHEMA.format(kernels=kernels))
        self.insert("StringTable", [(n, text) for n, text in enumerate(STRINGS)], "_id_, value")
        self.insert("Version", [(11,)], "version")
        columns = "computeCapabilityMajor, computeCapabilityMinor, id, name"
        self.insert("CUPTI_ACTIVITY_KIND_DEVICE", [(7, 0, 0, 1)], columns)

    def insert(self, table: str, rows: list[tuple[object, ...]], columns: str) -> None:
        marks = ", ".join("?" * len(rows[0]))
        self.connection.executemany(f"INSERT INTO {table}({columns}) VALUES ({marks})", rows)

    def launch(
        self, correlation: int, name: int, called: int | None, start: int, end: int, thread=THREAD
    ) -> None:
        row = (32, EPOCH + start, EPOCH + end, 0, 7, 4, 2, 1, 256, 1, 1, 1024, 512, correlation)
        columns = (
            "registersPerThread, start, end, deviceId, streamId, gridX, gridY, gridZ, blockX, "
            "blockY, blockZ, staticSharedMemory, dynamicSharedMemory, correlationId, name"
        )
        self.insert(f"CUPTI_ACTIVITY_KIND_{self.kernels}", [(*row, name)], columns)
        if called is not None:
            call = (EPOCH + called, EPOCH + called + 5, thread, correlation)
            columns = "start, end, threadId, correlationId"
            self.insert("CUPTI_ACTIVITY_KIND_RUNTIME", [call], columns)

    def range(
        self, number: int, name: int, start: int, end: int | None, thread=THREAD, kind=2, domain=0
    ) -> None:
        blob = struct.pack("<III", 99, thread, 0)
        rows = [(2, EPOCH + start, number, kind, blob, name, domain)]
        if end is not None:
            rows.append((4, EPOCH + end, number, kind, blob, 0, domain))
        columns = "flags, timestamp, id, objectKind, objectId, name, domain"
        self.insert("CUPTI_ACTIVITY_KIND_MARKER", rows, columns)

    def read(self, raw: bool = False) -> Kernels:
        self.connection.commit()
        self.connection.close()
        return nvprof_sqlite.read(Source(self.path), ReadOptions(raw=raw))


def fill(profile: Profile) -> None:
    """Two iterations: conv_01 launches two kernels, conv_02 one; one more outside every range."""
    for iteration in (0, 1):
        base = 1000 * iteration
        profile.range(10 * iteration + 1, 4 + iteration, base + 100, base + 900)
        profile.range(10 * iteration + 2, 6, base + 150, base + 300)
        profile.range(10 * iteration + 3, 7, base + 310, base + 400)
        late = base + 100_000
        profile.launch(4 * iteration + 1, 2, base + 160, late, late + 2540)
        profile.launch(4 * iteration + 2, 3, base + 200, late + 3000, late + 13000)
        profile.launch(4 * iteration + 3, 3, base + 320, late + 14000, late + 15500)
        profile.launch(4 * iteration + 4, 2, base + 950, late + 16000, late + 17000)
