"""What a trace recorded of the host and of the devices, whatever tool wrote it.

Times are whole nanoseconds from the first event, as profilers write them. A recording has millions
of spans, so they are structures of msgspec, which are made ten times as fast as dataclasses.
"""

from __future__ import annotations

import functools
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

import msgspec


class HostKind(StrEnum):
    """What a span of the host is."""

    RANGE = "range"
    MODULE = "module"
    OPERATOR = "operator"
    CALL = "call"
    OVERHEAD = "overhead"


class DeviceKind(StrEnum):
    """What an activity of a device is."""

    KERNEL = "kernel"
    COPY = "copy"
    FILL = "fill"


Operands = tuple[float, float, float, float]
"""Over all tensors that an operator was given: elements, their bytes, elements that do not lie row
by row, and the sum of all lengths, which tells shapes of as many elements apart."""
NO_OPERANDS: Operands = (0.0, 0.0, 0.0, 0.0)


class HostSpan(msgspec.Struct, frozen=True, gc=False):
    """A range, module, operator or API call on a thread of the host.

    Attributes
    ----------
    kind, name
        What it is.
    start, end
        Nanoseconds.
    thread
        A number of the thread.
    correlation
        Id of an API call, which the activity that it launches has too.
    sequence
        PyTorch's number of the autograd node that an operator made, or that is run.
    forward_thread
        Of an operator that runs an autograd node: PyTorch's own id of the thread that made the node
        ("Fwd thread id"); 0 of others.
    operands
        What an operator was given (`Operands`); all 0 where nobody recorded shapes.
    """

    kind: HostKind
    name: str
    start: int
    end: int
    thread: int
    correlation: int | None = None
    sequence: int | None = None
    forward_thread: int = 0
    operands: Operands = NO_OPERANDS


_MOVES = {
    "filled": re.compile("memset|fill"),
    "managed": re.compile("unified|uvm"),
    "to_device": re.compile("hto[da]|h2[da]|hosttod|hosttoa"),
    "to_host": re.compile("[da]toh|[da]2h|devicetoh|arraytoh"),
}
"""Where data goes, by letters and digits of what profilers call a copy or fill."""


@functools.lru_cache(maxsize=1 << 12)
def move_kind(name: str) -> str:
    """Return where a copy or fill brings its data: ``copied`` where it stays on the device.

    Examples
    --------
    >>> move_kind("[CUDA memcpy Host-to-Device]"), move_kind("MemcpyD2H"), move_kind("Memset")
    ('to_device', 'to_host', 'filled')
    """
    letters = re.sub("[^a-z0-9]", "", name.lower())
    return next((kind for kind, form in _MOVES.items() if form.search(letters)), "copied")


class Activity(msgspec.Struct, frozen=True, gc=False):
    """A kernel, copy or fill on a device; nanoseconds, 0 for what is not known of its size."""

    kind: DeviceKind
    name: str
    start: int
    end: int
    device: int
    stream: int
    correlation: int | None
    bytes: float = 0.0
    blocks: float = 0.0
    threads: float = 0.0

    @property
    def length_us(self) -> float:
        """How long it took."""
        return (self.end - self.start) / 1e3


@dataclass(frozen=True)
class Recording:
    """Spans of the host, sorted by start with the outer ones first, and activities of devices."""

    host: tuple[HostSpan, ...]
    activities: tuple[Activity, ...]

    @classmethod
    def of(cls, host: Iterable[HostSpan], activities: Iterable[Activity]) -> Recording:
        """Return a recording of events in any order."""
        return cls(tuple(sorted(host, key=lambda span: (span.start, -span.end))), tuple(activities))

    def spans(self, *kinds: HostKind) -> list[HostSpan]:
        """Return the spans of some kinds."""
        return [span for span in self.host if span.kind in kinds]


class Nesting:
    """Which spans of a thread lie around a time.

    Parameters
    ----------
    spans
        Sorted by start, the outer ones first.
    """

    def __init__(self, spans: Sequence[HostSpan]) -> None:
        self._spans: dict[int, list[HostSpan]] = {}
        self._parents: dict[int, list[int]] = {}
        open_spans: dict[int, list[int]] = {}
        for span in spans:
            mine = self._spans.setdefault(span.thread, [])
            stack = open_spans.setdefault(span.thread, [])
            while stack and mine[stack[-1]].end <= span.start:
                stack.pop()
            self._parents.setdefault(span.thread, []).append(stack[-1] if stack else -1)
            stack.append(len(mine))
            mine.append(span)
        self._starts = {
            thread: [span.start for span in mine] for thread, mine in self._spans.items()
        }

    @property
    def threads(self) -> list[int]:
        """The threads that have spans."""
        return list(self._spans)

    def around(self, thread: int | None, time: int) -> list[HostSpan]:
        """Return the spans of a thread that are open at a time, outermost first.

        One that ends when the next one begins does not hold what that one launches.
        """
        if thread is None or thread not in self._spans:
            return []
        mine, parents = self._spans[thread], self._parents[thread]
        place = bisect_right(self._starts[thread], time) - 1
        held = []
        while place >= 0:
            if mine[place].end > time:
                held.append(mine[place])
            place = parents[place]
        return held[::-1]

    def begins_within(self, outer: HostSpan) -> bool:
        """Return whether a span of its thread begins within a span."""
        starts = self._starts.get(outer.thread, [])
        place = bisect_left(starts, outer.start)
        return place < len(starts) and starts[place] < outer.end

    def outermost(self, thread: int) -> list[HostSpan]:
        """Return the spans of a thread that lie in no other one."""
        parents = self._parents.get(thread, [])
        return [self._spans[thread][at] for at, parent in enumerate(parents) if parent < 0]

    def inside(self) -> Iterator[tuple[HostSpan, list[HostSpan]]]:
        """Yield each span with those that lie directly in it, in their order."""
        for thread, spans in self._spans.items():
            held: list[list[HostSpan]] = [[] for _ in spans]
            for at, parent in enumerate(self._parents[thread]):
                if parent >= 0:
                    held[parent].append(spans[at])
            yield from zip(spans, held, strict=True)
