"""Documents of the verbs that learn: train, rank, select, plan."""

from __future__ import annotations

from typing import Any, NotRequired, TypedDict

from perfml.cli.documents.common import Number, Warnings


class Score(TypedDict):
    """Scores of a model under a protocol."""

    model: str
    protocol: str
    score: str
    mean: Number
    median: Number
    q025: Number
    q975: Number
    splits: int
    baseline: bool


class Train(TypedDict):
    """Models scored on random splits and on unseen layers."""

    dataset: str
    task: str
    target: str
    features: list[str]
    dropped: dict[str, str]
    classes: list[str]
    scores: list[Score]
    leakage: dict[str, Any]
    warnings: Warnings


class RankGroup(TypedDict):
    """A group of interchangeable metrics."""

    group: str
    members: str
    mean_rank: Number
    rank_low: Number
    rank_high: Number
    p_top1: Number
    p_top3: Number
    score: Number
    p_value: Number


class RankMetric(TypedDict):
    """A metric under one model and method."""

    model: str
    method: str
    metric: str
    group: str
    importance: Number
    low: Number
    high: Number
    mean_rank: Number
    rank_low: Number
    rank_high: Number
    p_top1: Number
    p_top3: Number
    by_chance: Number
    p_value: Number


class RankAgreement(TypedDict):
    """How far two models and methods name the same groups."""

    left: str
    right: str
    share: Number


class RankNull(TypedDict):
    """The test of the ranking against permuted tables."""

    permutations: int
    resamples: int
    observed: Number
    limit: Number
    p_value: Number
    reason: str


class Rank(TypedDict):
    """Metrics in the order of what they tell."""

    dataset: str
    task: str
    resampling: str
    resamples: int
    distinct_layers: int
    null: RankNull | None
    tied: list[list[str]]
    summary: list[RankGroup]
    groups: list[list[str]]
    table: list[RankMetric]
    agreement: list[RankAgreement]
    dropped: dict[str, str]
    warnings: Warnings
    unseen: NotRequired[list[Score]]
    weights: NotRequired[dict[str, Any]]


class SelectStep(TypedDict):
    """A size of the set that was tried."""

    size: int
    metric: str
    score: Number
    sufficient: bool
    alternatives: list[str]
    alternative_scores: list[Number]


class SelectCheck(TypedDict):
    """A search without a part of the layers, judged on that part."""

    fold: int
    layers: str
    metrics: str
    score: Number
    all_score: Number
    baseline: str
    baseline_score: Number


class Select(TypedDict):
    """The smallest set of metrics that predicts about as well as all."""

    dataset: str
    task: str
    model: str
    protocol: str
    target: str
    tolerance: float
    metrics: list[str]
    score: Number
    all_score: Number
    path: list[SelectStep]
    checks: list[SelectCheck]
    held_out: Number
    held_out_all: Number
    held_out_baseline: Number
    stability: dict[str, float]
    warnings: Warnings
    verdict: str


class PlanBudget(TypedDict):
    """What a budget of passes buys."""

    budget: str
    passes: int
    low: int
    high: int
    measured: bool
    seconds_per_launch: Number
    cupti_passes: int
    cupti_seconds_per_launch: float
    metrics: list[str]
    chosen_on: Number
    nested: Number
    nested_low: Number
    nested_high: Number
    worse_by: Number
    worse_low: Number
    worse_high: Number


class PlanShare(TypedDict):
    """How often a metric was chosen."""

    budget: int | str
    metric: str
    share: float


class Plan(TypedDict):
    """What to collect next within a budget of passes."""

    dataset: str
    out: str | None
    task: str
    model: str
    protocol: str
    target: str
    budget: int
    metrics: list[str]
    passes: int
    low: int
    high: int
    measured: bool
    free: list[str]
    also: list[str]
    curve: list[PlanBudget]
    stability: list[PlanShare]
    searches: int
    baseline: Number
    left_out: dict[str, str]
    source: str
    warnings: Warnings
    verdict: str
