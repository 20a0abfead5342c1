"""JSON documents from profilers: parsed within bounds, with errors that name the place."""

from __future__ import annotations

import json
import math
import re
from typing import Any, NoReturn

from perfml.errors import InputError
from perfml.readers.source import Source

MOST = 1 << 30
"""Bytes of the largest document that is parsed whole; in memory it takes ten times as many."""

_ESCAPES = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"  # a pair is one character
    rb"|(?P<lone>\\u[dD][89a-fA-F][0-9a-fA-F]{2}|\xed[\xa0-\xbf][\x80-\xbf])"
    rb"|\\."
)

_CURE = "Copy or export it again; it may be cut."


def paired(text: bytes) -> bytes:
    r"""Return JSON text with the sign of what is unreadable for each half of a surrogate pair.

    Names that a tool cut after so many bytes end in one. The length stays the same.

    Examples
    --------
    >>> paired(b'"gemm\\ud83d \\ud83d\\ude00"')
    b'"gemm\\ufffd \\ud83d\\ude00"'
    """
    return _ESCAPES.sub(_replaced, text)


def _replaced(match: re.Match[bytes]) -> bytes:
    if match["lone"] is None:
        return match[0]
    return b"\\ufffd" if len(match[0]) == 6 else "\ufffd".encode()


def parsed(source: Source, cure: str) -> Any:
    """Return the document in a file.

    `cure` is how to record a smaller one. Raises `InputError` if it is no JSON, nested beyond
    reason, or larger than `MOST`.
    """
    size = len(source.data)
    if size > MOST:
        msg = f"this JSON document has {size >> 20} MiB, more than {MOST >> 20}"
        raise InputError(msg, where=str(source.path), cure=cure)
    return parsed_text(source.text(), str(source.path))


def parsed_text(text: str | bytes, where: str, line: int = 0) -> Any:
    """Return the document in a text, `line` lines of which came before in the file `where`.

    Raises `InputError` if it is no JSON, or nested beyond reason.
    """
    if isinstance(text, str) and ("\\ud" in text or "\\uD" in text):
        text = paired(text.encode("utf-8", "surrogatepass"))
    try:
        return json.loads(text, parse_constant=_no_number)
    except json.JSONDecodeError as error:
        msg = "no whole JSON document"
        at = f"{where}:{line + error.lineno}"
        raise InputError(msg, where=at, found=error.msg, cure=_CURE) from error
    except (RecursionError, ValueError) as error:
        deep = isinstance(error, RecursionError)
        msg = "no usable JSON document"
        said = "nested too deeply" if deep else str(error)[:120]
        raise InputError(msg, where=where, found=said, cure=_CURE) from error


def _no_number(word: str) -> NoReturn:
    msg = f"{word} where a number belongs"
    raise ValueError(msg)


def number(value: Any) -> float | None:
    """Return a finite number, or None for anything else; older traces write numbers as text.

    Examples
    --------
    >>> number("1.5"), number(2), number(True), number("x")
    (1.5, 2.0, None, None)
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        found = float(value)
    except (ValueError, OverflowError):
        return None
    return found if math.isfinite(found) else None


def whole(value: Any) -> int | None:
    """Return a whole number that fits into 63 bits, or None for anything else.

    Examples
    --------
    >>> whole(7), whole("8"), whole(1.5), whole(1e300)
    (7, 8, None, None)
    """
    if value is None or (type(value) is int and -1 << 62 < value < 1 << 62):
        return value  # nearly always
    found = number(value)
    if found is None or found != math.floor(found) or abs(found) >= 1 << 62:
        return None
    return value if isinstance(value, int) else int(found)
