"""What a regression fits: the time, or a transform of it; scores are always of the time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from perfml.errors import PerfmlError, TableError, did_you_mean
from perfml.modeling.features import BOUND
from perfml.util.typing import Floats

TARGETS = ("time", "log-time", "time-per-flop", "time-per-byte", "time-per-bound")
"""``time`` (milliseconds) is the study's. ``log-time`` makes errors relative, as MAPE is. The
others are logarithms of the time per floating-point operation, per byte of input, weights and
output, or over the time that the machine's peaks would take (column ``bound_us``): how far a layer
is from the machine's peak, so that its size does not have to be learned.
"""

_SCALES = {
    "time-per-flop": ("flops",),
    "time-per-byte": ("input_bytes", "weight_bytes", "output_bytes"),
    "time-per-bound": (BOUND,),
}


def without_unit(values: Floats) -> Floats:
    """Return positive numbers as multiples of their median, in 40 bits.

    Another unit of the target changes its last bits, and these would decide ties in trees.
    """
    part, power = np.frexp(values / np.median(values))
    return np.asarray(np.ldexp(np.round(part * 2.0**40), power - 40))


@dataclass(frozen=True)
class Target:
    """A transform of milliseconds into what a model fits, and back."""

    name: str  # one of `TARGETS`
    # work of each row (operations or bytes); None for targets without one
    scale: Floats | None = None

    def forward(self, time_ms: Floats, rows: np.ndarray) -> Floats:
        """Transform the times of some rows."""
        if self.name == "time":
            return time_ms
        log = np.log(time_ms)
        return log if self.scale is None else log - np.log(self.scale[rows])

    def inverse(self, fitted: Floats, rows: np.ndarray) -> Floats:
        """Return milliseconds; the rows are those of the table."""
        if self.name == "time":
            return fitted
        # a model that extrapolates a logarithm must not overflow
        log = fitted if self.scale is None else fitted + np.log(self.scale[rows])
        return np.asarray(np.exp(np.clip(log, -50.0, 50.0)), dtype=np.float64)


def make_target(name: str, layers: pd.DataFrame) -> Target:
    """Return a target for a Layers table.

    Raises `PerfmlError` if there is no such target, `TableError` if the table lacks the shapes that
    the target divides by.
    """
    if name not in TARGETS:
        msg = f"no target is called {name!r}"
        known = f"Targets are: {', '.join(TARGETS)}."
        raise PerfmlError(msg, cure=did_you_mean(name, TARGETS, known))
    columns = _SCALES.get(name)
    if columns is None:
        return Target(name)
    missing = [column for column in columns if column not in layers.columns]
    if missing:
        msg = f"target {name} needs the shapes of the layers"
        raise TableError(
            msg,
            where=f"columns {', '.join(missing)}",
            cure="Add them with perfml.modeling.with_shapes, or choose the target log-time.",
        )
    scale = layers[list(columns)].astype(float).sum(axis=1, skipna=False).to_numpy()
    bad = np.flatnonzero(~(scale > 0))
    if len(bad):
        msg = f"target {name} needs a positive amount of work in every row"
        raise TableError(
            msg,
            where=f"row {int(bad[0])}",
            found=str(scale[bad[0]]),
            cure="Choose the target log-time.",
        )
    return Target(name, scale)
