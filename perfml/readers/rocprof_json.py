"""Read the JSON of rocprofv3 (``rocprofv3 --kernel-trace --pmc ... --output-format json``).

Its form is that which the tests of AMD's ROCprofiler-SDK check: a tool with ``kernel_symbols``,
``counters``, ``buffer_records.kernel_dispatch`` and ``callback_records.counter_collection``. No
recorded file is here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from perfml.errors import InputError
from perfml.readers.json_text import number, parsed, whole
from perfml.readers.options import ReadOptions
from perfml.readers.rocprof_csv import Dispatch, counter, dispatched, sizes
from perfml.readers.source import Source
from perfml.tables import Kernels

NAME = "rocprofv3-json"

_TOOL = "rocprofiler-sdk-tool"
_CURE = "Record it again: rocprofv3 --kernel-trace --output-format json -- COMMAND"


def recognises(source: Source) -> bool:
    """Tell whether the beginning is that of rocprofv3's JSON."""
    head = source.head_text().lstrip()[:4096]
    return head[:1] == "{" and f'"{_TOOL}"' in head


def read(source: Source, options: ReadOptions | None = None) -> Kernels:
    """Read kernels and their counters; there are no ranges.

    Raises `InputError` if it is no such JSON, a record is damaged, or it holds no kernels.
    """
    del options
    document = parsed(source, "Record fewer kernels.")
    try:
        tools = document[_TOOL]
        found = [each for tool in _listed(tools) for each in _dispatches(tool)]
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        msg = "a record of this rocprofv3 JSON cannot be read"
        said = f"{type(error).__name__}: {error}"[:120]
        raise InputError(msg, where=str(source.path), found=said, cure=_CURE) from error
    return dispatched(source, NAME, found)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _dispatches(tool: dict[str, Any]) -> Iterator[Dispatch]:
    """Yield the dispatches of a process: those that were timed, else those that were counted."""
    symbols = {each["kernel_id"]: each for each in tool["kernel_symbols"]}
    names = {each["id"]["handle"]: each["name"] for each in tool.get("counters") or ()}
    agents = {each["id"]["handle"]: each["node_id"] for each in tool.get("agents") or ()}
    records = (tool.get("callback_records") or {}).get("counter_collection") or ()
    counted: dict[Any, dict[str, float]] = {}
    for record in records:
        key = record["dispatch_data"]["dispatch_info"]["dispatch_id"]
        counters = counted.setdefault(key, {})
        for each in record["records"]:
            name, value = counter(names[each["counter_id"]["handle"]], each["value"])
            # one value a part of the chip
            counters[name] = counters.get(name, 0.0) + value
    traced = (tool.get("buffer_records") or {}).get("kernel_dispatch") or ()
    for each in traced or (record["dispatch_data"] for record in records):
        info = each["dispatch_info"]
        symbol = symbols[info["kernel_id"]]
        grid, block = ([_need(info[name][axis]) for axis in "xyz"] for name in _SIZES)
        shapes = sizes(grid, block)
        agent = info["agent_id"]["handle"]
        yield Dispatch(
            str(symbol.get("formatted_kernel_name") or symbol["kernel_name"]).strip(),
            _need(agents.get(agent, agent)),
            _need(info["queue_id"]["handle"]),
            whole(each.get("start_timestamp")),
            whole(each.get("end_timestamp")),
            _or_nan(symbol.get("arch_vgpr_count")),
            _or_nan(info.get("group_segment_size")),
            shapes[2],
            *shapes[:2],
            counted.get(info["dispatch_id"], {}),
        )


_SIZES = ("grid_size", "workgroup_size")


def _need(value: Any) -> int:
    found = whole(value)
    if found is None:
        msg = f"{value!r} where a whole number belongs"
        raise ValueError(msg)
    return found


def _or_nan(value: Any) -> float:
    found = number(value)
    return math.nan if found is None or found < 0 else found
