"""Metrics that a formula over other counters gives: said once for all files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from perfml.metrics import PUBLISHED, StudyNote

_NAMED = 4
"""Metrics that the sentence names before it only counts."""


def substitutes_note(sources: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the sentence, or nothing where all published metrics were collected.

    `sources` are the provenance of each file.
    """
    held = {name for source in sources for name in source.get("substituted", ())}
    names = [name for name in PUBLISHED if name in held]
    if not names:
        return []
    rest = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    listed = ", ".join(names[:_NAMED]) + rest
    was, it = ("was", "it is") if len(names) == 1 else ("were", "they are")
    note = (
        f"{len(names)} of the published study's {len(PUBLISHED)} metrics {was} not collected as "
        f"{it}. Formulas over other counters replace them: {listed} (-v lists the formulas)."
    )
    return [StudyNote(note)]


def formulas(sources: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return each published metric's formulas, a line each."""
    found = dict.fromkeys(
        (name, formula)
        for source in sources
        for name, formula in source.get("substituted", {}).items()
        if name in PUBLISHED
    )
    return [f"{name} is taken as {formula}" for name, formula in sorted(found)]
