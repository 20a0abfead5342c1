"""Axes that a notebook shows as their figure; imported when a figure is drawn."""

from __future__ import annotations

import io
from typing import Any

from matplotlib.axes import Axes

from perfml.report.figures.axes import alternative

_DPI = 144
"""Two pixels a point, so that text stays sharp on dense screens."""


class ShownAxes(Axes):  # type: ignore[misc, unused-ignore]
    """The Axes of a figure that no window and no pyplot knows.

    IPython shows what a cell returns by its ``_repr_*_`` methods. A bare figure would otherwise
    show as ``<Axes: ...>``; Axes that the caller made with pyplot are shown by IPython already.
    """

    def _repr_png_(self) -> tuple[bytes, dict[str, int | str]]:
        figure: Any = self.figure
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", dpi=_DPI)
        width, height = figure.get_size_inches() * 72
        size = {"width": round(width), "height": round(height)}
        return buffer.getvalue(), {**size, "alt": alternative(self)}
