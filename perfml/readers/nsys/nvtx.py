"""NVTX ranges of an Nsight Systems export: which of them each launch was made in."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from perfml.readers.frame import CodedRanges
from perfml.readers.launch_ranges import FOREVER, NOWHERE, RangeTable, located, of_libraries
from perfml.readers.sqlite_database import Database
from perfml.util.ranges import Path, joined_names
from perfml.util.typing import Ints

TABLE = "NVTX_EVENTS"

_PUSH_POP = (59, 70)
_START_END = (60, 71)
"""NVTX_EVENTS.eventType: ranges of one thread and of a process, traced and imported (NVTXT)."""

_OPTIONAL = ("end", "textId", "globalTid", "domainId")


@dataclass(frozen=True)
class LaunchCalls:
    """The API calls that launched kernels, shape (n,) each.

    Attributes
    ----------
    process
        Number of the process, 0 where the file does not tell processes apart.
    time
        When the call began, in nanoseconds.
    thread
        Nsight Systems' global thread id; `NOWHERE` if the file has no call for the kernel.
    """

    process: Ints
    time: Ints
    thread: Ints


def process_of(global_id: Ints) -> Ints:
    """Return the process in global thread or process ids: bits 24 to 47.

    Examples
    --------
    >>> process_of(np.array([290230855268003])) == (290230855268003 >> 24) % (1 << 24)
    array([ True])
    """
    return (global_id >> 24) & 0xFFFFFF


def read_ranges(
    database: Database, *, by_process: bool
) -> tuple[dict[int, tuple[RangeTable, int]], list[str]]:
    """Return the program's own ranges in each process, and how many of libraries there are.

    The second value says what their names were joined to. All ranges are of process 0 unless
    `by_process`: the kernels of this file name theirs. Raises `InputError` if the table has other
    columns, or a cell is no integer.
    """
    if not database.has(TABLE):
        return {}, []
    frame = database.integers(TABLE, ("start", "eventType"), _OPTIONAL)
    start, kind, end, text, thread, domain = (
        frame.pop(str(name)).to_numpy() for name in list(frame)
    )
    names, texts, joined = _names(database, text)
    del text  # of millions of ranges
    # An old export has 0 or -1 where a range was never closed, a new one NULL.
    end = np.where(end >= start, end, FOREVER)
    rows = np.flatnonzero(np.isin(kind, (*_PUSH_POP, *_START_END)))
    if (np.diff(start[rows]) <= 0).any():
        rows = rows[np.lexsort((-end[rows], start[rows]))]
    nested = np.isin(kind, _PUSH_POP) & (thread >= 0)
    table = RangeTable(start, end, np.where(nested, thread, NOWHERE), names, texts)
    process = np.where(by_process & (thread >= 0), process_of(thread), 0)[rows]
    ranges = {}
    for number in np.unique(process).tolist():
        mine = rows[process == number]
        own = mine[domain[mine] <= 0]
        own = own if len(own) else mine
        ranges[number] = table.take(own), len(mine) - len(own)
    return ranges, joined


def _names(database: Database, number: Ints) -> tuple[Ints, list[str], list[str]]:
    """Return a number for the name of each range, its own text or a shared one, and the names.

    Those with serial numbers are joined, and the third value says so.
    """
    own, texts = database.codes(TABLE, "text")
    shared, distinct = pd.factorize(number)
    strings = database.texts_of("StringIds", "id", "value", distinct.tolist())
    names = [*texts, *(strings.get(key) or "(unnamed)" for key in distinct.tolist())]
    common, said = joined_names(names)
    coded = np.where(own >= 0, own, len(texts) + shared)
    if not common:
        return coded, names, said
    numbers, together = pd.factorize(pd.Series([common.get(name, name) for name in names]))
    return numbers[coded], together.tolist(), said


def ranges_around(
    calls: LaunchCalls, ranges: dict[int, tuple[RangeTable, int]]
) -> tuple[CodedRanges, Ints, list[str]]:
    """Return the ranges around each launch, a number for the innermost or -1, and warnings.

    `ranges` are those of `read_ranges`. Warnings say what was left out.
    """
    launches = len(calls.time)
    codes, instances = np.zeros(launches, dtype=np.int64), np.full(launches, -1)
    paths: list[Path] = [()]
    warnings: list[str] = []
    numbered = 0
    for process, (own, others) in sorted(ranges.items()):
        warnings += [of_libraries(others)] if others else []
        rows = np.flatnonzero(calls.process == process)
        around, innermost = located(calls.time[rows], calls.thread[rows], own)
        codes[rows] = around.outer + len(paths)
        paths += around.around
        instances[rows] = np.where(innermost >= 0, innermost + numbered, -1)
        numbered += len(own.start)
    unended = sum(int((own.end == FOREVER).sum()) for own, _ in ranges.values())
    if unended:
        warnings.append(f"{unended} NVTX ranges have no end; they are taken to last to the end.")
    if numbered and not any(paths):
        warnings.append(f"The file has {numbered} NVTX ranges, and no kernel was launched in one.")
    coded = CodedRanges(codes, paths, np.zeros_like(codes), [()])
    return coded, instances, list(dict.fromkeys(warnings))
