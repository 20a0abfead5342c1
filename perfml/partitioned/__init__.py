"""Tables larger than memory: kernels in a folder of Parquet, ingested run by run and merged there.

`ingest_folder` reads profiles on all cores into one file a run; `merge_files` makes layers of them,
row group by row group. In memory the same is `perfml.ingest.ingest` and `perfml.merge.merge`.

Two things hold across the modules: an interrupted run leaves whole files or none, and a layers
table made here is the one that would have been made in memory. What to open for a change:

- `ingest`: what one unit of work is, and when its files land in the folder;
- `index`: how files of the folder are named, and how the content of a profile is recognised;
- `files`: which files on disk are accepted as one Kernels table;
- `read`: how much is read at once, and on how many threads;
- `rows`: the sums over the launches of a layer;
- `merge`: the order of the work, and layers that lie across row groups and files;
- `write`: how layers lie in the result, and what is counted of them.
"""

from __future__ import annotations

from typing import Any

from perfml._lazy import resolve

_HOMES = {
    "ingest_folder": "ingest",
    "Settings": "ingest",
    "Landed": "ingest",
    "merge_files": "merge",
    "Merged": "write",
    "kernel_files": "files",
    "KernelFiles": "files",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: pyarrow takes a while."""
    return resolve(__name__, globals(), _HOMES, name)


def __dir__() -> list[str]:
    return __all__
