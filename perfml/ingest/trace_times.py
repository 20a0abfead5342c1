"""Give counters the times of a trace of the same program: Nsight Systems, PyTorch, trtexec.

A trace was recorded without counters, so its times are the workload's own. Where both have the
same layers, launches are matched by layer and place, as with a timing pass; else by kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pandas as pd

from perfml.ingest.timing import join_timing
from perfml.kernel_names import function_name
from perfml.readers import torch_trace, trtexec
from perfml.readers.nsys import sqlite_file as nsys
from perfml.readers.nsys import stats_csv as nsys_stats
from perfml.readers.nvprof.join import join
from perfml.tables import Kernels

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
