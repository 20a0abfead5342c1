"""Read what ``nsys stats`` and ``nsys profile --stats=true`` print: the GPU trace, or sums.

``cuda_gpu_trace`` (before 2022 ``gputrace``) has a row a launch or copy, ``cuda_gpu_kern_sum``
(``gpukernsum``) a row a kernel with the mean over its launches, with ``:gb`` or ``_gb_sum`` a row a
kernel and shape; ``cuda_gpu_mem_time_sum`` (``gpumemtimesum``) has a row a kind of copy, and
``cuda_gpu_sum`` both. Values stand between commas, or in columns under a line of dashes. None has
the NVTX ranges around launches, which the SQLite export has. Other tables that the tool prints
around them are passed over. The shared memory of the trace is rounded to thousands of bytes, so it
is left out.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from perfml.account.account import ACCOUNT, Account
from perfml.account.build import account_of_sums
from perfml.errors import InputError
from perfml.readers.frame import kernels_frame
from perfml.readers.source import ReadOptions, Source
from perfml.readers.timeline import printed_clock
from perfml.tables import Kernels
from perfml.util.words import count

NAME = "nsys-stats"

# spaces, not \s: that goes on over lines, and is tried again from each of them
_NEXT = r'"?(?:,|[ \t]{1,80})"?'
_TRACE = re.compile(
    rf'[ \t]*"?Start ?\((\w+)\){_NEXT}Duration ?\((\w+)\){_NEXT}CorrId{_NEXT}GrdX\b'
)
_SUM = re.compile(
    rf'[ \t]*"?Time ?\(%\){_NEXT}Total Time ?\((\w+)\){_NEXT}(?:Instances|Count|Operations)\b'
    r'.*(?:Name|Operation)"?[ \t]*$'
)
_DASHES = re.compile(r"[ \t]*-{2,}(?:[ \t]+-{2,})+[ \t]*")
_NANOSECONDS = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}
"""By unit, which was ``nsec`` and so on at first."""
_NUMBER = re.compile(r"\d{1,18}(?:\.\d{1,12})?(?:e[-+]?\d{1,2})?")
_WHOLE = re.compile(r"\d{1,15}")
_MOVED = "MEMORY_OPER"
"""Category of copies and fills in sums that have kernels, too."""
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
"""Name, device, start, duration and bytes, if known, of a memory copy or set; nanoseconds."""


def recognises(source: Source) -> bool:
    """Tell whether the beginning holds the header of a trace or of sums over kernels."""
    return next(_tables(source.head_text()), None) is not None


def read(source: Source, options: ReadOptions | None = None) -> Kernels:
    """Read a trace, or where there is none the sums; counters are in neither.

    Without kernels the rows are the copies and fills. Raises `InputError` if a row is cut or
    damaged, or there are no rows.
    """
    del options
    trace, moves, sums, moved = _read_tables(source)
    rows = trace or sums or [_copied(move) for move in moves] or moved
    if not rows:
        msg = "this output of nsys stats holds no kernels"
        raise InputError(msg, where=str(source.path), found="no rows", cure=_AGAIN)
    warnings = [f"There are no NVTX ranges in this, so there are no layers; {_BESIDE}"]
    if trace and sums:
        warnings.append("The sums were left out; the trace has every launch.")
    elif rows is sums:
        total = sum(row["launches"] for row in rows)
        warnings.append(
            f"{count(len(rows), 'row is a mean', 'rows are means')} over {total} launches, so how "
            "launches differ is not in it."
        )
    traced = bool(trace or moves)
    columns, account = _columns(trace, moves) if traced else ({}, _account(sums, moved))
    columns = columns or _table(rows)
    frame = kernels_frame(columns, [()] * len(rows))
    devices = frame["device"].dropna().unique()
    provenance = {
        **source.provenance(NAME, "Nsight Systems"),
        "tool_version": None,
        "device": ", ".join(map(str, devices)) or None,
        "compute_capability": None,
        "summary": not traced,
        **({} if account is None else {ACCOUNT: account.to_dict()}),
    }
    return Kernels(frame, provenance, tuple(warnings))


def _read_tables(source: Source) -> tuple[list[Row], list[Move], list[Row], list[Row]]:
    """Return launches, copies, and sums of both."""
    trace: list[Row] = []
    moves: list[Move] = []
    sums: list[Row] = []
    moved: list[Row] = []
    for number, header, line, spans in _tables(source.text()):
        where = f"{source.path}:{number}"
        names = _cells(header, where, spans)
        head = _TRACE.match(header) or _SUM.match(header)
        assert head is not None
        units = [unit.removesuffix("ec") for unit in head.groups() if unit]
        unknown = [unit for unit in units if unit not in _NANOSECONDS]
        if unknown:
            msg = "the unit of the times is not known"
            raise InputError(msg, where=where, found=unknown[0][:40], cure=_AGAIN)
        scales = _NANOSECONDS[units[0]], _NANOSECONDS[units[-1]]
        cells = _cells(line, where, spans)
        if len(cells) != len(names):
            msg = f"the row does not have the {len(names)} cells of the header"
            cure = f"Is the file cut? {_AGAIN}"
            raise InputError(msg, where=where, found=f"{len(cells)} cells", cure=cure)
        row = dict(zip((name.strip() for name in names), cells, strict=True))
        if head.re is _SUM:
            copies = row.get("Category", "" if "Name" in row else _MOVED) == _MOVED
            (moved if copies else sums).append(_sum(row, scales[0], where))
        elif row["GrdX"].strip():
            trace.append(_launch(row, scales, where))
        else:
            name = row.get("Name", "").strip()
            moves.append((name, _device(row), *_span(row, scales, where), 0.0))
    return trace, moves, sums, moved


_Spans = tuple[tuple[int, int | None], ...]


def _tables(text: str) -> Iterator[tuple[int, str, str, _Spans]]:
    """Yield each row of a table: its number, the header, the line, and where columns stand.

    Between commas nothing has to say that. A blank line ends a table; what follows may be another.
    """
    header = before = ""
    spans: _Spans = ()
    for number, line in enumerate(text.removeprefix("\ufeff").splitlines(), 1):
        known = _TRACE.match(before) or _SUM.match(before)
        if not line.strip():
            header = ""
        elif _TRACE.match(line) or _SUM.match(line):
            header, spans = line if "," in line else "", ()
        elif known and not header and _DASHES.fullmatch(line):
            header, spans = before, _columns_under(line)
        elif header:
            yield number, header, line, spans
        before = line


def _columns_under(dashes: str) -> _Spans:
    """Return where the cells of a row lie: from each run of dashes to the next one."""
    starts = [run.start() for run in re.finditer("-+", dashes)]
    return tuple(zip(starts, (*starts[1:], None), strict=True))


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


def _sum(row: dict[str, str], scale: float, where: str) -> Row:
    _, total, often = list(row)[:3]
    launches = int(_number(row[often], often, where, whole=True))
    name = row.get("Name", row.get("Operation", "")).strip()
    if launches == 0 or not name:
        msg = "a row of the sums has no launches or no name"
        raise InputError(msg, where=where, found=f"{launches} launches", cure=_AGAIN)
    time = _number(row[total], total, where) * scale / launches / 1e3
    shapes = [_SHAPE.fullmatch(row.get(key, "")) for key in ("GridXYZ", "BlockXYZ")]
    sizes = [int(size) for shape in shapes if shape for size in shape.groups()]
    known = _sizes(sizes) if len(sizes) == 6 else dict.fromkeys(("grid", "block"))
    return {"kernel": name, **known, "device": None, "time_us": time, "launches": launches}


def _table(rows: Sequence[Row]) -> dict[str, Any]:
    table = pd.DataFrame(rows).assign(time_source="nsys")
    return {str(name): column for name, column in table.items()}


def _copied(move: Move) -> Row:
    """Return a copy as a row of a table."""
    name, device, _, time, _ = move
    return {"kernel": name, "device": device, "time_us": time / 1e3, "launches": 1}


def _account(sums: Sequence[Row], moved: Sequence[Row]) -> Account:
    """Return the account of sums of kernels and of copies."""
    kernels, copies = (
        [(row["kernel"], row["time_us"] * row["launches"], row["launches"]) for row in rows]
        for rows in (sums, moved)
    )
    return account_of_sums(((name, "", us, n) for name, us, n in kernels), copies)


def _columns(trace: Sequence[Row], moves: Sequence[Move]) -> tuple[dict[str, Any], Account | None]:
    """Return the columns of the launches of a trace, and its account."""
    table = pd.DataFrame(trace, columns=None if trace else [*_OF_TRACE])
    table = table.sort_values("start", kind="stable", ignore_index=True)
    kernels = table.assign(time=table["time_us"].astype(float) * 1e3)
    columns, account = printed_clock(kernels, moves, "nsys")
    if not trace:
        return {}, account
    shown = table.assign(time_source="nsys").drop(columns=["start", "stream"])
    return columns | {str(name): column for name, column in shown.items()}, account


_OF_TRACE = ("kernel", "device", "time_us", "stream", "start")


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


def _cells(line: str, where: str, spans: _Spans) -> list[str]:
    if spans:
        *numbers, last = (line[slice(*span)].strip() for span in spans)
        return [*(cell.replace(",", "") for cell in numbers), last]
    try:
        return next(csv.reader([line], strict=True))
    except (csv.Error, StopIteration) as error:
        msg = "a row is cut or damaged"
        found = str(error)[:80] or "nothing"
        raise InputError(msg, where=where, found=found, cure=_AGAIN) from error
