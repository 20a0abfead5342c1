"""Built-in workloads: what perfml can profile without a program of the user's own.

Every workload runs in a process of its own, ``python -m collectors.workloads.runner NAME ...``,
so that a profiler can be put in front of it. This package only says what there is; torch and the
other GPU libraries are imported when a session is made.

Ladders of kernels and planted causes are workloads of ``studies/workloads``, in a checkout.

Here to change: a workload is a folder with a ``WORKLOAD`` and an entry below; a backend
of YOLOv4-Tiny a file of ``yolov4_tiny/backends``; what a session must do, in ``session.py``.
"""

from __future__ import annotations

import importlib
from typing import cast

from collectors.workloads.base import CheckRow, Options, Session, Workload, parse_settings
from collectors.workloads.torch_models import PREFIX, TorchModel
from perfml.errors import InputError
from perfml.util import installed

__all__ = [
    "CheckRow",
    "Options",
    "Session",
    "Workload",
    "default_backends",
    "is_workload",
    "parse_settings",
    "workload",
    "workloads",
]

_MODULES = {"yolov4-tiny": "collectors.workloads.yolov4_tiny"}

_OF_STUDIES = ("attention", "conv", "qkv", "planted")
"""Ladders of kernels and planted causes: modules of ``studies.workloads`` in a checkout."""


def workloads() -> tuple[str, ...]:
    """Return the names of all built-in workloads; PyTorch models are named ``torch:...``.

    Those of the studies are among them in a checkout only.
    """
    return (*_MODULES, *(_OF_STUDIES if installed.studies() else ()))


def is_workload(name: str) -> bool:
    """Return whether a name is a built-in workload's, or says that it is a PyTorch model."""
    return name in (*_MODULES, *_OF_STUDIES) or name.startswith(PREFIX)


def workload(name: str) -> Workload:
    """Return a workload by name: a built-in one, or any PyTorch model (``torch:...``).

    Raises `InputError` if there is none of that name, or it is of the studies and these are not
    here.
    """
    if name.startswith(PREFIX):
        return TorchModel(name)
    if name not in workloads():
        what = "there is no built-in workload of this name"
        cure = f"Choose one of: {', '.join(workloads())}; or profile any program with -- CMD."
        if name in _OF_STUDIES:
            what, cure = (
                "this workload does not come with an installed perfml",
                installed.NEEDS_CHECKOUT,
            )
        raise InputError(what, where="WORKLOAD", found=name, cure=cure)
    module = importlib.import_module(_MODULES.get(name, f"studies.workloads.{name}"))
    return cast("Workload", module.WORKLOAD)


def default_backends(name: str) -> tuple[str, ...]:
    """Return the backends to measure where the user names none.

    A workload with `default_backends` decides itself: a ladder means all of its versions; otherwise
    it is the first one.
    """
    found = workload(name)
    own = getattr(found, "default_backends", None)
    return found.backends()[:1] if own is None else tuple(own())
