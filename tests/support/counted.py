"""What a profile says of its devices' time, counted by json and sqlite3 alone."""

from __future__ import annotations

import gzip
import json
import lzma
import sqlite3
import tempfile
from collections import defaultdict
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path

KERNELS = ("kernel", "Kernel")
COPIES = ("gpu_memcpy", "gpu_memset", "Memcpy", "Memset")
_NSYS_COPIES = ("CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET")


@dataclass
class Device:
    """Spans in microseconds of one device: (start, end)."""

    kernels: list[tuple[float, float]] = field(default_factory=list)
    copies: list[tuple[float, float]] = field(default_factory=list)
    by_kernel: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    @property
    def kernels_us(self) -> float:
        return sum(end - start for start, end in self.kernels)

    @property
    def computing_us(self) -> float:
        return covered(self.kernels)

    @property
    def wall_us(self) -> float:
        """From the first to the last operation, copies included."""
        spans = [*self.kernels, *self.copies]
        return max(end for _, end in spans) - min(start for start, _ in spans)

    @property
    def idle_us(self) -> float:
        return self.wall_us - covered([*self.kernels, *self.copies])


def covered(spans: list[tuple[float, float]]) -> float:
    """Return how long at least one of some spans lasts, walking over their ends."""
    steps = sorted([(start, 1) for start, _ in spans] + [(end, -1) for _, end in spans])
    total, open_spans, since = 0.0, 0, 0.0
    for time, step in steps:
        if open_spans > 0:
            total += time - since
        open_spans, since = open_spans + step, time
    return total


def counted(path: Path) -> dict[int, Device] | None:
    """Return the devices of a PyTorch trace or of an export of Nsight Systems; None for others."""
    content = path.read_bytes()
    if path.suffix == ".gz":
        content = gzip.decompress(content)
    elif path.suffix == ".xz":
        content = lzma.decompress(content)
    if content.startswith(b"SQLite format 3"):
        return _of_database(content)
    if content.lstrip().startswith(b"{") and b"traceEvents" in content:
        # the clock of a machine has more digits than a float
        return _of_trace(json.loads(content, parse_float=Decimal))
    return None


def _of_trace(document: dict) -> dict[int, Device]:
    devices: dict[int, Device] = defaultdict(Device)
    origin = min(Decimal(event["ts"]) for event in document["traceEvents"] if "ts" in event)
    for event in document["traceEvents"]:
        if event.get("ph") != "X" or event.get("cat") not in (*KERNELS, *COPIES):
            continue
        device = devices[int(event["args"].get("device", event["pid"]))]
        start = Decimal(event["ts"]) - origin
        span = (float(start), float(start + Decimal(event["dur"])))
        if event["cat"] in KERNELS:
            device.kernels.append(span)
            device.by_kernel[event["name"]] += float(event["dur"])
        else:
            device.copies.append(span)
    return {number: each for number, each in devices.items() if each.kernels}


def _of_database(content: bytes) -> dict[int, Device] | None:
    with tempfile.NamedTemporaryFile(suffix=".sqlite") as file:
        file.write(content)
        file.flush()
        connection = sqlite3.connect(file.name)
        try:
            tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}
            if "CUPTI_ACTIVITY_KIND_KERNEL" not in tables or "StringIds" not in tables:
                return None
            devices: dict[int, Device] = defaultdict(Device)
            for start, end, number, name in connection.execute(
                "SELECT start, end, deviceId, value FROM CUPTI_ACTIVITY_KIND_KERNEL "
                "LEFT JOIN StringIds ON id = demangledName"
            ):
                devices[number].kernels.append((start / 1e3, end / 1e3))
                devices[number].by_kernel[name] += (end - start) / 1e3
            if "CUPTI_ACTIVITY_KIND_GRAPH_TRACE" in tables:
                for start, end, number in connection.execute(
                    "SELECT start, end, deviceId FROM CUPTI_ACTIVITY_KIND_GRAPH_TRACE"
                ):
                    devices[number].kernels.append((start / 1e3, end / 1e3))
                    devices[number].by_kernel["graphs"] += (end - start) / 1e3
            for table in _NSYS_COPIES:
                if table in tables:
                    for start, end, number in connection.execute(
                        f"SELECT start, end, deviceId FROM {table}"
                    ):
                        devices[number].copies.append((start / 1e3, end / 1e3))
            return {number: each for number, each in devices.items() if each.kernels}
        finally:
            connection.close()
