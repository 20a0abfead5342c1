r"""Read counters that perfml took itself through CUPTI, as ``perfml collect`` writes them.

Lines that begin with ``#`` say how they were taken; the columns that follow are `IDENTITY`, then
metrics under Nsight Compute's names in base units (ns, byte, %). ``ranges`` holds the NVTX ranges
around a launch, outermost first, parted by ``/``; a ``/`` or ``\\`` within a name has a ``\\``
before it. A launch that a metric was not measured of has an empty cell.
"""

from __future__ import annotations

import csv
import io
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from perfml.errors import InputError
from perfml.readers.ncu.launches import Launches, needed, to_kernels
from perfml.readers.source import ReadOptions, Source
from perfml.tables import Kernels

NAME = "cupti-csv"

FIRST_LINE = "# perfml counters 1"
IDENTITY = (
    "set",
    "launch",
    "context",
    "stream",
    "ranges",
    "instance",
    "kernel",
    "grid",
    "block",
    "launch__registers_per_thread",
    "launch__shared_mem_per_block_static",
    "launch__shared_mem_per_block_dynamic",
    "launch__thread_count",
    "launch__waves_per_multiprocessor",
    "sm__maximum_warps_per_active_cycle_pct",
)
"""Columns before the metrics.

``set`` counts complete measurements, ``launch`` the launches of one. ``instance`` tells apart
ranges of one name that were entered several times. Names with ``__`` are Nsight Compute's.
"""

_TEXTS = ("ranges", "kernel", "grid", "block")
_SHAPE = re.compile(r"\(\d{1,10}, \d{1,10}, \d{1,10}\)")
_PART = re.compile(r"(?:[^/\\]|\\.)+")
_CURE = "Copy it again, or collect again."


def recognises(source: Source) -> bool:
    """Tell whether the first line is this table's."""
    return source.head_text().split("\n", 1)[0].strip() == FIRST_LINE


def read(source: Source, options: ReadOptions | None = None) -> Kernels:
    """Read a table of counters.

    Raises `InputError` if a row is cut or damaged, a number is no number, or there is no launch.
    """
    options = options or ReadOptions()
    facts, first, header, rows = _parsed(source)
    texts = {name: [row[header.index(name)] for row in rows] for name in _TEXTS}
    for number, row in enumerate(rows):
        _check_launch(row, header, f"{source.path}:{first + number}")
    known = needed()
    counters: dict[str, Any] = {
        name: _numbers(rows, place, name, source, first)
        for place, name in enumerate(header)
        if "__" in name and (name in known or options.raw)
    }
    count = len(rows)
    identity = {
        "kernel": pd.Series(texts["kernel"], dtype="string"),
        "grid": pd.Series(texts["grid"], dtype="string"),
        "block": pd.Series(texts["block"], dtype="string"),
        "device": pd.Series([facts.get("device")] * count, dtype="string"),
        "compute_capability": pd.Series([facts.get("compute_capability")] * count, dtype="string"),
    }
    paths = {text: split_path(text) for text in set(texts["ranges"])}
    launches = Launches(identity, counters, [paths[text] for text in texts["ranges"]])
    entered = _numbers(rows, header.index("instance"), "instance", source, first)
    launches.instances = entered.astype(np.int64).tolist() if np.isfinite(entered).all() else None
    tool, _, version = facts.get("tool", "CUPTI range profiler").rpartition(" ")
    launches.facts = {
        "tool": tool or version,
        "tool_version": version if tool else None,
        **{name: facts[name] for name in _PROVENANCE if name in facts},
    }
    kernels = to_kernels(launches, source, options, NAME)
    frame = kernels.frame.assign(time_source=pd.Series(["cupti"] * count, dtype="string"))
    return replace(kernels, frame=frame)


_PROVENANCE = ("chip", "driver", "replay", "passes", "runs", "caches", "instrumented", "perfml")
"""Facts that are kept with a table made of the file."""


def split_path(text: str) -> tuple[str, ...]:
    r"""Return the names of nested ranges, outermost first.

    Examples
    --------
    >>> split_path(r"iter_0/block\/1/conv")
    ('iter_0', 'block/1', 'conv')
    """
    return tuple(re.sub(r"\\(.)", r"\1", part) for part in _PART.findall(text))


def _parsed(source: Source) -> tuple[dict[str, str], int, list[str], list[list[str]]]:
    """Return the facts, the line of the first row, the header and the rows."""
    text = source.text()
    where = str(source.path)
    if not text.endswith("\n"):
        msg = "the last line is cut"
        raise InputError(msg, where=where, cure=_CURE)
    lines = text.split("\n")
    head = next((place for place, line in enumerate(lines) if not line.startswith("#")), len(lines))
    facts = {}
    for line in lines[1:head]:
        name, _, value = line[1:].partition(":")
        facts[name.strip()] = value.strip()
    try:
        header, *rows = csv.reader(io.StringIO("\n".join(lines[head:]), newline=""), strict=True)
    except (csv.Error, ValueError) as error:
        msg = "the table of counters cannot be read"
        raise InputError(msg, where=where, found=str(error)[:200], cure=_CURE) from error
    _check_header(header, f"{where}:{head + 1}")
    if not rows:
        msg = "no launch in this table of counters"
        raise InputError(msg, where=where, found="only a header", cure=_CURE)
    for number, row in enumerate(rows):
        if len(row) != len(header):
            msg = f"a row does not have the {len(header)} cells of the header"
            line = f"{where}:{head + 2 + number}"
            raise InputError(msg, where=line, found=f"{len(row)} cells", cure=_CURE)
    return facts, head + 2, header, rows


def _check_header(header: list[str], where: str) -> None:
    missing = [name for name in IDENTITY if name not in header]
    twice = [name for name in header if header.count(name) > 1]
    if missing or twice:
        msg = f"column {twice[0]} comes twice" if twice else f"no column {missing[0]}"
        raise InputError(msg, where=where, found=",".join(header)[:120], cure=_CURE)


def _check_launch(row: list[str], header: list[str], where: str) -> None:
    if not row[header.index("kernel")].strip():
        msg = "a launch has no kernel name"
        raise InputError(msg, where=where, cure=_CURE)
    for name in ("grid", "block"):
        cell = row[header.index(name)]
        if not _SHAPE.fullmatch(cell):
            msg = f"column {name} needs a shape like (128, 1, 1)"
            raise InputError(msg, where=where, found=repr(cell[:60]), cure=_CURE)


def _numbers(
    rows: list[list[str]], place: int, name: str, source: Source, first: int
) -> np.ndarray[Any, np.dtype[np.float64]]:
    found = np.full(len(rows), np.nan)
    for number, row in enumerate(rows):
        try:
            found[number] = float(row[place] or "nan")
        except ValueError:
            msg = f"column {name} needs a number"
            where = f"{source.path}:{first + number}"
            raise InputError(msg, where=where, found=repr(row[place][:60]), cure=_CURE) from None
    return found
