"""NVTX ranges as Nsight Compute writes them into a CSV cell.

A cell holds the thread and one quoted entry a range, outermost first:
``546  "<default domain>:iter_0:none:none:none:none:none:none"  "<default domain>:conv_01:..."``.
An entry is ``domain:name:payload type:payload:colour type:colour:message type:message``; names
and messages may hold colons, and ncu escapes neither them nor quotes.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from perfml.readers.frame import CodedRanges
from perfml.util.ranges import LIBRARIES

_SEPARATOR = re.compile(r'"\s+"')
_BETWEEN = '"  "'
"""How ncu writes the separator."""
_PLAIN = ":none:none:none:none:none:none"

_IDENTIFIER = re.compile(r"\d{1,20}:(?=[^:]*:)")
_FIELDS_AFTER_NAME = 6


def push_pops(cells: pa.StringArray) -> CodedRanges:
    """Return the names of the push/pop ranges in each cell, outermost first.

    Many cells share their outermost range, which is an iteration, and many the ranges inside it,
    so each of both is taken apart once.
    """
    parts = pc.split_pattern(cells, _BETWEEN, max_splits=1)
    halves = parts.flatten().dictionary_encode()
    texts, codes = halves.dictionary.to_pylist(), np.asarray(halves.indices).astype(np.int64)
    ends = np.asarray(parts.offsets)
    halved = np.flatnonzero(np.diff(ends) == 2)
    outer, inner = np.zeros((2, len(cells)), dtype=np.int64)
    outer[halved], around = _paths(texts, codes[ends[halved]], _outermost)
    inner[halved], within = _paths(texts, codes[ends[halved] + 1], _inner)
    odd = np.flatnonzero((outer == 0) | (inner == 0))
    whole = [tuple(map(_name, _entries(cell))) for cell in cells.take(pa.array(odd)).to_pylist()]
    outer[odd], inner[odd] = 0, len(within) + np.arange(len(odd))
    return CodedRanges(outer, around, inner, [*within, *whole])


def start_ends(cells: pa.StringArray) -> CodedRanges:
    """Return `start_end` of each cell."""
    return CodedRanges.of([start_end(cell) for cell in cells.to_pylist()])


def _paths(
    texts: Sequence[str], used: npt.NDArray[np.int64], path: Callable[[str], tuple[str, ...]]
) -> tuple[npt.NDArray[np.int64], list[tuple[str, ...]]]:
    """Return the number of the path in each text that is used, and the paths; 0 is no path."""
    number = np.zeros(len(texts), dtype=np.int64)
    paths: list[tuple[str, ...]] = [()]
    for code in np.flatnonzero(np.bincount(used, minlength=len(texts))).tolist():
        names = path(texts[code])
        if names:
            number[code] = len(paths)
            paths.append(names)
    return number[used], paths


def _outermost(text: str) -> tuple[str, ...]:
    """Return the range in a cell's text before a separator; none if it is not just one.

    None, too, if it is a library's, which counts only where it is the only one.
    """
    start = text.find('"')
    whole = start >= 0 and '"' not in text[start + 1 :]
    whole = whole and text[start + 1 : text.find(":", start)] not in LIBRARIES
    return (_name(text[start + 1 :]),) if whole else ()


def _inner(text: str) -> tuple[str, ...]:
    """Return the ranges in a cell's text after a separator; none without an end."""
    end = text.rfind('"')
    if end <= 0 or text[: text.find(":")] in LIBRARIES:
        return ()  # what is a library's alone goes with the range around it
    return tuple(map(_name, _split(text[:end])))


def start_end(cell: str) -> tuple[str, ...]:
    """Return the names of the start/end ranges in a cell; an entry leads with the range's id."""
    return tuple(_name(_IDENTIFIER.sub("", entry, count=1)) for entry in _entries(cell))


def _entries(cell: str) -> list[str]:
    first = cell.find('"')
    last = cell.rfind('"')
    if first < 0 or last <= first:
        return []
    return _split(cell[first + 1 : last])


def _split(entries: str) -> list[str]:
    found = _SEPARATOR.split(entries) if '"' in entries else [entries]
    own = [entry for entry in found if entry.partition(":")[0] not in LIBRARIES]
    return own or found


@functools.lru_cache(maxsize=1 << 16)
def _name(entry: str) -> str:
    if entry.endswith(_PLAIN):
        body = entry.removesuffix(_PLAIN)
        return body.partition(":")[2] or body
    _, colon, rest = entry.partition(":")
    if not colon:
        return entry
    return _repeated(rest) or rest.rsplit(":", _FIELDS_AFTER_NAME)[0] or entry


def _repeated(rest: str) -> str | None:
    """Find the name by the message that repeats it; that settles where a name with colons ends."""
    end = rest.find(":")
    while 0 <= end < len(rest) / 2:
        if end and rest.endswith(":" + rest[:end]) and rest.count(":", end, len(rest) - end) == 6:
            return rest[:end]
        end = rest.find(":", end + 1)
    return None
