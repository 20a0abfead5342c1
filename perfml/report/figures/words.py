"""A figure in words, for those who do not see it: its titles, axes, rows and legend as drawn."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_ROWS = 8
"""Names of rows that are told."""

_TEXTS = 12
"""Texts of a drawing without axes that are told."""


def alternative(ax: Axes) -> str:
    """Return what the figure of some Axes shows.

    Everything comes from what was drawn, so it cannot say anything else than the picture.
    """
    figure: Any = ax.figure
    parts = [_panel(each) for each in figure.axes]
    return ". ".join(dict.fromkeys(part for part in parts if part))


def _panel(ax: Axes) -> str:
    said = [title for place in ("left", "center", "right") if (title := ax.get_title(loc=place))]
    if not ax.axison:
        return "; ".join([*said, *(_clean(each.get_text()) for each in ax.texts[:_TEXTS])])
    for name, axis in (("across", ax.xaxis), ("up", ax.yaxis)):
        label = axis.get_label().get_text()
        if label:
            said.append(f"{name}: {label}")
    rows = [_clean(each.get_text()) for each in ax.get_yticklabels()]
    names = [row for row in rows if re.search("[A-Za-z]", row)]
    if names:
        more = f" and {len(names) - _ROWS} more" if len(names) > _ROWS else ""
        said.append(f"rows: {', '.join(names[:_ROWS])}{more}")
    legend = ax.get_legend()
    if legend is not None:
        said.append(f"legend: {', '.join(_clean(each.get_text()) for each in legend.get_texts())}")
    return "; ".join(_clean(each) for each in said)


def _clean(text: str) -> str:
    return " ".join(text.replace(r"\$", "$").split())
