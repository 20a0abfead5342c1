"""The library of the launch experiments: how a program runs with it, and what it writes.

``injected/launch_experiments.cpp`` says what its variables mean.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from collectors.profilers.inject import EXPERIMENTS, library, run_injected
from collectors.profilers.process import Finished, ProfilerError
from perfml.experiments.record import Condition, Examined, Experiments


@dataclass(frozen=True)
class Settings:
    """How a program is run."""

    command: tuple[str, ...]  # argument list, with what starts it
    log: Path  # file for its output
    seconds: float  # of experiments, in all
    rounds: int  # times a launch and condition
    env: Mapping[str, str]  # variables for it
    layers: Sequence[str] = ()  # ranges, if only their launches are asked
    # Of its launches without the library: microseconds of the first, the median and all, then path,
    # kernel, grid and block
    times: Sequence[tuple[tuple[float, float, float], tuple[str, ...]]] = ()
    everything: bool = False  # no launch has less time than another
    stored: Sequence[Sequence[str]] = ()  # a kernel and its module's variables in global memory

    def run(
        self, folder: Path, timeout_s: float, lists: Mapping[str, Iterable[Sequence[str]]]
    ) -> Finished:
        """Run it with the library, which writes ``*.tsv`` into an empty folder.

        `lists` is what the library reads: end of a variable's name to the fields of each line.
        """
        variables = {
            **self.env,
            "PERFML_EXPERIMENTS_DIR": str(folder),
            "PERFML_EXPERIMENTS_SECONDS": str(math.ceil(self.seconds)),
            "PERFML_EXPERIMENTS_ROUNDS": str(self.rounds),
        }
        layers = [(name,) for name in self.layers]
        fixed = {"TIMES": self._times(), "VARIABLES": self.stored, "RANGES": layers}
        for name, rows in {**fixed, **lists}.items():
            path = folder / f"{name}.txt"
            text = "".join("\t".join(fields) + "\n" for fields in rows)
            path.write_text(text, encoding="utf-8")
            variables[f"PERFML_EXPERIMENTS_{name}"] = str(path)
        injected = library(EXPERIMENTS)
        return run_injected(
            injected, self.command, log=self.log, timeout_s=max(1.0, timeout_s), env=variables
        )

    def _times(self) -> list[tuple[str, ...]]:
        """Return what launches take, and the seconds of experiments on one, by its part of all."""
        by_time = sorted(self.times, key=lambda row: -row[0][2])
        made, total = [], sum(row[0][2] for row in by_time)
        room = min(int(self.seconds / _LEAST_S), len(by_time))
        rest = self.seconds - room * _LEAST_S
        for place, ((first, median, all_us), launch) in enumerate(by_time):
            part = min(_LEAST_S + rest * all_us / total, _MOST_S) if place < room else 0.0
            part = _MOST_S if self.everything else part
            made.append((f"{first:.6g} {median:.6g} {part:.6g}", *launch))
        return made


_LEAST_S, _MOST_S = 0.2, 5.0
"""Seconds of experiments on one launch: those on 20 kernels of 11 us to 1 ms took 4.3 in all with
three starts of the program (H200, 2026-11-29), and no launch needs more than 5."""
SEPARATOR = "\x1f"
"""Between the names of ranges."""
_FORMAT = "# perfml-experiments 1"


def rows_of(path: Path) -> list[list[str]]:
    """Return the lines of a record, divided at their tabs; also of one that was not finished."""
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    return [line.split("\t") for line in lines]


def hung(rows: Sequence[Sequence[str]]) -> tuple[str, str] | None:
    """Return the kernel (mangled) that did not end, and the condition; None where all do."""
    names = [row[0].removeprefix("# hung ") for row in rows if row[0].startswith("# hung ")]
    return (names[0].partition(" ")[0], names[0].partition(" ")[2]) if names else None


def read_record(path: Path, *, stopped: bool = False) -> Experiments:
    """Read what the injected library wrote for one process; also before it was stopped.

    Raises `ProfilerError` if the library says that something failed, or the process died before it
    was done.
    """
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    errors = [line for line in lines if line.startswith("# error ")]
    if errors:
        msg = "experiments cannot be run on this program"
        found = errors[0].removeprefix("# error ")
        cure = "They need CUDA 12.4 or newer, and no other profiler attached."
        raise ProfilerError(msg, found=found, cure=cure)
    if not lines or lines[0] != _FORMAT or (lines[-1] != "# end" and not stopped):
        msg = "the examined process ended without finishing its record"
        cure = "It was killed, or left by _exit; let it end normally."
        raise ProfilerError(msg, found=f"{len(lines)} lines", cure=cure)
    rows = [line.split("\t") for line in lines]
    while stopped and rows and not rows[-1][0].startswith("# "):
        rows.pop()  # of a launch that was not finished
    device = next((row for row in rows if row[0] == "D"), ["D", "0", "0", "nan"])
    calibrations = [
        Examined((), name, conditions=tuple(conditions))
        for (kind, name), conditions in _conditions(rows).items()
        if kind == "C"
    ]
    return Experiments(
        int(device[1]),
        int(device[2]),
        float(device[3]),
        tuple(calibrations),
        tuple(launches_of(rows)),
        tuple((row[2], row[3]) for row in rows if row[0] == "S"),
        _noted(rows, "left"),
        _noted(rows, "shortened"),
    )


def _conditions(rows: Sequence[Sequence[str]]) -> dict[tuple[str, str], list[Condition]]:
    checks = {(row[1], row[2]): row[3:] for row in rows if row[0] == "M" and len(row) == 5}
    responses: dict[tuple[str, str], list[Condition]] = {}
    for row in rows:
        if row[0] in ("E", "C") and len(row) == 6:
            times = tuple(float(word) for word in row[5].split(",") if word)
            same, changed = map(float, checks.get((row[1], row[2]), ("-1", "-1")))
            condition = Condition(
                row[2],
                row[3],
                float(row[4]),
                times,
                None if same < 0 else bool(same),
                changed if changed >= 0 else math.nan,
            )
            responses.setdefault((row[0], row[1]), []).append(condition)
    return responses


def launches_of(rows: Sequence[Sequence[str]]) -> list[Examined]:
    """Return the launches of a record with their conditions, in launch order."""
    responses = _conditions(rows)
    return [
        Examined(
            tuple(row[7].split(SEPARATOR)) if row[7] else (),
            kernel=row[8],
            grid=row[2],
            block=row[3],
            dynamic_shared=int(row[4]),
            blocks_per_multiprocessor=int(row[5]),
            batch=int(row[6]),
            conditions=tuple(responses.get(("E", row[1]), ())),
            symbol=row[9],
            own_us=float(row[11]) if float(row[11]) >= 0 else math.nan,
            replay=row[10],
        )
        for row in rows
        if row[0] == "K" and len(row) == 12
    ]


def _noted(rows: Sequence[Sequence[str]], name: str) -> int:
    return next((int(row[0].split()[-1]) for row in rows if row[0].startswith(f"# {name} ")), 0)
