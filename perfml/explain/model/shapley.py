"""Exact Shapley values between two points, for any function of the features."""

from __future__ import annotations

from collections.abc import Callable
from math import factorial
from typing import Any

import numpy as np
import numpy.typing as npt

from perfml.errors import PerfmlError
from perfml.util.typing import Floats

MAX_PLAYERS = 19
"""More than the published metrics; 2**19 predictions take seconds."""

_CHUNK = 1 << 16


def exact_shapley(predict: Callable[[Floats], Floats], baseline: Floats, target: Floats) -> Floats:
    """Return each feature's exact Shapley value of going from `baseline` to `target`.

    The value of a coalition is the prediction with its features from the target and the others
    from the baseline (interventional, one background point). Features that are equal in both
    points are dummies and get 0; all subsets of the others are evaluated.

    Parameters
    ----------
    predict
        Maps shape (rows, features) to shape (rows,).
    baseline, target
        Shape (features,); NaN is a value like others.

    Returns
    -------
    array
        Shape (features,); adds up to ``predict(target) - predict(baseline)``.

    Raises
    ------
    PerfmlError
        If more than `MAX_PLAYERS` features differ.

    References
    ----------
    L. S. Shapley, "A value for n-person games" (1953).

    Examples
    --------
    >>> import numpy as np
    >>> exact_shapley(lambda X: X[:, 0] * X[:, 1], np.array([1.0, 1.0]), np.array([2.0, 3.0]))
    array([2., 3.])
    """
    differs = ~((baseline == target) | (np.isnan(baseline) & np.isnan(target)))
    players = np.flatnonzero(differs)
    count = len(players)
    values = np.zeros(len(baseline))
    if count == 0:
        return values
    if count > MAX_PLAYERS:
        msg = f"exact Shapley values of {count} features would take {2.0**count:.0e} predictions"
        raise PerfmlError(msg, cure=f"Choose {MAX_PLAYERS} features or fewer.")
    worth = _worth(predict, baseline, target, players)
    # players in each coalition; the coalitions with a player follow those without it
    size = np.zeros(1, dtype=np.intp)
    for _ in range(count):
        size = np.concatenate([size, size + 1])
    # weight of a coalition of s others: s! (n - s - 1)! / n!
    weight = np.array(
        [factorial(s) * factorial(count - s - 1) / factorial(count) for s in range(count)]
    )
    weights = np.append(weight, 0.0)[size]
    for place, player in enumerate(players):
        # coalitions without the player and with it, side by side
        without, joined = worth.reshape(-1, 2, 1 << place).transpose(1, 0, 2)
        share = weights.reshape(-1, 2, 1 << place)[:, 0]
        values[player] = float(np.dot(share.ravel(), (joined - without).ravel()))
    return values


def _worth(
    predict: Callable[[Floats], Floats], baseline: Floats, target: Floats, players: npt.NDArray[Any]
) -> Floats:
    total = 1 << len(players)
    worth = np.empty(total)
    places = np.arange(len(players))
    for start in range(0, total, _CHUNK):
        subsets = np.arange(start, min(start + _CHUNK, total))
        taken = ((subsets[:, None] >> places) & 1).astype(bool)
        rows = np.empty((len(subsets), len(baseline)))
        rows[:] = baseline
        rows[:, players] = np.where(taken, target[players], baseline[players])
        worth[subsets] = predict(rows)
    return worth
