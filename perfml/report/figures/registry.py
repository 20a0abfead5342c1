"""Every figure by name: from datasets to an Axes, for the verb plot."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import pandas as pd

from perfml.account.time_sources import time_note
from perfml.datasets.selection import Source
from perfml.errors import PerfmlError, did_you_mean
from perfml.report import figures
from perfml.report.conditions import settings
from perfml.report.figures.style import plain, styled
from perfml.report.labels import clean
from perfml.util.typing import Progress
from perfml.util.words import capital, listed, multiple

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from perfml.explain.results import Explanation
    from perfml.modeling.results import Ranking


@dataclass(frozen=True)
class Request:
    """What a figure is drawn from, and how."""

    layers: pd.DataFrame  # a Layers table
    kernels: pd.DataFrame | None = None  # the Kernels table behind it, or None
    # what was asked for: ``layer, baseline, target, task, model, method, protocol, splits,
    # resamples, seed, top``; missing ones have the figure's defaults
    options: Mapping[str, Any] = field(default_factory=dict)
    width: float | None = None  # points (1/72 inch), or None for the figure's own
    progress: Progress | None = None  # called by what takes long

    def given(self, *names: str) -> dict[str, Any]:
        """Return the options that were given, and the width."""
        options = {name: value for name in names if (value := self.option(name)) is not None}
        return options if self.width is None else {**options, "width": self.width}

    def option(self, name: str, default: Any = None) -> Any:
        """Return an option, or its default."""
        value = self.options.get(name)
        return default if value is None else value

    @property
    def of_layer(self) -> pd.DataFrame:
        """The rows of the layer that was asked for; all without."""
        layer = self.option("layer")
        rows = self.layers if layer is None else self.layers[self.layers["layer"] == layer]
        if layer is None or len(rows):
            return rows
        names = self.layers["layer"].dropna()
        msg = f"no layer is called {clean(layer, 80)!r}"
        cure = did_you_mean(str(layer), names, "Name one of these.")
        listing = listed([clean(name, 60) for name in names.unique()], 8)
        raise PerfmlError(msg, found=listing, cure=cure)

    def ranking(self, task: str, methods: tuple[str, ...], models: Any = None) -> Ranking:
        """Rank the metrics of the layers."""
        from perfml.modeling import rank

        return cast(
            "Ranking",
            rank(
                self.layers,
                task=task,
                models=models,
                methods=methods,
                resamples=self.option("resamples", 20),
                seed=self.option("seed", 0),
                progress=self.progress,
            ),
        )

    @property
    def ranked(self) -> Ranking:
        """The ranking by one model and method, or by those that are usual."""
        model, method = self.option("model"), self.option("method")
        methods = (str(method),) if method else ("builtin", "permutation")
        return self.ranking(
            self.option("task", "regression"), methods, (str(model),) if model else None
        )

    @property
    def explained(self) -> Explanation:
        """The comparison of the two backends that were named."""
        from perfml.explain import explain, sides_of

        baseline, target = self.option("baseline"), self.option("target")
        if baseline is None or target is None:
            msg = "this figure compares two backends"
            among = listed([clean(name, 60) for name in self.layers["backend"].unique()], 8)
            raise PerfmlError(msg, found=among, cure="Name two of these: --baseline A --target B.")
        layer = self.option("layer")
        return cast(
            "Explanation",
            explain(
                *sides_of(self.layers, baseline, target, kernels=self.kernels),
                layers=None if layer is None else [layer],
                top=1,
                model=None,
            ),
        )


def _kernels(request: Request) -> Axes:
    if request.kernels is None:
        msg = "the kernels of a layer need the Kernels table"
        raise PerfmlError(msg, cure="Give the Kernels table itself, or --launches FILE.")
    layer = request.option("layer")
    if layer is None:
        totals = request.kernels.groupby("layer")["time_us"].sum()
        if totals.empty:
            msg = "no launch belongs to a layer"
            raise PerfmlError(msg, cure="Ingest with ranges or --layer-map, see perfml ingest -h.")
        layer = str(totals.idxmax())
    return figures.kernel_shares(request.kernels, layer=layer, **request.given())


def _importances(request: Request) -> Axes:
    return figures.importances(request.ranked, **request.given("model", "method", "top"))


def _ranks(request: Request) -> Axes:
    return figures.ranks(request.ranked, **request.given("top"))


def _ratios(request: Request) -> Axes:
    return figures.time_ratios(request.explained, **request.given())


def _all_models(request: Request) -> Axes:
    method = request.option("method", "builtin")
    several = len(request.layers["backend"].dropna().unique()) > 1
    tasks = ("regression", "classification") if several else ("regression",)
    return figures.model_importances(
        [request.ranking(task, (method,)) for task in tasks],
        method=method,
        measured=settings(request.layers),
        **request.given("top"),
    )


def _tree(request: Request) -> Axes:
    from perfml.report.figures.models import readable_tree

    tree, names, classes = readable_tree(request.layers, request.option("task", "regression"))
    return figures.decision_tree(
        tree,
        feature_names=names,
        class_names=classes or None,
        unit="" if classes else "µs",
        **request.given(),
    )


def _predictions(request: Request) -> Axes:
    from perfml.modeling import evaluate

    model, protocol = request.option("model", "gbr"), request.option("protocol", _UNSEEN)
    evaluation = evaluate(
        request.layers,
        models=(model,),
        protocols=(protocol,),
        splits=request.option("splits", 10),
        seed=request.option("seed", 0),
        progress=request.progress,
    )
    return figures.predicted_vs_measured(
        evaluation.predictions, model=model, protocol=protocol, **request.given()
    )


def _roofline(request: Request) -> Axes:
    layer = request.option("layer")
    names = None if layer is None else tuple(request.of_layer["layer"].astype(str).head(1))
    return figures.layer_roofline(request.layers, names=names, **request.given())


def _attribution(request: Request) -> Axes:
    detail = request.explained.details[0]
    ax = figures.attribution(detail, **request.given())
    target, baseline = (plain(request.option(side), 24) for side in ("target", "baseline"))
    ratio = f"{multiple(detail.time.ratio)}, {target} over {baseline}"
    ax.set_title(f"{plain(detail.layer, 60)}: {ratio}")
    return ax


@dataclass(frozen=True)
class Plot:
    """One figure of `PLOTS`."""

    what: str  # what it shows
    draw: Callable[[Request], Axes]  # how it is drawn
    options: tuple[str, ...] = ()  # those that it heeds
    title: str = ""  # where the drawing itself has none
    settings: bool = True  # whether the precisions and batches are added to its title


_UNSEEN = "leave-one-layer-out"

_POINTS_A_LETTER = 6
"""Of small print, so that a note is broken before the edge of the picture."""

_KEEP = "\u00a0"
"""A blank that no line is broken at."""

_POINTS_A_BOLD_LETTER = 8.5
"""Of a title."""

_TITLE_PAD = 6.0
"""Between a title and what lies below it, points; matplotlib's own."""

_LEARNED = ("task", "model", "seed")

PLOTS: dict[str, Plot] = {
    "times": Plot(
        "time per layer and backend, with the spread of repeats",
        lambda asked: figures.layer_times(asked.of_layer, **asked.given()),
        ("layer",),
        title="Time per layer",
    ),
    "kernels": Plot("kernels of a layer (the slowest without --layer)", _kernels, ("layer",)),
    "importances": Plot(
        "importances of one model, with intervals",
        _importances,
        (*_LEARNED, "method", "resamples", "top"),
    ),
    "models": Plot(
        "importances of all six models side by side, with intervals and chance",
        _all_models,
        ("method", "resamples", "seed", "top"),
        settings=False,
    ),
    "ranks": Plot(
        "rank of every metric group, with intervals",
        _ranks,
        (*_LEARNED, "resamples", "top"),
    ),
    "tree": Plot("a decision tree that can be read", _tree, ("task",)),
    "predictions": Plot(
        "predicted against measured times",
        _predictions,
        ("model", "protocol", "splits", "seed"),
    ),
    "roofline": Plot("layers under the roofs of their device", _roofline, ("layer",)),
    "stalls": Plot(
        "why warps waited, of a layer or of all",
        lambda asked: figures.stall_breakdown(asked.layers, **asked.given("layer")),
        ("layer",),
        title="Why warps waited",
    ),
    "ratios": Plot(
        "time ratio of two backends on every layer",
        _ratios,
        ("baseline", "target", "layer"),
        title="Time ratio of every layer",
    ),
    "attribution": Plot(
        "what makes a layer slower (the one that differs most without --layer)",
        _attribution,
        ("baseline", "target", "layer"),
    ),
}
"""Every figure that the verb plot draws."""


@styled
def draw_plot(name: str, request: Request) -> Axes:
    """Draw a figure by its name.

    Raises `PerfmlError` if there is no such figure, it heeds none of an option that was given, or
    the table lacks what it shows.
    """
    if name not in PLOTS:
        msg = f"no figure is called {name!r}"
        raise PerfmlError(msg, cure=did_you_mean(name, PLOTS, f"Figures are: {', '.join(PLOTS)}."))
    plot = PLOTS[name]
    ignored = [
        option
        for option, value in request.options.items()
        if value is not None and option not in plot.options
    ]
    if ignored:
        heeded = ", ".join(map(flag, plot.options)) or "none"
        msg = f"the figure {name} does not take {flag(ignored[0])}"
        raise PerfmlError(msg, cure=f"It takes: {heeded}; and --where, --launches, --width.")
    ax = plot.draw(request)
    if plot.settings:
        _add_settings(ax, plot, request)
    note = time_note(request.layers)
    if note is not None and request.option("task") != "classification":
        # it goes into the picture, which is what is passed on
        letters = int(ax.figure.bbox.width / _POINTS_A_LETTER)
        ax.figure.supxlabel(textwrap.fill(note, letters), fontsize="small", ha="left", x=0.01)
    return ax


def flag(option: str) -> str:
    """Return what an option is called on the command line."""
    return "--predict" if option == "task" else f"--{option}"


def _add_settings(ax: Axes, plot: Plot, request: Request) -> None:
    """Say in a figure's title which layer, precisions and batches it shows."""
    figure: Any = ax.figure
    title = ax.get_title(loc="left")
    if not title:
        title = plot.title or capital(plot.what)
        layer = request.option("layer")
        title += "" if layer is None else f": {plain(layer, 60)}"
    if measured := settings(request.layers):
        title += f" ({measured})".replace(" ", _KEEP).replace(_KEEP, " ", 1)
    figure.draw_without_rendering()  # only now is it known where the axes and the legend lie
    points = 72 / figure.dpi
    letters = int(ax.bbox.width * points / _POINTS_A_BOLD_LETTER)
    legend = ax.get_legend()
    above = 0.0 if legend is None else (legend.get_window_extent().y1 - ax.bbox.y1) * points
    wrapped = textwrap.fill(title, max(letters, 20)).replace(_KEEP, " ")
    ax.set_title(wrapped, loc="left", pad=_TITLE_PAD + max(above, 0.0))


def plot(
    figure: str,
    data: pd.DataFrame | Source,
    *,
    kernels: pd.DataFrame | None = None,
    where: Sequence[str] = (),
    width: float | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> Axes:
    """Draw one figure.

    Parameters
    ----------
    figure
        Its name; ``perfml plot --list`` has them with what they show and which options they take.
    data
        A Layers table, or the name of a profile, a folder, a table or a recorded data set.
    kernels
        The Kernels table behind a Layers table, for figures of launches.
    where
        With a name: conditions ``COLUMN=VALUE`` that rows must meet.
    width
        Points (1/72 inch); the figure's own without.
    progress
        Called as ``progress(done, total, what)`` by figures that fit models.
    options
        ``layer, baseline, target, task, model, method, protocol, splits, resamples, seed,
        top``: those that the figure takes.

    Returns
    -------
    Axes
        A notebook shows it; ``.figure.savefig("name.png")`` writes it.

    Raises
    ------
    PerfmlError
        If there is no such figure, it does not take an option, or the table lacks what it shows.

    Examples
    --------
    >>> import perfml
    >>> ax = perfml.plot("times", "h200-yolov4-tiny", where=["batch=1", "precision=fp32"])
    >>> ax.figure.savefig("times.png")  # doctest: +SKIP
    """
    if not isinstance(data, pd.DataFrame):
        from perfml.datasets import read_input

        given = read_input(data, where=where).in_layers
        data, kernels = given.layers, given.kernels if kernels is None else kernels
    return draw_plot(figure, Request(data, kernels, options, width, progress))


def named_apart(tables: Sequence[pd.DataFrame | None], names: Sequence[str]) -> list[Any]:
    """Return the tables with backends named after their dataset, where there are several.

    A table that is None is kept; a name that occurs twice is numbered.
    """
    if len(tables) == 1:
        return list(tables)
    apart = [
        f"{name} ({place})" if list(names).count(name) > 1 else name
        for place, name in enumerate(names, start=1)
    ]
    return [
        None
        if table is None
        else table.assign(
            backend=f"{name}: " + table["backend"].astype("string").fillna("–"),
            run_id=f"{name}: " + table["run_id"].astype("string").fillna("–"),
        )
        for name, table in zip(apart, tables, strict=True)
    ]
