"""The timing pass: how long each kernel takes when no counters are read.

A counter profiler serialises kernels and flushes caches, so its durations are not the program's.
Programs are timed through CUPTI activity records, with a library that the CUDA driver loads into
them (``injected/range_profiler.cpp``; it counts nothing then).
"""

from __future__ import annotations

import bisect
import csv
import gzip
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from collectors.manifest import TimingRecord
from collectors.profilers.counter_record import CounterRecord, Launch, read_record
from collectors.profilers.inject import run_injected
from collectors.profilers.process import Finished, ProfilerError, last_lines, signal_of
from perfml.util.files import replacing, temporary_folder
from perfml.util.ranges import Path as Ranges
from perfml.util.ranges import split_range

COLUMNS = ("iteration", "layer", "kernel", "time_us", "grid", "block", "start_us")
BYTES = "bytes"
"""Column of a program that copies or fills memory; empty for a kernel."""
UNATTRIBUTED_LIMIT = 0.05
"""A run with a larger share of its time outside every layer says so."""
WHOLE_PROGRAM = {"PERFML_COUNTERS_UNIT": "program", "PERFML_COUNTERS_TIMED": "1"}
"""Asks the library to time everything and to count nothing."""


@dataclass(frozen=True)
class Timing:
    """What a timing pass gave."""

    # In launch order with copies and fills between them, only those of the profiled region if the
    # program marks one
    launches: tuple[Launch, ...]
    region: bool  # whether the program calls cudaProfilerStart
    seconds: float  # wall-clock time of the program
    command: tuple[str, ...]  # the argument list that was run
    warnings: tuple[str, ...] = ()  # sentences for the user


def trace(
    program: Sequence[str],
    injected: Path | None,
    *,
    log: Path,
    timeout_s: float,
    launcher: Sequence[str] = (),
    env: dict[str, str] | None = None,
    own: Path | None = None,
    cwd: Path | None = None,
) -> Timing:
    """Run a program and record its kernel launches without counters.

    The parameters are those of `collectors.profilers.ncu.profile`; `injected` is the library, or
    None to run without; `own` is the table that a program leaves which timed itself. There are no
    launches then.

    Raises `ProfilerError` if the program fails, or launches no kernel.
    """
    command = [*launcher, *program]
    with temporary_folder("activity") as folder:
        variables = {**(env or {}), "PERFML_COUNTERS_DIR": str(folder), **WHOLE_PROGRAM}
        ended = run_injected(
            injected, command, log=log, timeout_s=timeout_s, env=variables, cwd=cwd
        )
        check_ended(ended, timeout_s)
        files = sorted(folder.glob("*.tsv"))
        parts = [read_activity(file).timed for file in files]
    if injected is None or (own is not None and own.is_file()):
        return Timing((), True, ended.seconds, tuple(command))
    parts = [part for part in parts if any(each.bytes is None for each in part)]
    if not parts:
        msg = "the program launched no GPU kernel"
        raise ProfilerError(
            msg,
            where=program[0],
            found=last_lines(ended.output, 2)[:200] or "no output",
            cure="perfml measures CUDA kernels; check that the program uses the GPU.",
        )
    warnings = []
    if len(parts) > 1:
        warnings.append(f"{len(parts)} processes launched kernels; they are listed one by one")
    launches = [launch for part in parts for launch in part]
    region = any(launch.profiled and launch.bytes is None for launch in launches)
    chosen = tuple(launch for launch in launches if launch.profiled or not region)
    return Timing(chosen, region, ended.seconds, tuple(command), tuple(warnings))


def check_ended(ended: Finished, timeout_s: float, forecast: str = "") -> None:
    """Raise `ProfilerError` if a program did not end well; `forecast` says what takes so long."""
    if ended.timed_out:
        msg = f"the program did not end within {timeout_s:.0f} s and was killed"
        cure = "Shorten it so" if forecast else "Let it do fewer iterations"
        raise ProfilerError(msg, found=forecast or None, cure=f"{cure}, or raise --timeout.")
    if ended.flooded:
        msg = "the program printed more than perfml keeps"
        raise ProfilerError(msg, found=last_lines(ended.output, 1), cure="Let it print less.")
    if ended.returncode != 0:
        msg = f"the program failed with exit status {ended.returncode}{signal_of(ended.returncode)}"
        found = last_lines(ended.output, without="$ ") or "no output"
        cure = "Run it without perfml first; its whole output is in log.txt."
        raise ProfilerError(msg, found=found, cure=cure)


def read_activity(path: Path) -> CounterRecord:
    """Read what the injected library wrote for one process.

    Raises a `ProfilerError` if CUPTI refused, records were lost, or the process ended too early.
    """
    record = read_record(path)
    if record.errors:
        msg = "CUPTI cannot trace this program"
        cure = "Another tool may be attached to it; --timing ncu does without."
        raise ProfilerError(msg, found=record.errors[0], cure=cure)
    if not record.ended:
        msg = "the traced process ended without finishing its record"
        cure = "It was killed, or left by _exit; let it end normally."
        raise ProfilerError(msg, found=f"{len(record.timed)} launches recorded", cure=cure)
    return record


def timing_csv(launches: Sequence[Launch], *, starts: bool = True) -> str:
    """Return the timing pass as CSV: ranges become iterations and layers.

    The rules are those of every reader (`perfml.readers`), so that the rows match a profile's.
    Copies and fills stand below the kernels, where there are some. Without `starts` it says nothing
    of when they ran: they are a few of many, and there is no clock of those.
    """
    kernels = [launch for launch in launches if launch.bytes is None]
    moves = [launch for launch in launches if launch.bytes is not None]
    first = min(launch.start_ns for launch in launches)
    places = _in_layers(kernels)
    lines = io.StringIO(newline="")
    writer = csv.writer(lines, lineterminator="\n")
    writer.writerow([*COLUMNS, BYTES] if moves else COLUMNS)
    blank = [""] if moves else []
    for each, (iteration, layer) in zip(kernels, places, strict=True):
        time = _micros(each.start_ns, each.end_ns)
        start = _micros(first, each.start_ns) if starts else ""
        writer.writerow([iteration, layer, each.kernel, time, each.grid, each.block, start, *blank])
    for move, (iteration, layer) in zip(moves, _places_of(moves, kernels, places), strict=True):
        time, start = _micros(move.start_ns, move.end_ns), _micros(first, move.start_ns)
        writer.writerow([iteration, layer, move.kernel, time, "", "", start, move.bytes])
    return lines.getvalue()


def _in_layers(kernels: Sequence[Launch]) -> list[tuple[int, str]]:
    """Return iteration and layer of kernels as `perfml.readers.frame` would, without pandas.

    A machine that only collects has none.
    """
    found = [split_range(kernel.ranges) for kernel in kernels]
    numbered = any(number is not None for number, _ in found)
    entered: dict[tuple[int, Ranges], dict[int, int]] = {}
    places = []
    for kernel, (number, path) in zip(kernels, found, strict=True):
        turns = entered.setdefault((number or 0, path), {})
        turn = turns.setdefault(kernel.instance, len(turns))
        again = f"#{turn + 1}" if numbered and turn and path else ""
        places.append(((number or 0) if numbered else turn, "/".join(path) + again))
    return places


def _places_of(
    moves: Sequence[Launch], kernels: Sequence[Launch], places: Sequence[tuple[int, str]]
) -> list[tuple[int, str]]:
    """Return iteration and layer of copies and fills: those of the kernels of the same range.

    Where a range launches nothing else its own name counts, and without a number in it the
    iteration of the next kernel.
    """
    known = {
        (kernel.instance, kernel.ranges): place
        for kernel, place in zip(kernels, places, strict=True)
    }
    order = sorted(range(len(kernels)), key=lambda row: kernels[row].start_ns)
    starts = [kernels[row].start_ns for row in order]
    found = []
    for move in moves:
        place = known.get((move.instance, move.ranges)) if move.ranges else None
        if place is None:
            number, rest = split_range(move.ranges)
            following = order[min(bisect.bisect(starts, move.start_ns), len(kernels) - 1)]
            place = places[following][0] if number is None else number, "/".join(rest)
        found.append(place)
    return found


def _micros(start_ns: int, end_ns: int) -> str:
    return f"{(end_ns - start_ns) / 1e3:.3f}"


def write_timing(launches: Sequence[Launch], path: Path, *, starts: bool = True) -> None:
    """Write the timing CSV, whole or not at all; compressed if its name ends in ``.gz``."""
    data = timing_csv(launches, starts=starts).encode()
    with replacing(path) as temporary:
        temporary.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)


def unattributed_share(table: Path) -> tuple[float, int]:
    """Return the share of a timing CSV's time that lies outside every layer, and its launches.

    Raises `ProfilerError` if it is no such table.
    """
    total = outside = 0.0
    count = 0
    try:
        opened = gzip.open if table.suffix == ".gz" else open
        with opened(table, "rt", newline="", encoding="utf-8") as lines:
            rows = csv.reader(lines)
            names = next(rows, [])
            layer, time = names.index("layer"), names.index("time_us")
            moved = names.index(BYTES) if BYTES in names else None
            for row in rows:
                if moved is None or not row[moved]:
                    total += float(row[time])
                    count += 1
                    outside += 0.0 if row[layer] else float(row[time])
    except (IndexError, ValueError, EOFError, csv.Error) as error:
        msg = "the timing pass left no readable table"
        cure = "The disk may be full; otherwise collect again."
        found = f"after {count} launches: {type(error).__name__} {error}"[:200]
        raise ProfilerError(msg, where=table.name, found=found, cure=cure) from error
    return (outside / total if total else 0.0), count


def timing_record(
    source: str,
    table: Path,
    seconds: float,
    command: Sequence[str],
    *,
    mapped: bool = False,
    warnings: Sequence[str] = (),
) -> TimingRecord:
    """Return what a manifest says of a timing pass that left the timing CSV `table`.

    `source` took the times; `mapped`: a layer map will give the launches their layers.
    """
    share, launches = unattributed_share(table)
    told = list(warnings)
    if share > UNATTRIBUTED_LIMIT and not mapped:
        told.append(
            f"{share:.1%} of the kernel time lies outside every layer; "
            "set NVTX ranges around it, or give a layer map"
        )
    return TimingRecord(
        source,
        round(seconds, 3),
        tuple(command),
        launches,
        None if mapped else round(share, 6),
        warnings=tuple(told),
    )
