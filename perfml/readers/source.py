"""One input file as the readers see it: decompressed, hashed, never larger than memory allows."""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import lzma
import os
import zlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from threading import Thread
from typing import IO, Any, TypeVar, cast

import numpy as np

from perfml.errors import InputError
from perfml.util.files import require_file, sha256_of, sha256_of_file, temporary_folder


@dataclass(frozen=True)
class ReadOptions:
    """Options of every reader; a reader ignores what does not concern it.

    Attributes
    ----------
    raw
        Keep the profiler's own metric columns beside the canonical ones.
    windows
        In how many windows launches were recorded, with holes between them: of `perfml attach`.
    """

    raw: bool = False
    windows: int = 1


_SENTENCES = 40
"""Sentences of one kind that a reader passes on; the others are counted."""


def at_most(sentences: list[str]) -> list[str]:
    """Return sentences, and from the `_SENTENCES` + 1st on only how many more there are."""
    rest = len(sentences) - _SENTENCES
    return (
        sentences if rest <= 0 else [*sentences[:_SENTENCES], f"{rest} more messages of this kind."]
    )


_THREADS = 8
"""Threads that are started; what they do is bound by memory sooner than by cores."""

Item = TypeVar("Item")
Result = TypeVar("Result")


def cores() -> int:
    """Return how many cores are worth starting threads for."""
    return min(_THREADS, os.cpu_count() or 1)


def in_threads(function: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """Return ``[function(item) for item in items]``, computed on the machine's cores.

    For functions that spend their time outside Python; the first error is raised.
    """
    inputs = list(items)
    workers = min(cores(), len(inputs))
    if workers < 2:
        return [function(item) for item in inputs]
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(function, inputs))


LARGEST = 4 << 30
"""Bytes a file may hold when decompressed; beyond it lies a mistake or an attack."""

FREE = 128 << 20
"""Bytes that a compressed file may always hold."""

RATIO = 200
"""How many times its own size a larger one may hold: recorded exports have 14 to 49 (xz)."""

HEAD = 1 << 16
"""Bytes a reader sees to recognise its format."""

_UNREADABLE = (EOFError, OSError, lzma.LZMAError, zlib.error)
"""What decompressing a damaged file raises."""

_LONG = 1 << 20
"""Bytes from which a file is hashed aside."""

_BLOCK = 1 << 20
_PART = 1 << 24
"""Bytes that one thread reads of a long file."""

_UTF_16 = frozenset({b"\xff\xfe", b"\xfe\xff"})

Opener = Callable[[Path], IO[bytes]]
_MAGIC: dict[bytes, Opener] = {
    b"\x1f\x8b": lambda path: cast("IO[bytes]", gzip.open(path, "rb")),  # noqa: SIM115
    b"\xfd7zXZ\x00": lambda path: cast("IO[bytes]", lzma.open(path, "rb")),  # noqa: SIM115
    b"BZh": lambda path: cast("IO[bytes]", bz2.open(path, "rb")),  # noqa: SIM115
}


def _aside(hashed: Callable[[], str]) -> Future[str]:
    """Hash in a thread of its own, which a process that is forked later does not wait for."""
    found: Future[str] = Future()

    def run() -> None:
        try:
            found.set_result(hashed())
        except OSError as error:
            found.set_exception(error)

    Thread(target=run, daemon=True).start()
    return found


class Source:
    """A profiler's export on disk.

    Parameters
    ----------
    path
        The file; ``.gz``, ``.xz`` and ``.bz2`` are recognised by content and read as they are.

    Raises
    ------
    InputError
        If it is missing, no regular file, unreadable or empty.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._hashing: Future[str] | None = None
        require_file(self.path)
        with self._errors(), self.path.open("rb") as stream:
            magic = stream.read(8)
        if not magic:
            msg = "the file is empty"
            raise InputError(msg, where=str(path), cure="Export the profile again.")
        self.opener = next(
            (opener for key, opener in _MAGIC.items() if magic.startswith(key)), None
        )

    @property
    def compressed(self) -> bool:
        """Whether the file is compressed."""
        return self.opener is not None

    @cached_property
    def head(self) -> bytes:
        """The first `HEAD` bytes, decompressed."""
        with self._errors(), self.stream() as stream:
            return stream.read(HEAD)

    def head_text(self) -> str:
        """Return the head as text, whatever it holds; for recognising formats."""
        encoding = "utf-16" if self.head[:2] in _UTF_16 else "utf-8-sig"
        return self.head.decode(encoding, errors="replace")

    @cached_property
    def data(self) -> bytes:
        """The whole file, decompressed.

        Raises `InputError` if it is damaged, too large, or changes while it is read.
        """
        if "view" in self.__dict__:
            return bytes(self.view)
        if self.compressed:
            whole = io.BytesIO()
            self._copy(whole)
            return whole.getvalue()
        with self._unchanged() as size:
            self._limited(size)
            # in one piece: an export is tens of megabytes, and every copy of it costs
            with self._errors(), self.path.open("rb", buffering=0) as stream:
                data = stream.read(size) or b""
                while len(data) < size and (block := stream.read(_BLOCK)):
                    data += block
        self._hash_aside(data)
        return data

    @cached_property
    def view(self) -> memoryview:
        """The same as `data`, of a large file in a third of the time.

        NumPy asks for large pages of memory, so that the system hands out a few of them and not
        one for every 4 KiB.
        """
        if self.compressed or "data" in self.__dict__:
            return memoryview(self.data)
        with self._unchanged() as size:
            self._limited(size)
            whole = np.empty(size, dtype=np.uint8).data
            with self._errors():
                in_threads(lambda start: self._fill(whole, start), range(0, size, _PART))
        return whole.toreadonly()

    def _fill(self, whole: memoryview, start: int) -> None:
        """Read a part of the file into its place."""
        part = whole[start : start + _PART]
        with self.path.open("rb", buffering=0) as stream:
            stream.seek(start)
            while part and (count := stream.readinto(part)):
                part = part[count:]
        if part:
            msg = f"it ends {len(part)} bytes early"
            raise EOFError(msg)

    def hash_aside(self) -> None:
        """Begin to compute `sha256` beside what the caller does next, if the file is long.

        Best called when what keeps all cores busy is done.
        """
        if not self.compressed and self._hashing is None:
            self._hash_aside(self.view)

    def _limited(self, size: int) -> None:
        if size > LARGEST:
            raise self.too_large(LARGEST)

    def _hash_aside(self, data: bytes | memoryview) -> None:
        if len(data) > _LONG:
            # hashing lets other threads run, and the name is asked for after all parsing
            self._hashing = _aside(lambda: sha256_of(data))

    @cached_property
    def sha256(self) -> str:
        """SHA-256 of the file as it lies on disk, in hexadecimal."""
        if self._hashing is not None:
            return self._hashing.result()
        if not self.compressed and self.__dict__.keys() & {"data", "view"}:
            # What was read is what is named, even if the file has grown since.
            return sha256_of(self.view)
        return sha256_of_file(self.path)

    def provenance(self, form: str, tool: str) -> dict[str, Any]:
        """Return what every table notes of the file that it was read from."""
        return {"path": self.path.name, "sha256": self.sha256, "format": form, "tool": tool}

    def text(self) -> str:
        """Return the whole file as text, without its byte order mark, line ends as they are.

        Raises `InputError` if the bytes are neither UTF-8 nor UTF-16 with a byte order mark.
        """
        data = self.data
        encoding = "utf-16" if data[:2] in _UTF_16 else "utf-8-sig"
        try:
            return data.decode(encoding)
        except UnicodeDecodeError as error:
            line = data[: error.start].count(b"\n") + 1
            msg = f"not {encoding.removesuffix('-sig').upper()} text"
            raise InputError(
                msg,
                where=f"{self.path}:{line}",
                found=f"byte {data[error.start]:#04x}",
                cure="Export again with LC_ALL=C.UTF-8, or convert the file with iconv.",
            ) from error

    def text_parts(self) -> Iterator[bytes]:
        """Yield the file as UTF-8 without its byte order mark, a part of `PART` bytes at a time.

        Raises `InputError` as `data` does, and if UTF-16 is damaged.
        """
        if self.head[:2] in _UTF_16:
            yield self.text().encode()
            return
        if not self.compressed and self.path.stat().st_size > _LONG:
            self._hashing = _aside(lambda: sha256_of_file(self.path))
        mark = self.head.startswith(codecs.BOM_UTF8)
        for part in self._blocks(_PART):
            yield part[len(codecs.BOM_UTF8) :] if mark else part
            mark = False

    @contextmanager
    def local(self, suffix: str = "") -> Iterator[Path]:
        """Give a path of the decompressed file, for readers that need one."""
        if not self.compressed and (not suffix or self.path.suffix == suffix):
            yield self.path
            return
        with temporary_folder() as folder:
            path = folder / f"profile{suffix}"
            with path.open("wb") as out:
                self._copy(out)
            yield path

    def _copy(self, out: IO[bytes]) -> None:
        """Copy the file, decompressed."""
        for block in self._blocks(_BLOCK):
            try:
                out.write(block)
            except OSError as error:
                msg = "no room to unpack the file"
                cure = "Free some space, or set TMPDIR to a folder that has it."
                found = error.strerror or str(error)
                raise InputError(msg, where=str(self.path), found=found, cure=cure) from error

    def _blocks(self, size: int) -> Iterator[bytes]:
        """Yield the file, decompressed; refuse one that is a bomb or is still written to."""
        with self._unchanged() as packed, self.stream() as stream:
            limit = self.limit(packed)
            while block := self._block(stream, size):
                limit -= len(block)
                if limit < 0:
                    raise self.too_large(self.limit(packed))
                yield block

    def _block(self, stream: IO[bytes], size: int) -> bytes:
        with self._errors():
            return stream.read(size)

    @contextmanager
    def _unchanged(self) -> Iterator[int]:
        """Give the size of the file; refuse one that is still written to."""
        before = self._state()
        yield before[0]
        after = self._state()
        if after != before:
            msg = "the file changed while it was read"
            found = f"{before[0]} bytes before, {after[0]} after"
            cure = "Wait until the program that writes it has ended."
            raise InputError(msg, where=str(self.path), found=found, cure=cure)

    def _state(self) -> tuple[int, int]:
        """Return what changes when a file is written to: its size and its time."""
        with self._errors():
            found = self.path.stat()
        return found.st_size, found.st_mtime_ns

    def limit(self, size: int) -> int:
        """Return how many bytes the file may hold, from its size on disk."""
        if not self.compressed:
            return LARGEST
        return min(LARGEST, max(FREE, RATIO * size))

    def stream(self) -> IO[bytes]:
        """Open the file, decompressed; not for reading it whole, which has bounds."""
        return self.opener(self.path) if self.opener is not None else self.path.open("rb")

    def too_large(self, limit: int) -> InputError:
        """Return the error for a file that holds more than it may."""
        msg = f"larger than {limit >> 20} MiB" + (" when decompressed" if self.compressed else "")
        if limit == LARGEST:
            cure = "Split the profile into several files."
            return InputError(msg, where=str(self.path), cure=cure)
        found = f"more than {RATIO} times its size"
        cure = "Profiles shrink less: check where it is from. If you trust it, decompress it first."
        return InputError(msg, where=str(self.path), found=found, cure=cure)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except _UNREADABLE as error:
            msg = "the file cannot be read to its end"
            raise InputError(
                msg, where=str(self.path), found=str(error), cure="Copy or export it again."
            ) from error
