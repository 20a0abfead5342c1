"""NVTX ranges of an Nsight Systems export: which of them each launch was made in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from perfml.readers.launch_ranges import FOREVER, Launch, Range, default_domain, locate
from perfml.readers.sqlite_database import Database

TABLE = "NVTX_EVENTS"

_PUSH_POP = frozenset({59, 70})
_START_END = frozenset({60, 71})
"""NVTX_EVENTS.eventType: ranges of one thread and of a process, traced and imported (NVTXT)."""

_OPTIONAL = ("end", "textId", "globalTid", "domainId")


@dataclass(frozen=True)
class LaunchCall:
    """The API call that launched a kernel.

    Attributes
    ----------
    process
        Number of the process, 0 where the file does not tell processes apart.
    time
        When the call began, in nanoseconds.
    thread
        Nsight Systems' global thread id; None if the file has no call for the kernel.
    """

    process: int
    time: int
    thread: int | None


def process_of(global_id: int) -> int:
    """Return the process in a global thread or process id: bits 24 to 47.

    Examples
    --------
    >>> process_of(290230855268003) == (290230855268003 >> 24) % (1 << 24)
    True
    """
    return (global_id >> 24) & 0xFFFFFF


def read_ranges(database: Database, *, by_process: bool) -> dict[int, list[Range]]:
    """Return the ranges of each process, in order of their starts.

    All ranges are of process 0 unless `by_process`: the kernels of this file name theirs. Raises
    `InputError` if the table has other columns, or a cell is no integer.
    """
    if not database.has(TABLE):
        return {}
    frame = database.integers(TABLE, ("start", "eventType"), _OPTIONAL)
    texts = database.frame(TABLE, (), ("text",))
    named = texts["text"].tolist() if "text" in texts else [None] * len(frame)
    strings = database.texts_of("StringIds", "id", "value", frame["textId"].tolist())
    ranges: dict[int, list[Range]] = {}
    columns = (frame[name].tolist() for name in ("start", "eventType", *_OPTIONAL))
    for start, kind, end, text_id, thread, domain, text in zip(*columns, named, strict=True):
        if kind not in _PUSH_POP and kind not in _START_END:
            continue
        name = text if isinstance(text, str) and text else strings.get(text_id) or "(unnamed)"
        process = process_of(thread) if by_process and thread >= 0 else 0
        owner = thread if kind in _PUSH_POP and thread >= 0 else None
        # An old export has 0 or -1 where a range was never closed, a new one NULL.
        last = end if end >= start else FOREVER
        ranges.setdefault(process, []).append(Range(start, last, name, owner, max(domain, 0)))
    for group in ranges.values():
        group.sort(key=lambda item: (item.start, -item.end))
    return ranges


def ranges_around(
    calls: Sequence[LaunchCall], ranges: dict[int, list[Range]]
) -> tuple[list[tuple[str, ...]], list[int], list[str]]:
    """Return the names of the ranges around each launch, a number for the innermost, warnings.

    `ranges` are as `read_ranges` returns them. Names are outermost first; outside every range they
    are empty, and the number is -1. Warnings say what was left out.
    """
    paths: list[tuple[str, ...]] = [()] * len(calls)
    instances = [-1] * len(calls)
    warnings: list[str] = []
    numbered = 0
    for process in sorted(ranges):
        own, notes = default_domain(ranges[process])
        warnings += notes
        rows = [row for row, call in enumerate(calls) if call.process == process]
        launches = [Launch(calls[row].time, calls[row].thread) for row in rows]
        for row, path, instance in zip(rows, *locate(launches, own), strict=True):
            paths[row] = path
            instances[row] = instance + numbered if instance >= 0 else -1
        numbered += len(own)
    unended = sum(item.end == FOREVER for group in ranges.values() for item in group)
    if unended:
        warnings.append(f"{unended} NVTX ranges have no end; they are taken to last to the end.")
    if numbered and not any(paths):
        warnings.append(f"The file has {numbered} NVTX ranges, and no kernel was launched in one.")
    return paths, instances, list(dict.fromkeys(warnings))
