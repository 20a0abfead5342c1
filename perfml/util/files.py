"""Files, without pandas: small ones from outside, whole results, digests.

A request to end unwinds like Ctrl-C, so that nothing half-done is left behind.
"""

from __future__ import annotations

import contextlib
import glob
import hashlib
import json
import os
import signal
import tempfile
import threading
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

from perfml.errors import InputError, did_you_mean

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


try:
    import fcntl
except ImportError:  # Windows: nothing is removed there
    fcntl = None  # type: ignore[assignment]

LARGEST_DOCUMENT = 256 << 20
"""Bytes of the largest JSON or TOML document that is read."""


_MOST_BESIDE = 1000
"""Files of a folder that are looked at for a name like one that does not exist."""


def require_file(path: Path) -> None:
    """Raise `InputError` unless `path` is a regular file that can be read."""
    try:
        path.stat()
    except (OSError, ValueError) as error:
        if isinstance(error, FileNotFoundError):
            msg = "no such file"
            cure = did_you_mean(str(path), files_like(path), "Check the path.")
            raise InputError(msg, where=str(path), cure=cure) from error
        msg = "cannot look at this file"
        said = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise InputError(msg, where=str(path), found=said, cure="Check the path.") from error
    if not path.is_file():
        kind = "a directory" if path.is_dir() else "a special file"
        msg = "not a regular file"
        raise InputError(msg, where=str(path), found=kind, cure="Name a file.")
    if not os.access(path, os.R_OK):
        msg = "no permission to read this file"
        raise InputError(msg, where=str(path), cure="Check its mode and owner.")


def files_like(path: Path) -> list[str]:
    """Return what is called nearly as a path that does not exist, and lies in its folder.

    Endings do not count: one report has little in common with another.
    """
    import difflib

    try:
        found = sorted(entry.name for entry in path.parent.iterdir())[:_MOST_BESIDE]
    except (OSError, ValueError):
        return []
    near = difflib.get_close_matches(path.stem, {Path(name).stem for name in found}, n=3)
    beside = [name for name in found if Path(name).stem in near]
    return [str(path.parent / name) if str(path.parent) != "." else name for name in beside]


NOT_PARQUET = (".csv", ".tsv", ".txt", ".json", ".xlsx")
"""Endings that promise another format than Parquet."""


def require_parquet_name(out: Path, cure: str) -> None:
    """Raise `InputError` if a table's name promises another format than it will have."""
    if out.suffix.lower() in NOT_PARQUET:
        msg = f"this table is written as Parquet, and {out.suffix} promises something else"
        raise InputError(msg, where="--out", found=out.name, cure=cure)


def require_other_file(out: Path, inputs: Iterable[Path]) -> None:
    """Raise `InputError` if a command would write over one of its own inputs."""
    for path in inputs:
        if path.exists() and out.exists() and out.samefile(path):
            msg = "the output would replace an input"
            cure = "Name another file with --out."
            raise InputError(msg, where="--out", found=str(out), cure=cure)


def read_document(path: Path) -> bytes:
    """Return the bytes of a small file.

    Raises `InputError` if it is no regular file, cannot be read, or is too large for a document.
    """
    require_file(path)
    try:
        with path.open("rb") as stream:
            data = stream.read(LARGEST_DOCUMENT + 1)
    except OSError as error:
        msg = "the file cannot be read"
        raise InputError(
            msg, where=str(path), found=error.strerror or str(error), cure="Copy it again."
        ) from error
    if len(data) > LARGEST_DOCUMENT:
        msg = f"larger than {LARGEST_DOCUMENT >> 20} MiB"
        raise InputError(msg, where=str(path), cure="Check that it is the right file.")
    return data


def parse_json(data: bytes) -> Any:
    """Parse JSON from outside.

    Raises `ValueError` if it is no JSON: not text, an absurd number, or nested beyond reason.
    """
    try:
        return json.loads(data)
    except RecursionError:
        msg = "nested too deeply"
        raise ValueError(msg) from None


_SURE_S = 60
"""Seconds after which a temporary file that nobody holds is one that a killed process left."""


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Give a temporary name beside `path`; rename it to `path` only if the block succeeds.

    What killed processes left of the same result goes. Raises `InputError` if the folder does not
    exist or cannot be written.
    """
    path = _target(Path(path))
    prefix = f".{path.name[:80]}."
    _remove_abandoned(path.parent, prefix)
    try:
        handle, name = tempfile.mkstemp(prefix=prefix, suffix=".tmp", dir=path.parent)
    except OSError as error:
        cure = "Name a folder that exists and that you may write to."
        raise cannot_write(path, error, cure) from error
    temporary = Path(name)
    _hold(handle)
    try:
        yield temporary
        # mkstemp makes private files; a result should be as readable as any other new file.
        mask = os.umask(0)
        os.umask(mask)
        temporary.chmod(0o666 & ~mask)
        os.replace(temporary, path)
    except OSError as error:
        raise cannot_write(path, error, "Free some space, or name another place.") from error
    finally:
        os.close(handle)
        temporary.unlink(missing_ok=True)


def _hold(handle: int) -> bool:
    """Lock a file until it is closed, by the end of the process at last; say if nobody else has."""
    if fcntl is None:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # held, or a file system without locks
        return False
    return True


def _remove_abandoned(folder: Path, prefix: str) -> None:
    """Remove temporary files that no living process holds."""
    for left in folder.glob(f"{glob.escape(prefix)}*.tmp"):
        with contextlib.suppress(OSError):
            if time.time() - left.stat().st_mtime < _SURE_S:
                continue
            handle = os.open(left, os.O_RDWR | os.O_NOFOLLOW)
            try:
                if _hold(handle):
                    left.unlink()
            finally:
                os.close(handle)


@contextmanager
def temporary_folder(what: str = "files", beside: Path | None = None) -> Iterator[Path]:
    """Give a folder that goes with the block, in `beside` or where TMPDIR says.

    Raises `InputError` if it cannot be made.
    """
    with contextlib.ExitStack() as stack:
        try:
            made = tempfile.TemporaryDirectory(prefix=f"perfml-{what}-", dir=beside)
            folder = Path(stack.enter_context(made))
        except OSError as error:
            cure = "Free some space, or set TMPDIR to a folder that has it."
            where = beside or Path(os.environ.get("TMPDIR") or ".")
            raise cannot_write(where, error, cure) from error
        yield folder


def write_text(path: Path, text: str) -> None:
    """Write a file, whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def require_place(out: Path | None) -> None:
    """Raise `InputError` where a result could not be written, before the work for it is done."""
    if out is None:
        return
    path = _target(out)
    if path.exists():
        return
    try:
        handle, name = tempfile.mkstemp(prefix=".perfml.", suffix=".tmp", dir=path.parent)
    except OSError as error:
        cure = "Name a folder that exists and that you may write to."
        raise cannot_write(path, error, cure) from error
    os.close(handle)
    Path(name).unlink(missing_ok=True)


def cannot_write(
    path: Path, error: OSError, cure: str = "Name a folder that you may write to."
) -> InputError:
    """Return the error for a place where the system refuses to write."""
    found = error.strerror or str(error)
    return InputError("cannot write here", where=str(path), found=found, cure=cure)


def _target(path: Path) -> Path:
    """Return what a path stands for: a link is written through, a device never replaced."""
    try:
        path = path.resolve() if path.is_symlink() else path
        kind = "" if not path.exists() or path.is_file() else "a device or pipe"
        kind = "a directory" if path.is_dir() else kind
    except (OSError, RuntimeError) as error:
        kind = str(error)
    if kind:
        msg = "cannot write a file here"
        raise InputError(msg, where=str(path), found=kind, cure="Name a file, new or existing.")
    return path


def sha256_of(data: bytes | memoryview) -> str:
    """Return the SHA-256 of bytes.

    Examples
    --------
    >>> sha256_of(b"")[:8]
    'e3b0c442'
    """
    return hashlib.sha256(data).hexdigest()


def sha256_of_file(path: Path) -> str:
    """Return the SHA-256 of a file as it lies on disk, read in parts.

    Raises `OSError` if it cannot be read.
    """
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


Row = TypeVar("Row")


def read_rows(package: str, name: str) -> dict[str, Any]:
    """Return what a TOML file of a package holds."""
    return tomllib.loads(resources.files(package).joinpath(name).read_text(encoding="utf-8"))


def record(kind: type[Row], row: Mapping[str, Any], /, **made: Any) -> Row:
    """Return a row as a dataclass, with what is `made` of some of its keys.

    Arrays become tuples, and what the row does not say has its default.
    """
    values = {key: tuple(value) if isinstance(value, list) else value for key, value in row.items()}
    return kind(**values | made)
