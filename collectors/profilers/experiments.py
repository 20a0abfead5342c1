"""Launch experiments: each kernel launch run again with less of one resource of the GPU.

No counters are read, so it works where they are forbidden. The library that does it
(``injected/launch_experiments.cpp``) is loaded by the CUDA driver into the unchanged program, and
puts back what the experiments write. Before that the program runs once as it is, with CUPTI's
records of its launches: one whose repetition takes another time is not measured.

Where repairs are asked for, the program is started once more. A launch whose kernel has PTX runs as
each of its mutants, with its own arguments; memory is put back before each, and the program goes on
with its own kernel. A mutant that does not end, or after which the GPU does nothing any more, ends
the process: the program is run again without that mutant.
"""

from __future__ import annotations

import math
import shutil
import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from collectors.profilers.experiment_record import (
    SEPARATOR,
    Settings,
    hung,
    launches_of,
    read_record,
    rows_of,
)
from collectors.profilers.inject import COUNTERS, library
from collectors.profilers.process import Finished, ProfilerError, last_lines
from collectors.profilers.timing import check_ended, trace
from perfml.experiments.mutation.programs import (
    OFF,
    SPLITS,
    Mutant,
    global_variables,
    kernels_of,
    lacking,
    mutants,
)
from perfml.experiments.proof import turns
from perfml.experiments.record import Condition, Examined, Experiments
from perfml.experiments.responses import responses
from perfml.experiments.verdicts import Finding
from perfml.util.files import temporary_folder
from perfml.util.ranges import ITERATION

MOST_HUNG = 4
"""Kernels that do not end under an experiment, until the program is given up: one run each."""
MOST_RUNS = 8
"""Runs of the program at most: a mutant that crashes or hangs it costs one of them."""
_PATIENCE = {"PERFML_EXPERIMENTS_PATIENCE": "3"}
"""Seconds until a mutant is said not to end."""
_LIMITS = 0.4
"""Part of the seconds of experiments for conditions; mutants have the rest."""
_NO_PTX = "no repair is measured: its PTX is not in the program (vendors' libraries have none)"
_NO_TIME = "not all repairs were tried before its time was over; raise --timeout"
_OPENING_S = 3.0
"""Seconds of a start beside the program's own and its experiments: streams and known kernels."""


def examine(
    program: Sequence[str],
    *,
    log: Path,  # file for the program's output
    # Seconds after which the program is killed, also one that is run again because a kernel of it
    # does not end under an experiment
    timeout_s: float,
    # Of experiments, in all: each launch has its part of the clock
    seconds: float = 24.0,
    rounds: int = 7,  # times a launch and condition
    # The program marks its iterations by NVTX ranges: only the second one's launches are examined,
    # and nothing before it
    iterations: bool = False,
    launcher: Sequence[str] = (),  # put before the program, such as `srun`
    env: dict[str, str] | None = None,  # variables for the program
    repairs: bool = False,  # run the program once more, each kernel with PTX as its mutants
    findings: Sequence[Finding] = (),  # of the answer: what tells about the first is tried first
    layers: Sequence[str] = (),  # ranges, if only their launches are examined
    # Also what is implausible or takes little of the clock: nothing decides, each launch has 5 s
    everything: bool = False,
) -> Experiments:
    """Run a program once, and each of its launches under every condition that applies.

    A program whose starts take long gets fewer seconds of experiments, or no repairs, so that all
    of them end in time. Raises `ProfilerError` if the library cannot be built, the program fails,
    or no launch could be examined.
    """
    command = (*launcher, *program)
    variables = {**(env or {}), "PERFML_EXPERIMENTS_UNIT": "nvtx" if iterations else ""}
    leave: list[str] = []
    begun = time.monotonic()
    end = begun + timeout_s
    times = _own_times(command, log, timeout_s, env, iterations=iterations)
    alone_s = time.monotonic() - begun
    path = shutil.which(program[0])
    own = kernels_of([Path(path)] if path else [])
    stored = tuple((kernel, *names) for kernel, names in global_variables(own).items())
    needed = alone_s + _OPENING_S + 1
    starts = 2 if repairs and end - time.monotonic() > 2 * needed else 1
    room = (end - time.monotonic()) - starts * (alone_s + _OPENING_S)
    seconds = min(seconds, max(2.0, room))
    # what limits a launch takes less time than what its mutants gain
    part = _LIMITS * seconds if starts == 2 else seconds
    settings = Settings(command, log, part, rounds, variables, layers, times, everything, stored)
    while True:
        with temporary_folder("experiments") as folder:
            lists = {"LEAVE": [[kernel] for kernel in leave]}
            ended = settings.run(folder, end - time.monotonic(), lists)
            files = sorted(folder.glob("*.tsv"))
            stopped = [kernel for path in files for kernel, _ in [hung(rows_of(path)) or ("", "")]]
            stopped = [kernel for kernel in stopped if kernel and kernel not in leave]
            if stopped and len(leave) < MOST_HUNG:
                leave += stopped
                continue
            failed = _failed_later(ended, timeout_s, files, alone_s)
            records = [read_record(path, stopped=ended.timed_out) for path in files]
            modules = own | kernels_of(_loaded(files)) if repairs else {}
        record = _only(records, program, ended.output)
        if failed:
            record = replace(record, skipped=((Path(program[0]).name, failed), *record.skipped))
        record = replace(record, seconds=ended.seconds, command=command)
        if not repairs:
            return record
        if end - time.monotonic() < needed:
            why = f"no repair is measured: a start takes {alone_s:.0f} s; raise --timeout"
            return replace(record, skipped=(*record.skipped, (Path(program[0]).name, why)))
        settings = replace(settings, seconds=max(1.0, seconds - part))
        return _with_mutants(record, modules, settings, findings, end - time.monotonic())


def _failed_later(ended: Finished, timeout_s: float, files: Sequence[Path], alone_s: float) -> str:
    """Return how a program failed after its launches were examined; empty where it did not.

    Experiments that were finished are kept: a program may fail at its very end because of them, as
    where it checks ``cudaDeviceReset()``, or be stopped when its time is over. Raises
    `ProfilerError` if it failed before.
    """
    try:
        check_ended(ended, timeout_s, f"one start of it takes {alone_s:.0f} s without experiments")
    except ProfilerError as error:
        finished = ended.timed_out or all(rows_of(path)[-1:] == [["# end"]] for path in files)
        if ended.flooded or not finished:
            raise
        if not any(read_record(path, stopped=ended.timed_out).launches for path in files):
            raise
        return f"{error.what}, after launches of it were examined: {error.found}"
    return ""


def _own_times(
    command: Sequence[str],
    log: Path,
    timeout_s: float,
    env: dict[str, str] | None,
    *,
    iterations: bool,
) -> list[tuple[tuple[float, float, float], tuple[str, ...]]]:
    """Return what the launches of a program take when nothing is done to them.

    A row a launch: the first, the median and all of them in microseconds; its ranges without
    iterations, kernel, grid and block. None where CUPTI cannot trace the program.
    """
    try:
        timed = trace(command, library(COUNTERS), log=log, timeout_s=timeout_s, env=env).launches
    except ProfilerError:
        return []
    by_launch: dict[tuple[str, ...], list[float]] = {}
    for launch in timed:
        inside = [name for name in launch.ranges if not ITERATION.fullmatch(name.strip())]
        if launch.bytes is None and (not iterations or len(inside) < len(launch.ranges)):
            key = (SEPARATOR.join(inside), launch.kernel, launch.grid, launch.block)
            by_launch.setdefault(key, []).append((launch.end_ns - launch.start_ns) / 1e3)
    return [((us[0], statistics.median(us), sum(us)), key) for key, us in by_launch.items()]


def _only(records: Sequence[Experiments], program: Sequence[str], output: str) -> Experiments:
    """Return the record of the process whose launches take longest; others are named."""
    made = [record for record in records if record.launches]
    if not made:
        msg = "no kernel launch of this program could be examined"
        reasons = {why: kernel for record in records for kernel, why in record.skipped}
        found = last_lines(output, 2)[:200] or "no output"
        if reasons:
            why, kernel = next(iter(reasons.items()))
            found = f"{kernel}: {why}"
        if left := sum(record.left for record in records):
            found = f"{left} launches left open by the time limit"
        cure = "Check that it uses the GPU, and that no other profiler is attached to it."
        raise ProfilerError(msg, where=program[0], found=found, cure=cure)
    first, *others = sorted(made, key=lambda each: -sum(map(_longest, each.launches)))
    if not others:
        return first
    why = f"one of {len(made)} processes is examined; examine another one alone"
    return replace(first, skipped=((Path(program[0]).name, why), *first.skipped))


def _longest(launch: Examined) -> float:
    return max(us for condition in launch.conditions for us in condition.times_us)


def _loaded(files: Sequence[Path]) -> list[Path]:
    """Return the files of code that the program loaded."""
    return [Path(row[0].removeprefix("# code ")) for path in files for row in rows_of(path)
            if row[0].startswith("# code /")]  # fmt: skip


def _with_mutants(
    experiments: Experiments,
    modules: Mapping[str, str],
    settings: Settings,
    findings: Sequence[Finding],
    timeout_s: float,
) -> Experiments:
    """Run a program's kernels as their mutants; return the experiments with these conditions.

    `modules` are a kernel's mangled name to the PTX module that holds it; `timeout_s` is for all
    runs.
    """
    answers = responses(experiments)
    left: list[tuple[Mutant, int, float]] = []
    possible: dict[str, dict[str, float]] = {}
    for name in dict.fromkeys(launch.symbol for launch in experiments.launches):
        made = mutants(modules[name], name) if name in modules else []
        names = [each.mutation for each in made[1:]]
        own = [answer for answer in answers if answer.launch.symbol == name]
        order = turns(names, own, findings, everything=settings.everything)
        possible[name] = {name: order.get(name, (math.inf, 0.0))[0] for name in names}
        chosen = [(each, *order[each.mutation]) for each in made if each.mutation in order]
        left += sorted(chosen, key=lambda entry: entry[1]) if len(chosen) > 1 else []
    without = {launch.kernel for launch in experiments.launches if launch.symbol not in modules}
    skipped = [(kernel, _NO_PTX) for kernel in sorted(without)]
    if without and lacking():
        skipped.append((Path(settings.command[0]).name, f"compressed PTX: install {lacking()}"))
    measured: dict[tuple[object, ...], Examined] = {}
    end = time.monotonic() + timeout_s
    for _ in range(MOST_RUNS):
        if not left or time.monotonic() >= end:
            break
        rows, is_late = _run_mutants(left, settings, end - time.monotonic())
        done = launches_of(rows)
        measured |= {_identity(each): each for each in done}
        skipped += [(row[2], row[3]) for row in rows if row[0] == "S"]
        stopped = hung(rows)
        if stopped is None:
            left = left if is_late else []
            break
        kernel, condition = stopped
        mutation = condition.removesuffix(f".{OFF}")
        skipped.append((kernel, f"{mutation or 'it'} does not end, or ends the process"))
        unfinished = {e.symbol for e in experiments.launches if _identity(e) not in measured}
        changed = any(each.mutation == mutation for each, *_ in left)
        left = [
            entry
            for entry in left
            if entry[0].kernel in unfinished
            and not (entry[0].kernel == kernel and (not changed or entry[0].mutation == mutation))
        ]
    if left:
        skipped.append((Path(settings.command[0]).name, _NO_TIME))
    launches = tuple(
        _with_untried(launch, measured.get(_identity(launch)), possible[launch.symbol])
        for launch in experiments.launches
    )
    return replace(
        experiments, launches=launches, skipped=(*experiments.skipped, *dict.fromkeys(skipped))
    )


def _with_untried(
    launch: Examined, measured: Examined | None, possible: Mapping[str, float]
) -> Examined:
    """Return a launch with what was measured of its mutants, and the names of later ones."""
    own = () if measured is None else measured.conditions
    last = max((possible.get(each.name, -1) for each in own), default=-1)
    untried = (Condition(name, "", 1.0, ()) for name, turn in possible.items() if turn > last)
    return replace(launch, conditions=(*launch.conditions, *own, *untried))


def _identity(launch: Examined) -> tuple[object, ...]:
    return (launch.ranges, launch.symbol, launch.grid, launch.block, launch.dynamic_shared)


def _run_mutants(
    left: Sequence[tuple[Mutant, int, float]], settings: Settings, timeout_s: float
) -> tuple[list[list[str]], bool]:
    """Run the program once; return what the library wrote, and whether it was stopped before."""
    with temporary_folder("mutants") as folder:
        lines = []
        for number, (mutant, turn, decides) in enumerate(left):
            path = folder / f"{number}.ptx"
            path.write_text(mutant.ptx, encoding="utf-8")
            counted, counts = folder / f"{number}.counted.ptx", mutant.counted
            if counts is not None:
                counted.write_text(counts, encoding="utf-8")
            files = (str(path), str(counted) if counts is not None else "")
            split = SPLITS.get(mutant.mutation, 1)
            numbers = (f"{mutant.switched:d}", str(split), str(turn), f"{decides:.6g}")
            lines.append([mutant.kernel, mutant.mutation, *files, *numbers, *mutant.variables])
        impatient = replace(settings, env={**settings.env, **_PATIENCE})
        ended = impatient.run(folder, timeout_s, {"MUTANTS": lines})
        rows = [row for path in sorted(folder.glob("*.tsv")) for row in rows_of(path)]
        return rows, ended.timed_out
