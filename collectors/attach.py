"""Measure a program that runs already: it was started with the library loaded, and nothing else.

``perfml attach -- COMMAND`` starts it so; ``perfml attach PID`` times its kernels for some seconds,
in one short window of each second (``injected/attach.h``). No counters: they need repeats, and a
server has none.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from collectors import run_folder as folders
from collectors.in_process import keep_times
from collectors.profilers import timing
from collectors.profilers.gpu import gpus
from collectors.profilers.inject import COUNTERS, library, loading
from collectors.profilers.process import ProfilerError, unstartable
from perfml.errors import InputError
from perfml.util.files import temporary_folder

FOLDER = "PERFML_ATTACH_DIR"
"""Variable with the folder in which a process says that it can be measured, and is asked to."""

SHARE = 0.05
"""Of each second, in which kernels are recorded: the default."""
_PATIENCE_S = 30.0
"""For the record after the seconds asked for: it is written when the device has ended its work."""
_POLL_S = 0.1


def meeting_place() -> Path:
    """Return the folder in which processes of this user are asked; made where it is missing."""
    named = os.environ.get(FOLDER)
    folder = Path(named or tempfile.gettempdir()) / (
        "" if named else f"perfml-attach-{os.getuid()}"
    )
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.stat().st_uid != os.getuid():
        msg = "the folder for attaching belongs to somebody else"
        raise InputError(msg, where=str(folder), cure=f"Set {FOLDER} to a folder of your own.")
    return folder


def start(command: Sequence[str]) -> None:
    """Become a program with the library loaded, which waits until it is asked.

    Raises a `ProfilerError` if the library cannot be built, or the program cannot be started.
    """
    variables = {**os.environ, **loading(library(COUNTERS)), FOLDER: str(meeting_place())}
    try:
        os.execvpe(command[0], list(command), variables)  # noqa: S606 - the user's own command
    except OSError as error:
        raise unstartable(command, error) from error


def waiting() -> list[int]:
    """Return the processes that can be measured."""
    found = (int(path.stem) for path in meeting_place().glob("*.ready") if path.stem.isdecimal())
    return sorted(pid for pid in found if Path(f"/proc/{pid}").exists())


def attach(
    pid: int, *, seconds: float = 10.0, share: float = SHARE, out: str | Path = "runs"
) -> Path:
    """Time kernels that a running process launches; return the run's folder.

    `pid` is a process that `start` started, watched for `seconds`. `share` is the part of each
    second, 0 to 1, in which its launches are recorded. The run gets a folder in `out`.

    Raises `InputError` if the share is none. Raises `ProfilerError` if the process was started
    without the library, ends meanwhile, or launched nothing.
    """
    if not 0 < share <= 1:
        msg = "no share of the time"
        raise InputError(msg, where="--share", found=f"{share}", cure="Say 0.05 for 5 %.")
    place = meeting_place()
    if pid not in waiting():
        msg = "this process was not started for attaching"
        others = ", ".join(map(str, waiting())) or "none"
        cure = "Start it so: perfml attach -- COMMAND"
        raise ProfilerError(msg, found=f"{pid}; those that were: {others}", cure=cure)
    gpu, started = gpus()[0], folders.now()
    asked = place / f"{pid}.asked"
    with temporary_folder("attach") as folder:
        try:
            with asked.open("x", encoding="utf-8") as request:
                request.write(f"{folder}\n{seconds}\n{share}\n")
        except FileExistsError as error:
            msg = "somebody is attached to this process already"
            cure = f"Wait, or remove {asked}."
            raise ProfilerError(msg, found=str(pid), cure=cure) from error
        end = time.monotonic() + seconds + _PATIENCE_S
        while asked.exists():
            if not Path(f"/proc/{pid}").exists() or time.monotonic() > end:
                asked.unlink(missing_ok=True)
                msg = "the process did not finish its record"
                cure = "It may have ended, or hang in a kernel."
                raise ProfilerError(msg, found=str(pid), cure=cure)
            time.sleep(_POLL_S)
        record = timing.read_activity(folder / f"{pid}.tsv")
    program = _command_of(pid)
    name = Path(program[0]).name if program else str(pid)
    facts = {"started": started, "program": program}
    share = round(min(record.seen_s / seconds, 1.0), 4)
    seen = {"seen_share": share, "windows": record.windows}
    return keep_times(record.timed, name, Path(out), gpu, seconds, facts, seen=seen)


def _command_of(pid: int) -> list[str]:
    words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    return [word.decode("utf-8", "replace") for word in words if word]
