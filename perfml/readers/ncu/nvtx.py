"""NVTX ranges as Nsight Compute writes them into a CSV cell.

A cell holds the thread and one quoted entry a range, outermost first:
``546  "<default domain>:iter_0:none:none:none:none:none:none"  "<default domain>:conv_01:..."``.
An entry is ``domain:name:payload type:payload:colour type:colour:message type:message``; names
and messages may hold colons, and ncu escapes neither them nor quotes.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable

_SEPARATOR = re.compile(r'"\s+"')
_BETWEEN = '"  "'
"""How ncu writes the separator."""
_PLAIN = ":none:none:none:none:none:none"

_IDENTIFIER = re.compile(r"\d{1,20}:(?=[^:]*:)")
_FIELDS_AFTER_NAME = 6


def push_pop(cell: str) -> tuple[str, ...]:
    r"""Return the names of the push/pop ranges in a cell, outermost first.

    Examples
    --------
    >>> push_pop('5  "<default domain>:iter_0:none:none:none:none:none:none"  '
    ...          '"nets:conv:a:none:none:none:none:none:none" ')
    ('iter_0', 'conv:a')
    """
    return push_pops([cell])[0]


def push_pops(cells: Iterable[str]) -> list[tuple[str, ...]]:
    """Return `push_pop` of each cell.

    Many cells share their outermost range, which is an iteration, and many the ranges inside it,
    so each of both is taken apart once.
    """
    outermost: dict[str, tuple[str, ...]] = {}
    inner: dict[str, tuple[str, ...]] = {}
    found = []
    for cell in cells:
        before, _, after = cell.partition(_BETWEEN)
        first, rest = outermost.get(before), inner.get(after)
        if first is None:
            start = before.find('"')
            whole = start >= 0 and '"' not in before[start + 1 :]
            first = outermost[before] = (_name(before[start + 1 :]),) if whole else ()
        if rest is None:
            end = after.rfind('"')
            rest = inner[after] = (
                tuple(map(_name, _SEPARATOR.split(after[:end]))) if end > 0 else ()
            )
        found.append(first + rest if first and rest else tuple(map(_name, _entries(cell))))
    return found


def start_end(cell: str) -> tuple[str, ...]:
    """Return the names of the start/end ranges in a cell; an entry leads with the range's id."""
    return tuple(_name(_IDENTIFIER.sub("", entry, count=1)) for entry in _entries(cell))


def _entries(cell: str) -> list[str]:
    first = cell.find('"')
    last = cell.rfind('"')
    if first < 0 or last <= first:
        return []
    return _SEPARATOR.split(cell[first + 1 : last])


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
