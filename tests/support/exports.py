"""Write exports of ncu and nvprof from a random table, as those tools print them.

Each writer takes launches and gives the text (or fills the file), so that what is read back can be
held against the numbers that were drawn.
"""

from __future__ import annotations

import csv
import io
import sqlite3
from dataclasses import dataclass
from pathlib import Path

from hypothesis import strategies as st

from perfml.metrics import load_catalogue
from tests.support.ncu_pages import BYTES, DURATION, IDENTITY, OCCUPANCY, THREADS, launch, table
from tests.support.nvprof_profile import EPOCH, THREAD, Profile

TIME_UNITS = {"s": 1e6, "ms": 1e3, "us": 1.0, "ns": 1e-3}
"""Microseconds in each."""


@dataclass(frozen=True)
class Drawn:
    """One launch, or one kernel of a table of averages."""

    kernel: str
    nanoseconds: int
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    registers: int
    shared_bytes: int
    launches: int
    hundredths: int
    """Of a percentage, 0 to 10,000."""
    level: int
    layer: str


def _lone_blanks(name: str) -> bool:
    """Text tables part their columns by two blanks, and mark kernels and ranges by brackets."""
    stripped = name == name.strip() and "  " not in name and "==" not in name
    return stripped and not name.startswith("[") and not name.endswith("]")


TEXT = st.text(
    st.characters(min_codepoint=32, max_codepoint=0x24F, exclude_categories=("Cc", "Cf")),
    min_size=1,
    max_size=40,
).filter(_lone_blanks)
CPP = st.from_regex(
    r"(void )?[a-z_]{1,12}(::[a-z]{1,8})?(<(int=[0-9]{1,3}|float|bool=1)>)?"
    r"(\((int|float const \*|, ){0,4}\))?",
    fullmatch=True,
).filter(_lone_blanks)
SIZE = st.tuples(st.integers(1, 2**31 - 1), st.integers(1, 65535), st.integers(1, 65535))
BLOCK = st.tuples(st.integers(1, 1024), st.integers(1, 1024), st.integers(1, 64))
LAYER = st.sampled_from(["", "conv_01", "conv_02", "pool", "block/conv"])


def launches(names: st.SearchStrategy[str] = TEXT, most: int = 6) -> st.SearchStrategy[list[Drawn]]:
    """Return a strategy of launches; kernels may recur."""
    one = st.builds(
        Drawn,
        kernel=names,
        nanoseconds=st.integers(1, 10**12),
        grid=SIZE,
        block=BLOCK,
        registers=st.integers(1, 255),
        shared_bytes=st.integers(0, 232_448),
        launches=st.integers(1, 10**6),
        hundredths=st.integers(0, 10_000),
        level=st.integers(0, 10),
        layer=LAYER,
    )
    return st.lists(one, min_size=1, max_size=most)


def distinct(drawn: list[Drawn]) -> list[Drawn]:
    """Keep the first launch of each kernel, for tables with a row a kernel."""
    return list({each.kernel: each for each in reversed(drawn)}.values())


def ncu_raw(drawn: list[Drawn], unit: str, *, german: bool = False) -> str:
    """Return ncu's raw page; six decimals, scaled to `unit` (``ns``, ``us`` or ``ms``)."""
    digits = {"ns": 0, "us": 3, "ms": 6}[unit]
    rows = []
    for number, each in enumerate(drawn):
        values = [
            f"{each.nanoseconds / TIME_UNITS['s'] * 1e6 / _per(unit):.{digits}f}",
            f"{each.hundredths / 100:.6f}",
            f"{each.registers:,}",
            f"{each.shared_bytes / 1e3:.6f}",
        ]
        if german:
            values = [value.translate(str.maketrans(",.", ".,")) for value in values]
        ranges = ("iter_0", *each.layer.split("/")) if each.layer else ()
        row = launch(number, values, kernel=each.kernel, ranges=ranges)
        row[IDENTITY.index("Block Size")] = "({}, {}, {})".format(*each.block)
        row[IDENTITY.index("Grid Size")] = "({}, {}, {})".format(*each.grid)
        rows.append(row)
    header = [*IDENTITY, DURATION, OCCUPANCY, THREADS, BYTES]
    return table(header, [*[""] * len(IDENTITY), unit, "%", "", "Kbyte"], rows)


def _per(unit: str) -> float:
    return {"ns": 1.0, "us": 1e3, "ms": 1e6}[unit]


def nvprof_time(nanoseconds: int) -> tuple[str, float]:
    """Return a time as nvprof prints it, with five digits, and the microseconds that this says."""
    for unit, nano in (("s", 1e9), ("ms", 1e6), ("us", 1e3), ("ns", 1.0)):
        if nanoseconds >= nano:
            text = f"{nanoseconds / nano:#.5g}"
            if "e" in text or unit == "ns":
                text = f"{nanoseconds / nano:.0f}"
            return text + unit, float(text) * TIME_UNITS[unit]
    return "0ns", 0.0


def nvprof_trace(drawn: list[Drawn]) -> str:
    """Return what ``nvprof --print-gpu-trace`` prints."""
    columns = "Start,Duration,Grid Size,Block Size,Regs*,SSMem*,DSMem*,Device,Context,Stream,Name"
    lines = [
        "==7== NVPROF is profiling process 7, command: ./net",
        "==7== Profiling result:",
        "   " + columns.replace(",", "  "),
    ]
    for number, each in enumerate(drawn):
        time, _ = nvprof_time(each.nanoseconds)
        sizes = ["({} {} {})".format(*each.grid), "({} {} {})".format(*each.block)]
        lines.append(
            f"{number + 1:d}.00000s  {time:>8}  {sizes[0]:>20}  {sizes[1]:>14}  "
            f"{each.registers:>8}  {each.shared_bytes:>7}B        0B  Tesla V100 (0)"
            f"         1         7  {each.kernel} [{number + 100}]"
        )
    notes = ["", "Regs: Number of registers used per CUDA thread. This number includes more."]
    return "\n".join([*lines, *notes, ""])


def nvprof_trace_csv(drawn: list[Drawn], unit: str) -> str:
    """Return what ``nvprof --print-gpu-trace --csv`` prints."""
    columns = ["Start", "Duration", *(f"{k} {a}" for k in ("Grid", "Block") for a in "XYZ")]
    columns += ["Registers Per Thread", "Static SMem", "Dynamic SMem", "Device", "Name"]
    out = io.StringIO("==7== Profiling result:\n")
    out.seek(0, io.SEEK_END)
    writer = csv.writer(out, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
    writer.writerow(columns)
    out.write(f"s,{unit},,,,,,,,B,B,,\n")
    for number, each in enumerate(drawn):
        time = each.nanoseconds / 1e3 / TIME_UNITS[unit]
        sizes = [*each.grid, *each.block, each.registers, each.shared_bytes, 0]
        writer.writerow([number, time, *sizes, "Tesla V100 (0)", each.kernel])
    return out.getvalue()


def nvprof_summary(drawn: list[Drawn]) -> str:
    """Return nvprof's summary: a row a kernel."""
    lines = [
        "==7== Profiling result:",
        "            Type  Time(%)      Time     Calls       Avg       Min       Max  Name",
    ]
    for number, each in enumerate(drawn):
        kind = " GPU activities:" if number == 0 else " " * 16
        total = nvprof_time(each.nanoseconds * each.launches)[0]
        mean = nvprof_time(each.nanoseconds)[0]
        cells = f"{total:>9} {each.launches:>9}  {mean:>8}  {mean:>8}  {mean:>8}  {each.kernel}"
        lines.append(f"{kind}   {50.0:>5.2f}% {cells}")
    return "\n".join([*lines, ""])


_WORDS = {0: "Idle", 10: "Max"}


def metrics_of(each: Drawn) -> dict[str, str]:
    """Return the metrics of a kernel as nvprof prints them."""
    return {
        "warp_execution_efficiency": f"{each.hundredths / 100:.2f}%",
        "achieved_occupancy": f"{each.hundredths / 10_000:.6f}",
        "dram_utilization": f"{_WORDS.get(each.level, 'Mid')} ({each.level})",
        "gld_throughput": f"{each.shared_bytes}B/s",
    }


def expected(drawn: list[Drawn]) -> dict[str, list[float]]:
    """Return the canonical values of `metrics_of`."""
    catalogue = load_catalogue()
    assert catalogue["warp_execution_efficiency"].nvprof_unit == "percent"
    return {
        "warp_execution_efficiency": [each.hundredths / 10_000 for each in drawn],
        "achieved_occupancy": [each.hundredths / 10_000 for each in drawn],
        "dram_utilization": [each.level / 10 for each in drawn],
        "gld_throughput": [float(each.shared_bytes) for each in drawn],
    }


def nvprof_metrics(drawn: list[Drawn]) -> str:
    """Return what ``nvprof --metrics`` prints: a block a kernel."""
    header = f"Invocations{'Metric Name':>42}{'Metric Description':>42}"
    header += "         Min         Max         Avg"
    lines = ["==7== Profiling result:", "==7== Metric result:", header, 'Device "Tesla V100 (0)"']
    for each in drawn:
        lines.append(f"    Kernel: {each.kernel}")
        for name, value in metrics_of(each).items():
            cells = f"  {value:>10}" * 3
            lines.append(f"{each.launches:>11}{name:>42}{'A Description':>42}{cells}")
    return "\n".join([*lines, ""])


def nvprof_metrics_csv(drawn: list[Drawn]) -> str:
    """Return what ``nvprof --metrics --csv`` prints."""
    out = io.StringIO("==7== Metric result:\n")
    out.seek(0, io.SEEK_END)
    writer = csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator="\n")
    columns = "Device,Kernel,Invocations,Metric Name,Metric Description,Min,Max,Avg"
    writer.writerow(columns.split(","))
    for each in drawn:
        for name, value in metrics_of(each).items():
            row = ["Tesla V100 (0)", each.kernel, each.launches, name, "A Description"]
            writer.writerow([*row, value, value, value])
    return out.getvalue()


def nvprof_sqlite(drawn: list[Drawn], path: Path) -> None:
    """Write an exported profile; a launch's layer becomes NVTX ranges around its API call."""
    profile = Profile(path)
    try:
        texts = {100 + n: each.kernel for n, each in enumerate(drawn)}
        names = sorted({part for each in drawn for part in each.layer.split("/") if part})
        texts |= {1000 + n: name for n, name in enumerate(names)}
        profile.insert("StringTable", list(texts.items()), "_id_, value")
        profile.range(1, 4, 0, 10**9)
        for number, each in enumerate(drawn):
            called = 1000 * (number + 1)
            for depth, part in enumerate(each.layer.split("/") if each.layer else ()):
                key = 10 * (number + 1) + depth
                profile.range(
                    key, 1000 + names.index(part), called - 90 + depth, called + 90 - depth
                )
            _launch(profile.connection, number, each, called, start=10**10 + number * 10**13)
            profile.connection.commit()
    finally:
        profile.connection.close()


def _launch(
    connection: sqlite3.Connection, number: int, each: Drawn, called: int, start: int
) -> None:
    cells = {
        "registersPerThread": each.registers,
        "start": EPOCH + start,
        "end": EPOCH + start + each.nanoseconds,
        "deviceId": 0,
        **dict(zip(("gridX", "gridY", "gridZ"), each.grid, strict=True)),
        **dict(zip(("blockX", "blockY", "blockZ"), each.block, strict=True)),
        "staticSharedMemory": each.shared_bytes,
        "dynamicSharedMemory": 0,
        "correlationId": number,
        "name": 100 + number,
    }
    marks = ", ".join("?" * len(cells))
    connection.execute(
        f"INSERT INTO CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL({', '.join(cells)}) VALUES ({marks})",
        list(cells.values()),
    )
    connection.execute(
        "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME(start, end, threadId, correlationId) "
        "VALUES (?, ?, ?, ?)",
        (EPOCH + called, EPOCH + called + 5, THREAD, number),
    )
