"""How sure an answer is: one list of words, for a cause, for its cure, and for advice.

How often answers of each word were right stands in ``docs/explanation/truth.md``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any, Literal

from perfml.util.files import read_rows

Confidence = Literal["proven", "high", "medium", "low", "refuted"]
"""``high``: no counter speaks against it. ``medium``: another answer may come first, and
this one is worth doing all the same. ``low``: counters do not tell; doing it finds out.
``proven`` and ``refuted``: experiments on the launch say so (`perfml.explain.advice.measured`)."""

MOST = 0.5
"""What makes less than this part of the difference between two sides does not decide the answer:
a cause, ranges, the kernels of one side, work that grew (by logarithms of factors)."""

NAMED = 3  # causes, kernels or counters that one sentence names; of more, their number

TimeVerdict = Literal["slower", "faster", "no difference", "undecided"]
"""What is said of the target's time beside the baseline's."""

IN_WORDS: dict[Confidence, str] = {
    "proven": "proven by experiment",
    "high": "high confidence",
    "medium": "medium confidence",
    "low": "low confidence",
    "refuted": "refuted by experiment",
}
"""What people read; an answer of high confidence is printed without a mark."""


def marked(text: str, confidence: Confidence, tells: str = "") -> str:
    """Return what to do, and then how sure that is, where confidence is not high.

    Parameters
    ----------
    text
        What to do: sentences.
    confidence
        Of it.
    tells
        What would tell whether it is right.

    Examples
    --------
    >>> marked("Use wider loads.", "high")
    'Use wider loads.'
    >>> marked("Use wider loads.", "low", "run it with half the blocks")
    'Use wider loads. Confidence: low. To check: run it with half the blocks.'
    """
    if confidence == "high" or not text:
        return text
    word = IN_WORDS[confidence].removesuffix(" confidence")
    return with_check(f"{text.rstrip('.')}. Confidence: {word}.", confidence, tells)


def with_check(text: str, confidence: Confidence, tells: str = "") -> str:
    """Return what to do, and where confidence is low what would tell whether it is right."""
    return f"{text} To check: {tells.rstrip('.')}." if tells and confidence == "low" else text


_WORDS: tuple[Confidence, ...] = ("high", "medium")

TESTED: Mapping[Confidence, float] = {"proven": 1.0, "refuted": 0.0}
"""What experiments leave of a probability."""

COUNTED: Mapping[str, float] = {
    # Of 45 pairs of traces the first cause is right in 29: 15 of 16 that were read, 5 of 9 and 9 of
    # 20 of others (studies/truth/RESULTS.md, 2026-11-25 to 28).
    "step": 29 / 45,
    # Of the launches of 134 pairs the first of Nsight Compute's rules names the cause in 64: 13 of
    # 18, 16 of 21, 15 of 35, 9 of 42 and 11 of 18 (the same page).
    "rule": 64 / 134,
    "measured": 1.0,  # what was measured over the same layers
    # No pair of recordings tells how often a bound is reached: by choice, as likely as not.
    "bound": 0.5,
}
"""How often a finding is right whose kind has too few labelled pairs for a fit: not fitted."""


def probability(kind: str, features: Mapping[str, float] | None = None) -> float:
    """Return how probable a finding is, by what speaks for it.

    Of a ``launch`` it was fitted on labelled pairs, with whole authors held out
    (``advice/probability.toml``); of the kinds of `COUNTED` it was counted, and is not fitted.

    Examples
    --------
    >>> round(probability("step"), 2)
    0.64
    """
    if features is None:
        return COUNTED[kind]
    weights = load_fitted()["weights"]
    value = sum(weights.get(name, 0.0) * number for name, number in features.items())
    return 1 / (1 + math.exp(-value - weights["intercept"]))


def confidence_of(probability: float) -> Confidence:
    """Return the word of the probability of a finding."""
    bounds = load_fitted()["words"]
    return next((word for word in _WORDS if probability >= bounds[word]), "low")


ENOUGH_RESAMPLES = 20
"""Resamples below which a probability of 90 % cannot be told from one of 75 %."""

_OFTEN, _SOMETIMES, _SELDOM = 0.9, 0.6, 0.3
"""Shares of the resamples in which a metric is in the top 3, of high and medium confidence, and
from which on a further one is named."""


def least_sure(*words: Confidence) -> Confidence:
    """Return the least sure of some words."""
    return max(words, key=list(IN_WORDS).index)


def of_measured(*, enough: bool) -> Confidence:
    """Return how sure something measured is: repeats, or steps that agree, are enough."""
    return "high" if enough else "low"


def of_ratio(verdict: TimeVerdict, *, interval: bool) -> Confidence:
    """Return how sure the verdict on two times is: an interval from the repeats decides."""
    if verdict == "undecided" or (verdict == "no difference" and not interval):
        return "low"
    return "high" if interval else "medium"


def of_lead(total: float, high: float, lows: float) -> Confidence:
    """Return how surely a total is the least: its slowest repeat beside the others' fastest ones.

    Without repeats (NaN) nothing tells.
    """
    if math.isnan(high) or math.isnan(lows):
        return "low"
    return "high" if high < lows else "medium" if total < lows else "low"


def is_reliable(top3: float) -> bool:
    """Return whether a metric is in the top 3 often enough to explain the target."""
    return top3 >= _SOMETIMES


def is_named(top3: float) -> bool:
    """Return whether a metric behind the first one is worth a word."""
    return top3 >= _SELDOM


def of_metric(top3: float, resamples: int, limit: Confidence, *, chance: bool) -> Confidence:
    """Return how sure the first metric of a ranking is.

    `top3` is how often it is in the top 3 of `resamples`, `limit` how sure its models are, `chance`
    whether it may be first by chance.
    """
    few = 0 < resamples < ENOUGH_RESAMPLES
    sure: Confidence = "medium" if top3 >= _SOMETIMES else "low"
    sure = "high" if top3 >= _OFTEN and not few else sure
    return least_sure("low" if chance else sure, limit)


def of_model(own: float, simple: float, *, higher_is_better: bool) -> Confidence:
    """Return how sure a model is, by its score beside the best baseline's."""
    wrong, baseline = (1 - own, 1 - simple) if higher_is_better else (own, simple)
    return "low" if not wrong < baseline else "high" if wrong <= baseline / 2 else "medium"


def is_worth_mixing(share: float) -> bool:
    """Return whether a part of the time is worth another backend: 1 % or more."""
    return share >= 0.01


def of_share(part: float, whole: float) -> Confidence:
    """Return how sure a sum is, of which a part lies beyond the spread of the repeats."""
    return "high" if part >= whole else "medium" if part >= MOST * whole else "low"


@cache
def load_fitted() -> Mapping[str, Mapping[str, float]]:
    """Return ``probability.toml``: weights of what speaks for a finding, bounds of its words."""
    return read_rows("perfml.explain.advice", "probability.toml")


@cache
def load_model() -> Mapping[str, Any]:
    """Return the coefficients, and what was measured of them."""
    path = resources.files("perfml.explain.tree").joinpath("confidence.json")
    model: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return model
