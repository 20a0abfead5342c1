"""Counters in a trace of PyTorch: events ``cuda_profiler_range`` of Kineto's range profiler.

They come with ``torch.profiler._ExperimentalConfig(profiler_metrics=[...])``, a kernel each with
``profiler_measure_per_kernel=True``, else a range. The form is that of
libkineto/src/CuptiRangeProfiler.cpp: metrics of CUPTI under their names in ``args``, and times that
only divide the recording evenly, so they are left out. No recorded file is here: torch 2.11 on an
H100 wrote no such event, whatever was asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from perfml.errors import InputError
from perfml.readers.chrome_trace import CountedEvent
from perfml.readers.frame import count_within
from perfml.readers.json_text import number
from perfml.readers.ncu.launches import Launches, needed, to_kernels
from perfml.readers.options import ReadOptions
from perfml.readers.source import Source
from perfml.tables import Kernels, metric_columns
from perfml.util.words import count

NAME = "kineto-counters"

_RECORD = (
    "Record with experimental_config=torch.profiler._ExperimentalConfig(profiler_metrics=[...], "
    "profiler_measure_per_kernel=True)."
)


def counted_kernels(
    source: Source,
    options: ReadOptions,
    events: Sequence[CountedEvent],
    timed: Kernels | None,
) -> Kernels:
    """Return the table of kernels, or ranges, that were counted.

    `timed` are the kernels that the trace has beside counters: where they are the same ones, the
    counters become columns of theirs. Raises `InputError` if an event has no name or no metric.
    """
    names = [event.name for event in events]
    for event in events:
        if not isinstance(event.name, str) or not event.name.strip():
            msg = "a kernel with counters has no name"
            found = repr(event.name)[:60]
            raise InputError(msg, where=str(source.path), found=found, cure=_RECORD)
    known = needed()
    held = [event.args if isinstance(event.args, dict) else {} for event in events]
    metrics = list(dict.fromkeys(name for each in held for name in each))
    counters: dict[str, Any] = {
        name: np.array([_value(each.get(name)) for each in held])
        for name in metrics
        if "__" in name and (name in known or options.raw)
    }
    if not any("__" in name for name in metrics):
        msg = "the events with counters of this trace hold no metric"
        found = ", ".join(metrics)[:120] or "no arguments"
        raise InputError(msg, where=str(source.path), found=found, cure=_RECORD)
    absent = pd.Series([None] * len(names), dtype="string")
    identity = {"kernel": pd.Series(names, dtype="string")}
    identity |= dict.fromkeys(("grid", "block", "device", "compute_capability"), absent)
    launches = Launches(identity, counters, [()] * len(names))
    launches.facts = {"tool": "PyTorch profiler"}
    counted = to_kernels(launches, source, options, NAME)
    if timed is None:
        return counted
    rows = _same_launches(timed.frame["kernel"], counted.frame["kernel"])
    if rows is None:
        left_out = count(len(timed.frame), "kernel")
        note = f"The trace has {left_out} more, which are not those with counters; left out."
        return replace(counted, warnings=(*counted.warnings, note))
    columns = [name for name in metric_columns(counted.frame) if name not in timed.frame]
    if options.raw:
        columns += [name for name in counters if name in counted.frame and name not in columns]
    added = counted.frame[columns].iloc[rows].set_axis(timed.frame.index)
    provenance = {**counted.provenance, **timed.provenance, "format": NAME}
    said = (*timed.warnings, *counted.warnings)
    return Kernels(pd.concat([timed.frame, added], axis=1), provenance, said)


def _value(value: Any) -> float:
    found = number(value)
    return float("nan") if found is None else found


def _same_launches(timed: pd.Series[str], counted: pd.Series[str]) -> Any:
    """Return the counted row of each timed launch: the same one of its kernel; None if others."""
    codes, _ = pd.factorize(pd.concat([timed, counted], ignore_index=True))
    ours, theirs = codes[: len(timed)], codes[len(timed) :]
    keys = [pd.MultiIndex.from_arrays([each, count_within(each)]) for each in (ours, theirs)]
    rows = keys[1].get_indexer(keys[0])
    return rows if len(ours) == len(theirs) and (rows >= 0).all() else None
