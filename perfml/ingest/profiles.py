"""Ingest: profiler exports in, one Kernels table with provenance out.

A run's files belong together: its metrics, its timing pass, its ``run.json``. They are found in
the run's folder, or by name (``X.csv`` and ``X_timing.csv``).
"""

from __future__ import annotations

import datetime
import math
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd

from perfml.account.account import ACCOUNT
from perfml.account.window import window_of_each
from perfml.errors import InputError, PerfmlError
from perfml.experiments.record import FILE as EXPERIMENTS
from perfml.ingest.inferred import MIXED, NAMED_BY_CLASS, precision_of, with_phases
from perfml.ingest.layer_map import LayerMap, apply_layer_map
from perfml.ingest.run_labels import (
    CONDITION,
    MANIFEST,
    SHAPES,
    Identity,
    Started,
    command_of,
    from_manifest,
    from_name,
    pair_key,
    read_manifest,
    told_apart,
    with_products,
)
from perfml.ingest.timing import (
    TRACES,
    join_timing,
    joined_processes,
    named_layers,
    with_gaps,
    with_processes,
    with_trace,
)
from perfml.readers import ENDINGS, ReadOptions, Source, read, recognise, trtexec
from perfml.readers.nvprof.kernels import LOG_RUNS
from perfml.readers.torch_trace import BY_OPERATOR
from perfml.tables import CLOCK, Kernels, metric_columns, validate_kernels
from perfml.util.typing import Progress
from perfml.util.words import first_few

UNKNOWN = "unknown"
_COMPRESSED = (".gz", ".xz", ".bz2")
_STEP = re.compile(r"ProfilerStep|(\w+[_ ])?(step|iter|iteration)", re.IGNORECASE)
"""What ranges are called that mark steps; one around a request holds many."""
_MOST_RANKS = 1 << 20
_NOT_PROFILES = ("log.txt", "lines.csv", EXPERIMENTS)
"""Files of a run folder that are no profiles: what programs printed, experiments."""
_ANY_DOCUMENT = ".json"
_ANY_TEXT = (".txt", ".log")
"""Endings that say nothing: of a folder's such files those that a reader knows are taken."""

_TIMED = TRACES | {"timing-csv"}
"""Formats of times that counters of the same run take over."""


@dataclass(frozen=True)
class IngestSettings:
    """What the user tells of all profiles."""

    # overrides the workload, backend, precision or batch of every run read
    identity: Identity = field(default_factory=Identity)
    options: ReadOptions = field(default_factory=ReadOptions)  # what the user tells the readers
    # ordered kernel patterns that give layers to programs without ranges
    layer_map: LayerMap | None = None
    # name for all launches outside every range: a log of one layer has no other
    layer: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the settings as JSON values."""
        mapped = self.layer_map.as_dict() if self.layer_map is not None else None
        plain = {"identity": asdict(self.identity), "options": asdict(self.options)}
        return {**plain, "layer_map": mapped, "layer": self.layer}


@dataclass
class _Run:
    """The files of one run, and what they hold."""

    files: list[Path]
    found: list[Kernels]
    manifest: dict[str, Any]
    collected: bool
    part: int = 0  # of a file with several runs, from 1 on


def ingest(
    paths: Iterable[str | Path],
    *,
    settings: IngestSettings | None = None,
    progress: Progress | None = None,
) -> Kernels:
    """Read profiles and join each run's metrics with its times.

    Parameters
    ----------
    paths
        Exports, run folders, or folders of either.
    settings
        What the user tells of all of them.
    progress
        Called as ``progress(done, total, name)``.

    Returns
    -------
    Kernels
        All launches; ``provenance["sources"]`` lists every file with its hash and tool.

    Raises
    ------
    InputError
        If a file is no profile, holds no kernels, or has no partner that it needs.
    """
    notes: list[str] = []
    kernels = ingest_runs(group_runs(map(Path, paths), notes), settings=settings, progress=progress)
    if not notes:
        return kernels
    said = (*notes, *kernels.warnings)
    provenance = {**kernels.provenance, "warnings": list(said)}
    return replace(kernels, provenance=provenance, warnings=said)


def ingest_runs(
    groups: Sequence[tuple[list[Path], Path | None]],
    *,
    settings: IngestSettings | None = None,
    progress: Progress | None = None,
) -> Kernels:
    """Read runs whose files `group_runs` has put together; otherwise as `ingest`."""
    settings = settings or IngestSettings()
    user = settings.identity
    total = sum(len(files) for files, _ in groups)
    done = 0
    runs: list[_Run] = []
    for files, manifest in groups:
        document = read_manifest(manifest) if manifest is not None else {}
        options = replace(settings.options, windows=_windows(document))
        found: list[Kernels] = []
        for path in files:
            if progress is not None:
                progress(done, total, path.name)
            found.append(read(path, options))
            done += 1
        if settings.layer_map is not None:
            document = {**document, "layer_map": settings.layer_map.as_dict()}
        runs.append(_Run(files, found, document, manifest is not None))
    frames: list[pd.DataFrame] = []
    sources: list[dict[str, Any]] = []
    manifests: list[dict[str, Any]] = []
    warnings: list[str] = []
    started: list[Started] = []
    runs = [part for run in _paired(runs) for part in _parts(run)]
    for run in runs:
        frame, notes = _one_run(run, user)
        if settings.layer is not None:
            frame["layer"] = frame["layer"].fillna(settings.layer)
        if run.part:
            frame["run_id"] += f"-{run.part}"
            frame["workload"] += "" if user.workload else f" run {run.part}"
        frames.append(frame)
        run_id = str(frame["run_id"].iloc[0])
        condition = tuple(str(frame[name].iloc[0]) for name in CONDITION)
        started.append((condition, command_of(run.manifest, run.found)))
        named = run.manifest.get("workload") or user.workload
        guess = {} if named else {"workload_from": "file name"}
        # one of other steps than the table's would contradict it, and what runs a built-in workload
        # waits between its layers
        built_in = run.collected and not run.manifest.get("program")
        left_out = {ACCOUNT} if built_in or NAMED_BY_CLASS in notes else set()
        facts = [{k: v for k, v in p.provenance.items() if k not in left_out} for p in run.found]
        facts = [_beside_bare(fact, run.manifest) for fact in facts]
        sources += [{"run_id": run_id, **guess, **fact} for fact in facts]
        prefix = f"{run_id}/" if run.collected else ""
        warnings += [
            type(note)(f"{prefix}{kernels.provenance.get('path')}: {note}")
            for kernels in run.found
            for note in kernels.warnings
            if note != trtexec.TIMELESS or len(run.found) == 1
            # layers by class are better than those
            if note != BY_OPERATOR or NAMED_BY_CLASS not in notes
        ]
        warnings += notes
        if run.collected:
            manifests.append({"run_id": run_id, **run.manifest})
    warnings += _copies(sources)
    _name_precisions(frames, runs)
    workloads, notes = told_apart(started, user.workload)
    for place, name in workloads.items():
        frames[place]["workload"] = pd.array([name] * len(frames[place]), dtype="string")
    warnings += notes
    if progress is not None:
        progress(total, total, "done")
    provenance: dict[str, Any] = {
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "python": sys.version.split()[0],
        "sources": sources,
    }
    if manifests:
        provenance["runs"] = manifests
    shapes = _shapes({run.files[0].parent for run in runs if not run.collected})
    if shapes:
        provenance["layers"] = shapes
    if warnings:
        provenance["warnings"] = warnings
    return Kernels(validate_kernels(_stack(frames)), provenance, tuple(warnings))


def _parts(run: _Run) -> list[_Run]:
    """Return the runs of a log in which nvprof timed several, one after another."""
    first, *others = run.found
    of, frame = first.provenance.get(LOG_RUNS) or {}, first.frame
    if others or len(set(of.values())) < 2 or "process" not in frame or metric_columns(frame):
        return [run]
    number = frame["process"].map(of)
    said = (
        f"{number.nunique()} runs are in this file, each a workload of its own. If they repeat "
        "each other, add --label workload=NAME"
    )
    return [
        replace(
            run,
            part=part,
            found=[Kernels(rows.reset_index(drop=True), first.provenance, (*first.warnings, said))],
        )
        for part, (_, rows) in enumerate(frame.groupby(number, sort=True), 1)
    ]


def _name_precisions(frames: Sequence[pd.DataFrame], runs: Sequence[_Run]) -> None:
    """Give runs of the user's own programs the precision that their kernels' names tell.

    Runs of one program have one: what one of them was too short to tell another one does.
    """
    programs: dict[tuple[str, ...], list[pd.DataFrame]] = {}
    for frame, run in zip(frames, runs, strict=True):
        command = command_of(run.manifest, run.found)
        if run.collected and command and frame["precision"].eq(UNKNOWN).all():
            programs.setdefault(command, []).append(frame)
    for same in programs.values():
        found = precision_of(pd.concat([frame[["kernel", "time_us"]] for frame in same]))
        for frame in same:
            frame["precision"] = pd.array([found or UNKNOWN] * len(frame), dtype="string")


def _copies(sources: Sequence[dict[str, Any]]) -> list[str]:
    """Say which files are copies of each other: their launches count as often as they are."""
    names: dict[str, list[str]] = {}
    for source in sources:
        digest = source.get("sha256")
        if isinstance(digest, str):
            names.setdefault(digest, []).append(str(source.get("path")))
    return [
        f"{', '.join(same)} have the same content, and count as repeats of each other"
        for same in names.values()
        if len(same) > 1
    ]


def _shapes(folders: Iterable[Path]) -> list[Any]:
    """Return the layer shapes that lie beside loose profiles."""
    found: list[Any] = []
    for path in sorted(folder / SHAPES for folder in folders):
        if path.is_file():
            rows = read_manifest(path).get("layers")
            if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
                msg = "not a list of layer shapes under the key layers"
                raise InputError(msg, where=str(path), cure="Correct the file, or remove it.")
            found += rows
    return found


def _stack(frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Concatenate runs; a column that one run lacks is missing there, whatever its type."""
    columns = list(dict.fromkeys(name for frame in frames for name in frame.columns))
    types = {name: frame[name].dtype for frame in frames for name in frame.columns}
    whole = []
    for frame in frames:
        lacking = [name for name in columns if name not in frame.columns]
        blank = pd.DataFrame(
            {
                name: pd.Series(None, index=frame.index).astype(_nullable(types[name]))
                for name in lacking
            }
        )
        whole.append(pd.concat([frame, blank], axis=1))
    return pd.concat(whole, ignore_index=True)


def _nullable(dtype: Any) -> Any:
    if pd.api.types.is_integer_dtype(dtype):
        return "Int64"
    return "float64" if pd.api.types.is_float_dtype(dtype) else "string"


def group_runs(
    paths: Iterable[Path], notes: list[str] | None = None
) -> list[tuple[list[Path], Path | None]]:
    """Group files into runs: a folder with a manifest is one, loose files pair up by name.

    Returned are the profiles of each run, and its ``run.json`` or None; `notes` gets a sentence for
    every folder with text files that are no profiles.
    """
    runs: list[tuple[list[Path], Path | None]] = []
    loose: list[Path] = []
    for path in paths:
        if not path.is_dir():
            loose.append(path)
            continue
        folders = sorted({manifest.parent for manifest in path.rglob(MANIFEST)})
        for folder in folders:
            runs.append((_chosen(_profiles(folder, notes), folder), folder / MANIFEST))
        if not folders:
            files = _profiles(path, notes, ending_is_a_promise=False)
            if not files:
                msg = "no profile in this folder"
                raise InputError(
                    msg,
                    where=str(path),
                    found=", ".join(sorted(entry.name for entry in path.iterdir())[:5])
                    or "nothing",
                    cure=f"Looked for {MANIFEST} and for files ending in {', '.join(ENDINGS)}.",
                )
            loose += files
    pairs: dict[tuple[Path, str], list[Path]] = {}
    for path in _once(loose, notes):
        pairs.setdefault((path.parent, pair_key(path)), []).append(path)
    return runs + [(files, None) for files in pairs.values()]


def _once(files: Sequence[Path], notes: list[str] | None) -> list[Path]:
    """Return each file once, and note those that were named again: launches would be doubled."""
    kept: dict[Path, Path] = {}
    for path in files:
        if path.resolve() in kept and notes is not None:
            notes.append(f"{path.name} was named more than once, and is read once")
        kept.setdefault(path.resolve(), path)
    return list(kept.values())


def _profiles(
    folder: Path, notes: list[str] | None, *, ending_is_a_promise: bool = True
) -> list[Path]:
    """Return the profiles of a folder; text that is none is noted.

    With `ending_is_a_promise` a ``.csv`` has to be one: a collected run holds no other.
    """
    texts_too = _ANY_TEXT if ending_is_a_promise else (*_ANY_TEXT, ".csv")

    def ending(path: Path) -> str:
        name = path.name.lower()
        for suffix in _COMPRESSED:
            name = name.removesuffix(suffix)
        return Path(name).suffix

    named = sorted(
        path
        for path in folder.iterdir()
        if path.is_file() and ending(path) in ENDINGS and path.name not in _NOT_PROFILES
    )
    unsure = [path for path in named if ending(path) in (_ANY_DOCUMENT, *texts_too)]
    unknown = {path for path in unsure if not _known(path)}
    texts = [path.name for path in named if path in unknown and ending(path) in texts_too]
    if texts and notes is not None:
        said = "text that is no profile was left out"
        notes.append(f"{folder.name}: {said}: {first_few(texts)}")
    return [path for path in named if path not in unknown]


def _known(path: Path) -> bool:
    """Tell whether a reader knows a file's content; no error says so of files not asked for."""
    try:
        recognise(Source(path))
    except PerfmlError:
        return False
    return True


def _chosen(files: list[Path], folder: Path) -> list[Path]:
    """Of a run's two copies of the same metrics take the CSV, which needs no vendor package."""
    csv = [path for path in files if path.name.startswith("metrics.csv")]
    if csv:
        files = [path for path in files if path.suffix != ".ncu-rep"]
    if not files:
        msg = "this run has no profile"
        raise InputError(
            msg,
            where=str(folder),
            found=f"{MANIFEST} alone",
            cure="Collect again with the same command: unfinished runs are done over.",
        )
    return files


def _one_run(run: _Run, user: Identity) -> tuple[pd.DataFrame, list[str]]:
    """Join the files of one run, and write its identity into the table."""
    files, found, manifest = run.files, run.found, run.manifest
    found = _with_layers(found, manifest)
    found = named_layers(found)
    timings = [each for each in found if each.provenance.get("format") in _TIMED]
    profiles = [each for each in found if each.provenance.get("format") not in _TIMED]
    where = str(files[0])
    if run.collected:
        timings = joined_processes(timings)
    timings = [_with_gaps(timing, manifest) for timing in timings]
    if len(timings) > 1:
        msg = "one run has several timing passes"
        names = ", ".join(str(timing.provenance.get("path")) for timing in timings)
        raise InputError(msg, where=where, found=names, cure="Keep one.")
    profiles = _joined_nvprof(profiles)
    if not profiles:
        profiles, timings = list(timings), []
    notes = _of_a_server(manifest)
    frames = [profile.frame for profile in profiles]
    if timings:
        if len(frames) > 1:
            msg = "one run has several profiles and one timing pass"
            raise InputError(msg, where=where, found=str(len(frames)), cure="Ingest them apart.")
        where = str(manifest.get("run_id") or (files[0].parent.name if run.collected else ""))
        where = where or pair_key(files[0])
        if timings[0].provenance.get("format") in TRACES:
            profiles[0], said = with_trace(profiles[0], timings[0], where=where)
            notes += said
            frames = [profiles[0].frame]
        else:
            joined, said = join_timing(frames[0], timings[0].frame, where=where)
            notes += said
            frames = [with_processes(joined, timings[0].frame)]
    told = Identity(backend=found[0].provenance.get("backend"))
    guess = from_manifest(manifest).over(from_name(files[0])).over(told)
    known = user.over(guess)
    if known.precision and known.precision != user.over(from_manifest(manifest)).precision:
        launches = pd.concat([frame[["kernel", "time_us"]] for frame in frames])
        precision, said = _checked(known.precision, launches)
        known, notes = replace(known, precision=precision), [*notes, *said]
    parts = []
    for frame, each in zip(frames, profiles, strict=True):
        named = with_products(frame.copy(), manifest)
        if not _marked(each):
            named, by_class = with_phases(named)
            notes = [*notes, *by_class]
        digest = str(each.provenance.get("sha256", ""))[:8]
        named["run_id"] = str(manifest.get("run_id") or f"{pair_key(files[0])}-{digest}")
        named["workload"] = known.workload or UNKNOWN
        named["backend"] = known.backend or UNKNOWN
        named["precision"] = known.precision or UNKNOWN
        named["batch"] = pd.array([known.batch] * len(named), dtype="Int64")
        rank = manifest.get("rank")
        if isinstance(rank, int) and 0 <= rank < _MOST_RANKS:  # each is a run of its own
            named["process"] = rank
        clock = (manifest.get("timing") or {}).get(CLOCK)
        if isinstance(clock, int | float):
            named[CLOCK] = float(clock)
        for name, key in (("device", "device"), ("compute_capability", "compute_capability")):
            if named[name].isna().all() and manifest.get(key):
                named[name] = str(manifest[key])
        for name in ("run_id", "workload", "backend", "precision", "device", "compute_capability"):
            named[name] = named[name].astype("string")
        parts.append(named)
    return _stack(parts), notes


def _checked(guess: str, launches: pd.DataFrame) -> tuple[str, list[str]]:
    """Return the precision of a run of which a file's name alone tells one, and what to say.

    The names of kernels are no guess: where they tell another one, they decide.
    """
    told = precision_of(launches)
    if told in (guess, MIXED):
        return guess, []
    label = "--label precision=NAME says another"
    if told is None:
        return guess, [f"precision {guess} is only what the file's name says: {label}"]
    return told, [f"the file's name says {guess}, and its kernels compute in {told}: {label}"]


def _marked(profile: Kernels) -> bool:
    """Return whether it is known what the steps are: what repeats is no better guess."""
    account = profile.provenance.get(ACCOUNT, {})
    named = _STEP.fullmatch(str(account.get("marked_by"))) is not None
    return named or bool(account.get("trains"))


def _beside_bare(facts: dict[str, Any], manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return a profile's facts with the step that the run was timed at without a profiler."""
    timing = manifest.get("timing")
    steps = timing.get("step_us") if isinstance(timing, dict) else None
    times = [step for step in steps if _is_time(step)] if isinstance(steps, list) else []
    if not times or not (facts.get(ACCOUNT) or {}).get("marked_by"):
        return facts
    return {**facts, ACCOUNT: {**facts[ACCOUNT], "bare_steps_us": times}}


def _is_time(value: object) -> bool:
    return isinstance(value, int | float) and 0 < value < math.inf


def _of_a_server(manifest: dict[str, Any]) -> list[str]:
    """Say how much of the time was recorded of a process that somebody attached to."""
    timing = manifest.get("timing")
    share = timing.get("seen_share") if isinstance(timing, dict) else None
    if not isinstance(timing, dict) or not isinstance(share, int | float) or share >= 1:
        return []
    said = (
        f"{manifest.get('run_id')}: kernels were recorded in {timing.get('windows')} windows, "
        f"{share:.1%} of the time. Their times and shares hold; sums are those of the windows."
    )
    return [said]


def _with_gaps(timing: Kernels, manifest: dict[str, Any]) -> Kernels:
    """Give a collected program's timing pass the gaps between its kernels; a trace has them."""
    if timing.provenance.get("format") != "timing-csv":
        return timing
    frame = with_gaps(timing.frame, program=bool(manifest.get("program")))
    if (windows := _windows(manifest)) > 1 and "gap_us" in frame:
        start, time = (frame[name].to_numpy(dtype=float) for name in ("start_us", "time_us"))
        begun = pd.Series(start).groupby(window_of_each(start, time, windows)).idxmin()
        frame["gap_us"] = frame["gap_us"].mask(pd.Series(frame.index).isin(begun).to_numpy())
    return replace(timing, frame=frame)


def _windows(manifest: Mapping[str, Any]) -> int:
    """Return in how many windows a run was recorded."""
    timing = manifest.get("timing")
    windows = timing.get("windows") if isinstance(timing, dict) else None
    return windows if isinstance(windows, int) else 1


def _with_layers(found: Sequence[Kernels], manifest: dict[str, Any]) -> list[Kernels]:
    """Apply the manifest's layer map, where it has one."""
    if not manifest.get("layer_map"):
        return list(found)
    layer_map = LayerMap.from_dict(manifest["layer_map"], where=MANIFEST)
    return [replace(each, frame=apply_layer_map(each.frame, layer_map)) for each in found]


def _timeless(run: _Run) -> bool:
    return all(kernels.frame["time_us"].isna().all() for kernels in run.found)


def _format(run: _Run) -> str:
    """Return the format of a run's only file; empty of several, or of a collected run."""
    alone = len(run.found) == 1 and not run.collected
    return str(run.found[0].provenance.get("format", "")) if alone else ""


def _paired(runs: list[_Run]) -> list[_Run]:
    """Put files without times together with the one that has the times of the same program.

    They are a metrics log of nvprof and a timed log of its command, and layer information of
    trtexec and a profile in its folder that has its layers.
    """
    timed = [run for run in runs if not _timeless(run)]
    paired = list(runs)
    for run in runs:
        if not _timeless(run) or not _format(run):
            continue
        partners = [other for other in timed if _of_one_program(run, other)]
        if len(partners) == 1:
            # an engine is called as its profile is
            engine = _format(run) == trtexec.LAYER_INFO
            both = (partners[0].files, run.files) if engine else (run.files, partners[0].files)
            run.files = [*both[0], *both[1]]
            run.found += partners[0].found
            paired.remove(partners[0])
            timed.remove(partners[0])
    return paired


def _of_one_program(run: _Run, timed: _Run) -> bool:
    own, times = run.found[0], timed.found[0]
    if _format(run).startswith("nvprof") and _format(timed).startswith("nvprof"):
        return bool(own.provenance.get("command") == times.provenance.get("command"))
    if (_format(run), _format(timed)) != (trtexec.LAYER_INFO, trtexec.NAME):
        return False
    return run.files[0].parent == timed.files[0].parent and trtexec.of_one_engine(times, own)


def _joined_nvprof(profiles: list[Kernels]) -> list[Kernels]:
    timeless = [profile for profile in profiles if profile.frame["time_us"].isna().all()]
    timed = [profile for profile in profiles if not profile.frame["time_us"].isna().all()]
    if len(timeless) != 1 or len(timed) != 1:
        return profiles
    from perfml.readers.nvprof.kernels import join

    return [join(timeless[0], timed[0])]
