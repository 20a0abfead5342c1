"""Parts of Axes that several figures share: rows of names, interval ends, markers, narrow pages."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from perfml.report.labels import clean
from perfml.util.words import first_few

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_NARROW = 500
_MARKERS = "osD^vPX*<>"


def is_narrow(width: float) -> bool:
    """Return whether a figure of a width in points is for a phone: short labels, few ticks."""
    return width < _NARROW


def name_rows(ax: Axes, labels: Sequence[str], *, above: float = 0.5, below: float = 0.5) -> None:
    """Make the vertical axis a list of names, the first on top, with a grid across the values.

    Row ``i`` is drawn at ``y = i``; `above` and `below` are room before the first row's middle and
    after the last one's, in rows.
    """
    ax.set_yticks(np.arange(len(labels)), list(labels))
    # an axis without a label needs no search for its place, which measures every name once more
    ax.yaxis.set_label_coords(0.0, 0.5)
    ax.set_ylim(len(labels) - 1 + below, -above)
    ax.grid(axis="x")
    ax.tick_params(axis="y", length=0)


def row_height(labels: Sequence[str], single: int) -> int:
    """Return the points a row takes, so that names of two lines have room: `single` for one."""
    return max(single, 36) if any("\n" in label for label in labels) else single


def reach(
    middle: npt.NDArray[np.float64], low: npt.ArrayLike, high: npt.ArrayLike
) -> npt.NDArray[np.float64]:
    """Return how far intervals reach from their middles, (2, n), as error bars want them.

    An end that is not known, or lies on the wrong side of the middle, has no length.
    """
    ends = np.vstack([middle - np.asarray(low, float), np.asarray(high, float) - middle])
    return np.where(np.isfinite(ends), np.maximum(ends, 0.0), 0.0)


def markers(names: Sequence[Any]) -> dict[Any, str]:
    """Return a marker a name, so that points differ by more than colour."""
    return {name: _MARKERS[place % len(_MARKERS)] for place, name in enumerate(names)}


def tell(artists: Iterable[Any], texts: Iterable[str], layers: Iterable[object] = ()) -> None:
    """Give marks of a drawing what a page shows under the pointer, and the layer they lead to.

    The marks may be one collection of points. There is a text a mark or point, and a layer, where
    it leads to one.
    """
    marks, names = list(artists), list(layers)
    said = [
        [clean(text, 200), clean(names[at], 200) if names else ""] for at, text in enumerate(texts)
    ]
    alone = len(marks) == 1 and len(said) != 1
    for mark, each in zip(marks, [said] if alone else said, strict=True):
        mark.set_gid(json.dumps(each))


_TEXTS = 12
"""Texts of a drawing without axes that are told."""


def alternative(ax: Axes) -> str:
    """Return what the figure of some Axes shows.

    Everything comes from what was drawn, so it cannot say anything else than the picture.
    """
    figure: Any = ax.figure
    parts = [_panel(panel) for panel in figure.axes]
    return ". ".join(dict.fromkeys(part for part in parts if part))


def _panel(ax: Axes) -> str:
    said = [title for place in ("left", "center", "right") if (title := ax.get_title(loc=place))]
    if not ax.axison:
        return "; ".join([*said, *(_clean(text.get_text()) for text in ax.texts[:_TEXTS])])
    for name, axis in (("across", ax.xaxis), ("up", ax.yaxis)):
        label = axis.get_label().get_text()
        if label:
            said.append(f"{name}: {label}")
    rows = [_clean(label.get_text()) for label in ax.get_yticklabels()]
    names = [row for row in rows if re.search("[A-Za-z]", row)]
    if names:
        said.append(f"rows: {first_few(names, 8)}")
    legend = ax.get_legend()
    if legend is not None:
        said.append(f"legend: {', '.join(_clean(text.get_text()) for text in legend.get_texts())}")
    return "; ".join(_clean(each) for each in said)


def _clean(text: str) -> str:
    return " ".join(text.replace(r"\$", "$").split())
