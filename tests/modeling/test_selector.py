"""The selector of what is beyond chance keeps to scikit-learn's habits."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import Ridge
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import check_estimator

from perfml.modeling import LinearModelTreeRegressor, SelectBeyondChance


@pytest.mark.parametrize("estimator", [SelectBeyondChance(permutations=39)])
def test_scikit_learn_finds_no_fault_with_it(estimator):
    check_estimator(estimator)


def test_it_keeps_what_explains_and_its_name_in_a_pipeline():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(80, 5)), columns=list("abcde"))
    X.loc[::7, "b"] = np.nan
    y = np.exp(X["c"] + 0.1 * rng.normal(size=80))
    model = make_pipeline(SelectBeyondChance().set_output(transform="pandas"), Ridge()).fit(X, y)
    assert list(model[:-1].get_feature_names_out()) == ["c"]
    assert list(model[0].get_support()) == [name == "c" for name in X]
    labels = np.where(X["d"] > 0, "slow", "fast")
    assert "d" in SelectBeyondChance().fit(X, labels).get_feature_names_out()


def test_repeats_of_a_group_are_one_piece_of_evidence():
    rng = np.random.default_rng(1)
    groups = np.repeat(np.arange(6), 30)
    X, y = rng.normal(size=(6, 3))[groups], rng.normal(size=6)[groups]
    assert SelectBeyondChance().fit(X, y).get_support().any(), "six groups taken for 180 rows"
    assert not SelectBeyondChance().fit(X, y, groups).get_support().any()


def test_the_linear_model_tree_takes_undefined_cells():
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(200, 3))
    y = 3 * X[:, 0] + X[:, 1]
    full = LinearModelTreeRegressor().fit(X, y)
    X[rng.uniform(size=X.shape) < 0.05] = np.nan
    model = LinearModelTreeRegressor().fit(X, y)
    assert np.isfinite(model.predict(X)).all()
    assert 0.6 < model.score(X, y) <= full.score(np.nan_to_num(X, nan=0.5), y) + 1
    nothing = np.column_stack([X, np.full(200, np.nan)])
    assert np.isfinite(LinearModelTreeRegressor().fit(nothing, y).predict(nothing)).all()
