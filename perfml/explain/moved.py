"""Copies and fills of memory: what a layer moves beside its kernels, whose times do not show it.

``perfml collect`` times copies from and to the host, copies on the device and fills (memsets). Of
each counts the time in which no kernel runs (`perfml.readers.moves`): it is the copying of
`perfml.account.device_time`, and where the sides differ in it most, the cause ``memory_moves``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfml.explain.tree.causes import TERMS
from perfml.tables import MOVED_COLUMNS
from perfml.util.words import micros, number

TERM = TERMS["memory_moves"]
_SHOWN = 0.1
"""A smaller part of what is moved has no words of its own."""
_WORDS = {
    "to_host": "copied to the host",
    "to_device": "copied from the host",
    "copied": "copied on the device",
    "filled": "filled (memset)",
}
"""Ids of `perfml.tables.MOVED_COLUMNS`, in words."""
_ACTIONS = {
    "to_host": "Leave it on the device: in PyTorch no .cpu(), .numpy(), .tolist() or .item() in a "
    "step. The host waits for such a copy, and the device then for the host.",
    "to_device": "Make it on the device, or copy it once before the loop. Copy what is new in each "
    "step from pinned memory, while kernels run (in PyTorch: pin_memory=True and "
    '.to("cuda", non_blocking=True)).',
    "copied": "Let the kernel before write to where it is needed, or let the one after read it "
    "there (in PyTorch: fewer .contiguous(), .clone() and torch.cat).",
    "filled": "Let the first kernel that writes there overwrite it, so that nothing has to be "
    "cleared.",
}


@dataclass(frozen=True)
class Move:
    """What is copied one way, or filled: microseconds without a kernel, and bytes."""

    us: float
    bytes: float


@dataclass(frozen=True)
class Moved:
    """What some launches copy and fill.

    Attributes
    ----------
    ways
        By the ids of the columns, the longest first; without those in which nothing is moved.
    """

    ways: Mapping[str, Move]

    @property
    def total_us(self) -> float:
        """All of the time."""
        return sum(each.us for each in self.ways.values())

    def words(self) -> str:
        """Say how much is moved where, the longest first.

        Examples
        --------
        >>> Moved({"to_host": Move(640.0, 4e6), "to_device": Move(2.0, 4e3)}).words()
        '4.00 MB copied to the host in 640 µs'
        """
        return ", ".join(
            f"{_bytes(each.bytes)} {_WORDS[way]} in {micros(each.us)}"
            for way, each in self.ways.items()
            if each.us >= _SHOWN * self.total_us
        )

    def action(self) -> str:
        """Say what to do about what takes longest, or about all where that is not known."""
        return _ACTIONS[next(iter(self.ways))] if self.total_us else TERM.action


NOTHING = Moved({})


def are_known(kernels: pd.DataFrame) -> bool:
    """Return whether a Kernels table says what is moved."""
    return set(MOVED_COLUMNS) <= set(kernels.columns)


def moved_us(rows: pd.DataFrame) -> npt.NDArray[np.float64]:
    """Return how long each launch's layer copies and fills before it, NaN where not known."""
    times = [name for name in MOVED_COLUMNS if name.endswith("_us")]
    return np.asarray(rows[times].sum(axis=1, skipna=False), dtype=np.float64)


def moved_by(rows: pd.DataFrame) -> Moved:
    """Return what some launches move together; nothing where that is not known of one of them."""
    if not are_known(rows):
        return NOTHING
    sums = dict(
        zip(
            MOVED_COLUMNS,
            rows[list(MOVED_COLUMNS)].to_numpy(float).sum(axis=0).tolist(),
            strict=True,
        )
    )
    if math.isnan(math.fsum(sums.values())):
        return NOTHING
    ways = {way: Move(sums[f"{way}_us"], sums[f"{way}_bytes"]) for way in _WORDS}
    order = sorted(ways, key=lambda way: -ways[way].us)
    return Moved({way: ways[way] for way in order if ways[way].us > 0 or ways[way].bytes > 0})


def _bytes(size: float) -> str:
    """Return a number of bytes in words; a thousand is a kB.

    Examples
    --------
    >>> _bytes(4194304), _bytes(12)
    ('4.19 MB', '12 bytes')
    """
    for unit, least in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= least:
            return f"{number(size / least)} {unit}"
    return f"{size:.0f} bytes"
