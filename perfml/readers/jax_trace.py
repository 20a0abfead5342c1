"""Read the ``.xplane.pb`` of JAX's and TensorFlow's profiler, or the Chrome trace beside it.

An XPlane is a protocol buffer, tsl/profiler/protobuf/xplane.proto: planes (one a device) of lines
(one a stream) of events, whose names and statistics stand once in the plane. XLA says of each
kernel which operation of the program it computes (``jit(step)/mlp/dot_general``): that is its
layer. Launches of the host are not tied to kernels there, and there are no counters.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from perfml.account.account import ACCOUNT
from perfml.account.build import account_without_host, kernels_of, moves_of
from perfml.account.device_time import Spans, busy_share
from perfml.chips.lookup import AMD_GPU
from perfml.errors import InputError
from perfml.readers.chrome_trace import ChromeTrace, Event
from perfml.readers.frame import kernels_frame
from perfml.readers.source import ReadOptions, Source
from perfml.readers.timeline import timed_columns
from perfml.readers.torch_events import Clock
from perfml.tables import Kernels

NAME = "jax-trace"

_DEVICE = re.compile(r"/device:GPU:(\d{1,9})\b")
_STREAM = re.compile(r"Stream #(\d{1,9})\b")
"""What processes and threads of a trace are called."""
_DETAILS = re.compile(
    r"\b(?:(regs|static_shared|dynamic_shared):(\d{1,9})|(grid|block):(\d{1,10}(?:,\d{1,10}){2}))\b"
)
_PLANE = re.compile(rb"\A\x0a[\x00-\xff]{1,64}?\x12[\x01-\x7f](?:/host:|/device:|Task Env)")
"""The name of a plane is its second field: a byte that says so, its length, and the text."""
_MOVE = re.compile(r"mem(?:cpy|set|alloc|free)", re.IGNORECASE)
_LONGEST = 1000
"""Letters of a path that are kept."""
_RECORD = "Record with jax.profiler.trace(FOLDER), and give the .trace.json.gz that is in it."


@dataclass(frozen=True, slots=True)
class _XlaKernel:
    """A kernel, copy or fill of a stream; times in nanoseconds.

    `operation` is that of HLO which it computes, `path` where that stands in the program, its parts
    between slashes, and `details` are as in ``regs:31 static_shared:0 grid:512,1,1 block:128,1,1``.
    """

    device: int
    stream: int
    start: int
    end: int
    name: str
    operation: str
    path: str
    details: str

    @property
    def layer(self) -> tuple[str, ...]:
        """The path in parts, or the operation where there is none; no part without both."""
        return tuple(part for part in (self.path or self.operation)[:_LONGEST].split("/") if part)


def recognises(source: Source) -> bool:
    """Tell whether the beginning looks like a plane or a Chrome trace of XLA's profiler."""
    if _PLANE.match(source.head):
        return True
    head = source.head_text()
    return head.lstrip()[:1] == "{" and '"traceEvents"' in head and '"/host:CPU"' in head


def read(source: Source, options: ReadOptions | None = None) -> Kernels:
    """Read a trace of JAX's profiler; metrics are absent from the table.

    Raises `InputError` if it is cut or damaged, or holds no kernels of a GPU.
    """
    del options
    if not _PLANE.match(source.head):
        return _table(source, *_of_events(source))
    held: set[str] = set()
    try:
        planes = [_fields(data) for data in _fields(memoryview(source.data)).get(1, ())]
        held.update(_text(plane, 2) for plane in planes)
        amd = any("AMD" in _vendors(plane) for plane in planes)
        return _table(
            source, [kernel for plane in planes for kernel in _of_plane(plane)], held, amd
        )
    except (ValueError, TypeError, LookupError) as error:
        msg, cure = "the XPlane is cut or damaged", "Copy it again, or give the .trace.json.gz."
        raise InputError(msg, where=str(source.path), found=str(error)[:80], cure=cure) from error


def _vendors(plane: _Fields) -> set[str]:
    """Return what a device says of its vendor."""
    named = (_fields(entry[2][-1]) for entry in map(_fields, plane.get(5, ())))
    keys = {_number(name, 1) for name in named if _text(name, 2) == "device_vendor"}
    return {_text(stat, 5) for stat in map(_fields, plane.get(6, ())) if _number(stat, 1) in keys}


def _of_plane(plane: _Fields) -> Iterator[_XlaKernel]:
    """Yield what a device did: events of its streams, and those that compute an operation."""
    device = _DEVICE.match(_text(plane, 2))
    if device is None:
        return
    # maps, of which an entry is a message with a key and a value
    names, metadata = (
        {_number(entry, 1): _fields(entry[2][-1]) for entry in map(_fields, plane.get(at, ()))}
        for at in (5, 4)
    )
    texts = {key: _text(name, 2) for key, name in names.items()}
    for line in map(_fields, plane.get(3, ())):
        stream = _STREAM.match(_text(line, 2))
        for event in map(_fields, line.get(4, ())):
            about = metadata.get(_number(event, 1), {})
            said = {
                texts.get(_number(stat, 1), ""): _text(stat, 5) or texts.get(_number(stat, 7), "")
                for stat in map(_fields, (*about.get(5, ()), *event.get(4, ())))
            }
            start = _number(line, 3) + _number(event, 2) // 1000
            end = start + _number(event, 3) // 1000
            if end >= _LATEST:
                msg = f"an event from {start} to {end} ns"
                raise ValueError(msg)
            operation = said.get("hlo_op", "")
            if operation or stream is not None:
                yield _XlaKernel(
                    int(device[1]),
                    int(stream[1]) if stream is not None else 0,
                    start,
                    end,
                    _text(about, 2) or operation,
                    operation,
                    said.get("name") or said.get("tf_op", "").partition(":")[0],
                    said.get("kernel_details", ""),
                )


_Fields = dict[int, list[Any]]
"""Numbers and bytes of the fields of a message, by the fields' numbers."""
_LATEST = 1 << 62
"""Nanoseconds that no clock reaches."""


def _fields(data: memoryview) -> _Fields:
    """Return the fields of a message; raise `ValueError` if it is cut, or none."""
    found: _Fields = {}
    value: Any
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        value, at = _varint(data, at) if key & 7 in (0, 2) else ({1: 8, 5: 4}[key & 7], at)
        if key & 7:  # bytes, of which that is the number
            value, at = data[at : at + value], at + value
        if at > len(data):
            msg = f"a field that ends {at - len(data)} bytes behind it"
            raise ValueError(msg)
        found.setdefault(key >> 3, []).append(value)
    return found


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    """Return a number of 7 bits a byte, the lowest first, and where it ends."""
    number = 0
    for place in range(10):
        number |= (data[at + place] & 0x7F) << (7 * place)
        if data[at + place] < 0x80:
            return number, at + place + 1
    msg = "a number without end"
    raise ValueError(msg)


def _number(message: _Fields, field: int) -> int:
    return int(message.get(field, (0,))[-1])


def _text(message: _Fields, field: int) -> str:
    return bytes(memoryview(message.get(field, (b"",))[-1])).decode("utf-8", "replace")


def _of_events(source: Source) -> tuple[list[_XlaKernel], set[str]]:
    """Return what devices did in a Chrome trace, and what it names."""
    trace = ChromeTrace(source, _RECORD)
    devices: dict[str, int] = {}
    streams: dict[tuple[str, str], int] = {}
    names: set[str] = set()
    timed: list[Event] = []
    for event in trace.events():
        name = str(event.arguments.name or "")
        if event.ph == "M":
            names.add(name)
            if event.name == "process_name" and (match := _DEVICE.match(name)):
                devices[str(event.pid)] = int(match[1])
            elif event.name == "thread_name" and (match := _STREAM.match(name)):
                streams[str(event.pid), str(event.tid)] = int(match[1])
        elif event.ph == "X":
            timed.append(event)
    clock = Clock(trace.where)
    ran = [
        _XlaKernel(
            devices[str(event.pid)],
            streams.get((str(event.pid), str(event.tid)), 0),
            *clock.span(event),
            str(event.name or event.arguments.hlo_op),
            str(event.arguments.hlo_op or ""),
            str(event.arguments.name or ""),
            str(event.arguments.details or ""),
        )
        for event in timed
        if str(event.pid) in devices
        and (event.arguments.hlo_op or (str(event.pid), str(event.tid)) in streams)
    ]
    return ran, names


def _table(
    source: Source, events: Sequence[_XlaKernel], held: set[str], amd: bool = False
) -> Kernels:
    """Return the table of kernels among the events of streams.

    Those of XLA compute an operation. Without any that does, as in TensorFlow's own traces, kernels
    are what is no copy. Raises `InputError` if there are none; `held` is what the file has instead.
    """
    moves = [event for event in events if not event.operation and _MOVE.match(event.name)]
    kernels = [event for event in events if event.operation]
    kernels = kernels or [event for event in events if not _MOVE.match(event.name)]
    ran = sorted(kernels, key=lambda kernel: (kernel.start, kernel.end))
    if not ran:
        msg = "this trace of JAX holds no kernels of a GPU"
        found = ", ".join(sorted(held - {""})) or "no device"
        raise InputError(msg, where=str(source.path), found=found[:200], cure=_RECORD)
    numbers = [(row.device, row.start, row.end, row.stream) for row in ran]
    device, start, end, stream = np.array(numbers, dtype=np.int64).T
    spans = Spans(device, start, end).after(start[0])
    copies = Spans.of([(move.device, move.start, move.end) for move in moves]).after(start[0])
    details = [
        {number or sizes: one or three for number, one, sizes, three in _DETAILS.findall(name)}
        for name in (row.details for row in ran)
    ]
    launches = pd.DataFrame(
        {
            "kernel": [row.name for row in ran],
            "grid": [_shape(detail.get("grid")) for detail in details],
            "block": [_shape(detail.get("block")) for detail in details],
            **timed_columns(spans, stream, "jax", copies),
            "registers_per_thread": [float(detail.get("regs", "nan")) for detail in details],
            "shared_memory_per_block": [
                float(detail.get("static_shared", "nan"))
                + float(detail.get("dynamic_shared", "nan"))
                for detail in details
            ],
        }
    )
    provenance = {
        **source.provenance(NAME, "JAX profiler"),
        "streams": len({(row.device, row.stream) for row in ran}),
        "kernels_busy": busy_share(spans),
    }
    if amd:
        launches["device"] = provenance["device"] = AMD_GPU
    paths = [row.layer for row in ran]
    done = kernels_of([row.name for row in ran], spans, stream)
    done += moves_of([move.name for move in moves], copies)
    places = [*paths, *[()] * len(moves)]
    if (account := account_without_host(done, places)) is not None:
        provenance[ACCOUNT] = replace(account, amd=amd).to_dict()
    return Kernels(kernels_frame(launches, paths, instances=_instances(ran)), provenance)


def _shape(text: str | None) -> str | None:
    return None if text is None else f"({', '.join(text.split(','))})"


def _instances(kernels: Sequence[_XlaKernel]) -> list[int]:
    """Number the passes through a layer: one ends with its path, or where an operation returns."""
    found: list[int] = []
    seen: set[str] = set()
    before: tuple[str, ...] | None = None
    for kernel in kernels:
        anew = kernel.layer != before or kernel.operation in seen
        seen, before = {kernel.operation, *(() if anew else seen)}, kernel.layer
        found.append((found[-1] if found else 0) + anew)
    return found
