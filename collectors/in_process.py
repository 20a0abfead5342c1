"""Measure a model in the process where it runs: ``with perfml.profile(model) as run:``.

The library that `perfml collect` loads into programs is loaded here into this one. Each call of the
model, or each `perfml.iteration`, is an iteration: the first ones are timed without counters, each
later one takes a counter pass. What the block ran becomes a run's folder as `collect` leaves it.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ContextDecorator, ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from collectors import run_folder as folders
from collectors.layers import followed, recorded_by
from collectors.manifest import MeasurementRecord, RunRecord
from collectors.profilers import cupti, timing
from collectors.profilers.counter_record import (
    CounterRecord,
    Launch,
    MeasuredLaunch,
    read_record,
)
from collectors.profilers.counter_table import Measurement, merged, write_counters
from collectors.profilers.cupti_failures import check_record
from collectors.profilers.gpu import Gpu, gpus
from collectors.profilers.inject import BARE, COUNTERS, library
from collectors.profilers.process import ProfilerError
from collectors.run_spec import metric_names
from collectors.settings import Settings
from collectors.timing_passes import steps_of
from collectors.workloads.ranges import Ranges
from perfml import __version__
from perfml.util.files import sha256_of, temporary_folder
from perfml.util.ranges import ITERATION
from perfml.util.words import count

if TYPE_CHECKING:
    import torch

_open = False
"""Whether a block of this process is being measured."""


class LibraryRanges(Ranges):
    """Ranges that the loaded library notes itself, without NVTX.

    Of the first `bare` iterations nothing else is noted; `follow` is called where they are over.
    """

    def __init__(self, loaded: ctypes.CDLL, bare: int, follow: Callable[[], None]) -> None:
        self._push, self._pop = loaded.perfml_push, loaded.perfml_pop
        self._push.argtypes = [ctypes.c_char_p]
        self._bare, self._follow = bare, follow

    def push(self, name: str) -> None:
        """Open a range on this thread."""
        if self._bare >= 0 and ITERATION.fullmatch(name):
            self._bare -= 1
            if self._bare < 0:
                self._follow()
        self._push(name.encode())

    def pop(self) -> None:
        """Close the innermost range of this thread."""
        self._pop()


class profile(ContextDecorator):  # noqa: N801 - a function in all but its type, as contextlib's
    """Measure what a ``with`` block, or a decorated function, runs on the GPU.

    Parameters
    ----------
    model
        Its modules become the layers, and each of its calls an iteration. Without one the ranges
        are those of `perfml.layers` and `perfml.iteration` in the block.
    out
        Folder of runs; this one gets a folder in it.
    name
        Of the run; by default the model's class.
    metrics
        As of ``perfml collect --metrics``; none for times alone.
    bare
        Iterations without a profiler, the first ones: idle time is scaled to them. By default
        three of a model, none of a block.
    timed
        Iterations without counters, those after them.
    sets
        How often an iteration is counted completely.

    Attributes
    ----------
    folder
        The run's, once the block has ended.
    warnings
        Sentences on what was not measured.

    Raises
    ------
    PerfmlError
        If there is no GPU, another tool is attached to this process, or nothing ran.

    Examples
    --------
    Thirty iterations are enough for the default counters::

        with perfml.profile(model) as run:
            for _ in range(30):
                model(batch)
        run.report("report.html")
    """

    def __init__(
        self,
        model: torch.nn.Module | None = None,
        *,
        out: str | Path = "runs",
        name: str | None = None,
        metrics: Sequence[str] = ("default",),
        bare: int | None = None,
        timed: int = 3,
        sets: int = 1,
    ) -> None:
        known, raw = metric_names(metrics) if metrics else ((), ())
        self.settings = Settings(metrics=known, raw_metrics=raw, metric_iterations=sets)
        asked = self.settings.ncu_metrics if metrics else ()
        # without counters every iteration is timed
        self._options = cupti.CuptiOptions(asked, sets=sets, timed=timed if asked else 10**9)
        self.out, self.name = Path(out), name or (type(model).__name__ if model else "block")
        self.folder: Path | None = None
        self.warnings: tuple[str, ...] = ()
        self._model = model
        self._bare = (3 if model is not None else 0) if bare is None else bare

    def _recreate_cm(self) -> Self:
        """Give each call of a decorated function a run of its own."""
        made = type(self)(self._model, out=self.out, name=self.name, bare=self._bare)
        made.settings, made._options = self.settings, self._options
        return made

    def __enter__(self) -> Self:
        global _open
        if _open:
            msg = "this process is being measured already"
            raise ProfilerError(msg, cure="End the block of the other perfml.profile first.")
        self._gpu = _own_gpu()
        cupti.require(self._gpu)
        self._library = ctypes.CDLL(str(library(COUNTERS)))
        with ExitStack() as stack:
            self._record = stack.enter_context(temporary_folder("counters"))
            request = cupti.Pass(timed=self._options.timed, sets=self._options.sets)
            os.environ |= cupti.variables(request, self._options, self._record)
            os.environ[BARE] = str(self._record)
            self._started, self._began = folders.now(), time.monotonic()
            self._follows = False
            self._steps: tuple[float, ...] = ()
            if self._bare:
                self._library.perfml_bare(1)
            else:
                self._follow()
            _open = True
            stack.callback(self._end)
            ranges = LibraryRanges(self._library, self._bare, self._follow)
            stack.enter_context(recorded_by(ranges))
            if self._model is not None:
                stack.enter_context(followed(self._model, bare=self._bare))
            self._stack = stack.pop_all()
        return self

    def _follow(self) -> None:
        """Let the library follow launches from now on: what was bare is over."""
        if self._follows:
            return
        if self._bare:
            self._library.perfml_bare(0)
            self._steps = steps_of(self._record)
        if not self._library.perfml_begin():
            msg = "this process cannot write the record of its counters"
            raise ProfilerError(msg, where=str(self._record), cure="Free some space in TMPDIR.")
        self._follows = True

    def _end(self) -> None:
        global _open
        _open = False
        if self._follows:
            self._library.perfml_end()
        else:
            self._library.perfml_bare(0)
        for name in ("PERFML_COUNTERS_DIR", BARE):
            del os.environ[name]
        self._records = [read_record(path) for path in self._record.glob("*.tsv")]

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._stack.close()
        if kind is None and not self._follows:
            msg = "the block ended while iterations ran without a profiler"
            has = f"at most {self._bare} calls of the model"
            cure = "Call it more often, about 30 times for counters; or say perfml.profile(bare=0)."
            raise ProfilerError(msg, where=self.name, found=has, cure=cure)
        if kind is None:
            self._keep(self._records[0], time.monotonic() - self._began)

    def _keep(self, record: CounterRecord, seconds: float) -> None:
        """Make the run's folder of what was recorded."""
        if record.errors and not record.timed:
            check_record(record)
        launches = [each for each in record.timed if each.profiled or record.unit == "none"]
        rows, why = self._counted(record)
        self.warnings = (why,) if why else ()
        timed = count(len(launches), "timed launch", "timed launches")
        self._measured = f"{timed}, {len(rows):,} with counters"

        def counters(folder: Path) -> MeasurementRecord:
            return self._measurement(folder, record, rows, seconds)

        facts = {
            **_rank(),
            "started": self._started,
            "program": list(sys.argv),
            "options": self.settings.as_dict(),
            "metric_iterations": self._options.sets,
        }
        self.folder = keep_times(
            *(launches, self.name, self.out, self._gpu, seconds, facts, counters, self.warnings),
            seen={"step_us": self._steps} if self._steps else {},
        )

    def _counted(self, record: CounterRecord) -> tuple[list[MeasuredLaunch], str]:
        """Return the measured launches, and why there are none."""
        if not self._options.counters:
            return [], ""
        if record.complete:
            return merged([record]), ""
        if record.graph:
            return [], "no counters: an iteration replays a CUDA graph"
        if record.errors or record.differences:
            return [], f"no counters: {[*record.differences, *record.errors][-1]}"
        passes = cupti.passes_of(record) * self._options.sets
        needed = self._bare + self._options.timed + passes
        seen = self._bare + record.units
        has = count(seen, "iteration")
        if not passes or seen < needed:
            more = f"{needed} are needed" if passes else "the default counters need about 30"
            return [], f"no counters: the block has {has}, and {more}"
        return [], f"no counters: CUPTI did not finish them in {has}"

    def _measurement(
        self, folder: Path, record: CounterRecord, rows: list[MeasuredLaunch], seconds: float
    ) -> MeasurementRecord:
        options = self._options
        if rows:
            measured = Measurement(
                record.machine, "iterations", cupti.passes_of(record), once=bool(record.once)
            )
            write_counters(folder / "metrics.csv", rows, options.delivered(record), measured)
        return MeasurementRecord(
            options.metrics,
            (tuple(sys.argv),),
            profiler_version=record.machine.cupti or None,
            metrics_missing=tuple(record.missing),
            replay="iterations",
            launches_profiled=len(rows),
            passes=cupti.passes_of(record),
            runs=1,
            profiling_seconds=round(seconds, 3),
        )

    def explain(self, baseline: profile | str | Path | None = None) -> Any:
        """Say why this run is slower than another one; without one, what its layers suffer from."""
        import perfml

        if baseline is None:
            return perfml.advise(self._finished())
        other = baseline._finished() if isinstance(baseline, profile) else baseline
        return perfml.explain(other, self._finished())

    def report(self, out: str | Path = "report.html") -> Any:
        """Write the page of this run (`perfml.report`)."""
        import perfml

        return perfml.report(self._finished(), out=out)

    def __repr__(self) -> str:
        """Say what was measured, and what can be asked."""
        if self.folder is None:
            return f"perfml.profile of {self.name}: nothing is measured before the block ends"
        said = (f"perfml.profile of {self.name}: {self._measured} in {self.folder}", *self.warnings)
        return "\n".join((*said, "Ask: run.explain(), run.report()"))

    def _finished(self) -> Path:
        if self.folder is None:
            msg = "there is no run yet"
            raise ProfilerError(msg, cure="Ask after the with block, which has to end well.")
        return self.folder


def _rank() -> dict[str, int]:
    """Return which of several processes this is, where torchrun or its like says so."""
    names = {"rank": "RANK", "world_size": "WORLD_SIZE", "local_rank": "LOCAL_RANK"}
    given = {name: os.environ.get(variable, "") for name, variable in names.items()}
    found = {name: int(text) for name, text in given.items() if text.isdecimal()}
    return found if found.get("world_size", 1) > 1 and "rank" in found else {}


def _own_gpu() -> Gpu:
    """Return the GPU of this rank: of those that are visible to it the one of its local rank."""
    found, local = gpus(), _rank().get("local_rank", 0)
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    named = visible[local] if local < len(visible) else ""
    place = int(named) if named.isdecimal() else local
    return found[place] if place < len(found) else found[0]


def keep_times(
    launches: Sequence[Launch],
    name: str,
    out: Path,
    gpu: Gpu,
    seconds: float,
    facts: Mapping[str, Any],
    counters: Callable[[Path], MeasurementRecord] | None = None,
    notes: Sequence[str] = (),
    seen: Mapping[str, Any] | None = None,
) -> Path:
    """Make a run's folder of launches, copies and fills that one process timed; return it.

    `seconds` is wall-clock time, `facts` are ``started``, ``program`` and what else is known;
    `counters` writes the table of counters into the folder, `notes` are sentences for the user.
    `seen` is what else is known of the times. Of a server's ``windows``, which have many launches,
    the table is compressed.

    Raises `ProfilerError` if no kernel is among them.
    """
    if not any(launch.bytes is None for launch in launches):
        msg = "no kernel ran on the GPU meanwhile"
        cure = "Check that the model and its inputs are on the GPU, and that it was called."
        raise ProfilerError(msg, where=name, found=f"{len(launches)} copies and fills", cure=cure)
    digest = sha256_of(f"{facts['started']}{os.getpid()}{seconds}".encode())[:10]
    run_id = f"{name}-rank{facts['rank']}-{digest}" if "rank" in facts else f"{name}-{digest}"
    with folders.building(out, run_id) as folder:
        seen = seen or {}
        table = folder / ("timing.csv.gz" if "windows" in seen else "timing.csv")
        timing.write_timing(launches, table)
        times = timing.timing_record("cupti-activity", table, seconds, facts["program"])
        times = replace(times, **seen)
        measurement = MeasurementRecord((), ()) if counters is None else counters(folder)
        known = {
            "run_id": run_id,
            "workload": name,
            "device": gpu.name,
            "compute_capability": gpu.compute_capability,
            "driver": gpu.driver,
            "perfml": __version__,
            "profiler": "cupti",
            "ended": folders.now(),
            **facts,
        }
        made = RunRecord(known, {}, times, measurement, tuple(notes))
        folders.write_json(folder / folders.RUN_FILE, made.as_dict())
    return out / run_id
