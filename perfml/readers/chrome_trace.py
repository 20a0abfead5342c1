"""The events of a Chrome trace, read in parts: memory holds one part of the file at a time.

A part ends between two events. Whether a comma in the text is one between events, the parser itself
tells: what comes before it is a list of whole events, or it is no list.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from perfml.errors import InputError
from perfml.readers.json_text import paired, parsed_text
from perfml.readers.source import Source

_LONGEST = 1 << 28
"""Bytes that one event may have, and what comes before or after the events."""
_TAIL, _TRIES = 1 << 16, 8
_BETWEEN = re.compile(rb"\}\s*,(?=\s*\{)")
_EVENTS = re.compile(rb'"traceEvents"\s*:\s*(?=\[)')
_AFTER = re.compile(r"trailing characters \(byte (\d+)\)")
_UNREAD = msgspec.Raw()


class Arguments(msgspec.Struct, gc=False):
    """What readers ask of an event's ``args``; anything else there is passed over."""

    correlation: Any = None
    device: Any = None
    stream: Any = None
    grid: Any = None
    block: Any = None
    registers: Any = msgspec.field(default=None, name="registers per thread")
    shared: Any = msgspec.field(default=None, name="shared memory")
    bytes: Any = None
    size: Any = None
    direction: Any = None
    sequence: Any = msgspec.field(default=None, name="Sequence number")
    sequence_1_8: Any = msgspec.field(default=None, name="sequence number")
    thread: Any = msgspec.field(default=None, name="Fwd thread id")
    thread_1_8: Any = msgspec.field(default=None, name="fwd thread id")
    # of a whole trace these are few texts, which are long
    dims: msgspec.Raw = msgspec.field(default=_UNREAD, name="Input Dims")
    strides: msgspec.Raw = msgspec.field(default=_UNREAD, name="Input Strides")
    types: msgspec.Raw = msgspec.field(default=_UNREAD, name="Input type")
    name: Any = None
    hlo_op: Any = None
    details: Any = msgspec.field(default=None, name="kernel_details")
    collective: Any = msgspec.field(default=None, name="Collective name")
    group: Any = msgspec.field(default=None, name="Process Group Name")
    group_ranks: Any = msgspec.field(default=None, name="Process Group Ranks")


class Event(msgspec.Struct, gc=False):
    """An event as it stands in the trace; what is of another type than it should be is kept."""

    ph: Any = None
    cat: Any = None
    name: Any = None
    ts: Any = None
    dur: Any = 0
    pid: Any = None
    tid: Any = None
    args: Arguments | list[Any] | str | float | bool | None = None

    @property
    def arguments(self) -> Arguments:
        """The arguments; empty ones where the event has none."""
        return self.args if isinstance(self.args, Arguments) else _NONE


_NONE = Arguments()
_DECODER = msgspec.json.Decoder(list[Event | list[Any] | str | float | bool | None])


class ChromeTrace:
    """The events of a trace, and the other entries of its document.

    Parameters
    ----------
    source
        The file: an object with ``traceEvents``, or a list of events.
    cure
        How to record a trace that has some.

    Attributes
    ----------
    facts
        What the document holds beside events; known when all events were read.
    """

    def __init__(self, source: Source, cure: str) -> None:
        self.source, self.cure = source, cure
        self.where = str(source.path)
        self.facts: dict[str, Any] = {}
        self._before, self._lines = b"", 0

    def events(self) -> Iterator[Event]:
        """Yield the events that are JSON objects.

        Raises `InputError` if the file is no whole JSON document, or has no list of events.
        """
        parts = self.source.text_parts()
        self._before, text = self._begin(parts)
        while True:
            part = next(parts, None)
            if part is not None:
                text += part
                if len(text) < _TAIL:
                    continue
            events, text, over = self._split(text, last=part is None)
            yield from events
            if over or part is None:
                break
            if len(text) > _LONGEST:
                raise self._damaged(text, "an event without end")
        for part in parts:
            text += part
            if len(text) > _LONGEST:
                raise self._damaged(text, "too much behind the events")
        if self._before or text.strip():
            found = parsed_text(self._before + b"[]" + text, self.where, self._lines)
            self.facts = found if isinstance(found, dict) else {}

    def _begin(self, parts: Iterator[bytes]) -> tuple[bytes, bytes]:
        """Return what comes before the list of events, and the rest as far as it was read."""
        text = b""
        for part in parts:
            text += part
            if text.lstrip()[:1] == b"[":
                return b"", text.lstrip()[1:]
            for match in _EVENTS.finditer(text):
                try:
                    msgspec.json.decode(text[: match.end()] + b"null}", type=dict[str, msgspec.Raw])
                except (msgspec.DecodeError, UnicodeError, RecursionError):
                    continue  # it stands within a text, or deeper down
                return text[: match.end()], text[match.end() + 1 :]
            if len(text) > _LONGEST:
                break
        document = parsed_text(text, self.where)
        held = document.get("traceEvents") if isinstance(document, dict) else document
        msg = "this trace has no list of events"
        raise InputError(msg, where=self.where, found=type(held).__name__, cure=self.cure)

    def _split(self, text: bytes, *, last: bool) -> tuple[list[Event], bytes, bool]:
        """Return the whole events of a text, the rest of it, and whether their list ends in it."""
        tail = max(0, len(text) - _TAIL)
        said = "no event in it"
        ends = [match.start() + 1 for match in _BETWEEN.finditer(text, tail)][: -_TRIES - 1 : -1]
        for end in [len(text)] if last else ends:
            whole = b"".join((b"[", text[:end], b"" if last else b"]"))
            try:
                return self._events(whole), text[end:].lstrip()[1:], last
            except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
                after = _AFTER.search(str(error))
                if after is not None:
                    at = whole.rfind(b"]", 0, int(after.group(1)) - 1) + 1
                    return self._last_events(whole[:at], text), text[at - 1 :], True
                said = str(error)
        if last:
            raise self._damaged(text, said)
        return [], text, False

    def _last_events(self, whole: bytes, text: bytes) -> list[Event]:
        """Return the events of the list that ends within a text."""
        try:
            return self._events(whole)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise self._damaged(text, str(error)) from error

    def _events(self, whole: bytes) -> list[Event]:
        try:
            found = _DECODER.decode(whole)
        except (msgspec.DecodeError, UnicodeError) as error:
            if _AFTER.search(str(error)):
                raise  # all events are readable
            repaired = paired(whole)
            if repaired == whole:
                raise
            whole, found = repaired, _DECODER.decode(repaired)
        self._lines += whole.count(b"\n")
        return [event for event in found if isinstance(event, Event)]

    def _damaged(self, text: bytes, said: str) -> InputError:
        """Return the error for a text that is no list of events; raise what `json` says of it."""
        parsed_text(self._before + b"[" + text[:_LONGEST], self.where, self._lines)
        msg = "no usable JSON document"
        return InputError(msg, where=self.where, found=said[:120], cure=self.cure)
