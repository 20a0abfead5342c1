"""Let a request to end unwind like Ctrl-C, so that nothing half-done is left behind."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

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
    """Hold back Ctrl-C and `ENDING` within a block that must not be left half-way."""
    held = {signal.SIGINT, *ENDING}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, held)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
