"""What the kernels have to compute, in double precision, from the arguments of their launches."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import blocks, bulk, memory, units
from .arithmetic import (
    HOP,
    MASK32,
    Reference,
    advanced,
    chain,
    f32,
    follow,
    integer,
    strided,
    threads,
)
from .definition import Call, Plan


def expected(plan: Plan, macros: dict[str, int], tensors: dict[str, Any]) -> Any:
    """Return the output of a layer as a float64 tensor.

    Parameters
    ----------
    plan
        What was launched.
    macros
        Macros of the build.
    tensors
        ``in`` and, where a layer reads it, ``wide`` (float32); for layers with a table ``rows``
        (int64: the row after each row).
    """
    if plan.calls[0].kernel == "advance":
        value = tensors["in"][: plan.outputs].double()
        for call in plan.calls:
            value = advanced(value, integer(call, 2))
        return value
    return _REFERENCES[plan.calls[0].kernel](plan.calls[0], macros, tensors)


def _load_stride(call: Call, macros: dict[str, int], tensors: dict[str, Any]) -> Any:
    import torch

    log_count, shift, rounds = (integer(call, place) for place in (2, 3, 4))
    t = threads(call, tensors)
    total = torch.zeros(len(t), dtype=torch.float64, device=t.device)
    for i in range(rounds):
        j = (t + i * HOP) & ((1 << log_count) - 1)
        total += tensors["in"][strided(j, log_count, shift)].double()
    return total


def _store_stride(call: Call, macros: dict[str, int], tensors: dict[str, Any]) -> Any:
    scale, offset = float(call.arguments[1]), float(call.arguments[2])
    return threads(call, tensors).bitwise_and(1023).double() * scale + offset


def _held(tile: Any, lanes: Any, count: int) -> Any:
    """Return the sum of the held values of each lane; `tile` has shape (..., words)."""
    import torch

    places = [
        (k % 8) * 128 + lanes * 4 + component for k in range(count // 4) for component in range(4)
    ]
    return tile[..., torch.stack(places)].sum(dim=-2)


def _read_tile(call: Call, macros: dict[str, int], tensors: dict[str, Any]) -> Any:
    import torch

    held = macros["HELD"] if call.kernel.endswith("_held") else 4
    stride, rounds = integer(call, 2), integer(call, 3)
    device = tensors["in"].device
    words = torch.arange(call.grid * 2048, device=device) & 0x3FFFFF
    tile = tensors["in"][words].double().reshape(call.grid, 2048)
    thread = torch.arange(call.block, device=device)
    lane, warp = thread % 32, thread // 32
    own = torch.stack([lane * stride + warp + 32 * k for k in range(32)])
    return (rounds * tile[:, own].sum(dim=1) + _held(tile, lane, held)).reshape(-1)


def _chase(call: Call, macros: dict[str, int], tensors: dict[str, Any]) -> Any:
    held = macros["HELD"] if call.kernel.endswith("_held") else 4
    rows, rounds = integer(call, 3), integer(call, 4)
    t = threads(call, tensors)
    start = ((t[::32] // 32 * 40503) & MASK32) % rows
    ended = follow(start, rounds, tensors).repeat_interleave(32)
    return ended + _held(tensors["in"][:1024].double(), t % 32, held)


def _load_chain(call: Call, macros: dict[str, int], tensors: dict[str, Any]) -> Any:
    rows, loads, chains = integer(call, 2), integer(call, 3), macros["LOADS"]
    warps = threads(call, tensors)[::32] // 32
    total = sum(
        follow((((warps * chains + c) * 40503) & MASK32) % rows, loads // chains, tensors)
        for c in range(chains)
    )
    return total.repeat_interleave(32)


def _divergence(call: Call, macros: dict[str, int], tensors: dict[str, Any]) -> Any:
    import torch

    shift, rounds, log_count, store_shift = (integer(call, place) for place in (2, 3, 4, 5))
    t = threads(call, tensors)
    path = ((t % call.block) >> shift) & 7
    out = torch.full((len(t),), torch.nan, dtype=torch.float64, device=t.device)
    for n in range(8):
        here = t[path == n]
        factor = float(np.float32(1.0) - np.float32(0.0005) * np.float32(n + 1))
        value = chain(tensors["in"][here].double(), 32 * rounds, factor, 0.125 * (n + 1))
        out[strided(here, log_count, store_shift)] = value
    return out


def _barriers(call: Call, macros: dict[str, int], tensors: dict[str, Any]) -> Any:
    start = tensors["in"][: call.grid * call.block].double()
    return chain(start, integer(call, 2) // 32 * 256, f32(0.9999), f32(0.0001))


def _dependency(call: Call, macros: dict[str, int], tensors: dict[str, Any]) -> Any:
    start, chains = tensors["in"][: call.grid * call.block].double(), macros["CHAINS"]
    steps = integer(call, 2) * 96 // chains
    return sum(chain(start + c, steps, f32(0.99999), f32(0.001)) for c in range(chains))


def _special(call: Call, macros: dict[str, int], tensors: dict[str, Any]) -> Any:
    rounds, step = integer(call, 2), 2.0**-10
    start = tensors["in"][: call.grid * call.block].double()
    total = start * 0.0
    for c in range(8):
        x = start - 0.03125 * c
        if c < macros["SPECIAL"]:
            ratio = 2.0**-step
            total = total + 2.0**x * ((1.0 - ratio**rounds) / (1.0 - ratio))
        else:
            total = total + 0.25 * (rounds * x - step * rounds * (rounds - 1) / 2)
    return total


def _doubles(call: Call, macros: dict[str, int], tensors: dict[str, Any]) -> Any:
    start, steps = tensors["in"][: call.grid * call.block].double(), integer(call, 2) * 4
    return sum(chain(start + c, steps, 0.9990234375, 0.0078125) for c in range(8))


def _code_footprint(call: Call, macros: dict[str, int], tensors: dict[str, Any]) -> Any:
    rounds, mask = integer(call, 2), integer(call, 3)
    t = threads(call, tensors)
    at = (t // 32 * 40503) & MASK32
    value, factor = tensors["in"][t].double(), f32(0.99999)
    for _ in range(rounds):
        at = (at * 1664525 + 1013904223) & MASK32
        piece = (at >> 16) & mask
        value = chain(value, 64, factor, 0.001 * (piece + 1).double())
    return value


def _waves(call: Call, macros: dict[str, int], tensors: dict[str, Any]) -> Any:
    return advanced(tensors["in"][: call.grid * call.block].double(), integer(call, 2))


_REFERENCES: dict[str, Reference] = {
    "load_stride": _load_stride,
    "store_stride": _store_stride,
    "bank_conflicts": _read_tile,
    "bank_conflicts_held": _read_tile,
    "divergence": _divergence,
    "chase": _chase,
    "chase_held": _chase,
    "load_chain": _load_chain,
    "barriers": _barriers,
    "dependency": _dependency,
    "special": _special,
    "doubles": _doubles,
    "doubles_or_none": _doubles,
    "code_footprint": _code_footprint,
    "waves": _waves,
    **memory.REFERENCES,
    **units.REFERENCES,
    **blocks.REFERENCES,
    **bulk.REFERENCES,
}
