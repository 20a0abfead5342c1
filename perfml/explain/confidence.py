"""How sure an answer is: one list of words, for a cause, for its cure, and for advice.

How often answers of each word were right stands in ``docs/explanation/truth.md``.
"""

from __future__ import annotations

from typing import Literal

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
"""What people read; no word stands beside an answer of high confidence."""


def marked(text: str, confidence: Confidence, tells: str = "") -> str:
    """Return what to do, with how sure that is where that is not high, and what would tell.

    Examples
    --------
    >>> marked("Use wider loads.", "high")
    'Use wider loads.'
    >>> marked("Use wider loads.", "low", "run it with half the blocks")
    'Low confidence: Use wider loads. What tells: run it with half the blocks.'
    """
    told = f" What tells: {tells.rstrip('.')}." if tells and confidence == "low" else ""
    if confidence == "high":
        return text
    word = IN_WORDS[confidence]
    return f"{word[:1].upper()}{word[1:]}: {text}{told}"


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
