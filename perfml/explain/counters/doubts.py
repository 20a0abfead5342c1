"""When the first cause is not certain though every counter is there, and what would settle it.

Each rule is a statement about the hardware that a right answer seldom violates and a wrong one
often does. How often, over the first answers to four authors' kernels, stands in
``docs/explanation/truth.md`` (``studies/truth/firm.py``). An answer is firm where no rule speaks.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from perfml.explain.advice.persons import Person, person_of
from perfml.explain.counters.claims import Claim, claim_of
from perfml.explain.counters.evidence import Reason, Told, Untold
from perfml.explain.counters.experiments import PROGRAMS, check_of
from perfml.explain.counters.kinds import company_of
from perfml.explain.counters.resources import AS_BUSY, MOST, RESOURCES
from perfml.explain.counters.room import busiest_of, room_of
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
    "mio_throttle": ("shared_loads", "special_function_pipe_time"),
}
"""Terms that say where the time goes, not why, and what is behind them mostly."""


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


def doubt_of(
    claim: Claim, limits: Limits = LIMITS, rules: Collection[Reason] | None = None
) -> Untold | None:
    """Return what the first cause of a claim may be instead; None where no rule speaks.

    Of the rules, those that are asked for; all by default.
    """
    for reason, rule in RULES.items():
        if rules is not None and reason not in rules:
            continue
        found = rule(claim, limits)
        if found is not None:
            return _doubt(claim, reason, *found)
    return None


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
    in place of one: what was fused is not. Then the slower side launches more.
    """
    if claim.lone is not None and claim.replaced >= limits.others:
        why = (
            f"they run in place of kernels that take {Readable(claim.replaced):.0%} of the faster "
            "side's time: that says where the time goes, not why"
        )
        return (_busiest(claim.lone),), why
    if claim.lone is not None and claim.more <= 0:
        why = (
            "the slower side launches no more kernels than the faster one, so they run in place of "
            "others: that says where the time goes, not why"
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


_OF_A_PROGRAM = (Kind.OCCUPANCY, Kind.STALL)
"""How many warps of a kernel fit, and what they wait for, is how it is built."""


def _other_program(claim: Claim, limits: Limits) -> _Found:
    """How a library's kernel is built is no cause where it runs in place of another.

    Two versions of somebody's kernel differ in what was changed. A library's kernel in place of
    another differs in everything.
    """
    slower, faster = claim.slower, claim.faster
    if slower is None or faster is None or claim.first.kind not in _OF_A_PROGRAM:
        return None
    persons = {person_of(each.kernel) for each in (slower, faster)}
    if persons == {Person.AUTHOR} or _alike(slower, faster):
        return None
    why = (
        "the sides run different kernels of a library, and this is how a kernel is built: it "
        "describes the slower one and need not be what it pays for"
    )
    return (_busiest(slower),), why


def _alike(one: Launch, other: Launch) -> bool:
    return kernel_purpose(one.kernel) == kernel_purpose(other.kernel)


_AMOUNTS = (
    "global_requests",
    "redundant_traffic",
    "l1_sectors",
    "l2_sectors",
    "dram_bytes",
    "instructions",
    "integer_arithmetic",
    "fp32_operations",
)
"""Causes that say how much is done. Of these one seldom grows alone."""


def _as_busy(claim: Claim, limits: Limits) -> _Found:
    """Memory traffic and instructions that grew together, in units about as busy: either is it."""
    slower, faster = claim.slower, claim.faster
    if slower is None or faster is None or claim.first.id not in _AMOUNTS:
        return None
    memories = [unit for unit in RESOURCES if unit.is_global and not unit.derived]
    issue = [unit for unit in RESOURCES if unit.issued]
    others = issue if claim.first.kind is Kind.MEMORY else memories
    busy = busiest_of(claim.first, slower)
    step = math.log(slower.time_us / faster.time_us)
    for unit in others:
        works = [unit.amount(each) for each in (faster, slower)]
        level = unit.level_of(slower)
        if not (min(works) > 0 and level >= AS_BUSY * busy > 0):
            continue
        if math.log(works[1] / works[0]) >= MOST * step > 0:
            why = (
                "both grew, and their units are about as busy "
                f"({Readable(level):.0%} and {Readable(busy):.0%})"
            )
            return (unit.work,), why
    return None


def _of_another_kind(claim: Claim, limits: Limits) -> _Found:
    """A memory that is busy does not say with what: another kind of accesses grew as much."""
    if claim.slower is None or claim.faster is None:
        return None
    other = company_of(claim.first, claim.slower, claim.faster)
    if other is None:
        return None
    grew = "new" if math.isinf(other.times) else f"{Readable(other.times):.3g} times as much"
    why = f"both pass the same memory, and it is {Readable(other.share):.0%} of what passes, {grew}"
    return (other.term,), why


def _close(claim: Claim, limits: Limits) -> _Found:
    """A cause of another limit that is nearly as large may be the first."""
    rival, first = claim.rival, claim.along[0][1]
    if rival is None or rival[1] < limits.rival * first:
        return None
    return (rival[0],), f"it is {Readable(rival[1] / first):.0%} as large, and of another limit"


RULES = {
    Reason.SMALL: _small,
    Reason.PLACE: _only_a_place,
    Reason.ROOM: _no_room,
    Reason.PAIRING: _other_kernels,
    Reason.RIVAL: _close,
    Reason.TOGETHER: _as_busy,
    Reason.KIND: _of_another_kind,
    Reason.PROGRAM: _other_program,
}
"""In this order: the first that speaks is told."""


def _doubt(claim: Claim, reason: Reason, causes: tuple[Term, ...], why: str) -> Untold:
    check = check_of(causes[0], "" if claim.slower is None else claim.slower.kernel)
    if reason is Reason.PROGRAM:
        check = PROGRAMS
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
