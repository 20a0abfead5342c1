"""Families of memory: atomics, local and constant memory, widths, rereads, copies, fences."""

from __future__ import annotations

from typing import Any

from .answers import cause
from .arithmetic import HOP, Reference, chain, integer, threads
from .definition import LOG_COUNT, NEVER, Argument, Call, Family, Maker, Plan, single

_BINS = (20, 11, 9, 7)
_MERGED = (16, 4, 2, 1)
_INDEXED = (0, 8, 12, 16)
_CROWD = (2, 5, 6, 8)
_WIDTHS = (16, 4, 2, 1)
_PASSES = (1, 2, 4, 8)
_BUSY = (1, 2, 3, 4)
_STAGES = (4, 2, 1, 0)
_TWO_BLOCKS = 100 * 1024
"""Dynamic shared memory that leaves room for two blocks on a multiprocessor."""

MACROS = {
    "INDEXED": _INDEXED,
    "CROWD": _CROWD,
    "WIDTH": _WIDTHS,
    "PASSES": _PASSES,
    "BUSY": _BUSY,
    "READS": _PASSES,
    "STAGES": _STAGES,
}
"""Macros of ``memory.cu`` at each level."""


FAMILIES = (
    Family(
        "atomic_contention",
        "words that all atomics of a launch go to, as a power of two",
        _BINS,
        cause("atomic_contention", ("inst_executed_global_reductions",), stall_memory_throttle=1),
    ),
    Family(
        "atomic_count",
        "values that a thread merges before one atomic",
        _MERGED,
        cause(
            "atomic_count",
            ("inst_executed_global_reductions", "l2_global_reduction_bytes"),
            global_reduction_requests=1,
        ),
        held_out=True,
    ),
    Family(
        "shared_atomics",
        "neighbouring lanes that add to the same word of shared memory, as a power of two",
        (0, 1, 3, 5),
        cause("shared_atomics", ("inst_executed_shared_atomics",), shared_utilization=1),
    ),
    Family(
        "local_array",
        "values out of 16 in an array with a run-time index",
        _INDEXED,
        cause(
            "local_array",
            ("local_memory_overhead", "local_load_transactions", "inst_executed_local_loads"),
            local_load_requests=1,
            local_store_requests=1,
        ),
    ),
    Family(
        "spills",
        "blocks a multiprocessor that registers have to leave room for",
        _CROWD,
        cause(
            "spills",
            ("local_memory_overhead", "local_load_transactions", "inst_executed_local_loads"),
            local_load_requests=1,
            local_store_requests=1,
        ),
        held_out=True,
    ),
    Family(
        "narrow_access",
        "bytes of one load and one store of a lane",
        _WIDTHS,
        cause(
            "narrow_access",
            ("inst_executed_global_loads", "gld_transactions_per_request"),
            global_load_requests=1,
            global_store_requests=1,
        ),
    ),
    Family(
        "redundant_traffic",
        "passes over the same data, which is larger than L2",
        _PASSES,
        cause(
            "redundant_traffic",
            ("dram_utilization", "dram_read_transactions", "gld_transactions"),
            dram_read_bytes=1,
        ),
    ),
    Family(
        "reloaded_values",
        "loads of each value from L2",
        _PASSES,
        cause(
            "reloaded_values",
            ("l2_utilization", "l2_tex_read_transactions", "gld_transactions"),
            global_load_requests=1,
        ),
        held_out=True,
    ),
    Family(
        "async_copy",
        "copies to shared memory under way at once; 0: loads and stores through registers",
        _STAGES,
        cause("async_copy", (), stall_memory_dependency=1),
    ),
    Family(
        "memory_fence",
        "stores between two fences of a thread",
        (NEVER, 16, 4, 1),
        cause("memory_fence", (), stall_sync=1),
    ),
    Family(
        "constant_divergence",
        "neighbouring lanes that read the same word of constant memory, as a power of two",
        (5, 3, 2, 0),
        cause("constant_divergence", (), stall_pipe_busy=1),
    ),
    Family(
        "confound_traffic_arithmetic",
        "passes over the same data; multiply-adds, whose unit idles, increase at the same time",
        _PASSES,
        cause(
            "confound_traffic_arithmetic",
            ("dram_utilization", "dram_read_transactions", "gld_transactions"),
            dram_read_bytes=1,
        ),
        {"flop_count_sp": 1},
    ),
    Family(
        "confound_atomics_occupancy",
        "words that all atomics of a launch go to; shared memory limits the blocks more and more",
        _BINS,
        cause(
            "confound_atomics_occupancy",
            ("inst_executed_global_reductions", "stall_memory_throttle"),
        ),
        {"achieved_occupancy": -1},
        held_out=True,
    ),
)


def _call(kernel: str, grid: int, arguments: tuple[Argument, ...], **other: int) -> Call:
    return Call(kernel, grid, other.pop("block", 256), arguments, source="memory", **other)


def _contention(shared: tuple[int, ...]) -> Maker:
    def make(log_bins: int, level: int, scale: float, sms: int) -> Plan:
        rounds = round(4 * scale)
        arguments = ("in", "out", LOG_COUNT, log_bins, 1, rounds)
        call = _call("atomic_bins", (1 << 20) // 256, arguments, shared=shared[level])
        return single(call, rounds, outputs=1 << log_bins)

    return make


def _merged(merged: int, level: int, scale: float, sms: int) -> Plan:
    rounds, log_bins = round(64 * scale), 10
    arguments = ("in", "out", LOG_COUNT, log_bins, merged, rounds)
    return single(_call("atomic_bins", sms * 8, arguments), rounds, outputs=1 << log_bins)


def _histogram(shift: int, level: int, scale: float, sms: int) -> Plan:
    rounds = round(128 * scale)
    return single(_call("shared_bins", sms * 8, ("in", "out", shift, rounds)), rounds)


def _local(value: int, level: int, scale: float, sms: int) -> Plan:
    rounds = round(200 * scale)
    return single(_call("local_array", sms * 8, ("in", "out", rounds, 0)), rounds)


def _spills(value: int, level: int, scale: float, sms: int) -> Plan:
    rounds = round(200 * scale)
    call = _call("spilled", sms * 2, ("in", "out", rounds), shared=_TWO_BLOCKS)
    return single(call, rounds)


def _copied(grid: int, rounds: int, log_count: int) -> int:
    """Return the floats that a copy in rounds of four a thread writes."""
    return min(1 << log_count, grid * 256 * 4 * rounds)


def _narrow(width: int, level: int, scale: float, sms: int) -> Plan:
    rounds, grid = round(8 * scale), sms * 8
    call = _call("copy_words", grid, ("in", "out", LOG_COUNT, rounds))
    return single(call, rounds, outputs=_copied(grid, rounds, LOG_COUNT))


def _passes(kernel: str) -> Maker:
    def make(value: int, level: int, scale: float, sms: int) -> Plan:
        rounds = round(32 * scale)
        return single(_call(kernel, sms * 8, ("wide", "out", rounds)), rounds)

    return make


def _reloads(reads: int, level: int, scale: float, sms: int) -> Plan:
    rounds = round(128 * scale)
    return single(_call("reloads", sms * 8, ("in", "out", LOG_COUNT, rounds)), rounds)


def _staged(stages: int, level: int, scale: float, sms: int) -> Plan:
    rounds = round(256 * scale)
    call = _call("staged", sms * 2, ("in", "out", LOG_COUNT, rounds), block=128)
    return single(call, rounds)


def _fences(period: int, level: int, scale: float, sms: int) -> Plan:
    rounds, grid = round(64 * scale), sms * 8
    call = _call("fences", grid, ("in", "out", rounds, period))
    return single(call, rounds, outputs=4 * grid * 256)


def _constants(shift: int, level: int, scale: float, sms: int) -> Plan:
    rounds = round(128 * scale)
    return single(_call("constant_table", sms * 8, ("in", "out", shift, rounds)), rounds)


PLANS: dict[str, Maker] = {
    "atomic_contention": _contention((0, 0, 0, 0)),
    "atomic_count": _merged,
    "shared_atomics": _histogram,
    "local_array": _local,
    "spills": _spills,
    "narrow_access": _narrow,
    "redundant_traffic": _passes("passes"),
    "reloaded_values": _reloads,
    "async_copy": _staged,
    "memory_fence": _fences,
    "constant_divergence": _constants,
    "confound_traffic_arithmetic": _passes("passes_busy"),
    "confound_atomics_occupancy": _contention((0, 36 * 1024, 55 * 1024, 112 * 1024)),
}


def _bins_reference(call: Call, macros: dict[str, int], tensors: dict[str, Any]) -> Any:
    import torch

    log_count, log_bins, rounds = (integer(call, place) for place in (2, 3, 5))
    t = threads(call, tensors)
    least = torch.zeros(len(t), dtype=torch.float64, device=t.device)
    for i in range(rounds):
        value = tensors["in"][(t + i * HOP) & ((1 << log_count) - 1)]
        least = torch.minimum(least, value.double())
    out = torch.full((1 << log_bins,), torch.nan, dtype=torch.float64, device=t.device)
    return out.scatter_reduce(0, t & ((1 << log_bins) - 1), least, "amin", include_self=False)


def _histogram_reference(call: Call, macros: dict[str, int], tensors: dict[str, Any]) -> Any:
    import torch

    shift, rounds = integer(call, 2), integer(call, 3)
    t = threads(call, tensors)
    lane, warp = t % 32, t % call.block // 32
    weight = (tensors["in"][t].double() * -1024.0).trunc()
    out = torch.zeros(len(t), dtype=torch.float64, device=t.device)
    for turn in range(8):
        word = ((lane >> shift) + 32 * (turn + warp)) % 256
        times = len(range(turn, rounds, 8))
        out.scatter_add_(0, t // call.block * call.block + word, times * weight)
    return out


def _chains_reference(count: int) -> Reference:
    def make(call: Call, macros: dict[str, int], tensors: dict[str, Any]) -> Any:
        start, rounds = tensors["in"][: call.grid * call.block].double(), integer(call, 2)
        return sum(chain(start + c, rounds, 0.9990234375, 0.0078125) for c in range(count))

    return make


def _copy_reference(call: Call, macros: dict[str, int], tensors: dict[str, Any]) -> Any:
    return tensors["in"][: _copied(call.grid, integer(call, 3), integer(call, 2))].double()


def _decays(device: Any) -> Any:
    import torch

    return 1.0 - 0.00390625 * torch.arange(1, 9, dtype=torch.float64, device=device)[:, None]


def _passes_reference(call: Call, macros: dict[str, int], tensors: dict[str, Any]) -> Any:
    import torch

    rounds, count = integer(call, 2), call.grid * call.block
    work = macros["BUSY"] if call.kernel == "passes_busy" else 1
    vectors = tensors["wide"][: 4 * count * rounds].reshape(rounds, count, 4)
    decays = _decays(vectors.device)
    sums = torch.zeros(8, count, dtype=torch.float64, device=vectors.device)
    beside = torch.zeros_like(sums)
    for vector in vectors:
        for part in vector.T.double():
            sums = sums * decays + part
            for _ in range(work - 1):
                beside = beside * (0.5 * decays) + part
    return (sums + beside).sum(dim=0)


def _reloads_reference(call: Call, macros: dict[str, int], tensors: dict[str, Any]) -> Any:
    import torch

    mask, rounds = (1 << integer(call, 2)) - 1, integer(call, 3)
    t = threads(call, tensors)
    decays = _decays(t.device)
    sums = torch.zeros(8, len(t), dtype=torch.float64, device=t.device)
    for i in range(rounds):
        sums = sums * decays + tensors["in"][(t + i * HOP) & mask].double()
    return sums.sum(dim=0)


def _staged_reference(call: Call, macros: dict[str, int], tensors: dict[str, Any]) -> Any:
    import torch

    mask, rounds, factor = (1 << integer(call, 2)) // 4 - 1, integer(call, 3), 0.9990234375
    vectors = tensors["in"][: 1 << integer(call, 2)].reshape(-1, 4)
    beside = threads(call, tensors) ^ 1
    value = torch.zeros(len(beside), dtype=torch.float64, device=beside.device)
    for i in range(rounds):
        x, y, z, w = vectors[(beside + i * HOP) & mask].double().T
        once = ((x * factor + y) * factor + z) * factor + w
        value = chain(value, 8, factor**4, once)
    return value


def _fences_reference(call: Call, macros: dict[str, int], tensors: dict[str, Any]) -> Any:
    import torch

    start, rounds = tensors["in"][: call.grid * call.block].double(), integer(call, 2)
    steps = [8 * (rounds - 3 + slot) for slot in range(4)]
    return torch.cat([chain(start, each, 0.9990234375, 0.0078125) for each in steps])


def _constants_reference(call: Call, macros: dict[str, int], tensors: dict[str, Any]) -> Any:
    import torch

    shift, rounds = integer(call, 2), integer(call, 3)
    t = threads(call, tensors)
    table = (torch.arange(256, device=t.device) * 37 % 256).double() / 256.0
    first, value = (t % 32 >> shift) * 8, tensors["in"][t].double()
    for i in range(rounds):
        value = value * 0.9990234375 + table[(first + i) % 256]
    return value


REFERENCES: dict[str, Reference] = {
    "atomic_bins": _bins_reference,
    "shared_bins": _histogram_reference,
    "local_array": _chains_reference(16),
    "spilled": _chains_reference(52),
    "copy_words": _copy_reference,
    "passes": _passes_reference,
    "passes_busy": _passes_reference,
    "reloads": _reloads_reference,
    "staged": _staged_reference,
    "fences": _fences_reference,
    "constant_table": _constants_reference,
}
