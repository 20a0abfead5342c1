"""The columns of a Kernels table that say where, when and how long each kernel ran."""

from __future__ import annotations

from typing import Any

import numpy as np

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
