"""The events of a PyTorch trace as spans of the host and activities of devices."""

from __future__ import annotations

import functools
import itertools
import math
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from perfml.account.collectives import collective_kind
from perfml.account.origins import NODE
from perfml.account.recording import (
    NO_OPERANDS,
    Activity,
    DeviceKind,
    HostKind,
    HostSpan,
    Nesting,
    Operands,
    Recording,
)
from perfml.account.steps import PROFILER_STEP
from perfml.errors import InputError
from perfml.kernel_names import kernel_traits
from perfml.readers.chrome_trace import Arguments, ChromeTrace, Event
from perfml.readers.json_text import number, whole
from perfml.util.ranges import joined_names

_KINDS: dict[str, HostKind | DeviceKind] = {
    **dict.fromkeys(("cuda_runtime", "cuda_driver", "runtime", "driver"), HostKind.CALL),
    **dict.fromkeys(("hip_runtime", "mtia_runtime", "xpu_runtime", "xpu_driver"), HostKind.CALL),
    **dict.fromkeys(("privateuse1_runtime", "privateuse1_driver"), HostKind.CALL),
    "overhead": HostKind.OVERHEAD,
    "user_annotation": HostKind.RANGE,
    "python_function": HostKind.MODULE,
    **dict.fromkeys(("cpu_op", "operator"), HostKind.OPERATOR),
    **dict.fromkeys(("kernel", "mtia_ccp_events"), DeviceKind.KERNEL),
    **dict.fromkeys(("gpu_memcpy", "memcpy"), DeviceKind.COPY),
    **dict.fromkeys(("gpu_memset", "memset"), DeviceKind.FILL),
}
"""By category: those of Kineto's ActivityType.cpp, and those of PyTorch 1.8."""
_OF_NSYS = "cuda"
"""Category of kernels in Chrome traces that nsys2json and its relatives make of an export of Nsight
Systems: process "Device 0", thread "Stream 7", and no arguments."""
_DMA = "dma_request"
"""What Meta's MTIA calls its copies, in the category of its kernels."""
_WAITS = re.compile(
    r"(event|notify|stream|queue|semaphore|fence)[ _]?"
    r"(wait|record|reset|signal|sync(hroni[sz]e)?)",
    re.IGNORECASE,
)
"""What accelerators call an entry of a queue that waits for another one, or tells it to go on: no
work of the device. A kernel's name has arguments or a library's prefix."""
_NUMBERED = re.compile(r"\b(?:Device|Stream) (\d{1,9})$")
_MODULE = re.compile(r"nn\.Module: (.+)")
_OPERATOR_NAME = re.compile(r"::|Backward\d*\b|^nccl:")
"""What operators are called, of C++ and of autograd; ranges of Python are called otherwise."""


class Kernel(msgspec.Struct, frozen=True, gc=False):
    """One kernel of a trace, with how it was launched; NaN and None where that is not known.

    `collective` is which one it does, and `group` among which ranks; empty of other kernels.
    """

    activity: Activity
    grid: str | None
    block: str | None
    threads: float
    registers: float
    shared: float
    collective: str = ""
    group: str = ""


class Clock:
    """When events happened: nanoseconds from the first one in the file."""

    def __init__(self, where: str) -> None:
        self.where = where
        self._origin: float | None = None

    def span(self, event: Event) -> tuple[int, int]:
        """Return when an event began and ended.

        Raises `InputError` if it has no time, or ends before it begins.
        """
        start, duration = event.ts, event.dur
        if type(start) is not float or type(duration) is not float:
            start, duration = number(start), number(duration)
        if self._origin is None:
            self._origin = start
        # nanoseconds from the first event are whole numbers of 64 bits: 292 years
        if (
            start is None
            or duration is None
            or self._origin is None
            or not 0 <= duration < 1e15
            or not abs(start - self._origin) < 1e15
        ):
            msg = "an event of the trace has no usable time"
            found = f"{str(event.name)[:60]}: ts {event.ts!r:.40}, dur {event.dur!r:.40}"
            raise InputError(msg, where=self.where, found=found, cure="Record it again.")
        first = round((start - self._origin) * 1e3)
        return first, first + round(duration * 1e3)


class Events:
    """What a trace recorded of the host and the devices.

    Attributes
    ----------
    kernels, moves
        Kernels, and copies and fills, in the order of the file.
    waits
        How many entries of a device's queues only wait for others.
    untimed
        How many kernels, copies and fills there are of which the profiler wrote no time.
    host
        Spans of the host.
    categories
        How many timed events there are of each category.
    joined
        What names of ranges with serial numbers were joined to, as sentences.
    """

    def __init__(self, trace: ChromeTrace) -> None:
        self.where = trace.where
        self.kernels: list[Kernel] = []
        self.waits = self.untimed = 0
        self.moves: list[Activity] = []
        self.host: list[HostSpan] = []
        self.categories: Counter[str] = Counter()
        self._operators: list[HostSpan] = []
        self._clock = Clock(trace.where)
        self._threads: dict[str, int] = {}
        # one text and one shape for all launches of a kernel
        self._names: dict[str, str] = {}
        self._shapes: dict[str, tuple[str | None, float]] = {}
        self._communicates: dict[str, bool] = {}
        for event in trace.events():
            if event.ph == "X":
                self._add(event)
        self.host += _ranges_apart(self._operators)
        ranges = {span.name for span in self.host if span.kind is HostKind.RANGE}
        common, self.joined = joined_names(n for n in ranges if not PROFILER_STEP.fullmatch(n))
        if common:
            self.host = [
                msgspec.structs.replace(span, name=common[span.name])
                if span.kind is HostKind.RANGE and span.name in common
                else span
                for span in self.host
            ]

    def recording(self) -> Recording:
        """Return what host and devices did."""
        return Recording.of(self.host, (*(kernel.activity for kernel in self.kernels), *self.moves))

    def _add(self, event: Event) -> None:
        category = event.cat if type(event.cat) is str else str(event.cat or "?")
        self.categories[category] += 1
        # PyTorch 1.8 wrote capitals
        kind = _KINDS.get(category) or _KINDS.get(category.lower())
        if kind is DeviceKind.KERNEL and _WAITS.fullmatch(str(event.name)):
            self.waits += 1
            return
        if kind is DeviceKind.KERNEL and event.name == _DMA:
            name = f"{_DMA} {event.arguments.direction or ''}"
            self.moves.append(self._activity(DeviceKind.COPY, event, name=name))
            return
        if category == _OF_NSYS and _NUMBERED.search(str(event.pid)):
            kind = DeviceKind.KERNEL
        if kind is HostKind.OPERATOR:
            self._operators.append(self._span(kind, event))
        elif kind is HostKind.MODULE:
            module = _MODULE.fullmatch(str(event.name))
            if module is not None:  # else a line of Python, of which there are millions
                self.host.append(self._span(kind, event, module.group(1)))
        elif isinstance(kind, HostKind):
            self.host.append(self._span(kind, event))
        elif kind is not None and not (event.ts or event.dur):
            self.untimed += 1  # CUPTI writes 0 where its buffer had no room
        elif kind is DeviceKind.KERNEL:
            self.kernels.append(self._kernel(event))
        elif kind is not None:
            self.moves.append(self._activity(kind, event))

    def _activity(self, kind: DeviceKind, event: Event, *sizes: float, name: str = "") -> Activity:
        arguments, name = event.arguments, name or str(event.name)
        device, stream = whole(arguments.device), whole(arguments.stream)
        return Activity(
            kind,
            self._names.setdefault(name, name),
            *self._clock.span(event),
            device if device is not None else _number_of(event.pid),
            stream if stream is not None else _number_of(event.tid),
            whole(arguments.correlation),
            number(arguments.bytes or arguments.size) or 0.0,
            *sizes,
        )

    def _kernel(self, event: Event) -> Kernel:
        name = event.name
        if not isinstance(name, str) or not name.strip():
            msg = "a kernel of the trace has no name"
            raise InputError(msg, where=self.where, found=repr(name)[:60], cure="Record it again.")
        arguments = event.arguments
        grid, blocks = self._shape(arguments.grid)
        block, threads = self._shape(arguments.block)
        threads *= blocks
        known = 0.0 if math.isnan(threads) else threads
        return Kernel(
            self._activity(DeviceKind.KERNEL, event, blocks, known),
            grid,
            block,
            threads,
            _or_nan(number(arguments.registers)),
            _or_nan(number(arguments.shared)),
            *self._collective(name, arguments),
        )

    def _collective(self, kernel: str, arguments: Arguments) -> tuple[str, str]:
        """Return which collective a kernel does, and its group: Kineto's name of it, and ranks."""
        if kernel not in self._communicates:
            self._communicates[kernel] = kernel_traits(kernel).does == "communication"
        if not self._communicates[kernel]:
            return "", ""
        known = [each for each in (arguments.group, arguments.group_ranks) if each is not None]
        return collective_kind(str(arguments.collective or kernel)), " ".join(map(str, known))

    def _shape(self, value: Any) -> tuple[str | None, float]:
        """Return a grid or a block as a table has it, and its size."""
        key = str(value)
        if key not in self._shapes:
            sizes = _sizes(value)
            text = f"({', '.join(map(str, sizes))})" if sizes else None
            self._shapes[key] = text, math.prod(map(float, sizes)) if sizes else math.nan
        return self._shapes[key]

    def _span(self, kind: HostKind, event: Event, name: str | None = None) -> HostSpan:
        arguments = event.arguments
        start, end = self._clock.span(event)
        thread = self._threads.get(key := f"{event.pid} {event.tid}")
        if thread is None:
            thread = self._threads[key] = len(self._threads)
        if name is None:
            name = event.name if type(event.name) is str else str(event.name)
        name = self._names.setdefault(name, name)
        if kind is HostKind.CALL:
            return HostSpan(kind, name, start, end, thread, whole(arguments.correlation))
        sequence = arguments.sequence if arguments.sequence_1_8 is None else arguments.sequence_1_8
        texts = map(bytes, (arguments.dims, arguments.types, arguments.strides))
        operands = operands_of(*texts)
        if (sequence := whole(sequence)) is None:
            return HostSpan(kind, name, start, end, thread, operands=operands)
        forward = arguments.thread if arguments.thread_1_8 is None else arguments.thread_1_8
        made = sequence if sequence >= 0 else None
        number = whole(forward) or 0
        return HostSpan(kind, name, start, end, thread, None, made, number, operands)


_BYTES = {
    **dict.fromkeys(("double", "long int", "long", "c10::complex<float>"), 8),
    **dict.fromkeys(("float", "int", "c10::complex<c10::Half>"), 4),
    **dict.fromkeys(("c10::Half", "c10::BFloat16", "short int", "short"), 2),
    **dict.fromkeys(("signed char", "unsigned char", "char", "bool"), 1),
    "c10::complex<double>": 16,
}
"""Bytes of an element of the types that Kineto writes as `Input type`."""


@functools.lru_cache(maxsize=1 << 12)
def operands_of(*texts: bytes) -> Operands:
    """Return what an operator was given, as Kineto recorded it with ``record_shapes=True``.

    The texts are its ``Input Dims``, ``Input type`` and ``Input Strides``, as the trace has them.
    Of types and strides that are not known, bytes and elements off the row are none.
    """
    if not texts[0]:
        return NO_OPERANDS
    sums = [0.0] * 4
    dims, types, strides = map(_listed, texts)
    for given, type_, steps in itertools.zip_longest(dims, types, strides):
        if not isinstance(given, list) or not given:
            continue
        lists = isinstance(given[0], list)
        for at, shape in enumerate(given if lists else [given]):
            step = steps[at] if lists and isinstance(steps, list) and at < len(steps) else steps
            if isinstance(shape, list) and shape and all(type(n) is int for n in shape):
                elements = float(math.prod(map(float, shape)))
                size = _BYTES.get(type_, 0) if isinstance(type_, str) else 0
                parts = (1.0, size, not _row_by_row(shape, step), 0.0)
                sums = [a + elements * part for a, part in zip(sums, parts, strict=True)]
                sums[3] += float(sum(shape))
    return (sums[0], sums[1], sums[2], sums[3])


def _listed(text: bytes) -> list[Any]:
    """Return a list from its JSON text; an empty one of anything else."""
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return []  # also where the trace has no such text
    return value if isinstance(value, list) else []


def _row_by_row(shape: list[int], steps: Any) -> bool:
    """Return whether the elements of a tensor lie row by row without holes; unknown is so."""
    if not isinstance(steps, list) or len(steps) != len(shape):
        return True
    place = 1
    for length, step in zip(reversed(shape), reversed(steps), strict=True):
        if length > 1 and step != place:
            return False
        place *= length
    return True


def _number_of(track: Any) -> int:
    """Return the number of a device or stream, from what the trace calls its process or thread."""
    named = _NUMBERED.search(track) if isinstance(track, str) else None
    return int(named[1]) if named else whole(track) or 0


def _sizes(value: Any) -> tuple[int, ...] | None:
    """Return three sizes, from a list or from text such as ``[16, 1, 1]``."""
    parts = value.strip("[]() ").split(",") if isinstance(value, str) else value
    if not isinstance(parts, list) or len(parts) != 3:
        return None
    sizes = tuple(size for part in parts if (size := whole(part)) is not None and size >= 0)
    return sizes if len(sizes) == 3 else None


def _or_nan(value: float | None) -> float:
    return math.nan if value is None or value < 0 else value


def _ranges_apart(operators: Sequence[HostSpan]) -> list[HostSpan]:
    """Return operators, with the ranges among them as ranges.

    PyTorch 1.8 and 1.9 wrote both in one category, and later ones ``Optimizer.step`` too. A range
    is not called like an operator, lies in none, and takes no part in autograd.
    """
    ordered = sorted(operators, key=lambda span: (span.start, -span.end))
    named = [span for span in ordered if _is_operator(span.name)]
    nesting = Nesting(named)
    found = list(named)
    for span in ordered:
        if _is_operator(span.name):
            continue
        apart = (
            span.sequence is None
            and not span.name.startswith(NODE)
            and not nesting.around(span.thread, span.start)
            and (
                PROFILER_STEP.fullmatch(span.name)
                # what PyTorch marks, or what holds operators of its thread
                or span.name.startswith(("Optimizer.", "enumerate(DataLoader)"))
                or nesting.begins_within(span)
            )
        )
        kind = HostKind.RANGE if apart else HostKind.OPERATOR
        found.append(msgspec.structs.replace(span, kind=kind))
    return found


@functools.lru_cache(maxsize=1 << 12)
def _is_operator(name: str) -> bool:
    return _OPERATOR_NAME.search(name) is not None
