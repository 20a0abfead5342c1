"""Counters through CUPTI's Range Profiler: replay by the program's own iterations.

Nsight Compute goes over every launch again, once a pass, and saves and restores memory between
passes. A program that repeats itself needs none of that: pass k is measured in iteration k of one
run of the unchanged program (``injected/range_profiler.cpp``). The first iterations are timed
without counters, in the same run.

Where the program has no iterations, or they launch different kernels, CUPTI repeats each launch on
the spot (its kernel replay), which is several times dearer and still cheaper than Nsight Compute.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from collectors.profilers.counter_record import (
    CounterRecord,
    Launch,
    MeasuredLaunch,
    PassCost,
    read_record,
)
from collectors.profilers.counter_table import (
    Measurement,
    in_layers,
    merged,
    write_counters,
)
from collectors.profilers.cupti_failures import UnableError, check_record
from collectors.profilers.forecast import LONG_S, REPLAYED_S, Forecast, Tell, of_replay
from collectors.profilers.gpu import Gpu
from collectors.profilers.inject import COUNTERS, library, run_injected
from collectors.profilers.process import Finished, ProfilerError, last_lines
from collectors.profilers.timing import check_ended
from perfml.util.files import temporary_folder

FIRST = (7, 5)
"""The oldest compute capability that CUPTI's Range Profiler supports."""
MOST_RUNS = 4
"""With more starts of a program with few iterations, kernel replay is cheaper."""

COMPUTED = ("sm__maximum_warps_per_active_cycle_pct",)
"""Metrics of Nsight Compute that are no counters: they follow from the launch."""


_REPEATED = "each launch was repeated on the spot for its counters"
_XLA_RANGE = "XlaModule:"
"""XLA tries kernels out when it compiles; a second start finds them compiled."""


@dataclass(frozen=True)
class CuptiOptions:
    """What to measure."""

    metrics: tuple[str, ...]  # Nsight Compute's names
    sets: int = 1  # how often an iteration is measured completely
    timed: int = 3  # iterations that are timed without counters before
    memory: int = 2 << 30  # bytes that one session's counters may take on the host
    # Regular expression: only launches in layers whose name it matches are kept
    layers: str | None = None
    # kernels, launches: only these kernels (demangled names), and of their launches the first of
    # the numbers up to the second; with region, those between cudaProfilerStart and Stop
    kernels: tuple[str, ...] = ()
    launches: tuple[int, int] = (0, 0)
    region: bool = False

    @property
    def counters(self) -> tuple[str, ...]:
        """The metrics that CUPTI is asked for."""
        return tuple(
            name
            for name in self.metrics
            if name not in COMPUTED and not name.startswith("launch__")
        )

    def delivered(self, record: CounterRecord) -> tuple[str, ...]:
        """Return the metrics that the chip of a record has."""
        return tuple(metric for metric in self.counters if metric not in record.missing)


@dataclass(frozen=True)
class CuptiProfile:
    """What a measurement gave.

    `timed` are the launches without counters, those of iterations only if there are `iterations`;
    `missing` are requested metrics that the chip does not have, `warnings` sentences for the user;
    `seconds` is the wall-clock time of all runs of the program.
    """

    table: Path
    timed: tuple[Launch, ...]
    rows: tuple[MeasuredLaunch, ...]
    measurement: Measurement
    iterations: bool
    missing: tuple[str, ...]
    pass_costs: tuple[PassCost, ...]
    seconds: float
    command: tuple[str, ...]
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Pass:
    """One start of the program: what the library is told (see `variables`)."""

    replay: str = "iterations"
    unit: str = ""
    timed: int = 0
    sets: int = 1
    most_passes: int = 0
    first_group: int = 0
    launches: int = 0
    region_only: bool = False
    apart: bool = True
    parts: bool = False


@dataclass
class _Program:
    """The program to measure, and what its starts gave so far."""

    options: CuptiOptions
    arguments: tuple[str, ...]
    log: Path
    timeout_s: float
    env: dict[str, str]
    seconds: float = 0.0
    runs: int = 0
    warnings: tuple[str, ...] = ()
    tell: Tell | None = None
    agrees: Callable[[str], bool] | None = None

    def start(self, request: Pass) -> CounterRecord:
        """Run the program once; return the record of the process that launched most, or raise."""
        with temporary_folder("counters") as folder:
            asked = {**self.env, **variables(request, self.options, folder)}
            forecast = None
            if self.tell is not None and request.replay == "iterations" and not self.runs:
                forecast = Forecast(folder, request.sets, self.tell)
            ended = run_injected(
                library(COUNTERS),
                self.arguments,
                log=self.log,
                timeout_s=self.timeout_s,
                env=asked,
                meanwhile=forecast,
            )
            records = [read_record(path) for path in sorted(folder.glob("*.tsv"))]
        self.seconds += ended.seconds
        self.runs += 1
        check_ended(ended, self.timeout_s, "" if forecast is None else forecast.said)
        record = self._chosen(records, ended)
        check_record(record)
        return record

    def _chosen(self, records: Sequence[CounterRecord], ended: Finished) -> CounterRecord:
        at_work = [record for record in records if record.launched]
        if not at_work:
            msg = "the program launched no GPU kernel"
            found = last_lines(ended.output, 2)[:200] or "no output"
            cure = (
                "Check that the program uses the GPU: perfml measures CUDA kernels. "
                "Behind sudo, ssh, docker or mpirun, let that command start perfml, "
                "which starts the program."
            )
            for record in records:
                check_record(record)
            raise ProfilerError(msg, where=self.arguments[0], found=found, cure=cure)
        if len(at_work) > 1:
            note = f"{len(at_work)} processes launched kernels; the busiest one was measured"
            if note not in self.warnings:
                self.warnings += (note,)
        return max(at_work, key=lambda record: (len(record.rows), record.all_launches))


def compiled_by_xla(launches: Iterable[Sequence[str]]) -> bool:
    """Return whether launches, given by their ranges, include those that XLA tries out."""
    return any(name.startswith(_XLA_RANGE) for ranges in launches for name in ranges)


def require(gpu: Gpu) -> None:
    """Raise `UnableError` if CUPTI cannot measure on this machine, as far as can be told."""
    if gpu.capability < FIRST:
        msg = "CUPTI's Range Profiler does not support this GPU"
        found = f"{gpu.name}, compute capability {gpu.compute_capability}"
        raise UnableError(msg, found=found, cure="Use --profiler nvprof.")
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        msg = "the driver's library cannot be loaded"
        cure = "Install the NVIDIA driver where perfml runs."
        raise UnableError(msg, found=str(error)[:200], cure=cure) from error
    try:
        library(COUNTERS)
    except ProfilerError as error:
        raise UnableError(error.what, found=error.found, cure=error.cure) from error


def profile(
    options: CuptiOptions,
    program: Sequence[str],
    *,
    folder: Path,
    log: Path,
    timeout_s: float,
    launcher: Sequence[str] = (),
    env: dict[str, str] | None = None,
    name: str = "metrics",
    driver: str = "",
    tell: Tell | None = None,
    agrees: Callable[[str], bool] | None = None,
) -> CuptiProfile:
    """Time and measure a program into ``NAME.csv`` in `folder`.

    The parameters are those of `collectors.profilers.ncu.profile`; `driver` is the driver's
    version, for the table; `tell` takes a sentence on how long it will take, while it runs.
    `agrees` is asked before launches are repeated for over five minutes; None: nobody is.
    Raises a `GraphError` if an iteration replays a CUDA graph, else what CUPTI or the program met.
    """
    library(COUNTERS)
    command = (*launcher, *program)
    subject = _Program(options, command, log, timeout_s, dict(env or {}), tell=tell, agrees=agrees)
    if options.kernels:
        replayed(options.launches[1] - options.launches[0], tell, agrees)
        first = subject.start(Pass(replay="kernel", unit="program", region_only=options.region))
        counted = _Counted(first.rows, first, "kernel")
    else:
        first, counted = _repeated(subject)
    record = counted.record
    measurement = Measurement(
        record.machine,
        counted.replay,
        passes_of(record),
        subject.runs,
        driver,
        once=bool(record.once),
    )
    rows = [row for row in counted.rows if in_layers(row.ranges, options.layers)]
    if not rows:
        msg = "no kernel launch was measured"
        cure = "Check --layer and --kernel; without them and iterations, every launch is measured."
        raise ProfilerError(msg, found=record.unfinished or "none in the layers", cure=cure)
    table = folder / f"{name}.csv"
    write_counters(table, rows, options.delivered(record), measurement)
    timed = [launch for launch in first.timed if launch.profiled or first.unit == "none"]
    return CuptiProfile(
        table,
        tuple(timed),
        tuple(rows),
        measurement,
        first.unit == "nvtx",
        tuple(record.missing),
        tuple(record.pass_costs),
        subject.seconds,
        command,
        subject.warnings,
    )


def _repeated(subject: _Program) -> tuple[CounterRecord, _Counted]:
    """Time a program's first iterations and count the following ones; or count every launch."""
    begin = Pass(timed=subject.options.timed, sets=subject.options.sets)
    first = subject.start(begin)
    if first.region and first.outside and first.unit == "nvtx":
        # the program marks what counts: iterations before that were of no interest
        first = subject.start(replace(begin, unit="nvtx", region_only=True))
    if compiled_by_xla(launch.ranges for launch in first.timed):
        first = subject.start(begin)
    if not first.parts:
        return first, _measured(first, subject)
    first, record = _by_parts(first, subject)
    return first, _Counted(record.rows, record, "kernel")


@dataclass(frozen=True)
class _Counted:
    """Launches with their counters, the record that tells of them, and what was repeated.

    ``replay`` is ``iterations`` where the program's own iterations carried the passes, else
    ``kernel``.
    """

    rows: list[MeasuredLaunch]
    record: CounterRecord
    replay: str


def _measured(first: CounterRecord, subject: _Program) -> _Counted:
    """Return the measured launches: of the first run, of further runs, or of kernel replay."""
    sets = subject.options.sets
    if first.complete:
        rows = _whole(first)
        if rows:
            return _Counted(rows, first, "iterations")
        # instrumented code ran in other launches than the measured ones: read all side by side
        first = subject.start(
            Pass(unit=first.unit, sets=sets, region_only=first.region_only, apart=False)
        )
        if first.complete:
            return _Counted(merged([first]), first, "iterations")
    if first.differences:
        why = f"{first.differences[-1]}; {_REPEATED}"
        if first.unit == "region" and first.units > sets:
            # pairs have no names, so whether they are repeats or parts nobody can tell
            why += (
                f", in the first {sets} of {first.units} pairs of cudaProfilerStart and "
                "cudaProfilerStop; --metric-iterations takes more"
            )
        return _by_kernel_replay(first, subject, why)
    if first.unit == "none" or first.units < 2:
        why = (
            "the program has no iterations (NVTX ranges iter_0, iter_1, ... or several pairs of "
            f"cudaProfilerStart and cudaProfilerStop), so {_REPEATED}"
        )
        return _by_kernel_replay(first, subject, why)
    return _by_several_runs(first, subject)


def _by_parts(first: CounterRecord, subject: _Program) -> tuple[CounterRecord, CounterRecord]:
    """Return the times of each part's first iterations, and the counters, launch by launch."""
    why = "each part of the program begins its iterations anew with other kernels"
    subject.warnings += (f"{why}, so {_REPEATED}",)
    request = Pass(unit=first.unit, region_only=first.region_only, parts=True)
    timed = subject.start(replace(request, timed=subject.options.timed))
    return timed, subject.start(replace(request, replay="kernel", sets=subject.options.sets))


def _whole(record: CounterRecord) -> list[MeasuredLaunch]:
    """Return the launches of a run; none if one lacks the counters of a group."""
    wanted = {name for names in record.group_metrics.values() for name in names}
    with suppress(UnableError):
        rows = merged([record])
        if all(wanted.issubset(row.values) for row in rows):
            return rows
    return []


def passes_of(record: CounterRecord) -> int:
    """Return the passes that one measurement takes."""
    counts = dict(record.group_passes)
    if record.apart is not None:
        counts.setdefault(record.apart, 1)
    return sum(counts.values())


def _by_several_runs(first: CounterRecord, subject: _Program) -> _Counted:
    """Let each further run measure as many passes as the program has iterations."""
    request = Pass(
        unit=first.unit,
        sets=1,
        most_passes=first.units,
        launches=first.launches,
        region_only=first.region_only,
    )
    records: list[CounterRecord] = []
    group = 0
    while True:
        record = subject.start(replace(request, first_group=group))
        records.append(record)
        finished = sorted(record.finished_groups)
        if record.differences or not finished or len(records) > MOST_RUNS:
            too_few = _too_few(first, subject)
            why = str(record.differences[-1]) if record.differences else too_few
            why += f"; {_REPEATED}"
            return _by_kernel_replay(first, subject, why)
        group = finished[-1] + 1
        if group >= record.groups:
            break
        if record.groups / (group / len(records)) > MOST_RUNS:
            why = f"{_too_few(first, subject)}; {_REPEATED}"
            return _by_kernel_replay(first, subject, why)
    rows = merged(records)
    subject.warnings += (f"{_too_few(first, subject)}; the program was run {subject.runs} times",)
    whole = records[-1]
    for record in records:
        whole.group_passes |= record.group_passes
    whole.missing = sorted({name for record in records for name in record.missing})
    return _Counted(rows, whole, "iterations")


def _too_few(first: CounterRecord, subject: _Program) -> str:
    options, needed = subject.options, "more are needed"
    if first.group_passes:
        passes = [count for group, count in first.group_passes.items() if group != first.apart]
        once = first.apart is not None
        needed = f"{options.timed + options.sets * sum(passes) + once} are needed"
    return f"the program has {first.units} iterations, and {needed} to measure it in one run"


def _by_kernel_replay(first: CounterRecord, subject: _Program, why: str) -> _Counted:
    subject.warnings += (why,)
    unit = "program" if first.unit == "none" else first.unit
    request = Pass(
        replay="kernel",
        unit=unit,
        sets=subject.options.sets,
        launches=0 if unit == "program" else first.launches,
        region_only=first.region_only,
    )
    launches = first.all_launches if unit == "program" else first.launches * request.sets
    replayed(launches, subject.tell, subject.agrees)
    record = subject.start(request)
    return _Counted(record.rows, record, "kernel")


def replayed(launches: int, tell: Tell | None, agrees: Callable[[str], bool] | None) -> None:
    """Say how long launches take that are repeated on the spot; ask above five minutes.

    Raises `ProfilerError` where nobody agrees.
    """
    said = of_replay(launches)
    if launches * REPLAYED_S > LONG_S and agrees is not None and not agrees(said):
        msg = "counting would take over five minutes, launch by launch"
        cure = (
            "Add --yes to count all the same, or name what to count: --kernel NAME --launches 3:5."
        )
        raise ProfilerError(msg, found=said, cure=cure)
    if tell is not None and said:
        tell(said)


def variables(request: Pass, options: CuptiOptions, folder: Path) -> dict[str, str]:
    """Return what the library is told by variables; the metrics stand in a file of `folder`."""
    names, chosen = folder / "metrics.txt", folder / "kernels.txt"
    names.write_text("".join(f"{metric}\n" for metric in options.counters), encoding="utf-8")
    if options.kernels:
        chosen.write_text("".join(f"{name}\n" for name in options.kernels), encoding="utf-8")
    first, end = options.launches
    return {
        "PERFML_COUNTERS_DIR": str(folder),
        "PERFML_COUNTERS_KERNELS": str(chosen) if options.kernels else "",
        "PERFML_COUNTERS_FIRST": str(first),
        "PERFML_COUNTERS_END": str(end),
        "PERFML_COUNTERS_METRICS": str(names),
        "PERFML_COUNTERS_REPLAY": request.replay,
        "PERFML_COUNTERS_UNIT": request.unit,
        "PERFML_COUNTERS_TIMED": str(request.timed),
        "PERFML_COUNTERS_SETS": str(request.sets),
        "PERFML_COUNTERS_PASSES": str(request.most_passes),
        "PERFML_COUNTERS_GROUP": str(request.first_group),
        "PERFML_COUNTERS_LAUNCHES": str(request.launches),
        "PERFML_COUNTERS_MEMORY": str(options.memory),
        "PERFML_COUNTERS_REGION": str(int(request.region_only)),
        "PERFML_COUNTERS_APART": str(int(request.apart)),
        "PERFML_COUNTERS_PARTS": str(int(request.parts)),
    }
