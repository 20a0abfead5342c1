"""Tell which hardware metrics explain a GPU latency, and whether to trust the answer.

What people need has a name here, and is loaded when it is first used:

- `read` and `load_dataset` give tables, `merge` makes layers of kernels, `inspect` says what a
  table holds;
- `rank` and `evaluate` say which metrics explain a time, and how well;
- `explain` says why one side is slower, `advise` what a layer suffers from;
- `gate` says whether a new version does more work, `predict` which layers are slower than layers
  like them, `roofline` how far they are from what the device can do;
- `report` writes the page, `plot` draws one figure;
- in a PyTorch script, `layers` names the layers for a profiler and `iteration` the repeats;
  `profile` measures what a block runs, and `time_step` times a step without a profiler.
"""

import importlib
from typing import Any

from perfml._version import __version__ as __version__

_HOMES = {
    "advise": "perfml.explain.advice.hazards",
    "evaluate": "perfml.datasets.frames",
    "iteration": "collectors.layers",
    "inspect": "perfml.datasets.inspected",
    "layers": "collectors.layers",
    "load_dataset": "perfml.datasets.frames",
    "merge": "perfml.ingest.merge.rule",
    "profile": "collectors.in_process",
    "plot": "perfml.report.figures.registry",
    "rank": "perfml.datasets.frames",
    "read": "perfml.datasets.frames",
    "roofline": "perfml.explain.roofs.python",
    "time_step": "collectors.layers",
}
"""Public name to the module that defines it."""

_CALLABLE = ("explain", "gate", "predict", "report")
"""Packages that can be called, see `perfml.util.lazy.callable_package`."""

__all__ = [
    "advise",
    "evaluate",
    "explain",
    "gate",
    "inspect",
    "iteration",
    "layers",
    "load_dataset",
    "merge",
    "plot",
    "predict",
    "profile",
    "rank",
    "read",
    "report",
    "roofline",
    "time_step",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        globals()[name] = getattr(importlib.import_module(_HOMES[name]), name)
        return globals()[name]
    if name in _CALLABLE:
        return importlib.import_module(f"{__name__}.{name}")
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
