"""Recorded truth files say terms by the labels of their day; here is what each means now."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from perfml.explain.tree.causes import TERMS

RECORDED: dict[str, tuple[str, ...]] = {
    "DRAM busy time per sector": ("dram_time_per_sector",),
    "DRAM bytes per sector": ("dram_bytes_per_sector",),
    "kernels that appeared": ("kernels_appeared",),
    "lanes per instruction": ("active_threads_per_warp",),
    "launch count": ("launch_count",),
    "occupancy limit": ("theoretical_occupancy",),
    "sectors per request": ("sectors_per_request",),
    "stalls: stall_exec_dependency": ("stall_exec_dependency",),
    "stalls: stall_inst_fetch": ("stall_inst_fetch",),
    "stalls: stall_memory_dependency": ("stall_memory_dependency",),
    "stalls: stall_sync": ("stall_sync",),
    "wave fill": ("wave_quantization",),
    "work: DRAM busy time": ("dram_busy_time",),
    "work: DRAM bytes": ("dram_bytes",),
    # no explanation ever counted these operations
    "work: FP64 operations": (),
    "work: FP64 pipe time": ("fp64_pipe_time",),
    # was one term when these files were written; loads and their conflicts are told apart since
    "work: shared-memory busy time": ("shared_memory_busy_time", "wavefronts_per_shared_load"),
    "work: special-function pipe time": ("special_function_pipe_time",),
}
"""Label in a recorded ``truth.json`` -> ids of terms."""

RETIRED = frozenset(
    (
        "dram_time_per_sector",
        "l2_time_per_sector",
        "shared_time_per_wavefront",
        "issue_rate",
        "no_work_counters",
        "throughput_at_occupancy",
        "throughput_at_waves",
        "throughput_per_warp",
        *(
            f"{work}_per_launch"
            for work in (
                "constant_serialization",
                "dram_busy_time",
                "dram_bytes",
                "fp32_operations",
                "fp32_pipe_time",
                "fp64_pipe_time",
                "global_atomics",
                "instructions",
                "integer_arithmetic",
                "l1_sectors",
                "l2_busy_time",
                "l2_sectors",
                "shared_memory_busy_time",
                "special_function_pipe_time",
                "tensor_pipe_time",
            )
        ),
    )
)
"""Ids that frozen labels and answers may hold, and that nothing names since 2026-11-25."""

ALSO = {"sectors_per_request": ("uncoalesced_loads", "uncoalesced_stores")}
"""Terms that say the same cause where other counters were collected."""

CLOSER = {"integer_arithmetic": "integer_division"}
"""Terms that say a cause more closely, since 2026-11-29: labels are older."""


def with_closer(terms: Iterable[str]) -> frozenset[str]:
    """Return ids of terms, and of those that say the same more closely."""
    known = frozenset(terms)
    return known | {closer for name, closer in CLOSER.items() if name in known}


def ids_of(recorded: str) -> tuple[str, ...]:
    """Return the ids of terms that a recorded answer means; an unknown one stays as it is.

    Examples
    --------
    >>> ids_of("wave fill")
    ('wave_quantization',)
    >>> ids_of("sectors per request")
    ('sectors_per_request', 'uncoalesced_loads', 'uncoalesced_stores')
    """
    ids = (recorded,) if recorded in TERMS else RECORDED.get(recorded, (recorded,))
    return (*ids, *(other for name in ids for other in ALSO.get(name, ())))


@cache
def retired_rules() -> Mapping[str, Any]:
    """Return what each rule of advice meant that frozen labels name."""
    path = Path(__file__).with_name("retired_rules.toml")
    return tomllib.loads(path.read_text(encoding="utf-8"))


def causes_of_rules(rules: Iterable[str]) -> set[str]:
    """Return what `advise` says in place of some rules; an id of today stays as it is.

    Examples
    --------
    >>> causes_of_rules(["barrier_stalls", "global_atomics"]) == {"stall_sync", "global_atomics"}
    True
    """
    known = retired_rules()
    return {cause for rule in rules for cause in known.get(rule, {}).get("causes", (rule,))}
