"""When a device had nothing to do: what a trace tells that counters do not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from perfml.readers.occurrences import text_column
from perfml.util.typing import Floats, Ints


@dataclass(frozen=True)
class Spans:
    """What kept devices busy.

    Attributes
    ----------
    device
        Its number, shape (n,).
    start, end
        When each kernel, copy or set began and ended, nanoseconds, shape (n,).
    """

    device: Ints
    start: Ints
    end: Ints

    def __len__(self) -> int:
        return len(self.start)

    def with_others(self, others: Spans) -> Spans:
        """Return these spans and then those."""
        return Spans(
            np.concatenate([self.device, others.device]),
            np.concatenate([self.start, others.start]),
            np.concatenate([self.end, others.end]),
        )

    def by_device(self) -> Iterator[npt.NDArray[np.intp]]:
        """Yield the places of each device's spans, in the order in which they began."""
        for number in np.unique(self.device):
            rows = np.flatnonzero(self.device == number)
            yield rows[np.argsort(self.start[rows], kind="stable")]


def idle_before(kernels: Spans, others: Spans | None = None) -> Floats:
    """Return how long a device had been idle when each kernel began, in microseconds.

    `others` are what else keeps a device busy: memory copies and sets. It is the time since the
    last operation on the device ended, 0 for a kernel that began before that, NaN for the first
    operation of a device; shape (n,).
    """
    every = kernels if others is None else kernels.with_others(others)
    idle = np.full(len(every), np.nan)
    for rows in every.by_device():
        start = every.start[rows]
        over = np.maximum.accumulate(np.maximum(every.end[rows], start))
        idle[rows[1:]] = np.maximum(start[1:] - over[:-1], 0) / 1e3
    return idle[: len(kernels)]


def busy_share(kernels: Spans) -> float | None:
    """Return which part of the time from the first launch to the last one kernels were running.

    It is 0 to 1, averaged over devices weighted by their time; None if no time passed.
    """
    covered = total = 0.0
    for rows in kernels.by_device():
        start = kernels.start[rows]
        over = np.maximum.accumulate(kernels.end[rows])
        span = float(over[-1] - start[0])
        covered += span - float(np.maximum(start[1:] - over[:-1], 0).sum())
        total += span
    return covered / total if total > 0 else None


def timed_columns(
    kernels: Spans, stream: Ints, tool: str, others: Spans | None = None
) -> dict[str, Any]:
    """Return the columns of a Kernels table that say where, when and how long each kernel ran.

    `stream` is that of each kernel, `tool` measured, `others` are memory copies and sets. A kernel
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
        "gap_us": idle_before(kernels, others),
    }
