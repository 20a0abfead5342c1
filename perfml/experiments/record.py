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


@dataclass(frozen=True)
class Condition:
    """Times of one launch under one condition.

    Attributes
    ----------
    name
        Which resource is changed, such as ``sm_half``.
    control
        The condition that differs in nothing else.
    amount
        Of the resource that is left, relative to the control; 1 where it cannot be said.
    times_us
        Microseconds of a launch, a number a round.
    """

    name: str
    control: str
    amount: float
    times_us: tuple[float, ...]


@dataclass(frozen=True)
class Examined:
    """One launch under all conditions.

    Attributes
    ----------
    ranges
        Names of the NVTX ranges around it, outermost first.
    kernel
        Demangled name, or ``dram`` and ``l2`` for the two kernels of known limit.
    grid, block
        Like ``(4096, 1, 1)``.
    dynamic_shared
        Bytes a block.
    blocks_per_multiprocessor
        That fit at once.
    batch
        Launches between two events.
    conditions
        In the order of the library.
    symbol
        The kernel's name as the compiler mangled it; the table does not keep it.
    """

    ranges: tuple[str, ...]
    kernel: str
    grid: str = ""
    block: str = ""
    dynamic_shared: int = 0
    blocks_per_multiprocessor: int = 0
    batch: int = 0
    conditions: tuple[Condition, ...] = ()
    symbol: str = ""


@dataclass(frozen=True)
class Experiments:
    """What the experiments on a program gave.

    Attributes
    ----------
    multiprocessors, l2_bytes
        Of the device.
    empty_us
        What a launch of an empty kernel takes in a batch.
    calibrations
        The kernels of known limit under the same conditions.
    launches
        In launch order.
    skipped
        Kernel and reason of launches that cannot be examined.
    left
        Launches that the time limit left open.
    shortened
        Launches with fewer rounds or conditions, because they take long.
    seconds
        Wall-clock time of the program.
    command
        The argument list that was run.
    """

    multiprocessors: int
    l2_bytes: int
    empty_us: float
    calibrations: tuple[Examined, ...]
    launches: tuple[Examined, ...]
    skipped: tuple[tuple[str, str], ...] = ()
    left: int = 0
    shortened: int = 0
    seconds: float = math.nan
    command: tuple[str, ...] = field(default=())


def experiments_csv(experiments: Experiments) -> str:
    """Return the experiments as CSV with `COLUMNS`; calibrations first, without a launch."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    facts_of_device = {
        "multiprocessors": experiments.multiprocessors,
        "l2_bytes": experiments.l2_bytes,
        "empty_us": experiments.empty_us,
        "left": experiments.left,
        "shortened": experiments.shortened,
    }
    for name, value in facts_of_device.items():
        row = dict.fromkeys(COLUMNS, "") | {"kernel": name, "condition": DEVICE}
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
            for turn, time_us in enumerate(condition.times_us):
                writer.writerow([*facts, *what, turn, f"{time_us:.6g}"])
    return text.getvalue()


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
    times: dict[tuple[str, str], dict[tuple[str, str, float], list[float]]] = {}
    first: dict[tuple[str, str], dict[str, str]] = {}
    for row in rows:
        if row["condition"] == DEVICE:
            device[row["kernel"]] = row["amount"]
            continue
        key = (row["launch"], row["kernel"])
        first.setdefault(key, row)
        condition = (row["condition"], row["control"], float(row["amount"]))
        times.setdefault(key, {}).setdefault(condition, []).append(float(row["time_us"]))
    made = {
        key: Examined(
            tuple(row["range"].split("/")) if row["range"] else (),
            row["kernel"],
            row["grid"],
            row["block"],
            int(row["dynamic_shared"]),
            int(row["blocks_per_multiprocessor"]),
            int(row["batch"]),
            tuple(Condition(*what, tuple(us)) for what, us in times[key].items()),
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
