"""Wait for the GPU before it is touched, so that several runs can prepare on the CPU at once.

Importing torch, building a model and computing its reference take longer than measuring it. Where
``PERFML_GPU_TURN`` names a file, a workload's process prepares, takes the file's lock before its
first call of CUDA, and holds it until it ends: never do two of them have a context on the GPU.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib
import os

TURN = "PERFML_GPU_TURN"
_HELD: list[int] = []


def wait_for_turn(*modules: str) -> None:
    """Return when this process has the GPU to itself; at once where no lock is asked for.

    `modules` are what will be needed then: they are imported first, if they are installed.
    """
    path = os.environ.get(TURN)
    if not path or _HELD:
        return
    for name in modules:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    handle = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    fcntl.flock(handle, fcntl.LOCK_EX)
    _HELD.append(handle)
