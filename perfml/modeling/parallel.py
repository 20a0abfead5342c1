"""Run many independent pieces of work on the machine's cores, with progress."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import joblib
from joblib.parallel import LokyBackend, get_active_backend
from sklearn import config_context
from threadpoolctl import ThreadpoolController

from perfml.modeling.models.sklearn_compat import Notes, collecting
from perfml.util.typing import Progress

Unit = TypeVar("Unit")
Result = TypeVar("Result")

WORTH_PROCESSES = 6.0
"""Seconds of estimated work above which starting worker processes pays off."""


def run_all(
    function: Callable[[Unit], Result],
    units: Sequence[Unit],
    *,
    n_jobs: int | None,
    seconds: float,
    progress: Progress | None = None,
    what: str = "",
    notes: Notes | None = None,
) -> list[Result]:
    """Return ``[function(unit) for unit in units]``, on several cores where that is faster.

    `n_jobs` processes: None decides from `seconds`, the estimate of the whole work on one core, or
    takes the engine that `joblib.parallel_config` chose; -1 is one a core. `notes` gets what the
    fits noted (`perfml.modeling.models.sklearn_compat`).
    """
    results: list[Result] = []
    for result, noted in _results(function, units, _jobs(n_jobs, seconds, len(units))):
        results.append(result)
        if notes is not None:
            notes.update(noted)
        if progress is not None:
            progress(len(results), len(units), what)
    return results


def _results(
    function: Callable[[Unit], Result], units: Sequence[Unit], jobs: int
) -> Iterator[tuple[Result, Notes]]:
    if jobs <= 1:
        for unit in units:
            yield quietly(function, unit)
        return
    parallel = joblib.Parallel(n_jobs=jobs, return_as="generator", pre_dispatch="3*n_jobs")
    yield from parallel(joblib.delayed(quietly)(function, unit) for unit in units)


def quietly(function: Callable[[Unit], Result], unit: Unit) -> tuple[Result, Notes]:
    """Call a function with one BLAS thread and without scikit-learn's checks of its input.

    Returns what it returned, and what its fits noted.

    Matrices here are small: threads cost more than they bring, and checking arrays that were
    checked once takes as long as a tree.
    """
    with (
        collecting() as notes,
        _pools().limit(limits=1),
        config_context(assume_finite=True, skip_parameter_validation=True),
    ):
        return function(unit), notes


@functools.cache
def _pools() -> Any:
    # finding the thread pools of a process takes longer than a tree, so it is done once
    return ThreadpoolController()


def _jobs(n_jobs: int | None, seconds: float, units: int) -> int:
    if units < 2:
        return 1
    # asks the engine that joblib.parallel_config chose: a cluster has other cores than this host
    cores: int = joblib.effective_n_jobs(-1)
    chosen = not isinstance(get_active_backend()[0], LokyBackend)
    if n_jobs is None:
        wanted = cores if chosen or seconds > WORTH_PROCESSES else 1
    elif n_jobs < 0:
        wanted = max(1, cores + 1 + n_jobs)
    else:
        wanted = max(1, n_jobs)
    return min(wanted, units)
