"""Counters as a profile has them, older versions' names included."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from perfml.metrics.expressions import Array, Expression

if TYPE_CHECKING:
    import pandas as pd


class RawCounters:
    """Counters by name, each taken out of its table once, however many formulas read it."""

    def __init__(self, raw: pd.DataFrame | Mapping[str, Array]) -> None:
        import pandas as pd  # not above: a sweep's workers read names only

        self._raw = raw
        self._names = frozenset(map(str, raw.keys()))
        self._taken: dict[str, Array] = {}
        if isinstance(raw, pd.DataFrame):
            self.index = raw.index
        else:
            self.index = pd.RangeIndex(len(next(iter(raw.values()), ())))

    def __len__(self) -> int:
        return len(self.index)

    def __call__(self, name: str) -> Array:
        """Return a counter, or a ``.pct`` from older reports' ``.ratio`` and ``.max_rate``."""
        found = self._taken.get(name)
        if found is None:
            if name in self._names:
                found = np.asarray(self._raw[name], dtype=float)
            else:
                base = name.removesuffix(".pct")
                with np.errstate(divide="ignore", invalid="ignore"):
                    found = 100.0 * self(f"{base}.ratio") / self(f"{base}.max_rate")
            self._taken[name] = found
        return found

    def held(self, name: str) -> bool:
        """Tell whether there is such a counter, or what it can be computed from."""
        if name in self._names:
            return True
        base = name.removesuffix(".pct")
        return base != name and {f"{base}.ratio", f"{base}.max_rate"} <= self._names

    def cover(self, expression: Expression) -> bool:
        """Tell whether every counter of a formula is there."""
        return all(map(self.held, expression.names))
