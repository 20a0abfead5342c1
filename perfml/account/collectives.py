"""Collectives of one trace of a job, and what ranks wait for each other in them.

An all-reduce ends on all ranks together, as soon as the last rank has come. So of one collective
the shortest kernel belongs to the rank that came last, and what the kernel of another rank takes
more is that rank's wait. Durations tell it: no two clocks are compared.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from perfml.account.intervals import Floats
from perfml.util.json_values import json_object

RANK = "rank_of_job"
"""Key of a `RankOfJob` in what a reader notes of its source."""
TOGETHER = ("allreduce", "allgather", "reducescatter")
"""Collectives that no rank can leave before all have come, as NCCL's kernels are called (NCCL User
Guide, Collective Operations). The root of a broadcast may leave before."""


@dataclass(frozen=True)
class Collective:
    """A kernel of a collective: the number of its step, what it is, its group, microseconds."""

    step: int
    kind: str
    group: str
    us: float


@dataclass(frozen=True)
class RankOfJob:
    """What a trace tells of its rank: its number, how many there are, its collectives."""

    rank: int
    world_size: int
    collectives: tuple[Collective, ...] = ()

    to_dict = json_object


def collective_kind(name: str) -> str:
    """Return which collective an operation or kernel does; empty where ranks may leave it apart."""
    plain = name.lower().replace("_", "")
    return next((kind for kind in TOGETHER if kind in plain), "")


def waits_of(collectives: Sequence[Sequence[Collective]]) -> tuple[Floats, Floats] | None:
    """Return what each rank waits in a step, and what others wait for it at most, shape (ranks,).

    `collectives` are those of the step by rank, in the order of launch. The k-th of one kind in a
    group is the same on all ranks of the group. None where they differ in number, or there is none.
    """
    ranks: defaultdict[tuple[str, str], dict[int, list[float]]] = defaultdict(dict)
    for place, own in enumerate(collectives):
        for each in own:
            ranks[each.kind, each.group].setdefault(place, []).append(each.us)
    waiting, caused = (np.zeros(len(collectives)) for _ in range(2))
    if not ranks:
        return None
    for by_rank in ranks.values():
        if len({len(own) for own in by_rank.values()}) > 1:
            return None
        members = np.array(list(by_rank))
        us = np.array(list(by_rank.values()))
        waits = us - us.min(axis=0)
        waiting[members] += waits.sum(axis=1)
        np.add.at(caused, members[us.argmin(axis=0)], waits.max(axis=0))
    return waiting, caused
