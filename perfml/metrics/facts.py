"""Nsight Compute's own name of a metric, and which metrics hold the time that is to be predicted.

A count (instructions, sectors, bytes, launches' facts) or a ratio of two counts is the same however
long the work took. A *clocked* metric is measured against the clock: it is a share of cycles, of
warps' cycles or of a peak a cycle. Alone it says nothing of the time, beside a count it gives it
away: ``dram_read_bytes / (dram_utilization * peak)``, ``inst_executed / (ipc * multiprocessors)``
and ``inst_executed / (stall_selected * achieved_occupancy * warps)`` are times. A *timed* metric
is a duration in other units: a rate, or a number of cycles.
"""

from __future__ import annotations

import re
from typing import Literal

from perfml.metrics.catalogue import Metric, load_catalogue

Clock = Literal["counted", "clocked", "timed"]

_AGAINST_CLOCK = re.compile(r"pct_of_peak|per_cycle|per_warp_active|per_issue_active")


def clock_of(name: str) -> Clock:
    """Return how a metric of the catalogue holds the time.

    Examples
    --------
    >>> clock_of("dram_read_bytes"), clock_of("dram_utilization"), clock_of("dram_read_throughput")
    ('counted', 'clocked', 'timed')
    """
    metric: Metric = load_catalogue()[name]
    if metric.kind == "rate" or metric.unit == "cycle":
        return "timed"
    expression = "" if metric.ncu is None else metric.ncu.text
    if metric.kind == "level" or _AGAINST_CLOCK.search(expression):
        return "clocked"
    return "counted"


_REASON = re.compile(r"issue_stalled_(\w+?)_per_warp_active")


def ncu_name(metric: str) -> str:
    """Return what Nsight Compute calls a metric; empty where it has no counterpart.

    A stall is called by its reasons, as Nsight Compute's tables do, every other metric by the
    counters that it is computed from. Raises `PerfmlError` if the catalogue has no such metric.

    Examples
    --------
    >>> ncu_name("stall_memory_dependency")
    'long_scoreboard'
    >>> ncu_name("stall_exec_dependency")
    'short_scoreboard + wait'
    >>> ncu_name("ipc")
    'sm__inst_executed.avg.per_cycle_active'
    """
    formula = load_catalogue()[metric].ncu
    if formula is None:
        return ""
    reasons = [_REASON.search(name) for name in formula.names]
    names = [
        name if reason is None else reason.group(1)
        for name, reason in zip(formula.names, reasons, strict=True)
    ]
    return " + ".join(dict.fromkeys(names))


def with_ncu_name(metric: str) -> str:
    """Return a metric's name with Nsight Compute's in parentheses.

    Examples
    --------
    >>> with_ncu_name("stall_memory_dependency")
    'stall_memory_dependency (ncu: long_scoreboard)'
    """
    name = ncu_name(metric)
    return f"{metric} (ncu: {name})" if name else metric
