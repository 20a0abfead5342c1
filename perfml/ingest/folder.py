"""Kernels of many runs in one folder of Parquet, ingested on all cores, each run landing whole.

The folder is laid out as ``workload=W/backend=B/RUN-UNIT.parquet``. Every file is a Kernels table
by itself with the provenance of its sources; UNIT names the content it was read from, so that the
same profiles are never counted twice. A column has the same type in every file, a file lacks the
columns that its profiles have not, and ``_common_metadata`` has the schema of them all.

Here to change: what is read together as one unit, how units are spread over processes, the type
of each column, and the step that moves finished files into the folder. That step must stay the
last one: a file in the folder is taken for a whole run.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from perfml import __version__
from perfml.errors import Failed, InputError, PerfmlError
from perfml.ingest.folder_index import UNIT, Index, loose_profiles, safe
from perfml.ingest.profiles import IngestSettings, group_runs, ingest_runs
from perfml.ingest.run_labels import SHAPES, read_manifest, started_by, told_apart
from perfml.metrics import load_catalogue
from perfml.readers import Source, recognise
from perfml.tables import KERNEL_COLUMNS, METADATA_KEY, Kernels, replacing
from perfml.util.files import cannot_write, sha256_of, sha256_of_file
from perfml.util.typing import Progress

if TYPE_CHECKING:
    import pandas as pd

Group = tuple[list[Path], Path | None]

ROW_GROUP = 1 << 17
"""Launches in a row group, at most: 20 MiB a thread with the published metrics."""

WORTH_PROCESSES = 8.0
"""Seconds of estimated work above which starting processes pays off."""

_TRIAL = 3
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

    def read_with(self, settings: IngestSettings) -> dict[str, Any]:
        """Return all that decides what is read from the files, as JSON values."""
        apart = {} if self.workload is None else {"told_apart": self.workload}
        return {**settings.as_dict(), **apart}

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
    substituted: tuple[Mapping[str, Any], ...] = ()


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
    process a core where the first runs show that it pays; an engine that `joblib.parallel_config`
    chose is taken as it is. Raises `InputError` if there is no profile, or the folder cannot be
    written.
    """
    notes: list[str] = []
    units = _units(group_runs(map(Path, paths), notes))
    landed = _ingested(units, Path(folder), settings or IngestSettings(), n_jobs, progress)
    landed.warnings = [*notes, *landed.warnings]
    return landed


def _ingested(
    units: Sequence[_Unit],
    folder: Path,
    settings: IngestSettings,
    n_jobs: int | None,
    progress: Progress | None,
) -> IngestResult:
    landed = IngestResult()
    with _incoming(folder) as incoming:
        known = Index(folder)
        units, warnings = _told_apart(units, known, settings.identity.workload)
        fresh = []
        for unit in units:
            runs = known.complete(unit.digest, unit.read_with(settings))
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
    landed.warnings = list(dict.fromkeys([*landed.warnings, *warnings]))
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


def _told_apart(
    units: Sequence[_Unit], known: Index, user: str | None
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
    landed = known.manifests_but({unit.digest for unit in units})
    found = told_apart([*started, *(started_by(run) for run, _ in landed)], user)
    named = list(units)
    for place, name in zip(places, map(found.names.get, range(len(places))), strict=True):
        named[place] = replace(units[place], workload=name)
    if any(found.names.get(len(places) + n, name) != name for n, (_, name) in enumerate(landed)):
        found.warnings.append(
            "ingest all runs together to tell them apart: runs already in the folder keep their "
            "workload"
        )
    return named, found.warnings


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
    return sha256_of("\n".join(sorted(lines)).encode())[:UNIT]


def _read_all(
    units: Sequence[_Unit], incoming: Path, settings: IngestSettings, n_jobs: int | None
) -> Iterator[_Written]:
    """Yield what became of each unit, as they finish."""
    import joblib
    from joblib.parallel import LokyBackend, get_active_backend

    chosen = n_jobs is not None or not isinstance(get_active_backend()[0], LokyBackend)
    trial = 0 if chosen else _TRIAL
    began = 0.0
    for number, unit in enumerate(units[:trial]):
        # the first also imports the readers, so the time of the others is what the rest will take
        began = time.perf_counter() if number == 1 else began
        yield _write(unit, incoming, settings)
    rest = units[trial:]
    each = (time.perf_counter() - began) / (_TRIAL - 1)
    if n_jobs == 1 or len(rest) < 2 or (not chosen and each * len(rest) < WORTH_PROCESSES):
        yield from (_write(unit, incoming, settings) for unit in rest)
        return
    engine = joblib.Parallel(n_jobs=n_jobs or -1, return_as="generator_unordered")
    home = os.getcwd()
    yield from engine(joblib.delayed(_write_at)(home, unit, incoming, settings) for unit in rest)


def _write_at(home: str, unit: _Unit, incoming: Path, settings: IngestSettings) -> _Written:
    """As `_write`, with paths relative to `home`: joblib keeps processes that started elsewhere."""
    with contextlib.suppress(OSError):  # another machine may lack it, and was given whole paths
        os.chdir(home)
    return _write(unit, incoming, settings)


def _write(unit: _Unit, incoming: Path, settings: IngestSettings) -> _Written:
    """Read one unit and write its runs into the incoming folder."""
    try:
        kernels = ingest_runs(unit.groups, settings=settings)
        if unit.workload is not None:
            kernels.frame["workload"] = unit.workload
        parts = list(_parts(kernels, unit, settings))
        written = []
        for number, (run, place, table) in enumerate(parts):
            path = incoming / f"{unit.digest}-{number}.parquet"
            _save(table, path)
            written.append((run, path, place))
    except PerfmlError as error:
        # as the plain class: subclasses with other arguments do not survive the way to the parent
        plain = PerfmlError(error.what, where=error.where, found=error.found, cure=error.cure)
        return _Written(unit, error=plain)
    read = kernels.provenance["sources"]
    stand_ins = tuple({"substituted": each.get("substituted", {})} for each in read)
    told = kernels.warnings
    return _Written(unit, tuple(written), len(kernels.frame), told, substituted=stand_ins)


def _save(table: Any, path: Path) -> None:
    import pyarrow.parquet as pq

    with replacing(path) as temporary:
        pq.write_table(table, temporary, compression="zstd", row_group_size=ROW_GROUP)


def _parts(
    kernels: Kernels, whole: _Unit, settings: IngestSettings
) -> Iterator[tuple[str, Path, Any]]:
    """Yield run, place in the folder and table of each run read."""
    keys = ["run_id", "workload", "backend"]
    groups = list(kernels.frame.groupby(keys, dropna=False, sort=False))
    unit = {
        "unit": whole.digest,
        "parts": len(groups),
        "settings": whole.read_with(settings),
    }
    for key, frame in groups:
        run, workload, backend = map(str, key)
        document = {
            **_of_run(kernels.provenance, run),
            "partition": unit,
            "kind": "kernels",
            "perfml": __version__,
        }
        place = Path(f"workload={safe(workload)}") / f"backend={safe(backend)}"
        yield run, place / f"{safe(run)}-{whole.digest}.parquet", _table(frame, document)


def _of_run(provenance: Mapping[str, Any], run: str) -> dict[str, Any]:
    """Keep of a provenance document what concerns one run."""
    kept = dict(provenance)
    for name in ("sources", "runs"):
        if name in kept:
            kept[name] = [each for each in kept[name] if each.get("run_id") == run]
    return kept


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


def _land(written: _Written, folder: Path, known: Index, landed: IngestResult) -> None:
    """Move a unit's files to their places; nothing of it moves if a run of it is taken."""
    unit = written.unit
    if written.error is not None:
        landed.failed.append((unit.name, written.error))
        return
    old = list(known.units.get(unit.digest, []))
    mine = set[Any]().union(*(loose_profiles(path) for _, path, _ in written.parts))
    shared = {each for each in known.sharing(mine) if each not in old} if mine else set()
    names = [safe(run) for run, _, _ in written.parts]
    runs = {known.runs[name] for name in names if name in known.runs} - set(old)
    # a profile that was read alone before its times came is replaced by the two together
    clash = [
        each
        for each in (*shared, *runs)
        if each in runs - shared or not loose_profiles(each) <= mine
    ]
    if clash:
        landed.failed.append((unit.name, _taken(clash[0])))
        return
    old += shared
    known.units.pop(unit.digest, None)
    for run, path, place in written.parts:
        target = folder / place
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            os.replace(path, target)
        except OSError as error:
            raise cannot_write(target, error) from error
        replaces = known.runs.get(safe(run)) in old
        (landed.replaced if replaces else landed.added).append(run)
        known.add(target)
    for path in old:
        if path not in known.units[unit.digest]:
            known.drop(path)
            path.unlink(missing_ok=True)
    landed.kernels += written.kernels
    landed.warnings += written.warnings
    landed.substituted += [each for each in written.substituted if each not in landed.substituted]


def _taken(path: Path) -> PerfmlError:
    msg = "this folder has the run already, from other files"
    cure = "Remove that file if the new recording replaces it, or name another folder."
    return InputError(msg, where=str(path), cure=cure)


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
