"""The families: which knob each has, what it moves, and what counts as naming the cause.

A *family* is one kernel with one knob. A *level* is a setting of the knob (the backend of a run), a
*size* an amount of work (a layer, ``load_stride_s0``). The knob of a family moves one cause; the
confounded families move a second metric along, which is not the cause.

The families of memory, of units, of blocks and of bulk copies, with what they launch and have to
compute, are in modules of these names; `answers` has the ids of the terms that name their causes.
"""

from __future__ import annotations

from . import blocks, bulk, memory, units
from .definition import Cause, Family

_LOADS = Cause(
    ("gld_efficiency", "gld_transactions_per_request", "gld_transactions"),
    ("sectors_per_request",),
    ("uncoalesced_load",),
    {"gld_efficiency": -1},
)
_CONFLICTS = Cause(
    (
        "shared_efficiency",
        "shared_load_transactions_per_request",
        "shared_load_transactions",
    ),
    ("shared_memory_busy_time", "wavefronts_per_shared_load"),
    ("bank_conflicts",),
    {"shared_efficiency": -1},
)
_DIVERGENCE = Cause(
    ("warp_execution_efficiency", "warp_nonpred_execution_efficiency", "branch_efficiency"),
    ("active_threads_per_warp",),
    ("divergence",),
    {"warp_execution_efficiency": -1},
)
_SPECIAL = Cause(
    ("special_fu_utilization", "flop_count_sp_special"),
    ("special_function_pipe_time",),
    ("special_functions",),
    {"special_fu_utilization": 1},
)


def _stall(metric: str, rule: str) -> Cause:
    return Cause((metric,), (metric,), (rule,), {metric: 1})


def _occupancy(metric: str, rule: str) -> Cause:
    moved = ("achieved_occupancy", "theoretical_occupancy", metric)
    return Cause(moved, ("theoretical_occupancy",), (rule,), {"achieved_occupancy": -1, metric: 1})


HELD = (4, 48, 104, 200)
SHARED_BYTES = (0, 55 * 1024, 112 * 1024, 200 * 1024)

_FIRST = (
    Family(
        "load_stride",
        "distance of the floats that neighbouring lanes load, as a power of two",
        (0, 1, 2, 3),
        _LOADS,
    ),
    Family(
        "store_stride",
        "distance of the floats that neighbouring lanes store, as a power of two",
        (0, 1, 2, 3),
        Cause(
            ("gst_efficiency", "gst_transactions_per_request", "gst_transactions"),
            ("sectors_per_request",),
            ("uncoalesced_store",),
            {"gst_efficiency": -1},
        ),
    ),
    Family(
        "bank_conflicts",
        "words between the shared-memory reads of neighbouring lanes (ways of the conflict)",
        (1, 2, 4, 8),
        _CONFLICTS,
    ),
    Family(
        "divergence",
        "neighbouring lanes that take one path, as a power of two",
        (5, 4, 3, 2),
        _DIVERGENCE,
    ),
    Family(
        "occupancy_registers",
        "values kept in registers",
        HELD,
        _occupancy("registers_per_thread", "occupancy_registers"),
    ),
    Family(
        "occupancy_shared",
        "bytes of shared memory a block",
        SHARED_BYTES,
        _occupancy("shared_memory_per_block", "occupancy_shared"),
    ),
    Family(
        "barriers",
        "slots of work between two barriers of a block",
        (32, 4, 2, 1),
        _stall("stall_sync", "barrier_stalls"),
    ),
    Family(
        "dependency",
        "independent chains of multiply-adds a thread",
        (8, 3, 2, 1),
        _stall("stall_exec_dependency", "exec_dependency"),
    ),
    Family(
        "load_chain",
        "independent chains of loads a thread",
        (8, 4, 2, 1),
        _stall("stall_memory_dependency", "memory_latency"),
    ),
    Family(
        "special",
        "accumulators out of 8 that add 2^x",
        (1, 4, 6, 8),
        _SPECIAL,
    ),
    Family(
        "doubles",
        "accumulators out of 8 in double precision",
        (1, 5, 6, 8),
        Cause(
            ("double_precision_fu_utilization", "flop_count_dp", "inst_fp_64"),
            ("fp64_pipe_time",),
            ("double_precision",),
            {"double_precision_fu_utilization": 1},
        ),
    ),
    Family(
        "working_set",
        "rows of 128 bytes that the loads walk over",
        (1 << 15, 3 << 17, 6 << 17, 12 << 17),
        Cause(
            (
                "dram_utilization",
                "dram_read_bytes",
                "dram_read_transactions",
                "dram_read_throughput",
                "l2_tex_read_hit_rate",
                "l2_tex_hit_rate",
            ),
            (
                "dram_bytes",
                "dram_busy_time",
                "dram_bytes_per_sector",
                "dram_time_per_sector",
            ),
            ("dram_bound", "memory_latency"),
            {"dram_utilization": 1},
        ),
    ),
    Family(
        "code_footprint",
        "pieces of code in use, less one",
        (0, 63, 255, 511),
        _stall("stall_inst_fetch", "instruction_fetch"),
    ),
    Family(
        "launch_count",
        "launches that share the work",
        (1, 2, 4, 8),
        Cause(
            ("kernels", "launches"),
            ("launch_count", "kernels_appeared"),
            ("launch_bound",),
            {"kernels": 1},
        ),
    ),
    Family(
        "tail_wave",
        "blocks that share the work, in per cent of the multiprocessors (one block each)",
        (100, 150, 125, 103),
        Cause(
            ("waves_per_sm", "sm_efficiency"),
            ("wave_quantization",),
            ("tail_wave",),
            {"sm_efficiency": -1},
        ),
    ),
    Family(
        "confound_loads_occupancy",
        "distance of loaded floats as a power of two; shared memory is freed at the same time",
        (0, 1, 2, 3),
        _LOADS,
        {"achieved_occupancy": 1},
    ),
    Family(
        "confound_conflicts_registers",
        "ways of the bank conflict; values kept in registers grow at the same time",
        (1, 2, 4, 8),
        _CONFLICTS,
        {"achieved_occupancy": -1, "registers_per_thread": 1},
    ),
    Family(
        "confound_divergence_stores",
        "neighbouring lanes that take one path; the few stores are scattered at the same time",
        (5, 4, 3, 2),
        _DIVERGENCE,
        {"gst_efficiency": -1},
    ),
    Family(
        "confound_special_barriers",
        "accumulators out of 8 that add 2^x; balanced barriers become more frequent",
        (1, 4, 6, 8),
        _SPECIAL,
        {"stall_sync": 1},
    ),
)

FAMILIES = (*_FIRST, *memory.FAMILIES, *units.FAMILIES, *blocks.FAMILIES, *bulk.FAMILIES)
BY_NAME = {family.name: family for family in FAMILIES}
