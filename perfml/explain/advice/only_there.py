"""Kernels that only the slower side runs: without them their time goes, and nothing else."""

from __future__ import annotations

import math
from collections.abc import Sequence

from perfml.explain.confidence import MOST
from perfml.explain.launches import Launch
from perfml.explain.tree.causes import ONE_SIDED, Kind
from perfml.explain.tree.library_kernels import is_product, of_others
from perfml.explain.tree.told import Causes, PairCauses

_REPEATED = 4
"""Launches of one kernel: from so many on they are a loop's."""


def only_there(causes: Causes, slow: int) -> list[PairCauses]:
    """Return the launches that the slower side (0: the baseline, 1: the target) has alone."""
    return [pair for pair in causes.pairs if pair.times_us[1 - slow] == 0 < pair.times_us[slow]]


def time_without_them(causes: Causes, launches: Sequence[Launch], slow: int) -> float:
    """Return the slower side's time without the launches that it has alone, microseconds.

    NaN unless all launches are a library's or PyTorch's: who writes kernels may share one's work
    among several, and then none of it goes. NaN, too, where most of what goes is a library's
    product, which other launches do then.
    """
    alone = only_there(causes, slow)
    products = [pair for pair in alone if is_product(pair.kernels)]
    if not of_others(*launches) or _time(products, slow) > MOST * _time(alone, slow):
        return math.nan
    return sum(pair.times_us[slow] for pair in causes.pairs) - _time(alone, slow)


def is_replaced(term: str, causes: Causes, slow: int) -> bool:
    """Return whether a library would run other kernels without a cause.

    What these take, no counter of the ones that run tells. Nor does one launch of a loop tell what
    one call takes for all. Of PyTorch's own kernels, each of which passes over all values, the one
    that stays shows what a pass takes.
    """
    if term == "launch_count":
        # the launches that stay do the work of those that go
        return True
    if term in ONE_SIDED:
        stays = [pair for pair in causes.pairs if pair.times_us[1 - slow] > 0]
        others = [pair for pair in stays if pair.unlike_product]
        return _is_loop(causes, slow) or _time(others, slow) > MOST * _time(stays, slow)
    mine = [pair for pair in causes.pairs if any(one.term.id == term for one in pair.contributions)]
    work = any(
        one.term.id == term and one.term.kind is not Kind.LAUNCH
        for pair in mine
        for one in pair.contributions
    )
    unlike = [pair for pair in mine if pair.unlike]
    return work and term != "tensor_unused" and _time(unlike, slow) > MOST * _time(mine, slow)


def _is_loop(causes: Causes, slow: int) -> bool:
    """Return whether one side repeats kernels in place of another one of the other side."""
    alone = only_there(causes, slow)
    names = [pair.kernels for pair in alone]
    often = [pair for pair in alone if names.count(pair.kernels) >= _REPEATED]
    replaces = any(pair.unlike for pair in causes.pairs)
    return replaces and _time(often, slow) > MOST * _time(alone, slow)


def _time(pairs: Sequence[PairCauses], slow: int) -> float:
    return sum(pair.times_us[slow] for pair in pairs)
