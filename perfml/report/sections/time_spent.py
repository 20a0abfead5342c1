"""What to do first where nothing is known to save: what takes its time, and what to type next."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from perfml import chips
from perfml.account.account import UNRECORDED
from perfml.explain.confidence import IN_WORDS
from perfml.ingest.merge.by_kernel import kernel_units, launches_behind_rows
from perfml.kernel_names import function_name, kernel_traits
from perfml.report.document import (
    Cell,
    Points,
    ReportTable,
    Section,
    Sentence,
    Text,
    numbers,
    section,
    words,
)
from perfml.report.labels import capital, percent
from perfml.report.tables import amount
from perfml.util.devices import is_amd, is_mtia
from perfml.util.words import count, micros

if TYPE_CHECKING:
    import pandas as pd

    from perfml.account.account import Account
    from perfml.explain.steps import StepComparison

WORTH = 0.05
"""What takes less of the time is not what to do first."""

_MOST = 3
_NCU_FROM = 7.0
"""Compute capability from which on Nsight Compute profiles; nvprof does below (NVIDIA, Nsight
Compute release notes, supported GPUs)."""

_GRAPH = re.compile(r"CUDA_graph_\d+")
_RECORD_HOST = "nsys profile --trace=cuda,nvtx,osrt ./program"


def time_steps(kernels: pd.DataFrame, account: Account | None = None) -> list[Sentence]:
    """Return what takes most of the time, the largest part first, with a line to type for it.

    `account` is what the clock shows, with idle time and copies; None where that is not known.
    """
    step = None if account is None else account.busiest.step
    part = 1.0 if step is None else (step.computing_us + step.both_us) / step.wall_us
    parts = [*_unrecorded(account), *_kernels(kernels, part)]
    parts.sort(key=lambda part: -part[0])
    return [step for part, step in parts if part >= WORTH][:_MOST]


def layer_step(layer: str, time_us: float, whole_us: float) -> Sentence:
    """Return the layer that takes most as what to look at, where no kernels are known."""
    gain = f"{micros(time_us)} of {micros(whole_us)} ({percent(time_us / whole_us)})"
    text = "Nothing was found that saves much here. Its counters will show what limits it."
    # a range that is pushed and popped has a slash behind its name
    command = f"ncu --set full --nvtx --nvtx-include {shlex.quote(layer + '/')} ./program"
    return Sentence("do", "medium", text, f"Profile {layer}", gain, command)


def _unrecorded(account: Account | None) -> Iterator[tuple[float, Sentence]]:
    """Return idle time of which it is not known what the host did, as a part of the clock."""
    idle = 0.0
    if account is not None:
        idle = sum(each.us for each in account.busiest.idle if each.state == UNRECORDED)
    if account is None or not idle:
        return
    part = idle / account.step_us
    text = "Whether it launches, waits or prepares data decides what helps."
    title = "Record what the host does while the device is idle"
    gain = f"idle {micros(idle)} of {micros(account.step_us)} on the clock ({percent(part)})"
    yield part, Sentence("do", "medium", text, title, gain, _RECORD_HOST)


def _kernels(kernels: pd.DataFrame, whole: float) -> Iterator[tuple[float, Sentence]]:
    """Return the kernels, as parts of the time; `whole` is what all of them take of it."""
    units, codes = kernel_units(kernels)
    launches = launches_behind_rows(kernels, codes)
    times = np.nan_to_num(kernels["time_us"].to_numpy(dtype=float) * launches)
    spent = np.bincount(codes, times, len(units))
    often = np.bincount(codes, launches, len(units))
    told: set[str] = set()
    for at in np.argsort(-spent, kind="stable")[: 4 * _MOST]:
        row = kernels.iloc[int(np.flatnonzero(codes == at)[0])]
        command = profile_command(units[at].kernel, row)
        # communication waits for other devices: replayed alone it would never end
        communicates = kernel_traits(units[at].kernel).does == "communication"
        if not units[at].kernel or command in told or communicates:
            continue
        told.add(command)
        share = float(spent[at] / spent.sum()) if spent.sum() else math.nan
        sum_, of_one = micros(float(spent[at])), micros(float(spent[at] / often[at]))
        text = f"{sum_} in {count(round(often[at]), 'launch', 'launches')}, {of_one} each."
        label, few = units[at].label, _few_blocks(row)
        if _GRAPH.fullmatch(units[at].kernel):
            title = f"Trace the kernels inside {label}"
            text += " It was traced as a whole, so its kernels are not known."
        elif few:
            title, text = f"Start more blocks in {label}", f"{text} {few}"
        else:
            title, text = f"Profile {label}", f"{text} Its counters will tell what limits it."
        gain = f"{percent(share)} of the time of all kernels"
        if whole < 1:
            gain = f"{percent(share * whole)} of the time on the clock"
        yield share * whole, Sentence("do", "medium", text, title, gain, command)


def _few_blocks(row: pd.Series) -> str:
    """Say that most multiprocessors get no block of a kernel; empty where that is not so."""
    sizes = [int(size) for size in re.findall(r"\d+", str(row.get("grid", "")))]
    room = chips.of_launch({str(name): value for name, value in row.items()}).multiprocessors
    if not sizes or math.isnan(room) or 2 * math.prod(sizes) >= room:
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
    if is_mtia(_known(row, "device")):
        return "# no public profiler counts within a kernel of an MTIA"
    if is_amd(_known(row, "device")):
        return f"rocprof-compute profile --name run --kernel {name} -- {program}"
    capability = _known(row, "compute_capability")
    old = float(capability) < _NCU_FROM if capability else _known(row, "time_source") == "nvprof"
    if old:
        return f"nvprof --kernels {name} --metrics all --export-profile kernel.nvprof {program}"
    return f"ncu --set full --kernel-name {name} --launch-count 3 --export kernel {program}"


def _known(row: pd.Series, name: str) -> str:
    value = row.get(name)
    return value if isinstance(value, str) else ""


def step_section(step: StepComparison) -> Section:
    """Return two sides on the clock: the verdict, its first cause, what to do, and all parts."""
    points = [text for text in (step.cause(), _do(step)) if text is not None]
    rows = [[Cell(name), amount(us)] for name, us in step.rows()]
    table = ReportTable(
        "What the difference of a step is made of; the parts add up",
        (*words("part"), *numbers(f"{step.names[1]} takes more, µs a step")),
        rows,
        title="Where the difference is",
    )
    title = f"{step.names[1]} against {step.names[0]}, a step on the clock"
    notes = [Text(f"{text}", note=True) for text in step.notes()]
    return section(title, Points(tuple(points)), table, *notes, summary=step.sentence())


def _do(step: StepComparison) -> str | None:
    action = step.action()
    return None if action is None else f"do ({IN_WORDS[step.confidence]}): {action}"


def step_differences(step: StepComparison) -> list[Sentence]:
    """Return what to do first about the difference of two steps, and the verdict of the clock."""
    differs = step.verdict in ("slower", "faster")
    said = f"{step.names[1]} against {step.names[0]}, {step.sentence()}."
    sentences = [Sentence("time", "medium" if differs else "low", said)]
    if differs and step.first is not None:
        lost = step.difference_us > 0
        row, slow = step.first.row, step.target if lost else step.baseline
        gain = f"{micros(abs(step.difference_us))} a step {'lost' if lost else 'gained'}"
        text = f"{row.also} Why: {step.cause()}."
        do = Sentence("do", step.confidence, text, f"A step is {step.verdict}", gain)
        sentences.insert(0, replace(do, command=row.line(slow), look="lost" if lost else ""))
    return sentences


def step_sentences(account: Account, name: str = "") -> list[Sentence]:
    """Return what to do about a step, a cause of a twentieth or more each, and what it takes.

    `name` is whose step it is; empty where there is one.
    """
    from perfml.account.causes import findings
    from perfml.account.words import evidence, longest_kernel, profiled, saving, step_sentence

    said = f"{step_sentence(account, name)} {longest_kernel(account)}".strip()
    causes = [
        Sentence(
            *("do", "medium", f"{each.cause.also} Why: {evidence(each, account)}."),
            *(capital(each.cause.words), saving(each, account), each.cause.line(account)),
        )
        for each in findings(account)
        if each.amount.us >= WORTH * account.step_us
    ]
    told = [Sentence("time", "medium", text)] if (text := profiled(account)) else []
    return [*causes, Sentence("time", "high" if account.agree else "low", said), *told]
