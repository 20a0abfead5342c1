"""What needs matplotlib at once: a canvas that measures a text once, Axes that a notebook shows."""

from __future__ import annotations

import functools
import io
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_mixed import MixedModeRenderer
from matplotlib.backends.backend_svg import FigureCanvasSVG, RendererSVG
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path

from perfml.report.figures.axes import alternative


@functools.lru_cache(4096)
def _size(text: str, font: FontProperties, ismath: Any) -> tuple[float, float, float]:
    found: tuple[float, float, float]
    found = text_to_path.get_text_width_height_descent(text, font, ismath)
    return found


class _Renderer(RendererSVG):  # type: ignore[misc, unused-ignore]
    """matplotlib keeps what it measured as long as a renderer, and laying out takes one more."""

    def get_text_width_height_descent(
        self, s: str, prop: FontProperties, ismath: Any
    ) -> tuple[float, float, float]:
        """Return width, height and descent of a text, in points."""
        return _size(s, prop, ismath)


class PageCanvas(FigureCanvasSVG):  # type: ignore[misc, unused-ignore]
    """The canvas of a page's figures: most of their texts are those of the figure before."""

    def print_svg(
        self,
        filename: Any,
        *,
        bbox_inches_restore: Any = None,
        metadata: dict[str, Any] | None = None,
    ) -> None:
        """Write the figure to a stream of text; matplotlib lays it out on one of bytes."""
        stream = filename if isinstance(filename, io.TextIOBase) else io.StringIO()
        figure: Any = self.figure
        dpi, figure.dpi = figure.dpi, 72
        width, height = figure.get_size_inches()
        svg = _renderer(72 * width, 72 * height, stream, image_dpi=dpi, metadata=metadata)
        renderer = _mixed(figure, width, height, dpi, svg, bbox_inches_restore=bbox_inches_restore)
        figure.draw(renderer)
        renderer.finalize()


# matplotlib's renderers have no types
_renderer: Any = _Renderer
_mixed: Any = MixedModeRenderer


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
