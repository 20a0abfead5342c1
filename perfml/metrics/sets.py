"""Sets of metrics: the published 19, what is collected by default, all that explanations read.

Here to change: a set, in ``sets.toml``.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from importlib import resources
from itertools import chain
from typing import Any


def _read() -> dict[str, tuple[str, ...]]:
    """Return the sets of ``sets.toml``, those that a set holds by name written out."""
    text = resources.files("perfml.metrics").joinpath("sets.toml").read_text(encoding="utf-8")
    sets: dict[str, tuple[str, ...]] = {}
    for title, names in tomllib.loads(text).items():  # a set stands below those that it holds
        parts = [sets[name[1:]] if name.startswith("@") else (name,) for name in names]
        sets[title] = tuple(dict.fromkeys(chain.from_iterable(parts)))
    return sets


GROUPS: dict[str, tuple[str, ...]] = _read()
"""Sets by the name that a user gives."""
EVERY = "all"
"""The set of every metric."""

SETS = ("default", "causes", "published", "stalls", "roofline", EVERY)
"""What a user may name instead of metrics, in the order in which help lists them."""

PUBLISHED, STALLS, DEFAULT = GROUPS["published"], GROUPS["stalls"], GROUPS["default"]

DURATION = "gpu__time_duration.sum"
"""Nsight Compute's name of a launch's duration (nanoseconds in base units)."""

INSTRUCTIONS = "inst_executed"

REPEATABLE: tuple[str, ...] = (
    INSTRUCTIONS,
    "gld_transactions",
    "gst_transactions",
    "shared_load_transactions",
)
"""Counts that are the same in every run of one program."""

CACHED: tuple[str, ...] = ("l2_read_transactions", "dram_read_bytes")
"""Counts that are nearly the same: what its caches let through."""

HOPPER: tuple[str, ...] = ("bulk_copy_bytes", "inst_executed_bulk_copies")
"""Counters that explanations read, too, but that GPUs before Hopper lack: a profiler refuses them
there, so they are in no set and have to be asked for by name."""

_NAMED = 4
"""Metrics that the sentence names before it only counts."""


class StudyNote(str):
    """A warning about the published study's metrics: of use where models learn from them."""

    __slots__ = ()

    @classmethod
    def without(cls, warnings: Iterable[str]) -> list[str]:
        """Return the other ones of some warnings."""
        return [text for text in warnings if not isinstance(text, cls)]


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
