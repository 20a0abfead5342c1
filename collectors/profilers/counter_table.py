"""Write measured launches as the documented table that ``perfml ingest`` reads (`cupti_csv`).

Lines that begin with ``#`` say how it was measured; then a CSV with one row a launch, metrics
under Nsight Compute's names in its base units.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from collectors.profilers.counter_record import CounterRecord, Machine, MeasuredLaunch
from collectors.profilers.cupti_failures import UnableError
from perfml import __version__
from perfml.util.files import write_text
from perfml.util.ranges import ITERATION

_CACHES = {
    "iterations": "as the program left them",
    "kernel": "not flushed; memory is restored before every pass",
}
_ONCE = "run once; every measurement executed as many instructions"
_WARP = 32
_REGISTER_UNIT, _FEWEST_REGISTERS = 8, 16


@dataclass(frozen=True)
class Measurement:
    """How a table was measured."""

    machine: Machine
    replay: str  # `iterations` or `kernel`
    passes: int  # counter passes of a measurement
    runs: int = 1  # starts of the program that counters were read in
    driver: str = ""
    once: bool = False  # whether instrumented code was run for the first measurement alone

    @property
    def caches(self) -> str:
        """What the caches held before a launch."""
        return _CACHES[self.replay]


def counter_csv(
    rows: Sequence[MeasuredLaunch], metrics: Sequence[str], measurement: Measurement
) -> str:
    """Return the table as text: a row a launch; what it lacks of `metrics` is empty."""
    # readers bring pandas along, 0.4 s of the start of every worker of a sweep
    from perfml.readers.cupti_csv import FIRST_LINE, IDENTITY

    machine = measurement.machine
    facts = {
        "tool": f"CUPTI range profiler {machine.cupti}",
        "perfml": __version__,
        "device": machine.device,
        "compute_capability": machine.capability,
        "chip": machine.chip,
        "driver": measurement.driver,
        "replay": measurement.replay,
        "passes": str(measurement.passes),
        "runs": str(measurement.runs),
        "caches": measurement.caches,
        "instrumented": _ONCE if measurement.once else "",
    }
    lines = io.StringIO(newline="")
    lines.write(f"{FIRST_LINE}\n")
    for name, value in facts.items():
        if value:
            lines.write(f"# {name}: {value}\n")
    writer = csv.writer(lines, lineterminator="\n")
    writer.writerow([*IDENTITY, *metrics])
    for row in rows:
        values = [_number(row.values.get(name)) for name in metrics]
        writer.writerow([*_identity(row, machine), *values])
    return lines.getvalue()


def write_counters(
    path: Path,
    rows: Sequence[MeasuredLaunch],
    metrics: Sequence[str],
    measurement: Measurement,
) -> None:
    """Write the table, whole or not at all."""
    write_text(path, counter_csv(rows, metrics, measurement))


def merged(records: Sequence[CounterRecord]) -> list[MeasuredLaunch]:
    """Put the groups of metrics together that were measured of the same launches.

    Raises `UnableError` if two runs of the program launched different kernels.
    """
    together: dict[tuple[int, int], MeasuredLaunch] = {}
    for row in (row for record in records for row in _repeated(record)):
        key = row.set_number, row.place
        known = together.get(key)
        if known is None:
            together[key] = row
            continue
        if known.identity != row.identity:
            msg = "two runs of the program launch different kernels"
            found = f"launch {row.place}: {row.kernel[:80]} and {known.kernel[:80]}"
            cure = "Let it choose the same kernels each time, or use --profiler ncu."
            raise UnableError(msg, found=found, cure=cure)
        together[key] = replace(known, values={**known.values, **row.values})
    return [together[key] for key in sorted(together)]


def _repeated(record: CounterRecord) -> list[MeasuredLaunch]:
    """Return a record's rows; what was measured once stands in every measurement."""
    constant = {name for group in record.once for name in record.group_metrics[group]}
    if not constant:
        return record.rows
    numbers = sorted({row.set_number for row in record.rows})
    return [
        replace(row, set_number=number)
        for row in record.rows
        for number in (numbers if constant.issuperset(row.values) else [row.set_number])
    ]


def in_layers(ranges: tuple[str, ...], layers: str | None) -> bool:
    """Return whether a launch lies in a layer whose name a regular expression matches."""
    if layers is None:
        return True
    names = [name for name in ranges if not ITERATION.fullmatch(name.strip())]
    return any(re.fullmatch(layers, name) for name in names)


def _identity(row: MeasuredLaunch, machine: Machine) -> list[str]:
    threads = _product(row.block)
    blocks = row.blocks_per_multiprocessor
    waves = occupancy = None
    if blocks and machine.multiprocessors and machine.threads_per_multiprocessor:
        waves = _product(row.grid) / (blocks * machine.multiprocessors)
        warps = blocks * math.ceil(threads / _WARP)
        occupancy = 100.0 * warps * _WARP / machine.threads_per_multiprocessor
    return [
        str(row.set_number),
        str(row.place),
        str(row.context),
        str(row.stream),
        "/".join(name.replace("\\", "\\\\").replace("/", "\\/") for name in row.ranges),
        str(row.instance),
        row.kernel,
        row.grid,
        row.block,
        _number(_allocated(row.registers)),
        _number(row.static_shared),
        _number(row.dynamic_shared),
        _number(_product(row.grid) * threads),
        _number(waves),
        _number(occupancy),
    ]


def _allocated(registers: int | None) -> int | None:
    """Return what a thread gets of the registers it asks for: eights, and 16 at the least.

    That is what Nsight Compute shows (8, 10 and 12 became 16 on an H200).
    """
    if registers is None:
        return None
    return max(_FEWEST_REGISTERS, math.ceil(registers / _REGISTER_UNIT) * _REGISTER_UNIT)


def _product(shape: str) -> int:
    return math.prod(int(size) for size in shape.strip("()").split(","))


def _number(value: float | None) -> str:
    if value is None or math.isnan(value):
        return ""
    return f"{value:.10g}"
