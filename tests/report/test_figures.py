"""The figures: what they draw, that they draw on given Axes, that they refuse what misleads."""

from __future__ import annotations

import dataclasses
import functools
import re

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from perfml.errors import PerfmlError
from perfml.explain import explain, sides_of
from perfml.modeling.results import Chance
from perfml.report import figures
from perfml.report.figures.axes import alternative
from perfml.report.figures.metrics import stall_shares
from tests.support.report_data import BACKENDS, evaluation, kernels, layers, ranking

pytestmark = pytest.mark.long


@functools.cache
def comparison():
    """Return an Explanation of two backends."""
    return explain(*sides_of(kernels(layers=4), "cublas", "cudnn"), top=1, model=None)


def rooflike():
    """Return a Layers table of a device whose peaks are known."""
    table = layers(layers=4).assign(device="NVIDIA H200")
    return table.assign(flops=1e9, arithmetic_intensity=50.0)


def points():
    """Return three layers with work and traffic."""
    return pd.DataFrame(
        {
            "layer": ["a", "b", "c"],
            "backend": ["x", "y", "x"],
            "flops": [1e9, 2e9, 0.0],
            "bytes": [1e6, 1e8, 1e6],
            "time_us": [100.0, 200.0, 1.0],
        }
    )


DRAWN = {
    "time_ratios": lambda ax: figures.time_ratios(comparison(), ax=ax),
    "attribution": lambda ax: figures.attribution(comparison().details[0], ax=ax),
    "layer_roofline": lambda ax: figures.layer_roofline(rooflike(), ax=ax),
    "layer_times": lambda ax: figures.layer_times(layers(), ax=ax),
    "layer_times_horizontal": lambda ax: figures.layer_times(layers(), ax=ax, horizontal=True),
    "kernel_shares": lambda ax: figures.kernel_shares(kernels(), layer="conv_03", ax=ax),
    "importances": lambda ax: figures.importances(ranking(), ax=ax),
    "ranks": lambda ax: figures.ranks(ranking(), ax=ax),
    "decision_tree": lambda ax: figures.decision_tree(
        DecisionTreeRegressor(max_depth=2).fit([[0], [1], [2]], [1, 2, 3]),
        feature_names=["gld_efficiency"],
        ax=ax,
    ),
    "predicted_vs_measured": lambda ax: figures.predicted_vs_measured(
        evaluation().predictions, ax=ax
    ),
    "stall_breakdown": lambda ax: figures.stall_breakdown(layers(), ax=ax),
    "roofline": lambda ax: figures.roofline(
        points(), peak_flops={"FP32": 67e12}, peak_bandwidth=4.8e12, names=["a"], ax=ax
    ),
}


def texts(ax):
    """Return every text of a figure, empty ones left out."""
    found = [ax.get_title(loc=where) for where in ("left", "center")]
    found += [ax.get_xlabel(), ax.get_ylabel()]
    found += [each.get_text() for each in ax.findobj(mpl.text.Text)]
    return [text for text in found if text]


@pytest.mark.parametrize("name", DRAWN)
def test_figure_returns_the_axes_it_drew_on_and_leaves_global_settings_alone(name):
    before = dict(mpl.rcParams)
    given = Figure().subplots()
    assert DRAWN[name](given) is given
    own = DRAWN[name](None)
    assert isinstance(own, Axes)
    assert own.figure is not given.figure
    own.figure.canvas.draw()
    assert dict(mpl.rcParams) == before


def test_bars_are_the_medians_of_the_repeats_in_network_order():
    ax = figures.layer_times(layers(layers=3))
    heights = [[bar.get_height() for bar in container] for container in ax.containers[1::2]]
    assert heights[0] == pytest.approx([5.05, 10.1, 15.15])
    assert heights[2] == pytest.approx([10.1, 20.2, 30.3])
    assert [label.get_text() for label in ax.get_xticklabels()] == ["conv_01", "conv_02", "conv_03"]
    assert ax.get_ylabel() == "time, µs"
    assert [each.get_text() for each in ax.get_legend().get_texts()] == list(BACKENDS)


def test_times_of_two_conditions_are_never_drawn_as_one():
    with pytest.raises(PerfmlError, match=r"(?s)fp32, batch 1; fp32, batch 8.*Choose one"):
        figures.layer_times(layers(batches=(1, 8)))


def test_of_many_layers_the_slowest_are_drawn_and_the_title_says_so():
    ax = figures.layer_times(layers(layers=30), most=10)
    assert ax.get_title(loc="left") == "The 10 slowest of 30 layers"
    assert ax.get_xticklabels()[0].get_text() == "conv_21"


def test_more_backends_than_colours_differ_by_hatch():
    names = tuple(f"b{place}" for place in range(9))
    ax = figures.layer_times(layers(layers=2, repeats=2, backends=names))
    looks = {
        (container[0].get_facecolor(), container[0].get_hatch())
        for container in ax.containers[1::2]
    }
    assert len(looks) == 9


def test_kernel_shares_add_up_to_the_layer():
    ax = figures.kernel_shares(kernels(), layer="conv_02")
    widths = [patch.get_width() for patch in ax.patches]
    assert sum(widths[:2]) == pytest.approx(10.1)
    assert any("10.1 µs" in text for text in texts(ax))


def test_kernels_of_an_unknown_layer_are_an_error_that_names_the_known_ones():
    with pytest.raises(PerfmlError, match="conv_01"):
        figures.kernel_shares(kernels(), layer="conv_99")


def test_importances_show_one_model_and_method_with_intervals():
    ax = figures.importances(ranking(), model="gbr", method="permutation")
    assert [label.get_text() for label in ax.get_yticklabels()] == [
        "gld_efficiency",
        "dram_utilization",
        "stall_sync",
    ]
    assert ax.get_title(loc="left") == "Gradient boosting"
    segments = ax.collections[0].get_segments()
    assert segments[0][:, 0] == pytest.approx([0.4, 0.8])
    with pytest.raises(PerfmlError, match="dt, gbr"):
        figures.importances(ranking(), model="ebm")


def test_ranks_reach_over_their_interval_and_print_the_probability():
    ax = figures.ranks(ranking())
    assert ax.lines[0].get_xdata() == pytest.approx([1.0, 2.0])
    assert "97 %" in texts(ax)
    assert ax.get_yticklabels()[0].get_text() == "gld_efficiency +1"


def test_a_display_of_a_ranking_keeps_to_scikit_learns_habits():
    shown = figures.RankingDisplay.from_ranking(ranking(), top=1)
    assert len(shown.ax_.get_yticklabels()) == 1
    assert shown.figure_ is shown.ax_.figure
    assert shown.plot(ax=shown.ax_) is shown


def test_the_axis_of_ranks_ends_at_the_last_rank_and_begins_at_the_first():
    found = ranking()
    ticks = figures.ranks(found, width=390).get_xticks()
    last = max(found.summary["rank_high"].max(), found.summary["mean_rank"].max())
    assert (min(ticks), max(ticks) <= last) == (1, True)


def test_names_too_long_for_a_phone_take_two_lines_and_lose_nothing():
    name = "stall_exec_dependency (short_scoreboard + wait)"
    terms = pd.DataFrame({"term": [name, "work"], "log_ratio": [0.5, -0.2]})
    labels = [each.get_text() for each in figures.attribution(terms, width=390).get_yticklabels()]
    assert labels[0] == "stall_exec_dependency\n(short_scoreboard + wait)"


def test_empty_ranking_is_an_error():
    with pytest.raises(PerfmlError, match="empty"):
        figures.ranks(dataclasses.replace(ranking(), summary=ranking().summary.iloc[:0]))


def test_decision_tree_names_features_and_classes():
    tree = DecisionTreeClassifier(random_state=0).fit([[0.0], [1.0], [2.0]], [0, 1, 1])
    ax = figures.decision_tree(
        tree, feature_names=["gld_efficiency"], class_names=["tensorrt", "cu$blas$"]
    )
    joined = "\n".join(texts(ax))
    assert "gld_efficiency <= 0.5" in joined
    assert "tensorrt" in joined


def test_decision_tree_says_what_lies_deeper_than_it_draws():
    values = np.arange(16.0)[:, None]
    tree = DecisionTreeRegressor(random_state=0).fit(values, values[:, 0] ** 2)
    ax = figures.decision_tree(tree, feature_names=["x"], depth=1, unit="µs")
    said = texts(ax)
    assert sum("(...)" in each for each in said) == 4
    assert any("µs" in each for each in said)


def test_bars_of_an_attribution_add_up_to_the_ratio():
    detail = comparison().details[0]
    ax = figures.attribution(detail)
    factors = [float(each[1:]) for each in texts(ax) if each.startswith("×")]
    assert factors[-1] == pytest.approx(detail.time.ratio, abs=0.005)
    assert np.prod(factors[:-1]) == pytest.approx(factors[-1], rel=0.02)
    assert ax.get_yticklabels()[-1].get_text() == "all together"


def test_many_terms_are_summed_up_so_that_the_bars_still_add_up():
    terms = pd.DataFrame({"term": [f"t{n}" for n in range(20)], "log_ratio": np.full(20, 0.05)})
    ax = figures.attribution(terms, most=5)
    labels = [each.get_text() for each in ax.get_yticklabels()]
    assert labels == ["t0", "t1", "t2", "t3", "16 smaller ones", "all together"]
    assert any(each == f"×{np.exp(1.0):.2f}" for each in texts(ax))
    with pytest.raises(PerfmlError, match="no term"):
        figures.attribution(terms.assign(log_ratio=0.0))


def test_time_ratios_mark_no_difference_with_more_than_colour():
    table = comparison().layers.copy()
    explanation = dataclasses.replace(comparison(), layers=table)
    table.loc[0, ["ratio", "low", "high", "verdict"]] = [1.0, 0.99, 1.01, "no difference"]
    ax = figures.time_ratios(explanation)
    marks = [line for line in ax.lines if line.get_marker() == "o"]
    assert [line.get_markerfacecolor() == "none" for line in marks] == [True, False, False, False]
    assert [float(line.get_xdata()[0]) for line in marks] == pytest.approx([1, 1.5, 1.5, 1.5])
    with pytest.raises(PerfmlError, match="no layer has a time ratio"):
        figures.time_ratios(dataclasses.replace(explanation, layers=table.iloc[:0]))


def test_layers_lie_under_the_roofs_of_the_precision_that_ran():
    ax = figures.layer_roofline(rooflike(), peaks={"fp32": 50e12, "fp16": 1e15, "dram": 4e12})
    joined = "\n".join(texts(ax))
    assert "fp32: 50.0 TFLOP/s" in joined
    assert "fp16" not in joined
    assert "of input, weights and output" in joined
    counted = rooflike().assign(dram_read_bytes=1e6, dram_write_bytes=0.0)
    with pytest.raises(PerfmlError, match="a peak that the roofline needs"):
        figures.layer_roofline(counted, peaks={"fp16": 1e15, "dram": 4e12})


def test_svg_leaves_the_figure_as_it_was():
    ax = figures.layer_times(layers(layers=2))
    canvas = ax.figure.canvas
    drawn = figures.svg(ax, prefix="f", label="times")
    assert ax.figure.canvas is canvas
    assert ax.patch.get_visible()
    assert ax.figure.patch.get_visible()
    assert drawn == figures.svg(ax, prefix="f", label="times")


def test_predictions_are_drawn_in_microseconds():
    ax = figures.predicted_vs_measured(
        evaluation().predictions, model="gbr", protocol="leave-one-layer-out"
    )
    offsets = np.vstack([np.asarray(each.get_offsets()) for each in ax.collections])
    assert offsets[:, 0].min() == pytest.approx(10)
    assert offsets[:, 0].max() == pytest.approx(500)
    assert offsets[:, 1] == pytest.approx(1.4 * offsets[:, 0])
    assert ax.get_title(loc="left") == "Unseen layers"


def test_predictions_that_a_logarithm_cannot_show_are_counted():
    table = evaluation().predictions
    table.loc[(table["protocol"] == "random") & (table["row"] < 2), "predicted"] = [-1.0, 0.0]
    ax = figures.predicted_vs_measured(table, protocol="random")
    assert ax.get_title(loc="left") == "Random split (2 not positive)"
    with pytest.raises(PerfmlError, match="no prediction is positive"):
        figures.predicted_vs_measured(table.assign(predicted=-1.0))


def test_stalls_are_weighted_by_the_time_of_the_layers():
    table = pd.DataFrame(
        {
            "backend": "a",
            "layer": ["x", "y", "z"],
            "time_us": [1.0, 3.0, 5.0],
            "stall_sync": [0.4, 0.2, np.nan],
            "stall_selected": 0.5,
        }
    )
    shares = stall_shares(table)
    assert list(shares.columns) == ["stall_sync"]
    assert shares.loc["a", "stall_sync"] == pytest.approx((0.4 + 3 * 0.2) / 4)


def test_cycles_of_a_stall_reason_are_drawn_once():
    parts = {"stall_short_scoreboard": 0.2, "stall_wait": 0.1, "stall_math_pipe_throttle": 0.05}
    table = pd.DataFrame({"backend": ["a"], "layer": "x", "time_us": 1.0}).assign(**parts)
    assert list(stall_shares(table).columns) == list(parts), "parts, where no sum was measured"
    summed = table.assign(stall_exec_dependency=0.3)
    assert list(stall_shares(summed).columns) == [
        "stall_exec_dependency",
        "stall_math_pipe_throttle",
    ]


def test_a_stall_reason_keeps_its_colour_and_what_was_not_counted_has_no_bar():
    def drawn(*backends):
        ax = figures.stall_breakdown(pd.DataFrame(backends).assign(layer="x", time_us=1.0))
        names = [label.get_text() for label in ax.get_yticklabels()]
        return {bars.get_label(): bars[0].get_facecolor() for bars in ax.containers}, names

    one, _ = drawn({"backend": "a", "stall_sync": 0.3, "stall_inst_fetch": 0.2})
    other, names = drawn(
        {"backend": "a", "stall_sync": 0.1, "stall_inst_fetch": 0.2, "stall_pipe_busy": 0.4},
        {"backend": "silent"},
    )
    assert {name: other[name] for name in one} == one
    assert len(set(other.values())) == 3
    assert names == ["a"]


def test_stalls_of_one_layer_or_of_none():
    ax = figures.stall_breakdown(layers(), layer="conv_02")
    assert len(ax.get_yticklabels()) == 3
    with pytest.raises(PerfmlError, match="no such layer"):
        figures.stall_breakdown(layers(), layer="pool")
    with pytest.raises(PerfmlError, match="no stall metric"):
        figures.stall_breakdown(layers()[["backend", "layer", "time_us"]])


@pytest.mark.parametrize("width", [352, 900])
def test_a_title_stands_above_the_legend(width):
    ax = figures.layer_times(layers(layers=50), width=width, horizontal=width == 352)
    FigureCanvasAgg(ax.figure).draw()
    title = ax._right_title if width == 352 else ax._left_title
    assert "slowest of 50" in title.get_text()
    assert inside(ax, title)
    assert title.get_window_extent().y0 >= ax.get_legend().get_window_extent().y1


@pytest.mark.parametrize("width", [352, 900])
def test_nothing_of_the_stalls_lies_outside_of_the_figure(width):
    names = ["memory_dependency", "exec_dependency", "math_pipe_throttle", "short_scoreboard"]
    names += ["not_selected", "memory_throttle", "branch_resolving", "lg_throttle"]
    table = pd.DataFrame({"backend": ["inductor"], "layer": "x", "time_us": 1.0})
    ax = figures.stall_breakdown(table.assign(**{f"stall_{n}": 0.1 for n in names}), width=width)
    assert inside(ax, ax.get_legend())


def test_the_axis_of_factors_has_room_for_its_name():
    terms = pd.DataFrame({"label": ["throughput per resident warp (unexplained)"] * 2})
    ax = figures.attribution(terms.assign(log_ratio=[0.5, -0.2]), width=520)
    assert inside(ax, ax.xaxis.label)


def test_factors_on_a_phone_lie_beside_the_names_of_their_causes():
    name = "shared-memory and special-function queue full"
    terms = pd.DataFrame({"label": [f"{name} {n}" for n in range(3)]})
    ax = figures.attribution(terms.assign(log_ratio=[0.66, -0.03, -0.04]), width=352)
    FigureCanvasAgg(ax.figure).draw()
    factors = [each.get_window_extent() for each in ax.texts if each.get_text().startswith("×")]
    names = [each.get_window_extent() for each in ax.get_yticklabels()]
    assert len(factors) == len(names) == 4
    assert not any(one.overlaps(other) for one in factors for other in names)
    assert max(box.x1 for box in factors) <= ax.figure.bbox.width


def inside(ax, drawn):
    """Say whether something lies within its figure, left and right."""
    figure = ax.figure
    FigureCanvasAgg(figure).draw()
    box = drawn.get_window_extent()
    return box.x0 >= 0 and box.x1 <= figure.bbox.width


def test_roofline_places_layers_by_intensity_and_speed():
    ax = figures.roofline(points(), peak_flops=67e12, peak_bandwidth=4.8e12)
    offsets = np.vstack([each.get_offsets() for each in ax.collections])
    assert offsets.tolist() == [[1000.0, 1e13], [20.0, 1e13]]
    line = ax.lines[0].get_xydata()
    assert line[:, 1] == pytest.approx(np.minimum(line[:, 0] * 4.8e12, 67e12))
    assert any("67.0 TFLOP/s" in text for text in texts(ax))
    with pytest.raises(PerfmlError, match="columns are missing: flops"):
        figures.roofline(points()[["bytes", "time_us"]], peak_flops=1, peak_bandwidth=1)
    with pytest.raises(PerfmlError, match="positive peaks"):
        figures.roofline(points(), peak_flops=0, peak_bandwidth=1)


def test_names_with_dollars_and_newlines_are_never_mathematics():
    table = layers(layers=2, backends=("$\\frac{1}{0}$", "b\n$x$"))
    ax = figures.layer_times(table)
    drawn = figures.svg(ax, prefix="f", label="times")
    assert "$\\frac{1}{0}$" in drawn
    assert "b $x$" in drawn


def test_svg_keeps_text_follows_the_page_and_has_its_own_names():
    ax = figures.layer_times(layers(layers=2))
    first = figures.svg(ax, prefix="one", label='A "label" <b>')
    second = figures.svg(ax, prefix="two", label="B")
    assert ">conv_01</text>" in first
    assert "var(--s0, #0072b2)" in first
    assert "font-family" not in first
    assert 'aria-label="A &quot;label&quot; &lt;b&gt;"' in first
    names = [set(re.findall(r'id="([^"]+)"', each)) for each in (first, second)]
    assert names[0]
    assert not names[0] & names[1]
    used = set(re.findall(r'(?:href="#|url\(#)([^")]+)', first))
    assert used <= names[0]


def test_all_models_stand_side_by_side_with_shares_of_one_and_their_chance():
    found = ranking()
    null = Chance(20, 12, 0.429, 0.4)
    told = dataclasses.replace(found, null=null, summary=found.summary.assign(p_value=0.4))
    method = told.table["method"].iloc[0]
    models = told.table[told.table["method"] == method]["model"].unique()
    ax = figures.model_importances([told, told], method=method, measured="fp32, batch 1")
    panels = [each for each in ax.figure.axes if each.axison]
    assert len(panels) == 2 * len(models)
    assert sum(bar.get_width() for bar in ax.patches) == pytest.approx(1.0)
    words = alternative(ax)
    assert "What explains the time (fp32, batch 1)" in words
    assert "0.429" in words
    assert "40.0 %" in words, "the power of such a table"
    assert panels[0].xaxis.get_major_formatter()(0.25) == "25 %"
    narrow = figures.model_importances(told, method=method, width=352)
    assert (
        len({round(each.get_position().x0, 2) for each in narrow.figure.axes if each.axison}) == 1
    )
    with pytest.raises(PerfmlError, match="no importances by shapley"):
        figures.model_importances(told, method="shapley")
    with pytest.raises(PerfmlError, match="a panel a model"):
        figures.model_importances(told, ax=ax)


def test_the_alternative_says_what_was_drawn():
    ax = figures.layer_times(layers(layers=3))
    words = alternative(ax)
    assert "up: time, µs" in words
    assert f"legend: {', '.join(BACKENDS)}" in words
    assert ax._repr_png_()[1]["alt"] == words
    assert "rows: " in alternative(figures.ranks(ranking()))


@pytest.mark.parametrize("width", [352, 1400])
def test_nothing_of_the_kernels_lies_outside_of_the_figure(width):
    table = kernels()
    long = "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize64x64x8_stage3_execute_kernel_"
    table["kernel"] = [f"{long}{name}" for name in table["kernel"]]
    ax = figures.kernel_shares(table, layer="conv_03", width=width)
    assert inside(ax, ax.get_legend())
    assert ax.bbox.width > 0.6 * ax.figure.bbox.width
    assert ax.get_legend().get_window_extent().y1 < ax.xaxis.label.get_window_extent().y0


@pytest.mark.parametrize("width", [352, 1000])
def test_texts_of_a_decision_tree_never_lie_on_each_other(width):
    rows = np.arange(64)[:, None]
    tree = DecisionTreeRegressor(max_depth=3).fit(rows, rows[:, 0] ** 2)
    name = "single_precision_fu_utilization"
    ax = figures.decision_tree(tree, feature_names=[name], unit="µs", width=width)
    FigureCanvasAgg(ax.figure).draw()
    nodes = [each for each in ax.texts if each.get_text().strip() not in ("True", "False")]
    boxes = [Text.get_window_extent(each) for each in nodes]  # without the arrow
    assert len(nodes) == 15
    for place, box in enumerate(boxes):
        assert box.x1 <= ax.figure.bbox.width
        assert not any(box.overlaps(other) for other in boxes[:place])


def test_headings_over_all_models_fit_a_phone():
    method = ranking().table["method"].iloc[0]
    ax = figures.model_importances(ranking(), method=method, width=352)
    said = [each for axes in ax.figure.axes if not axes.axison for each in axes.texts]
    assert len(said) == 2
    assert all(inside(ax, each) for each in said)
