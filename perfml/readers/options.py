"""What a user may tell the readers, and how much the readers tell the user."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ReadOptions:
    """Options of every reader; a reader ignores what does not concern it.

    Attributes
    ----------
    raw
        Keep the profiler's own metric columns beside the canonical ones.
    windows
        In how many windows launches were recorded, with holes between them: of `perfml attach`.
    """

    raw: bool = False
    windows: int = 1


MOST = 40
"""Sentences of one kind that a reader passes on; the others are counted."""


def at_most(sentences: list[str]) -> list[str]:
    """Return sentences, and from the `MOST` + 1st on only how many more there are."""
    rest = len(sentences) - MOST
    return sentences if rest <= 0 else [*sentences[:MOST], f"{rest} more messages of this kind."]
