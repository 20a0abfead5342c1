"""What every figure shares: palette, fonts, a canvas without global state, SVG for the page.

matplotlib is used through its object interface alone: no pyplot, so no window, no figure kept
alive in a registry, and nothing that a notebook's own settings could be changed by.
"""

from __future__ import annotations

import functools
import io
import json
import re
import warnings
import xml.etree.ElementTree as ET
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec

from perfml.report.labels import clean

if TYPE_CHECKING:
    from matplotlib.axes import Axes

P = ParamSpec("P")

PALETTE = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8c8c8c")
"""Okabe and Ito's colours for all kinds of colour vision, without yellow and black (too pale and
too like text), with a grey."""

SLOWER, FASTER = "#a33b0b", "#4b3fb5"
"""Vermilion and indigo differ in every kind of colour vision, and no backend has them."""

STALLS = {
    "stall_memory_dependency": "#54478c",
    "stall_exec_dependency": "#9a8cd0",
    "stall_pipe_busy": "#cdc4ec",
    "stall_inst_fetch": "#3f6b6b",
    "stall_sync": "#86ada9",
    "stall_not_selected": "#c4dad6",
    "stall_memory_throttle": "#8c5a3c",
    "stall_constant_memory_dependency": "#cfa283",
    "stall_other": "#5b6571",
}
"""Reasons of stalls: each keeps its colour from figure to figure, and none is a backend's."""

HATCHES = ("", "////", "....", "xxxx")
"""Tell the backends apart when there are more than colours."""

INK, MUTED, GRID = "#1b1f24", "#5b6571", "#dfe3e8"

_THEME = {
    **{colour: f"var(--s{place}, {colour})" for place, colour in enumerate(PALETTE)},
    SLOWER: f"var(--slower, {SLOWER})",
    FASTER: f"var(--faster, {FASTER})",
    INK: f"var(--ink, {INK})",
    MUTED: f"var(--muted, {MUTED})",
    GRID: f"var(--grid, {GRID})",
}

_SVG = "http://www.w3.org/2000/svg"
_LINK = "http://www.w3.org/1999/xlink"


def styled(draw: Callable[P, Axes]) -> Callable[P, Axes]:
    """Draw in perfml's style where the caller gave no Axes; in the caller's own style else."""

    @functools.wraps(draw)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> Axes:
        if kwargs.get("ax") is not None:
            return draw(*args, **kwargs)
        import matplotlib as mpl

        with mpl.rc_context(_style()):
            return draw(*args, **kwargs)

    return wrapped


@functools.cache
def _style() -> Any:
    from matplotlib import rc_params_from_file

    return rc_params_from_file(
        Path(__file__).with_name("perfml.mplstyle"), use_default_template=False
    )


def new_axes(ax: Axes | None, width: float, height: float) -> Axes:
    """Return `ax`, or the Axes of a new figure of a size in points (1/72 inch).

    The new Axes show themselves in a notebook, see `perfml.report.figures.canvas`.
    """
    if ax is not None:
        return ax
    from matplotlib.figure import Figure

    from perfml.report.figures.canvas import ShownAxes

    figure = Figure(figsize=(width / 72, height / 72), dpi=72, layout="constrained")
    return figure.add_subplot(axes_class=ShownAxes)


def plain(value: object, limit: int = 60) -> str:
    """Return text from outside as a label: printable, short, and never read as mathematics."""
    text = clean(value, 4 * limit).replace("\n", " ")
    text = text if len(text) <= limit else f"{text[: limit - 1]}…"
    return text.replace("$", r"\$")


def two_lines(value: object, width: int) -> str:
    r"""Return text from outside as a label, on two lines where one of a width is too short.

    Examples
    --------
    >>> two_lines("stall_exec_dependency (short_scoreboard + wait)", 26)
    'stall_exec_dependency\n(short_scoreboard + wait)'
    """
    text = plain(value, 2 * width)
    if len(text) <= width:
        return text
    ends = [found.end() for found in re.finditer("[ _]", text[: width + 1])]
    at = ends[-1] if ends else width
    return f"{text[:at].rstrip()}\n{text[at:]}"


def colours(names: Sequence[str], given: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return a colour a name: the given ones, then the palette's in order."""
    found = dict(given or {})
    for name in names:
        found.setdefault(name, PALETTE[len(found) % len(PALETTE)])
    return found


def stall_colours(names: Sequence[str]) -> dict[str, str]:
    """Return a colour a stall reason: its own, or one that no other reason here has."""
    free = iter([tint for reason, tint in STALLS.items() if reason not in names])
    return {name: STALLS.get(name) or next(free, MUTED) for name in names}


def hatches(names: Sequence[str]) -> dict[str, str]:
    """Return a hatch a name: none for the first seven, then one for every further seven."""
    return {name: HATCHES[place // len(PALETTE) % len(HATCHES)] for place, name in enumerate(names)}


def legend_columns(labels: Sequence[str], width: float) -> int:
    """Return how many legend entries fit beside each other in a width in points."""
    widest = max((len(label) for label in labels), default=1)
    return max(1, min(len(labels), int(width / (widest * 7.2 + 56))))


def svg(ax: Axes, *, prefix: str, label: str) -> str:
    """Return the figure of an Axes as SVG to be placed in an HTML page.

    Text stays text, so that it can be searched and read aloud; colours follow the page's
    variables; names inside cannot clash with those of another figure on the page.

    Parameters
    ----------
    ax
        From one of the functions of `perfml.report.figures`.
    prefix
        Unique on the page.
    label
        What the figure shows, for those who do not see it.
    """
    import matplotlib as mpl

    figure: Any = ax.figure
    buffer = io.StringIO()
    style: Any = {"svg.fonttype": "none", "svg.hashsalt": prefix}
    with mpl.rc_context(style), warnings.catch_warnings():
        # the page's reader has fonts of their own, so what this machine's lack does not matter
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        _print_svg(figure, buffer)
    for name, uri in (("", _SVG), ("xlink", _LINK)):
        ET.register_namespace(name, uri)
    root = ET.fromstring(buffer.getvalue())  # noqa: S314 - written by matplotlib just now
    for tag in ("metadata", "defs"):
        for child in root.findall(f"{{{_SVG}}}{tag}"):
            if tag == "metadata" or child.find(f"{{{_SVG}}}style") is not None:
                root.remove(child)
    used = _references(root)
    for element in list(root.iter()):
        _adapt(element, prefix, used)
    width = root.attrib.pop("width", "")
    root.attrib.pop("height", None)
    root.set("role", "img")
    root.set("aria-label", label)
    root.set("style", f"max-width: {float(width.removesuffix('pt') or 0):.0f}px")
    return ET.tostring(root, encoding="unicode")


def _print_svg(figure: Any, buffer: io.StringIO) -> None:
    """Write a figure without its background, drawn once.

    ``savefig`` draws everything twice, the first time to lay it out; laying out is a part of
    drawing already, and on a page of 40 figures the difference is seconds.
    """
    from perfml.report.figures.canvas import PageCanvas

    canvas = figure.canvas
    patches = [figure.patch, *(panel.patch for panel in figure.axes)]
    seen = [patch.get_visible() for patch in patches]
    for patch in patches:
        patch.set_visible(False)
    try:
        printer: Any = PageCanvas(figure)
        printer.print_svg(buffer, metadata={"Date": None})
    finally:
        figure.set_canvas(canvas)
        for patch, visible in zip(patches, seen, strict=True):
            patch.set_visible(visible)


def _references(root: ET.Element) -> set[str]:
    used = set()
    for element in root.iter():
        for name, value in element.attrib.items():
            if name.endswith("href") and value.startswith("#"):
                used.add(value[1:])
            elif "url(#" in value:
                used.add(value.partition("url(#")[2].partition(")")[0])
    return used


def _adapt(element: ET.Element, prefix: str, used: set[str]) -> None:
    name = element.attrib.pop("id", "")
    if name in used:
        element.set("id", f"{prefix}-{name}")
    elif name.startswith("["):
        _mark(element, json.loads(name))
    for key, value in list(element.attrib.items()):
        if key.endswith("href") and value.startswith("#"):
            element.attrib.pop(key)
            element.set("href", f"#{prefix}-{value[1:]}")
        elif "url(#" in value:
            element.set(key, value.replace("url(#", f"url(#{prefix}-"))
    if "style" in element.attrib:
        parts = [part.strip() for part in element.attrib["style"].split(";")]
        kept = [_themed(part) for part in parts if part and not part.startswith("font-family")]
        element.set("style", "; ".join(kept))
    for key in ("d", "x", "y", "transform"):
        if key in element.attrib:
            text = " ".join(element.attrib[key].split())
            element.set(key, _DECIMALS.sub(_rounded, text))
    if element.tag != f"{{{_SVG}}}text" and element.text and not element.text.strip():
        element.text = None
    if element.tail and not element.tail.strip():
        element.tail = None


def _mark(element: ET.Element, said: Sequence[Any]) -> None:
    """Write what a mark tells (`perfml.report.figures.axes.tell`): shown without a script, too."""
    marks = [(element, said)]
    if isinstance(said[0], list):
        points = [each for each in element.iter() if each.tag == f"{{{_SVG}}}use"]
        marks = list(zip(points, said, strict=False))
    for mark, (text, layer) in marks:
        mark.set("data-tip", text)
        if layer:
            mark.set("data-layer", layer)
        title = ET.Element(f"{{{_SVG}}}title")
        title.text = text
        mark.insert(0, title)


_DECIMALS = re.compile(r"-?\d+\.\d{3,}")
"""Numbers finer than a hundredth of a point: they are a third of a figure's bytes."""


def _rounded(found: re.Match[str]) -> str:
    return f"{float(found[0]):.2f}".rstrip("0").rstrip(".")


def _themed(declaration: str) -> str:
    name, colon, value = declaration.partition(":")
    value = value.strip()
    return f"{name}{colon} {_THEME.get(value, value)}"
