"""When a device had nothing to do: what a trace tells that counters do not."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from perfml.util.typing import Ints


def idle_before(
    device: Ints, start: Ints, end: Ints, other: tuple[Ints, Ints, Ints] | None = None
) -> npt.NDArray[np.float64]:
    """Return how long a device had been idle when each kernel began, in microseconds.

    Parameters
    ----------
    device, start, end
        Device of each kernel, and when it began and ended in nanoseconds, shape (n,).
    other
        The same three of what else keeps a device busy: memory copies and sets.

    Returns
    -------
    ndarray
        Microseconds since the last operation on the device ended, 0 for a kernel that began
        before that; NaN for the first operation of a device. Shape (n,).
    """
    kernels = len(start)
    columns = [device, start, end]
    if other is not None:
        columns = [np.concatenate(pair) for pair in zip(columns, other, strict=True)]
    devices, starts, ends = columns
    idle = np.full(len(starts), np.nan)
    for number in np.unique(devices):
        rows = np.flatnonzero(devices == number)
        rows = rows[np.argsort(starts[rows], kind="stable")]
        over = np.maximum.accumulate(np.maximum(ends[rows], starts[rows]))
        idle[rows[1:]] = np.maximum(starts[rows[1:]] - over[:-1], 0) / 1e3
    return idle[:kernels]


def busy_share(device: Ints, start: Ints, end: Ints) -> float | None:
    """Return which part of the time from the first launch to the last one kernels were running.

    Parameters
    ----------
    device, start, end
        Device of each kernel, and when it began and ended in nanoseconds, shape (n,).

    Returns
    -------
    float or None
        0 to 1, averaged over devices weighted by their time; None if no time passed.
    """
    covered = total = 0.0
    for number in np.unique(device):
        rows = np.flatnonzero(device == number)
        rows = rows[np.argsort(start[rows], kind="stable")]
        over = np.maximum.accumulate(end[rows])
        gaps = np.maximum(start[rows[1:]] - over[:-1], 0).sum()
        span = float(over[-1] - start[rows[0]])
        covered += span - float(gaps)
        total += span
    return covered / total if total > 0 else None


def timeline_columns(
    device: Ints,
    stream: Ints,
    start: Ints,
    end: Ints,
    other: tuple[Ints, Ints, Ints] | None = None,
) -> dict[str, Any]:
    """Return the columns ``stream``, ``start_us`` and ``gap_us`` of a Kernels table.

    Parameters
    ----------
    device, stream, start, end
        Where each kernel ran, and when it began and ended in nanoseconds, shape (n,).
    other
        Device, start and end of memory copies and sets, as `idle_before` takes them.
    """
    first = int(start.min()) if len(start) else 0
    return {
        "stream": stream,
        "start_us": (start - first) / 1e3,
        "gap_us": idle_before(device, start, end, other),
    }
