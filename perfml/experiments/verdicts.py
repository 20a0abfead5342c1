"""Whether a cause that counters name is proven: the kernel without it, and the limits it predicts.

Where the kernel ran without the habit that the cause is (`perfml.experiments.repairs.habit_of`),
the time that this saves decides. Else the limits do at which the cause predicts that a launch
stands (`LIMITS_OF`): the shares of the time that experiments find there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from perfml.experiments.limits import LIMITS, breakdown
from perfml.experiments.repairs import Repair, habit_of, repair_of
from perfml.experiments.responses import Responses, resampled
from perfml.kernel_names import kernel_label

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
"""A cause is proven where surely at least half of the time that it claims is saved without it, or
its limits make half of the launch's time."""
REFUTES = 0.25
"""A cause is refuted where that is surely less than a quarter.

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
    claimed
        Share of the launch's time that the cause is said to make.
    repair
        The measured bound of its repair; None where the kernel was not run without it.
    decides
        Whether the repair decided.
    """

    cause: str
    verdict: str
    share: float = math.nan
    low: float = math.nan
    high: float = math.nan
    likelihood: float = math.nan
    claimed: float = 1.0
    repair: Repair | None = None
    decides: bool = False

    def sentence(self, responses: Responses) -> str:
        """Say the verdict and why, and the measured gain."""
        gain = "" if self.repair is None else f" {self.repair.sentence}"
        if self.decides:
            return f"{self.verdict.capitalize()} by experiment.{gain}"
        if self.cause not in LIMITS_OF:
            return f"Not decided: it lies outside the launch.{gain}"
        if math.isnan(self.share):
            return f"Not decided: the launch could not be run on fewer multiprocessors.{gain}"
        limits = " or ".join(LIMITS[name] for name in LIMITS if name in LIMITS_OF[self.cause])
        words = (
            f"{self.verdict.capitalize()} by experiment: {100 * self.share:.0f} % of the time"
            f" ({100 * self.low:.0f} to {100 * self.high:.0f} %) goes to {limits}.{gain}"
        )
        return words if self.verdict == PROVEN else f"{words} {breakdown(responses).sentence()}"


def verdict(responses: Responses, cause: str, claimed: float = 1.0) -> Verdict:
    """Say whether a cause can be the cause of a launch's time.

    Parameters
    ----------
    responses
        Of the launch.
    cause
        Id of a cause.
    claimed
        Share of the launch's time that the cause is said to make: what another side takes less, or
        the gain that was forecast.
    """
    habit = habit_of(responses, cause)
    by_limits = _by_limits(responses, cause)
    made = replace(by_limits, claimed=claimed, repair=habit or repair_of(responses, cause))
    if habit is None:
        return made
    said = _judged(1 - habit.high, 1 - habit.low, claimed)
    if said == OPEN and by_limits.verdict == REFUTED:
        said = REFUTED
    return replace(made, verdict=said, decides=True)


def _judged(low: float, high: float, whole: float = 1.0) -> str:
    """Return what an interval of a share says."""
    if low >= PROVES * whole:
        return PROVEN
    return REFUTED if high < REFUTES * whole else OPEN


def _by_limits(responses: Responses, cause: str) -> Verdict:
    limits = LIMITS_OF.get(cause)
    if limits is None:
        return Verdict(cause, OPEN)
    share, low, high = share_at(responses, limits)
    if math.isnan(share):
        return Verdict(cause, OPEN)
    said = _judged(low, high)
    if said == REFUTED and limits == _IDLE:
        # blocks that wait for memory may be few at the end, too: shares do not tell
        said = _judged(low, share_at(responses, limits | {"memory_latency"})[2])
    likely = next((right for end, right in LIKELIHOOD if share < end), LIKELIHOOD[-1][1])
    return Verdict(cause, said, share, low, high, likely)


def of_layer(launches: Sequence[Responses], layer: str, kernel: str = "") -> Responses | None:
    """Return the longest launch in a layer; None where none was examined there.

    Parameters
    ----------
    launches
        Of the slower side.
    layer
        Name of a range, or label of a kernel where a profile has no ranges.
    kernel
        Label of a kernel, of which the launch has to be; empty, or "whole layer", for any.
    """
    inside = []
    for each in launches:
        label = kernel_label(each.launch.kernel, 1000)
        if (layer in each.launch.ranges or _is(label, layer)) and (
            kernel in ("", "whole layer") or _is(label, kernel)
        ):
            inside.append(each)
    return max(inside, key=lambda each: each.time_us, default=None)


def _is(label: str, shortened: str) -> bool:
    """Whether a label, which may have lost its middle, stands for a whole one."""
    head, cut, tail = shortened.partition("…")
    return label.startswith(head) and label.endswith(tail) if cut else label == shortened


def share_at(responses: Responses, limits: frozenset[str]) -> tuple[float, float, float]:
    """Return the share of the time at some limits, and its interval of `LEVEL` over the rounds."""
    drawn = [_share(each, limits) for each in resampled(responses, DRAWS)]
    low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return _share(responses, limits), float(low), float(high)


def _share(responses: Responses, limits: frozenset[str]) -> float:
    shares = breakdown(responses).shares
    return sum(shares[name] for name in limits)
