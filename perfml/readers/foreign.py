"""What a file is that no reader knows, and what to do with it."""

from __future__ import annotations

import codecs
import functools
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from perfml.errors import InputError, plain
from perfml.util.files import read_rows

_TAR_MAGIC = slice(257, 262)


def is_archive(head: bytes) -> bool:
    """Tell whether a file holds other files, from its first bytes."""
    return head[_TAR_MAGIC] == b"ustar" or head.startswith((b"PK\x03\x04", b"7z\xbc\xaf", b"Rar!"))


def unread(head: bytes, path: Path, titles: Sequence[str]) -> InputError:
    """Return the error for a file that no reader knows; it says what it looks like.

    `head` are its first bytes, decompressed; `titles` are what is read, as a person calls it.
    """
    kind = _kind(head)
    if "cure" in kind:
        export = f"{path.stem}.sqlite"
        quoted = {"name": plain(shlex.quote(path.name)), "export": plain(shlex.quote(export))}
        return InputError(
            f"this is {kind['what']}", where=str(path), cure=kind["cure"].format(**quoted)
        )
    msg = "not a profile in a format that perfml reads"
    found = kind.get("what") or _looks_like(head)
    cure = f"perfml reads: {'; '.join(titles)}."
    if not kind and _is_table(head):
        own = "Of a table with columns of your own: perfml rank FILE --target COLUMN."
        cure = f"{own} {cure}"
    return InputError(msg, where=str(path), found=found, cure=cure)


def _is_table(head: bytes) -> bool:
    """Say whether a file begins with two lines of as many values between commas."""
    lines = head.splitlines()[:2]
    values = [line.count(b",") for line in lines]
    return len(values) == 2 and values[0] == values[1] > 0


def _kind(head: bytes) -> Mapping[str, str]:
    """Return the row of a kind of file; an empty one if nobody knows it."""
    text = head.decode("latin-1")
    return next((row for signature, row in _registry() if signature.search(text)), {})


@functools.cache
def _registry() -> list[tuple[re.Pattern[str], Mapping[str, str]]]:
    """Return signature, name and cure of every kind of file that is named and not read."""
    rows = read_rows("perfml.readers", "foreign.toml")["file"]
    return [(re.compile(row["signature"], re.DOTALL), row) for row in rows]


def _looks_like(head: bytes) -> str:
    marked = head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    if not marked:
        if head[:1024].count(b"\x00") * 5 > len(head[:1024]) * 2 and b"," in head[:1024]:
            return "text in UTF-16 without a byte order mark: convert it to UTF-8"
        if b"\x00" in head[:1024]:
            return "binary data, beginning " + repr(head[:16])
    text = head.decode("utf-16" if marked else "utf-8", "replace")
    lines = [line for line in text.splitlines() if line.strip()]
    return f"text, beginning {lines[0].strip()[:80]!r}" if lines else "only blank lines"
