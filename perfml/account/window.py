"""Parts of a recording: the first steps of a long one, and windows with holes between them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

import numpy as np

from perfml.account.origins import Origin
from perfml.account.recording import Recording
from perfml.account.steps import Steps
from perfml.util.typing import Floats, Ints
from perfml.util.words import count

MOST = 100_000
"""Spans of the host that an account is made of, if that leaves `LEAST` steps."""
LEAST = 10
WINDOW = "window"
"""What marks the parts of a recording with holes."""


def window_of_each(start_us: Floats, time_us: Floats, windows: int) -> Ints:
    """Return in which of some windows each launch was recorded, from 0 on, shape (n,).

    Between two windows lie the longest times without a launch: a window is a small part of them.
    """
    order = np.argsort(start_us, kind="stable")
    over = np.maximum.accumulate((start_us + time_us)[order])
    empty = start_us[order][1:] - over[:-1]
    first = np.zeros(len(order), dtype=np.int64)
    first[1 + np.argsort(-empty, kind="stable")[: max(windows, 1) - 1]] = 1
    numbers = np.zeros(len(order), dtype=np.int64)
    numbers[order] = first.cumsum()
    return numbers


def first_steps(
    recording: Recording, steps: Steps, origins: Sequence[Origin]
) -> tuple[Recording, Steps, Sequence[Origin]]:
    """Return the first steps of a recording with what was launched in them; all of a short one."""
    if len(recording.host) <= MOST:
        return recording, steps, origins
    kept = max(LEAST, bisect_left(steps.starts, recording.host[MOST].start) - 1)
    if kept >= len(steps.starts):
        return recording, steps, origins
    until = steps.starts[kept]
    pairs = [
        (activity, origin)
        for activity, origin in zip(recording.activities, origins, strict=True)
        if origin.time < until
    ]
    host = recording.host[: bisect_left(recording.host, until, key=lambda span: span.start)]
    first = Recording(host, tuple(activity for activity, _ in pairs))
    cut = Steps(steps.name, steps.starts[:kept], steps.ends[:kept], steps.marks)
    return first, cut, [origin for _, origin in pairs]


def of_the_first(steps: int, launches: int, every: int) -> str:
    """Return the warning that an account is of the first steps only."""
    return (
        f"The account of a step is of the first {count(steps, 'step')}, with {launches:,} of "
        f"{every:,} kernels."
    )
