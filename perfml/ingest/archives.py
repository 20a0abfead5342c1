"""Archives with several profiles: read as the folder that they would be unpacked into.

They are unpacked into a temporary folder, which is removed when they are read; nothing is written
beside the user's files.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from perfml.errors import InputError, PerfmlError
from perfml.ingest.run_labels import MANIFEST, SHAPES
from perfml.readers import FORMATS, Source, is_profile
from perfml.readers.archive import is_readable_archive, unpack
from perfml.readers.foreign import unread
from perfml.readers.source import is_compressed
from perfml.util.files import require_file

_BESIDE = (MANIFEST, SHAPES)
"""Files that say something of the profiles beside them."""


@dataclass
class Unpacked:
    """Paths to read, and what those of them are called that were unpacked.

    In place of an archive stand its run folders and its loose profiles; `names` has, for each file
    and folder that was unpacked, the archive and its name in it.
    """

    paths: list[Path] = field(default_factory=list)
    names: dict[str, str] = field(default_factory=dict)

    def named(self, where: str) -> str:
        """Return a place as the user knows it."""
        for path in sorted(self.names, key=len, reverse=True):
            if where.startswith(path):
                return self.names[path] + where[len(path) :]
        return where

    def renamed(self, error: PerfmlError) -> PerfmlError:
        """Return an error at the place that the user knows."""
        where = self.named(error.where) if error.where is not None else None
        return type(error)(error.what, where=where, found=error.found, cure=error.cure)


@contextmanager
def unpacked(paths: Iterable[str | Path]) -> Iterator[Unpacked]:
    """Give paths in which archives with several profiles are unpacked, for the time being.

    An archive with one profile stays: it is read without unpacking. Raises `InputError` if an
    archive is damaged or locked, or holds more than may be.
    """
    found = Unpacked()
    with ExitStack() as folders:
        for path in map(Path, paths):
            if path.is_dir() or not (source := _archive(path)):
                found.paths.append(path)
                continue
            folder = Path(folders.enter_context(tempfile.TemporaryDirectory(prefix="perfml-")))
            _open(source, folder, found)
        try:
            yield found
        except PerfmlError as error:
            if error.where is not None and found.named(error.where) != error.where:
                raise found.renamed(error) from error
            raise


def is_archive_of_profiles(path: Path) -> bool:
    """Tell whether a file is an archive that `unpacked` looks into."""
    return _archive(path) is not None


def _archive(path: Path) -> Source | None:
    require_file(path)
    try:
        source = Source(path)
        return source if is_readable_archive(source.head) else None
    except InputError:
        return None  # empty or damaged: the error belongs to the one that reads it


def _open(source: Source, folder: Path, found: Unpacked) -> None:
    """Unpack an archive and note what of it is to be read: all of it where that is one profile."""
    refusal = unread(source.head, source.path, [known.title for known in FORMATS])
    files = unpack(source, _is_wanted, folder, refusal)
    for member, path in files.items():
        found.names[str(path)] = f"{source.path}/{member}"
        inside = PurePosixPath(member).parent
        found.names.setdefault(str(path.parent), f"{source.path}/{inside}".removesuffix("/."))
    runs = {path.parent for path in files.values() if path.name == MANIFEST}
    loose = [
        path
        for path in files.values()
        if path.parent not in runs and path.name not in _BESIDE and _is_readable(path)
    ]
    if runs or len(loose) > 1:
        found.paths += [*sorted(runs), *loose]
    else:
        found.paths.append(source.path)


def _is_wanted(member: Source) -> bool:
    name = PurePosixPath(member.member or "").name
    return name in _BESIDE or is_compressed(member.head) or is_profile(member)


def _is_readable(path: Path) -> bool:
    try:
        return is_profile(Source(path))
    except InputError:
        return True  # damaged: named when it is read
