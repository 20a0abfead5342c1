"""What an explanation claims: its first cause, and what the rules of `doubts` look at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from perfml.explain.counters.evidence import Told
from perfml.explain.counters.library_kernels import OF_RUNS
from perfml.explain.counters.room import same_limit
from perfml.explain.counters.terms import TERMS, Contribution, Kind, Term
from perfml.explain.launches import Launch
from perfml.kernel_names import kernel_purpose

INSTEAD = {
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
    faster
        The launch that answers to `slower`.
    more
        How many launches more the slower side has than the faster one.
    """

    along: Sequence[tuple[Term, float]]
    size: float
    slower: Launch | None = None
    taken: float = 0.0
    others: float = 0.0
    guessed: bool = False
    replaced: float = 0.0
    lone: Launch | None = None
    faster: Launch | None = None
    more: int = 1

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


def claim_of(
    pairs: Sequence[Told],
    others: Sequence[Contribution],
    log_ratio: float,
    *,
    several: bool,
    launches: Sequence[Launch] = (),
) -> Claim | None:
    """Return what an explanation claims; None where it names no cause. See `doubts.find_doubt`."""
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
    if first.id in INSTEAD and launches:
        more = sum(1 if one.log_ratio * log_ratio > 0 else -1 for one in others)
        return _of_one_side(Claim(along, size, more=more), pairs, others, launches)
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
        faster=sides[0],
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
    lone, instead = of_term[claim.first.id], of_term.get(INSTEAD[claim.first.id], [])
    longest = max(lone, key=lambda launch: launch.time_us)
    if len(instead) < len(lone):
        return replace(claim, lone=longest)
    sides = ([pair.before for pair in pairs], [pair.after for pair in pairs])
    both = min(sum(launch.time_us for launch in side) for side in sides)
    taken = sum(launch.time_us for launch in instead)
    return replace(claim, replaced=taken / (taken + both), lone=longest)


def _sum(contributions: Sequence[Contribution]) -> float:
    return sum(one.log_ratio for one in contributions)
