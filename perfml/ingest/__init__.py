"""Ingest: profiles of every format become one table of kernels, and kernels become layers.

Here to change: which files of a run belong together and which times a launch gets
(`profiles`, `timing`), what names a run (`run_labels`), which launches are a layer (`layer_map`),
and how the kernels of a layer become one row (`merge/`).
"""

from __future__ import annotations

from perfml.util.lazy import lazily

_HOMES = {
    "ingest": "profiles",
    "ingest_runs": "profiles",
    "IngestSettings": "profiles",
    "LayerMap": "layer_map",
    "read_layer_map": "layer_map",
}

__all__ = sorted(_HOMES)

# on first use: pandas takes a second
__getattr__, __dir__ = lazily(__name__, globals(), _HOMES)
