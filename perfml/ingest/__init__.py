"""Ingest: profiles of every format become one table of kernels, in memory or run by run on disk.

Here to change: which files of a run belong together and which times a launch gets
(`profiles`, `timing`), what names a run (`run_labels`), which launches are a layer (`layer_map`),
and how a folder of Parquet larger than memory is written (`folder`).
"""

from __future__ import annotations

from typing import Any

from perfml.util.lazy import resolve

_HOMES = {
    "ingest": "profiles",
    "ingest_runs": "profiles",
    "ingest_folder": "folder",
    "Settings": "folder",
    "Landed": "folder",
    "LayerMap": "layer_map",
    "read_layer_map": "layer_map",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: pandas takes a second."""
    return resolve(__name__, globals(), _HOMES, name)


def __dir__() -> list[str]:
    return __all__
