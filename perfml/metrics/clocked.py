"""Which metrics hold the time that a model is to predict, and which only count.

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
