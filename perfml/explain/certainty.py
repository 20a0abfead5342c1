"""How sure an answer is: one list of words, for a cause, for its cure, and for advice.

How often answers of each word were right stands in ``docs/explanation/truth.md``.
"""

from __future__ import annotations

from typing import Literal

Certainty = Literal["proven", "firm", "likely", "open", "refuted"]
"""``firm``: nothing that was counted speaks against it. ``likely``: another answer may come first,
and this one is worth doing all the same. ``open``: counters do not tell; doing it finds out.
``proven`` and ``refuted``: experiments on the launch say so (`perfml.explain.experiments`)."""

MOST = 0.5
"""What makes less than this part of the difference between two sides does not decide the answer:
a cause, ranges, the kernels of one side, work that grew (by logarithms of factors)."""

NAMED = 3
"""Causes, kernels or counters that one sentence names; of more, their number."""

TimeVerdict = Literal["slower", "faster", "no difference", "undecided"]
"""What is said of the target's time beside the baseline's."""

IN_WORDS: dict[Certainty, str] = {
    "proven": "proven by experiment",
    "firm": "firm",
    "likely": "likely",
    "open": "try this first to find out",
    "refuted": "refuted by experiment",
}
"""What people read; where an answer is firm, no word stands beside it."""


def marked(text: str, certainty: Certainty, tells: str = "") -> str:
    """Return what to do, with how sure that is where it is not firm.

    Parameters
    ----------
    text
        What to do: sentences.
    certainty
        Of it.
    tells
        What would tell whether it is right.

    Examples
    --------
    >>> marked("Use wider loads.", "firm")
    'Use wider loads.'
    >>> marked("Use wider loads.", "open", "run it with half the blocks")
    'Try this first to find out: Use wider loads. What tells: run it with half the blocks.'
    """
    told = f" What tells: {tells.rstrip('.')}." if tells and certainty == "open" else ""
    if certainty == "firm":
        return text
    word = IN_WORDS[certainty]
    return f"{word[:1].upper()}{word[1:]}: {text}{told}"


def together(one: Certainty, other: Certainty) -> Certainty:
    """Return how sure an answer is that two ways of looking give.

    Examples
    --------
    >>> together("firm", "firm"), together("firm", "open"), together("likely", "open")
    ('firm', 'likely', 'open')
    """
    if one == other:
        return one
    return "likely" if "firm" in (one, other) else "open"
