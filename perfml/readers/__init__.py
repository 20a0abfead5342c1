"""Readers: one module a profiler format, recognised by content, each returning a Kernels table.

A reader module defines ``NAME``, ``recognises(source) -> bool`` (from ``source.head`` alone) and
``read(source, options) -> Kernels``.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

from perfml.errors import InputError
from perfml.readers._options import ReadOptions
from perfml.readers._source import Source
from perfml.tables import Kernels

__all__ = ["FORMATS", "ReadOptions", "Source", "read", "recognise"]

FORMATS = ("ncu_report", "nvprof_sqlite", "timing_csv", "ncu_csv", "nvprof_csv", "nvprof_text")
"""Reader modules in the order they are asked: binary signatures first, free text last."""

_TRACES = (
    (b"SQLite format 3\x00", "an SQLite database of another tool"),
    (b"PAR1", "a Parquet file: already a table, so merge or train on it"),
    (b"NVDISASM", "an Nsight Systems report: export kernels with Nsight Compute instead"),
    (b"\x7fELF", "a program"),
    (b"PK\x03\x04", "a zip archive: unpack it first"),
    (b"\x28\xb5\x2f\xfd", "a Zstandard file: decompress it first"),
)


def recognise(source: Source) -> ModuleType:
    """Return the reader module for a source.

    Raises
    ------
    InputError
        If no reader knows the content; the message says what it looks like.
    """
    for name in FORMATS:
        module = importlib.import_module(f"perfml.readers.{name}")
        if module.recognises(source):
            return module
    msg = "not a profile in a format that perfml reads"
    raise InputError(
        msg,
        where=str(source.path),
        found=_looks_like(source.head),
        cure=(
            "Read are: Nsight Compute .ncu-rep and --csv (raw and details page); nvprof logs, "
            "--csv, traces and SQLite exports; timing CSV of perfml collect."
        ),
    )


def read(path: str | Path, options: ReadOptions | None = None) -> Kernels:
    """Read one profiler export into a Kernels table.

    Parameters
    ----------
    path
        The file, compressed or not.
    options
        What the user told the readers.

    Raises
    ------
    InputError
        If it cannot be read whole, holds no kernels, or is of no known format.
    """
    source = Source(path)
    try:
        kernels: Kernels = recognise(source).read(source, options or ReadOptions())
    except MemoryError as error:
        msg = "reading this file takes more memory than there is"
        cure = "Split the profile into several files, or use a larger machine."
        raise InputError(msg, where=str(path), cure=cure) from error
    return kernels


def _looks_like(head: bytes) -> str:
    for signature, meaning in _TRACES:
        if head.startswith(signature):
            return meaning
    if head[:1024].count(b"\x00") * 5 > len(head[:1024]) * 2 and b"," in head[:1024]:
        return "text in UTF-16 without a byte order mark: convert it to UTF-8"
    if b"\x00" in head[:1024]:
        return "binary data, beginning " + repr(head[:16])
    lines = [line for line in head.decode("utf-8", "replace").splitlines() if line.strip()]
    return f"text, beginning {lines[0].strip()[:80]!r}" if lines else "only blank lines"
