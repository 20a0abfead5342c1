"""Where, when and how long each kernel ran, and the copies and fills of memory beside it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from perfml.account.account import Account
from perfml.account.build import account_without_host, kernels_of, moves_of
from perfml.account.device_time import NOTHING, Spans, exposed_us, idle_before
from perfml.account.recording import Activity, move_kind
from perfml.readers.frame import CodedRanges, kernels_frame, text_column
from perfml.tables import MOVED_COLUMNS
from perfml.util.typing import Ints


def timed_columns(
    kernels: Spans, stream: Ints, tool: str, copies: Spans = NOTHING
) -> dict[str, Any]:
    """Return the columns of a Kernels table that say where, when and how long each kernel ran.

    `stream` is that of each kernel, `tool` measured, `copies` are copies and fills. A kernel
    that took less than the clock shows has no time.
    """
    time_us = kernels.length_us
    return {
        "time_us": time_us,
        "time_source": text_column(np.isnan(time_us).astype(np.int64), [tool, None]),
        "launches": np.ones(len(kernels), dtype=np.int64),
        "device_id": kernels.device,
        "stream": stream,
        "start_us": kernels.start_us,
        "gap_us": idle_before(kernels, copies),
    }


def moved_frame(
    moves: Sequence[Activity], tool: str, devices: Mapping[int, str | None]
) -> pd.DataFrame:
    """Return the table of a recording without kernels: its rows are the copies and fills.

    `devices` are names by number.
    """
    rows = sorted(moves, key=lambda each: each.start)
    spans = Spans.of([(each.device, each.start, each.end) for each in rows]).after(rows[0].start)
    columns = timed_columns(spans, np.array([each.stream for each in rows]), tool)
    columns["kernel"] = [each.name for each in rows]
    columns["device"] = [devices.get(each.device) for each in rows]
    return kernels_frame(pd.DataFrame(columns), CodedRanges.none(len(rows)))


def printed_clock(
    kernels: pd.DataFrame,
    moves: Sequence[Sequence[Any]],
    tool: str,
    unknown: Collection[str] = (),
) -> tuple[dict[str, Any], Account | None]:
    """Return what `timed_columns` does of a trace that was printed, and its account.

    Parameters
    ----------
    kernels
        ``kernel``, ``device`` (a name), ``stream``, ``start`` and ``time`` (nanoseconds).
    moves
        Name, device, start, time and bytes of each copy or fill.
    tool
        What printed them.
    unknown
        What the recording's audit makes unknown.
    """
    others = pd.DataFrame(moves, columns=["kernel", "device", "start", "time", "bytes"])
    names = pd.concat([kernels["device"], others["device"]]).fillna("")
    rows = pd.concat([kernels[["start", "time"]], others[["start", "time"]]]).to_numpy(dtype=float)
    start, end = np.rint(rows.cumsum(axis=1)).astype(np.int64).T
    spans = Spans(pd.factorize(names)[0].astype(np.int64), start, end)
    stream, ran = kernels["stream"].to_numpy(dtype=np.int64), spans[: len(kernels)]
    copies = spans[len(kernels) :]
    done = kernels_of(kernels["kernel"], ran, stream)
    done += moves_of(others["kernel"], copies, others["bytes"].tolist())
    return timed_columns(ran, stream, tool, copies), account_without_host(done, unknown=unknown)


_OUTSIDE = ""


def with_moves(kernels: pd.DataFrame, moves: pd.DataFrame) -> pd.DataFrame:
    """Return kernels with what their layer copies and fills, and with their gaps.

    A copy belongs to the next kernel of its layer in its iteration; after the last one to that;
    where its layer has no kernel, to the next one of the iteration. Of its time counts what no
    kernel and no earlier copy runs beside.

    Parameters
    ----------
    kernels
        A Kernels table in launch order with ``start_us``, shape (n,).
    moves
        ``iteration``, ``layer`` (empty outside), ``kernel`` (such as ``Memset (Device)``),
        ``start_us``, ``time_us``, ``bytes``.

    Returns
    -------
    DataFrame
        With the columns `perfml.tables.MOVED_COLUMNS`, 0 where nothing is moved, and ``gap_us``,
        for which copies and fills are work.
    """
    ran, moved = _spans(kernels), _spans(moves)
    alone = exposed_us(ran, moved)
    target = _targets(kernels, moves)
    kinds = [move_kind(name) for name in moves["kernel"].astype(str)]
    columns = {name: np.zeros(len(kernels)) for name in MOVED_COLUMNS}
    size = moves["bytes"].to_numpy(dtype=float)
    for row, (kind, place) in enumerate(zip(kinds, target, strict=True)):
        if place >= 0:
            columns[f"{kind}_us"][place] += alone[row]
            columns[f"{kind}_bytes"][place] += size[row]
    return kernels.assign(gap_us=idle_before(ran, moved), **columns)


def _spans(rows: pd.DataFrame) -> Spans:
    start, time = (np.rint(rows[name].to_numpy() * 1e3) for name in ("start_us", "time_us"))
    device = np.zeros(len(rows), dtype=np.int64)
    return Spans(device, start.astype(np.int64), (start + time).astype(np.int64))


def _targets(kernels: pd.DataFrame, moves: pd.DataFrame) -> list[int]:
    """Return the kernel's row that each copy belongs to; -1 in an iteration without kernels."""
    layer = kernels["layer"].fillna(_OUTSIDE).astype(str)
    start = kernels["start_us"].to_numpy()
    of_layer = kernels.groupby(["iteration", layer], sort=False).indices
    of_iteration = kernels.groupby("iteration", sort=False).indices
    found = []
    columns = (moves[name].tolist() for name in ("iteration", "layer", "start_us"))
    for iteration, name, began in zip(*columns, strict=True):
        rows = of_layer.get((iteration, name), of_iteration.get(iteration))
        if rows is None:
            found.append(-1)
            continue
        later = rows[start[rows] >= began]
        found.append(int(later[0] if len(later) else rows[-1]))
    return found
