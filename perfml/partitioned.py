"""Kernels of many runs in one folder of Parquet, ingested on all cores, each run landing whole.

The folder is laid out as ``workload=W/backend=B/RUN-UNIT.parquet``. Every file is a Kernels table
by itself with the provenance of its sources; UNIT names the content it was read from, so that the
same profiles are never counted twice. A column has the same type in every file, a file lacks the
columns that its profiles have not, and ``_common_metadata`` has the schema of them all.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
import urllib.parse
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perfml._digest import sha256_of, sha256_of_file
from perfml._identity import Identity
from perfml._version import __version__
from perfml.errors import InputError, PerfmlError
from perfml.ingest import SHAPES, group_runs, ingest_runs
from perfml.layer_map import LayerMap
from perfml.metrics import load_catalogue
from perfml.partitioned_files import readable
from perfml.readers import ReadOptions, Source, recognise
from perfml.tables import KERNEL_COLUMNS, METADATA_KEY, Kernels, replacing

if TYPE_CHECKING:
    import pandas as pd

Progress = Callable[[int, int, str], None]
Group = tuple[list[Path], Path | None]

ROW_GROUP = 1 << 17
"""Launches in a row group, at most: 20 MiB a thread with the published metrics."""

COMMON = "_common_metadata"
"""The file that holds the schema of all files; the name is that of Parquet's own convention."""

_UNIT = 16
_LONGEST = 150
_NAME = re.compile(rf"^(?P<run>.+)-(?P<unit>[0-9a-f]{{{_UNIT}}})\.parquet$")
_WHOLE = ("batch", "iteration", "kernel_index", "metrics_iteration")
_REAL = ("time_us", "ncu_time_us", "launches")


@dataclass(frozen=True)
class Settings:
    """What the user tells of all profiles; as for `perfml.ingest.ingest`."""

    identity: Identity = field(default_factory=Identity)
    options: ReadOptions = field(default_factory=ReadOptions)
    layer_map: LayerMap | None = None
    layer: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the settings as JSON values."""
        mapped = self.layer_map.as_dict() if self.layer_map is not None else None
        plain = {"identity": asdict(self.identity), "options": asdict(self.options)}
        return {**plain, "layer_map": mapped, "layer": self.layer}


@dataclass
class Landed:
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
    """

    added: list[str] = field(default_factory=list)
    replaced: list[str] = field(default_factory=list)
    present: list[str] = field(default_factory=list)
    kernels: int = 0
    warnings: list[str] = field(default_factory=list)
    failed: list[tuple[str, PerfmlError]] = field(default_factory=list)


@dataclass(frozen=True)
class _Unit:
    """Files that are read together: a run, or nvprof logs that may belong to each other."""

    groups: tuple[Group, ...]
    digest: str

    @property
    def name(self) -> str:
        files, manifest = self.groups[0]
        return str(manifest.parent if manifest is not None else files[0])


@dataclass(frozen=True)
class _Written:
    """A unit's files in the incoming folder, or why there are none."""

    unit: _Unit
    parts: tuple[tuple[str, Path, Path], ...] = ()
    """Run, file written, and where it belongs, relative to the folder."""
    kernels: int = 0
    warnings: tuple[str, ...] = ()
    error: PerfmlError | None = None


def ingest_folder(
    paths: Iterable[str | Path],
    folder: str | Path,
    *,
    settings: Settings | None = None,
    n_jobs: int | None = None,
    progress: Progress | None = None,
) -> Landed:
    """Read profiles on several cores into a folder of Parquet files, one a run.

    A run that lies in the folder already is left alone, whatever its files are called elsewhere; a
    run that cannot be read is reported and does not stop the others.

    Parameters
    ----------
    paths
        Exports, run folders, or folders of either.
    folder
        Where the tables go; made if missing.
    settings
        What holds for all profiles.
    n_jobs
        Processes; one a core by default. `joblib.parallel_config` chooses another engine.
    progress
        Called as ``progress(done, total, name)``.

    Raises
    ------
    InputError
        If there is no profile, or the folder cannot be written.
    """
    folder, settings = Path(folder), settings or Settings()
    units = _units(group_runs([Path(path) for path in paths]))
    landed = Landed()
    with _incoming(folder) as incoming:
        known = _Index(folder)
        fresh = []
        for unit in units:
            runs = known.complete(unit.digest, settings)
            if runs is None:
                fresh.append(unit)
            else:
                landed.present += runs
        done = len(units) - len(fresh)
        for written in _read_all(fresh, incoming, settings, n_jobs):
            done += 1
            if progress is not None:
                progress(done, len(units), Path(written.unit.name).name)
            _land(written, folder, known, landed)
        if landed.added or landed.replaced:
            known.write_schema()
    return landed


def _units(groups: Sequence[Group]) -> list[_Unit]:
    """Make units of runs; the same content named twice is one."""
    together: dict[Any, list[Group]] = {}
    for number, (files, manifest) in enumerate(groups):
        loose = manifest is None and all(map(_nvprof, files))
        together.setdefault(files[0].parent if loose else number, []).append((files, manifest))
    with ThreadPoolExecutor() as pool:
        digests = list(pool.map(_digest, together.values()))
    found: dict[str, _Unit] = {}
    for digest, members in zip(digests, together.values(), strict=True):
        found.setdefault(digest, _Unit(tuple(members), digest))
    return list(found.values())


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
            if path.is_file():
                lines.add(f"{path.name} {sha256_of_file(path)}")
            else:
                lines.add(f"{path.name} missing")
    return sha256_of("\n".join(sorted(lines)).encode())[:_UNIT]


def _read_all(
    units: Sequence[_Unit], incoming: Path, settings: Settings, n_jobs: int | None
) -> Iterator[_Written]:
    """Yield what became of each unit, as they finish."""
    if len(units) < 2 or n_jobs == 1:
        yield from (_write(unit, incoming, settings) for unit in units)
        return
    import joblib

    engine = joblib.Parallel(n_jobs=n_jobs or -1, return_as="generator_unordered")
    yield from engine(joblib.delayed(_write)(unit, incoming, settings) for unit in units)


def _write(unit: _Unit, incoming: Path, settings: Settings) -> _Written:
    """Read one unit and write its runs into the incoming folder."""
    try:
        kernels = ingest_runs(
            unit.groups,
            identity=settings.identity,
            options=settings.options,
            layer_map=settings.layer_map,
            layer=settings.layer,
        )
        parts = list(_parts(kernels, unit.digest, settings))
        written = []
        for number, (run, place, table) in enumerate(parts):
            path = incoming / f"{unit.digest}-{number}.parquet"
            _save(table, path)
            written.append((run, path, place))
    except PerfmlError as error:
        # as the plain class: subclasses with other arguments do not survive the way to the parent
        plain = PerfmlError(error.what, where=error.where, found=error.found, cure=error.cure)
        return _Written(unit, error=plain)
    return _Written(unit, tuple(written), len(kernels.frame), kernels.warnings)


def _save(table: Any, path: Path) -> None:
    import pyarrow.parquet as pq

    with replacing(path) as temporary:
        pq.write_table(table, temporary, compression="zstd", row_group_size=ROW_GROUP)


def _parts(kernels: Kernels, digest: str, settings: Settings) -> Iterator[tuple[str, Path, Any]]:
    """Yield run, place in the folder and table of each run read."""
    keys = ["run_id", "workload", "backend"]
    groups = list(kernels.frame.groupby(keys, dropna=False, sort=False))
    unit = {"unit": digest, "parts": len(groups), "settings": settings.as_dict()}
    for key, frame in groups:
        run, workload, backend = map(str, key)
        document = {
            **_of_run(kernels.provenance, run),
            "partition": unit,
            "kind": "kernels",
            "perfml": __version__,
        }
        place = Path(f"workload={_safe(workload)}") / f"backend={_safe(backend)}"
        yield run, place / f"{_safe(run)}-{digest}.parquet", _table(frame, document)


def _of_run(provenance: Mapping[str, Any], run: str) -> dict[str, Any]:
    """Keep of a provenance document what concerns one run."""
    kept = dict(provenance)
    for name in ("sources", "runs"):
        if name in kept:
            kept[name] = [each for each in kept[name] if each.get("run_id") == run]
    return kept


def _safe(name: str) -> str:
    """Return a name as one part of a path: other characters become %XX, and long ones a hash."""
    quoted = urllib.parse.quote(name, safe=" +,@") or "%"
    quoted = quoted.replace(".", "%2E") if quoted.startswith(".") else quoted
    if len(quoted) <= _LONGEST:
        return quoted
    return f"{quoted[: _LONGEST - _UNIT]}-{sha256_of(name.encode())[: _UNIT - 1]}"


def _table(frame: pd.DataFrame, document: dict[str, Any]) -> Any:
    """Return a run as an Arrow table: fixed types, launches of a layer one after another."""
    import pyarrow as pa

    whole = pa.Table.from_pandas(_contiguous(frame), preserve_index=False)
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


def _contiguous(frame: pd.DataFrame) -> pd.DataFrame:
    """Bring launches of one layer together where other layers' came between, as merging wants."""
    layer = frame.groupby(["iteration", "layer"], dropna=False, sort=False).ngroup()
    inside = frame["layer"].notna().to_numpy()
    number = layer.to_numpy()[inside]
    if not (number[1:] < number[:-1]).any():
        return frame
    # launches outside layers keep their place behind the launch before them
    rank = layer.where(inside).ffill().fillna(-1)
    return frame.iloc[rank.argsort(kind="stable")]


@dataclass
class _Index:
    """The files that a folder holds, by the content they were read from and by run."""

    folder: Path

    def __post_init__(self) -> None:
        self.units: dict[str, list[Path]] = {}
        self.runs: dict[str, Path] = {}
        for path in sorted(self.folder.glob("workload=*/backend=*/*.parquet")):
            self.add(path)

    def add(self, path: Path) -> None:
        """Count a file in."""
        match = _NAME.match(path.name)
        if match is not None:
            files = self.units.setdefault(match["unit"], [])
            if path not in files:
                files.append(path)
            self.runs[match["run"]] = path

    def drop(self, path: Path) -> None:
        """Forget a file."""
        for files in self.units.values():
            if path in files:
                files.remove(path)

    def complete(self, digest: str, settings: Settings) -> list[str] | None:
        """Return the runs that lie here of some content, or None if it must be read."""
        files = self.units.get(digest, [])
        notes = [_note(path) for path in files]
        if not files or any(
            note.get("settings") != settings.as_dict() or note.get("parts") != len(files)
            for note in notes
        ):
            return None
        return [urllib.parse.unquote(_NAME.sub(r"\g<run>", path.name)) for path in files]

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


def _document(path: Path) -> dict[str, Any]:
    import pyarrow.parquet as pq

    with readable(path):
        metadata = pq.read_metadata(path).metadata or {}
    try:
        document = json.loads(metadata.get(METADATA_KEY, b"{}"))
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def _note(path: Path) -> dict[str, Any]:
    note = _document(path).get("partition")
    return note if isinstance(note, dict) else {}


def _sources(path: Path) -> set[Any]:
    return {each.get("sha256") for each in _document(path).get("sources", [])}


def _land(written: _Written, folder: Path, known: _Index, landed: Landed) -> None:
    """Move a unit's files to their places; nothing of it moves if a run of it is taken."""
    unit = written.unit
    if written.error is not None:
        landed.failed.append((unit.name, written.error))
        return
    old = known.units.pop(unit.digest, [])
    for run, path, _ in written.parts:
        taken = known.runs.get(_safe(run))
        if taken is None or taken in old:
            continue
        if _sources(taken) != _sources(path):
            landed.failed.append((unit.name, _taken(run, taken)))
            known.units[unit.digest] = old
            return
        # the same profile in another company: nvprof logs are read together with their folder
        old.append(taken)
    for run, path, place in written.parts:
        target = folder / place
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            os.replace(path, target)
        except OSError as error:
            raise _cannot_write(target, error) from error
        replaces = known.runs.get(_safe(run)) in old
        (landed.replaced if replaces else landed.added).append(run)
        known.add(target)
    for path in old:
        if path not in known.units[unit.digest]:
            known.drop(path)
            path.unlink(missing_ok=True)
    landed.kernels += written.kernels
    landed.warnings += written.warnings


def _taken(run: str, path: Path) -> PerfmlError:
    msg = f"run {run} lies in this folder already, with other content"
    cure = "Remove that file if the new recording replaces it, or name another folder."
    return InputError(msg, where=str(path), cure=cure)


def _cannot_write(path: Path, error: OSError) -> PerfmlError:
    msg = "cannot write here"
    cure = "Name a folder that you may write to."
    return InputError(msg, where=str(path), found=error.strerror or str(error), cure=cure)


class _incoming:  # noqa: N801 - a context manager reads as a function
    """A folder beside the tables for files that are not finished; readers pass it over."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __enter__(self) -> Path:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._path = Path(tempfile.mkdtemp(prefix=".incoming-", dir=self._folder))
        except OSError as error:
            raise _cannot_write(self._folder, error) from error
        return self._path

    def __exit__(self, *rest: object) -> None:
        shutil.rmtree(self._path, ignore_errors=True)
