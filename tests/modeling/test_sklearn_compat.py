"""linear-tree must work on the installed scikit-learn, and nothing else may change."""

import numpy as np
import pytest
from sklearn.base import clone, is_regressor
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from perfml.modeling.parallel import linear_tree_regressor


@pytest.fixture
def kinked():
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (300, 2)).round(3)
    return x, np.where(x[:, 0] <= 0, 50 - 30 * x[:, 0], 50 + 80 * x[:, 0]) + 5 * x[:, 1]


def test_it_fits_predicts_applies_and_walks_paths(kinked):
    x, y = kinked
    model = linear_tree_regressor(max_depth=3).fit(x, y)
    assert model.score(x, y) > 0.99
    assert np.unique(model.apply(x)).size == len(model.summary(only_leaves=True))
    assert model.decision_path(x).shape[0] == len(x)


def test_it_is_a_regressor_that_can_be_cloned_searched_and_piped(kinked):
    x, y = kinked
    model = linear_tree_regressor(min_samples_leaf=0.2)
    assert is_regressor(model)
    assert clone(model).get_params()["min_samples_leaf"] == 0.2
    search = GridSearchCV(model, {"max_depth": [1, 2]}, cv=2).fit(x, y)
    assert search.best_score_ > 0.9
    assert make_pipeline(StandardScaler(), model).fit(x, y).score(x, y) > 0.9
