"""One input file as the readers see it: decompressed, hashed, never larger than memory allows."""

from __future__ import annotations

import bz2
import gzip
import lzma
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import IO, cast

from perfml._digest import sha256_of, sha256_of_file
from perfml.errors import InputError
from perfml.tables import require_file

LARGEST = 4 << 30
"""Bytes a file may hold when decompressed; beyond it lies a mistake or an attack."""

HEAD = 1 << 16
"""Bytes a reader sees to recognise its format."""

_Opener = Callable[[Path], IO[bytes]]
_MAGIC: dict[bytes, _Opener] = {
    b"\x1f\x8b": lambda path: cast("IO[bytes]", gzip.open(path, "rb")),  # noqa: SIM115
    b"\xfd7zXZ\x00": lambda path: cast("IO[bytes]", lzma.open(path, "rb")),  # noqa: SIM115
    b"BZh": lambda path: cast("IO[bytes]", bz2.open(path, "rb")),  # noqa: SIM115
}


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
        require_file(self.path)
        with self.path.open("rb") as stream:
            magic = stream.read(8)
        if not magic:
            msg = "the file is empty"
            raise InputError(msg, where=str(path), cure="Export the profile again.")
        self._open = next((opener for key, opener in _MAGIC.items() if magic.startswith(key)), None)

    @property
    def compressed(self) -> bool:
        """Whether the file is compressed."""
        return self._open is not None

    @cached_property
    def head(self) -> bytes:
        """The first `HEAD` bytes, decompressed."""
        with self._errors(), self._stream() as stream:
            return stream.read(HEAD)

    @cached_property
    def data(self) -> bytes:
        """The whole file, decompressed.

        Raises
        ------
        InputError
            If it is damaged, or larger than `LARGEST`.
        """
        with self._errors(), self._stream() as stream:
            data = stream.read(LARGEST + 1)
        if len(data) > LARGEST:
            raise self._too_large()
        return data

    @cached_property
    def sha256(self) -> str:
        """SHA-256 of the file as it lies on disk, in hexadecimal."""
        if not self.compressed and "data" in self.__dict__:
            # What was read is what is named, even if the file has grown since.
            return sha256_of(self.data)
        return sha256_of_file(self.path)

    def text(self) -> str:
        """Return the whole file as text, without its byte order mark, line ends as they are.

        Raises
        ------
        InputError
            If the bytes are neither UTF-8 nor UTF-16 with a byte order mark.
        """
        data = self.data
        encoding = "utf-16" if data[:2] in {b"\xff\xfe", b"\xfe\xff"} else "utf-8-sig"
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

    @contextmanager
    def local(self, suffix: str = "") -> Iterator[Path]:
        """Give a path of the decompressed file, for readers that need one."""
        if not self.compressed and (not suffix or self.path.suffix == suffix):
            yield self.path
            return
        with tempfile.TemporaryDirectory(prefix="perfml-") as folder:
            path = Path(folder) / f"profile{suffix}"
            with self._errors(), self._stream() as stream, path.open("wb") as out:
                size = 0
                while block := stream.read(1 << 20):
                    size += len(block)
                    if size > LARGEST:
                        raise self._too_large()
                    out.write(block)
            yield path

    def _stream(self) -> IO[bytes]:
        return self._open(self.path) if self._open is not None else self.path.open("rb")

    def _too_large(self) -> InputError:
        msg = f"larger than {LARGEST >> 30} GiB when decompressed"
        return InputError(msg, where=str(self.path), cure="Split the profile into several files.")

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (EOFError, lzma.LZMAError, zlib.error, gzip.BadGzipFile, OSError) as error:
            msg = "the file cannot be read to its end"
            raise InputError(
                msg, where=str(self.path), found=str(error), cure="Copy or export it again."
            ) from error
