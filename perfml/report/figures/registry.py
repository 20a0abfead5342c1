"""Every figure by name: from datasets to an Axes, for the verb plot."""

from __future__ import annotations

import inspect
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
    progress: Progress | None = None  # called by what takes long

    @property
    def given(self) -> dict[str, Any]:
        """The options that have a value."""
        return {name: value for name, value in self.options.items() if value is not None}

    def of_layer(self, layer: str | None) -> pd.DataFrame:
        """Return the rows of a layer; all without."""
        rows = self.layers if layer is None else self.layers[self.layers["layer"] == layer]
        if layer is None or len(rows):
            return rows
        names = self.layers["layer"].dropna()
        msg = f"no layer is called {clean(layer, 80)!r}"
        cure = did_you_mean(str(layer), names, "Name one of these.")
        listing = listed([clean(name, 60) for name in names.unique()], 8)
        raise PerfmlError(msg, found=listing, cure=cure)

    def ranking(self, task: str, method: str | None, model: str | None, **how: Any) -> Ranking:
        """Rank the metrics of the layers by one model and method, or by those that are usual."""
        from perfml.modeling import rank

        methods = (method,) if method else ("builtin", "permutation")
        models = (model,) if model else None
        told = {"methods": methods, "models": models, "progress": self.progress, **how}
        return cast("Ranking", rank(self.layers, task=task, **told))

    def explained(self, baseline: str | None, target: str | None, layer: str | None) -> Explanation:
        """Compare the two backends that were named."""
        from perfml.explain import explain, sides_of

        if baseline is None or target is None:
            msg = "this figure compares two backends"
            among = listed([clean(name, 60) for name in self.layers["backend"].unique()], 8)
            raise PerfmlError(msg, found=among, cure="Name two of these: --baseline A --target B.")
        return cast(
            "Explanation",
            explain(
                *sides_of(self.layers, baseline, target, kernels=self.kernels),
                layers=None if layer is None else [layer],
                top=1,
                model=None,
            ),
        )


def times(request: Request, *, layer: str | None = None) -> Axes:
    """Time per layer and backend, with the spread of repeats."""
    ax = figures.layer_times(request.of_layer(layer))
    return _titled(ax, "Time per layer", layer)


def kernels(request: Request, *, layer: str | None = None) -> Axes:
    """Kernels of a layer (the slowest without --layer)."""
    if request.kernels is None:
        msg = "the kernels of a layer need the Kernels table"
        raise PerfmlError(msg, cure="Give the Kernels table itself, or --launches FILE.")
    if layer is None:
        totals = request.kernels.groupby("layer")["time_us"].sum()
        if totals.empty:
            msg = "no launch belongs to a layer"
            raise PerfmlError(msg, cure="Ingest with ranges or --layer-map, see perfml ingest -h.")
        layer = str(totals.idxmax())
    return figures.kernel_shares(request.kernels, layer=layer)


def importances(
    request: Request,
    *,
    task: str = "regression",
    model: str | None = None,
    seed: int = 0,
    method: str | None = None,
    resamples: int = 20,
    top: int | None = None,
) -> Axes:
    """Importances of one model, with intervals."""
    ranked = request.ranking(task, method, model, resamples=resamples, seed=seed)
    return figures.importances(ranked, **_known(model=model, method=method, top=top))


def models(
    request: Request,
    *,
    method: str = "builtin",
    resamples: int = 20,
    seed: int = 0,
    top: int | None = None,
) -> Axes:
    """Importances of all six models side by side, with intervals and chance."""
    several = len(request.layers["backend"].dropna().unique()) > 1
    tasks = ("regression", "classification") if several else ("regression",)
    return figures.model_importances(
        [request.ranking(task, method, None, resamples=resamples, seed=seed) for task in tasks],
        method=method,
        measured=settings(request.layers),
        **_known(top=top),
    )


def ranks(
    request: Request,
    *,
    task: str = "regression",
    model: str | None = None,
    seed: int = 0,
    resamples: int = 20,
    top: int | None = None,
) -> Axes:
    """Rank of every metric group, with intervals."""
    ranked = request.ranking(task, None, model, resamples=resamples, seed=seed)
    return figures.ranks(ranked, **_known(top=top))


def tree(request: Request, *, task: str = "regression") -> Axes:
    """A decision tree that can be read."""
    from perfml.report.figures.models import readable_tree

    fitted, names, classes = readable_tree(request.layers, task)
    return figures.decision_tree(
        fitted,
        feature_names=names,
        class_names=classes or None,
        unit="" if classes else "µs",
    )


def predictions(
    request: Request,
    *,
    model: str = "gbr",
    protocol: str = "leave-one-layer-out",
    splits: int = 10,
    seed: int = 0,
) -> Axes:
    """Predicted against measured times."""
    from perfml.modeling import evaluate

    evaluation = evaluate(
        request.layers,
        models=(model,),
        protocols=(protocol,),
        splits=splits,
        seed=seed,
        progress=request.progress,
    )
    return figures.predicted_vs_measured(evaluation.predictions, model=model, protocol=protocol)


def roofline(request: Request, *, layer: str | None = None) -> Axes:
    """Layers under the roofs of their device."""
    named = None if layer is None else tuple(request.of_layer(layer)["layer"].astype(str).head(1))
    return figures.layer_roofline(request.layers, names=named)


def stalls(request: Request, *, layer: str | None = None) -> Axes:
    """Why warps waited, of a layer or of all."""
    ax = figures.stall_breakdown(request.layers, layer=layer)
    return _titled(ax, "Why warps waited", layer)


def ratios(
    request: Request,
    *,
    baseline: str | None = None,
    target: str | None = None,
    layer: str | None = None,
) -> Axes:
    """Time ratio of two backends on every layer."""
    ax = figures.time_ratios(request.explained(baseline, target, layer))
    return _titled(ax, "Time ratio of every layer", layer)


def attribution(
    request: Request,
    *,
    baseline: str | None = None,
    target: str | None = None,
    layer: str | None = None,
) -> Axes:
    """What makes a layer slower (the one that differs most without --layer)."""
    detail = request.explained(baseline, target, layer).details[0]
    ax = figures.attribution(detail)
    ratio = f"{multiple(detail.time.ratio)}, {plain(target, 24)} over {plain(baseline, 24)}"
    ax.set_title(f"{plain(detail.layer, 60)}: {ratio}")
    return ax


def _known(**options: Any) -> dict[str, Any]:
    """Return the options that have a value; a figure has its own defaults."""
    return {name: value for name, value in options.items() if value is not None}


def _titled(ax: Axes, title: str, layer: str | None) -> Axes:
    """Give a drawing a title where it has none."""
    if not ax.get_title(loc="left"):
        ax.set_title(f"{title}: {plain(layer, 60)}" if layer else title, loc="left")
    return ax


PLOTS: dict[str, Callable[..., Axes]] = {
    draw.__name__: draw
    for draw in (
        *(times, kernels, importances, models, ranks, tree, predictions, roofline, stalls),
        *(ratios, attribution),
    )
}
"""Every figure that the verb plot draws, by name.

Its docstring says what it shows, and its keywords are the options that it takes.
"""

_POINTS_A_LETTER = 6
"""Of small print, so that a note is broken before the edge of the picture."""

_KEEP = "\u00a0"
"""A blank that no line is broken at."""

_POINTS_A_BOLD_LETTER = 8.5
"""Of a title."""

_TITLE_PAD = 6.0
"""Between a title and what lies below it, points; matplotlib's own."""


def options_of(name: str) -> tuple[str, ...]:
    """Return the options that a figure takes."""
    return tuple(inspect.signature(PLOTS[name]).parameters)[1:]


def shown_by(name: str) -> str:
    """Return what a figure shows, as a part of a sentence."""
    sentence = str(PLOTS[name].__doc__)
    return f"{sentence[:1].lower()}{sentence[1:].removesuffix('.')}"


@styled
def draw_plot(name: str, request: Request) -> Axes:
    """Draw a figure by its name.

    Raises `PerfmlError` if there is no such figure, it heeds none of an option that was given, or
    the table lacks what it shows.
    """
    if name not in PLOTS:
        msg = f"no figure is called {name!r}"
        raise PerfmlError(msg, cure=did_you_mean(name, PLOTS, f"Figures are: {', '.join(PLOTS)}."))
    options = options_of(name)
    ignored = [option for option in request.given if option not in options]
    if ignored:
        heeded = ", ".join(map(flag, options)) or "none"
        msg = f"the figure {name} does not take {flag(ignored[0])}"
        raise PerfmlError(msg, cure=f"It takes: {heeded}; and --where, --launches.")
    ax = PLOTS[name](request, **request.given)
    if name != "models":  # its panels have headings, which say it
        _add_settings(ax, shown_by(name), request)
    note = time_note(request.layers)
    if note is not None and request.options.get("task") != "classification":
        # it goes into the picture, which is what is passed on
        letters = int(ax.figure.bbox.width / _POINTS_A_LETTER)
        ax.figure.supxlabel(textwrap.fill(note, letters), fontsize="small", ha="left", x=0.01)
    return ax


def flag(option: str) -> str:
    """Return what an option is called on the command line."""
    return "--predict" if option == "task" else f"--{option}"


def _add_settings(ax: Axes, what: str, request: Request) -> None:
    """Say in a figure's title which layer, precisions and batches it shows."""
    figure: Any = ax.figure
    title = _titled(ax, capital(what), request.options.get("layer")).get_title(loc="left")
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
    return draw_plot(figure, Request(data, kernels, options, progress))


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
