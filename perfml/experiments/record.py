"""Experiments on kernel launches as a table: a row a launch, condition and round.

A condition takes a part of one resource of the GPU away from a launch; its control differs in
nothing else. ``collectors.profilers.experiments`` measures them.
"""

from __future__ import annotations

import csv
import io
import lzma
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from perfml.errors import InputError

FILE = "experiments.csv"
DEVICE = "device"
"""Condition of the rows that hold facts of the device."""
COLUMNS = (
    "launch", "range", "kernel", "grid", "block", "dynamic_shared", "blocks_per_multiprocessor",
    "batch", "condition", "control", "amount", "round", "time_us",
)  # fmt: skip
"""Of ``experiments.csv``: a row a launch, condition and round. Calibrations have no launch."""
LATER = ("own_us", "replay", "same_path", "changed")
"""Columns that tables before 2026-11-28 lack; empty where it is not known."""


@dataclass(frozen=True)
class Condition:
    """Times of one launch under one condition."""

    name: str  # which resource is changed, such as ``sm_half``
    control: str  # the condition that differs in nothing else
    # of the resource that is left, relative to the control; 1 where it cannot be said
    amount: float
    times_us: tuple[float, ...]  # microseconds of a launch, a number a round; none if not tried
    # Of a mutant that saves time: whether it executes each basic block as often as its control, and
    # which part of the words that the control writes it leaves otherwise
    same_path: bool | None = None
    changed: float = math.nan


@dataclass(frozen=True)
class Examined:
    """One launch under all conditions."""

    ranges: tuple[str, ...]  # names of the NVTX ranges around it, outermost first
    kernel: str  # demangled name, or ``dram`` and ``l2`` for the two kernels of known limit
    grid: str = ""  # like ``(4096, 1, 1)``
    block: str = ""
    dynamic_shared: int = 0  # bytes a block
    blocks_per_multiprocessor: int = 0  # that fit at once
    batch: int = 0  # launches between two events
    conditions: tuple[Condition, ...] = ()  # in the order of the library
    symbol: str = ""  # the kernel's name as the compiler mangled it; the table does not keep it
    own_us: float = math.nan  # what the launch takes in the program alone, by CUPTI
    # What lies between two launches that are timed: ``warm`` (nothing), ``restored`` (what it
    # writes is put back), ``cold`` (L2 is emptied, too)
    replay: str = "warm"

    def condition(self, name: str) -> Condition | None:
        """Return a condition by its name; None where it did not apply."""
        return next((each for each in self.conditions if each.name == name), None)

    @property
    def not_tried(self) -> tuple[str, ...]:
        """The mutants that were not run, since another one decided or the time was up."""
        return tuple(each.name for each in self.conditions if not each.times_us)


@dataclass(frozen=True)
class Experiments:
    """What the experiments on a program gave."""

    multiprocessors: int  # of the device
    l2_bytes: int
    empty_us: float  # what a launch of an empty kernel takes in a batch
    calibrations: tuple[Examined, ...]  # the kernels of known limit under the same conditions
    launches: tuple[Examined, ...]  # in launch order
    # kernel and reason of launches that cannot be examined
    skipped: tuple[tuple[str, str], ...] = ()
    left: int = 0  # launches that were not asked: their part of the clock is too small
    shortened: int = 0  # launches with fewer rounds or conditions, because they take long
    seconds: float = math.nan  # Wall-clock time of the program
    command: tuple[str, ...] = field(default=())  # the argument list that was run


def experiments_csv(experiments: Experiments) -> str:
    """Return the experiments as CSV with `COLUMNS`; calibrations first, without a launch."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow((*COLUMNS, *LATER))
    facts_of_device = {
        "multiprocessors": experiments.multiprocessors,
        "l2_bytes": experiments.l2_bytes,
        "empty_us": experiments.empty_us,
        "left": experiments.left,
        "shortened": experiments.shortened,
    }
    for name, value in facts_of_device.items():
        row = dict.fromkeys((*COLUMNS, *LATER), "") | {"kernel": name, "condition": DEVICE}
        writer.writerow([*(row | {"amount": f"{value:.9g}"}).values()])
    numbered = [("", each) for each in experiments.calibrations]
    numbered += [(str(number), each) for number, each in enumerate(experiments.launches)]
    for number, launch in numbered:
        facts = (
            number, "/".join(launch.ranges), launch.kernel, launch.grid, launch.block,
            launch.dynamic_shared, launch.blocks_per_multiprocessor, launch.batch,
        )  # fmt: skip
        for condition in launch.conditions:
            what = (condition.name, condition.control, f"{condition.amount:.6g}")
            same = "" if condition.same_path is None else int(condition.same_path)
            later = (_number(launch.own_us), launch.replay, same, _number(condition.changed))
            for turn, time_us in enumerate(condition.times_us or (math.nan,)):
                writer.writerow([*facts, *what, turn, _number(time_us), *later])
    return text.getvalue()


def _number(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.6g}"


def read_experiments(path: Path) -> Experiments:
    """Read ``experiments.csv`` of a run; one compressed by xz, too.

    Raises `InputError` if it is missing, or is no such table.
    """
    try:
        opened = lzma.open if path.suffix == ".xz" else open
        with opened(path, "rt", encoding="utf-8", newline="") as lines:
            rows = list(csv.DictReader(lines))
    except (OSError, EOFError, lzma.LZMAError, UnicodeDecodeError, csv.Error) as error:
        msg = "this run has no experiments"
        cure = "Measure them with: perfml prove PROGRAM"
        raise InputError(msg, where=str(path), found=str(error), cure=cure) from error
    missing = [name for name in COLUMNS if rows and name not in rows[0]]
    if missing or not rows:
        msg = "this is no table of experiments"
        found = f"no column {missing[0]}" if missing else "no row"
        raise InputError(msg, where=str(path), found=found, cure="Measure it anew: perfml prove.")
    try:
        return _experiments(rows)
    except (TypeError, ValueError, KeyError) as error:
        msg = "this table of experiments is damaged"
        cure = "Measure it anew: perfml prove."
        raise InputError(msg, where=str(path), found=str(error)[:100], cure=cure) from error


def _experiments(rows: Sequence[dict[str, str]]) -> Experiments:
    device: dict[str, str] = {}
    times: dict[tuple[str, str], dict[tuple[str, str, float, str, str], list[float]]] = {}
    first: dict[tuple[str, str], dict[str, str]] = {}
    for row in rows:
        if row["condition"] == DEVICE:
            device[row["kernel"]] = row["amount"]
            continue
        key = (row["launch"], row["kernel"])
        first.setdefault(key, row)
        later = (row.get("same_path") or "", row.get("changed") or "")
        condition = (row["condition"], row["control"], float(row["amount"]), *later)
        known = times.setdefault(key, {}).setdefault(condition, [])
        known += [float(row["time_us"])] if row["time_us"] else []
    made = {
        key: Examined(
            tuple(row["range"].split("/")) if row["range"] else (),
            row["kernel"],
            row["grid"],
            row["block"],
            int(row["dynamic_shared"]),
            int(row["blocks_per_multiprocessor"]),
            int(row["batch"]),
            tuple(_condition(*what, us) for what, us in times[key].items()),
            own_us=float(row.get("own_us") or math.nan),
            replay=row.get("replay") or "warm",
        )
        for key, row in first.items()
    }
    return Experiments(
        int(float(device["multiprocessors"])),
        int(float(device["l2_bytes"])),
        float(device["empty_us"]),
        tuple(each for (number, _), each in made.items() if number == ""),
        tuple(each for (number, _), each in made.items() if number != ""),
        left=int(float(device.get("left", "0"))),
        shortened=int(float(device.get("shortened", "0"))),
    )


def _condition(
    name: str, control: str, amount: float, same: str, changed: str, times_us: Sequence[float]
) -> Condition:
    same_path = None if same == "" else same == "1"
    return Condition(name, control, amount, tuple(times_us), same_path, float(changed or math.nan))
