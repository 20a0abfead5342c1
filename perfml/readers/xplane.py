"""Read the ``.xplane.pb`` that ``jax.profiler.trace`` and TensorFlow's profiler write.

It is a protocol buffer, tsl/profiler/protobuf/xplane.proto: a space of planes (one a device), a
plane of lines (one a stream), a line of events, whose names and statistics stand once in the plane.
Of those the kernels of GPUs are read, as from the Chrome trace beside it (`perfml.readers.
jax_trace`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from perfml.errors import InputError
from perfml.readers.jax_trace import DEVICE, STREAM, XlaKernel, xla_kernels
from perfml.readers.options import ReadOptions
from perfml.readers.source import Source
from perfml.tables import Kernels

NAME = "xplane"

# the name of a plane is its second field: a byte that says so, its length, and the text
_PLANE = re.compile(rb"\A\x0a[\x00-\xff]{1,64}?\x12[\x01-\x7f](?:/host:|/device:|Task Env)")
_VARINT, _EIGHT, _BYTES, _FOUR = 0, 1, 2, 5
_LATEST = 1 << 62
"""Nanoseconds that no clock reaches."""
_CURE = "Copy the file again, or give the .trace.json.gz beside it."

Field = int | memoryview


def recognises(source: Source) -> bool:
    """Tell whether the file begins with a plane of XLA's profiler."""
    return _PLANE.match(source.head) is not None


def read(source: Source, options: ReadOptions | None = None) -> Kernels:
    """Read the kernels of GPUs; metrics are absent from the table.

    Raises `InputError` if the file is cut or damaged, or holds no kernels of a GPU.
    """
    del options
    kernels: list[XlaKernel] = []
    held: set[str] = set()
    try:
        for number, value in _fields(memoryview(source.data)):
            if number == 1:
                plane = _plane(_bytes(value))
                held.add(plane.name)
                kernels += _kernels(plane)
    except (ValueError, TypeError) as error:
        msg = "the XPlane is cut or damaged"
        found = str(error)[:80]
        raise InputError(msg, where=str(source.path), found=found, cure=_CURE) from error
    return xla_kernels(source, NAME, kernels, held)


@dataclass
class _Plane:
    """A plane: its lines as they are stored, and names of events and statistics by their ids."""

    name: str = ""
    lines: list[memoryview] = field(default_factory=list)
    events: dict[int, memoryview] = field(default_factory=dict)
    statistics: dict[int, str] = field(default_factory=dict)


def _plane(data: memoryview) -> _Plane:
    plane, named = _Plane(), []
    for number, value in _fields(data):
        if number == 2:
            plane.name = _text(value)
        elif number == 3:
            plane.lines.append(_bytes(value))
        elif number == 4:
            entry = dict(_fields(_bytes(value)))
            plane.events[_whole(entry.get(1, 0))] = _bytes(entry.get(2, _NOTHING))
        elif number == 5:
            named.append(dict(_fields(_bytes(value))))
    for entry in named:
        metadata = dict(_fields(_bytes(entry.get(2, _NOTHING))))
        plane.statistics[_whole(entry.get(1, 0))] = _text(metadata.get(2, _NOTHING))
    return plane


def _kernels(plane: _Plane) -> Iterator[XlaKernel]:
    """Yield the kernels of a plane: events that compute an operation of HLO."""
    device = DEVICE.match(plane.name)
    for line in plane.lines if device is not None else ():
        parts = list(_fields(line))
        facts = dict(parts)
        stream = STREAM.match(_text(facts.get(2, _NOTHING)))
        begins = _whole(facts.get(3, 0)) * 1000
        for _, value in (part for part in parts if part[0] == 4):
            event = list(_fields(_bytes(value)))
            own = dict(event)
            metadata = list(_fields(plane.events.get(_whole(own.get(1, 0)), _NOTHING)))
            stats = [_bytes(each) for number, each in metadata if number == 5]
            stats += [_bytes(each) for number, each in event if number == 4]
            said = dict(_statistic(plane, each) for each in stats)
            if "hlo_op" not in said or device is None:
                continue
            start = round((begins + _whole(own.get(2, 0))) / 1000)
            end = start + round(_whole(own.get(3, 0)) / 1000)
            if not 0 <= start <= end < _LATEST:
                msg = f"an event from {start} to {end} ns"
                raise ValueError(msg)
            yield XlaKernel(
                int(device[1]),
                int(stream[1]) if stream is not None else 0,
                start,
                end,
                _text(dict(metadata).get(2, _NOTHING)) or said["hlo_op"],
                said["hlo_op"],
                said.get("name", ""),
                said.get("kernel_details", ""),
            )


def _statistic(plane: _Plane, data: memoryview) -> tuple[str, str]:
    """Return the name of a statistic, and its text; empty of a number."""
    facts = dict(_fields(data))
    shared = plane.statistics.get(_whole(facts.get(7, -1)), "")
    return plane.statistics.get(_whole(facts.get(1, 0)), ""), _text(
        facts.get(5, _NOTHING)
    ) or shared


_NOTHING = memoryview(b"")


def _fields(data: memoryview) -> Iterator[tuple[int, Field]]:
    """Yield the number and the value of each field of a message.

    The encoding is that of protobuf.dev/programming-guides/encoding. Raises `ValueError` if the
    message is cut or no message.
    """
    at, end = 0, len(data)
    value: Field
    while at < end:
        key, at = _varint(data, at)
        kind = key & 7
        if kind == _VARINT:
            value, at = _varint(data, at)
        elif kind in (_EIGHT, _BYTES, _FOUR):
            size = 8 if kind == _EIGHT else 4
            if kind == _BYTES:
                size, at = _varint(data, at)
            if size > end - at:
                msg = f"a field of {size} bytes, of which {end - at} are there"
                raise ValueError(msg)
            value, at = data[at : at + size], at + size
        else:
            msg = f"a field of unknown kind {kind}"
            raise ValueError(msg)
        yield key >> 3, value


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    """Return a number of 7 bits a byte, the lowest first, and where it ends."""
    found = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            break
        byte = data[at]
        at += 1
        found |= (byte & 0x7F) << shift
        if byte < 0x80:
            return found, at
    msg = "a number without end"
    raise ValueError(msg)


def _bytes(value: Field) -> memoryview:
    if isinstance(value, int):
        msg = "a number where a message belongs"
        raise TypeError(msg)
    return value


def _whole(value: Field) -> int:
    if not isinstance(value, int):
        msg = "a message where a number belongs"
        raise TypeError(msg)
    return value


def _text(value: Field) -> str:
    return bytes(_bytes(value)).decode("utf-8", "replace")
