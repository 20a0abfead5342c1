"""Fits that did not converge: counted by model and told, instead of printed or dropped."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from scipy.linalg import LinAlgWarning
from sklearn.exceptions import ConvergenceWarning

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
