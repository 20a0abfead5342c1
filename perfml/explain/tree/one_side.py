"""The tree on one side: what a launch loses beside its ideal, by the engine of two sides."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from perfml.explain.launches import Launch, known
from perfml.explain.limits.state import LaunchState
from perfml.explain.tree.causes import TERMS, Kind
from perfml.explain.tree.engine import Decomposed, decompose_pair
from perfml.explain.tree.ideal import bounded_needs, ideal_launch, unknown_needs
from perfml.explain.tree.limits import limit_of, unit_ids
from perfml.explain.tree.thresholds import OVERLAP

SPLIT = "wave_quantization"
"""The cause of a grid below one wave."""
_IDLE = 0.01
"""The least part of the time in which a multiprocessor has a block."""
_FEW = 0.5
"""Waves up to which a grid may be split further."""


@dataclass(frozen=True)
class Loss:
    """What a cause takes of a launch's time.

    Attributes
    ----------
    cause
        Its id.
    part
        Of the launch's time, that it likely takes; those of all causes add up.
    limit
        Id of the limit that it stands under; empty for one of the whole launch.
    level
        How near that limit stands to its ceiling.
    known
        Whether the counters tell what is needed: they do not of work that may all be needed, of
        waits that no idle unit explains, and of a grid that might be split.
    """

    cause: str
    part: float
    limit: str
    level: float
    known: bool


def losses(launch: Launch, *, single: bool = True) -> tuple[Loss, ...]:
    """Return what a launch loses, the most first.

    Parameters
    ----------
    launch
        The launch, or a merged layer as if it were one.
    single
        Whether it is one launch; a mean over kernels has no waves.
    """
    found = _beside(launch, ideal_launch(launch), single=single)
    if single and 0 < launch["waves_per_sm"] <= _FEW:
        whole = _beside(launch, ideal_launch(launch, more_blocks=True), single=True)
        found = [one for one in found if one.cause != SPLIT]
        found += [one for one in whole if one.cause == SPLIT]
    return tuple(sorted(found, key=lambda one: -one.part))


def _beside(launch: Launch, ideal: Launch, *, single: bool) -> list[Loss]:
    decomposed = decompose_pair(ideal, launch, single=single)
    ratio = sum(each.log_ratio for each in decomposed.contributions)
    saved = 1 - ideal.time_us / launch.time_us
    found, state = [], LaunchState(launch)
    for each in decomposed.contributions:
        part = saved * each.log_ratio / ratio
        if each.term.id in unknown_needs():
            limits = (decomposed.by_limit or {}).get(each.term.id, {})
            part = min(part, _most(state, unknown_needs()[each.term.id], limits))
        if part > 0 and not each.term.residual:
            found.append(_loss(launch, each.term.id, part, decomposed))
    return found


def _most(state: LaunchState, left: float, limits: Collection[str]) -> float:
    """Return what of a launch's time goes at most where a part of the work of some limits stays.

    The launch takes the power sum of the times of its units (`account.exposed`); what warps wait
    for is a part of its time. Units of a multiprocessor work, and warps wait, while that has a
    block.
    """
    gone = 0.0
    for limit in map(limit_of, limits):
        span = 1.0 if limit.device else max(state["active"], _IDLE)
        level = min(1.0, known(state.value(limit.time) / limit.ceiling) / span)
        if limit.id in unit_ids():
            gone += span * (1 - (1 - level**OVERLAP * (1 - left**OVERLAP)) ** (1 / OVERLAP))
        else:
            gone += span * level * (1 - left)
    return min(gone, 1 - left)


def _loss(launch: Launch, cause: str, part: float, decomposed: Decomposed) -> Loss:
    held = {one.limit.id: one.nearness for one in decomposed.held}
    parts = (decomposed.by_limit or {}).get(cause, {})
    limit = max(parts, key=lambda name: parts[name], default="")
    whole = cause != SPLIT or launch["waves_per_sm"] > 1
    guessed = cause in unknown_needs() or cause in bounded_needs()
    needed = whole and not guessed and TERMS[cause].kind is not Kind.STALL
    return Loss(cause, part, limit, held.get(limit, 0.0), needed)
