"""Readers: one module a profile format, recognised by content, each returning a Kernels table.

A reader module defines ``NAME``, ``recognises(source) -> bool`` (from ``source.head`` alone) and
``read(source, options) -> Kernels``.

Here to change: what is read, in `FORMATS`, the only list of formats (ingest looks for its endings,
the error of an unknown file names its titles, and every format but those of closed programs must
have a fuzz target); what a column of Nsight Compute means, in ``ncu/``; of nvprof, in ``nvprof/``;
what all readers share (source, numbers, frame, occurrences of names), beside them.
"""

from __future__ import annotations

import codecs
import functools
import gc
import importlib
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import cast

from perfml.errors import InputError, plain
from perfml.readers.source import ReadOptions, Source
from perfml.readers.sqlite_database import require_whole
from perfml.tables import Kernels
from perfml.util.files import read_rows

_ARCHIVES = (b"PK\x03\x04", b"7z\xbc\xaf", b"Rar!")
"""What files that hold other files begin with; a tar has a word in its middle."""


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


__all__ = [
    "ENDINGS",
    "FORMATS",
    "Format",
    "ReadOptions",
    "Source",
    "read",
    "recognise",
]


@dataclass(frozen=True)
class Format:
    """One format of profiles.

    Attributes
    ----------
    module
        The reader, below ``perfml.readers``.
    title
        What a person calls it.
    endings
        How names of such files end; only a folder's files are chosen by that.
    """

    module: str
    title: str
    endings: tuple[str, ...]

    def load(self) -> ModuleType:
        """Import the reader: its ``NAME``, ``recognises`` and ``read``."""
        return importlib.import_module(f"perfml.readers.{self.module}")


FORMATS = (
    Format("ncu.report", "Nsight Compute .ncu-rep", (".ncu-rep",)),
    Format("nsys.sqlite_file", "SQLite exports of Nsight Systems", (".sqlite",)),
    Format("nvprof.sqlite_file", "SQLite exports of nvprof", (".nvvp", ".nvprof", ".sqlite")),
    Format("jax_trace", "XPlanes and Chrome traces of JAX and TensorFlow", (".json", ".xplane.pb")),
    Format("rocpd", "rocpd databases of rocprofv3", (".db", ".rocpd")),
    Format("torch_trace", "Chrome traces of PyTorch's profiler", (".json",)),
    Format("trtexec", "trtexec's --exportProfile and --exportLayerInfo", (".json",)),
    Format("timing_csv", "timing CSV of perfml collect", (".csv",)),
    Format("cupti_csv", "counters of perfml collect", (".csv",)),
    Format("rocprof", "kernels, counters and --stats of rocprof, pmc_perf.csv", (".csv",)),
    Format("ncu.text_page", "text that Nsight Compute prints", (".txt", ".log")),
    Format("ncu.csv_page", "--csv of Nsight Compute (raw and details page)", (".csv", ".txt")),
    Format("nsys.stats_csv", "GPU trace and sums of nsys stats", (".csv", ".txt", ".log")),
    Format("nvprof.csv_log", "--csv of nvprof", (".csv", ".log")),
    Format("nvprof.text_log", "logs and traces of nvprof", (".txt", ".log", ".profile")),
)
"""In the order they are asked: binary signatures first, free text last."""

ENDINGS = tuple(dict.fromkeys(ending for each in FORMATS for ending in each.endings))
"""How names of profiles end, before ``.gz`` and the like."""


def recognise(source: Source) -> ModuleType:
    """Return the reader module for a source.

    Raises
    ------
    InputError
        If no reader knows the content; the message says what it looks like.
    """
    # of an archive the text of the first member would be found, and the others silently left out
    if source.head[257:262] != b"ustar" and not source.head.startswith(_ARCHIVES):
        for module in (known.load() for known in FORMATS):
            if module.recognises(source):
                return module
        require_whole(source)
    raise unread(source.head, source.path, [known.title for known in FORMATS])


@contextmanager
def _uncollected() -> Iterator[None]:
    """Look for no circles of objects meanwhile: there are none, and millions of objects."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()


def read(path: str | Path, options: ReadOptions | None = None) -> Kernels:
    """Read one profiler export into a Kernels table.

    Parameters
    ----------
    path
        The file, compressed or not.
    options
        Options of the readers, as the user gave them.

    Raises
    ------
    InputError
        If it cannot be read whole, holds no kernels, or is of no known format.
    """
    source = Source(path)
    try:
        with _uncollected():
            return cast("Kernels", recognise(source).read(source, options or ReadOptions()))
    except MemoryError as error:
        msg = "reading this file takes more memory than there is"
        cure = "Split the profile into several files, or use a larger machine."
        raise InputError(msg, where=str(path), cure=cure) from error
