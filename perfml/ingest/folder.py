"""Kernels of many runs in one folder of Parquet, ingested on all cores, each run landing whole.

The folder is laid out as ``workload=W/backend=B/RUN-UNIT.parquet``. Every file is a Kernels table
by itself with the provenance of its sources; UNIT names the content it was read from, so that the
same profiles are never counted twice. A column has the same type in every file, a file lacks the
columns that its profiles have not, and ``_common_metadata`` has the schema of them all.

Here to change: what is read together as one unit, how runs become file names, what makes two
recordings the same one, and the step that moves finished files into the folder. That step must
stay the last one: a file in the folder is taken for a whole run.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import tempfile
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from perfml import __version__
from perfml.errors import Failed, InputError, PerfmlError
from perfml.ingest.profiles import IngestSettings, group_runs, ingest_runs
from perfml.ingest.run_labels import SHAPES, read_manifest, started_by, told_apart
from perfml.metrics import load_catalogue
from perfml.readers import Source, recognise
from perfml.tables import KERNEL_COLUMNS, METADATA_KEY, Kernels, document_in, readable, replacing
from perfml.util.files import cannot_write, sha256_of, sha256_of_file
from perfml.util.typing import Progress

if TYPE_CHECKING:
    import pandas as pd

Group = tuple[list[Path], Path | None]

COMMON = "_common_metadata"
"""The file that holds the schema of all files; the name is that of Parquet's own convention."""

ROW_GROUP = 1 << 17
"""Launches in a row group, at most: 20 MiB a thread with the published metrics."""

WORTH_PROCESSES = 32 << 20
"""Bytes of profiles above which starting processes pays off: some ten seconds of reading."""

_UNIT = 16
"""Characters that name the content a file was read from."""

_NAME = re.compile(rf"^(?P<run>.+)-(?P<unit>[0-9a-f]{{{_UNIT}}})\.parquet$")
_LONGEST = 150
_WHOLE = ("batch", "iteration", "kernel_index", "metrics_iteration", "process")
_REAL = ("time_us", "ncu_time_us", "launches")


class LeftOut(Failed):
    """What could not be read, and what to do."""

    source: str


@dataclass
class IngestResult:
    """What an ingest into a folder did.

    Attributes
    ----------
    added, replaced, present
        Runs that are new in the folder, that were read again because the settings differ, and
        that lay there already.
    kernels
        Launches added or replaced.
    warnings
        What the readers said.
    failed
        Sources that could not be read, with the error of each.
    substituted
        What stands in for metrics that were not collected, as `perfml.metrics.sets` takes
        it: an entry a set of formulas.
    """

    added: list[str] = field(default_factory=list)
    replaced: list[str] = field(default_factory=list)
    present: list[str] = field(default_factory=list)
    kernels: int = 0
    warnings: list[str] = field(default_factory=list)
    failed: list[tuple[str, PerfmlError]] = field(default_factory=list)
    substituted: list[Mapping[str, Any]] = field(default_factory=list)

    JSON: ClassVar = ("kernels", "added", "replaced", "present", ("failed", "left_out"), "warnings")

    @property
    def left_out(self) -> list[LeftOut]:
        """What could not be read, and what to do."""
        return [{"source": source, **error.as_dict()} for source, error in self.failed]


@dataclass(frozen=True)
class _Unit:
    """Files that are read together: a run, or nvprof logs that may belong to each other.

    ``workload`` names a run whose arguments tell it apart from others of its program.
    """

    groups: tuple[Group, ...]
    digest: str
    workload: str | None = None

    def note(self, settings: IngestSettings, parts: int) -> dict[str, Any]:
        """Return what every file of the unit notes: all that decides what is read, as JSON."""
        apart = {} if self.workload is None else {"told_apart": self.workload}
        read_with = {**settings.as_dict(), **apart}
        return {"unit": self.digest, "parts": parts, "settings": read_with}

    @property
    def name(self) -> str:
        files, manifest = self.groups[0]
        return str(manifest.parent if manifest is not None else files[0])


_Written = tuple[_Unit, Kernels | PerfmlError, tuple[tuple[str, Path, Path], ...]]
"""A unit, what was read of it, and its parts: run, file written, and its place in the folder."""


def ingest_folder(
    paths: Iterable[str | Path],
    folder: str | Path,
    *,
    settings: IngestSettings | None = None,
    n_jobs: int | None = None,
    progress: Progress | None = None,
) -> IngestResult:
    """Read profiles on several cores into a folder of Parquet files, one a run.

    A run that lies in the folder already is left alone, whatever its files are called elsewhere; a
    run that cannot be read is reported and does not stop the others. Without `n_jobs` there is one
    process a core where there is enough to read. Raises `InputError` if there is no profile, or the
    folder cannot be written.
    """
    folder, settings = Path(folder), settings or IngestSettings()
    notes: list[str] = []
    units = _units(group_runs(map(Path, paths), notes))
    landed = IngestResult(warnings=notes)
    with _incoming(folder) as incoming:
        known = {path: _document(path) for path in sorted(folder.glob("*=*/*=*/*.parquet"))}
        units, apart = _told_apart(units, known, settings.identity.workload)
        fresh = []
        for unit in units:
            files = [path for path, document in known.items() if _unit_of(document) == unit.digest]
            note = unit.note(settings, len(files))
            if files and all(known[path].get("partition") == note for path in files):
                landed.present += map(_run_of, files)
            else:
                fresh.append(unit)
        for done, written in enumerate(_read_all(fresh, incoming, settings, n_jobs), 1):
            if progress is not None:
                there = len(units) - len(fresh)
                progress(there + done, len(units), Path(written[0].name).name)
            _land(written, folder, known, landed)
        if landed.added or landed.replaced:
            _write_schema(folder, known)
    landed.warnings = list(dict.fromkeys([*landed.warnings, *apart]))
    return landed


def _units(groups: Sequence[Group]) -> list[_Unit]:
    """Make units of runs; the same content named twice is one."""
    together: dict[Any, list[Group]] = {}
    for number, (files, manifest) in enumerate(groups):
        loose = manifest is None and all(map(_nvprof, files))
        together.setdefault(files[0].parent if loose else number, []).append((files, manifest))
    with ThreadPoolExecutor() as pool:
        digests = list(pool.map(_digest, together.values()))
    units: dict[str, _Unit] = {}
    for digest, members in zip(digests, together.values(), strict=True):
        units.setdefault(digest, _Unit(tuple(members), digest))
    return list(units.values())


def _nvprof(path: Path) -> bool:
    try:
        return str(recognise(Source(path)).NAME).startswith("nvprof")
    except PerfmlError:
        # no profile: the error belongs to the one that reads it
        return False


def _digest(groups: Sequence[Group]) -> str:
    """Name the content of some files: what they are called, and every byte in them."""
    lines = set()
    for files, manifest in groups:
        beside = manifest if manifest is not None else files[0].parent / SHAPES
        for path in (*files, beside):
            lines.add(f"{path.name} {sha256_of_file(path) if path.is_file() else 'missing'}")
    return sha256_of("\n".join(sorted(lines)).encode())[:_UNIT]


def _document(path: Path) -> dict[str, Any]:
    """Return the provenance of a file; empty where there is none to read."""
    import pyarrow.parquet as pq

    with readable(path):
        metadata = pq.read_metadata(path).metadata or {}
    try:
        return document_in(metadata, path)
    except InputError:
        return {}


def _unit_of(document: Mapping[str, Any]) -> object:
    note = document.get("partition")
    return note.get("unit") if isinstance(note, dict) else None


def _run_of(path: Path) -> str:
    return urllib.parse.unquote(_NAME.sub(r"\g<run>", path.name))


def _told_apart(
    units: Sequence[_Unit], known: Mapping[Path, dict[str, Any]], user: str | None
) -> tuple[list[_Unit], list[str]]:
    """Name the workloads of runs whose arguments differ, from each other or from what lies there.

    Returned are the units, and what was done, a sentence a workload.
    """
    places, started = [], []
    for place, unit in enumerate(units):
        manifest = unit.groups[0][1]
        if manifest is not None:
            with contextlib.suppress(PerfmlError):  # else the run itself tells what is wrong
                started.append(started_by(read_manifest(manifest)))
                places.append(place)
    digests = {unit.digest for unit in units}
    landed = [
        (run, document.get("partition", {}).get("settings", {}).get("told_apart"))
        for document in known.values()
        if _unit_of(document) not in digests
        for run in document.get("runs") or []
        if isinstance(run, dict)
    ]
    workloads, warnings = told_apart([*started, *(started_by(run) for run, _ in landed)], user)
    named = list(units)
    for at, place in enumerate(places):
        named[place] = replace(units[place], workload=workloads.get(at))
    if any(workloads.get(len(places) + n, name) != name for n, (_, name) in enumerate(landed)):
        warnings.append(
            "ingest all runs together to tell them apart: runs already in the folder keep their "
            "workload"
        )
    return named, warnings


def _read_all(
    units: Sequence[_Unit], incoming: Path, settings: IngestSettings, n_jobs: int | None
) -> Iterator[_Written]:
    """Yield what became of each unit, as they finish."""
    import joblib

    files = [path for unit in units for members, _ in unit.groups for path in members]
    size = sum(path.stat().st_size for path in files if path.is_file())
    if n_jobs == 1 or len(units) < 2 or (n_jobs is None and size < WORTH_PROCESSES):
        yield from (_write(os.getcwd(), unit, incoming, settings) for unit in units)
        return
    engine = joblib.Parallel(n_jobs=n_jobs or -1, return_as="generator_unordered")
    work = (joblib.delayed(_write)(os.getcwd(), unit, incoming, settings) for unit in units)
    yield from engine(work)


def _write(home: str, unit: _Unit, incoming: Path, settings: IngestSettings) -> _Written:
    """Read one unit and write its runs into the incoming folder; paths are relative to `home`."""
    with contextlib.suppress(OSError):  # joblib keeps processes that started elsewhere
        os.chdir(home)
    try:
        kernels = ingest_runs(unit.groups, settings=settings)
        if unit.workload is not None:
            kernels.frame["workload"] = unit.workload
        written = []
        for number, (run, place, table) in enumerate(_parts(kernels, unit, settings)):
            path = incoming / f"{unit.digest}-{number}.parquet"
            _save(table, path)
            written.append((run, path, place))
    except PerfmlError as error:
        # as the plain class: subclasses with other arguments do not survive the way to the parent
        plain = PerfmlError(error.what, where=error.where, found=error.found, cure=error.cure)
        return unit, plain, ()
    # the launches themselves lie on disk
    counted = replace(kernels, frame=kernels.frame[["run_id"]])
    return unit, counted, tuple(written)


def _save(table: Any, path: Path) -> None:
    import pyarrow.parquet as pq

    with replacing(path) as temporary:
        pq.write_table(table, temporary, compression="zstd", row_group_size=ROW_GROUP)


def _parts(
    kernels: Kernels, unit: _Unit, settings: IngestSettings
) -> Iterator[tuple[str, Path, Any]]:
    """Yield run, place in the folder and table of each run read."""
    groups = list(
        kernels.frame.groupby(["run_id", "workload", "backend"], dropna=False, sort=False)
    )
    for key, frame in groups:
        run, workload, backend = map(str, key)
        own: dict[str, Any] = {
            name: [entry for entry in kernels.provenance[name] if entry.get("run_id") == run]
            for name in ("sources", "runs")
            if name in kernels.provenance
        }
        document = {
            **kernels.provenance,
            **own,
            "partition": unit.note(settings, len(groups)),
            "kind": "kernels",
            "perfml": __version__,
        }
        place = Path(f"workload={_safe(workload)}") / f"backend={_safe(backend)}"
        yield run, place / f"{_safe(run)}-{unit.digest}.parquet", _table(frame, document)


def _safe(name: str) -> str:
    """Return a name as one part of a path: other characters become %XX, and long ones a hash."""
    quoted = urllib.parse.quote(name, safe=" +,@") or "%"
    quoted = quoted.replace(".", "%2E") if quoted.startswith(".") else quoted
    if len(quoted) <= _LONGEST:
        return quoted
    return f"{quoted[: _LONGEST - _UNIT]}-{sha256_of(name.encode())[: _UNIT - 1]}"


def _table(frame: pd.DataFrame, document: dict[str, Any]) -> Any:
    """Return a run as an Arrow table, its columns of fixed types."""
    import pyarrow as pa

    whole = pa.Table.from_pandas(frame, preserve_index=False)
    schema = pa.schema([pa.field(name, _type(name, whole.schema)) for name in whole.schema.names])
    metadata = {**(whole.schema.metadata or {}), METADATA_KEY: json.dumps(document).encode()}
    return whole.cast(schema).replace_schema_metadata(metadata)


def _type(name: str, schema: Any) -> Any:
    import pyarrow as pa

    if name in _WHOLE:
        return pa.int64()
    kind = schema.field(name).type
    numeric = pa.types.is_integer(kind) or pa.types.is_floating(kind)
    if name in _REAL or name in load_catalogue() or (numeric and name not in KERNEL_COLUMNS):
        return pa.float64()
    return pa.string()


def _loose(document: Mapping[str, Any]) -> set[Any]:
    """Return the hashes of the loose profiles a file was read from; none of a collected run's.

    A collected run is known by its manifest, whatever the bytes of its profiles.
    """
    sources = () if document.get("runs") else document.get("sources", ())
    return {source.get("sha256") for source in sources}


def _land(
    written: _Written, folder: Path, known: dict[Path, dict[str, Any]], landed: IngestResult
) -> None:
    """Move a unit's files to their places; nothing of it moves if a run of it is there already.

    A profile that was read alone before its times came is replaced by the two together.
    """
    unit, kernels, parts = written
    if isinstance(kernels, PerfmlError):
        landed.failed.append((unit.name, kernels))
        return
    new = {folder / place: _document(path) for _, path, place in parts}
    profiles = set[Any]().union(*map(_loose, new.values()))
    names = {_safe(run) for run, _, _ in parts}
    old = set()
    for path, document in known.items():
        loose = _loose(document)
        same_run = _NAME.sub(r"\g<run>", path.name) in names
        if _unit_of(document) == unit.digest or (loose and loose <= profiles):
            old.add(path)
        elif same_run or loose & profiles:
            msg = "this folder has the run already, from other files"
            cure = "Remove that file if the new recording replaces it, or name another folder."
            landed.failed.append((unit.name, InputError(msg, where=str(path), cure=cure)))
            return
    replaced = {_NAME.sub(r"\g<run>", path.name) for path in old}
    for run, path, place in parts:
        target = folder / place
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            os.replace(path, target)
        except OSError as error:
            raise cannot_write(target, error) from error
        (landed.replaced if _safe(run) in replaced else landed.added).append(run)
    for path in old - set(new):
        del known[path]
        path.unlink(missing_ok=True)
    known |= new
    landed.kernels += len(kernels.frame)
    landed.warnings += kernels.warnings
    for source in kernels.provenance["sources"]:
        stand_in = {"substituted": source.get("substituted", {})}
        landed.substituted += [] if stand_in in landed.substituted else [stand_in]


def _write_schema(folder: Path, files: Iterable[Path]) -> None:
    """Write the schema that all files together have."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    kinds: dict[str, Any] = {}
    for path in sorted(files):
        with readable(path):
            for column in pq.read_schema(path):
                kinds.setdefault(column.name, column.type)
    metrics = [name for name in load_catalogue().names if name in kinds]
    rest = [name for name in kinds if name not in metrics]
    schema = pa.schema([pa.field(name, kinds[name]) for name in (*rest, *metrics)])
    with replacing(folder / COMMON) as temporary:
        pq.write_metadata(schema, temporary)


@contextlib.contextmanager
def _incoming(folder: Path) -> Iterator[Path]:
    """Give a folder beside the tables for files that are not finished; readers pass it over."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        path = Path(tempfile.mkdtemp(prefix=".incoming-", dir=folder))
    except OSError as error:
        raise cannot_write(folder, error) from error
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
