"""Give profiled launches the times of a pass without counters, or of a trace of the same program.

A profiler serialises kernels and flushes caches, so its durations are not the workload's. The
timing pass has the right ones, but runs in another process: more iterations, and now and then
another choice of algorithm. Launches are matched by layer and place, never by name alone.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from perfml.account.device_time import Spans, idle_before
from perfml.errors import InputError
from perfml.kernel_names import function_name
from perfml.readers import torch_trace, trtexec
from perfml.readers.nsys import sqlite_file as nsys
from perfml.readers.nsys import stats_csv as nsys_stats
from perfml.readers.nvprof.join import join
from perfml.tables import MOVED_COLUMNS, RUN_COLUMNS, Kernels, validate_kernels
from perfml.util.words import count, first_few, micros

_OUTSIDE = "\0outside"
"""Stands for the missing layer, so that launches between layers are matched like a layer."""


_TIMELINE = ["stream", "start_us", "gap_us", *MOVED_COLUMNS]

_WORK = ["slot", "place", "function", "repeat"]

_NAME = re.compile(r"timing(?:_([0-9]+))?\.csv(?:\..+)?")


def join_timing(
    metrics: pd.DataFrame, timing: pd.DataFrame, *, where: str
) -> tuple[pd.DataFrame, list[str]]:
    """Return one row a timed launch, with the metrics of the profiled launch it matches.

    Timed iteration ``t`` takes the counters of profiled iteration ``t mod p``, so every profiled
    iteration is used and none is averaged away. Where a layer runs as many kernels in both passes
    they are matched in launch order. Where it does not, the profiled kernels stand, and the layer's
    timed total is shared among them by their profiled durations.

    ``time_source`` is ``timing`` or ``apportioned``, ``metrics_iteration`` the profiled iteration.
    Warnings say which layers could not be matched launch by launch, and which match by place only.
    Raises `InputError` if a profiled layer was never timed; `where` names the run in messages.
    """
    profiled, timed = _placed(metrics), _placed(timing)
    missing = sorted(set(profiled["slot"]) - set(timed["slot"]) - {_OUTSIDE})
    if missing:
        msg = f"the timing pass has no layer {missing[0]} ({len(missing)} such layers)"
        found = ", ".join(sorted(set(timed["slot"]) - {_OUTSIDE})[:5]) or "no layers"
        raise InputError(
            msg, where=where, found=found, cure="Give the timing pass of the same run."
        )
    timed, warnings = _whole_iterations(timed, where)
    iterations = np.sort(profiled["iteration"].unique())
    order = {number: place for place, number in enumerate(np.sort(timed["iteration"].unique()))}
    timed["metrics_iteration"] = [
        iterations[order[number] % len(iterations)] for number in timed["iteration"]
    ]
    match = _how_to_match(profiled, timed)
    slots = zip(timed["iteration"].tolist(), timed["slot"].tolist(), strict=True)
    timed["match"] = [match[slot] for slot in slots]
    by_name, by_place = timed[timed["match"] == "name"], timed[timed["match"] == "place"]
    shared, bare = timed[timed["match"] == "share"], timed[timed["match"] == "none"]
    parts = [
        _matched(profiled, by_name, ["function", "repeat"]),
        _matched(profiled, by_place, ["place"]),
        *([_apportioned(profiled, shared)] if len(shared) else ()),
        *([_unmeasured(profiled, bare)] if len(bare) else ()),
    ]
    warnings += _warnings(where, parts[1], shared, bare)
    frame = pd.concat([part for part in parts if len(part)], ignore_index=True)
    frame = frame.sort_values(["iteration", "kernel_index"], kind="stable", ignore_index=True)
    frame["kernel_index"] = frame.groupby("iteration").cumcount()
    return validate_kernels(frame.drop(columns=[*_WORK, "timed_kernel"])), warnings


def with_gaps(timing: pd.DataFrame, *, program: bool) -> pd.DataFrame:
    """Return a timing pass with how long the device was idle before each kernel, ``gap_us``.

    `program` says that it is a program of the user's. What runs a built-in workload waits between
    its layers: the starts tell which launches run side by side, and nothing of gaps.
    """
    if "start_us" not in timing:
        return timing
    if not program:
        return timing.drop(columns=["gap_us"], errors="ignore")
    if "gap_us" in timing:  # with copies and fills between them
        return timing
    process = np.zeros(len(timing), dtype=np.int64)
    if "process" in timing:
        process = timing["process"].to_numpy(dtype=np.int64)
    start, time = (np.rint(timing[name].to_numpy() * 1e3) for name in ("start_us", "time_us"))
    end = (start + time).astype(np.int64)
    return timing.assign(gap_us=idle_before(Spans(process, start.astype(np.int64), end)))


def _placed(frame: pd.DataFrame) -> pd.DataFrame:
    """Add what launches are matched by: slot (layer, or outside), place, function and repeat."""
    placed = frame.sort_values(["iteration", "kernel_index"], kind="stable", ignore_index=True)
    placed = placed.copy()  # over a hundred metrics were added one by one: one block again
    placed["slot"] = placed["layer"].fillna(_OUTSIDE).astype(str)
    placed["place"] = placed.groupby(["iteration", "slot"]).cumcount()
    names = {name: function_name(str(name)) for name in placed["kernel"].unique()}
    placed["function"] = placed["kernel"].map(names).astype(str)
    placed["repeat"] = placed.groupby(["iteration", "slot", "function"]).cumcount()
    return placed


def _whole_iterations(timed: pd.DataFrame, where: str) -> tuple[pd.DataFrame, list[str]]:
    """Leave out the last iteration if the recording ended in the middle of it.

    It did when the layers of the last iteration are the first ones of the iteration before.
    """
    numbers = np.sort(timed["iteration"].unique())
    if len(numbers) < 2:
        return timed, []
    inside = timed["slot"] != _OUTSIDE
    before, last = (
        list(dict.fromkeys(timed["slot"][(timed["iteration"] == number) & inside]))
        for number in numbers[-2:]
    )
    if len(last) >= len(before) or last != before[: len(last)]:
        return timed, []
    note = (
        f"{where}: the timing ends in iteration {numbers[-1]}, after {len(last)} of {len(before)} "
        "layers; that iteration is left out"
    )
    return timed[timed["iteration"] != numbers[-1]].reset_index(drop=True), [note]


def _how_to_match(profiled: pd.DataFrame, timed: pd.DataFrame) -> dict[tuple[int, str], str]:
    """Return, for each timed (iteration, slot), how its launches find their profiled ones.

    ``name`` where both passes ran the same functions, in whatever order; ``place`` where they
    ran as many; ``share`` where they ran another number; ``none`` where nothing was profiled.
    """
    have = _functions(profiled, ["iteration", "slot"])
    found: dict[Any, str] = {}
    for (iteration, slot, source), part in _functions(
        timed, ["iteration", "slot", "metrics_iteration"]
    ).items():
        theirs = have.get((source, slot))
        if theirs is None:
            how = "none"
        elif sorted(theirs) == sorted(part):
            how = "name"
        else:
            how = "place" if len(theirs) == len(part) else "share"
        found[iteration, slot] = how
    return found


def _functions(frame: pd.DataFrame, keys: list[str]) -> dict[Any, list[str]]:
    """Return the functions that ran in each group of the columns `keys`."""
    found: dict[Any, list[str]] = {}
    lists = [frame[name].tolist() for name in [*keys, "function"]]
    for *key, function in zip(*lists, strict=True):
        found.setdefault(tuple(key), []).append(function)
    return found


def _matched(profiled: pd.DataFrame, timed: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Join launch by launch on the same slot and the columns `by`."""
    kept = ["iteration", "metrics_iteration", "slot", *by, "time_us", "kernel_index", "kernel"]
    kept += [name for name in _TIMELINE if name in timed]
    wanted = timed[kept].rename(columns={"kernel": "timed_kernel"})
    own = ["time_us", "time_source", "kernel_index", *_TIMELINE]
    counters = profiled.drop(columns=own, errors="ignore")
    joined = wanted.merge(
        counters.rename(columns={"iteration": "metrics_iteration"}),
        on=["metrics_iteration", "slot", *by],
        how="left",
        validate="many_to_one",
    )
    joined["time_source"] = "timing"
    return joined


def _apportioned(profiled: pd.DataFrame, timed: pd.DataFrame) -> pd.DataFrame:
    """Share each slot's timed total among its profiled kernels, by their profiled durations."""
    totals = (
        timed.groupby(["iteration", "metrics_iteration", "slot"], sort=False)
        .agg(total=("time_us", "sum"), first=("kernel_index", "min"))
        .reset_index()
    )
    counters = profiled.drop(columns=["time_source", "kernel_index"], errors="ignore")
    joined = totals.merge(
        counters.rename(columns={"iteration": "metrics_iteration"}),
        on=["metrics_iteration", "slot"],
        how="left",
    )
    duration = joined.groupby(["iteration", "slot"])["time_us"].transform("sum")
    joined["time_us"] = joined["time_us"] / duration * joined["total"]
    # fractions keep the profiled kernels inside their slot's stretch of the timed order
    joined["kernel_index"] = joined["first"] + joined["place"] / (joined["place"].max() + 1.0)
    joined["time_source"] = "apportioned"
    joined["timed_kernel"] = joined["kernel"]
    return joined.drop(columns=["total", "first"])


def _unmeasured(profiled: pd.DataFrame, timed: pd.DataFrame) -> pd.DataFrame:
    """Keep timed launches that were not profiled: their time counts, their metrics are missing."""
    kept = timed.drop(columns=["match"]).copy()
    for name in RUN_COLUMNS:
        kept[name] = profiled[name].iloc[0]
    kept["time_source"] = "timing"
    kept["metrics_iteration"] = np.nan
    kept["timed_kernel"] = kept["kernel"]
    return kept


def _warnings(
    where: str, matched: pd.DataFrame, apportioned: pd.DataFrame, bare: pd.DataFrame
) -> list[str]:
    found: list[str] = []
    names = matched[["slot", "kernel", "timed_kernel"]].drop_duplicates()
    other = names[
        [
            function_name(str(left)) != function_name(str(right))
            for left, right in zip(names["kernel"], names["timed_kernel"], strict=True)
        ]
    ]
    if len(other):
        found.append(
            f"{where}: {count(len(other), 'launch is', 'launches are')} called differently in the "
            "timing pass, so their "
            f"metrics may be another algorithm's (layers {_listed(other['slot'])})"
        )
    if len(apportioned):
        found.append(
            f"{where}: layers {_listed(apportioned['slot'])} ran another number of kernels in the "
            "timing pass. Their timed totals are shared out by the profiled durations"
        )
    if len(bare):
        share = float(bare["time_us"].sum())
        found.append(
            f"{where}: {count(len(bare), 'timed launch', 'timed launches')} ({micros(share)}) were "
            f"not profiled, so their metrics are missing. Layers: {_listed(bare['slot'])}"
        )
    return found


def _listed(slots: pd.Series[str]) -> str:
    names = [name if name != _OUTSIDE else "(outside)" for name in dict.fromkeys(slots)]
    return first_few(names, 6)


def joined_processes(timings: Sequence[Kernels]) -> list[Kernels]:
    """Return the timing passes of a collected run as one.

    They were read from ``timing.csv``, ``timing_2.csv``, ...: the number is the process's. One
    table has a column ``process``, and iterations that are numbered on from process to process;
    `timings` stay as they are where there is one, or files that are named otherwise.
    """
    names = [_NAME.fullmatch(str(timing.provenance.get("path"))) for timing in timings]
    numbers = [int(name[1] or 1) for name in names if name is not None]
    if len(timings) < 2 or len(numbers) < len(timings) or len(set(numbers)) < len(numbers):
        return list(timings)
    parts = []
    following = 0
    for number, each in sorted(zip(numbers, timings, strict=True), key=lambda pair: pair[0]):
        iteration = each.frame["iteration"] - each.frame["iteration"].min() + following
        parts.append(each.frame.assign(iteration=iteration, process=number))
        following = int(iteration.max()) + 1
    return [replace(timings[0], frame=pd.concat(parts, ignore_index=True))]


def with_processes(joined: pd.DataFrame, timing: pd.DataFrame) -> pd.DataFrame:
    """Return a joined table with the process of each iteration, where its timing pass has it."""
    if "process" not in timing.columns:
        return joined
    of_iteration = timing.drop_duplicates("iteration").set_index("iteration")["process"]
    return joined.assign(process=joined["iteration"].map(of_iteration).astype("int64"))


TRACES = frozenset({nsys.NAME, nsys_stats.NAME, torch_trace.NAME, trtexec.NAME})
"""Formats that have times and no counters."""


def with_trace(metrics: Kernels, trace: Kernels, *, where: str) -> tuple[Kernels, list[str]]:
    """Return profiled launches with the times of a trace.

    The trace is of the same program, in one of the formats `TRACES`, which is the ``time_source``
    then; `where` names the run in messages. Returned with it are warnings: what could not be
    matched launch by launch. Raises `InputError` if the two have no kernel in common.
    """
    tool = str(trace.frame["time_source"].dropna().iloc[0])
    layers, traced = (set(side.frame["layer"].dropna()) for side in (metrics, trace))
    if layers and layers <= traced:
        frame, notes = join_timing(metrics.frame, trace.frame, where=where)
        source = frame["time_source"].replace("timing", tool)
        return replace(metrics, frame=frame.assign(time_source=source)), notes
    names = _spelled_alike(trace.frame["kernel"], metrics.frame["kernel"])
    joined = join(metrics, replace(trace, frame=trace.frame.assign(kernel=names)))
    notes = [f"{where}: {note}" for note in joined.warnings if note not in metrics.warnings]
    if layers and traced:
        notes.append(
            f"{where}: the trace has other layers than the counters, so launches were matched by "
            "kernel"
        )
    return joined, notes


def named_layers(found: Sequence[Kernels]) -> list[Kernels]:
    """Put trtexec's layer information into its profile, where a run has one of each."""
    profiles = [each for each in found if each.provenance.get("format") == trtexec.NAME]
    infos = [each for each in found if each.provenance.get("format") == trtexec.LAYER_INFO]
    if len(profiles) != 1 or len(infos) != 1:
        return list(found)
    others = [each for each in found if each is not profiles[0] and each is not infos[0]]
    return [*others, trtexec.named_by(profiles[0], infos[0])]


def _spelled_alike(kernels: pd.Series[str], known: pd.Series[str]) -> pd.Series[str]:
    """Return kernel names as the other tool spells them, where the bare name is of one kernel.

    Tools demangle differently (``const float *`` and ``float const*``), so full names of the same
    kernel differ; a bare name that either side has twice says nothing.
    """
    bare: dict[str, set[str]] = {}
    for name in set(known.astype(str)):
        bare.setdefault(function_name(name), set()).add(name)
    mine: dict[str, set[str]] = {}
    for name in set(kernels.astype(str)):
        mine.setdefault(function_name(name), set()).add(name)
    renamed = {
        name: next(iter(bare[short]))
        for short, names in mine.items()
        for name in names
        if len(names) == 1 and len(bare.get(short, ())) == 1
    }
    return kernels.map(lambda name: renamed.get(str(name), str(name))).astype("string")
