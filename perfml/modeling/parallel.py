"""Run many independent pieces of work on the machine's cores, whichever scikit-learn is installed.

linear-tree 0.3.5 calls ``BaseEstimator._validate_data(..., force_all_finite=...)``. scikit-learn
1.6 renamed that argument to ``ensure_all_finite`` and made the method a function; 1.7 removed the
method. The class here hands the call on, so that linear-tree fits and predicts unchanged on
scikit-learn 1.6 and later. Nothing in scikit-learn or in linear-tree is replaced.
"""

from __future__ import annotations

import functools
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

import joblib
from joblib.parallel import LokyBackend, get_active_backend
from lineartree import LinearTreeRegressor as _LinearTreeRegressor
from scipy.linalg import LinAlgWarning
from sklearn import config_context
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LinearRegression
from sklearn.utils import RegressorTags
from sklearn.utils.validation import validate_data
from threadpoolctl import ThreadpoolController

from perfml.util.typing import Progress

__all__ = ["LinearTreeRegressorCompat", "linear_tree_regressor"]


class LinearTreeRegressorCompat(_LinearTreeRegressor):  # type: ignore[misc]
    """linear-tree's regressor, working on scikit-learn 1.6 and later.

    Its parameters are those of ``lineartree.LinearTreeRegressor``, and so are its results.
    """

    def _validate_data(self, X: Any, y: Any = "no_validation", **checks: Any) -> Any:
        """Check input as ``BaseEstimator._validate_data`` did before it was removed."""
        finite = checks.pop("force_all_finite", True)
        # linear-tree asks for as many columns as were fitted, which is what `reset=False` checks,
        # and in better words.
        checks.pop("ensure_min_features", None)
        return validate_data(self, X, y, ensure_all_finite=finite, **checks)

    def __sklearn_tags__(self) -> Any:
        """Return the tags of a regressor: linear-tree's order of base classes loses them."""
        tags = super().__sklearn_tags__()
        tags.estimator_type = "regressor"
        tags.regressor_tags = RegressorTags()
        tags.target_tags.required = True
        return tags


def linear_tree_regressor(**params: Any) -> LinearTreeRegressorCompat:
    """Return an unfitted linear-tree regressor that works with the installed scikit-learn.

    Parameters are those of ``lineartree.LinearTreeRegressor``; ``base_estimator`` is
    ``LinearRegression()`` unless given, as in the published study.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.linspace(-1, 1, 200)[:, None]
    >>> model = linear_tree_regressor(max_depth=3).fit(x, 100 * np.abs(x[:, 0]))
    >>> bool(model.score(x, 100 * np.abs(x[:, 0])) > 0.99)
    True
    """
    params.setdefault("base_estimator", LinearRegression())
    return LinearTreeRegressorCompat(**params)


Notes = Counter[str]
"""How many fits of each model stopped before they had converged."""

_COLLECTED: ContextVar[Notes | None] = ContextVar("perfml_fit_notes", default=None)


@contextmanager
def collecting() -> Iterator[Notes]:
    """Count the fits in the block that do not converge."""
    notes: Notes = Counter()
    token = _COLLECTED.set(notes)
    try:
        yield notes
    finally:
        _COLLECTED.reset(token)


@contextmanager
def noting(model: str) -> Iterator[None]:
    """Count one fit if it does not converge; other warnings pass.

    Outside `collecting` every warning passes as it is. Within, that a matrix was ill-conditioned is
    no news: scikit-learn then takes another solver, which says itself if it does not converge.
    """
    notes = _COLLECTED.get()
    if notes is None:
        yield
        return
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        yield
    for warning in caught:
        if not issubclass(warning.category, (ConvergenceWarning, LinAlgWarning)):
            warnings.warn_explicit(
                warning.message, warning.category, warning.filename, warning.lineno
            )
    notes[model] += any(issubclass(each.category, ConvergenceWarning) for each in caught)


def sentences(notes: Notes) -> tuple[str, ...]:
    """Return one sentence a model whose fits did not all converge."""
    return tuple(
        f"In {'one fit' if fits == 1 else f'{fits} fits'} of {model} the optimiser stopped before "
        "it had converged. They count as they are, and may be worse than the model can do."
        for model, fits in sorted(notes.items())
        if fits
    )


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
    fits noted (`perfml.modeling.parallel`).
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
