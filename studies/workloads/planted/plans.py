"""What is launched for a family at a level and a size: plain data, without a GPU."""

from __future__ import annotations

from . import blocks, bulk, memory, units
from .definition import (
    CHASE_ROWS,
    LOG_COUNT,
    NEVER,
    SIZES,
    WHOLE_SM,
    Call,
    Family,
    Maker,
    Plan,
    single,
)
from .families import BY_NAME, SHARED_BYTES


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


def source_macros(level: int) -> dict[str, dict[str, int]]:
    """Return the macros of each source at a level, by the stems of the files."""
    of_family = {
        "HELD": "occupancy_registers",
        "CHAINS": "dependency",
        "LOADS": "load_chain",
        "SPECIAL": "special",
        "DOUBLES": "doubles",
        "DOUBLES_OR_NONE": "doubles_from_none",
    }
    return {
        "planted": {macro: BY_NAME[name].values[level] for macro, name in of_family.items()},
        "instructions": {},
        "memory": {macro: values[level] for macro, values in memory.MACROS.items()},
        "units": {macro: values[level] for macro, values in units.MACROS.items()},
        "blocks": {},
        "bulk": {macro: values[level] for macro, values in bulk.MACROS.items()},
    }


def macros(level: int) -> dict[str, int]:
    """Return the macros of all sources at a level."""
    return {name: value for given in source_macros(level).values() for name, value in given.items()}


def _loads(shared: tuple[int, ...]) -> Maker:
    def make(shift: int, level: int, scale: float, sms: int) -> Plan:
        rounds = round(8 * scale)
        arguments = ("in", "out", LOG_COUNT, shift, rounds)
        return single(
            Call("load_stride", (1 << LOG_COUNT) // 256, 256, arguments, shared[level]), rounds
        )

    return make


def _stores(shift: int, level: int, scale: float, sms: int) -> Plan:
    rounds = round(4 * scale)
    arguments = ("out", 0.375, -1.5, LOG_COUNT, shift, rounds)
    return single(Call("store_stride", (1 << LOG_COUNT) // 256, 256, arguments), rounds)


def _conflicts(kernel: str) -> Maker:
    def make(stride: int, level: int, scale: float, sms: int) -> Plan:
        rounds = round(24 * scale)
        return single(Call(kernel, sms * 8, 256, ("in", "out", stride, rounds)), rounds)

    return make


def _divergence(store_shifts: tuple[int, ...]) -> Maker:
    def make(shift: int, level: int, scale: float, sms: int) -> Plan:
        rounds = round(16 * scale)
        arguments = ("in", "out", shift, rounds, 20, store_shifts[level])
        return single(Call("divergence", (1 << 20) // 256, 256, arguments), rounds)

    return make


def _chase(held: bool) -> Maker:
    def make(value: int, level: int, scale: float, sms: int) -> Plan:
        rounds = round(32 * scale)
        kernel, shared = ("chase_held", 0) if held else ("chase", value)
        arguments = ("next", "in", "out", CHASE_ROWS, rounds)
        return single(Call(kernel, sms * 32, 256, arguments, shared), rounds, CHASE_ROWS)

    return make


def _barriers(period: int, level: int, scale: float, sms: int) -> Plan:
    rounds = round(8 * scale) * 32
    return single(Call("barriers", sms * 2, 1024, ("in", "out", rounds, period)), rounds)


def _dependency(chains: int, level: int, scale: float, sms: int) -> Plan:
    rounds = round(400 * scale)
    return single(Call("dependency", sms, 128, ("in", "out", rounds)), rounds)


def _load_chain(chains: int, level: int, scale: float, sms: int) -> Plan:
    loads = round(64 * scale) * 8
    arguments = ("next", "out", CHASE_ROWS, loads)
    return single(Call("load_chain", sms * 2, 256, arguments), loads, CHASE_ROWS)


def _special(every: tuple[int, ...]) -> Maker:
    def make(value: int, level: int, scale: float, sms: int) -> Plan:
        rounds = round(160 * scale)
        return single(Call("special", sms * 8, 256, ("in", "out", rounds, every[level])), rounds)

    return make


def _doubles(value: int, level: int, scale: float, sms: int) -> Plan:
    rounds = round(320 * scale)
    return single(Call("doubles", sms * 8, 256, ("in", "out", rounds)), rounds)


def _working_set(rows: int, level: int, scale: float, sms: int) -> Plan:
    rounds = round(128 * scale)
    return single(Call("chase", sms * 2, 256, ("next", "in", "out", rows, rounds)), rounds, rows)


def _code(mask: int, level: int, scale: float, sms: int) -> Plan:
    rounds = round(192 * scale)
    arguments = ("in", "out", rounds, mask)
    return single(Call("code_footprint", sms * 2, 256, arguments, source="instructions"), rounds)


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
    return single(Call("waves", grid, 1024, ("in", "out", rounds), WHOLE_SM), rounds)


_PLANS: dict[str, Maker] = {
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
    "confound_loads_occupancy": _loads((SHARED_BYTES[2], SHARED_BYTES[1], 27 * 1024, 0)),
    "confound_conflicts_registers": _conflicts("bank_conflicts_held"),
    "confound_divergence_stores": _divergence((0, 1, 2, 3)),
    "confound_special_barriers": _special((64, 16, 4, 1)),
    **memory.PLANS,
    **units.PLANS,
    **blocks.PLANS,
    **bulk.PLANS,
}
