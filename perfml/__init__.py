"""Tell which hardware metrics explain a GPU latency, and whether to trust the answer.

In a PyTorch script, `perfml.layers` names the layers for a profiler and `perfml.iteration` the
repeats; both are in `collectors.layers`, which is loaded when one of them is first asked for.
"""

import importlib
from typing import Any

from perfml._version import __version__

__all__ = ["__version__", "iteration", "layers"]

_IN_THE_PROFILED_PROGRAM = ("iteration", "layers")


def __getattr__(name: str) -> Any:
    if name in _IN_THE_PROFILED_PROGRAM:
        return getattr(importlib.import_module("collectors.layers"), name)
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
