"""Read the Chrome trace that ``torch.profiler`` exports (``.json``, ``.json.gz``).

Kernels, their times, sizes and streams are read, and what the host was in when it launched them:
``record_function`` ranges and modules, else the outermost operators. There are no counters in it:
its occupancy is an estimate of PyTorch's from the launch alone, and is left out.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from perfml.errors import InputError
from perfml.readers.frame import kernels_frame
from perfml.readers.json_text import number, parsed, whole
from perfml.readers.launch_ranges import Launch, Range, locate
from perfml.readers.options import ReadOptions
from perfml.readers.source import Source
from perfml.readers.timeline import Spans, busy_share, timeline_columns
from perfml.tables import Kernels
from perfml.util.words import count

NAME = "torch-trace"

_CALLS = frozenset({"cuda_runtime", "cuda_driver", "runtime", "driver"})
_MEMORY = frozenset({"gpu_memcpy", "gpu_memset", "memcpy", "memset"})
_ANNOTATION, _FRAME, _OPERATOR = "user_annotation", "python_function", "cpu_op"
_MODULE = re.compile(r"nn\.Module: (.+)")
_STEP = re.compile(r"ProfilerStep\s?[#*](\d{1,15})")
_CAPABILITY = ("computeMajor", "computeMinor")
_SMALLER = (
    "Record fewer steps: torch.profiler.schedule(wait=1, warmup=1, active=3), and leave "
    "with_stack and profile_memory off."
)
_RECORD = (
    "Record with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], and export with "
    "prof.export_chrome_trace(FILE)."
)


def recognises(source: Source) -> bool:
    """Tell whether the beginning looks like a Chrome trace."""
    head = source.head_text().lstrip()
    if head[:1] == "{":
        return '"traceEvents"' in head or (
            '"schemaVersion"' in head and '"deviceProperties"' in head
        )
    return head[:1] == "[" and '"ph"' in head and '"ts"' in head


def read(source: Source, options: ReadOptions | None = None) -> Kernels:
    """Read a trace of PyTorch's profiler; metrics are absent from the table.

    Raises
    ------
    InputError
        If it is no whole JSON, is no such trace, or holds no kernels.
    """
    del options
    document = parsed(source, _SMALLER)
    return _Trace(source, document).kernels()


@dataclass(frozen=True)
class _Kernel:
    """One kernel of a trace; times in nanoseconds."""

    name: str
    start: int
    end: int
    device: int
    stream: int
    correlation: int | None
    grid: str | None
    block: str | None
    threads: float
    registers: float
    shared: float


class _Trace:
    def __init__(self, source: Source, document: Any) -> None:
        self.source = source
        self.where = str(source.path)
        facts = document if isinstance(document, dict) else {}
        events = facts.get("traceEvents") if isinstance(document, dict) else document
        if not isinstance(events, list):
            msg = "this trace has no list of events"
            found = type(events).__name__
            raise InputError(msg, where=self.where, found=found, cure=_RECORD)
        self.facts = facts
        self.events = [event for event in events if isinstance(event, dict)]
        self.warnings: list[str] = []
        self.timed = [event for event in self.events if event.get("ph") == "X"]
        self.origin = min(
            (time for event in self.timed if (time := number(event.get("ts"))) is not None),
            default=0.0,
        )

    def kernels(self) -> Kernels:
        """Return the Kernels table of the whole trace."""
        kernels = [self._kernel(event) for event in self._of("kernel")]
        if not kernels:
            raise self._nothing()
        calls = self._calls()
        launches = [
            calls.get(kernel.correlation, Launch(kernel.start, None))
            if kernel.correlation is not None
            else Launch(kernel.start, None)
            for kernel in kernels
        ]
        order = sorted(
            range(len(kernels)), key=lambda row: (launches[row].time, kernels[row].start)
        )
        kernels = [kernels[row] for row in order]
        launches = [launches[row] for row in order]
        paths, instances = self._ranges(launches)
        frame = kernels_frame(
            self._launches(kernels), paths, instances=instances if any(paths) else None
        )
        lost = sum(launch.thread is None for launch in launches)
        if lost and any(paths):
            self.warnings.append(
                f"{count(lost, 'kernel has', 'kernels have')} no API call in the trace; they were "
                "put into the ranges by "
                "the time they began on the GPU, which may be later than the launch."
            )
        return Kernels(frame, self._provenance(kernels, frame), tuple(self.warnings))

    def _of(self, *categories: str) -> list[dict[str, Any]]:
        """Return the timed events of some categories; PyTorch 1.8 wrote them with capitals."""
        wanted = set(categories)
        return [event for event in self.timed if str(event.get("cat", "")).lower() in wanted]

    def _nothing(self) -> InputError:
        counts = Counter(str(event.get("cat", "?"))[:40] for event in self.timed)
        held = [f"{count} of {name}" for name, count in counts.most_common(5)]
        msg = "this trace holds no kernels"
        return InputError(
            msg, where=self.where, found=", ".join(held) or "no timed events", cure=_RECORD
        )

    def _span(self, event: dict[str, Any]) -> tuple[int, int]:
        """Return when an event began and ended, in nanoseconds from the first one.

        Raises
        ------
        InputError
            If it has no time, or ends before it begins.
        """
        start, duration = number(event.get("ts")), number(event.get("dur", 0))
        # nanoseconds from the first event are whole numbers of 64 bits: 292 years
        if (
            start is None
            or duration is None
            or not 0 <= duration < 1e15
            or abs(start - self.origin) >= 1e15
        ):
            msg = "an event of the trace has no usable time"
            found = f"{str(event.get('name'))[:60]}: ts {event.get('ts')!r:.40}, dur "
            found += f"{event.get('dur')!r:.40}"
            raise InputError(msg, where=self.where, found=found, cure="Record it again.")
        first = round((start - self.origin) * 1e3)
        return first, first + round(duration * 1e3)

    def _kernel(self, event: dict[str, Any]) -> _Kernel:
        name = event.get("name")
        if not isinstance(name, str) or not name.strip():
            msg = "a kernel of the trace has no name"
            raise InputError(msg, where=self.where, found=repr(name)[:60], cure="Record it again.")
        arguments = _arguments(event)
        start, end = self._span(event)
        grid, block = _sizes(arguments.get("grid")), _sizes(arguments.get("block"))
        stream = whole(arguments.get("stream"))
        device = whole(arguments.get("device"))
        threads = (
            float(np.prod([*map(float, grid), *map(float, block)])) if grid and block else None
        )
        return _Kernel(
            name=name,
            start=start,
            end=end,
            device=device if device is not None else whole(event.get("pid")) or 0,
            stream=stream if stream is not None else whole(event.get("tid")) or 0,
            correlation=whole(arguments.get("correlation")),
            grid=_shape(grid),
            block=_shape(block),
            threads=_or_nan(threads),
            registers=_or_nan(number(arguments.get("registers per thread"))),
            shared=_or_nan(number(arguments.get("shared memory"))),
        )

    def _calls(self) -> dict[int, Launch]:
        """Return when and by which thread each correlation id was launched."""
        calls: dict[int, Launch] = {}
        threads = _Threads()
        for event in self._of(*_CALLS):
            correlation = whole(_arguments(event).get("correlation"))
            if correlation is not None:
                start, _ = self._span(event)
                calls.setdefault(correlation, Launch(start, threads.number(event)))
        self.threads = threads
        return calls

    def _ranges(self, launches: Sequence[Launch]) -> tuple[list[tuple[str, ...]], list[int]]:
        """Return the ranges around each launch, outermost first, and a number for the innermost."""
        named = sorted(self._named(self._of(_ANNOTATION, _FRAME)), key=_nesting)
        paths, instances = locate(launches, named)
        if not all(map(_is_step, paths)):
            return paths, instances
        operators = [self._range(event, str(event.get("name"))) for event in self._of(_OPERATOR)]
        if operators:
            self.warnings.append(
                "The trace has no record_function ranges and no modules, so the layers are the "
                "outermost operators; record with with_modules=True, or name parts of the program "
                "with torch.profiler.record_function."
            )
        around = [*named, *_outermost(sorted(operators, key=_nesting))]
        return locate(launches, sorted(around, key=_nesting))

    def _named(self, events: Iterable[dict[str, Any]]) -> Iterable[Range]:
        for event in events:
            name = str(event.get("name"))
            if str(event.get("cat", "")).lower() == _FRAME:
                module = _MODULE.fullmatch(name)
                if module is None:
                    continue  # a line of Python, of which there are millions
                name = module.group(1)
            step = _STEP.fullmatch(name)
            yield self._range(event, f"step_{step.group(1)}" if step else name)

    def _range(self, event: dict[str, Any], name: str) -> Range:
        start, end = self._span(event)
        # One that ends when the next one begins does not hold what that one launches.
        return Range(start, max(start, end - 1), name, self.threads.number(event), 0)

    def _launches(self, kernels: Sequence[_Kernel]) -> pd.DataFrame:
        spans = _spans(kernels)
        stream = np.array([kernel.stream for kernel in kernels], dtype=np.int64)
        empty = spans.end <= spans.start
        if empty.any():
            self.warnings.append(
                f"{count(int(empty.sum()), 'kernel')} took less than the trace's clock shows; "
                "their times "
                "are missing."
            )
        devices = self._devices()
        known = [devices.get(kernel.device, (None, None)) for kernel in kernels]
        columns: dict[str, Any] = {
            "kernel": [kernel.name for kernel in kernels],
            "grid": [kernel.grid for kernel in kernels],
            "block": [kernel.block for kernel in kernels],
            "device": [name for name, _ in known],
            "compute_capability": [capability for _, capability in known],
            "time_us": np.where(empty, np.nan, (spans.end - spans.start) / 1e3),
            "time_source": [None if wrong else "torch" for wrong in empty],
            "launches": np.ones(len(kernels), dtype=np.int64),
            **timeline_columns(spans, stream, self._memory()),
            "registers_per_thread": [kernel.registers for kernel in kernels],
            "shared_memory_per_block": [kernel.shared for kernel in kernels],
            "threads": [kernel.threads for kernel in kernels],
        }
        return pd.DataFrame(columns)

    def _memory(self) -> Spans:
        """Return memory copies and sets."""
        events = self._of(*_MEMORY)
        if events:
            self.warnings.append(
                f"{len(events)} memory copies and sets are no kernels and were left out; they "
                "count as work where gaps between kernels are given."
            )
        spans = [self._span(event) for event in events]
        devices = [whole(_arguments(event).get("device", event.get("pid"))) for event in events]
        return Spans(
            np.array([device or 0 for device in devices], dtype=np.int64),
            np.array([start for start, _ in spans], dtype=np.int64),
            np.array([end for _, end in spans], dtype=np.int64),
        )

    def _devices(self) -> dict[int, tuple[str | None, str | None]]:
        """Return the name and compute capability of each device id."""
        properties = self.facts.get("deviceProperties")
        devices: dict[int, tuple[str | None, str | None]] = {}
        for entry in properties if isinstance(properties, list) else []:
            device = whole(entry.get("id")) if isinstance(entry, dict) else None
            if device is None:
                continue
            parts = [whole(entry.get(name)) for name in _CAPABILITY]
            known = all(part is not None for part in parts)
            name = entry.get("name")
            devices[device] = (
                name if isinstance(name, str) and name else None,
                ".".join(map(str, parts)) if known else None,
            )
        return devices

    def _provenance(self, kernels: Sequence[_Kernel], frame: pd.DataFrame) -> dict[str, Any]:
        version = self.facts.get("pytorch_version") or self.facts.get("torch_version")
        devices = frame[["device", "compute_capability"]]
        joined = [", ".join(map(str, devices[name].dropna().unique())) or None for name in devices]
        return {
            "path": self.source.path.name,
            "sha256": self.source.sha256,
            "format": NAME,
            "tool": "PyTorch profiler",
            "tool_version": str(version)[:40] if version is not None else None,
            "device": joined[0],
            "compute_capability": joined[1],
            "streams": len({(kernel.device, kernel.stream) for kernel in kernels}),
            "kernels_busy": busy_share(_spans(kernels)),
        }


def _spans(kernels: Sequence[_Kernel]) -> Spans:
    rows = [(kernel.device, kernel.start, kernel.end) for kernel in kernels]
    return Spans(*np.array(rows, dtype=np.int64).reshape(-1, 3).T)


class _Threads:
    """Numbers for the threads of a trace, whose ids may be numbers or text."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, str], int] = {}

    def number(self, event: dict[str, Any]) -> int:
        """Return the number of the thread that an event happened on."""
        key = (str(event.get("pid")), str(event.get("tid")))
        return self._numbers.setdefault(key, len(self._numbers))


def _nesting(item: Range) -> tuple[int, int]:
    return item.start, -item.end


def _is_step(path: Sequence[str]) -> bool:
    return all(name.startswith("step_") for name in path)


def _outermost(ranges: Sequence[Range]) -> list[Range]:
    """Return those of some ranges, sorted, that lie in no other one of their thread."""
    kept: list[Range] = []
    until: dict[int | None, int] = {}
    for item in ranges:
        if item.start > until.get(item.thread, -1):
            kept.append(item)
            until[item.thread] = item.end
    return kept


def _arguments(event: dict[str, Any]) -> dict[str, Any]:
    arguments = event.get("args")
    return arguments if isinstance(arguments, dict) else {}


def _sizes(value: Any) -> tuple[int, ...] | None:
    """Return three sizes, from a list or from text such as ``[16, 1, 1]``."""
    parts = value.strip("[]() ").split(",") if isinstance(value, str) else value
    if not isinstance(parts, list) or len(parts) != 3:
        return None
    sizes = tuple(size for part in parts if (size := whole(part)) is not None and size >= 0)
    return sizes if len(sizes) == 3 else None


def _shape(sizes: tuple[int, ...] | None) -> str | None:
    return f"({', '.join(map(str, sizes))})" if sizes else None


def _or_nan(value: float | None) -> float:
    return float("nan") if value is None or value < 0 else value
