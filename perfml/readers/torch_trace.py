"""Read the Chrome trace that ``torch.profiler`` exports (``.json``, ``.json.gz``).

Kernels, their times, sizes and streams are read, and where the host launched them
(`perfml.account.origins`): in ``record_function`` ranges and modules, else in the outermost
operators. What a step takes on the clock stands in the provenance (`perfml.account`). There are
no counters in it: its occupancy is an estimate of PyTorch's from the launch alone, and is left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from perfml.account.account import ACCOUNT, Account
from perfml.account.build import account_of
from perfml.account.origins import Origin, Origins, numbered
from perfml.account.recording import Activity, DeviceKind, HostKind, Recording
from perfml.account.steps import Steps, find_steps
from perfml.errors import InputError
from perfml.readers.frame import kernels_frame
from perfml.readers.json_text import number, parsed, whole
from perfml.readers.options import ReadOptions
from perfml.readers.source import Source
from perfml.readers.timeline import Spans, busy_share, timeline_columns
from perfml.readers.torch_events import Event, Events, arguments_of, device_of, stream_of
from perfml.tables import Kernels
from perfml.util.devices import is_amd
from perfml.util.ranges import ITERATION
from perfml.util.words import count

NAME = "torch-trace"

_CAPABILITY = ("computeMajor", "computeMinor")
_WAVEFRONT = 64
"""Threads of a wavefront of AMD's; a warp of NVIDIA's has 32."""
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

    Raises `InputError` if it is no whole JSON, is no such trace, or holds no kernels.
    """
    del options
    document = parsed(source, _SMALLER)
    return _Trace(source, document).kernels()


@dataclass(frozen=True)
class _Kernel:
    """One kernel of a trace, with how it was launched."""

    activity: Activity
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
        self.events = Events(events, self.where)
        self.warnings: list[str] = []

    def kernels(self) -> Kernels:
        """Return the Kernels table of the whole trace."""
        kernels = [self._kernel(event) for event in self.events.of("kernel")]
        if not kernels:
            raise self._nothing()
        recording = self.events.recording([kernel.activity for kernel in kernels])
        steps = find_steps(recording)
        finder = Origins(recording, steps)
        origins = finder.all(recording.activities)
        order = sorted(
            range(len(kernels)), key=lambda row: (origins[row].time, kernels[row].activity.start)
        )
        launched = [origins[row] for row in order]
        kernels = [kernels[row] for row in order]
        paths = [_numbered_path(origin, steps) for origin in launched]
        instances = numbered([origin.instance for origin in launched])
        moves = [each for each in recording.activities if each.kind is not DeviceKind.KERNEL]
        frame = kernels_frame(
            self._launches(kernels, moves), paths, instances=instances if any(paths) else None
        )
        self._note_origins(recording, launched, steps)
        account = None
        if recording.spans(HostKind.CALL):
            account = account_of(recording, steps, finder, origins)
        return Kernels(frame, self._provenance(kernels, frame, account), tuple(self.warnings))

    def _note_origins(self, recording: Recording, origins: Sequence[Origin], steps: Steps) -> None:
        """Say what layers are, and where they rest on less than an API call."""
        named = recording.spans(HostKind.RANGE, HostKind.MODULE)
        if all(span in steps.marks for span in named) and any(each.operator for each in origins):
            self.warnings.append(
                "Record with with_modules=True, or name parts with torch.profiler.record_function. "
                "This trace has no ranges and no modules, so the layers are the outermost "
                "operators."
            )
        lost = sum(origin.call is None for origin in origins)
        if lost and any(origin.path for origin in origins):
            self.warnings.append(
                f"{count(lost, 'kernel has', 'kernels have')} no API call in the trace. Their "
                "ranges are those at their start on the GPU, which may be later than the launch."
            )

    def _nothing(self) -> InputError:
        counts = Counter(str(event.get("cat", "?"))[:40] for event in self.events.timed)
        held = [f"{count} of {name}" for name, count in counts.most_common(5)]
        msg = "this trace holds no kernels"
        return InputError(
            msg, where=self.where, found=", ".join(held) or "no timed events", cure=_RECORD
        )

    def _kernel(self, event: Event) -> _Kernel:
        name = event.get("name")
        if not isinstance(name, str) or not name.strip():
            msg = "a kernel of the trace has no name"
            raise InputError(msg, where=self.where, found=repr(name)[:60], cure="Record it again.")
        arguments = arguments_of(event)
        start, end = self.events.span(event)
        grid, block = _sizes(arguments.get("grid")), _sizes(arguments.get("block"))
        threads = (
            float(np.prod([*map(float, grid), *map(float, block)])) if grid and block else None
        )
        correlation = whole(arguments.get("correlation"))
        return _Kernel(
            Activity(
                DeviceKind.KERNEL,
                name,
                start,
                end,
                device_of(event),
                stream_of(event),
                correlation,
            ),
            grid=_shape(grid),
            block=_shape(block),
            threads=_or_nan(threads),
            registers=_or_nan(number(arguments.get("registers per thread"))),
            shared=_or_nan(number(arguments.get("shared memory"))),
        )

    def _launches(self, kernels: Sequence[_Kernel], moves: Sequence[Activity]) -> pd.DataFrame:
        activities = [kernel.activity for kernel in kernels]
        spans = _spans(activities)
        stream = np.array([activity.stream for activity in activities], dtype=np.int64)
        empty = spans.end <= spans.start
        if empty.any():
            self.warnings.append(
                f"{count(int(empty.sum()), 'kernel')} took less than the trace's clock shows; "
                "their times "
                "are missing."
            )
        if moves:
            self.warnings.append(
                f"{count(len(moves), 'memory copy or set is', 'memory copies and sets are')} no "
                "rows of the table; the account of a step counts them."
            )
        known = self._devices([activity.device for activity in activities])
        columns: dict[str, Any] = {
            "kernel": [activity.name for activity in activities],
            "grid": [kernel.grid for kernel in kernels],
            "block": [kernel.block for kernel in kernels],
            "device": [name for name, _ in known],
            "compute_capability": [capability for _, capability in known],
            "time_us": np.where(empty, np.nan, (spans.end - spans.start) / 1e3),
            "time_source": [None if wrong else "torch" for wrong in empty],
            "launches": np.ones(len(kernels), dtype=np.int64),
            **timeline_columns(spans, stream, _spans(moves)),
            "registers_per_thread": [kernel.registers for kernel in kernels],
            "shared_memory_per_block": [kernel.shared for kernel in kernels],
            "threads": [kernel.threads for kernel in kernels],
        }
        return pd.DataFrame(columns)

    def _devices(self, numbers: Sequence[int]) -> list[tuple[str | None, str | None]]:
        """Return the name and compute capability of the device of each kernel.

        ROCm numbers its agents, CPUs among them, so that a kernel's device may not be listed. Where
        all that are listed are alike, it is one of these.
        """
        properties = self.facts.get("deviceProperties")
        devices: dict[int, tuple[str | None, str | None]] = {}
        for entry in properties if isinstance(properties, list) else []:
            device = whole(entry.get("id")) if isinstance(entry, dict) else None
            if device is not None:
                devices[device] = _name_and_capability(entry)
        kinds = set(devices.values())
        alike = next(iter(kinds)) if len(kinds) == 1 else (None, None)
        return [devices.get(device, alike) for device in numbers]

    def _provenance(
        self, kernels: Sequence[_Kernel], frame: pd.DataFrame, account: Account | None
    ) -> dict[str, Any]:
        version = self.facts.get("pytorch_version") or self.facts.get("torch_version")
        devices = frame[["device", "compute_capability"]]
        joined = [", ".join(map(str, devices[name].dropna().unique())) or None for name in devices]
        activities = [kernel.activity for kernel in kernels]
        return {
            **self.source.provenance(NAME, "PyTorch profiler"),
            "tool_version": str(version)[:40] if version is not None else None,
            "device": joined[0],
            "compute_capability": joined[1],
            "streams": len({(each.device, each.stream) for each in activities}),
            "kernels_busy": busy_share(_spans(activities)),
            **({} if account is None else {ACCOUNT: account.to_dict()}),
        }


def _name_and_capability(entry: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """Return what a device is called, and its compute capability if it is one of NVIDIA's."""
    name = entry.get("name")
    parts = [whole(entry.get(part)) for part in _CAPABILITY]
    text = name if isinstance(name, str) and name else None
    amd = whole(entry.get("warpSize")) == _WAVEFRONT or is_amd(text)
    known = all(part is not None for part in parts) and not amd
    return text, ".".join(map(str, parts)) if known else None


def _numbered_path(origin: Origin, steps: Steps) -> tuple[str, ...]:
    """Return the path of a launch with the number of its step, where no range numbers it."""
    step = steps.of(origin.time)
    if len(steps.starts) < 2 or step < 0 or any(map(ITERATION.fullmatch, origin.path)):
        return origin.path
    return (f"step_{step}", *origin.path)


def _spans(activities: Sequence[Activity]) -> Spans:
    rows = [(each.device, each.start, each.end) for each in activities]
    return Spans(*np.array(rows, dtype=np.int64).reshape(-1, 3).T)


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
