"""Merge: the kernels of a layer become one row, weighted by their running time.

Here to change: the rule itself (`rule`), and how it is applied to tables larger than memory
(`batches`, `files`, `write`).
"""

from __future__ import annotations

from typing import Any

from perfml.util.lazy import callable_package, resolve

_HOMES = {
    "launch_totals": "rule",
    "merge": "rule",
    "unattributed": "rule",
    "merge_files": "batches",
    "Merged": "write",
    "kernel_files": "files",
    "KernelFiles": "files",
}

__all__ = sorted(_HOMES)

callable_package(__name__, "rule", "merge")


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: pyarrow takes a while."""
    return resolve(__name__, globals(), _HOMES, name)


def __dir__() -> list[str]:
    return __all__
