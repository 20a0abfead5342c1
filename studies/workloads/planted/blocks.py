"""Families of blocks and launches: shares of work that differ, tiny blocks, a host that pauses."""

from __future__ import annotations

from typing import Any

from .answers import cause
from .arithmetic import MASK32, Reference, advanced, follow, integer, threads
from .definition import CHASE_ROWS, WHOLE_SM, Call, Family, Maker, Plan, single

FAMILIES = (
    Family(
        "uneven_blocks",
        "work of one block in eight over the mean, in per cent; it is one on each multiprocessor",
        (100, 200, 400, 600),
        cause("uneven_blocks", (), achieved_occupancy=-1),
    ),
    Family(
        "uneven_multiprocessors",
        "work of a quarter of the multiprocessors over the mean, in per cent",
        (100, 150, 200, 300),
        cause("uneven_multiprocessors", (), sm_efficiency=-1),
        held_out=True,
    ),
    Family(
        "tiny_blocks",
        "threads a block; the places for blocks run out below 64",
        (256, 128, 64, 32),
        cause("tiny_blocks", ("theoretical_occupancy",), achieved_occupancy=-1),
    ),
    Family(
        "launch_gaps",
        "microseconds that the host works between launches, waiting for each; 0: it does not wait",
        (0, 20, 60, 160),
        cause("launch_gaps", ()),
    ),
)


def shares(percent: int, blocks: int, heavy_blocks: int, work: int) -> tuple[int, int]:
    """Return the work of a light and of a heavy block.

    `percent` is the heavy blocks' work over the mean of all, `work`.
    """
    heavy = round(work * percent / 100)
    return round((work * blocks - heavy * heavy_blocks) / (blocks - heavy_blocks)), heavy


def _uneven_blocks(percent: int, level: int, scale: float, sms: int) -> Plan:
    # a multiple of seven: the light blocks of eight share what the heavy one leaves
    rounds, grid = 7 * round(8 * scale), sms * 8
    light, heavy = shares(percent, grid, sms, rounds)
    arguments = ("next", "out", CHASE_ROWS, light, heavy, sms)
    return single(Call("walk", grid, 256, arguments, source="blocks"), rounds, CHASE_ROWS)


def _uneven_multiprocessors(percent: int, level: int, scale: float, sms: int) -> Plan:
    rounds, some = round(1020 * scale), max(1, sms // 4)
    light, heavy = shares(percent, sms, some, rounds) if sms > 1 else (rounds, rounds)
    arguments = ("in", "out", light, heavy, some)
    return single(Call("uneven", sms, 1024, arguments, WHOLE_SM, "blocks"), rounds)


def _tiny_blocks(block: int, level: int, scale: float, sms: int) -> Plan:
    rounds, grid = round(32 * scale), sms * 32 * 256 // block
    arguments = ("next", "out", CHASE_ROWS, rounds, rounds, 0)
    return single(Call("walk", grid, block, arguments, source="blocks"), rounds, CHASE_ROWS)


def _launch_gaps(pause: int, level: int, scale: float, sms: int) -> Plan:
    launches, rounds = 8, round(480 * scale)
    calls = tuple(
        Call("advance", sms * 8, 256, ("in" if part == 0 else "out", "out", rounds), pause_us=pause)
        for part in range(launches)
    )
    return Plan(calls, sms * 8 * 256, launches * rounds)


PLANS: dict[str, Maker] = {
    "uneven_blocks": _uneven_blocks,
    "uneven_multiprocessors": _uneven_multiprocessors,
    "tiny_blocks": _tiny_blocks,
    "launch_gaps": _launch_gaps,
}


def _walk_reference(call: Call, macros: dict[str, int], tensors: dict[str, Any]) -> Any:
    import torch

    rows, light, heavy, heavy_blocks = (integer(call, place) for place in (2, 3, 4, 5))
    warps = threads(call, tensors)[::32] // 32
    start = ((warps * 40503) & MASK32) % rows
    border = heavy_blocks * call.block // 32
    parts = [(start[:border], heavy), (start[border:], light)]
    ended = torch.cat([follow(part, rounds, tensors) for part, rounds in parts])
    return ended.repeat_interleave(32)


def _uneven_reference(call: Call, macros: dict[str, int], tensors: dict[str, Any]) -> Any:
    import torch

    light, heavy, heavy_blocks = (integer(call, place) for place in (2, 3, 4))
    start = tensors["in"][: call.grid * call.block].double()
    border = heavy_blocks * call.block
    return torch.cat([advanced(start[:border], heavy), advanced(start[border:], light)])


REFERENCES: dict[str, Reference] = {"walk": _walk_reference, "uneven": _uneven_reference}
