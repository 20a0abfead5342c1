"""Fits that did not converge: counted, named and told, instead of printed or dropped."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from sklearn.exceptions import ConvergenceWarning

Notes = Counter[tuple[str, str]]
"""How often a model's fits had something to say: (model, what) to a count."""

_BOUND = "The optimal value found for dimension"
AT_BOUND, UNFINISHED = "at-bound", "unfinished"

_SENTENCES = {
    AT_BOUND: (
        "In {fits} of {model} the best value of a kernel parameter was its bound; for the noise "
        "that is normal where repeats do not scatter."
    ),
    UNFINISHED: (
        "In {fits} of {model} the optimiser stopped before it had converged; they count as they "
        "are, and may be worse than the model can do."
    ),
}

_COLLECTED: ContextVar[Notes | None] = ContextVar("perfml_fit_notes", default=None)


@contextmanager
def collecting() -> Iterator[Notes]:
    """Collect what fits in the block have to say."""
    notes: Notes = Counter()
    token = _COLLECTED.set(notes)
    try:
        yield notes
    finally:
        _COLLECTED.reset(token)


@contextmanager
def noting(model: str) -> Iterator[None]:
    """Turn the convergence warnings of one fit into notes; all other warnings pass.

    Outside `collecting` every warning passes as it is.
    """
    notes = _COLLECTED.get()
    if notes is None:
        yield
        return
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        yield
    # one fit with three warnings is one fit
    kinds = set()
    for each in caught:
        if issubclass(each.category, ConvergenceWarning):
            kinds.add(AT_BOUND if str(each.message).startswith(_BOUND) else UNFINISHED)
        else:
            warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)
    notes.update((model, kind) for kind in kinds)


def sentences(notes: Notes) -> tuple[str, ...]:
    """Return one sentence a model and kind of note, the graver kind first."""
    order = sorted(notes, key=lambda key: (key[1] != UNFINISHED, key[0]))
    return tuple(
        _SENTENCES[kind].format(model=model, fits=_fits(notes[model, kind]))
        for model, kind in order
    )


def _fits(count: int) -> str:
    return "one fit" if count == 1 else f"{count} fits"
