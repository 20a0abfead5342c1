"""Let a request to end unwind like Ctrl-C, so that nothing half-done is left behind."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

ENDING = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))
"""Signals that ask a program to end, beside Ctrl-C's."""


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Turn `ENDING` into `KeyboardInterrupt` within the block.

    A signal that is ignored stays ignored (``nohup`` sets SIGHUP so), and one that somebody else
    handles stays theirs. Only the main thread can do this; in others the block just runs.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        del frame
        raise KeyboardInterrupt(signal.Signals(number).name)

    free = [each for each in ENDING if signal.getsignal(each) is signal.SIG_DFL]
    for each in free:
        signal.signal(each, interrupt)
    try:
        yield
    finally:
        for each in free:
            signal.signal(each, signal.SIG_DFL)


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Put off Ctrl-C and `ENDING` to the end of a block that must not be left half-way.

    Only signals that would raise an exception are put off, so outside the main thread, where none
    does, there is nothing to do. Programs started within the block do not inherit anything.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    held: list[int] = []
    before: dict[int, Callable[[int, FrameType | None], Any]] = {}
    for each in (signal.SIGINT, *ENDING):
        handler = signal.getsignal(each)
        if callable(handler):
            before[each] = handler
            signal.signal(each, lambda number, frame: held.append(number))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if held:
            before[held[0]](held[0], None)
