"""How sure a finding of advice is, which sees one launch and nothing beside it.

A finding of work is counted; one of a wait or of too few warps is inferred
(`perfml.explain.advice.rules.Rule.inferred`): a load's wait is that of whatever makes loads slow.
One of idle machinery is potential: no counter tells how far a grid can be split.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from perfml.explain.advice.inputs import NOT_COLLECTED, InputValues, why_missing
from perfml.explain.advice.rules import Rule, shipped_rules
from perfml.explain.certainty import NAMED, Certainty, together
from perfml.explain.tree.ambiguity import resolved_by
from perfml.explain.tree.causes import TERMS, Term
from perfml.explain.tree.limits import limits_of

_MATTERS = 0.1
"""A likely gain of the layer's time below which most of it is none that a rule names."""


@dataclass(frozen=True)
class Limits:
    """From where on a counted finding is firm.

    Attributes
    ----------
    level
        How busy the unit is that it blames, of what it sustains.
    large
        The gain of a finding that is at that limit, of the layer's time.
    most
        The gain of one that is not: no other hazard can gain as much as one that gains more than
        half.
    """

    level: float = 0.9
    large: float = 0.3
    most: float = 0.5


LIMITS = Limits()
"""Of the firm first findings of ten exams 85 of 87 were right; of those that limits chosen on the
other exams make firm, 100 of 109 (``git show 498a952:studies/truth/advice_words.py``)."""

_LATE = "stall_memory_dependency"
"""The wait for loads, which does not tell what makes them slow."""

_NO_RULE = "section SourceCounters shows at which instructions warps wait"


def with_certainty(
    findings: pd.DataFrame, book: Mapping[str, Rule], inputs: InputValues
) -> pd.DataFrame:
    """Return findings with the columns ``certainty`` and ``tells``.

    Parameters
    ----------
    findings
        Of all layers; the first rule of each decides.
    book
        The rules by id.
    inputs
        Of the launches, for what was not collected.
    """
    lacking = {name: _not_collected(rule, book, inputs) for name, rule in book.items()}
    certain, tells = [], []
    for row in findings.to_dict("records"):
        rule = book[row["rules"][0]]
        sure = certainty_of(rule, float(row["gain"]), float(row["level"]))
        certain.append(sure)
        tells.append(_tells(rule, str(row["kernel"]), lacking[rule.id]) if sure == "open" else "")
    return findings.assign(
        certainty=pd.Series(certain, index=findings.index, dtype=object),
        tells=pd.Series(tells, index=findings.index, dtype=object),
    )


def certainty_of(
    rule: Rule, gain: float, level: float = math.nan, limits: Limits = LIMITS
) -> Certainty:
    """Return how sure a finding is.

    Parameters
    ----------
    rule
        Whose.
    gain
        Likely, of the layer's time.
    level
        How busy the unit is that the rule blames, of what it sustains; NaN where it blames none.
    limits
        Others, to try them.
    """
    if not rule.counted:
        return "likely" if gain > limits.most and rule.term != _LATE else "open"
    proved = rule.exact or level >= limits.level
    if (rule.exact or rule.limit) and (gain > limits.most or (proved and gain >= limits.large)):
        return "firm"
    return "likely" if gain >= _MATTERS else "open"


def _tells(rule: Rule, kernel: str, lacking: Sequence[str]) -> str:
    """Return what would tell: counters of what makes warps wait, a table, or a run."""
    if lacking:
        names = ", ".join(lacking[:NAMED])
        more = len(lacking) - NAMED
        names += f" and {more} more" if more > 0 else ""
        return f"collect {names} (perfml collect --metrics default)"
    if rule.term is None or rule.counted:
        return _NO_RULE
    return resolved_by(TERMS[rule.term], kernel)


def _not_collected(rule: Rule, book: Mapping[str, Rule], inputs: InputValues) -> tuple[str, ...]:
    """Return the counters of what the rule's hazard may be a symptom of, if nobody has them."""
    absent = {name: inputs.missing(book[name].compared) for name in rule.symptom_of if name in book}
    names = dict.fromkeys(each for found in absent.values() for each in found)
    return tuple(each for each in names if why_missing(inputs.frame, [each]) == NOT_COLLECTED)


def with_cause(
    findings: pd.DataFrame,
    side: str,
    cause: Certainty,
    first: Term | None = None,
    book: Mapping[str, Rule] | None = None,
) -> pd.DataFrame:
    """Return findings of two sides; those of the slower one follow its first cause.

    What is about the limit of that cause stands first, and no other finding is firm: what changed
    between the sides decides what to do about the slower one.

    Parameters
    ----------
    findings
        With ``side``, ``rules`` and ``certainty``.
    side
        The slower one.
    cause
        How sure its first cause is.
    first
        That cause; None where it is a rest.
    book
        The rules by id; the shipped ones by default.
    """
    if findings.empty:
        return findings
    rules = {rule.id: rule for rule in shipped_rules()} if book is None else book
    own = findings["side"] == side
    about = [
        slower and first is not None and _is_about(rules.get(names[0]), first)
        for slower, names in zip(own, findings["rules"], strict=True)
    ]
    most: list[Certainty] = [cause if same or first is None else _less(cause) for same in about]
    certain = [
        together(sure, limit) if slower else sure
        for slower, sure, limit in zip(own, findings["certainty"], most, strict=True)
    ]
    found = findings.assign(certainty=pd.Series(certain, index=findings.index, dtype=object))
    order = sorted(range(len(found)), key=lambda at: (not own.iloc[at], not about[at]))
    return found.iloc[order].reset_index(drop=True) if any(about) else found


def _less(cause: Certainty) -> Certainty:
    return "likely" if cause == "firm" else cause


def _is_about(rule: Rule | None, first: Term) -> bool:
    """Return whether a rule is about the limit of a cause."""
    if rule is None or rule.term is None:
        return False
    return rule.term == first.id or bool(limits_of(rule.term) & limits_of(first.id))
