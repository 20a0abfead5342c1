"""Figures of what the models say: importances, ranks, predictions against measurements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd

from perfml.errors import PerfmlError, did_you_mean
from perfml.modeling.features import OWN_TARGET
from perfml.report.figures.axes import is_narrow, markers, name_rows, reach, row_height, tell
from perfml.report.figures.style import (
    INK,
    MUTED,
    PALETTE,
    colours,
    new_axes,
    plain,
    styled,
    two_lines,
)
from perfml.report.labels import members, model, protocol
from perfml.util.words import number, percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from perfml.modeling.results import Evaluation, Ranking


STRONG = 0.6
"""A metric among the first three in this share of the resamples is drawn in colour."""


@styled
def importances(
    ranking: Ranking | pd.DataFrame,
    *,
    model: str | None = None,
    method: str | None = None,
    top: int = 12,
    ax: Axes | None = None,
    width: float = 640,
) -> Axes:
    """Draw the importances of one model by one method, with their intervals (figure 2-6).

    Parameters
    ----------
    ranking
        A Ranking, or its ``table`` (columns model, method, metric, importance, low, high).
    model, method
        Which; the first of the table without.
    top
        Metrics drawn, the most important first.
    ax, width
        Axes to draw on; without them a new figure of that width in points.

    Raises
    ------
    PerfmlError
        If the table has no such model or method.
    """
    table = ranking if isinstance(ranking, pd.DataFrame) else ranking.table
    chosen = _chosen(table, "model", model)
    chosen = _chosen(chosen, "method", method)
    rows = chosen.nlargest(top, "importance")
    labels = [two_lines(name, 24 if is_narrow(width) else 44) for name in rows["metric"]]
    ax = new_axes(ax, width, row_height(labels, 24) * len(rows) + 70)
    place = np.arange(len(rows))
    value = rows["importance"].to_numpy(dtype=float)
    bars = ax.barh(
        place,
        value,
        0.62,
        xerr=reach(value, rows["low"], rows["high"]),
        color=PALETTE[0],
        error_kw={"ecolor": INK, "elinewidth": 1.2, "capsize": 0},
    )
    tell(
        bars, [f"{name}: {number(size)}" for name, size in zip(rows["metric"], value, strict=True)]
    )
    name_rows(ax, labels)
    first = rows.iloc[0]
    more = "" if is_narrow(width) else ", with interval over the resamples"
    ax.set_xlabel(f"{plain(first['method'], 30)} importance{more}")
    ax.set_title(_model_name(first["model"]).capitalize())
    return ax


def _model_name(name: object) -> str:
    return plain(model(name), 60)


def _chosen(table: pd.DataFrame, column: str, value: str | None) -> pd.DataFrame:
    if table.empty:
        msg = "the ranking is empty"
        raise PerfmlError(msg, cure="Rank again, with more resamples or other models.")
    wanted = table[column].iloc[0] if value is None else value
    rows = table[table[column] == wanted]
    if rows.empty:
        msg = f"the ranking has no {column} {plain(wanted)}"
        found = ", ".join(map(str, table[column].unique()))
        cure = did_you_mean(str(wanted), table[column], "Choose one of these.")
        raise PerfmlError(msg, found=found, cure=cure)
    return rows


@styled
def ranks(
    ranking: Ranking,
    *,
    top: int = 12,
    ax: Axes | None = None,
    width: float = 900,
) -> Axes:
    """Draw the mean rank of every metric group over all models and methods, with its interval.

    Parameters
    ----------
    ranking
        Whose ``summary`` is drawn.
    top
        Groups drawn, best first.
    ax, width
        Axes to draw on; without them a new figure of that width in points.

    Raises
    ------
    PerfmlError
        If the ranking is empty.
    """
    summary = ranking.summary
    if summary.empty:
        msg = "the ranking is empty"
        raise PerfmlError(msg, cure="Rank again, with more resamples or other models.")
    from matplotlib.ticker import MaxNLocator

    rows = summary.head(top)
    narrow = is_narrow(width)
    labels = []
    for value in rows["members"]:
        names = members(value)
        more = f" +{len(names) - 1}" if len(names) > 1 else ""
        labels.append(two_lines(names[0], 24 if narrow else 44) + more)
    ax = new_axes(ax, width, row_height(labels, 28) * len(rows) + 76)
    place = np.arange(len(rows), dtype=float)
    low, high = rows["rank_low"].to_numpy(float), rows["rank_high"].to_numpy(float)
    strength = rows["p_top3"].to_numpy(float)
    for at, start, end, mean, sure in zip(
        place, low, high, rows["mean_rank"].to_numpy(float), strength, strict=True
    ):
        tint = PALETTE[0] if sure >= STRONG else MUTED
        ax.plot([start, end], [at, at], color=tint, linewidth=2.4, solid_capstyle="round")
        point = ax.plot(mean, at, "o", color=tint, markersize=8)
        name = members(rows["members"].iloc[int(at)])[0]
        text = f"{name}: mean rank {number(mean)}, interval {number(start)} to {number(end)}"
        tell(point, [f"{text}, in the top 3 of {percent(sure)}"])
    ends = np.concatenate([high[np.isfinite(high)], rows["mean_rank"].dropna().to_numpy(float)])
    last = float(ends.max()) if len(ends) else 1.0
    for at, end, mean, sure in zip(place, high, rows["mean_rank"], strength, strict=True):
        edge = float(end if np.isfinite(end) else mean)
        ax.text(edge + last * 0.025, at, percent(sure), va="center", color=INK)
    name_rows(ax, labels)
    ticks = MaxNLocator(integer=True, nbins=5 if narrow else 16).tick_values(1, max(last, 1))
    # the labels beside the intervals need room where there are no ranks
    ax.set_xticks(sorted({1.0, *(tick for tick in ticks if 1 <= tick <= max(last, 1))}))
    ax.set_xlim(0.5, 1.2 * last + 0.5)
    ax.set_xlabel(
        "rank, 1 is best" if narrow else "rank, 1 is best; beside it, the share in the top 3"
    )
    return ax


class RankingDisplay:
    """A ranking as a figure, by the habits of scikit-learn's displays.

    Parameters
    ----------
    ranking
        What `perfml.rank` returns.

    Attributes
    ----------
    ax_, figure_
        Where it was drawn.
    """

    def __init__(self, ranking: Ranking) -> None:
        self.ranking = ranking

    def plot(self, ax: Axes | None = None, **how: Any) -> Self:
        """Draw it on `ax` or on a new figure; `how` as for `ranks`."""
        self.ax_ = ranks(self.ranking, ax=ax, **how)
        self.figure_ = self.ax_.figure
        return self

    @classmethod
    def from_ranking(cls, ranking: Ranking, *, ax: Axes | None = None, **how: Any) -> Self:
        """Draw a ranking; `how` as for `ranks`."""
        return cls(ranking).plot(ax, **how)

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: Any, y: Any, *, ax: Axes | None = None, **how: Any
    ) -> Self:
        """Rank by one estimator and draw it; `how` as for `perfml.rank`."""
        from perfml.modeling import rank

        return cls.from_ranking(rank(X, y, models=[estimator], **how), ax=ax)


@styled
def predicted_vs_measured(
    predictions: Evaluation | pd.DataFrame,
    *,
    model: str | None = None,
    protocol: str | None = None,
    palette: Mapping[str, str] | None = None,
    ax: Axes | None = None,
    width: float = 460,
) -> Axes:
    """Draw predicted against measured times; on the diagonal they agree.

    Parameters
    ----------
    predictions
        An Evaluation of a regression, or its ``predictions``: backend, model, protocol, truth and
        predicted in milliseconds (drawn in microseconds; a target of one's own in its unit). Times
        that are not positive cannot be drawn on a logarithmic axis and are counted in the title.
    model, protocol
        Which; the first of the table without.
    palette
        Backend to colour.
    ax
        Where to draw; a new figure without.
    width
        Width and height of a new figure, points.

    Raises
    ------
    PerfmlError
        If there are no such predictions.
    """
    table = predictions if isinstance(predictions, pd.DataFrame) else predictions.predictions
    rows = _chosen(_chosen(table, "model", model), "protocol", protocol)
    own = rows.attrs.get(OWN_TARGET)
    scale = 1000.0 if own is None else 1.0
    truth = scale * rows["truth"].to_numpy(float)
    guess = scale * rows["predicted"].to_numpy(float)
    drawn = (truth > 0) & (guess > 0)
    if not drawn.any():
        msg = "no prediction is positive"
        raise PerfmlError(msg, cure="Predicted against measured is drawn for times only.")
    ax = new_axes(ax, width, width)
    named = rows["backend"].astype(object).where(rows["backend"].notna(), "").astype(str)
    backends = list(dict.fromkeys(named))
    tint = colours(backends, palette)
    for backend, marker in markers(backends).items():
        mine = np.flatnonzero(drawn & (named.to_numpy() == backend))
        # repeats that lie within 2 % of each other are one point to the eye
        spots = np.round(np.log(np.column_stack([truth[mine], guess[mine]])) / 0.02)
        mine = np.sort(mine[np.unique(spots, axis=0, return_index=True)[1]])
        points = ax.scatter(
            truth[mine],
            guess[mine],
            s=26,
            marker=marker,
            color=tint[backend],
            alpha=0.75,
            linewidths=0,
            label=plain(backend, 30),
        )
        of = list(rows["layer"].iloc[mine]) if "layer" in rows.columns else []
        pairs = zip(truth[mine], guess[mine], strict=True)
        texts = [f"measured {number(real)}, predicted {number(said)}" for real, said in pairs]
        tell([points], texts, of)
    both = np.concatenate([truth[drawn], guess[drawn]])
    limits = (both.min() / 1.25, both.max() * 1.25)
    ax.axline((limits[0], limits[0]), (limits[1], limits[1]), color=MUTED, linewidth=1, zorder=1)
    ax.set(xscale="log", yscale="log", xlim=limits, ylim=limits, aspect="equal")
    _plain_decades(ax)
    ax.set_xlabel("measured, µs" if own is None else f"measured {plain(own, 40)}")
    ax.set_ylabel("predicted, µs" if own is None else f"predicted {plain(own, 40)}")
    first = rows.iloc[0]
    hidden = int((~drawn).sum())
    ax.set_title(
        plain(_protocol_name(first["protocol"]).capitalize(), 40)
        + (f" ({hidden} not positive)" if hidden else "")
    )
    ax.grid()
    if rows["backend"].notna().any():
        ax.legend(loc="upper left", handletextpad=0.2, markerscale=1.4)
    return ax


def _protocol_name(name: object) -> str:
    return protocol(name)


def _plain_decades(ax: Axes) -> None:
    """Label logarithmic axes with plain numbers, few enough to read."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=12))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
        axis.set_minor_formatter(NullFormatter())


DEPTH = 3
"""Questions on a path: eight answers are what fits a page, and a reader's head."""

_LEVEL = 105
"""Height of a level, points."""


@styled
def decision_tree(
    tree: Any,
    *,
    feature_names: Sequence[str],
    class_names: Sequence[str] | None = None,
    depth: int = DEPTH,
    unit: str = "",
    ax: Axes | None = None,
    width: float = 1000,
) -> Axes:
    """Draw a fitted scikit-learn decision tree (figure 2-7); left of a question is its yes.

    Parameters
    ----------
    tree
        A fitted DecisionTreeRegressor or DecisionTreeClassifier.
    feature_names
        The metrics it was fitted on, in order.
    class_names
        Of a classifier, the classes in the order of ``tree.classes_``.
    depth
        Levels drawn; deeper ones are shown as ``(...)``.
    unit
        Of what a regressor predicts.
    ax, width
        Axes to draw on; without them a new figure of that width in points.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from sklearn.tree import plot_tree

    ax = new_axes(ax, width, _LEVEL * (min(depth, tree.get_depth()) + 1))
    figure: Any = ax.figure
    if not hasattr(figure.canvas, "get_renderer"):
        FigureCanvasAgg(figure)  # scikit-learn measures its boxes on it
    nodes = plot_tree(
        tree,
        max_depth=depth,
        feature_names=[plain(name, 40) for name in feature_names],
        class_names=None if class_names is None else [plain(name, 30) for name in class_names],
        impurity=False,
        filled=True,
        rounded=True,
        ax=ax,
    )
    for node in nodes if unit else ():
        node.set_text(node.get_text().replace("value =", f"{unit} ="))
    return ax


def readable_tree(
    layers: pd.DataFrame, task: str, features: str | Sequence[str] = "published"
) -> tuple[Any, tuple[str, ...], tuple[str, ...]]:
    """Fit a tree of three levels on every row.

    `task` is ``regression`` of the time in microseconds, or ``classification`` of the backend.
    Returned are the tree, what its columns are called, and the backends by code (none of a
    regression). Raises `PerfmlError` if the table has no such features, or (classification) only
    one backend.
    """
    from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

    from perfml.modeling.features import build_design
    from perfml.modeling.models.registry import imputed_owners, make_imputer

    design = build_design(layers, features)
    classes: tuple[str, ...] = ()
    truth: Any = layers["time_us"].to_numpy(dtype=float)
    usable = np.isfinite(truth) & (truth > 0)
    tree: Any = DecisionTreeRegressor(max_depth=DEPTH, random_state=0)
    if task == "classification":
        codes, found = pd.factorize(layers["backend"].astype("string").fillna("(unnamed)"))
        classes, truth = tuple(map(str, found)), codes
        tree = DecisionTreeClassifier(max_depth=DEPTH, random_state=0)
    if usable.sum() < 4 or len(np.unique(truth[usable])) < 2:
        msg = "a tree needs rows that differ"
        raise PerfmlError(msg, found=f"{int(usable.sum())} rows", cure="Take more layers.")
    imputer = make_imputer()
    tree.fit(imputer.fit_transform(design.values[usable]), truth[usable])
    plainly = len(design.names)
    names = [design.names[owner] for owner in imputed_owners(imputer, plainly)]
    names[plainly:] = [f"{name} undefined" for name in names[plainly:]]
    return tree, tuple(names), classes
