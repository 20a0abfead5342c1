"""Intervals that hold for networks nobody learned from, by conformal prediction.

What a model is off on networks that it did not learn from says how far it may be off on the next
one: a conformal predictive system (Vovk, Gammerman and Shafer, "Algorithmic learning in a random
world", 2005; as the package crepes has it, which a test compares with). Families of layers scatter
differently, short layers otherwise than long ones, so residuals are divided by the scatter of
their family and class of expected time first. Networks are what is drawn, not layers: each counts
as much as any other, however many layers it has.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfml.util.typing import Floats

CONFIDENCE = 0.9
"""Share of layers whose time lies inside."""

_MAD = 1.4826
"""Standard deviations a median absolute deviation is, of normal numbers."""

_STRENGTH = 20.0
"""Rows whose weight the scatter of all families has beside a family's own."""

_LEAST = 0.01
"""Smallest scatter, as a share of the time: clocks alone scatter by as much."""

_CLASSES_US = (3.0, 10.0, 50.0)
"""Expected times, microseconds, at which layers of a family begin to scatter otherwise: up to the
first a launch is most of the time, from the last on the work is."""


@dataclass(frozen=True)
class Intervals:
    """Calibrated intervals of the logarithm of a time.

    `scatter` is the robust standard deviation of log(measured / expected), by family, and by family
    and class of expected time; `overall` that of all rows, for families that the reference lacks.
    `scores` are residuals over their group's scatter, sorted; `below` is the share of a next
    layer's scores that are at most each of these.
    """

    scatter: dict[str, float]
    overall: float
    scores: Floats
    below: Floats

    @classmethod
    def calibrate(
        cls,
        residuals: Floats,
        family: pd.Series[Any],
        expected: Floats,
        networks: pd.Series[Any] | None = None,
    ) -> Intervals:
        """Calibrate on log(measured / expected) of layers that were not learned from.

        Each of the `networks` weighs the same; without them each layer does.
        """
        overall = _scatter(residuals)
        scatter: dict[str, float] = {}
        names = family.astype(object).to_numpy()
        for groups, wider in ((names, None), (_groups(names, expected), names)):
            for name in dict.fromkeys(groups):
                here = groups == name
                around = overall if wider is None else scatter[str(wider[here][0])]
                own = residuals[here]
                # variances are averaged, the group's own counting as many rows as it has
                weight = len(own) / (len(own) + _STRENGTH)
                mixed = weight * _scatter(own) ** 2 + (1 - weight) * around**2
                scatter[str(name)] = float(np.sqrt(mixed))
        made = cls(scatter, overall, np.zeros(0), np.zeros(0))
        scores = residuals / made._sigmas(expected, family)
        order = np.argsort(scores, kind="stable")
        weights = np.ones(len(scores))
        if networks is not None:
            weights /= networks.map(networks.value_counts()).to_numpy(float)
        # the next one is among them, with the mean weight
        below = np.cumsum(weights[order]) / (weights.sum() + weights.mean())
        return replace(made, scores=scores[order], below=below)

    def around(
        self, expected: Floats, family: pd.Series[Any], confidence: float = CONFIDENCE
    ) -> tuple[Floats, Floats]:
        """Return the lower and upper ends around expected logarithms of times."""
        outside = (1.0 - confidence) / 2
        # sums of weights are rounded
        first = np.searchsorted(self.below, outside + 1e-9, side="right")
        last = np.searchsorted(self.below, 1.0 - outside - 1e-9)
        # beyond the last of them nothing is known
        low = self.scores[first - 1] if first >= 1 else -np.inf
        high = self.scores[last] if last < len(self.scores) else np.inf
        sigmas = self._sigmas(expected, family)
        return expected + low * sigmas, expected + high * sigmas

    def _sigmas(self, expected: Floats, family: pd.Series[Any]) -> Floats:
        names = family.astype(object).to_numpy()
        known = zip(_groups(names, expected), names, strict=True)
        return np.array(
            [
                self.scatter.get(group, self.scatter.get(str(name), self.overall))
                for group, name in known
            ]
        )


def _groups(names: npt.NDArray[np.object_], expected: Floats) -> npt.NDArray[np.object_]:
    """Return family and class of the expected time of each row, whose logarithm is given."""
    classes = np.digitize(np.exp(expected), _CLASSES_US)
    return np.array([f"{name}, {k}" for name, k in zip(names, classes, strict=True)], dtype=object)


def _scatter(residuals: Floats) -> float:
    middle = np.median(residuals)
    return max(_LEAST, float(_MAD * np.median(np.abs(residuals - middle))))
