"""The canvas of a page's figures writes what matplotlib's own writes."""

import io

import matplotlib as mpl
import pytest
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from perfml.report.figures.canvas import PageCanvas


def drawn(canvas, dpi):
    figure = Figure(figsize=(4, 3), dpi=dpi, layout="constrained")
    ax = figure.add_subplot()
    ax.barh(["conv_0", "$conv_1$\nsecond line"], [1, 2])
    ax.set_title("conv_0", fontsize=15)
    ax.scatter([1, 2], [0, 1], rasterized=True)
    written = io.StringIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "same"}):
        canvas(figure).print_svg(written, metadata={"Date": None})
    return written.getvalue()


@pytest.mark.parametrize("dpi", [72, 144])
def test_the_canvas_of_a_page_writes_what_matplotlib_writes(dpi):
    assert drawn(PageCanvas, dpi) == drawn(FigureCanvasSVG, dpi)


def test_a_text_of_a_figure_before_is_measured_no_more(monkeypatch):
    drawn(PageCanvas, 72)
    monkeypatch.setattr(
        "perfml.report.figures.canvas.text_to_path.get_text_width_height_descent",
        lambda *text: pytest.fail(f"measured once more: {text}"),
    )
    drawn(PageCanvas, 72)
