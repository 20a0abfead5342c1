"""Read the trace of torch.profiler: which kernel ran in which layer, when and for how long.

torch.profiler records kernels through CUPTI's activity interface: no counters, no replay, no
serialisation. A kernel belongs to the range in which the host launched it; launch and kernel carry
the same correlation id.
"""

from __future__ import annotations

import bisect
import dataclasses
import gzip
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from perfml.errors import InputError

from .ranges import ITERATION_PREFIX

_LAUNCHES = ("cuda_runtime", "cuda_driver")
_MEMORY = ("gpu_memcpy", "gpu_memset")
COLUMNS = ("iteration", "layer", "kernel", "time_us", "start_us", "grid", "block")


@dataclasses.dataclass(frozen=True)
class TimedKernel:
    """One kernel launch, or one copy or fill of memory, of a measured iteration.

    Parameters
    ----------
    iteration
        Counted from 0.
    layer
        Innermost layer range around the launch, empty if there is none.
    kernel
        Name as CUPTI gives it, demangled.
    time_us
        Duration in microseconds.
    start_us
        Start in microseconds after the first kernel or copy of the first measured iteration; NaN
        if the library reports durations only.
    grid, block
        Launch configuration as ``(x, y, z)``, empty if not known.
    bytes
        That a copy or fill moves; None for a kernel.
    """

    iteration: int
    layer: str
    kernel: str
    time_us: float
    start_us: float
    grid: str
    block: str
    bytes: int | None = None


@dataclasses.dataclass(frozen=True)
class Timing:
    """What a trace holds.

    Parameters
    ----------
    kernels
        In order of start.
    outside
        Kernels launched outside every measured iteration.
    moves
        Copies and fills on the device inside measured iterations, in order of start; they are not
        kernels and a counter profiler does not see them.
    """

    kernels: list[TimedKernel]
    outside: int
    moves: list[TimedKernel]


class _Spans:
    """Ranges that do not overlap on one thread; finds the one around a point in time."""

    def __init__(self) -> None:
        self._threads: dict[Any, list[tuple[float, float, str]]] = {}
        self._sorted = False

    def add(self, event: dict[str, Any]) -> None:
        start = event["ts"]
        spans = self._threads.setdefault(_thread(event), [])
        spans.append((start, start + event["dur"], event["name"]))

    def around(self, event: dict[str, Any]) -> str | None:
        if not self._sorted:
            for spans in self._threads.values():
                spans.sort()
            self._sorted = True
        spans = self._threads.get(_thread(event), [])
        at = bisect.bisect_right(spans, event["ts"], key=lambda span: span[0]) - 1
        if at >= 0 and event["ts"] < spans[at][1]:
            return spans[at][2]
        return None


def _thread(event: dict[str, Any]) -> tuple[Any, Any]:
    return event["pid"], event["tid"]


def read_trace(path: str | Path, layers: Iterable[str]) -> Timing:
    """Attribute every kernel of a trace file to its iteration and layer.

    Parameters
    ----------
    path
        What ``torch.profiler.profile.export_chrome_trace`` wrote, ``.json`` or ``.json.gz``.
    layers
        Names of the layer ranges; other ranges (those of torch itself) are not layers.

    Raises
    ------
    InputError
        If the file is no trace, holds no kernel, or lacks the launch of a kernel.
    """
    path = Path(path)
    try:
        opener = gzip.open if path.suffix == ".gz" else open
        with opener(path, "rt", encoding="utf-8") as file:
            events = json.load(file)["traceEvents"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        what = "this is no trace of torch.profiler"
        raise InputError(what, where=str(path), found=str(error)) from error
    return attribute([event for event in events if event.get("ph") == "X"], layers, str(path))


def attribute(events: list[dict[str, Any]], layers: Iterable[str], where: str) -> Timing:
    """Attribute the complete events (``"ph": "X"``) of a trace; see :func:`read_trace`."""
    names = set(layers)
    iterations, ranges = _Spans(), _Spans()
    launches: dict[int, dict[str, Any]] = {}
    kernels: list[dict[str, Any]] = []
    memory: list[dict[str, Any]] = []
    for event in events:
        category = event.get("cat")
        if category == "user_annotation":
            if event["name"].startswith(ITERATION_PREFIX):
                iterations.add(event)
            elif event["name"] in names:
                ranges.add(event)
        elif category in _LAUNCHES and "correlation" in event.get("args", {}):
            launches[event["args"]["correlation"]] = event
        elif category == "kernel":
            kernels.append(event)
        elif category in _MEMORY:
            memory.append(event)
    if not kernels:
        what = "the trace holds no kernel"
        cure = "Time a session on a GPU; another profiler (ncu, nsys) around the same process"
        cure += " keeps CUPTI to itself, so time without one."
        raise InputError(what, where=where, found=f"{len(events)} events", cure=cure)
    lost = [kernel["name"] for kernel in kernels if kernel["args"]["correlation"] not in launches]
    if lost:
        what = "the trace lacks the launch of a kernel, so its layer is not known"
        cure = "Time fewer iterations: the profiler's buffers overflowed."
        found = f"{len(lost)} of {len(kernels)} kernels, first {lost[0][:60]}"
        raise InputError(what, where=where, found=found, cure=cure)
    inside = []
    for event in sorted([*kernels, *memory], key=lambda event: event["ts"]):
        launch = launches.get(event["args"].get("correlation"))
        iteration = iterations.around(launch) if launch else None
        if launch and iteration is not None:
            inside.append((event, iteration, ranges.around(launch) or ""))
    origin = inside[0][0]["ts"] if inside else 0.0
    rows = [_row(*each, origin) for each in inside]
    ran = [row for row in rows if row.bytes is None]
    moves = [row for row in rows if row.bytes is not None]
    return Timing(ran, len(kernels) - len(ran), moves)


def _row(kernel: dict[str, Any], iteration: str, layer: str, origin: float) -> TimedKernel:
    args = kernel["args"]
    return TimedKernel(
        iteration=int(iteration.removeprefix(ITERATION_PREFIX)),
        layer=layer,
        kernel=kernel["name"],
        time_us=round(kernel["dur"], 3),
        start_us=round(kernel["ts"] - origin, 3),
        grid=_extent(args.get("grid")),
        block=_extent(args.get("block")),
        bytes=int(args.get("bytes", 0)) if kernel.get("cat") in _MEMORY else None,
    )


def _extent(values: list[int] | None) -> str:
    # Written as ncu writes it, so that launches of the two passes can be matched as text.
    return f"({', '.join(str(value) for value in values)})" if values else ""
