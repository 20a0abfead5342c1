"""Read the SQLite database that ``rocprofv3`` writes since ROCm 7 (``run_results.db``).

Its tables are ``rocpd_NAME_UUID``, a set of them a process, and stand as in ROCprofiler-SDK's
schema of rocpd: dispatches with their times and sizes, symbols of kernels, agents, and copies.
Counters are left out. A grid counts work-items, as in the CSV (`perfml.readers.rocprof`).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

import numpy as np
import pandas as pd

from perfml.account.device_time import Spans
from perfml.chips.lookup import AMD_GPU
from perfml.errors import InputError
from perfml.readers.rocprof import Dispatch, dispatched
from perfml.readers.source import ReadOptions, Source
from perfml.readers.sqlite_database import Database, is_database, on_the_clock, opened
from perfml.tables import Kernels
from perfml.util.words import count

NAME = "rocpd"

_DISPATCHES = "rocpd_kernel_dispatch"
_SET = re.compile(rf"{_DISPATCHES}(_[0-9a-f_]{{8,64}})?")
"""The table of dispatches of one process; the others end likewise."""
_SIZES = tuple(f"{what}_size_{axis}" for what in ("grid", "workgroup") for axis in "xyz")
_WAYS = ("Memcpy", "Memcpy DtoH", "Memcpy HtoD", "Memcpy DtoD")
"""By what ends of a copy are GPUs: none, where it begins, where it leads to, or both."""
_OPTIONAL = ("queue_id", "dispatch_id", "group_segment_size")


def recognises(source: Source) -> bool:
    """Tell whether the file is an SQLite database with a table of dispatches."""
    return is_database(source, _DISPATCHES)


def read(source: Source, options: ReadOptions | None = None) -> Kernels:
    """Read kernels in order of start; there are no ranges.

    Raises `InputError` if the file is damaged or cut, or holds no kernels.
    """
    del options
    with opened(source, ".db") as database:
        tables = (_SET.fullmatch(name) for name in sorted(database.tables))
        sets = [table[1] or "" for table in tables if table] or [""]
        try:
            ran = [dispatch for suffix in sets for dispatch in _dispatches(database, suffix)]
        except ValueError as error:
            msg = "a dispatch of this rocpd database cannot be read"
            cure = "Record it again: rocprofv3 --kernel-trace -- COMMAND"
            where = str(source.path)
            raise InputError(msg, where=where, found=str(error)[:120], cure=cure) from error
        copies = pd.concat([_copies(database, suffix) for suffix in sets]).astype("int64")
        counted = sum(database.count(f"rocpd_pmc_event{suffix}") for suffix in sets)
    spans = Spans(*(copies[name].to_numpy() for name in ("device", "start", "end")))
    ways = [_WAYS[number] for number in copies["way"].tolist()]
    kernels = dispatched(source, ran, NAME, spans, ways)
    if counted:
        note = f"{count(counted, 'counter value')} were left out; rocpd convert -f csv has them."
        return Kernels(kernels.frame, kernels.provenance, (*kernels.warnings, note))
    return kernels


def _agents(database: Database, suffix: str) -> dict[int, tuple[int, str]]:
    """Return number and name of each agent, by its id."""
    table = f"rocpd_info_agent{suffix}"
    numbers = database.integers(table, ("id",), ("absolute_index",))
    texts = database.frame(table, (), ("product_name", "name")).reindex(
        columns=["product_name", "name"]
    )
    rows = zip(*(numbers[name].tolist() for name in numbers), *texts.to_numpy().T, strict=True)
    return {key: (at, str(product or name or AMD_GPU)) for key, at, product, name in rows}


def _dispatches(database: Database, suffix: str) -> Iterator[Dispatch]:
    symbols = f"rocpd_info_kernel_symbol{suffix}"
    agents = _agents(database, suffix)
    known = database.integers(symbols, ("id",), ("arch_vgpr_count",))
    registers = dict(zip(*(known[name].tolist() for name in known), strict=True))
    table, required = f"{_DISPATCHES}{suffix}", ("agent_id", "kernel_id", "start", "end", *_SIZES)
    rows = on_the_clock(database.integers(table, required, _OPTIONAL))
    wanted = rows["kernel_id"].unique().tolist()
    names = database.texts_of(symbols, "id", "kernel_name", wanted)
    names |= database.texts_of(symbols, "id", "display_name", wanted)
    columns = (rows[name].tolist() for name in (*required, *_OPTIONAL))
    for agent, kernel, start, end, *sizes, queue, number, shared in zip(*columns, strict=True):
        grid, block = sizes[:3], sizes[3:]
        place, device = agents.get(agent, (agent, AMD_GPU))
        yield Dispatch(
            names.get(kernel, "").removesuffix(".kd"),
            place,
            queue,
            start,
            end,
            float(registers[kernel]) if registers.get(kernel, 0) > 0 else math.nan,
            float(shared) if shared >= 0 else math.nan,
            float(math.prod(grid)),
            grid,
            block,
            device,
            number if number >= 0 else None,
            suffix,
        )


def _copies(database: Database, suffix: str) -> pd.DataFrame:
    """Return copies on the device that they lead to, or else come from."""
    agents = _agents(database, suffix)
    optional = ("dst_agent_id", "src_agent_id")
    rows = on_the_clock(database.integers(f"rocpd_memory_copy{suffix}", ("start", "end"), optional))
    known = {key: number for key, (number, name) in agents.items()}
    gpus = set(database.integers(f"{_DISPATCHES}{suffix}", ("agent_id",))["agent_id"])
    ends = [rows[name] for name in optional]
    to, since = (side.isin(gpus) for side in ends)
    device = [known.get(key, key) for key in np.where(to, *ends).tolist()]
    return rows[["start", "end"]].assign(device=device, way=2 * to + since)
