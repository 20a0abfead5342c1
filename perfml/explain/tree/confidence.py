"""How certain the first cause is: a probability that was measured, and what stands against it.

A few numbers say it (`FEATURES`), among them the part of the difference that the first cause holds,
how near to its ceiling its limit stands, and whether something else grew as well. A
logistic model of them, each with the sign that it must have, gives the probability that the first
cause is right. It is fitted on recorded pairs whose cause is known, one set held out at a time
(``python -m studies.truth.confidence``); ``confidence.json`` holds its coefficients, the precision
that was measured, and the command.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from perfml.explain.confidence import NAMED, load_model
from perfml.explain.launches import Launch, known
from perfml.explain.limits.state import LaunchState
from perfml.explain.tree.causes import TERMS, Contribution, Kind, Term, is_proven
from perfml.explain.tree.engine import Decomposed
from perfml.explain.tree.layer_causes import (
    Reason,
    Untold,
    missing_counters,
    resolved_by,
    sections_of,
    set_of,
)
from perfml.explain.tree.limits import load_limits
from perfml.explain.tree.pair import Pair, why_denied
from perfml.explain.tree.thresholds import MAJORITY, SMALL

FEATURES = ("share", "margin", "nearness", "complete", "paired", "specific", "size", "new", "alone")
"""What the model sees; each can only raise the probability."""

_LARGE = math.log(1.5)
"""A difference from which on its size says no more: small ones have many causes."""

_TWICE = math.log(2.0)
"""A cause that grew so much beside the first one is surely another change."""

_CHANGES = tuple(
    map(
        str.split,
        (
            "sectors_per_request narrow_access global_requests redundant_traffic",
            "wave_quantization sm_imbalance",
            "wavefronts_per_shared_load bank_conflicts",
            "theoretical_occupancy block_slots",
            "integer_arithmetic integer_division special_function_pipe_time",
            *("fp32_operations", "fp64_pipe_time", "active_threads_per_warp", "lsu_pipe_time"),
            *("local_memory", "global_atomics", "shared_atomics", "constant_serialization"),
        ),
    )
)
"""Causes that somebody changes in a program, by what is changed: none is only a level of memory
that other causes fill, or a wait."""


@dataclass(frozen=True)
class Answered:
    """A pair of launches, and what it was taken apart into."""

    before: Launch
    after: Launch
    found: Decomposed  # its parts by cause and limit
    contributions: tuple[Contribution, ...]  # the same as parts of the layer's log ratio
    by_work: bool = False  # other kernels of a library, compared by what all in their place did


@dataclass(frozen=True)
class Evidence:
    """What speaks for the first cause of a layer."""

    first: Term
    second: Term | None  # the next cause under another limit; None where there is none
    # from 0 to 1:
    share: float  # its part of the difference
    margin: float  # by how much it is ahead
    nearness: float  # how near its ceiling its limit stands
    complete: float  # whether all counters of other causes of that limit are there
    paired: float  # whether the launches surely answer to each other
    specific: float  # whether it says why, not only where
    new: float = 1.0  # which part of its level the faster side does not have
    alone: float = 1.0  # how little else grew that somebody may have changed
    size: float = 1.0  # the difference: its logarithm over that of `_LARGE`
    missing: tuple[Term, ...] = ()  # causes of its limit whose counters were not collected

    @property
    def features(self) -> tuple[float, ...]:
        """The features in the order of `FEATURES`."""
        return tuple(getattr(self, name) for name in FEATURES)


def evidence_of(
    answered: Sequence[Answered], others: Sequence[Contribution], ratio: float
) -> Evidence | None:
    """Return what speaks for the first cause of a layer; None where there is none.

    `others` are launches that one side lacks; `ratio` is the logarithm of the layer's ratio of
    times.
    """
    sums: dict[str, float] = {}
    for one in (*(one for pair in answered for one in pair.contributions), *others):
        sums[one.term.id] = sums.get(one.term.id, 0.0) + (one.log_ratio / ratio if ratio else 0.0)
    along = sorted((name for name in sums if sums[name] > 0), key=lambda name: -sums[name])
    if not along:
        return None
    first = TERMS[along[0]]
    main = _main(answered, first, ratio)
    limits = {} if main is None else (main.found.by_limit or {}).get(first.id, {})
    groups = _groups(limits)
    rivals = (name for name in along[1:] if not TERMS[name].residual)
    second = next(
        (
            name
            for name in rivals
            if main is None or not groups & _groups((main.found.by_limit or {}).get(name, {}))
        ),
        None,
    )
    nearness = 1.0
    if main is not None:
        near = {held.limit.id: held.nearness for held in main.found.held}
        nearness = max((near[name] for name, part in limits.items() if part > 0), default=0.0)
        slow = LaunchState.of(max((main.before, main.after), key=lambda one: one.time_us))
        if _is_fact(first, slow):
            nearness = max(nearness, 1 - slow["wave_fill"])
    missing = () if main is None else tuple(_missing(first, limits, main))
    pair = None if main is None else Pair(main.before, main.after, single=True)
    return Evidence(
        first=first,
        second=None if second is None else TERMS[second],
        share=min(sums[first.id], 1.0),
        margin=min(max(sums[first.id] - (0.0 if second is None else sums[second]), 0.0), 1.0),
        nearness=nearness,
        complete=float(not missing),
        paired=float(_is_paired(main, answered, others, ratio)),
        specific=float(not first.place),
        size=min(1.0, abs(ratio) / _LARGE),
        new=1.0 if pair is None else _new(first, pair),
        alone=1.0 if pair is None else _alone(first, pair),
        missing=missing,
    )


def _alone(first: Term, pair: Pair) -> float:
    """Return how surely nothing else grew: 0 where another thing that is changed grew twofold.

    Of several things it is the part of them that were counted.
    """
    sides = pair.before.launch, pair.after.launch
    others = [names for names in _CHANGES if first.id not in names]
    counted = [[name for name in names if is_proven(TERMS[name], *sides)] for names in others]
    grown = (
        known(pair.worse(name), 1.0)
        for names in counted
        for name in names
        if not why_denied(pair, name)
    )
    least = 1 - min(1.0, math.log(max((1.0, *grown))) / _TWICE)
    return least * sum(map(bool, counted)) / len(others)


def _new(first: Term, pair: Pair) -> float:
    """Return which part of a cause's level the faster side does not have; 1 if not known.

    What both sides have may cost more because of something else that changed.
    """
    worse = pair.worse(first.id)
    return 1 - 1 / max(1.0, worse) if worse > 0 else 1.0


def _is_paired(
    main: Answered | None,
    answered: Sequence[Answered],
    others: Sequence[Contribution],
    ratio: float,
) -> bool:
    """Return whether the launches that the first cause is of surely answer to each other."""
    # Launches that one side lacks are no cause by themselves where the other side has some instead.
    if main is None:
        return all(one.log_ratio * ratio > 0 for one in others)
    alone = len(answered) + len(others) == 1
    return alone or main.by_work or main.before.kernel == main.after.kernel


def _main(answered: Sequence[Answered], first: Term, ratio: float) -> Answered | None:
    """Return the pair that the first cause is most of; None where it is of launches of one side."""
    if first.kind is Kind.LAUNCH or not answered:
        return None
    return max(
        answered,
        key=lambda pair: sum(
            one.log_ratio / ratio for one in pair.contributions if one.term == first
        ),
    )


def _groups(limits: Mapping[str, float]) -> set[str]:
    units, waits, _ = load_limits()
    groups = {limit.id: limit.group for limit in (*units, *waits)}
    return {groups[name] for name, part in limits.items() if part > 0}


def _missing(first: Term, limits: Mapping[str, float], pair: Answered) -> Iterator[Term]:
    """Yield causes that may hold the first one's time, and whose counters were not collected."""
    # Also where the launch itself says its cause: of a small grid, something else may have changed.
    slow = LaunchState.of(max((pair.before, pair.after), key=lambda launch: launch.time_us))
    places = {name for name, part in limits.items() if part > 0}
    for term in TERMS.values():
        if term == first or is_proven(term, pair.before, pair.after):
            continue
        if any(slow[name] == 0 for name in term.none_where) or not term.possible(slow.launch):
            continue
        of_rest = first.residual and (bool(term.limits) or term.kind is Kind.STALL)
        if of_rest or places & set(term.limits):
            yield term


def _is_fact(first: Term, slow: LaunchState) -> bool:
    """Return whether the launch itself says a cause: its grid has no block for many places."""
    return first.kind is Kind.WAVES and slow["waves_per_sm"] < MAJORITY


def probability(evidence: Evidence) -> float:
    """Return the probability that the first cause is right."""
    if evidence.first.residual:
        return 0.0
    model = load_model()
    value = model["intercept"] + sum(
        weight * feature
        for weight, feature in zip(model["weights"], evidence.features, strict=True)
    )
    sure = 1 / (1 + math.exp(-value))
    # a place is no reason, however sure it is that the time goes there
    return min(sure, model["high"] - 0.01) if evidence.first.place else sure


def find_ambiguity(
    answered: Sequence[Answered], others: Sequence[Contribution], ratio: float
) -> tuple[Untold | None, float]:
    """Return what stands against the first cause, and the probability that it is right."""
    # None stands against it where the probability is that of an answer of high confidence
    # (``confidence.json``: precision of held-out sets 95 %).
    evidence = evidence_of(answered, others, ratio)
    if evidence is None:
        return None, 0.0
    if abs(ratio) < SMALL:
        return _small(evidence, ratio), 0.0
    sure = probability(evidence)
    if sure >= load_model()["high"]:
        return None, sure
    if evidence.missing:
        return _missing_counters(evidence, answered), sure
    slow = [max((pair.before, pair.after), key=lambda one: one.time_us) for pair in answered]
    return _doubt(evidence, resolved_by(evidence.first, slow[0].kernel if slow else "")), sure


def _small(evidence: Evidence, ratio: float) -> Untold:
    apart = {"apart": math.expm1(abs(ratio))}
    share = evidence.share
    return Untold((), evidence.first, share=share, reason="small", numbers=apart)


def _missing_counters(evidence: Evidence, answered: Sequence[Answered]) -> Untold:
    launches = [side for pair in answered for side in (pair.before, pair.after)]
    names = missing_counters(evidence.missing[:NAMED], *launches)
    sections = tuple(dict.fromkeys(sections_of(names)))
    return Untold(evidence.missing, evidence.first, names, sections, set_of(names), evidence.share)


def _doubt(evidence: Evidence, check: str) -> Untold:
    """Return why a cause whose counters are all there is not certain."""
    first, share = evidence.first, evidence.share
    others: tuple[Term, ...] = ()
    reason: Reason = "limit"
    second = share - evidence.margin
    if first.residual:
        reason = "rest"
    elif evidence.second is not None and evidence.margin < MAJORITY * share:
        others, reason = (evidence.second,), "rival"
    elif not evidence.paired:
        reason, check = "pairing", ""
    numbers = {"share": share, "second": second, "nearness": evidence.nearness}
    return Untold(others, first, share=share, reason=reason, numbers=numbers, check=check)
