"""Read what ``nsys stats --format csv`` prints of kernels: the GPU trace, or sums over launches.

``cuda_gpu_trace`` (before 2022 ``gputrace``) has a row a launch, ``cuda_gpu_kern_sum``
(``gpukernsum``) a row a kernel with the mean over its launches, with ``:gb`` or ``_gb_sum`` a row a
kernel and shape. Neither has the NVTX ranges around launches, which the SQLite export has. Other
tables that the tool prints around them are passed over. The shared memory of the trace is rounded
to thousands of bytes, so it is left out.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from perfml.account.account import ACCOUNT, Account
from perfml.errors import InputError
from perfml.readers.frame import kernels_frame
from perfml.readers.source import ReadOptions, Source
from perfml.readers.timeline import printed_clock
from perfml.tables import Kernels
from perfml.util.words import count

NAME = "nsys-stats"

# spaces, not \s: that goes on over lines, and is tried again from each of them
_TRACE = re.compile(r'[ \t]*"?Start ?\((\w+)\)"?,"?Duration ?\((\w+)\)"?,"?CorrId"?,"?GrdX"?,')
_SUM = re.compile(r'[ \t]*"?Time ?\(%\)"?,"?Total Time ?\((\w+)\)"?,"?Instances"?,.*"?Name"?\s*')
_HEADER = re.compile(rf"(?m)^\ufeff?(?:{_TRACE.pattern}|{_SUM.pattern}$)")
_NANOSECONDS = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}
"""By unit, which was ``nsec`` and so on at first."""
_NUMBER = re.compile(r"\d{1,18}(?:\.\d{1,12})?(?:e[-+]?\d{1,2})?")
_WHOLE = re.compile(r"\d{1,15}")
_SIZES = ("GrdX", "GrdY", "GrdZ", "BlkX", "BlkY", "BlkZ")
_ORDINAL = re.compile(r" \(\d+\)$")
_SHAPE = re.compile(r"\s*(\d{1,10})\s+(\d{1,10})\s+(\d{1,10})\s*")
_AGAIN = "Print it again with: nsys stats --report cuda_gpu_trace --format csv FILE.nsys-rep"
_BESIDE = (
    "Read the .sqlite file that nsys stats left beside the .nsys-rep. "
    "It has each launch and the NVTX ranges, which are the layers."
)


Row = dict[str, Any]
"""A launch of a trace, or a kernel of a sum: columns of its table; a launch's start besides."""


Move = tuple[str, str | None, float, float, float]
"""Name, device, start, duration and bytes, if known, of a memory copy or set."""


def recognises(source: Source) -> bool:
    """Tell whether the beginning holds the header of a trace or of sums over kernels."""
    return _HEADER.search(source.head_text()) is not None


def read(source: Source, options: ReadOptions | None = None) -> Kernels:
    """Read a trace, or where there is none the sums; counters are in neither.

    Raises `InputError` if a row is cut or damaged, or there are no kernels.
    """
    del options
    trace, sums, memory = _read_tables(source)
    rows = trace or sums
    if not rows:
        held = f"{count(len(memory), 'memory operation')}, no kernel"
        msg = "this output of nsys stats holds no kernels"
        raise InputError(msg, where=str(source.path), found=held, cure=_AGAIN)
    warnings = [f"There are no NVTX ranges in this, so there are no layers; {_BESIDE}"]
    if trace and sums:
        warnings.append("The sums were left out; the trace has every launch.")
    elif sums:
        total = sum(row["launches"] for row in rows)
        warnings.append(
            f"{count(len(rows), 'row is a mean', 'rows are means')} over {total} launches, so how "
            "launches differ is not in it."
        )
    if memory:
        warnings.append(
            f"{len(memory)} memory copies and sets are no kernels and were left out. They "
            "count as work where gaps between kernels are given."
        )
    columns, account = _columns(rows, memory, traced=bool(trace))
    frame = kernels_frame(columns, [()] * len(rows))
    devices = frame["device"].dropna().unique()
    provenance = {
        **source.provenance(NAME, "Nsight Systems"),
        "tool_version": None,
        "device": ", ".join(map(str, devices)) or None,
        "compute_capability": None,
        "summary": not trace,
        **({} if account is None else {ACCOUNT: account.to_dict()}),
    }
    return Kernels(frame, provenance, tuple(warnings))


def _read_tables(source: Source) -> tuple[list[Row], list[Row], list[Move]]:
    """Return launches, sums over kernels, and memory copies and sets."""
    trace: list[Row] = []
    sums: list[Row] = []
    memory: list[Move] = []
    header: list[str] = []
    traced, scales = False, (1.0, 1.0)
    for number, line in _lines(source):
        where = f"{source.path}:{number}"
        head = _TRACE.match(line) or _SUM.fullmatch(line)
        if head is not None:
            header, traced = _cells(line, where), head.re is _TRACE
            units = [unit.removesuffix("ec") for unit in head.groups() if unit]
            unknown = [unit for unit in units if unit not in _NANOSECONDS]
            if unknown:
                msg = "the unit of the times is not known"
                raise InputError(msg, where=where, found=unknown[0][:40], cure=_AGAIN)
            scales = _NANOSECONDS[units[0]], _NANOSECONDS[units[-1]]
        elif not line.strip():
            header = []  # a blank line ends a table; what follows may be another one
        elif header:
            cells = _cells(line, where)
            if len(cells) != len(header):
                msg = f"the row does not have the {len(header)} cells of the header"
                cure = f"Is the file cut? {_AGAIN}"
                raise InputError(msg, where=where, found=f"{len(cells)} cells", cure=cure)
            row = dict(zip(header, cells, strict=True))
            if not traced:
                sums.append(_sum(row, header[1], scales[0], where))
            elif row["GrdX"].strip():
                trace.append(_launch(row, scales, where))
            else:
                name = row.get("Name", "").strip()
                memory.append((name, _device(row), *_span(row, scales, where), 0.0))
    return trace, sums, memory


def _lines(source: Source) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(source.text().splitlines(), 1):
        yield number, line.removeprefix("\ufeff")


def _span(row: dict[str, str], scales: tuple[float, float], where: str) -> tuple[float, float]:
    """Return start and duration, the first two cells, in nanoseconds."""
    first, second = list(row)[:2]
    start, duration = _number(row[first], first, where), _number(row[second], second, where)
    return start * scales[0], duration * scales[1]


def _device(row: dict[str, str]) -> str | None:
    return _ORDINAL.sub("", row.get("Device", "").strip()) or None


def _launch(row: dict[str, str], scales: tuple[float, float], where: str) -> Row:
    start, duration = _span(row, scales, where)
    sizes = [int(_number(row.get(name, ""), name, where, whole=True)) for name in _SIZES]
    name = row.get("Name", "").strip()
    if not name:
        msg = "a kernel of the trace has no name"
        raise InputError(msg, where=where, cure=_AGAIN)
    registers, stream = row.get("Reg/Trd", ""), row.get("Strm", "")
    return {
        "kernel": name,
        **_sizes(sizes),
        "device": _device(row),
        "time_us": duration / 1e3,
        "launches": 1,
        "registers_per_thread": float(registers) if _WHOLE.fullmatch(registers) else np.nan,
        "stream": int(stream) if _WHOLE.fullmatch(stream) else 0,
        "start": start,
    }


def _sum(row: dict[str, str], total: str, scale: float, where: str) -> Row:
    launches = int(_number(row["Instances"], "Instances", where, whole=True))
    name = next((row[key].strip() for key in row if key.strip() == "Name"), "")
    if launches == 0 or not name:
        msg = "a row of the sums has no launches or no name"
        raise InputError(msg, where=where, found=f"{launches} launches", cure=_AGAIN)
    time = _number(row[total], total, where) * scale / launches / 1e3
    shapes = [_SHAPE.fullmatch(row.get(key, "")) for key in ("GridXYZ", "BlockXYZ")]
    sizes = [int(size) for shape in shapes if shape for size in shape.groups()]
    known = _sizes(sizes) if len(sizes) == 6 else dict.fromkeys(("grid", "block"))
    return {"kernel": name, **known, "device": None, "time_us": time, "launches": launches}


def _columns(
    rows: list[Row], memory: list[Move], *, traced: bool
) -> tuple[dict[str, Any], Account | None]:
    """Return the columns of the table, and of a trace its account."""
    table = pd.DataFrame(rows).assign(time_source="nsys")
    if not traced:
        return {str(name): column for name, column in table.items()}, None
    table = table.sort_values("start", kind="stable", ignore_index=True)
    kernels = table.assign(time=table["time_us"] * 1e3)
    columns, account = printed_clock(kernels, memory, "nsys")
    printed = table.drop(columns=["start", "stream"])
    return columns | {str(name): column for name, column in printed.items()}, account


def _sizes(sizes: list[int]) -> Row:
    """Return grid and block, three numbers each, and the threads of both."""
    threads = float(np.prod(np.array(sizes, dtype=float)))
    return {"grid": _shape(sizes[:3]), "block": _shape(sizes[3:]), "threads": threads}


def _shape(sizes: list[int]) -> str:
    return f"({', '.join(map(str, sizes))})"


def _number(cell: str, name: str, where: str, *, whole: bool = False) -> float:
    text = cell.strip()
    if not (_WHOLE if whole else _NUMBER).fullmatch(text):
        msg = f"the value of {name.strip()[:60]} is no {'whole ' if whole else ''}number"
        raise InputError(msg, where=where, found=repr(text)[:60], cure=_AGAIN)
    return float(text)


def _cells(line: str, where: str) -> list[str]:
    try:
        return next(csv.reader([line], strict=True))
    except (csv.Error, StopIteration) as error:
        msg = "a row is cut or damaged"
        found = str(error)[:80] or "nothing"
        raise InputError(msg, where=where, found=found, cure=_AGAIN) from error
