"""Whether a cause that counters name is proven: the launch stands at the limits that it predicts.

A cause predicts at which limits a launch stands (`LIMITS_OF`). The shares of the time that the
experiment finds there decide: proven, refuted or not decided.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from perfml.experiments.limits import LIMITS, breakdown
from perfml.experiments.responses import Responses, resampled

PROVEN, REFUTED, OPEN = "proven", "refuted", "not decided"

_UNIT = frozenset({"multiprocessor"})
_WAIT = frozenset({"multiprocessor", "warps"})
_DRAM = frozenset({"dram"})
_MEMORY = frozenset({"dram", "l2", "memory_latency"})
_ACCESSES = frozenset({"dram", "l2", "memory_latency", "multiprocessor"})
_LATENCY = frozenset({"memory_latency", "warps"})
_IDLE = frozenset({"fixed"})
LIMITS_OF = {
    **dict.fromkeys(
        (
            "tensor_pipe_time", "fp32_operations", "fp32_pipe_time", "fp64_pipe_time",
            "special_function_pipe_time", "instructions", "integer_arithmetic",
            "constant_serialization", "active_threads_per_warp", "shared_memory_busy_time",
            "shared_loads", "wavefronts_per_shared_load", "bank_conflicts", "shared_atomics",
            "lsu_pipe_time", "tensor_unused", "math_throttle", "mio_throttle", "stall_pipe_busy",
            "stall_not_selected", "stall_gmma",
        ),
        _UNIT,
    ),
    "dram_busy_time": _DRAM,
    "dram_bytes": _DRAM | {"memory_latency"},
    **dict.fromkeys(("dram_bytes_per_sector", "l2_busy_time", "global_atomics"), _MEMORY),
    **dict.fromkeys(
        (
            "l2_sectors", "l1_sectors", "sectors_per_request", "uncoalesced_loads",
            "uncoalesced_copies", "uncoalesced_stores", "l2_sectors_per_l1_sector",
            "global_requests", "narrow_access", "redundant_traffic", "local_memory",
            "stall_memory_throttle",
        ),
        _ACCESSES,
    ),
    **dict.fromkeys(
        ("theoretical_occupancy", "achieved_of_theoretical", "block_slots", "async_copy",
         "narrow_copies"),
        _LATENCY,
    ),
    "stall_memory_dependency": _LATENCY | _MEMORY,
    "memory_fence": _LATENCY | _MEMORY,
    "stall_sync": _WAIT,
    "stall_inst_fetch": _WAIT,
    "stall_exec_dependency": _WAIT | _IDLE,
    "block_imbalance": _IDLE | {"memory_latency"},
    **dict.fromkeys(("sm_imbalance", "wave_quantization", "clock_and_idle_sms"), _IDLE),
}  # fmt: skip
"""Id of a cause (``perfml/explain/tree/causes.toml``) to the limits at which it can hold a launch.

A cause that is not in it lies between launches or outside them (gaps, copies, more kernels): no
experiment on one launch can tell.
"""
PROVES = 0.5
"""A cause is proven where its limits surely make at least half of the time."""
REFUTES = 0.25
"""A cause is refuted where its limits surely make less than a quarter of the time.

Between the two it is not decided: there limits by counters are as often right as wrong.
"""
DRAWS = 200
"""Bootstrap resamples of the rounds."""
LEVEL = 0.9
"""Of the interval of a share."""
LIKELIHOOD = ((0.1, 0.0), (0.25, 0.01), (0.5, 0.16), (0.8, 0.93), (1.0, 0.99))
"""Shares up to, and how often a limit with such a share is the one that counters find busiest.

Of 278 kernels on an H100 and four groups of limits each (``studies/experiments/results.json``).
"""


@dataclass(frozen=True)
class Verdict:
    """What the experiment says of a cause.

    Attributes
    ----------
    cause
        Its id.
    verdict
        `PROVEN`, `REFUTED` or `OPEN`.
    share, low, high
        Of the time at the cause's limits, and its interval of `LEVEL` over the rounds; NaN where no
        experiment on one launch can tell.
    likelihood
        How often the cause's limit was the right one where the recorded kernels had such a share
        (`LIKELIHOOD`); NaN where none can tell.
    """

    cause: str
    verdict: str
    share: float = math.nan
    low: float = math.nan
    high: float = math.nan
    likelihood: float = math.nan

    def sentence(self, responses: Responses) -> str:
        """Say the verdict and why."""
        if self.cause not in LIMITS_OF:
            return "Not decided: it lies outside the launch."
        if math.isnan(self.share):
            return "Not decided: the launch could not be run on fewer multiprocessors."
        limits = " or ".join(LIMITS[name] for name in LIMITS if name in LIMITS_OF[self.cause])
        words = (
            f"{self.verdict.capitalize()} by experiment: {100 * self.share:.0f} % of the time"
            f" ({100 * self.low:.0f} to {100 * self.high:.0f} %) goes to {limits}."
        )
        return words if self.verdict == PROVEN else f"{words} {breakdown(responses).sentence()}"


def verdict(responses: Responses, cause: str) -> Verdict:
    """Say whether a cause can be the cause of a launch's time.

    Parameters
    ----------
    responses
        Of the launch.
    cause
        Id of a cause.
    """
    limits = LIMITS_OF.get(cause)
    if limits is None:
        return Verdict(cause, OPEN)
    share, low, high = share_at(responses, limits)
    if math.isnan(share):
        return Verdict(cause, OPEN)
    if low >= PROVES:
        said = PROVEN
    elif high < REFUTES:
        said = REFUTED
    else:
        said = OPEN
    likely = next((right for end, right in LIKELIHOOD if share < end), LIKELIHOOD[-1][1])
    return Verdict(cause, said, share, low, high, likely)


def of_layer(launches: Sequence[Responses], layer: str) -> Responses | None:
    """Return the longest launch in a layer; None where none was examined there."""
    inside = [each for each in launches if layer in each.launch.ranges]
    return max(inside, key=lambda each: each.time_us, default=None)


def share_at(responses: Responses, limits: frozenset[str]) -> tuple[float, float, float]:
    """Return the share of the time at some limits, and its interval of `LEVEL` over the rounds."""
    drawn = [_share(each, limits) for each in resampled(responses, DRAWS)]
    low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return _share(responses, limits), float(low), float(high)


def _share(responses: Responses, limits: frozenset[str]) -> float:
    shares = breakdown(responses).shares
    return sum(shares[name] for name in limits)
