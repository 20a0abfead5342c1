"""When the first cause is not certain though every counter is there, and what would settle it.

Each rule is a statement about the hardware that a right answer seldom violates and a wrong one
often does. How often, over the first answers to four authors' kernels, stands in
``docs/explanation/truth.md`` (``studies/truth/firm.py``). An answer is firm where no rule speaks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from perfml.explain.counters.evidence import Reason, Told, Untold
from perfml.explain.counters.experiments import check_of
from perfml.explain.counters.library_kernels import OF_RUNS
from perfml.explain.counters.resources import RESOURCES
from perfml.explain.counters.room import room_of, same_limit
from perfml.explain.counters.terms import ONE_SIDED, STALL_TERMS, TERMS, Contribution, Kind, Term
from perfml.explain.launches import Launch
from perfml.kernel_names import kernel_purpose
from perfml.util.words import Readable


@dataclass(frozen=True)
class Limits:
    """From where on the rules speak.

    Attributes
    ----------
    small
        Logarithm of a ratio: a smaller difference is no larger than the terms that cancel in it.
    room
        A cause may seem to take a little more of the time than its unit was busy or waited for,
        since counters come from several passes; beyond this part it cannot be the cause alone.
    rival
        A second cause, of another limit, may be the first from this part of it on.
    others
        Other kernels matter from this part of all differences on.
    """

    small: float = math.log(1.05)
    room: float = 0.7
    rival: float = 1 / 3
    others: float = 0.2


LIMITS = Limits()

PLACES = {
    "achieved_of_theoretical": ("block_imbalance", "sm_imbalance"),
    "issue_rate": ("stall_exec_dependency", "stall_memory_dependency"),
    "shared_memory_busy_time": ("wavefronts_per_shared_load", "shared_loads"),
}
"""Terms that say where the time goes, not why, and what is behind them mostly."""


_INSTEAD = {
    "kernels_appeared": "kernels_vanished",
    "kernels_vanished": "kernels_appeared",
}
"""Kernels that one side lacks, and what it has instead of them."""


@dataclass(frozen=True)
class Claim:
    """The first cause of an explanation, and what else the explanation holds.

    Attributes
    ----------
    along
        All terms that speak for the difference, as parts of it, the largest first; that is the
        cause that is claimed.
    size
        Logarithm of the layer's ratio, without its sign.
    slower
        The launch on the slower side that the first cause is most of.
    taken
        Part of its time that the cause would have to take.
    others
        Part of all differences that lies in other kernels.
    guessed
        Whether its kernel answers to one of another name in a layer of several.
    replaced
        Where the first cause is kernels that the other side lacks: what kernels of its own that
        side has instead, as part of its time; 0 where these are fewer.
    lone
        The longest of these kernels.
    """

    along: Sequence[tuple[Term, float]]
    size: float
    slower: Launch | None = None
    taken: float = 0.0
    others: float = 0.0
    guessed: bool = False
    replaced: float = 0.0
    lone: Launch | None = None

    @property
    def first(self) -> Term:
        """The cause that is claimed."""
        return self.along[0][0]

    @property
    def second(self) -> tuple[Term, float] | None:
        """The next term; None where there is none but a rest."""
        return next((each for each in self.along[1:] if not each[0].residual), None)

    @property
    def rival(self) -> tuple[Term, float] | None:
        """The next term of another limit; None where there is none."""
        others = (each for each in self.along[1:] if not each[0].residual)
        return next((each for each in others if not same_limit(self.first, each[0])), None)


def find_doubt(
    pairs: Sequence[Told],
    others: Sequence[Contribution],
    log_ratio: float,
    *,
    several: bool,
    launches: Sequence[Launch] = (),
) -> Untold | None:
    """Return what the first cause may be instead; None where it is firm or none is claimed.

    Parameters
    ----------
    pairs
        The launches of a layer that answer to each other, with their terms.
    others
        Terms of launches that one side lacks.
    log_ratio
        Of the layer.
    several
        Whether either side has several launches.
    launches
        These launches, in the order of `others`.
    """
    claim = claim_of(pairs, others, log_ratio, several=several, launches=launches)
    if claim is None:
        return None
    return doubt_of(claim)


def doubt_of(claim: Claim, limits: Limits = LIMITS) -> Untold | None:
    """Return what the first cause of a claim may be instead; None where no rule speaks."""
    for reason, rule in _RULES.items():
        found = rule(claim, limits)
        if found is not None:
            return _doubt(claim, reason, *found)
    return None


def claim_of(
    pairs: Sequence[Told],
    others: Sequence[Contribution],
    log_ratio: float,
    *,
    several: bool,
    launches: Sequence[Launch] = (),
) -> Claim | None:
    """Return what an explanation claims; None where it names no cause. See `find_doubt`."""
    sums: dict[str, float] = {}
    for one in (*(one for pair in pairs for one in pair.contributions), *others):
        if log_ratio != 0:
            sums[one.term.id] = sums.get(one.term.id, 0.0) + one.log_ratio / log_ratio
    order = sorted((name for name in sums if sums[name] > 0), key=lambda name: -sums[name])
    along = [(TERMS[name], sums[name]) for name in order]
    if not along or along[0][0].residual:
        return None
    first, size = along[0][0], abs(log_ratio)
    held = [sum(one.log_ratio for one in pair.contributions if one.term == first) for pair in pairs]
    if first.id in _INSTEAD and launches:
        return _of_one_side(Claim(along, size), pairs, others, launches)
    if first.kind is Kind.LAUNCH or not pairs:
        return Claim(along, size)
    place = max(range(len(pairs)), key=lambda at: held[at] / log_ratio)
    main, parts = pairs[place], [_sum(pair.contributions) for pair in pairs]
    # a loop launches one kernel again and again
    alike = sum(
        parts[at]
        for at, pair in enumerate(pairs)
        if (pair.before.kernel, pair.after.kernel) == (main.before.kernel, main.after.kernel)
    )
    everything = sum(map(abs, parts)) + sum(abs(one.log_ratio) for one in others)
    sides = sorted((main.before, main.after), key=lambda side: side.time_us)
    share = held[place] / parts[place] if parts[place] != 0 else 0.0
    return Claim(
        along,
        size,
        slower=sides[1],
        taken=1 - (sides[0].time_us / sides[1].time_us) ** min(max(share, 0.0), 1.0),
        others=1 - abs(alike) / everything if everything > 0 else 0.0,
        guessed=several
        and kernel_purpose(main.before.kernel) != kernel_purpose(main.after.kernel)
        and not (main.by_work and first.id in OF_RUNS),
    )


def _of_one_side(
    claim: Claim,
    pairs: Sequence[Told],
    others: Sequence[Contribution],
    launches: Sequence[Launch],
) -> Claim:
    """Return a claim of kernels that one side lacks, with what that side has instead of them."""
    of_term: dict[str, list[Launch]] = {}
    for one, launch in zip(others, launches, strict=True):
        of_term.setdefault(one.term.id, []).append(launch)
    lone, instead = of_term[claim.first.id], of_term.get(_INSTEAD[claim.first.id], [])
    longest = max(lone, key=lambda launch: launch.time_us)
    if len(instead) < len(lone):
        return replace(claim, lone=longest)
    sides = ([pair.before for pair in pairs], [pair.after for pair in pairs])
    both = min(sum(launch.time_us for launch in side) for side in sides)
    taken = sum(launch.time_us for launch in instead)
    return replace(claim, replaced=taken / (taken + both), lone=longest)


def _sum(contributions: Sequence[Contribution]) -> float:
    return sum(one.log_ratio for one in contributions)


_Found = tuple[tuple[Term, ...], str] | None
"""What it may be instead, and why."""


def _small(claim: Claim, limits: Limits) -> _Found:
    """Terms of a small difference are no larger than what cancels in it."""
    if claim.size >= limits.small or claim.second is None:
        return None
    return (claim.second[0],), f"the difference is small ({Readable(math.expm1(claim.size)):.1%})"


def _only_a_place(claim: Claim, limits: Limits) -> _Found:
    """A place names no reason, and neither do kernels that run in place of as many others.

    Kernels that one side runs in addition (copies, conversions) are the reason, and so are several
    in place of one: what was fused is not.
    """
    if claim.lone is not None and claim.replaced >= limits.others:
        why = (
            f"they run in place of kernels that take {Readable(claim.replaced):.0%} of the faster "
            "side's time: that says where the time goes, not why"
        )
        return (_busiest(claim.lone),), why
    if claim.first.id not in PLACES:
        return None
    causes = tuple(TERMS[name] for name in PLACES[claim.first.id])
    return causes, "that says where the time goes, not why"


def _busiest(launch: Launch) -> Term:
    """Return the work of the unit that a launch keeps busiest."""
    levels = [(unit.level_of(launch), unit.work) for unit in RESOURCES]
    known = [each for each in levels if each[0] > 0]
    return max(known, key=lambda each: each[0], default=(0.0, TERMS["instructions"]))[1]


def _no_room(claim: Claim, limits: Limits) -> _Found:
    """A cause takes no more of the time than its unit is busy or waited for."""
    if claim.slower is None:
        return None
    room = room_of(claim.first, claim.slower)
    if room >= limits.room * claim.taken:
        return None
    why = (
        f"it would have to take {Readable(claim.taken):.0%} of the slower side's time, and the "
        f"counters leave it {Readable(room):.0%}"
    )
    return (_likeliest(claim),), why


def _likeliest(claim: Claim) -> Term:
    """Return what warps of the slower side wait for most, or else the second cause."""
    launch = claim.slower
    waits = [(launch[term.id], term) for term in STALL_TERMS] if launch is not None else []
    known = [
        each for each in waits if not math.isnan(each[0]) and each[1].id != "stall_not_selected"
    ]
    second = TERMS["throughput"] if claim.second is None else claim.second[0]
    most = max(known, key=lambda each: each[0], default=(0.0, second))
    return most[1] if most[1] != claim.first else second


def _other_kernels(claim: Claim, limits: Limits) -> _Found:
    """Which kernel answers to which is a guess where their names differ and there are several."""
    if not claim.guessed or claim.others < limits.others:
        return None
    launches = [term for term, _ in claim.along if term.id in ONE_SIDED]
    others = launches[0] if launches else TERMS["kernels_appeared"]
    why = (
        "the sides run several other kernels, and which of them answers to which is told by their "
        "place alone"
    )
    return (others,), why


def _close(claim: Claim, limits: Limits) -> _Found:
    """A cause of another limit that is nearly as large may be the first."""
    rival, first = claim.rival, claim.along[0][1]
    if rival is None or rival[1] < limits.rival * first:
        return None
    return (rival[0],), f"it is {Readable(rival[1] / first):.0%} as large, and of another limit"


_RULES = {
    Reason.SMALL: _small,
    Reason.PLACE: _only_a_place,
    Reason.ROOM: _no_room,
    Reason.PAIRING: _other_kernels,
    Reason.RIVAL: _close,
}
"""In this order: the first that speaks is told."""


def _doubt(claim: Claim, reason: Reason, causes: tuple[Term, ...], why: str) -> Untold:
    check = check_of(causes[0], "" if claim.slower is None else claim.slower.kernel)
    return Untold(
        causes,
        claim.first,
        (),
        (check.section,) if check.section else (),
        "",
        claim.along[0][1],
        why,
        reason,
        check.text,
    )
