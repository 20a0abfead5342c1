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
from perfml.readers.rocprof_csv import Dispatch, dispatched
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
        tools = tools if isinstance(tools, list) else [tools]
        found = [each for tool in tools for each in _dispatches(tool)]
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        msg = "a record of this rocprofv3 JSON cannot be read"
        said = f"{type(error).__name__}: {error}"[:120]
        raise InputError(msg, where=str(source.path), found=said, cure=_CURE) from error
    return dispatched(source, NAME, found)


def _dispatches(tool: dict[str, Any]) -> Iterator[Dispatch]:
    """Yield the dispatches of a process: those that were timed, else those that were counted."""
    symbols = {each["kernel_id"]: each for each in tool["kernel_symbols"]}
    names = {each["id"]["handle"]: each["name"] for each in tool.get("counters") or ()}
    agents = {each["id"]["handle"]: each for each in tool.get("agents") or ()}
    records = (tool.get("callback_records") or {}).get("counter_collection") or ()
    counted: dict[Any, list[Any]] = {}
    for record in records:
        key = record["dispatch_data"]["dispatch_info"]["dispatch_id"]
        counted.setdefault(key, []).extend(record["records"])
    traced = (tool.get("buffer_records") or {}).get("kernel_dispatch") or ()
    for each in traced or (record["dispatch_data"] for record in records):
        info = each["dispatch_info"]
        symbol, handle = symbols[info["kernel_id"]], info["agent_id"]["handle"]
        agent = agents.get(handle, {"node_id": handle})
        grid, block = (
            [_whole(info[name][axis]) for axis in "xyz"] for name in ("grid_size", "workgroup_size")
        )
        one = Dispatch(
            str(symbol.get("formatted_kernel_name") or symbol["kernel_name"]).strip(),
            _whole(agent["node_id"]),
            _whole(info["queue_id"]["handle"]),
            whole(each.get("start_timestamp")),
            whole(each.get("end_timestamp")),
            _or_nan(symbol.get("arch_vgpr_count")),
            _or_nan(info.get("group_segment_size")),
            float(math.prod(grid)),
            grid,
            block,
            str(agent.get("product_name") or agent.get("name") or "AMD GPU"),
        )
        for value in counted.get(info["dispatch_id"], ()):
            one.count(names[value["counter_id"]["handle"]], value["value"])
        yield one


def _whole(value: Any) -> int:
    found = whole(value)
    if found is None:
        msg = f"{value!r} where a whole number belongs"
        raise ValueError(msg)
    return found


def _or_nan(value: Any) -> float:
    found = number(value)
    return math.nan if found is None else found
