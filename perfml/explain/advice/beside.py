"""The advice on both sides beside an explanation: it follows the first cause of the slower one."""

from __future__ import annotations

import pandas as pd

from perfml.explain.confidence import Confidence, together
from perfml.explain.tree.causes import TERMS, Kind, Term
from perfml.explain.tree.limits import limit_of, limits_of


def with_cause(
    findings: pd.DataFrame, side: str, cause: Confidence, first: Term | None = None
) -> pd.DataFrame:
    """Return findings of two sides; those of the slower one follow its first cause.

    What is about that cause, or the limit that it stands under, is first, and no other finding is
    of high confidence: what changed between the sides decides what to do about the slower one.

    Parameters
    ----------
    findings
        With ``side``, ``rules`` and ``confidence``.
    side
        The slower one.
    cause
        How sure its first cause is.
    first
        That cause; None where it is a rest.
    """
    if findings.empty:
        return findings
    own = findings["side"] == side
    about = [
        slower and first is not None and is_about(names, first)
        for slower, names in zip(own, findings["rules"], strict=True)
    ]
    less: Confidence = "medium" if cause == "high" and first is not None else cause
    certain = [
        together(sure, cause if same else less) if slower else sure
        for slower, same, sure in zip(own, about, findings["confidence"], strict=True)
    ]
    found = findings.assign(confidence=pd.Series(certain, index=findings.index, dtype=object))
    order = sorted(range(len(found)), key=lambda at: (not own.iloc[at], not about[at]))
    return found.iloc[order].reset_index(drop=True) if any(about) else found


def is_about(rules: tuple[str, ...], first: Term) -> bool:
    """Return whether a finding names a cause, or one that holds the time of the same limit.

    What a layer's launches can do without is about any cause of launches.
    """
    causes = [name for name in rules if name in TERMS]
    if first.kind is Kind.LAUNCH or not causes:
        return first.kind is Kind.LAUNCH and not causes
    return first.id in causes or bool(_limits(causes[0]) & _limits(first.id))


def _limits(cause: str) -> frozenset[str]:
    held = (limit_of(name).group for name in TERMS[cause].limits)
    return limits_of(cause) | frozenset(held)
