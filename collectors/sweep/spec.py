"""A sweep's file: a matrix of options, validated whole and expanded to runs.

The expansion follows what CI systems made familiar: every combination of the axes of ``matrix``,
less those that ``exclude`` matches; an entry of ``include`` that agrees with a combination in all
axes it names adds its other options to it, and one that agrees with none is a run of its own.
"""

from __future__ import annotations

import difflib
import itertools
import math
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collectors.run_spec import Run, metric_names
from collectors.settings import OPTIONS as SETTINGS
from collectors.settings import Settings
from collectors.sweep.options import OPTIONS
from collectors.sweep.yaml_file import Document, read_yaml
from perfml.errors import InputError, PerfmlError
from perfml.metrics import load_catalogue
from perfml.metrics.passes import load_passes

MOST_RUNS = 20_000
_TOP = ("matrix", "defaults", "include", "exclude", "out", "timeout", "launcher")
_BUILT_IN_ONLY = ("backend", "precision", "batch", "cfg", "cudnn_benchmark", "set")


@dataclass(frozen=True)
class Sweep:
    """A sweep that was found to be right."""

    path: Path
    # Its runs by id, in the order of the file. Ids are those of now: they depend on the content of
    # the files a command names.
    runs: dict[str, Run]
    twins: int = 0  # how many combinations were left out because they are the same run as another
    out: Path | None = None  # folder of the results, as the file names it; None if it does not
    launcher: tuple[str, ...] = ()  # goes in front of every command
    timeout_s: float = 1800.0  # limit of each command


@dataclass
class _Point:
    """One combination: its options, and where each was said."""

    options: dict[str, Any]
    keys: dict[str, tuple[str | int, ...]]


def read_sweep(path: str | Path) -> Sweep:
    """Read and validate a sweep's file; nothing is started.

    Raises `InputError` if anything in it is wrong: the first fault, with its line, and how many
    more there are. Raises `MissingExtraError` if PyYAML is not installed.
    """
    document = read_yaml(path)
    return _Expansion(document).sweep()


class _Expansion:
    """Expands one file; collects the faults of all runs before it refuses."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.folder = document.path.resolve().parent
        self.metrics: dict[tuple[str, ...], tuple[tuple[str, ...], tuple[str, ...]]] = {}

    def sweep(self) -> Sweep:
        top = self.document.value
        if not isinstance(top, dict) or not top:
            msg = "no sweep in it"
            cure = "It starts with:\nmatrix: {workload: [yolov4-tiny], backend: [cublas, cudnn]}"
            raise InputError(msg, where=str(self.document.path), cure=cure.replace("\n", " "))
        self._known(top, _TOP, ())
        points = self._points(top)
        runs: dict[str, Run] = {}
        faults: list[PerfmlError] = []
        for point in points:
            try:
                run = self._run(point)
                runs.setdefault(run.run_id, run)
            except PerfmlError as error:
                faults.append(error)
        if faults:
            raise _first_of(faults)
        return Sweep(
            self.document.path,
            runs,
            len(points) - len(runs),
            *self._top_options(top),
        )

    def _top_options(self, top: dict[str, Any]) -> tuple[Any, ...]:
        out = self._typed(top, "out", str)
        words = _words(self._typed(top, "launcher", str) or "", self.document.where("launcher"))
        timeout = top.get("timeout", 1800)
        if isinstance(timeout, bool) or not isinstance(timeout, (int, float)) or not timeout >= 1:
            msg = "a time limit is a number of seconds from 1"
            raise InputError(msg, where=self.document.where("timeout"), found=str(timeout))
        beside = self.document.path.parent
        return (beside / out if out else None, tuple(words), float(timeout))

    def _typed(self, top: dict[str, Any], name: str, kind: type) -> Any:
        value = top.get(name)
        if value is not None and not isinstance(value, kind):
            words = {"str": "a text", "dict": "a list of keys and values", "list": "a list"}
            msg = f"{name} must be {words[kind.__name__]}"
            raise InputError(msg, where=self.document.where(name), found=str(value)[:100])
        return value

    def _known(
        self, found: dict[str, Any], known: tuple[str, ...], keys: tuple[str | int, ...]
    ) -> None:
        for name in found:
            if name not in known:
                close = difflib.get_close_matches(name, known, 1)
                cure = f"Did you mean {close[0]}?" if close else f"Known: {', '.join(known)}."
                msg = f"there is no option {name!r}"
                raise InputError(msg, where=self.document.where(*keys, name), cure=cure)

    def _points(self, top: dict[str, Any]) -> list[_Point]:
        matrix = self._typed(top, "matrix", dict) or {}
        defaults = self._typed(top, "defaults", dict) or {}
        self._known(matrix, tuple(OPTIONS), ("matrix",))
        self._known(defaults, tuple(OPTIONS), ("defaults",))
        points = list(self._product(matrix))
        points = self._without(points, matrix, defaults, self._entries(top, "exclude"))
        points = self._with(points, matrix, self._entries(top, "include"))
        if not points:
            msg = "the sweep has no run"
            cure = "Name at least a workload: matrix: {workload: [yolov4-tiny]}"
            raise InputError(msg, where=str(self.document.path), cure=cure)
        return [_completed(point, defaults) for point in points]

    def _product(self, matrix: dict[str, Any]) -> Iterator[_Point]:
        axes: list[list[tuple[str, Any, tuple[str | int, ...]]]] = []
        for name, given in matrix.items():
            key: tuple[str | int, ...] = ("matrix", name)
            if isinstance(given, list):
                values = [(name, value, (*key, index)) for index, value in enumerate(given)]
            else:
                values = [(name, given, key)]
            if not values:
                msg = f"the axis {name} has no value"
                raise InputError(msg, where=self.document.where(*key), cure="Leave it out.")
            axes.append(values)
        size = math.prod(len(axis) for axis in axes)
        if size > MOST_RUNS:
            msg = "the matrix has too many combinations"
            cure = f"Split it: one sweep has at most {MOST_RUNS:,} runs."
            raise InputError(msg, where=self.document.where("matrix"), found=f"{size:,}", cure=cure)
        if not axes:
            return
        for combination in itertools.product(*axes):
            options = {name: value for name, value, _ in combination}
            yield _Point(options, {name: key for name, _, key in combination})

    def _entries(self, top: dict[str, Any], name: str) -> list[dict[str, Any]]:
        entries = self._typed(top, name, list) or []
        for index, entry in enumerate(entries):
            if not isinstance(entry, dict) or not entry:
                msg = f"an entry of {name} is a set of options"
                where = self.document.where(name, index)
                raise InputError(msg, where=where, found=str(entry)[:100], cure="{backend: cudnn}")
            self._known(entry, tuple(OPTIONS), (name, index))
        return entries

    def _without(
        self,
        points: list[_Point],
        matrix: dict[str, Any],
        defaults: dict[str, Any],
        entries: list[dict[str, Any]],
    ) -> list[_Point]:
        for index, entry in enumerate(entries):
            for name in entry:
                if name not in matrix and name not in defaults:
                    msg = f"{name} is no axis of the matrix"
                    where = self.document.where("exclude", index, name)
                    raise InputError(msg, where=where, cure=f"Axes: {', '.join(matrix)}.")
            kept = [
                point for point in points if not _agrees({**defaults, **point.options}, entry, None)
            ]
            if len(kept) == len(points):
                msg = "this excludes nothing"
                where = self.document.where("exclude", index)
                cure = "Check its values; an entry before it may have excluded the same already."
                raise InputError(msg, where=where, found=str(entry)[:200], cure=cure)
            points = kept
        return points

    def _with(
        self, points: list[_Point], matrix: dict[str, Any], entries: list[dict[str, Any]]
    ) -> list[_Point]:
        added: list[_Point] = []
        for index, entry in enumerate(entries):
            keys: dict[str, tuple[str | int, ...]] = {
                name: ("include", index, name) for name in entry
            }
            # another program is no addition to a combination, whatever else it agrees in
            other = any(name in entry and name not in matrix for name in ("workload", "command"))
            agreeing = [
                point for point in points if not other and _agrees(point.options, entry, matrix)
            ]
            for point in agreeing:
                point.options |= {name: entry[name] for name in entry if name not in matrix}
                point.keys |= {name: keys[name] for name in entry if name not in matrix}
            if not agreeing:
                added.append(_Point(dict(entry), keys))
        return [*points, *added]

    def _run(self, point: _Point) -> Run:
        values: dict[str, Any] = {}
        for name, given in point.options.items():
            try:
                values[name] = OPTIONS[name](given)
            except ValueError as error:
                msg = f"{name} must be {error}"
                raise InputError(msg, where=self._where(point, name), found=repr(given)) from error
        for name in ("cfg", "layer_map"):
            if name in values:
                values[name] = self._file(point, name, values[name])
        if ("workload" in values) == ("command" in values):
            msg = "a run needs a workload or a command, not both"
            where = self._where(point, next(iter(point.options)))
            raise InputError(msg, where=where, found=_shown(point.options))
        try:
            return self._program(point, values) if "command" in values else self._built_in(values)
        except PerfmlError as error:
            raise self._placed(error, point) from error

    def _file(self, point: _Point, name: str, given: str) -> str:
        path = self.folder / given
        if not path.is_file():
            msg = f"{name} names no file"
            cure = "Paths start at the folder of the sweep's file."
            raise InputError(msg, where=self._where(point, name), found=str(given), cure=cure)
        return str(path)

    def _settings(self, values: dict[str, Any]) -> Settings:
        known, raw = self._metrics(values.get("metrics", ("default",)))
        options = {name: values[name] for name in SETTINGS if name in values}
        words = ["--cudnn-benchmark"] if values.get("cudnn_benchmark") else []
        for pair in values.get("set", ()):
            words += ["--set", pair]
        words += ["--cfg", values["cfg"]] if "cfg" in values else []
        return Settings(metrics=known, raw_metrics=raw, workload_options=tuple(words), **options)

    def _metrics(self, names: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        if names not in self.metrics:
            files = (".txt", ".csv", ".list")
            found = [str(self.folder / name) if name.endswith(files) else name for name in names]
            try:
                self.metrics[names] = metric_names(found)
            except PerfmlError as error:
                raise InputError(
                    error.what, where="--metrics", found=error.found, cure=error.cure
                ) from error
        return self.metrics[names]

    def _built_in(self, values: dict[str, Any]) -> Run:
        from collectors.workloads import default_backends, workload

        if "layer_map" in values:
            msg = "a layer map is for programs without ranges"
            raise InputError(msg, where="--layer-map", cure="Leave it out.")
        found = workload(values["workload"])
        backend = values.get("backend", default_backends(values["workload"])[0])
        precision = values.get("precision", "fp32")
        if precision not in found.precisions(backend):
            offered = ", ".join(found.precisions(backend))
            msg = f"{backend} does not offer this precision"
            cure = (
                f"It offers {offered}. Exclude the combination: "
                f"exclude: [{{backend: {backend}, precision: {precision}}}]"
            )
            raise InputError(msg, where="--precision", found=precision, cure=cure)
        batch = values.get("batch", 1)
        settings = self._settings(values)
        return Run(values["workload"], backend, precision, batch, settings=settings)

    def _program(self, point: _Point, values: dict[str, Any]) -> Run:
        from collectors.collect import program_name

        for name in _BUILT_IN_ONLY:
            if name in values:
                msg = f"a command has no {name}: that is for built-in workloads"
                cure = "Put it into the command, or exclude the combination."
                raise InputError(msg, where=self._where(point, name), cure=cure)
        mapped = None
        if "layer_map" in values:
            from perfml.ingest.layer_map import read_layer_map

            mapped = read_layer_map(values["layer_map"]).as_dict()
        words = values["command"]
        return Run(
            program_name(words), program=words, layer_map=mapped, settings=self._settings(values)
        )

    def _where(self, point: _Point, name: str) -> str:
        keys = point.keys.get(name, ())
        return self.document.where(*keys)

    def _placed(self, error: PerfmlError, point: _Point) -> PerfmlError:
        """Return an error about an option of `collect` as one about a line of the file."""
        option = (error.where or "").removeprefix("--").replace("-", "_").lower()
        option = "layers" if option == "layer" else option  # of a run it is one pattern
        if option not in point.keys:
            if error.where and error.where.startswith(str(self.document.path)):
                return error
            option = next((name for name in point.options if name in (error.where or "")), "")
        where = self._where(point, option) if option else self.document.where("matrix")
        what = error.what if option or not error.where else f"{error.what} ({error.where})"
        return InputError(what, where=where, found=error.found, cure=error.cure)


def _completed(point: _Point, defaults: dict[str, Any]) -> _Point:
    """Return a combination with the defaults it does not override.

    A command overrides a default workload and what belongs to it, and the other way round.
    """
    other = {"command": ("workload", *_BUILT_IN_ONLY), "workload": ("command", "layer_map")}
    left_out = {each for name in other if name in point.options for each in other[name]}
    kept = {
        name: value
        for name, value in defaults.items()
        if name not in point.options and name not in left_out
    }
    keys: dict[str, tuple[str | int, ...]] = {name: ("defaults", name) for name in kept}
    return _Point({**kept, **point.options}, {**keys, **point.keys})


def _agrees(options: dict[str, Any], entry: dict[str, Any], axes: dict[str, Any] | None) -> bool:
    """Tell whether a combination has an entry's values, in the axes or in all it names."""
    names = [name for name in entry if axes is None or name in axes]
    return all(name in options and options[name] == entry[name] for name in names)


def _first_of(faults: list[PerfmlError]) -> PerfmlError:
    """Return the first fault; it tells how many other lines have one."""
    first = faults[0]
    others = {fault.where for fault in faults} - {first.where}
    if others:
        lines = sorted(
            int(number)
            for other in others
            if (number := (other or "").rpartition(":")[2]).isdigit()
        )
        more = f"Also wrong: line {', '.join(map(str, lines[:8]))}."
        first = InputError(
            first.what,
            where=first.where,
            found=first.found,
            cure=f"{first.cure} {more}" if first.cure else more,
        )
    return first


def _shown(options: dict[str, Any]) -> str:
    return ", ".join(f"{name}: {value}" for name, value in options.items())[:200]


def _words(given: str, where: str) -> list[str]:
    try:
        return shlex.split(given)
    except ValueError as error:
        msg = "quotes do not match"
        raise InputError(msg, where=where, found=given) from error


def longest_first(runs: Mapping[str, Run]) -> list[str]:
    """Return the ids of the runs, the longest first, so that the last to end is a short one."""
    return sorted(runs, key=lambda run_id: -_relative_length(runs[run_id]))


def _relative_length(run: Run) -> int:
    """Return a number that is larger for a longer run: passes x iterations x batch.

    Kernel replay takes time in proportion to passes and launches; cuBLAS launches once an image.
    """
    settings = run.settings
    asked = load_catalogue().select(settings.metrics) if settings.metrics else ()
    counts = load_passes()
    # a metric whose passes nobody measured does not change the order
    known = [name for name in asked if counts.known(name)]
    passes = counts.estimate(known).passes if known else 1
    return passes * settings.metric_iterations * (run.batch or 1)
