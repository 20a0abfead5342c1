"""Read the ``.xplane.pb`` that ``jax.profiler.trace`` and TensorFlow's profiler write.

It is a protocol buffer, tsl/profiler/protobuf/xplane.proto: a space of planes (one a device), a
plane of lines (one a stream), a line of events, whose names and statistics stand once in the plane.
Of those the kernels of GPUs are read, as from the Chrome trace beside it (`perfml.readers.
jax_trace`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from perfml.errors import InputError
from perfml.readers.jax_trace import DEVICE, STREAM, XlaKernel, xla_kernels
from perfml.readers.options import ReadOptions
from perfml.readers.source import Source
from perfml.tables import Kernels

NAME = "xplane"

# the name of a plane is its second field: a byte that says so, its length, and the text
_PLANE = re.compile(rb"\A\x0a[\x00-\xff]{1,64}?\x12[\x01-\x7f](?:/host:|/device:|Task Env)")
_SIZES = {1: 8, 5: 4}
"""Bytes of a field by its kind in the encoding, protobuf.dev/programming-guides/encoding."""
_LATEST = 1 << 62
"""Nanoseconds that no clock reaches."""
_CURE = "Copy the file again, or give the .trace.json.gz beside it."


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
        for plane in _all(_message(memoryview(source.data)), 1):
            held.add(_text(plane, 2))
            kernels += _kernels(plane)
    except ValueError as error:
        msg = "the XPlane is cut or damaged"
        found = str(error)[:80]
        raise InputError(msg, where=str(source.path), found=found, cure=_CURE) from error
    return xla_kernels(source, NAME, kernels, held)


def _kernels(plane: _Message) -> Iterator[XlaKernel]:
    """Yield what a device did: events of its streams, and those that compute an operation."""
    device = DEVICE.match(_text(plane, 2))
    if device is None:
        return
    # maps, of which an entry is a message with a key and a value
    names, metadata = (
        {_whole(each, 1): next(_all(each, 2), {}) for each in _all(plane, number)}
        for number in (5, 4)
    )
    texts = {key: _text(each, 2) for key, each in names.items()}
    for line in _all(plane, 3):
        stream = STREAM.match(_text(line, 2))
        for event in _all(line, 4):
            about = metadata.get(_whole(event, 1), {})
            said = {
                texts.get(_whole(each, 1), ""): _text(each, 5) or texts.get(_whole(each, 7), "")
                for each in (*_all(about, 5), *_all(event, 4))
            }
            start = round((_whole(line, 3) * 1000 + _whole(event, 2)) / 1000)
            end = start + round(_whole(event, 3) / 1000)
            if end >= _LATEST:
                msg = f"an event from {start} to {end} ns"
                raise ValueError(msg)
            operation = said.get("hlo_op", "")
            if operation or stream is not None:
                yield XlaKernel(
                    int(device[1]),
                    int(stream[1]) if stream is not None else 0,
                    start,
                    end,
                    _text(about, 2) or operation,
                    operation,
                    said.get("name") or said.get("tf_op", "").partition(":")[0],
                    said.get("kernel_details", ""),
                )


class _Field(NamedTuple):
    """A field of a message: a whole number, or bytes that hold a text or another message."""

    whole: int
    data: memoryview


_Message = dict[int, list[_Field]]
"""The fields of a message by their numbers, in its order."""


def _message(data: memoryview) -> _Message:
    """Return the fields of a message; raise `ValueError` if it is cut, or none."""
    found: _Message = {}
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        kind, size, whole = key & 7, 0, 0
        if kind == 0:
            whole, at = _varint(data, at)
        elif kind == 2:
            size, at = _varint(data, at)
        elif kind in _SIZES:
            size = _SIZES[kind]
        else:
            msg = f"a field of unknown kind {kind}"
            raise ValueError(msg)
        if size > len(data) - at:
            msg = f"a field of {size} bytes, of which {len(data) - at} are there"
            raise ValueError(msg)
        found.setdefault(key >> 3, []).append(_Field(whole, data[at : at + size]))
        at += size
    return found


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    """Return a number of 7 bits a byte, the lowest first, and where it ends."""
    found = 0
    for place, byte in enumerate(data[at : at + 10]):
        found |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return found, at + place + 1
    msg = "a number without end"
    raise ValueError(msg)


def _all(message: _Message, number: int) -> Iterator[_Message]:
    """Yield the messages in a field."""
    return (_message(field.data) for field in message.get(number, ()))


def _whole(message: _Message, number: int) -> int:
    return message[number][-1].whole if number in message else 0


def _text(message: _Message, number: int) -> str:
    data = message[number][-1].data if number in message else b""
    return bytes(data).decode("utf-8", "replace")
