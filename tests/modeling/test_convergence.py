"""Fits that did not converge are counted and told; nothing is printed and nothing is lost."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy.linalg import LinAlgWarning
from sklearn.exceptions import ConvergenceWarning

from perfml.modeling import evaluate, rank
from perfml.modeling.models import registry
from perfml.modeling.parallel import collecting, noting, run_all
from tests.support.modeling_data import linear_layers


class Stubborn:
    """Predicts the mean, and says that it could not do better."""

    def fit(self, X, y):
        self.mean = np.mean(y)
        for _ in range(2):
            warnings.warn("lbfgs failed to converge", ConvergenceWarning, stacklevel=2)
        return self

    def predict(self, X):
        return np.full(len(X), self.mean)


@pytest.fixture
def stubborn(monkeypatch):
    model = registry.Model(
        "stubborn", "stubborn", "regression", lambda seed: Stubborn(), None, False, 0.001
    )
    monkeypatch.setitem(registry._REGRESSION, "stubborn", model)


def test_fits_that_stopped_early_are_counted_once_each(stubborn, recwarn):
    found = evaluate(
        linear_layers(layers=6, repeats=1),
        models=["stubborn"],
        protocols=["leave-one-layer-out"],
        n_jobs=1,
    )
    assert any("In 6 fits of stubborn the optimiser stopped" in each for each in found.warnings), (
        found.warnings
    )
    assert not [each for each in recwarn if issubclass(each.category, ConvergenceWarning)]


def test_rankings_tell_it_too(stubborn):
    ranking = rank(
        linear_layers(layers=6, repeats=1),
        models=["stubborn"],
        methods=["permutation"],
        resamples=3,
        n_jobs=1,
    )
    # one a resample: the test against chance fits no model
    assert any("In 3 fits of stubborn" in each for each in ranking.warnings)


def test_other_warnings_pass_and_without_a_collector_all_do():
    with (
        pytest.warns(RuntimeWarning, match="overflow"),
        collecting() as notes,
        noting("gp"),
    ):
        warnings.warn("overflow", RuntimeWarning, stacklevel=1)
    assert not notes.total()
    with pytest.warns(ConvergenceWarning), noting("gp"):
        warnings.warn("lbfgs", ConvergenceWarning, stacklevel=1)


def _note(number):
    with noting("gp"):
        warnings.warn(f"lbfgs {number}", ConvergenceWarning, stacklevel=1)
    return number


@pytest.mark.slow
def test_notes_come_back_from_other_processes():
    with collecting() as notes:
        pass
    assert run_all(_note, [1, 2, 3], n_jobs=2, seconds=0, notes=notes) == [1, 2, 3]
    assert notes["gp"] == 3


def test_an_ill_conditioned_matrix_is_no_news_and_other_warnings_are():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with collecting(), noting("lr"):
            warnings.warn("rcond = 1e-17", LinAlgWarning, stacklevel=1)
            warnings.warn("overflow", RuntimeWarning, stacklevel=1)
    assert [each.category for each in caught] == [RuntimeWarning]
