"""Kinds of accesses that pass one memory: how busy it is does not say whose time it is.

Loads, spills and atomics share the L1 cache and L2; loads, atomics and lane exchange the data stage
of shared memory (`perfml.explain.counters.traffic`). Doubles take twice the bytes of floats, and no
counter of a memory tells the two.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from perfml.explain.counters.room import same_limit
from perfml.explain.counters.terms import TERMS, Kind, Term
from perfml.explain.counters.traffic import SMALL, global_traffic, shared_traffic
from perfml.explain.launches import Launch, known

_DOUBLES = "fp64_pipe_time"
_OF_EVERY_LOAD = "global_requests"
"""A cause of this limit may be one of doubles."""


@dataclass(frozen=True)
class Company:
    """A kind of accesses that grew as much as the time, beside the one that is named.

    Attributes
    ----------
    term
        The cause that it would be.
    share
        Its part of what passes the memory on the slower side (of doubles: of the operations).
    times
        How many times as much it is on the slower side; infinite where the other has none.
    """

    term: Term
    share: float
    times: float


def company_of(term: Term, slower: Launch, faster: Launch) -> Company | None:
    """Return another kind of accesses that may be the cause; None where no other grew as much.

    Parameters
    ----------
    term
        The cause that is named.
    slower, faster
        The launches that it is of.
    """
    if term.kind not in (Kind.WORK, Kind.MEMORY, Kind.STALL):
        return None
    least = slower.time_us / faster.time_us
    now, then = _shares(slower), _shares(faster)
    found = [
        Company(TERMS[name], share, amount / then[name][0] if then[name][0] > 0 else math.inf)
        for name, (amount, share) in now.items()
        if share >= SMALL and amount >= least * then[name][0] and _passes_with(name, term)
    ]
    return max(found, key=lambda each: each.share, default=None)


def _passes_with(kind: str, term: Term) -> bool:
    """Return whether a kind of accesses passes the memory that a cause is of, and is not it."""
    if term.id in (kind, "tensor_unused", "active_threads_per_warp"):
        return False
    return same_limit(term, TERMS[_OF_EVERY_LOAD if kind == _DOUBLES else kind])


def _shares(launch: Launch) -> dict[str, tuple[float, float]]:
    """Return how much there is of each kind, and its part of all that passes the same memory."""
    found = {}
    for traffic in (global_traffic(launch), shared_traffic(launch)):
        whole = sum(traffic.values())
        for name in traffic:
            if name in TERMS and whole > 0:
                found[name] = (traffic[name], traffic[name] / whole)
            elif name in TERMS:
                found[name] = (0.0, 0.0)
    doubles, floats = (known(launch[name]) for name in ("flop_count_dp", "flop_count_sp"))
    both = doubles + floats
    return {**found, _DOUBLES: (doubles, doubles / both if both > 0 else 0.0)}
