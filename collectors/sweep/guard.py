"""Watch over one worker: hold its GPU, and when the worker is gone end what it left running.

Run as a script of its own, ``python guard.py LOCK MARK SECONDS``, with standard input
connected to a pipe that only the worker holds open. However the worker ends, ``kill -9``
included, the pipe closes; then every process that carries MARK in its environment is killed, and
only when they are gone is the GPU given free for the next worker.

The script uses the standard library alone and is started with ``-S -E``, so that it is there in
milliseconds.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import sys
import time
from pathlib import Path

_POLL_S = 0.1
_GONE_S = 20.0
READY, BUSY = "ready", "busy"


def marked(mark: bytes) -> set[int]:
    """Return the processes, other than this one, that were started with `mark` set."""
    found = set()
    for entry in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if mark in entry.read_bytes().split(b"\0"):
                found.add(int(entry.parent.name))
    return found - {os.getpid()}


def _running(pids: set[int]) -> set[int]:
    """Return those that still run: a killed process may wait long for its parent to notice."""
    alive = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            state = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2]
            if state.split()[0] not in "ZX":
                alive.add(pid)
    return alive


def end_all(mark: bytes) -> None:
    """Kill every process that carries the mark, until none is left."""
    end = time.monotonic() + _GONE_S
    while time.monotonic() < end:
        # looked up anew each time: one that was just started is found the next time round
        left = _running(marked(mark))
        if not left:
            return
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(_POLL_S)


def _locked(handle: int, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except OSError:
            if time.monotonic() >= end:
                return False
            time.sleep(_POLL_S)


def main(lock: str, mark: str, seconds: float) -> int:
    """Hold the lock until the pipe closes, then end what is left; 1 if the lock is not free."""
    # a Ctrl-C is for the driver, which ends the worker, which ends this
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    handle = os.open(lock, os.O_CREAT | os.O_RDWR, 0o600)
    free = _locked(handle, seconds)
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.write((READY if free else BUSY) + "\n")
        sys.stdout.flush()
    if not free:
        return 1
    while os.read(0, 4096):
        pass
    end_all(mark.encode())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2], float(sys.argv[3])))
