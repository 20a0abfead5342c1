"""What a folder of kernels holds: its files by content and by run, and the schema of them all.

Here to change: how runs become file names, and what makes two recordings the same one. Runs of a
folder that was named by other rules count as new, and would come to lie there twice.
"""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perfml.errors import InputError
from perfml.metrics import load_catalogue
from perfml.tables import document_in, readable, replacing
from perfml.util.files import sha256_of

COMMON = "_common_metadata"
"""The file that holds the schema of all files; the name is that of Parquet's own convention."""

UNIT = 16
"""Characters that name the content a file was read from."""

NAME = re.compile(rf"^(?P<run>.+)-(?P<unit>[0-9a-f]{{{UNIT}}})\.parquet$")
_LONGEST = 150


def safe(name: str) -> str:
    """Return a name as one part of a path: other characters become %XX, and long ones a hash."""
    quoted = urllib.parse.quote(name, safe=" +,@") or "%"
    quoted = quoted.replace(".", "%2E") if quoted.startswith(".") else quoted
    if len(quoted) <= _LONGEST:
        return quoted
    return f"{quoted[: _LONGEST - UNIT]}-{sha256_of(name.encode())[: UNIT - 1]}"


@dataclass
class Index:
    """The files that a folder holds, by the content they were read from and by run."""

    folder: Path

    def __post_init__(self) -> None:
        self.units: dict[str, list[Path]] = {}
        self.runs: dict[str, Path] = {}
        self._profiles: dict[Any, set[Path]] | None = None
        for path in sorted(self.folder.glob("workload=*/backend=*/*.parquet")):
            self.add(path)

    def add(self, path: Path) -> None:
        """Count a file in."""
        match = NAME.match(path.name)
        if match is not None:
            files = self.units.setdefault(match["unit"], [])
            if path not in files:
                files.append(path)
            self.runs[match["run"]] = path
            if self._profiles is not None:
                self._note(path)

    def sharing(self, hashes: set[Any]) -> set[Path]:
        """Return the files that were read from one of some loose profiles."""
        if self._profiles is None:
            self._profiles = {}
            for path in [path for files in self.units.values() for path in files]:
                self._note(path)
        return {path for each in hashes for path in self._profiles.get(each, ())}

    def _note(self, path: Path) -> None:
        if self._profiles is not None:
            for each in loose_profiles(path):
                self._profiles.setdefault(each, set()).add(path)

    def drop(self, path: Path) -> None:
        """Forget a file."""
        for places in (self._profiles or {}).values():
            places.discard(path)
        for files in self.units.values():
            if path in files:
                files.remove(path)

    def complete(self, digest: str, settings: dict[str, Any]) -> list[str] | None:
        """Return the runs that lie here of some content, or None if it must be read."""
        files = self.units.get(digest, [])
        notes = [_note(path) for path in files]
        if not files or any(
            note.get("settings") != settings or note.get("parts") != len(files) for note in notes
        ):
            return None
        return [urllib.parse.unquote(NAME.sub(r"\g<run>", path.name)) for path in files]

    def manifests_but(self, digests: Set[str]) -> list[tuple[dict[str, Any], Any]]:
        """Return the manifests of collected runs read from other content than this.

        Beside each stands what it was called to tell it apart from other runs, or None.
        """
        found = []
        for path in (path for unit in self.units.keys() - digests for path in self.units[unit]):
            document = document_of(path)
            settings = document.get("partition", {}).get("settings", {})
            runs = [run for run in document.get("runs") or [] if isinstance(run, dict)]
            found += [(run, settings.get("told_apart")) for run in runs]
        return found

    def write_schema(self) -> None:
        """Write the schema that all files together have."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        kinds: dict[str, Any] = {}
        for path in sorted(path for files in self.units.values() for path in files):
            with readable(path):
                for each in pq.read_schema(path):
                    kinds.setdefault(each.name, each.type)
        metrics = [name for name in load_catalogue().names if name in kinds]
        rest = [name for name in kinds if name not in metrics]
        schema = pa.schema([pa.field(name, kinds[name]) for name in (*rest, *metrics)])
        with replacing(self.folder / COMMON) as temporary:
            pq.write_metadata(schema, temporary)


def document_of(path: Path) -> dict[str, Any]:
    """Return the provenance of a file; empty where there is none to read."""
    import pyarrow.parquet as pq

    with readable(path):
        metadata = pq.read_metadata(path).metadata or {}
    try:
        return document_in(metadata, path)
    except InputError:
        return {}


def _note(path: Path) -> dict[str, Any]:
    note = document_of(path).get("partition")
    return note if isinstance(note, dict) else {}


def loose_profiles(path: Path) -> set[Any]:
    """Return the hashes of the loose profiles a file was read from; none of a collected run's.

    A collected run is known by its manifest, whatever the bytes of its profiles.
    """
    document = document_of(path)
    if document.get("runs"):
        return set()
    return {each.get("sha256") for each in document.get("sources", [])}
