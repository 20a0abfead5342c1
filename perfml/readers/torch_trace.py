"""Read the Chrome trace that ``torch.profiler`` exports (``.json``, ``.json.gz``).

Kernels, their times, sizes and streams are read, and where the host launched them
(`perfml.account.origins`): in ``record_function`` ranges and modules, else in the outermost
operators. What a step takes on the clock stands in the provenance (`perfml.account`). Counters are
not read: PyTorch's occupancy is an estimate from the launch alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd

from perfml import chips
from perfml.account.account import ACCOUNT, BESIDE, Account
from perfml.account.audit import AUDIT, Fact, audited
from perfml.account.build import account_of
from perfml.account.collectives import RANK, Collective, RankOfJob
from perfml.account.device_time import Spans, busy_share, recorded_times
from perfml.account.origins import Origin, Origins, numbered, replay_of
from perfml.account.recording import Activity, DeviceKind, HostKind, Recording
from perfml.account.steps import Steps, find_steps
from perfml.account.window import first_steps, of_the_first
from perfml.chips.lookup import AMD_GPU, vendor
from perfml.errors import InputError
from perfml.readers.chrome_trace import ChromeTrace
from perfml.readers.frame import kernels_frame
from perfml.readers.json_text import whole
from perfml.readers.source import ReadOptions, Source
from perfml.readers.timeline import timed_columns
from perfml.readers.torch_events import Events, Kernel
from perfml.tables import Kernels
from perfml.util.files import parse_json, read_document
from perfml.util.ranges import ITERATION
from perfml.util.words import count

NAME = "torch-trace"
BY_OPERATOR = (
    "Record with with_modules=True, or name parts with torch.profiler.record_function. "
    "This trace has no ranges and no modules, so the layers are the outermost operators."
)

_CAPABILITY = ("computeMajor", "computeMinor")
_MTIA = "MTIA"
"""Meta's accelerator: Kineto's categories ``mtia_runtime`` and ``mtia_ccp_events``."""
_WAVEFRONT = 64
"""Threads of a wavefront of AMD's; a warp of NVIDIA's has 32."""
_RECORD = (
    "Record with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], and export with "
    "prof.export_chrome_trace(FILE)."
)


def recognises(source: Source) -> bool:
    """Tell whether the beginning looks like a Chrome trace."""
    head = source.head_text().lstrip()
    if '"BeginNs"' in head:
        return False  # of the first rocprof
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
    return _Trace(source).kernels()


class _Trace:
    def __init__(self, source: Source) -> None:
        self.source = source
        self.trace = ChromeTrace(source, _RECORD)
        self.events = Events(self.trace)
        self.warnings: list[str] = []

    @property
    def _of_mtia(self) -> bool:
        return any(name.startswith("mtia_") for name in self.events.categories)

    def kernels(self) -> Kernels:
        """Return the Kernels table of the whole trace."""
        if not self.events.kernels:
            raise self._nothing()
        recording, audit = audited(self.events.recording(), self._facts())
        self.warnings += [*audit.sentences, *self.events.joined]
        steps = find_steps(recording)
        finder = Origins(recording, steps)
        origins = finder.all(recording.activities)
        kernels, launched = self._kernels(recording, origins)
        paths = [_numbered_path(origin, steps) for origin in launched]
        instances = numbered([origin.instance for origin in launched])
        launches = self._launches(kernels)
        replays = [replay_of(origin.call) for origin in launched]
        if any(replays):
            launches["replay"] = [number or None for number in replays]
        frame = kernels_frame(launches, paths, instances=instances if any(paths) else None)
        self._note_origins(recording, launched, steps)
        account, rank = None, None
        first, counted, theirs = first_steps(recording, steps, origins)
        if any(activity.end > activity.start for activity in first.activities):
            ran = _spans([kernel.activity for kernel in kernels])
            every = recorded_times(ran, _spans(self.events.moves))
            account = account_of(
                first,
                counted,
                finder,
                theirs,
                recorded=every,
                unknown=audit.unknown,
                multiprocessors={
                    device: self._multiprocessors(entry)
                    for device, entry in self._properties().items()
                    if device is not None
                },
            )
            amd = vendor(str(frame["device"].iloc[0])) == "amd"
            account = replace(account, bare_steps_us=_bare_steps(self.source.path), amd=amd)
            if first is not recording:
                held = sum(activity.kind is DeviceKind.KERNEL for activity in first.activities)
                of = len(counted.starts), held, len(kernels)
                self.warnings.append(of_the_first(*of))
        if recording.spans(HostKind.CALL):
            rank = self._rank(kernels, [counted.of(origin.time) for origin in launched])
        provenance = self._provenance(kernels, frame, account)
        if audit.facts:
            provenance[AUDIT] = audit.to_dict()
        if rank is not None:
            provenance[RANK] = rank.to_dict()
        return Kernels(frame, provenance, tuple(self.warnings))

    def _facts(self) -> list[Fact]:
        lost = self.events.untimed
        of = lost + len(self.events.kernels) + len(self.events.moves)
        return [Fact("kernels_without_times", lost, of)] if lost else []

    def _kernels(
        self, recording: Recording, origins: Sequence[Origin]
    ) -> tuple[list[Kernel], list[Origin]]:
        """Return the kernels that have times in launch order, with where they were launched."""
        pairs = [
            (msgspec.structs.replace(kernel, activity=activity), origin)
            for kernel, activity, origin in zip(
                self.events.kernels, recording.activities, origins, strict=False
            )
        ]
        pairs.sort(key=lambda pair: (pair[1].time, pair[0].activity.start))
        return [kernel for kernel, _ in pairs], [origin for _, origin in pairs]

    def _rank(self, kernels: Sequence[Kernel], steps: Sequence[int]) -> RankOfJob | None:
        """Return what the trace tells of its rank; None of a job with one, or without ranks."""
        known = self.trace.facts.get("distributedInfo")
        known = known if isinstance(known, dict) else {}
        rank, size = (whole(known.get(name)) for name in ("rank", "world_size"))
        if rank is None or size is None or not 0 <= rank < size or size < 2:
            return None
        collectives = (
            Collective(step, kernel.collective, kernel.group, kernel.activity.length_us)
            for kernel, step in zip(kernels, steps, strict=True)
            if kernel.collective and step >= 0 and kernel.activity.length_us > 0
        )
        return RankOfJob(rank, size, tuple(collectives))

    def _note_origins(self, recording: Recording, origins: Sequence[Origin], steps: Steps) -> None:
        """Say what layers are, and where they rest on less than an API call."""
        named = recording.spans(HostKind.RANGE, HostKind.MODULE)
        if all(span in steps.marks for span in named) and any(
            origin.operator for origin in origins
        ):
            self.warnings.append(BY_OPERATOR)
        lost = sum(origin.call is None for origin in origins)
        if lost and any(origin.path for origin in origins):
            self.warnings.append(
                f"{count(lost, 'kernel has', 'kernels have')} no API call in the trace. Their "
                "ranges are those at their start on the GPU, which may be later than the launch."
            )

    def _nothing(self) -> InputError:
        held = [f"{many} of {name[:40]}" for name, many in self.events.categories.most_common(5)]
        msg = f"this trace{' of an MTIA' if self._of_mtia else ''} holds no kernels"
        found, cure = ", ".join(held) or "no timed events", _RECORD
        _, audit = audited(self.events.recording(), self._facts())
        if audit.facts:
            found, cure = audit.facts[0].words, audit.facts[0].cure
        return InputError(msg, where=self.trace.where, found=found, cure=cure)

    def _launches(self, kernels: Sequence[Kernel]) -> pd.DataFrame:
        moves = self.events.moves
        activities = [kernel.activity for kernel in kernels]
        spans = _spans(activities)
        stream = np.array([activity.stream for activity in activities], dtype=np.int64)
        if self.events.categories["cuda"]:
            self.warnings.append(
                "This trace was made of an export of Nsight Systems. It has names and times only; "
                "the .sqlite file has sizes and NVTX ranges too."
            )
        if self.events.waits:
            self.warnings.append(
                f"{count(self.events.waits, 'entry', 'entries')} of the device's queues wait for "
                "others: that is no work of the device."
            )
        known = self._devices([activity.device for activity in activities])
        columns: dict[str, Any] = {
            "kernel": [activity.name for activity in activities],
            "grid": [kernel.grid for kernel in kernels],
            "block": [kernel.block for kernel in kernels],
            "device": [name for name, _ in known],
            "compute_capability": [capability for _, capability in known],
            **timed_columns(spans, stream, "torch", _spans(moves)),
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
        listed = self._properties().items()
        devices = {device: _name_and_capability(entry) for device, entry in listed}
        if self._of_mtia:
            devices = {
                key: (f"{_MTIA} {name or ''}".strip(), None) for key, (name, _) in devices.items()
            }
        kinds = set(devices.values())
        alike = next(iter(kinds)) if len(kinds) == 1 else (_MTIA if self._of_mtia else None, None)
        calls = (span.name for span in self.events.host if span.kind is HostKind.CALL)
        if alike[0] is None and any(name.startswith("hip") for name in calls):
            alike = AMD_GPU, None  # some releases of ROCm write an empty name
        known = (devices.get(device, alike) for device in numbers)
        return [alike if name is None else (name, capability) for name, capability in known]

    def _properties(self) -> dict[int | None, Mapping[str, Any]]:
        """Return what the trace says of each device, by its number; None where it has none."""
        entries = self.trace.facts.get("deviceProperties")
        held = entries if isinstance(entries, list) else []
        return {whole(entry.get("id")): entry for entry in held if isinstance(entry, dict)}

    def _multiprocessors(self, entry: Mapping[str, Any]) -> float:
        """Return how many multiprocessors a device has; 0 where that is not known."""
        tabulated = chips.chip(*_name_and_capability(entry)).known("multiprocessors", 0.0)
        return float(whole(entry.get("numSms")) or tabulated)

    def _provenance(
        self, kernels: Sequence[Kernel], frame: pd.DataFrame, account: Account | None
    ) -> dict[str, Any]:
        version = self.trace.facts.get("pytorch_version") or self.trace.facts.get("torch_version")
        devices = frame[["device", "compute_capability"]]
        joined = [", ".join(map(str, devices[name].dropna().unique())) or None for name in devices]
        activities = [kernel.activity for kernel in kernels]
        return {
            **self.source.provenance(NAME, "PyTorch profiler"),
            "tool_version": str(version)[:40] if version is not None else None,
            "device": joined[0],
            "compute_capability": joined[1],
            "streams": len({(activity.device, activity.stream) for activity in activities}),
            "kernels_busy": busy_share(_spans(activities)),
            **({} if account is None else {ACCOUNT: account.to_dict()}),
        }


def _name_and_capability(entry: Mapping[str, Any]) -> tuple[str | None, str | None]:
    """Return what a device is called, and its compute capability if it is one of NVIDIA's."""
    name = entry.get("name")
    parts = [whole(entry.get(part)) for part in _CAPABILITY]
    amd = whole(entry.get("warpSize")) == _WAVEFRONT
    text = name if isinstance(name, str) and name else AMD_GPU if amd else None
    amd = amd or vendor(text) == "amd"
    known = all(part is not None for part in parts) and not amd
    return text, ".".join(map(str, parts)) if known else None


def _numbered_path(origin: Origin, steps: Steps) -> tuple[str, ...]:
    """Return the path of a launch with the number of its step, where no range numbers it."""
    step = steps.of(origin.time)
    if len(steps.starts) < 2 or step < 0 or any(map(ITERATION.fullmatch, origin.path)):
        return origin.path
    return (f"step_{step}", *origin.path)


def _spans(activities: Sequence[Activity]) -> Spans:
    rows = [(activity.device, activity.start, activity.end) for activity in activities]
    return Spans.of(rows)


def _bare_steps(trace: Path) -> tuple[float, ...]:
    """Return the steps that `perfml.time_step` wrote beside a trace; none without them."""
    path = trace.with_name(trace.name + BESIDE)
    if not path.is_file():
        return ()
    try:
        times = np.asarray(parse_json(read_document(path))["step_us"], dtype=float)
    except (ValueError, TypeError, KeyError, UnicodeDecodeError):
        times = np.zeros(0)
    if times.ndim != 1 or not times.size or not ((times > 0) & (times < np.inf)).all():
        msg = "no step times of perfml.time_step"
        raise InputError(msg, where=str(path), cure="Time the step again, or remove the file.")
    return tuple(times.tolist())
