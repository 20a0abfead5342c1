"""The profiles in a zip or tar archive: found by content.

One alone is read in memory. Of several each is unpacked, for the time that they are read, under a
name that no archive can choose: nothing leads out of the folder, and links and devices are passed
over.
"""

from __future__ import annotations

import io
import re
import struct
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, cast

from perfml.errors import InputError
from perfml.readers.source import HEAD, UNREADABLE, Source

MOST = 200
"""Files of an archive that are looked at."""

ENTRIES = 20_000
"""Entries of an archive that are counted before it is given up: folders and links as well."""

_NAMED = 5
_UNSAFE = re.compile(r"[^A-Za-z0-9._+-]")
_LONGEST = 120
"""Characters of a file's name, from its end."""

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
    names: list[str] = []
    profiles: list[Source] = []
    with _intact(source, unpack):
        for name, stream in _files(source):
            names.append(name)
            _require_few(len(names), source, unpack)
            inner = _inner(source, name, stream)
            if inner.head and known(inner):
                profiles.append(inner)
    if len(profiles) == 1:
        source.stand_for(profiles[0].member, profiles[0].opener, profiles[0].head)
        return
    shown = [str(each.member) for each in profiles] or names
    more = f" and {len(shown) - _NAMED} more" if len(shown) > _NAMED else ""
    count = f"{len(profiles)} profiles" if profiles else "no profile that perfml reads"
    msg = f"{unpack.what}, with {count} in it"
    found = ", ".join(shown[:_NAMED]) + more if shown else "no files"
    raise InputError(msg, where=str(source.path), found=found, cure=unpack.cure)


def unpack(
    source: Source, wanted: Callable[[Source], bool], into: Path, refusal: InputError
) -> dict[str, Path]:
    """Write files of an archive into an empty folder.

    Folders stay apart, as what lies together may be one run; they are numbered, and of a file's
    own name only letters, digits and ``._+-`` are kept.

    Parameters
    ----------
    source
        The archive.
    wanted
        Tells whether a file is to be written.
    into
        The folder.
    refusal
        What is wrong with an archive that cannot be read.

    Returns
    -------
    dict
        Name in the archive to file, in the archive's order.

    Raises
    ------
    InputError
        If it is damaged or locked, has more than `MOST` files, or holds more than a file may.
    """
    left = limit = source.limit(source.path.stat().st_size, packed=True)
    folders: dict[PurePosixPath, Path] = {}
    found: dict[str, Path] = {}
    with _intact(source, refusal):
        for number, (name, stream) in enumerate(_files(source), start=1):
            _require_few(number, source, refusal)
            inner = _inner(source, name, stream)
            if not inner.head or not wanted(inner):
                continue
            inside = PurePosixPath(name)
            folder = folders.setdefault(inside.parent, into / str(len(folders)))
            folder.mkdir(exist_ok=True)
            path = folder / (_UNSAFE.sub("_", inside.name).lstrip(".-")[-_LONGEST:] or "profile")
            if name not in found and path.exists():
                path = path.with_name(f"{number}_{path.name}")
            block = inner.head
            with path.open("wb") as out:
                while block:
                    left -= len(block)
                    if left < 0:
                        raise source.too_large(limit)
                    source.write(out, block)
                    block = stream.read(HEAD)
            found[name] = path
    return found


def _inner(source: Source, name: str, stream: IO[bytes]) -> Source:
    """Return a file of an archive as a source."""
    inner = Source(source.path)
    inner.stand_for(name, _opener(source, name), stream.read(HEAD))
    return inner


def _require_few(files: int, source: Source, refusal: InputError) -> None:
    if files > MOST:
        msg = f"{refusal.what}, of more than {MOST} files"
        raise InputError(msg, where=str(source.path), cure=refusal.cure)


def _require_entries(entries: int, source: Source) -> None:
    if entries > ENTRIES:
        msg = f"an archive of more than {ENTRIES:,} entries"
        cure = "Unpack it, and name the profiles or their folder."
        raise InputError(msg, where=str(source.path), cure=cure)


@contextmanager
def _intact(source: Source, refusal: InputError) -> Iterator[None]:
    """Say what is wrong with an archive that is damaged or locked."""
    try:
        yield
    except (*UNREADABLE, IndexError, ValueError, struct.error) as error:  # as damage has it
        msg = "the archive cannot be read to its end"
        where = str(source.path)
        raise InputError(msg, where=where, found=str(error), cure="Copy it again.") from error
    except (NotImplementedError, RuntimeError) as error:  # a method of packing, a password
        where = str(source.path)
        raise InputError(refusal.what, where=where, found=str(error), cure=refusal.cure) from error


def _files(source: Source) -> Iterator[tuple[str, IO[bytes]]]:
    """Yield name and content of each regular file; the content is to be read before the next."""
    if source.head.startswith(_ZIP):
        with source.stream() as whole, zipfile.ZipFile(whole) as archive:
            entries = archive.infolist()
            _require_entries(len(entries), source)
            for info in entries:
                if not info.filename.endswith("/"):
                    with archive.open(info) as member:
                        yield info.filename, member
        return
    with source.stream() as whole:
        bounded = cast("IO[bytes]", _Bounded(source, whole))
        with tarfile.open(fileobj=bounded, mode="r|") as tar:
            for number, entry in enumerate(tar, start=1):
                _require_entries(number, source)
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
