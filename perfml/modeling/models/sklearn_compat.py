"""The only place that knows which scikit-learn is installed.

linear-tree 0.3.5 calls ``BaseEstimator._validate_data(..., force_all_finite=...)``. scikit-learn
1.6 renamed that argument to ``ensure_all_finite`` and made the method a function; 1.7 removed the
method. The class here hands the call on, so that linear-tree fits and predicts unchanged on
scikit-learn 1.6 and later. Nothing in scikit-learn or in linear-tree is replaced.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from lineartree import LinearTreeRegressor as _LinearTreeRegressor
from scipy.linalg import LinAlgWarning
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LinearRegression
from sklearn.utils import RegressorTags
from sklearn.utils.validation import validate_data

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
    for each in caught:
        if not issubclass(each.category, (ConvergenceWarning, LinAlgWarning)):
            warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)
    notes[model] += any(issubclass(each.category, ConvergenceWarning) for each in caught)


def sentences(notes: Notes) -> tuple[str, ...]:
    """Return one sentence a model whose fits did not all converge."""
    return tuple(
        f"In {'one fit' if fits == 1 else f'{fits} fits'} of {model} the optimiser stopped before "
        "it had converged. They count as they are, and may be worse than the model can do."
        for model, fits in sorted(notes.items())
        if fits
    )
