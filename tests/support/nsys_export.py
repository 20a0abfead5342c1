"""A small SQLite file such as ``nsys export`` makes, in the tables of three of its generations."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from perfml.readers import Source
from perfml.readers.nsys import sqlite_file
from perfml.tables import Kernels

# Tables and columns as the exporter writes them; the columns that no reader needs are left out.
# "2020": no export facts, everything NOT NULL with defaults, no capability of the device.
# "2022": as in a recorded export of 2022.2. "2026": facts under another name, names of ranges
# in StringIds.
_KERNEL = """
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL(start INTEGER NOT NULL, end INTEGER NOT NULL,
  deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, streamId INTEGER NOT NULL,
  correlationId INTEGER, globalPid INTEGER, demangledName INTEGER NOT NULL,
  shortName INTEGER NOT NULL, registersPerThread INTEGER NOT NULL, gridX INTEGER NOT NULL,
  gridY INTEGER NOT NULL, gridZ INTEGER NOT NULL, blockX INTEGER NOT NULL,
  blockY INTEGER NOT NULL, blockZ INTEGER NOT NULL, staticSharedMemory INTEGER NOT NULL,
  dynamicSharedMemory INTEGER NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME(start INTEGER NOT NULL, end INTEGER NOT NULL,
  eventClass INTEGER NOT NULL, globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL,
  returnValue INTEGER NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY(start INTEGER NOT NULL, end INTEGER NOT NULL,
  deviceId INTEGER NOT NULL, bytes INTEGER NOT NULL, streamId INTEGER, correlationId INTEGER,
  copyKind INTEGER, srcKind INTEGER, dstKind INTEGER);
CREATE TABLE ENUM_CUDA_MEM_KIND(id INTEGER, name TEXT, label TEXT);
CREATE TABLE StringIds(id INTEGER NOT NULL PRIMARY KEY, value TEXT NOT NULL);
"""
_GENERATIONS = {
    "2020": """
CREATE TABLE TARGET_INFO_GPU(vmId INT NOT NULL, id INT NOT NULL, name TEXT NOT NULL);
CREATE TABLE NVTX_EVENTS(start INT NOT NULL, end INT NOT NULL, eventType INT NOT NULL,
  text TEXT NOT NULL, globalTid INT NOT NULL, domainId INT NOT NULL);
""",
    "2022": """
CREATE TABLE TARGET_INFO_GPU(vmId INTEGER NOT NULL, id INTEGER NOT NULL, name TEXT,
  cuDevice INTEGER, computeMajor INTEGER, computeMinor INTEGER);
CREATE TABLE NVTX_EVENTS(start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL,
  text TEXT, globalTid INTEGER, textId INTEGER, domainId INTEGER);
CREATE TABLE EXPORT_META_DATA(name TEXT NOT NULL, value TEXT);
""",
    "2026": """
CREATE TABLE TARGET_INFO_GPU(vmId INTEGER NOT NULL, id INTEGER NOT NULL, name TEXT,
  cuDevice INTEGER, computeMajor INTEGER, computeMinor INTEGER);
CREATE TABLE NVTX_EVENTS(start INTEGER NOT NULL, end INTEGER, eventType INTEGER NOT NULL,
  text TEXT, jsonText TEXT, globalTid INTEGER, textId INTEGER, domainId INTEGER);
CREATE TABLE META_DATA_EXPORT(name TEXT NOT NULL, value TEXT);
CREATE TABLE DIAGNOSTIC_EVENT(timestamp INTEGER, severity INTEGER, text TEXT);
""",
}
GENERATIONS = tuple(_GENERATIONS)
_FACTS = {"2022": ("EXPORT_META_DATA", "2022.2.1.31"), "2026": ("META_DATA_EXPORT", "2026.1.1.204")}

PUSH_POP, START_END = 59, 60
PID = 4321


def global_id(pid: int, tid: int = 0) -> int:
    """Return Nsight Systems' serialised id of a process, or of a thread of it."""
    return (1 << 56) | (pid << 24) | tid


class Export:
    """An export that is being written."""

    def __init__(self, path: Path, generation: str = "2022") -> None:
        self.path = path
        self.generation = generation
        self.connection = sqlite3.connect(path)
        self.connection.execute("PRAGMA synchronous = OFF")  # nobody waits for the disk
        self.connection.executescript(_KERNEL + _GENERATIONS[generation])
        self._strings: dict[str, int] = {}
        self.string("")
        if generation == "2020":
            self.insert("TARGET_INFO_GPU", vmId=1, id=0, name="Tesla T4")
        else:
            # The number that CUDA has for a device is not the one that the machine has.
            for number, cuda in ((3, 0), (0, 1)):
                row = {"vmId": 1, "id": number, "name": f"GPU {cuda}", "cuDevice": cuda}
                self.insert("TARGET_INFO_GPU", **row, computeMajor=8, computeMinor=cuda)
            table, version = _FACTS[generation]
            self.insert(table, name="EXPORT_PRODUCT_VERSION", value=version)
            self.insert(table, name="EXPORT_SCHEMA_VERSION", value="2.9.1")

    def insert(self, table: str, **cells: object) -> None:
        names, marks = ", ".join(cells), ", ".join("?" * len(cells))
        query = f"INSERT INTO {table}({names}) VALUES ({marks})"
        self.connection.execute(query, tuple(cells.values()))

    def string(self, text: str) -> int:
        number = self._strings.get(text)
        if number is None:
            number = self._strings[text] = len(self._strings)
            self.insert("StringIds", id=number, value=text)
        return number

    def launch(
        self,
        name: str,
        called: int | None,
        start: int,
        end: int,
        *,
        correlation: int | None = None,
        thread: int = 7,
        pid: int = PID,
        stream: int = 7,
        device: int = 0,
    ) -> None:
        """Add a kernel, and its call unless `called` is None; times in nanoseconds."""
        if correlation is None:
            correlation = (
                1
                + self.connection.execute(
                    "SELECT COUNT(*) FROM CUPTI_ACTIVITY_KIND_KERNEL"
                ).fetchone()[0]
            )
        self.insert(
            "CUPTI_ACTIVITY_KIND_KERNEL",
            start=start,
            end=end,
            deviceId=device,
            contextId=1,
            streamId=stream,
            correlationId=correlation,
            globalPid=global_id(pid),
            demangledName=self.string(name),
            shortName=self.string(name.split("(")[0]),
            registersPerThread=32,
            gridX=4,
            gridY=2,
            gridZ=1,
            blockX=256,
            blockY=1,
            blockZ=1,
            staticSharedMemory=1024,
            dynamicSharedMemory=512,
        )
        if called is not None:
            self.insert(
                "CUPTI_ACTIVITY_KIND_RUNTIME",
                start=called,
                end=called + 5,
                eventClass=0,
                returnValue=0,
                globalTid=global_id(pid, thread),
                correlationId=correlation,
                nameId=self.string("cudaLaunchKernel_v7000"),
            )

    def range(
        self,
        name: str,
        start: int,
        end: int | None,
        *,
        kind: int = PUSH_POP,
        thread: int = 7,
        pid: int = PID,
        domain: int = 0,
    ) -> None:
        """Add an NVTX range; `end` None is one that was never closed."""
        row: dict[str, object] = {"start": start, "end": end, "eventType": kind, "text": name}
        row |= {"globalTid": global_id(pid, thread), "domainId": domain}
        if self.generation == "2020":
            row["end"] = 0 if end is None else end
        if self.generation == "2026":
            row |= {"text": None, "textId": self.string(name)}
        self.insert("NVTX_EVENTS", **row)

    def copy(self, start: int, end: int, device: int = 0, **cells: int) -> None:
        row = {"start": start, "end": end, "deviceId": device, "bytes": 4}
        self.insert("CUPTI_ACTIVITY_KIND_MEMCPY", **row, **cells)

    def call(self, name: str, start: int, end: int, correlation: int, thread: int = 7) -> None:
        """Add an API call that launches no kernel."""
        owner = global_id(PID, thread)
        row = {"start": start, "end": end, "globalTid": owner, "correlationId": correlation}
        row |= {"eventClass": 0, "returnValue": 0, "nameId": self.string(name)}
        self.insert("CUPTI_ACTIVITY_KIND_RUNTIME", **row)

    def close(self) -> Path:
        self.connection.commit()
        self.connection.close()
        return self.path

    def read(self) -> Kernels:
        return sqlite_file.read(Source(self.close()))


def fill(export: Export) -> None:
    """Two iterations: conv_01 launches two kernels, conv_02 one; one more outside every range.

    All run long after they were launched, as on a GPU that is behind its host.
    """
    gemm = "void gemm<float, 128>(const float *, float *, int)"
    for iteration in (0, 1):
        base = 1000 * iteration
        export.range(f"iter_{iteration}", base + 100, base + 900)
        export.range("conv_01", base + 150, base + 300)
        export.range("conv_02", base + 310, base + 400)
        late = base * 100 + 100_000
        export.launch("im2col(float *)", base + 160, late, late + 2540)
        export.launch(gemm, base + 200, late + 3000, late + 13000)
        export.launch(gemm, base + 320, late + 14000, late + 15500)
        export.launch("im2col(float *)", base + 950, late + 16000, late + 17000)
