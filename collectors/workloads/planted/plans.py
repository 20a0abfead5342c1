"""What is launched for a family at a level and a size: plain data, without a GPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .families import _HELD, _SHARED, BY_NAME, SIZES, Family

LOG_COUNT = 22
"""Floats of the input and of the output, as a power of two: 16 MiB, which L2 holds."""
CHASE_ROWS = 1 << 17
"""Rows of 128 bytes of the table that latency families walk through: 16 MiB."""
NEVER = 1 << 30
WHOLE_SM = 200 * 1024
"""Dynamic shared memory that leaves room for one block on a multiprocessor."""

Argument = int | float | str
"""``in``, ``out``, ``next`` and ``state`` are tensors; numbers are passed as they are."""


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
    """

    kernel: str
    grid: int
    block: int
    arguments: tuple[Argument, ...]
    shared: int = 0


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


def plan(family: Family, level: int, size: int, multiprocessors: int) -> Plan:
    """Return what a family launches.

    Parameters
    ----------
    level, size
        Places in `LEVELS` and `SIZES`.
    multiprocessors
        Of the GPU; families that fill it exactly depend on them.
    """
    return _PLANS[family.name](family.values[level], level, SIZES[size], multiprocessors)


def macros(level: int) -> dict[str, int]:
    """Return the macros of ``planted.cu`` at a level."""
    return {
        "HELD": _HELD[level],
        "CHAINS": BY_NAME["dependency"].values[level],
        "LOADS": BY_NAME["load_chain"].values[level],
        "SPECIAL": BY_NAME["special"].values[level],
        "DOUBLES": BY_NAME["doubles"].values[level],
    }


def _one(call: Call, rounds: int, rows: int = 0, outputs: int | None = None) -> Plan:
    return Plan((call,), outputs or call.grid * call.block, rounds, rows)


_Maker = Callable[[int, int, float, int], Plan]


def _loads(shared: tuple[int, ...]) -> _Maker:
    def make(shift: int, level: int, scale: float, sms: int) -> Plan:
        rounds = round(8 * scale)
        arguments = ("in", "out", LOG_COUNT, shift, rounds)
        return _one(
            Call("load_stride", (1 << LOG_COUNT) // 256, 256, arguments, shared[level]), rounds
        )

    return make


def _stores(shift: int, level: int, scale: float, sms: int) -> Plan:
    rounds = round(4 * scale)
    arguments = ("out", 0.375, -1.5, LOG_COUNT, shift, rounds)
    return _one(Call("store_stride", (1 << LOG_COUNT) // 256, 256, arguments), rounds)


def _conflicts(kernel: str) -> _Maker:
    def make(stride: int, level: int, scale: float, sms: int) -> Plan:
        rounds = round(24 * scale)
        return _one(Call(kernel, sms * 8, 256, ("in", "out", stride, rounds)), rounds)

    return make


def _divergence(store_shifts: tuple[int, ...]) -> _Maker:
    def make(shift: int, level: int, scale: float, sms: int) -> Plan:
        rounds = round(16 * scale)
        arguments = ("in", "out", shift, rounds, 20, store_shifts[level])
        return _one(Call("divergence", (1 << 20) // 256, 256, arguments), rounds)

    return make


def _chase(held: bool) -> _Maker:
    def make(value: int, level: int, scale: float, sms: int) -> Plan:
        rounds = round(32 * scale)
        kernel, shared = ("chase_held", 0) if held else ("chase", value)
        arguments = ("next", "in", "out", CHASE_ROWS, rounds)
        return _one(Call(kernel, sms * 32, 256, arguments, shared), rounds, CHASE_ROWS)

    return make


def _barriers(period: int, level: int, scale: float, sms: int) -> Plan:
    rounds = round(8 * scale) * 32
    return _one(Call("barriers", sms * 2, 1024, ("in", "out", rounds, period)), rounds)


def _dependency(chains: int, level: int, scale: float, sms: int) -> Plan:
    rounds = round(400 * scale)
    return _one(Call("dependency", sms, 128, ("in", "out", rounds)), rounds)


def _load_chain(chains: int, level: int, scale: float, sms: int) -> Plan:
    loads = round(64 * scale) * 8
    arguments = ("next", "out", CHASE_ROWS, loads)
    return _one(Call("load_chain", sms * 2, 256, arguments), loads, CHASE_ROWS)


def _special(every: tuple[int, ...]) -> _Maker:
    def make(value: int, level: int, scale: float, sms: int) -> Plan:
        rounds = round(160 * scale)
        return _one(Call("special", sms * 8, 256, ("in", "out", rounds, every[level])), rounds)

    return make


def _doubles(value: int, level: int, scale: float, sms: int) -> Plan:
    rounds = round(320 * scale)
    return _one(Call("doubles", sms * 8, 256, ("in", "out", rounds)), rounds)


def _working_set(rows: int, level: int, scale: float, sms: int) -> Plan:
    rounds = round(128 * scale)
    return _one(Call("chase", sms * 2, 256, ("next", "in", "out", rows, rounds)), rounds, rows)


def _code(mask: int, level: int, scale: float, sms: int) -> Plan:
    rounds = round(192 * scale)
    return _one(Call("code_footprint", sms * 2, 256, ("in", "out", rounds, mask)), rounds)


def _launches(count: int, level: int, scale: float, sms: int) -> Plan:
    rounds = round(12 * scale) * 8
    grid = sms * 8
    calls = tuple(
        Call("advance", grid, 256, ("in" if part == 0 else "out", "out", rounds // count))
        for part in range(count)
    )
    return Plan(calls, grid * 256, rounds)


def _tail(percent: int, level: int, scale: float, sms: int) -> Plan:
    total = round(1020 * scale) * sms
    # 103 % is what is just above one wave: 136 blocks on 132 multiprocessors
    grid = -(-sms * percent // 100)
    rounds = round(total / grid)
    return _one(Call("waves", grid, 1024, ("in", "out", rounds), WHOLE_SM), rounds)


_PLANS: dict[str, _Maker] = {
    "load_stride": _loads((0, 0, 0, 0)),
    "store_stride": _stores,
    "bank_conflicts": _conflicts("bank_conflicts"),
    "divergence": _divergence((0, 0, 0, 0)),
    "occupancy_registers": _chase(held=True),
    "occupancy_shared": _chase(held=False),
    "barriers": _barriers,
    "dependency": _dependency,
    "load_chain": _load_chain,
    "special": _special((NEVER,) * 4),
    "doubles": _doubles,
    "working_set": _working_set,
    "code_footprint": _code,
    "launch_count": _launches,
    "tail_wave": _tail,
    "confound_loads_occupancy": _loads((_SHARED[2], _SHARED[1], 27 * 1024, 0)),
    "confound_conflicts_registers": _conflicts("bank_conflicts_held"),
    "confound_divergence_stores": _divergence((0, 1, 2, 3)),
    "confound_special_barriers": _special((64, 16, 4, 1)),
}
