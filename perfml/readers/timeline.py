"""The columns of a Kernels table that say where, when and how long each kernel ran."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import pandas as pd

from perfml.account.account import Account
from perfml.account.build import account_without_host, kernels_of, moves_of
from perfml.account.device_time import NOTHING, Spans, idle_before
from perfml.readers.occurrences import text_column
from perfml.util.typing import Ints


def timed_columns(
    kernels: Spans, stream: Ints, tool: str, copies: Spans = NOTHING
) -> dict[str, Any]:
    """Return the columns of a Kernels table that say where, when and how long each kernel ran.

    `stream` is that of each kernel, `tool` measured, `copies` are copies and fills. A kernel
    that took less than the clock shows has no time.
    """
    unknown = kernels.end <= kernels.start
    first = int(kernels.start.min()) if len(kernels) else 0
    return {
        "time_us": np.where(unknown, np.nan, (kernels.end - kernels.start) / 1e3),
        "time_source": text_column(unknown.astype(np.int64), [tool, None]),
        "launches": np.ones(len(kernels), dtype=np.int64),
        "device_id": kernels.device,
        "stream": stream,
        "start_us": (kernels.start - first) / 1e3,
        "gap_us": idle_before(kernels, copies),
    }


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
