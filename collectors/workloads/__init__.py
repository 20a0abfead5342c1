"""Built-in workloads: what perfml can profile without a program of the user's own.

Every workload runs in a process of its own, ``python -m collectors.workloads.run NAME ...``,
so that a profiler can be put in front of it. This package only says what there is; torch and the
other GPU libraries are imported when a session is made.
"""

from __future__ import annotations

import importlib
from typing import cast

from perfml.errors import InputError

from ._base import CheckRow, Options, Session, Workload

__all__ = ["CheckRow", "Options", "Session", "Workload", "workload", "workloads"]

_MODULES = {
    "yolov4-tiny": "collectors.workloads.yolov4_tiny",
}


def workloads() -> tuple[str, ...]:
    """Return the names of all built-in workloads."""
    return tuple(_MODULES)


def workload(name: str) -> Workload:
    """Return a built-in workload by name.

    Raises
    ------
    InputError
        If there is none of that name.
    """
    if name not in _MODULES:
        what = "there is no built-in workload of this name"
        cure = f"Choose one of: {', '.join(_MODULES)}; or profile any program with -- CMD."
        raise InputError(what, where="WORKLOAD", found=name, cure=cure)
    module = importlib.import_module(_MODULES[name])
    return cast("Workload", module.WORKLOAD)
