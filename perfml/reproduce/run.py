"""The analysis of a dataset.csv in one call, and its figures.

The rest of chapter 2 is ``studies.reproduction``; figures of layers, kernels and trees are those of
`perfml.report.figures`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from perfml import __version__
from perfml.errors import PerfmlError
from perfml.modeling.features import build_problem
from perfml.report import figures as shared
from perfml.report.figures.axes import name_rows
from perfml.report.figures.style import GRID, INK, MUTED, PALETTE, colours, new_axes, plain, styled
from perfml.reproduce import summary
from perfml.reproduce.claims import LEGEND, Claim, judge
from perfml.reproduce.published import KEY_METRIC, Recording, Source, find_data
from perfml.reproduce.splits import OWN, Plan, Runs, run_tasks, studied_model
from perfml.util.json_values import json_value
from perfml.util.shown import section
from perfml.util.typing import Progress
from perfml.util.words import number

if TYPE_CHECKING:
    from matplotlib.axes import Axes


STAND_IN_SPLITS, STAND_IN_STUDY = 100, 20
"""Random splits of a recording that stands in for the published file, and those of linear-tree."""


@dataclass(frozen=True)
class Reproduction:
    """Everything the command writes; `results` is the document of ``results.json``."""

    source: Source
    regression: Runs
    classification: Runs
    results: dict[str, Any]
    claims: tuple[Claim, ...]
    notes: tuple[str, ...] = field(default=())

    def _repr_html_(self) -> str:
        columns = ["claim", "where", "verdict", "evidence", "data"]
        claims = pd.DataFrame([claim.to_dict() for claim in self.claims])[columns]
        return section(f"{self.source.name}: the study's claims", self.notes, claims)


def reproduce(
    data: Path | None = None,
    *,
    plan: Plan | None = None,
    url: str | None = None,
    progress: Progress | None = None,
) -> Reproduction:
    """Repeat the study's analysis and judge its claims.

    Parameters
    ----------
    data
        The published ``dataset.csv`` or a file of its schema; None finds or downloads it.
    plan
        How much to fit.
    url
        Another place to download the file from.
    progress
        Called as ``progress(done, total, what)``.

    Raises
    ------
    PerfmlError
        If the data cannot be had or read, or has fewer than two backends.
    """
    plan = plan or Plan()
    if plan.splits < 2:
        msg = "a distribution needs at least two splits"
        raise PerfmlError(msg, found=str(plan.splits), cure="Ask for 500.")
    source = find_data(data, url=url)
    notes = list(source.notes)
    if not source.published:
        plan, note = standing_in(plan)
        notes.append(note)
    problems = [build_problem(source.layers, task) for task in ("regression", "classification")]
    regression, classification = run_tasks(problems, plan, progress)
    results = _results(source, regression, classification)
    claims = judge(results, source)
    results["claims"] = [claim.to_dict() for claim in claims]
    results["footnotes"] = _fewer(regression, plan)
    results["notes"] = list(notes)
    document: dict[str, Any] = json_value(results)
    return Reproduction(source, regression, classification, document, tuple(claims), tuple(notes))


def standing_in(plan: Plan) -> tuple[Plan, str]:
    """Return a smaller plan for a recording, which has more rows and layers than the study."""
    splits = min(plan.splits, STAND_IN_SPLITS)
    study = min(splits, STAND_IN_STUDY if plan.study_splits is None else plan.study_splits)
    smaller = replace(plan, splits=splits, study_splits=study)
    note = (
        f"The recording has more rows than the published file. So the models are fitted on "
        f"{splits} random splits, linear-tree on {study} and on no held-out layer."
    )
    return smaller, note


def _fewer(runs: Runs, plan: Plan) -> tuple[str, ...]:
    own = len(runs.random[OWN].score)
    if own >= plan.splits:
        return ()
    return (f"perfml's own linear model tree was fitted on {own} of the {plan.splits} splits.",)


def _results(source: Source, regression: Runs, classification: Runs) -> dict[str, Any]:
    leakage = summary.find_leakage(regression)
    facts = summary.data_facts(source, leakage, regression)
    lookup = regression.random.get(f"lookup:{KEY_METRIC}")
    return {
        "perfml": __version__,
        "data": facts,
        "leakage": leakage.to_dict(),
        "ranges": summary.range_rows(source),
        "regression": summary.regression(regression, comparable=source.published),
        "classification": summary.classification(classification),
        "lookup_gld_mape": None if lookup is None else float(np.median(lookup.score)),
        "baselines": {
            "regression": summary.baselines(regression),
            "classification": summary.baselines(classification),
        },
        "order_shares": summary.order_shares(regression),
        "key_metric": {
            "metric": KEY_METRIC,
            "regression": _key_metric(regression, ("dt", "gbr", "lmt")),
            "classification": _key_metric(classification, ("dt", "lr", "rf")),
        },
        "verdicts": LEGEND,
    }


def _key_metric(runs: Runs, names: tuple[str, ...]) -> dict[str, dict[str, float]]:
    found = {name: summary.key_metric(runs, name) for name in names}
    return {name: each for name, each in found.items() if each is not None}


def importance_table(runs: Runs, names: tuple[str, ...] | None = None) -> pd.DataFrame:
    """Return built-in importances over the splits: the tidy form of figure 2-6.

    Columns are ``model, method, metric, importance, low, high``; low and high hold 95 % of the
    splits.
    """
    frames = []
    for name, each in runs.random.items():
        if each.importance is None or (names is not None and name not in names):
            continue
        low, high = np.quantile(each.importance, [0.025, 0.975], axis=0)
        frame = pd.DataFrame(
            {
                "model": name,
                "method": "coefficient" if name.startswith("lr") else "built-in",
                "metric": runs.problem.design.names,
                "importance": each.importance.mean(axis=0),
                "low": low,
                "high": high,
            }
        )
        frames.append(frame.sort_values("importance", ascending=False, kind="stable"))
    return pd.concat(frames, ignore_index=True)


@styled
def distributions(
    scores: dict[str, np.ndarray],
    told: dict[str, float],
    titles: dict[str, str],
    *,
    label: str,
    log: bool = False,
) -> Axes:
    """Draw every split's score as a point cloud, its median and 95 %, and the published number."""
    names = list(scores)
    ax = new_axes(None, 820, 62 * len(names) + 80)
    rng = np.random.default_rng(0)
    for place, name in enumerate(names):
        values = scores[name]
        low, middle, high = np.quantile(values, [0.025, 0.5, 0.975])
        jitter = place + rng.uniform(-0.24, 0.24, len(values))
        ax.plot(values, jitter, ".", color=PALETTE[4], markersize=3, alpha=0.6)
        ax.plot([low, high], [place, place], color=INK, linewidth=1.6)
        ax.plot(middle, place, "o", color=INK, markersize=6)
        if name in told:
            ax.plot(told[name], place, "D", color=PALETTE[5], markersize=7)
    ax.plot([], [], "o-", color=INK, label="ours: median, 95 % of the splits")
    ax.plot([], [], "D", linestyle="none", color=PALETTE[5], label="published")
    name_rows(ax, [titles.get(name, name) for name in names])
    if log:
        from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

        ax.set_xscale("log")
        ax.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        ax.xaxis.set_minor_formatter(NullFormatter())
    ax.set_xlabel(label)
    ax.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, borderpad=0)
    return ax


@styled
def mean_layer_time(means: pd.DataFrame) -> Axes:
    """Draw the mean time a layer of each backend (figure 2-1): ``data, backend, mean_us``."""
    ax = new_axes(None, 640, 30 * len(means) + 60)
    sets = list(dict.fromkeys(means["data"]))
    place = np.arange(len(means))
    tint = colours(list(dict.fromkeys(map(str, means["backend"]))))
    shades = [1.0 if sets.index(name) == 0 else 0.5 for name in means["data"]]
    bars = ax.barh(place, means["mean_us"], 0.66, color=[tint[str(x)] for x in means["backend"]])
    for bar, shade in zip(bars, shades, strict=True):
        bar.set_alpha(shade)
    for at, value in zip(place, means["mean_us"], strict=True):
        ax.text(float(value), float(at), f" {number(float(value))}", va="center", color=INK)
    labels = [
        f"{plain(row.backend, 20)}, {plain(row.data, 40)} ({row.layers} layers)"
        for row in means.itertuples()
    ]
    name_rows(ax, labels)
    ax.grid(axis="x", color=GRID)
    ax.margins(x=0.15)
    ax.set_xlabel("mean time a layer, µs")
    ax.xaxis.label.set_color(MUTED)
    return ax


def mean_times(found: Reproduction, beside: Recording | None = None) -> pd.DataFrame:
    """Return figure 2-1's numbers for the analysed data and for a recording beside it."""
    frames = []
    sources = [(found.source.name, found.source.layers)]
    if beside is not None and beside.name != found.source.name:
        sources.append((beside.name, beside.layers))
    for name, layers in sources:
        by_layer = layers.groupby(["backend", "layer"], observed=True, dropna=False)[
            "time_us"
        ].mean()
        means = by_layer.groupby("backend").agg(["mean", "size"]).reset_index()
        means.columns = pd.Index(["backend", "mean_us", "layers"])
        means.insert(0, "data", name)
        frames.append(means)
    return pd.concat(frames, ignore_index=True)


def score_figure(runs: Runs, told: dict[str, float], titles: dict[str, str]) -> Axes:
    """Draw table 2.5 or 2.6 as distributions."""
    scores = {name: each.score for name, each in runs.random.items() if each.importance is not None}
    lookup = runs.random.get(f"lookup:{KEY_METRIC}")
    if lookup is not None:
        scores[f"lookup:{KEY_METRIC}"] = lookup.score
    known = {name: told[name] for name in scores if name in told}
    regression = runs.problem.task == "regression"
    label = "test MAPE (logarithmic)" if regression else "test accuracy"
    return distributions(scores, known, titles, label=f"{label}, random splits", log=regression)


def weights_figure(runs: Runs, model: str = "gbr") -> Axes:
    """Draw figure 2-6: importances with the interval that holds 95 % of the splits."""
    return shared.importances(importance_table(runs, (model,)), model=model)


def tree_figure(runs: Runs) -> tuple[Axes, str]:
    """Draw figure 2-7 from a tree on all rows (model seed 0), and return it as text too."""
    from sklearn.tree import export_text

    from perfml.modeling.scoring.folds import prepare

    problem = runs.problem
    rows = np.arange(problem.rows)
    filled = prepare(problem, rows, rows)
    names = [problem.design.names[owner] for owner in filled.owners]
    tree = studied_model("dt", problem.task).make(0).fit(filled.train, problem.truth)
    text = export_text(tree, feature_names=names, class_names=list(problem.classes), decimals=3)
    return shared.decision_tree(tree, feature_names=names, class_names=problem.classes), str(text)
