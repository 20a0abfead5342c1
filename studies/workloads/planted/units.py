"""Families of units: conversions, roots, double precision, integers, exchanges, tensor cores."""

from __future__ import annotations

from typing import Any

from .answers import cause
from .arithmetic import HOP, Reference, chain, integer, threads
from .definition import Argument, Call, Family, Maker, Plan, single

_OTHERS = (0, 2, 4, 8)
_ROTATED = (0, 5, 6, 8)
_DOUBLES = (0, 6, 7, 8)
_TENSOR = (8, 6, 4, 0)
_FACTOR, _KEY, _DISTANCE = 22695477, 0x2545F491, 7
_INVERSE = pow(_FACTOR, -1, 1 << 32)
_NEAR = 14
"""Floats that address arithmetic walks over, as a power of two: 64 KiB, which L1 holds."""

MACROS = {
    "CONVERTED": _OTHERS,
    "ROOTS": _OTHERS,
    "ROTATED": _ROTATED,
    "MIXES": _OTHERS,
    "EXCHANGED": _OTHERS,
}
"""Macros of ``units.cu`` at each level."""


FAMILIES = (
    Family(
        "conversions",
        "accumulators out of 8 that convert to integers",
        _OTHERS,
        cause("conversions", (), inst_bit_convert=1, special_fu_utilization=1),
    ),
    Family(
        "reciprocal_roots",
        "accumulators out of 8 that add 1 / sqrt(x)",
        _OTHERS,
        cause("reciprocal_roots", ("flop_count_sp_special",), special_fu_utilization=1),
        held_out=True,
    ),
    Family(
        "doubles_from_none",
        "accumulators out of 8 in double precision; at first none",
        _DOUBLES,
        cause("doubles_from_none", ("inst_fp_64",), double_precision_fu_utilization=1),
    ),
    Family(
        "bit_rotations",
        "accumulators out of 8 that rotate bits in place of multiply-adds",
        _ROTATED,
        cause("bit_rotations", (), inst_integer=1, stall_pipe_busy=1),
    ),
    Family(
        "address_arithmetic",
        "integer calculations on an address, each of which is undone",
        _OTHERS,
        cause("address_arithmetic", ("inst_executed",), inst_integer=1),
    ),
    Family(
        "lane_exchange",
        "accumulators out of 8 that another lane's value goes to",
        _OTHERS,
        cause(
            "lane_exchange",
            ("ldst_fu_utilization",),
            inst_inter_thread_communication=1,
            stall_pipe_busy=1,
        ),
    ),
    Family(
        "tensor_cores",
        "eighths of the products that tensor cores make",
        _TENSOR,
        cause(
            "tensor_cores",
            ("tensor_utilization", "single_precision_fu_utilization"),
            tensor_precision_fu_utilization=-1,
        ),
    ),
)


def _plan(kernel: str, work: int, *more: Argument, source: str = "units") -> Maker:
    """Plan eight blocks a multiprocessor; the rounds are the kernel's third argument."""

    def make(value: int, level: int, scale: float, sms: int) -> Plan:
        rounds = round(work * scale)
        arguments = ("in", "out", rounds, *more)
        return single(Call(kernel, sms * 8, 256, arguments, source=source), rounds)

    return make


def _addresses(mixes: int, level: int, scale: float, sms: int) -> Plan:
    rounds = round(128 * scale)
    arguments = ("in", "out", _NEAR, rounds, _FACTOR, _INVERSE, _KEY)
    return single(Call("addresses", sms * 8, 256, arguments, source="units"), rounds)


def _products(tensor: int, level: int, scale: float, sms: int) -> Plan:
    rounds, grid = round(24 * scale), min(sms * 7, 1024)
    call = Call("products", grid, 128, ("in", "out", tensor, rounds), source="units")
    return single(call, rounds, outputs=grid * 32 * 128)


PLANS: dict[str, Maker] = {
    "conversions": _plan("conversions", 160),
    "reciprocal_roots": _plan("roots", 160),
    "doubles_from_none": _plan("doubles_or_none", 320, source="planted"),
    "bit_rotations": _plan("rotations", 320, _DISTANCE),
    "address_arithmetic": _addresses,
    "lane_exchange": _plan("exchanges", 160),
    "tensor_cores": _products,
}


def _falling(rounds: int, start: Any, step: float) -> Any:
    """Return the sum of x over rounds in which x falls from its start by a step each."""
    return rounds * start - step * rounds * (rounds - 1) / 2


def _conversions_reference(call: Call, macros: dict[str, int], tensors: dict[str, Any]) -> Any:
    rounds, count = integer(call, 2), call.grid * call.block
    x = 4096.0 * tensors["in"][:count].double()
    # x is negative and falls by whole numbers, so what is cut off stays the same
    starts = [(x - 32.0 * c).trunc() if c < macros["CONVERTED"] else x - 32.0 * c for c in range(8)]
    return sum(0.25 * _falling(rounds, start, 1.0) for start in starts)


def _roots_reference(call: Call, macros: dict[str, int], tensors: dict[str, Any]) -> Any:
    rounds, step = integer(call, 2), 2.0**-10
    start = 1.0 - tensors["in"][: call.grid * call.block].double()
    total = start * 0.0
    for c in range(8):
        x = start + 0.03125 * c
        if c < macros["ROOTS"]:
            total = total + sum((x + step * i).rsqrt() for i in range(rounds))
        else:
            total = total + 0.25 * _falling(rounds, x, -step)
    return total


def _rotations_reference(call: Call, macros: dict[str, int], tensors: dict[str, Any]) -> Any:
    import torch

    rounds, distance = integer(call, 2), integer(call, 3)
    start = tensors["in"][: call.grid * call.block]
    total = start.double() * 0.0
    turn = distance * 4 * rounds % 32
    for c in range(8):
        if c < macros["ROTATED"]:
            bits = (start + c).view(torch.int32).long() & 0xFFFFFFFF
            turned = (bits << turn | bits >> (32 - turn)) & 0xFFFFFFFF
            total = total + (turned >> 8) * 2.0**-24
        else:
            total = total + chain(start.double() + c, 4 * rounds, 0.9990234375, 0.0078125)
    return total


def _addresses_reference(call: Call, macros: dict[str, int], tensors: dict[str, Any]) -> Any:
    mask, rounds = (1 << integer(call, 2)) - 1, integer(call, 3)
    t = threads(call, tensors)
    return sum(tensors["in"][(t + i * HOP) & mask].double() for i in range(rounds))


def _exchanges_reference(call: Call, macros: dict[str, int], tensors: dict[str, Any]) -> Any:
    rounds, factor = integer(call, 2), 0.9990234375
    t = threads(call, tensors)
    start, total = tensors["in"][t].double(), 0.0
    for c in range(8):
        own = 2.0**-10 * (t % 32).double()
        other = 2.0**-10 * ((t % 32) ^ (c + 1)).double() if c < macros["EXCHANGED"] else own
        # two steps: to the other lane, which adds what it adds, and back
        total = total + chain(start + c, rounds, factor**2, factor * other + own)
    return total


def _products_reference(call: Call, macros: dict[str, int], tensors: dict[str, Any]) -> Any:
    import torch

    rounds, size = integer(call, 3), 32 * 32 + 32 * 128
    kinds = min(call.grid, 64)
    given = (tensors["in"][: kinds * size].double() * 64.0).round() / 64.0
    left = given.reshape(kinds, size)[:, :1024].reshape(kinds, 32, 32)
    right = given.reshape(kinds, size)[:, 1024:].reshape(kinds, 32, 128)
    once = left.transpose(1, 2) @ right
    return 4 * rounds * once[torch.arange(call.grid, device=once.device) % 64].reshape(-1)


REFERENCES: dict[str, Reference] = {
    "conversions": _conversions_reference,
    "roots": _roots_reference,
    "rotations": _rotations_reference,
    "addresses": _addresses_reference,
    "exchanges": _exchanges_reference,
    "products": _products_reference,
}
