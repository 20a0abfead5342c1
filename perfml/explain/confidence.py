"""How sure an answer is: one list of words, for a cause, for its cure, and for advice.

How often answers of each word were right stands in ``docs/explanation/truth.md``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any, Literal

Confidence = Literal["proven", "high", "medium", "low", "refuted"]
"""``high``: no counter speaks against it. ``medium``: another answer may come first, and
this one is worth doing all the same. ``low``: counters do not tell; doing it finds out.
``proven`` and ``refuted``: experiments on the launch say so (`perfml.explain.experiments`)."""

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


def together(one: Confidence, other: Confidence) -> Confidence:
    """Return how sure an answer is that two ways of looking give.

    Examples
    --------
    >>> together("high", "high"), together("high", "low"), together("medium", "low")
    ('high', 'medium', 'low')
    """
    if one == other:
        return one
    return "medium" if "high" in (one, other) else "low"


@cache
def load_model() -> Mapping[str, Any]:
    """Return the coefficients, and what was measured of them."""
    path = resources.files("perfml.explain.tree").joinpath("confidence.json")
    model: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return model
