"""Run a foreign program to its end or its limit, and leave none of its children behind."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from perfml.errors import PerfmlError
from perfml.util.files import temporary_folder, undisturbed

_POLL_S = 0.05
_GRACE_S = 3.0
_TAIL_BYTES = 256 * 1024
_MARK = "PERFML_COMMAND"
"""Variable that tells the descendants of a command apart, however they were started."""
LOG_LIMIT = 256 * 1024 * 1024
"""A program that prints more than this many bytes is ended: it would fill the disk."""


class ProfilerError(PerfmlError):
    """A profiler or the program under it did not do what was asked."""


@dataclass(frozen=True)
class Finished:
    """How a command ended."""

    command: tuple[str, ...]  # the argument list
    returncode: int  # the exit status; negative for a signal. Meaningless if a limit was hit.
    output: str  # the end of what it printed, standard output and error together (256 KiB at most)
    seconds: float  # wall-clock time
    # timed_out, flooded: whether it was ended for running, or printing, beyond its limit
    timed_out: bool = False
    flooded: bool = False


def run(
    command: Sequence[str],  # the argument list; no shell sees it
    *,
    log: Path,  # what was printed goes here, after a line with the command
    timeout_s: float,  # after this many seconds the command and all its descendants are killed
    env: Mapping[str, str] | None = None,  # variables on top of this process's environment
    cwd: Path | None = None,  # working directory
    # Called with each new piece of output, so that progress can be followed
    watch: Callable[[str], None] | None = None,
    output: Path | None = None,  # where standard output goes alone; errors stay in the log
    meanwhile: Callable[[], None] | None = None,  # called again and again while it runs
) -> Finished:
    """Run a command, with its output appended to `log`.

    Raises `ProfilerError` if the program cannot be started, or the log cannot be written. A
    `KeyboardInterrupt` is passed on after the command was killed.
    """
    started = time.monotonic()
    mark = uuid.uuid4().hex
    with contextlib.ExitStack() as files:
        try:
            sink = files.enter_context(log.open("ab", buffering=0))
            source = files.enter_context(log.open("rb"))
            line = f"$ {subprocess.list2cmdline(list(command))}\n".encode("utf-8", "replace")
            if sink.write(line) != len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(log))
            begin = sink.tell()
            source.seek(begin)
            alone = files.enter_context(output.open("wb")) if output is not None else None
        except OSError as error:
            raise _unwritable(error, log) from error
        process: subprocess.Popen[bytes] | None = None
        timed_out = flooded = False
        try:
            with undisturbed():
                # a session of its own: one signal reaches the whole group, and a Ctrl-C meant for
                # perfml does not reach the program before perfml has decided what to do
                try:
                    process = subprocess.Popen(  # noqa: S603
                        list(command),
                        stdin=subprocess.DEVNULL,
                        stdout=sink if alone is None else alone,
                        stderr=subprocess.STDOUT if alone is None else sink,
                        env={**os.environ, **(env or {}), _MARK: mark},
                        cwd=cwd,
                        start_new_session=True,
                    )
                except OSError as error:
                    raise unstartable(command, error) from error
            while process.poll() is None:
                size = os.fstat(source.fileno()).st_size
                timed_out = time.monotonic() - started > timeout_s
                flooded = size - begin > LOG_LIMIT
                if timed_out or flooded:
                    break
                _follow(source, size, watch)
                if meanwhile is not None:
                    meanwhile()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(_POLL_S)
        finally:
            # also after a normal end: a child left in the background would go on using the GPU
            if process is not None:
                _end(process, mark)
        if flooded:
            # what it wrote until it was dead is of no use, and the disk may be nearly full
            os.truncate(log, begin + LOG_LIMIT)
        size = os.fstat(source.fileno()).st_size
        _follow(source, size, watch)
        source.seek(max(begin, size - _TAIL_BYTES))
        printed = source.read().decode("utf-8", "replace")
    seconds = time.monotonic() - started
    return Finished(tuple(command), process.returncode, printed, seconds, timed_out, flooded)


def unstartable(command: Sequence[str], error: OSError) -> ProfilerError:
    """Return the error of a program that the system does not start."""
    msg = "the program cannot be started"
    cure = "Check its path and that it is executable."
    return ProfilerError(msg, where=command[0], found=error.strerror or str(error), cure=cure)


def _end(process: subprocess.Popen[bytes], mark: str) -> None:
    """Kill what is left of a command, however often Ctrl-C is pressed meanwhile."""
    interrupted: KeyboardInterrupt | None = None
    ended = False
    while not ended:
        try:
            with undisturbed():
                kill_tree(process, mark)
                ended = True
        except KeyboardInterrupt as error:
            interrupted = error
    if interrupted is not None:
        raise interrupted


def ask(command: Sequence[str], *, timeout_s: float) -> Finished:
    """Run a short command for what it prints; it ends with its children, like any other.

    Raises a `ProfilerError` if it cannot be started.
    """
    with temporary_folder("ask") as folder:
        return run(command, log=folder / "log", timeout_s=timeout_s)


def _unwritable(error: OSError, log: Path) -> ProfilerError:
    msg = "the output of the program cannot be kept"
    found = error.strerror or str(error)
    cure = "Free some space, or name another folder."
    return ProfilerError(msg, where=str(error.filename or log), found=found, cure=cure)


def kill_tree(process: subprocess.Popen[bytes], mark: str = "") -> None:
    """Kill what is left of a process, its session, and descendants that left the session.

    Daemons, whose parent is gone, are found by `mark`, the value of `_MARK` in their environment.
    """
    family = descendants(process.pid) | _marked(mark)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGTERM)
    if process.poll() is None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_S)
    family |= descendants(process.pid) | _marked(mark)
    for pid in family:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    end = time.monotonic() + _GRACE_S
    while family & _running() and time.monotonic() < end:
        time.sleep(_POLL_S)


def _marked(mark: str) -> set[int]:
    """Return the processes, but this one, that have a mark in their environment."""
    if not mark:
        return set()
    variable = f"{_MARK}={mark}".encode()
    found = set()
    for entry in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if variable in entry.read_bytes().split(b"\0"):
                found.add(int(entry.parent.name))
    return found - {os.getpid()}


def descendants(pid: int) -> set[int]:
    """Return the processes that descend from `pid` or share its session, as ``/proc`` tells."""
    children: dict[int, list[int]] = {}
    found: set[int] = set()
    for number, _, parent, session in _processes():
        children.setdefault(parent, []).append(number)
        if session == pid and number != pid:
            found.add(number)
    waiting = [pid, *found]
    while waiting:
        for child in children.get(waiting.pop(), []):
            if child not in found:
                found.add(child)
                waiting.append(child)
    return found


def _running() -> set[int]:
    """Return all processes but those that have ended and wait to be noticed."""
    return {number for number, state, _, _ in _processes() if state != "Z"}


def _processes() -> Iterator[tuple[int, str, int, int]]:
    """Give number, state, parent and session of every process."""
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            # the name in parentheses may hold blanks and parentheses
            fields = entry.read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        yield int(entry.parent.name), fields[0], int(fields[1]), int(fields[3])


def last_lines(text: str, count: int = 5, *, without: str = "==") -> str:
    """Return the last lines a program printed, leaving out those that start with `without`."""
    lines = [line.rstrip() for line in text.splitlines()]
    own = [line for line in lines if line and not line.startswith(without)]
    return " | ".join(line[:200] for line in own[-count:])


def signal_of(code: int) -> str:
    """Name the signal behind an exit status, a shell's (128 and more) too; empty if there is none.

    >>> signal_of(-6), signal_of(137), signal_of(3)
    (' (SIGABRT)', ' (SIGKILL)', '')
    """
    number = -code if code < 0 else code - 128
    known = number in set(signal.Signals)
    return f" ({signal.Signals(number).name})" if known else ""


def _follow(source: BinaryIO, size: int, watch: Callable[[str], None] | None) -> None:
    """Read on to `size`, never to the end: a program may write faster than we can read."""
    if watch is None:
        return
    new = source.read(max(0, size - source.tell()))
    if new:
        watch(new.decode("utf-8", "replace"))
