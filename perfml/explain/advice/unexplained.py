"""Where the time goes of which nothing says why: what to measure there, and the line to type."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from perfml import chips
from perfml.account.account import Account
from perfml.account.words import kernel_rows
from perfml.chips.lookup import vendor
from perfml.explain.advice.finding import Finding, Where
from perfml.explain.confidence import probability
from perfml.explain.remedies import Situation, person_of, remedy_for
from perfml.explain.speed_of_light import KernelLevels, is_ordinary, kernel_levels
from perfml.explain.tree.limits import Limit, limit_of
from perfml.explain.tree.thresholds import START_US
from perfml.ingest.merge.groups import KernelUnit, kernel_units, launches_behind_rows
from perfml.kernel_names import function_name, kernel_label, kernel_traits
from perfml.tables import metric_columns
from perfml.util.findings import Time
from perfml.util.typing import Floats
from perfml.util.words import count, micros, say

NOT_KNOWN = "not_known"
"""The cause of what no counter and no clock explains."""

WORTH = 0.05
"""What takes less of the time is not what to measure first."""

_MOST = 3
_NCU_FROM = 7.0
"""Compute capability from which on Nsight Compute profiles; nvprof does below (NVIDIA, Nsight
Compute release notes, supported GPUs)."""

_SHORTEST = 1.5  # times the start of a launch, below which a launch is hardly more than that

_GRAPH = re.compile(r"CUDA_graph_\d+")


_LIMITS = ("compute", "memory", "latency")

_UNITS = {"dram_utilization": "dram", "l2_utilization": "l2", "l1_utilization": "l1"}
_NEAR = 0.02  # of the peak: Nsight Compute's total of memory is that of its busiest part


_FACTS = frozenset({"registers_per_thread", "shared_memory_per_block", "threads"})
"""Columns that tell how a kernel is launched, not what it does."""


def counted(kernels: pd.DataFrame) -> bool:
    """Return whether a Kernels table has counters."""
    return not _FACTS.issuperset(metric_columns(kernels))


def longest_kernels(
    kernels: pd.DataFrame | None,
    sources: Sequence[Mapping[str, Any]] = (),
    account: Account | None = None,
) -> tuple[Finding, ...]:
    """Return the kernels that take most of the time of all, with a line that profiles each.

    Of a report of Nsight Compute (`sources`) the limit of each is known, which is said instead.
    Times are those of the `account`, of a step where it has steps; without one those of the table.
    """
    if kernels is None or kernels.empty:
        return ()
    levels = kernel_levels(kernels, sources) if is_ordinary(sources) else ()
    limits = {each.kernel: each for each in levels if each.limit in _LIMITS}
    found: list[Finding] = []
    units, codes = kernel_units(kernels, by_workload=True)
    launches = launches_behind_rows(kernels, codes)
    times = np.nan_to_num(kernels["time_us"].to_numpy(dtype=float) * launches)
    spent = np.asarray(np.bincount(codes, times, len(units)), dtype=float)
    often = np.bincount(codes, launches, len(units))
    held, whole = _held(units, spent, account)
    for at in np.argsort(-held, kind="stable")[: 4 * _MOST]:
        row = kernels.iloc[int(np.flatnonzero(codes == at)[0])]
        command = profile_command(units[at].kernel, row)
        # communication waits for other devices: replayed alone it would never end
        communicates = kernel_traits(units[at].kernel).does == "communication"
        if not units[at].kernel or communicates or command in {one.command for one in found}:
            continue
        if held[at] < WORTH * whole or len(found) == _MOST:
            continue
        sum_, of_one = micros(float(spent[at])), micros(float(spent[at] / often[at]))
        text = f"{sum_} in {count(round(often[at]), 'launch', 'launches')}, {of_one} each."
        label, few = units[at].label, _few_blocks(row)
        own = limits.get(label)
        full = own is not None and own.at_roofline
        if own is not None and own.time_us < _SHORTEST * START_US:
            title = f"Launch less often, or fuse {label}"
            text += " A launch takes no less: its start is the limit."
        elif own is not None:
            person = person_of(units[at].kernel)
            unit = _fullest(kernels[codes == at], own) if full else None
            title = f"{own.limit.capitalize() if unit is None else unit.label} limits {label}"
            text = remedy_for(own.limit if unit is None else unit.whole, Situation(person)).say
            if full:
                numbers = {"level": 100 * own.efficiency}
                text = f"{remedy_for('at_roof', Situation(numbers=numbers)).say} {text}"
        elif _GRAPH.fullmatch(units[at].kernel):
            title = f"Trace the kernels inside {label}"
            text += " It was traced as a whole, so its kernels are not known."
        elif few:
            title, text = f"Start more blocks in {label}", f"{text} {few}"
        else:
            more = say(f"explain.measure.{'more' if counted(kernels) else 'any'}")
            title, text = f"Profile {label}", f"{text} {more}"
        # what a kernel's warps wait for says more than that they wait
        waits = pd.notna(row.get("stall_memory_dependency"))
        limit = () if own is None or (waits and not full) else (own.limit,)
        time = Time(float(held[at]), "all launches" if account is None else account.of)
        one = _to_measure(label, time, title, text, command, *limit)
        found.append(replace(one, level=own.efficiency) if own is not None and full else one)
    return tuple(found)


def _held(
    units: Sequence[KernelUnit], spent: Floats, account: Account | None
) -> tuple[Floats, float]:
    """Return what each kernel takes, and what all of it is a part of; microseconds.

    Shapes of one kernel share its time in an account, which has no shapes.
    """
    if account is None:
        return spent, float(spent.sum())
    account = account.bare
    known = {label: us for label, _, us, _ in kernel_rows(account)}
    labels = [kernel_label(unit.kernel) for unit in units]
    of_label = pd.Series(spent).groupby(labels).transform("sum").to_numpy()
    share = np.divide(spent, of_label, out=np.zeros_like(spent), where=of_label > 0)
    held = share * np.array([known.get(label, 0.0) for label in labels])
    return held, account.busiest.step.busy_us


def _fullest(launches: pd.DataFrame, levels: KernelLevels) -> Limit | None:
    """Return the level of memory that is as busy as memory as a whole; None if not known."""
    near = (
        limit_of(unit)
        for name, unit in _UNITS.items()
        if name in launches and launches[name].mean() > levels.memory - _NEAR
    )
    return next(near, None) if levels.limit == "memory" else None


def longest_layer(layer: str, time_us: float) -> Finding:
    """Return the layer that takes most, where no kernels are known."""
    text = "Its counters will show what limits it."
    # a range that is pushed and popped has a slash behind its name
    command = f"ncu --set full --nvtx --nvtx-include {shlex.quote(layer + '/')} ./program"
    return _to_measure(layer, Time(time_us), f"Profile {layer}", text, command)


def _to_measure(
    where: str, time: Time, title: str, text: str, command: str, *limit: str
) -> Finding:
    return Finding(
        rules=(NOT_KNOWN, *limit),
        where=Where((where,)),
        holds=time,
        gain=None,
        probability=probability("step"),
        hazard=title,
        evidence="",
        mitigation=text,
        command=command,
    )


def _few_blocks(row: pd.Series) -> str:
    """Say that most multiprocessors get no block of a kernel; empty where that is not so."""
    sizes = [int(size) for size in re.findall(r"\d+", str(row.get("grid", "")))]
    room = chips.of_launch({str(name): value for name, value in row.items()}).multiprocessors
    if not sizes or 0 in sizes or math.isnan(room) or 2 * math.prod(sizes) >= room:
        return ""
    blocks = count(math.prod(sizes), "block")
    return f"It starts {blocks} on {room:.0f} multiprocessors: give each of them several blocks."


def profile_command(kernel: str, row: pd.Series) -> str:
    """Return the line that profiles exactly one kernel.

    ``device``, ``compute_capability`` and ``time_source`` of one of its launches choose the tool.
    """
    program = "python script.py" if _known(row, "time_source") == "torch" else "./program"
    name = function_name(kernel) or kernel
    if not re.fullmatch(r"[\w$]+", name):
        name = f"regex:{re.sub(r'[^0-9A-Za-z_]+', '.+', name)}"
    name = shlex.quote(name)
    if _GRAPH.fullmatch(kernel):
        return f"nsys profile --trace cuda,nvtx --cuda-graph-trace node {program}"
    if vendor(_known(row, "device")) == "meta":
        return "# no public profiler counts within a kernel of an MTIA"
    if vendor(_known(row, "device")) == "amd":
        return f"rocprof-compute profile --name run --kernel {name} -- {program}"
    capability = _known(row, "compute_capability")
    old = float(capability) < _NCU_FROM if capability else _known(row, "time_source") == "nvprof"
    if old:
        return f"nvprof --kernels {name} --metrics all --export-profile kernel.nvprof {program}"
    return f"ncu --set full --kernel-name {name} --launch-count 3 --export kernel {program}"


def _known(row: pd.Series, name: str) -> str:
    value = row.get(name)
    return value if isinstance(value, str) else ""
