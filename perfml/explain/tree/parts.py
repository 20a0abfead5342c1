"""Parts of a whole by the id of a cause."""

from __future__ import annotations

import math
from collections.abc import Mapping

Parts = dict[str, float]


def spread(parts: Mapping[str, float], whole: float = 1.0) -> Parts:
    """Return positive parts in proportion, so that they add up to `whole`.

    Examples
    --------
    >>> spread({"a": 3.0, "b": 1.0, "c": -1.0})
    {'a': 0.75, 'b': 0.25}
    """
    total = sum(value for value in parts.values() if value > 0)
    if not total > 0 or not whole > 0:
        return {}
    return {cause: whole * value / total for cause, value in parts.items() if value > 0}


def add(parts: Mapping[str, float], others: Mapping[str, float], share: float) -> Parts:
    """Return parts with a share of others beside them.

    Examples
    --------
    >>> add({"a": 0.5}, {"a": 0.5, "b": 0.5}, 0.5)
    {'a': 0.75, 'b': 0.25}
    """
    found = dict(parts)
    for cause, value in others.items():
        if share * value > 0:
            found[cause] = found.get(cause, 0.0) + share * value
    return found


def log_mean(a: float, b: float) -> float:
    """Return the logarithmic mean of two positive numbers; it lies between them.

    Examples
    --------
    >>> round(log_mean(1.0, 2.0), 4)
    1.4427
    """
    step = math.log(a / b)
    return b if step == 0 else b * math.expm1(step) / step
