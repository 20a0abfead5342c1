"""Read the Chrome trace that ``jax.profiler`` writes beside its ``.xplane.pb``.

XLA says of each kernel which operation of the program it computes (``jit(step)/mlp/dot_general``):
that is its layer. Launches of the host are not tied to kernels there, and there are no counters.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from perfml.errors import InputError
from perfml.readers.frame import kernels_frame
from perfml.readers.json_text import parsed
from perfml.readers.options import ReadOptions
from perfml.readers.source import Source
from perfml.readers.timeline import Spans, busy_share, timeline_columns
from perfml.readers.torch_events import Event, Events, arguments_of
from perfml.tables import Kernels

NAME = "jax-trace"

_DEVICE = re.compile(r"/device:GPU:(\d{1,9})\b")
_STREAM = re.compile(r"Stream #(\d{1,9})\b")
_DETAILS = re.compile(
    r"\b(?:(regs|static_shared|dynamic_shared):(\d{1,9})|(grid|block):(\d{1,10}(?:,\d{1,10}){2}))\b"
)
_LONGEST = 1000
"""Letters of a path that are kept."""
_RECORD = "Record with jax.profiler.trace(FOLDER), and give the .trace.json.gz that is in it."


def recognises(source: Source) -> bool:
    """Tell whether the beginning looks like a Chrome trace of XLA's profiler."""
    head = source.head_text()
    return head.lstrip()[:1] == "{" and '"traceEvents"' in head and '"/host:CPU"' in head


def read(source: Source, options: ReadOptions | None = None) -> Kernels:
    """Read a trace of JAX's profiler; metrics are absent from the table.

    Raises `InputError` if it is no whole JSON, or holds no kernels of a GPU.
    """
    del options
    document = parsed(source, "Record fewer steps.")
    where = str(source.path)
    listed = document.get("traceEvents") if isinstance(document, dict) else None
    if not isinstance(listed, list):
        msg = "this trace has no list of events"
        raise InputError(msg, where=where, found=type(listed).__name__, cure=_RECORD)
    every = [event for event in listed if isinstance(event, dict)]
    devices = _named(every, "process_name", _DEVICE)
    streams = _named(every, "thread_name", _STREAM)
    events = Events(every, where)
    ran = [
        event
        for event in events.timed
        if (_process(event), None) in devices and "hlo_op" in arguments_of(event)
    ]
    if not ran:
        msg = "this trace of JAX holds no kernels of a GPU"
        found = ", ".join(sorted({_name_of(event) for event in every} - {""})) or "no device"
        raise InputError(msg, where=where, found=found[:200], cure=_RECORD)
    rows = sorted((*events.span(event), place) for place, event in enumerate(ran))
    ran = [ran[place] for _, _, place in rows]
    spans = Spans(
        np.array([devices[_process(event), None] for event in ran], dtype=np.int64),
        np.array([start for start, _, _ in rows], dtype=np.int64),
        np.array([end for _, end, _ in rows], dtype=np.int64),
    )
    stream = np.array([streams.get((_process(each), str(each.get("tid"))), 0) for each in ran])
    none = Spans(*np.zeros((3, 0), dtype=np.int64))
    details = [_details(event) for event in ran]
    launches = pd.DataFrame(
        {
            "kernel": [str(event.get("name") or arguments_of(event)["hlo_op"]) for event in ran],
            "grid": [_shape(each.get("grid")) for each in details],
            "block": [_shape(each.get("block")) for each in details],
            # shorter than the trace's clock shows
            "time_us": np.where(spans.end > spans.start, (spans.end - spans.start) / 1e3, np.nan),
            "time_source": ["jax"] * len(ran),
            "launches": np.ones(len(ran), dtype=np.int64),
            **timeline_columns(spans, stream, none),
            "registers_per_thread": [float(each.get("regs", "nan")) for each in details],
            "shared_memory_per_block": [
                float(each.get("static_shared", "nan")) + float(each.get("dynamic_shared", "nan"))
                for each in details
            ],
        }
    )
    provenance = {
        **source.provenance(NAME, "JAX profiler"),
        "streams": len(set(zip(spans.device.tolist(), stream.tolist(), strict=True))),
        "kernels_busy": busy_share(spans),
    }
    paths = [_path(event) for event in ran]
    return Kernels(kernels_frame(launches, paths, instances=_instances(ran, paths)), provenance)


def _process(event: Mapping[str, Any]) -> str:
    return str(event.get("pid"))


def _name_of(event: Mapping[str, Any]) -> str:
    return str(arguments_of(dict(event)).get("name", "")) if event.get("ph") == "M" else ""


def _named(
    events: list[Event], kind: str, pattern: re.Pattern[str]
) -> dict[tuple[str, str | None], int]:
    """Return the number in the name of each process or thread that has one."""
    named = ((event, pattern.match(_name_of(event))) for event in events)
    return {
        (_process(event), str(event["tid"]) if "tid" in event else None): int(match[1])
        for event, match in named
        if match is not None and event.get("name") == kind
    }


def _details(event: Event) -> dict[str, str]:
    """Return what a launch needs: ``regs:31 static_shared:0 grid:512,1,1 block:128,1,1``."""
    found = _DETAILS.findall(str(arguments_of(event).get("kernel_details", "")))
    return {number or sizes: one or three for number, one, sizes, three in found}


def _shape(text: str | None) -> str | None:
    return None if text is None else f"({', '.join(text.split(','))})"


def _instances(events: Sequence[Event], paths: Sequence[tuple[str, ...]]) -> list[int]:
    """Number the passes through a layer: one ends with its path, or where an operation returns."""
    found: list[int] = []
    seen: set[str] = set()
    for place, event in enumerate(events):
        operation = str(arguments_of(event)["hlo_op"])
        anew = not place or paths[place] != paths[place - 1] or operation in seen
        seen = {operation} if anew else seen | {operation}
        found.append((found[-1] if found else 0) + anew)
    return found


def _path(event: Event) -> tuple[str, ...]:
    path = str(arguments_of(event).get("name") or arguments_of(event)["hlo_op"])[:_LONGEST]
    return tuple(part for part in path.split("/") if part)
