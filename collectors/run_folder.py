"""A run's folder: made aside, moved into place whole, never shared by two processes."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from perfml.errors import InputError
from perfml.util.files import cannot_write, write_text

RUN_FILE, LOG_FILE, MANIFEST = "run.json", "log.txt", "manifest.jsonl"
_PARTIAL, _FAILED, _LOCKS = ".partial", ".failed", ".locks"
_TRIES = 1000


def now() -> str:
    """Return the time in UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def finished(out: Path, run_id: str) -> dict[str, Any] | None:
    """Return the manifest of a run that was finished before, or None."""
    path = out / run_id / RUN_FILE
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and found.get("run_id") == run_id else None


@contextlib.contextmanager
def claimed(out: Path, run_id: str) -> Iterator[bool]:
    """Claim a run for this process; gives False if another process is at it.

    The claim ends with the process, however it ends.

    Raises `InputError` if the output folder cannot be written.
    """
    try:
        (out / _LOCKS).mkdir(parents=True, exist_ok=True)
        handle = os.open(out / _LOCKS / run_id, os.O_CREAT | os.O_RDWR, 0o666)
    except OSError as error:
        raise cannot_write(out, error) from error
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
            return
        yield True
    finally:
        os.close(handle)


@contextlib.contextmanager
def building(out: Path, run_id: str) -> Iterator[Path]:
    """Give an empty folder; it becomes the run's folder only if the block succeeds.

    If the block fails, its log is kept under ``.failed`` and the rest is removed.

    Raises `InputError` if the disk is full or the folder cannot be written.
    """
    aside = out / _PARTIAL
    with contextlib.suppress(FileNotFoundError):  # another process may just have removed it
        for left in aside.glob(f"{run_id}.*"):  # of one that was killed: the run is ours now
            shutil.rmtree(left, ignore_errors=True)
    folder = _empty_folder(aside, run_id)
    try:
        yield folder
        final = out / run_id
        if final.exists():  # unfinished: a finished one would not be run again
            shutil.rmtree(final)
        folder.chmod(0o755)
        os.replace(folder, final)
        shutil.rmtree(out / _FAILED / run_id, ignore_errors=True)
    except Exception:
        keep_log(out, run_id, folder / LOG_FILE)
        raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        with contextlib.suppress(OSError):
            aside.rmdir()


def _empty_folder(aside: Path, run_id: str) -> Path:
    """Make a folder in `aside`, which another process may remove while it is empty."""
    for _ in range(_TRIES):
        try:
            aside.mkdir(parents=True, exist_ok=True)
        except FileExistsError:  # pathlib looks a second time, and it may be gone by then
            if aside.exists() and not aside.is_dir():
                raise
            continue
        with contextlib.suppress(FileNotFoundError):
            return Path(tempfile.mkdtemp(prefix=f"{run_id}.", dir=aside))
    msg = "a folder for unfinished runs disappears as soon as it is made"
    raise InputError(msg, where=str(aside), cure="See what removes it.")


def keep_log(out: Path, run_id: str, log: Path) -> None:
    """Keep a failed run's log, as ``.failed/RUN_ID/log.txt``."""
    if not log.is_file():
        return
    target = out / _FAILED / run_id
    with contextlib.suppress(OSError):
        target.mkdir(parents=True, exist_ok=True)
        os.replace(log, target / LOG_FILE)


def failed_log(out: Path, run_id: str) -> Path:
    """Return where a failed run's log lies."""
    return out / _FAILED / run_id / LOG_FILE


def write_json(path: Path, document: dict[str, Any]) -> None:
    """Write a JSON document, whole or not at all."""
    write_text(path, json.dumps(document, indent=1, allow_nan=False) + "\n")


def note(out: Path, entry: dict[str, Any]) -> None:
    """Add a whole line to the manifest, or none; lines of two processes do not mix.

    Raises `OSError` if the disk is full or the folder cannot be written.
    """
    line = (json.dumps({"time": now(), **entry}, allow_nan=False) + "\n").encode()
    handle = os.open(out / MANIFEST, os.O_CREAT | os.O_RDWR | os.O_APPEND, 0o666)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        size = os.fstat(handle).st_size
        if size and os.pread(handle, 1, size - 1) != b"\n":  # of a process that was killed
            line = b"\n" + line
        written = 0
        try:
            written = os.write(handle, line)
        finally:
            if written != len(line):
                os.ftruncate(handle, size)
        if written != len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(out / MANIFEST))
    finally:
        os.close(handle)


def read_object(path: Path) -> dict[str, Any]:
    """Read the JSON object that a workload left.

    Raises `InputError` if there is none.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        msg = "the workload ended normally but left no description"
        raise InputError(msg, where=str(path), found=str(error)[:200]) from error
    if not isinstance(found, dict):
        msg = "the workload's description is no JSON object"
        raise InputError(msg, where=str(path), found=type(found).__name__)
    return found
