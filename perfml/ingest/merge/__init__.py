"""Merge: the kernels of a layer become one row, weighted by their running time.

Here to change: the rule itself (`rule`), and how it is applied to tables larger than memory
(`batches`, `files`, `write`).
"""

from __future__ import annotations

from perfml.util.lazy import lazily

_HOMES = {
    "launch_totals": "rule",
    "merge": "rule",
    "unattributed_time": "rule",
    "merge_files": "batches",
    "MergeResult": "write",
    "kernel_files": "files",
    "KernelFiles": "files",
}

__all__ = sorted(_HOMES)

# on first use: pyarrow takes a while
__getattr__, __dir__ = lazily(__name__, globals(), _HOMES)
