"""Nsight Compute's own name of a metric, to be shown beside the published one."""

from __future__ import annotations

import re

from perfml.metrics.catalogue import load_catalogue

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
