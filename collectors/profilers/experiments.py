"""Launch experiments: each kernel launch run again with less of one resource of the GPU.

No counters are read, so it works where they are forbidden. The library that does it
(``injected/launch_experiments.cpp``) is loaded by the CUDA driver into the unchanged program, and
puts back what the experiments write.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from collectors.profilers.inject import EXPERIMENTS, library, run_injected
from collectors.profilers.process import ProfilerError, last_lines
from collectors.profilers.timing import check_ended
from perfml.experiments.record import Condition, Examined, Experiments

_SEPARATOR = "\x1f"
_FORMAT = "# perfml-experiments 1"
MOST_HUNG = 4
"""Kernels that do not end under an experiment, until the program is given up: one run each."""


def examine(
    program: Sequence[str],
    *,
    log: Path,
    timeout_s: float,
    seconds: float = 60.0,
    rounds: int = 7,
    iterations: bool = False,
    launcher: Sequence[str] = (),
    env: dict[str, str] | None = None,
) -> Experiments:
    """Run a program once, and each of its launches under every condition that applies.

    Parameters
    ----------
    program
        Argument list.
    log
        File for the program's output.
    timeout_s
        Seconds after which the program is killed, also one that is run again because a kernel of
        it does not end under an experiment.
    seconds
        Of experiments, in all; launches that come later are left open and counted.
    rounds
        Times a launch and condition.
    iterations
        The program marks its iterations by NVTX ranges: only the second one's launches are
        examined, and nothing before it.
    launcher
        Put before the program, such as ``srun``.
    env
        Variables for the program.

    Raises
    ------
    ProfilerError
        If the library cannot be built, the program fails, or no launch could be examined.
    """
    injected = library(EXPERIMENTS)
    command = [*launcher, *program]
    leave: list[str] = []
    end = time.monotonic() + timeout_s
    while True:
        with TemporaryDirectory(prefix="perfml-experiments-") as folder:
            kernels = Path(folder) / "leave.txt"
            kernels.write_text("".join(f"{name}\n" for name in leave), encoding="utf-8")
            variables = {
                **(env or {}),
                "PERFML_EXPERIMENTS_DIR": folder,
                "PERFML_EXPERIMENTS_LEAVE": str(kernels),
                "PERFML_EXPERIMENTS_SECONDS": str(math.ceil(seconds)),
                "PERFML_EXPERIMENTS_ROUNDS": str(rounds),
                "PERFML_EXPERIMENTS_UNIT": "nvtx" if iterations else "",
            }
            left_s = max(1.0, end - time.monotonic())
            ended = run_injected(injected, command, log=log, timeout_s=left_s, env=variables)
            files = sorted(Path(folder).glob("*.tsv"))
            hung = [name for path in files if (name := hung_kernel(path)) and name not in leave]
            if hung and len(leave) < MOST_HUNG:
                leave += hung
                continue
            check_ended(ended, timeout_s)
            records = [read_record(path) for path in files]
        record = _only(records, program, ended.output)
        return replace(record, seconds=ended.seconds, command=tuple(command))


def _only(records: Sequence[Experiments], program: Sequence[str], output: str) -> Experiments:
    """Return the record of the one process that launched kernels."""
    made = [each for each in records if each.launches]
    if not made:
        msg = "no kernel launch of this program could be examined"
        reasons = {why: kernel for each in records for kernel, why in each.skipped}
        found = last_lines(output, 2)[:200] or "no output"
        if reasons:
            why, kernel = next(iter(reasons.items()))
            found = f"{kernel}: {why}"
        if left := sum(each.left for each in records):
            found = f"{left} launches left open by the time limit"
        cure = "Check that it uses the GPU, and that no other profiler is attached to it."
        raise ProfilerError(msg, where=program[0], found=found, cure=cure)
    if len(made) > 1:
        msg = "several processes launched kernels"
        cure = "Examine one of them at a time."
        raise ProfilerError(msg, found=f"{len(made)} processes", cure=cure)
    return made[0]


def hung_kernel(path: Path) -> str | None:
    """Return the kernel that did not end under an experiment, as the compiler mangled its name."""
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    hung = [line.removeprefix("# hung ") for line in lines if line.startswith("# hung ")]
    return hung[0] if hung else None


def read_record(path: Path) -> Experiments:
    """Read what the injected library wrote for one process.

    Raises
    ------
    ProfilerError
        If the library says that something failed, or the process died before it was done.
    """
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    errors = [line for line in lines if line.startswith("# error ")]
    if errors:
        msg = "experiments cannot be run on this program"
        found = errors[0].removeprefix("# error ")
        cure = "They need CUDA 12.4 or newer, and no other profiler attached."
        raise ProfilerError(msg, found=found, cure=cure)
    if not lines or lines[0] != _FORMAT or lines[-1] != "# end":
        msg = "the examined process ended without finishing its record"
        cure = "It was killed, or left by _exit; let it end normally."
        raise ProfilerError(msg, found=f"{len(lines)} lines", cure=cure)
    return _record([line.split("\t") for line in lines])


def _record(rows: Sequence[Sequence[str]]) -> Experiments:
    device = next((row for row in rows if row[0] == "D"), ("D", "0", "0", "nan"))
    responses: dict[tuple[str, str], list[Condition]] = {}
    for row in rows:
        if row[0] in ("E", "C"):
            times = tuple(float(each) for each in row[5].split(",") if each)
            condition = Condition(row[2], row[3], float(row[4]), times)
            responses.setdefault((row[0], row[1]), []).append(condition)
    launches = [
        Examined(
            tuple(row[7].split(_SEPARATOR)) if row[7] else (),
            kernel=row[8],
            grid=row[2],
            block=row[3],
            dynamic_shared=int(row[4]),
            blocks_per_multiprocessor=int(row[5]),
            batch=int(row[6]),
            conditions=tuple(responses.get(("E", row[1]), ())),
        )
        for row in rows
        if row[0] == "K"
    ]
    calibrations = [
        Examined((), name, conditions=tuple(conditions))
        for (kind, name), conditions in responses.items()
        if kind == "C"
    ]
    return Experiments(
        int(device[1]),
        int(device[2]),
        float(device[3]),
        tuple(calibrations),
        tuple(launches),
        tuple((row[2], row[3]) for row in rows if row[0] == "S"),
        _noted(rows, "left"),
        _noted(rows, "shortened"),
    )


def _noted(rows: Sequence[Sequence[str]], name: str) -> int:
    return next((int(row[0].split()[-1]) for row in rows if row[0].startswith(f"# {name} ")), 0)
