"""The events of a PyTorch trace as spans of the host and activities of devices."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from perfml.account.origins import NODE
from perfml.account.recording import (
    Activity,
    DeviceKind,
    HostKind,
    HostSpan,
    Nesting,
    Recording,
)
from perfml.account.steps import PROFILER_STEP
from perfml.errors import InputError
from perfml.readers.json_text import number, whole

Event = dict[str, Any]

_CALLS = ("cuda_runtime", "cuda_driver", "runtime", "driver", "hip_runtime")
_COPIES = ("gpu_memcpy", "memcpy")
_FILLS = ("gpu_memset", "memset")
_RANGE, _FRAME, _OPERATORS = "user_annotation", "python_function", ("cpu_op", "operator")
_OVERHEAD = "overhead"
_MODULE = re.compile(r"nn\.Module: (.+)")
_OPERATOR_NAME = re.compile(r"::|Backward\d*\b|^nccl:")
"""What operators are called, of C++ and of autograd; ranges of Python are called otherwise."""


class Events:
    """The timed events of a trace.

    Parameters
    ----------
    events
        Of the Chrome trace, any.
    where
        The file, for errors.
    """

    def __init__(self, events: Iterable[Any], where: str) -> None:
        self.where = where
        self.timed = [e for e in events if isinstance(e, dict) and e.get("ph") == "X"]
        self._origin = min(
            (time for event in self.timed if (time := number(event.get("ts"))) is not None),
            default=0.0,
        )
        self._threads: dict[tuple[str, str], int] = {}
        self._by_category: dict[str, list[Event]] = {}
        for event in self.timed:
            self._by_category.setdefault(str(event.get("cat", "")).lower(), []).append(event)

    def of(self, *categories: str) -> list[Event]:
        """Return the events of some categories; PyTorch 1.8 wrote them with capitals."""
        return [event for name in categories for event in self._by_category.get(name, ())]

    def span(self, event: Event) -> tuple[int, int]:
        """Return when an event began and ended, in nanoseconds from the first one.

        Raises `InputError` if it has no time, or ends before it begins.
        """
        start, duration = number(event.get("ts")), number(event.get("dur", 0))
        # nanoseconds from the first event are whole numbers of 64 bits: 292 years
        if (
            start is None
            or duration is None
            or not 0 <= duration < 1e15
            or abs(start - self._origin) >= 1e15
        ):
            msg = "an event of the trace has no usable time"
            found = f"{str(event.get('name'))[:60]}: ts {event.get('ts')!r:.40}, dur "
            found += f"{event.get('dur')!r:.40}"
            raise InputError(msg, where=self.where, found=found, cure="Record it again.")
        first = round((start - self._origin) * 1e3)
        return first, first + round(duration * 1e3)

    def recording(self, kernels: Sequence[Activity]) -> Recording:
        """Return what the host did, and these kernels with the copies and fills."""
        moves = [self._moved(event, DeviceKind.COPY) for event in self.of(*_COPIES)]
        moves += [self._moved(event, DeviceKind.FILL) for event in self.of(*_FILLS)]
        return Recording.of(self._host(), (*kernels, *moves))

    def _moved(self, event: Event, kind: DeviceKind) -> Activity:
        arguments = arguments_of(event)
        return Activity(
            kind,
            str(event.get("name")),
            *self.span(event),
            device_of(event),
            stream_of(event),
            whole(arguments.get("correlation")),
            number(arguments.get("bytes")) or 0.0,
        )

    def _host(self) -> list[HostSpan]:
        spans = [self._of_host(HostKind.CALL, event) for event in self.of(*_CALLS)]
        spans += [self._of_host(HostKind.OVERHEAD, event) for event in self.of(_OVERHEAD)]
        spans += [self._of_host(HostKind.RANGE, event) for event in self.of(_RANGE)]
        for event in self.of(_FRAME):
            module = _MODULE.fullmatch(str(event.get("name")))
            if module is not None:  # else a line of Python, of which there are millions
                spans.append(self._of_host(HostKind.MODULE, event, module.group(1)))
        operators = [self._of_host(HostKind.OPERATOR, event) for event in self.of(*_OPERATORS)]
        return [*spans, *_ranges_apart(operators)]

    def _of_host(self, kind: HostKind, event: Event, name: str | None = None) -> HostSpan:
        arguments = arguments_of(event)
        start, end = self.span(event)
        key = (str(event.get("pid")), str(event.get("tid")))
        name = str(event.get("name")) if name is None else name
        sequence = whole(_either(arguments, "Sequence number", "sequence number"))
        thread = whole(_either(arguments, "Fwd thread id", "fwd thread id"))
        return HostSpan(
            kind,
            name,
            start,
            end,
            self._threads.setdefault(key, len(self._threads)),
            whole(arguments.get("correlation")) if kind is HostKind.CALL else None,
            sequence if sequence is not None and sequence >= 0 else None,
            thread if thread is not None and sequence is not None else 0,
        )


def _ranges_apart(operators: Sequence[HostSpan]) -> list[HostSpan]:
    """Return operators, with the ranges among them as ranges.

    PyTorch 1.8 and 1.9 wrote both in one category, and later ones ``Optimizer.step`` too. A range
    is not called like an operator, lies in none, and takes no part in autograd.
    """
    ordered = sorted(operators, key=lambda span: (span.start, -span.end))
    named = [span for span in ordered if _OPERATOR_NAME.search(span.name)]
    nesting = Nesting(named)
    found = list(named)
    for span in ordered:
        if _OPERATOR_NAME.search(span.name):
            continue
        apart = (
            span.sequence is None
            and not span.name.startswith(NODE)
            and not nesting.around(span.thread, span.start)
            and (PROFILER_STEP.fullmatch(span.name) or _holds(nesting, span))
        )
        kind = HostKind.RANGE if apart else HostKind.OPERATOR
        found.append(replace(span, kind=kind))
    return found


def _holds(nesting: Nesting, span: HostSpan) -> bool:
    """Return whether a span holds operators of its thread, or is one that PyTorch marks."""
    return span.name.startswith(("Optimizer.", "enumerate(DataLoader)")) or nesting.begins_within(
        span
    )


def arguments_of(event: Event) -> Mapping[str, Any]:
    """Return the arguments of an event; none where it has none."""
    arguments = event.get("args")
    return arguments if isinstance(arguments, dict) else {}


def device_of(event: Event) -> int:
    """Return the number of the device on which an event happened."""
    device = whole(arguments_of(event).get("device"))
    return device if device is not None else whole(event.get("pid")) or 0


def stream_of(event: Event) -> int:
    """Return the stream on which an event happened."""
    stream = whole(arguments_of(event).get("stream"))
    return stream if stream is not None else whole(event.get("tid")) or 0


def _either(arguments: Mapping[str, Any], *names: str) -> Any:
    return next((arguments[name] for name in names if name in arguments), None)
