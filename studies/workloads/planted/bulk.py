"""Families of bulk copies (cp.async.bulk, the copy engine of Hopper)."""

from __future__ import annotations

from typing import Any

from .answers import cause
from .arithmetic import HOP, Reference, chain, integer, threads
from .definition import LOG_COUNT, Call, Family, Maker, Plan, single

_DEPTHS = (6, 3, 2, 1)
_BYTES = (2048, 256, 64, 16)
_VECTORS = 128
"""Vectors of four floats in a tile: one a thread."""

MACROS = {"DEPTH": _DEPTHS, "COPY_BYTES": _BYTES}
"""Macros of ``bulk.cu`` at each level."""

FAMILIES = (
    Family(
        "bulk_depth",
        "tiles with room in shared memory, all but one of them being copied by the copy engine",
        _DEPTHS,
        cause("bulk_depth", (), stall_memory_dependency=1),
        hopper=True,
    ),
    Family(
        "bulk_width",
        "bytes of one copy by the copy engine",
        _BYTES,
        cause("bulk_width", ("inst_executed",), stall_sync=1),
        hopper=True,
    ),
)


def _tiles(kernel: str) -> Maker:
    def make(value: int, level: int, scale: float, sms: int) -> Plan:
        rounds = round(256 * scale)
        call = Call(kernel, sms, 128, ("in", "out", LOG_COUNT, rounds), source="bulk")
        return single(call, rounds)

    return make


PLANS: dict[str, Maker] = {"bulk_depth": _tiles("bulk_depth"), "bulk_width": _tiles("bulk_width")}


def _tiles_reference(call: Call, macros: dict[str, int], tensors: dict[str, Any]) -> Any:
    import torch

    log_count, rounds, factor = integer(call, 2), integer(call, 3), 0.9990234375
    tiles = tensors["in"][: 1 << log_count].reshape(-1, _VECTORS, 4)
    t = threads(call, tensors)
    value = torch.zeros(len(t), dtype=torch.float64, device=t.device)
    for i in range(rounds):
        tile = (t // _VECTORS + i * HOP) & (len(tiles) - 1)
        x, y, z, w = tiles[tile, t % _VECTORS].double().T
        once = ((x * factor + y) * factor + z) * factor + w
        value = chain(value, 6, factor**4, once)
    return value


REFERENCES: dict[str, Reference] = {
    "bulk_depth": _tiles_reference,
    "bulk_width": _tiles_reference,
}
