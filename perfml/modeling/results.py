"""What modeling returns: tidy frames, JSON, and a short HTML form for notebooks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, ClassVar

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfml.modeling.features import OF_LAYERS, Words
from perfml.util.json_values import Document, json_object
from perfml.util.lazy import drawn_by
from perfml.util.shown import screen, section
from perfml.util.typing import Floats
from perfml.util.words import Readable, count, listed, number, percent

LEVEL = 0.05
"""A p-value up to here is called more than chance."""

ASKED_R2 = 0.3
"""Share of variance whose power is said where nothing is shown."""


Score = Document(
    "Score",
    {
        "model": str,
        "protocol": str,
        "score": str,
        "mean": float,
        "median": float,
        "q025": float,
        "q975": float,
        "splits": (int, "How many scores: splits times model seeds."),
        "baseline": bool,
    },
    words="Scores of a model under a protocol.",
)


_PLACED = {
    "mean_rank": float,
    "rank_low": float,
    "rank_high": float,
    "p_top1": float,
    "p_top3": float,
    "p_value": float,
}


RankGroup = Document(
    "RankGroup",
    {
        **_PLACED,
        "group": str,
        "members": str,
        "statistic": str,
        "partner": str,
        "rho": float,
    },
    words="A group of interchangeable metrics.",
)


RankMetric = Document(
    "RankMetric",
    {
        **_PLACED,
        "model": str,
        "method": str,
        "metric": str,
        "group": str,
        "importance": float,
        "low": float,
        "high": float,
    },
    words="A metric under one model and method.",
)


RankAgreement = Document(
    "RankAgreement",
    {
        "left": str,
        "right": str,
        "share": float,
    },
    words="How far two models and methods name the same groups.",
)


@dataclass(frozen=True)
class Leakage:
    """What a random split of a dataset can and cannot show.

    Attributes
    ----------
    rows, conditions
        How many; rows of one condition (workload, backend, precision, batch, layer) are repeats.
    distinct_feature_rows
        How many different feature vectors there are.
    twin_share
        Mean share of test rows, in a random 70/30 split, with an exact copy of their features
        among the training rows.
    variance_explained
        Share of the variance of time that the means of the conditions explain (R2, in sample).
    lookup_metric
        The metric that a lookup table was built on in most splits.
    lookup_score
        Median score of that baseline on random splits: MAPE or accuracy.
    condition_score
        Median MAPE, on random splits, of predicting the mean of the row's condition, which knows
        no metric at all; None for classification.
    model_score
        Median score of the best model (or of a decision tree, where no model was scored).
    identifying_metrics
        Metrics whose every value occurs in one condition only: each alone names the condition.
    warning
        A sentence where a lookup does as well as the models; else None.
    """

    rows: int
    conditions: int
    distinct_feature_rows: int
    twin_share: float
    variance_explained: float
    lookup_metric: str
    lookup_score: float
    condition_score: float | None
    model_score: float
    identifying_metrics: tuple[str, ...]
    warning: str | None

    to_dict = json_object


@dataclass(frozen=True, repr=False)
class Evaluation:
    """How well the models predict, under each protocol, next to their baselines.

    Attributes
    ----------
    task
        ``regression`` (score MAPE, a fraction) or ``classification`` (score accuracy).
    features
        What the models learned from.
    dropped
        Feature to the reason why it was left out.
    scores
        One `Score` a model and protocol.
    predictions
        One row a (row, model, protocol): ``row, layer, backend, model, protocol, truth,
        predicted, count``. Milliseconds or backends; the mean (or the usual class) of the `count`
        predictions made while the row was held out.
    leakage
        Whether a random split of this dataset means anything.
    warnings
        Sentences for the top of every output.
    folds
        One row a fit: ``model, protocol, split, seed, score``; seed is missing for fits without.
    classes
        The backends in the order of their codes; empty for regression.
    target
        What the regression fitted: ``time``, ``log-time``, ...
    words
        What the target and the groups are called.
    """

    task: str
    features: tuple[str, ...]
    dropped: dict[str, str]
    scores: Annotated[pd.DataFrame, Score]
    predictions: pd.DataFrame
    leakage: Leakage
    warnings: tuple[str, ...] = ()
    folds: pd.DataFrame = field(default_factory=pd.DataFrame)
    classes: tuple[str, ...] = ()
    target: str = "time"
    words: Words = OF_LAYERS

    JSON: ClassVar = (
        *("task", "target", "features", "dropped", "classes", "scores", "leakage", "warnings"),
    )
    to_dict = json_object
    plot = drawn_by("perfml.report.figures.models", "predicted_vs_measured")

    def __repr__(self) -> str:
        shown = self._shown().drop(columns="median")
        return screen(self._title(), self.warnings, shown, rest=".scores", most=24)

    def _repr_html_(self) -> str:
        return section(self._title(), self.warnings, self._shown())

    def _title(self) -> str:
        rows = len(self.predictions["row"].unique())
        score = "mean absolute percentage error" if self.task == "regression" else "accuracy"
        metrics = count(len(self.features), "metric")
        return f"{self.task} of {rows} rows by {metrics}: scores ({score})"

    def _shown(self) -> pd.DataFrame:
        scores = self.scores.drop(columns=["baseline", "score"]).rename(columns={"splits": "fits"})
        for name in ("mean", "median"):
            scores[name] = scores[name].map(percent)
        spread = [
            f"{percent(low, 3)} to {percent(high, 3)}"
            for low, high in zip(scores.pop("q025"), scores.pop("q975"), strict=True)
        ]
        scores.insert(len(scores.columns) - 1, "95 % of the fits", spread)
        scores["model"] += np.where(self.scores["baseline"], " (baseline)", "")
        return scores


@dataclass(frozen=True)
class Chance:
    """The test of all features against chance.

    Attributes
    ----------
    permutations
        Tables with the targets of other rows.
    rows
        Rows that are independent: layers, or groups; copies and repeats count once.
    p_value
        The smallest of any feature; NaN where nothing could be tested.
    power
        How often a feature that explains `ASKED_R2` of the variance would be shown in such a table.
    reason
        Why there was no test; empty where there was one.
    """

    permutations: int
    rows: int
    p_value: float
    power: float
    reason: str = ""

    JSON: ClassVar = ("permutations", "rows", "p_value", "power", "reason")
    to_dict = json_object


@dataclass(frozen=True, repr=False)
class Ranking:
    """Which metrics matter, and how sure that is.

    Attributes
    ----------
    task
        ``regression`` or ``classification``.
    table
        One `RankMetric` a model, method and metric. Intervals hold 95 % of the resamples.
        ``p_value`` is the metric's in the test against chance, whatever the model. For the method
        ``group-permutation`` the metric is the whole group.
    summary
        One row a group of interchangeable metrics, over all models and methods: those beyond chance
        by ``mean_rank``, then the others by ``p_value``. A group's rank in a resample is that of
        its joint importance. ``p_top3`` is the share of resamples in which it is among the first
        three; the shares of all groups add up to three, so of three groups each has 100 %.
        ``p_value`` is corrected for all metrics and statistics; ``statistic`` gave it,
        for a ``pair`` together with ``partner``. ``rho`` is the rank correlation with the target.
    groups
        Members of each group.
    agreement
        Mean share of the first three groups that two (model, method)
        pairs have in common in the same resample; NaN where one of them never names any.
    warnings
        Sentences for the top of every output.
    dropped
        Feature to the reason why it was left out.
    resampling
        What was resampled: ``layers``, copies of a layer together.
    resamples
        How often.
    distinct_layers
        How many there are; copies count once.
    null
        The test against chance; None for a ranking that was put together by hand.
    tied
        Members of each group that shares the first mean rank with the first of the summary, in its
        order: another draw of resamples may turn them round. Empty where one leads alone.
    words
        What the target and the groups of rows are called.
    """

    task: str
    table: Annotated[pd.DataFrame, RankMetric]
    summary: Annotated[pd.DataFrame, RankGroup]
    groups: tuple[tuple[str, ...], ...]
    agreement: Annotated[pd.DataFrame, RankAgreement]
    warnings: tuple[str, ...] = ()
    dropped: dict[str, str] = field(default_factory=dict)
    resampling: str = "layers"
    resamples: int = 0
    distinct_layers: int = 0
    null: Chance | None = None
    tied: tuple[tuple[str, ...], ...] = ()
    words: Words = OF_LAYERS

    JSON: ClassVar = (
        *("task", "resampling", "resamples", "distinct_layers", "null", "tied", "summary"),
        *("groups", "table", "agreement", "dropped", "warnings"),
    )
    to_dict = json_object
    plot = drawn_by("perfml.report.figures.models", "ranks")

    @property
    def feature_names_in_(self) -> npt.NDArray[np.object_]:
        """Names of the metrics that were ranked, group by group."""
        return np.array([name for group in self.groups for name in group], dtype=object)

    @property
    def feature_importances_(self) -> Floats:
        """Share of the resamples in which each of `feature_names_in_`'s group is in the top 3."""
        share = {
            name: value
            for members, value in zip(self.summary["members"], self.summary["p_top3"], strict=True)
            for name in members.split(", ")
        }
        return np.array([share[name] for name in self.feature_names_in_], dtype=np.float64)

    @property
    def beyond_chance(self) -> tuple[str, ...]:
        """The first metric of each group that is shown to go with the target, most important first.

        Empty where there is none, or where it cannot be told (`Chance.reason`).
        """
        if "p_value" not in self.summary:
            return ()
        clear = self.summary["members"][self.summary["p_value"] <= LEVEL]
        return tuple(str(members).split(", ")[0] for members in clear)

    @property
    def chance(self) -> str:
        """Whether the ranking shows more than chance does, in a sentence; empty without a test."""
        null = self.null
        if self.summary.empty or null is None:
            return ""
        if null.reason:
            return f"Whether any metric explains more than chance is not known: {null.reason}."
        what = self.words.target if self.words.own else _PERMUTED[self.task]
        groups = count(len(self.summary), "metric group")
        how = f"By {null.permutations} permutations of {what} between {null.rows} independent rows"
        how += f" ({self.words.groups}), corrected for {groups}."
        names = self.beyond_chance
        if not names:
            said = f"No metric is shown to explain more than chance (p = {number(null.p_value)})."
            # classes have no R2
            if self.task == "classification":
                return f"{said} {how}"
            seen = (
                f"An R2 of {ASKED_R2:g} would be shown in {percent(null.power, 3)} of such tables"
            )
            return f"{said} {seen}. {how}"
        more = len(names) - _MOST_NAMED
        shown = listed([*names[:_MOST_NAMED], *([f"{more} more"] if more > 0 else [])])
        verb = "explains" if len(names) == 1 else "explain"
        clear = self.summary[self.summary["p_value"] <= LEVEL]
        together = "" if set(clear["statistic"]) != {"pair"} else " only together"
        return (
            f"{shown} {verb} more than chance does{together} (p = {number(clear['p_value'].max())}"
            f"{' or less' if len(names) > 1 else ''}). {how}"
        )

    @property
    def tie(self) -> str:
        """Which groups share the first place, in a sentence; empty where one leads alone."""
        names = [group[0] for group in self.tied]
        if not names:
            return ""
        return (
            f"{', '.join(names[:-1])} and {names[-1]} tie for the first place. Which of them leads "
            "changes from one draw of resamples to the next."
        )

    def to_frame(self) -> pd.DataFrame:
        """Return the groups of metrics, best first, as ``summary`` has them."""
        return self.summary.copy()

    def __repr__(self) -> str:
        after = [said for said in (self.chance, self.tie) if said]
        names = [str(value).split(", ") for value in self.summary["members"]]
        short = [f"{first} + {len(more)} more" if more else first for first, *more in names]
        table = self._shown().assign(members=short).rename(columns=_HEADS)
        return screen(self._title(), self.warnings, table, after=after, rest=".summary")

    def _repr_html_(self) -> str:
        table = self._shown().rename(columns=_HEADS)
        after = " ".join(said for said in (self.chance, self.tie) if said)
        return section(self._title(), self.warnings, table, after=after)

    def _shown(self) -> pd.DataFrame:
        """Return the summary as people read it: shares in percent, ranks as an interval."""
        shown = self.summary.copy()
        for name in ("p_top1", "p_top3"):
            if name in shown:
                shown[name] = [f"{Readable(value):.0%}" for value in shown[name]]
        for name in ("mean_rank", "p_value"):
            if name in shown:
                shown[name] = shown[name].map(number)
        if {"rank_low", "rank_high"} <= set(shown):
            ends = zip(shown.pop("rank_low"), shown.pop("rank_high"), strict=True)
            spread = [f"{low:.0f}–{high:.0f}" for low, high in ends]
            shown["interval"] = spread
        order = ["members", "mean_rank", "interval", "p_top1", "p_top3", "p_value"]
        if len(shown) <= 3:  # all of them are among the first three
            order.remove("p_top3")
        return shown[[name for name in order if name in shown]]

    def _title(self) -> str:
        return f"{self.task}: ranking over {self.resamples} resamples of {self.resampling}"


_PERMUTED = {"regression": "times", "classification": "backends"}

_MOST_NAMED = 3
"""Metrics named in the sentence on chance."""

_HEADS = {
    "members": "interchangeable metrics",
    "mean_rank": "mean rank",
    "p_top1": "first",
    "p_top3": "in top 3",
    "p_value": "p-value",
}
"""Columns of `Ranking.summary`, for people."""
