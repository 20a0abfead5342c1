"""The profile in a zip or tar archive: found by content, read in memory.

Nothing is unpacked under a name that the archive gives, so that no name can lead out of a folder;
links and devices are passed over.
"""

from __future__ import annotations

import io
import struct
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from typing import IO, cast

from perfml.errors import InputError
from perfml.readers.source import HEAD, UNREADABLE, Source

MOST = 200
"""Files of an archive that are looked at."""

_NAMED = 5
_ZIP = b"PK\x03\x04"
_TAR_MAGIC = slice(257, 262)


def is_readable_archive(head: bytes) -> bool:
    """Tell whether a file is an archive that can be looked into, from its first bytes."""
    return head.startswith(_ZIP) or head[_TAR_MAGIC] == b"ustar"


def enter(source: Source, known: Callable[[Source], bool], unpack: InputError) -> None:
    """Let a source stand for the one profile in the archive that it is.

    Parameters
    ----------
    source
        The archive.
    known
        Tells whether a reader knows a file.
    unpack
        What is wrong with an archive that cannot be read, with the command that unpacks it.

    Raises
    ------
    InputError
        If it holds no profile or several, more than `MOST` files, or is damaged or locked.
    """
    kind, cure, where = unpack.what, unpack.cure, str(source.path)
    names: list[str] = []
    profiles: list[Source] = []
    try:
        for name, stream in _files(source):
            names.append(name)
            if len(names) > MOST:
                msg = f"{kind}, of more than {MOST} files"
                raise InputError(msg, where=where, cure=cure)
            inner = Source(source.path)
            inner.stand_for(name, _opener(source, name), stream.read(HEAD))
            if inner.head and known(inner):
                profiles.append(inner)
    except (*UNREADABLE, IndexError, ValueError, struct.error) as error:  # as damage has it
        msg = "the archive cannot be read to its end"
        raise InputError(msg, where=where, found=str(error), cure="Copy it again.") from error
    except (NotImplementedError, RuntimeError) as error:  # a method of packing, a password
        raise InputError(kind, where=where, found=str(error), cure=cure) from error
    if len(profiles) == 1:
        source.stand_for(profiles[0].member, profiles[0].opener, profiles[0].head)
        return
    shown = [str(each.member) for each in profiles] or names
    more = f" and {len(shown) - _NAMED} more" if len(shown) > _NAMED else ""
    count = f"{len(profiles)} profiles" if profiles else "no profile that perfml reads"
    msg = f"{kind}, with {count} in it"
    found = ", ".join(shown[:_NAMED]) + more if shown else "no files"
    raise InputError(msg, where=where, found=found, cure=cure)


def _files(source: Source) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield name and content of each regular file; the content is to be read before the next."""
    if source.head.startswith(_ZIP):
        with source.stream() as whole, zipfile.ZipFile(whole) as archive:
            for info in archive.infolist():
                if not info.filename.endswith("/"):
                    with archive.open(info) as member:
                        yield info.filename, member
        return
    with source.stream() as whole:
        bounded = cast("IO[bytes]", _Bounded(source, whole))
        with tarfile.open(fileobj=bounded, mode="r|") as tar:
            for entry in tar:
                content = tar.extractfile(entry) if entry.isreg() else None
                if content is not None:
                    yield entry.name, content
        while bounded.read(HEAD):  # to the end, where the checksum of the compressed file is
            pass


def _opener(source: Source, name: str) -> Callable[[object], IO[bytes]]:
    """Return what opens a file of an archive; no more of it is held than a file may have."""
    archive, limit = Source(source.path), source.limit(source.path.stat().st_size)

    def opened(_: object) -> IO[bytes]:
        parts = [stream.read(limit + 1) for found, stream in _files(archive) if found == name]
        return io.BytesIO(b"".join(parts))

    return opened


class _Bounded:
    """A stream that ends with an error where a compressed archive grows beyond all measure."""

    def __init__(self, source: Source, stream: IO[bytes]) -> None:
        self._source, self._stream = source, stream
        self._limit = self._left = source.limit(source.path.stat().st_size)

    def read(self, size: int = -1) -> bytes:
        data = self._stream.read(size)
        self._left -= len(data)
        if self._left < 0:
            raise self._source.too_large(self._limit)
        return data
