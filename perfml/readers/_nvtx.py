"""NVTX ranges as Nsight Compute writes them into a CSV cell.

A cell holds the thread and one quoted entry a range, outermost first:
``546  "<default domain>:iter_0:none:none:none:none:none:none"  "<default domain>:conv_01:..."``.
An entry is ``domain:name:payload type:payload:colour type:colour:message type:message``; names
and messages may hold colons, and ncu escapes neither them nor quotes.
"""

from __future__ import annotations

import functools
import re

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
    outermost, apart, inner = cell[cell.find('"') + 1 :].partition(_BETWEEN)
    if apart and '"' in inner and '"' not in outermost:
        # Many cells share their inner ranges, and many their outermost: an iteration.
        return (_name(outermost), *_inner_names(inner))
    return tuple(map(_name, _entries(cell)))


@functools.lru_cache(maxsize=1 << 14)
def _inner_names(text: str) -> tuple[str, ...]:
    return tuple(map(_name, _SEPARATOR.split(text[: text.rfind('"')])))


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
