"""What a planted family is, and what it launches: the types, and the levels and sizes of all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

LEVELS = ("base", "level_1", "level_2", "level_3")
SIZES = (1.0, 1.25, 1.5, 2.0)
"""Work of each size over that of the first."""

TRUTH_FILE = "truth.json"
SCHEMA = 1

LOG_COUNT = 22
"""Floats of the input and of the output, as a power of two: 16 MiB, which L2 holds."""
CHASE_ROWS = 1 << 17
"""Rows of 128 bytes of the table that latency families walk through: 16 MiB."""
WIDE_VECTORS = 64
"""Vectors of four floats of the wide input for each of 2,048 threads a multiprocessor."""
NEVER = 1 << 30
WHOLE_SM = 200 * 1024
"""Dynamic shared memory that leaves room for one block on a multiprocessor."""

Argument = int | float | str
"""``in``, ``out``, ``next`` and ``wide`` are tensors; numbers are passed as they are."""


@dataclass(frozen=True)
class Cause:
    """What counts as naming the cause.

    Attributes
    ----------
    metrics
        Canonical metrics that say it; a group of interchangeable metrics counts if it holds one.
    terms
        Ids of the terms that name it.
    rules
        Rules of advice; Nsight Compute's rules count through the counterparts of these.
    direction
        Metric to +1 or -1: which way the knob moves it.
    """

    metrics: tuple[str, ...]
    terms: tuple[str, ...]
    rules: tuple[str, ...]
    direction: Mapping[str, int]


@dataclass(frozen=True)
class Family:
    """One kernel with one knob.

    Attributes
    ----------
    name
        Of the family; layers are called ``NAME_s0``, ``NAME_s1``, ...
    knob
        What is turned, in words.
    values
        The knob at each of `LEVELS`.
    cause
        What the knob moves.
    along
        Confounded families: metric to +1 or -1, moving with the knob without being the cause.
    held_out
        Whether nobody looks at its explanations before all work on them is done.
    hopper
        Whether its kernel has instructions that GPUs before Hopper lack.
    """

    name: str
    knob: str
    values: tuple[int, ...]
    cause: Cause
    along: Mapping[str, int] = field(default_factory=dict)
    held_out: bool = False
    hopper: bool = False

    def layer(self, size: int) -> str:
        """Return the layer's name of a size."""
        return f"{self.name}_s{size}"

    def truth(self, level: int) -> dict[str, Any]:
        """Return the family's part of ``truth.json``."""
        return {
            "family": self.name,
            "knob": self.knob,
            "values": list(self.values),
            "value": self.values[level],
            "layers": [self.layer(size) for size in range(len(SIZES))],
            "kind": "confounded" if self.along else "single",
            "cause": {
                "metrics": list(self.cause.metrics),
                "terms": list(self.cause.terms),
                "rules": list(self.cause.rules),
                "direction": dict(self.cause.direction),
            },
            "along": dict(self.along),
            "held_out": self.held_out,
        }


def truth_document(level: int, families: tuple[Family, ...]) -> dict[str, Any]:
    """Return ``truth.json`` of one level."""
    return {
        "schema": SCHEMA,
        "workload": "planted",
        "baseline": LEVELS[0],
        "level": level,
        "backend": LEVELS[level],
        "levels": list(LEVELS),
        "sizes": list(SIZES),
        "families": [family.truth(level) for family in families],
    }


@dataclass(frozen=True)
class Call:
    """One launch.

    Attributes
    ----------
    kernel
        Name in the sources.
    grid, block
        Extents in x.
    arguments
        In the order of the kernel's parameters.
    shared
        Dynamic shared memory, bytes.
    source
        Stem of the file that has the kernel.
    pause_us
        How long the host works before the launch, microseconds, after waiting for the device.
    """

    kernel: str
    grid: int
    block: int
    arguments: tuple[Argument, ...]
    shared: int = 0
    source: str = "planted"
    pause_us: float = 0.0


@dataclass(frozen=True)
class Plan:
    """One layer at one level.

    Attributes
    ----------
    calls
        In launch order.
    outputs
        Floats written.
    rounds
        Work a thread does, in the kernel's own unit (of the whole layer).
    rows
        Rows of the table it walks through; 0 without one.
    """

    calls: tuple[Call, ...]
    outputs: int
    rounds: int
    rows: int = 0


Maker = Callable[[int, int, float, int], Plan]
"""From the knob's value, its level, the work over that of the first size, and multiprocessors."""


def single(call: Call, rounds: int, rows: int = 0, outputs: int | None = None) -> Plan:
    """Return the plan of one launch; a thread writes one float unless `outputs` says otherwise."""
    return Plan((call,), outputs or call.grid * call.block, rounds, rows)
