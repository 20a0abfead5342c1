"""Readers: one module a profile format, recognised by content, each returning a Kernels table.

A reader module defines ``NAME``, ``recognises(source) -> bool`` (from ``source.head`` alone) and
``read(source, options) -> Kernels``.

Here to change: what is read, in `FORMATS`, the only list of formats (ingest looks for its endings,
the error of an unknown file names its titles, and every format but those of closed programs must
have a fuzz target); what a column of Nsight Compute means, in ``ncu/``; of nvprof, in ``nvprof/``;
what all readers share (source, numbers, frame, occurrences of names), beside them.
"""

from __future__ import annotations

import gc
import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import cast

from perfml.errors import InputError
from perfml.readers.foreign import is_archive, unread
from perfml.readers.options import ReadOptions
from perfml.readers.source import Source
from perfml.readers.sqlite_database import require_whole
from perfml.tables import Kernels

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
    Format("nsys.stats_csv", "nsys stats --format csv (GPU trace, kernel sums)", (".csv",)),
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
    if not is_archive(source.head):
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
