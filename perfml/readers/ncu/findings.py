"""Advice of Nsight Compute's own rules, as it comes with a profile."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

import pandas as pd

KEPT = 100
"""Results that travel in a table's provenance; `rules` of the readers gives all of them."""

_LONGEST = 600
_ASKING = frozenset({"optimization", "warning", "error"})


@dataclass(frozen=True)
class Rule:
    """One result of one rule for one launch.

    Attributes
    ----------
    launch
        Place of the launch in the file, from 0.
    kernel
        Its kernel.
    rule, section
        ncu's identifiers.
    kind
        ``optimization``, ``warning``, ``ok``, ``error`` or ``none``.
    message
        What the rule says.
    speedup
        Estimated speedup in per cent; None without an estimate.
    scope
        ``global`` if the estimate is of the whole kernel, ``local`` if of a part of it.
    """

    launch: int
    kernel: str
    rule: str
    section: str
    kind: str
    message: str
    speedup: float | None
    scope: str | None


COLUMNS = tuple(Rule.__dataclass_fields__)


def rules_frame(rules: Iterable[Rule]) -> pd.DataFrame:
    """Return rule results as a table, one row a result, in launch order."""
    return pd.DataFrame([asdict(rule) for rule in rules], columns=list(COLUMNS))


def most_promising(rules: Iterable[Rule]) -> list[dict[str, Any]]:
    """Return what the rules ask for, largest estimated speedup first, `KEPT` results at most.

    Of the same advice for several launches of a kernel, the one that promises most is kept.
    """
    best: dict[tuple[str, str, str], Rule] = {}
    for rule in rules:
        if rule.speedup is None and rule.kind not in _ASKING:
            continue
        key = (rule.kernel, rule.section, rule.rule)
        if key not in best or (rule.speedup or 0.0) > (best[key].speedup or 0.0):
            best[key] = rule
    ordered = sorted(best.values(), key=lambda rule: (-(rule.speedup or 0.0), rule.launch))
    return [
        {**asdict(rule), "kernel": rule.kernel[:_LONGEST], "message": rule.message[:_LONGEST]}
        for rule in ordered[:KEPT]
    ]
