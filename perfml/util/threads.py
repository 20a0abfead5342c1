"""Work of NumPy, Arrow and the system on several cores: they let other threads run meanwhile."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

MOST = 8
"""Threads that are started; what they do is bound by memory sooner than by cores."""

Item = TypeVar("Item")
Result = TypeVar("Result")


def cores() -> int:
    """Return how many cores are worth starting threads for."""
    return min(MOST, os.cpu_count() or 1)


def in_threads(function: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
    """Return ``[function(item) for item in items]``, computed on the machine's cores.

    For functions that spend their time outside Python; the first error is raised.
    """
    found = list(items)
    workers = min(cores(), len(found))
    if workers < 2:
        return [function(item) for item in found]
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(function, found))
