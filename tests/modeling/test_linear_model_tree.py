"""The linear model tree against scikit-learn's checks, brute force, linear-tree and itself."""

from unittest import mock

import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.datasets import load_diabetes, make_friedman1, make_friedman2, make_friedman3
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import KFold, cross_val_score
from sklearn.utils.estimator_checks import estimator_checks_generator

from perfml.modeling.linear_model_tree import gram, grow
from perfml.modeling.linear_model_tree.fitted import _left_out
from perfml.modeling.linear_model_tree.regressor import (
    LinearModelTreeRegressor,
    ParameterError,
)
from perfml.modeling.parallel import linear_tree_regressor
from tests.support.examples import examples

mpl.use("Agg")

RAW = {"prune": None, "smoothing": 0.0, "clip": False}  # the tree as grown, without safety


def checks():
    """Yield scikit-learn's checks but the one that needs an experimental array API switched on."""
    for estimator in (
        LinearModelTreeRegressor(),
        LinearModelTreeRegressor(min_samples_leaf=3, prune=None, alpha=0.0),
    ):
        for each, check in estimator_checks_generator(estimator):
            name = check.func.__name__
            if name == "check_sample_weight_equivalence_on_dense_data" and each.alpha == 0:
                # 15 rows of 10 features: with the least penalty their collinear leaves differ by
                # rounding (1e-6), as sums of copies and of weights are rounded differently
                each.set_params(alpha=1e-3)
            if name != "check_array_api_input":
                yield pytest.param(each, check, id=f"{name}-{estimator}")


@pytest.mark.slow
@pytest.mark.parametrize(("estimator", "check"), list(checks()))
def test_it_passes_the_checks_of_scikit_learn(estimator, check):
    check(estimator)


def regimes(n=400, p=5, seed=0, noise=0.01):
    """Two laws on each side of a threshold of the second column, plus noise."""
    rng = np.random.default_rng(seed)
    x = rng.random((n, p)).astype(np.float32).astype(float)
    low = 100 + 40 * x[:, 0] - 10 * x[:, 2]
    high = 300 - 80 * x[:, 0] + 25 * x[:, 3]
    return x, np.where(x[:, 1] <= 0.4, low, high) + noise * rng.normal(size=n)


# Exactness of the split ----------------------------------------------------------------------


def ridge_loss(z, t, penalty):
    """Solve the ridge problem as an augmented least-squares problem, without Gram matrices."""
    n, p = z.shape
    top = np.column_stack([np.ones(n), z])
    bottom = np.column_stack([np.zeros(p), np.sqrt(penalty) * np.eye(p)])
    rows, target = np.vstack([top, bottom]), np.concatenate([t, np.zeros(p)])
    w = np.linalg.lstsq(rows, target, rcond=None)[0]
    return float(np.sum((target - rows @ w) ** 2))


def every_split(x, y, penalty, min_leaf):
    """Yield (loss, feature, threshold) of every split, by brute force."""
    spread = np.where(x.std(axis=0) > 0, x.std(axis=0), 1.0)
    z, t = (x - x.mean(axis=0)) / spread, (y - y.mean()) / y.std()
    for feature in range(x.shape[1]):
        for cut in np.unique(x[:, feature])[:-1]:
            left = x[:, feature] <= cut
            if min(left.sum(), (~left).sum()) >= min_leaf:
                loss = ridge_loss(z[left], t[left], penalty)
                yield loss + ridge_loss(z[~left], t[~left], penalty), feature, cut


@st.composite
def small_problems(draw):
    n, p = draw(st.integers(8, 40)), draw(st.integers(1, 3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    x = rng.normal(size=(n, p)).round(draw(st.integers(0, 2)))  # few digits: many ties
    y = np.abs(x[:, 0]) + rng.normal(size=n) * draw(st.sampled_from([0.05, 1.0]))
    return x, y, draw(st.sampled_from([0.01, 1.0])), draw(st.integers(1, 4))


@examples(60)
@given(small_problems(), st.sampled_from([0, gram.FEW_ROWS]))
def test_a_split_is_as_good_as_the_best_found_by_brute_force(problem, few):
    x, y, alpha, min_leaf = problem
    model = LinearModelTreeRegressor(
        max_depth=1, min_samples_leaf=min_leaf, min_samples_split=2, alpha=alpha, **RAW
    )
    with mock.patch.object(gram, "FEW_ROWS", few):
        model.fit(x, y)
    splits = list(every_split(x, y, alpha, min_leaf))
    nodes = model.tree_.nodes
    best = min((loss for loss, _, _ in splits), default=np.inf)
    if nodes[0].is_leaf:
        assert best >= nodes[0].model.loss - 1e-8 * len(y)
        return
    assert sum(node.model.loss for node in nodes[1:]) == pytest.approx(best, abs=1e-8 * len(y))
    chosen = x[:, nodes[0].feature] <= nodes[0].threshold
    same = [
        loss
        for loss, feature, cut in splits
        if feature == nodes[0].feature and np.array_equal(x[:, feature] <= cut, chosen)
    ]
    assert min(same) == pytest.approx(best, abs=1e-8 * len(y))


@pytest.mark.parametrize("alpha", [0.1, 3.0])
def test_one_factorisation_holds_the_losses_of_every_first_rows(alpha):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(30, 5)), rng.normal(size=30)
    design = gram.make_design(x, y, alpha)
    order = rng.permutation(30)[:20]
    found = gram.prefix_losses(design, np.stack([order, order[::-1]]))
    for losses, rows in zip(found, (order, order[::-1]), strict=True):
        by_hand = [ridge_loss(x[rows[:n]], y[rows[:n]], alpha) for n in range(1, 21)]
        np.testing.assert_allclose(losses, by_hand, atol=1e-10)


def test_a_penalty_that_rounding_would_drown_is_searched_the_other_way():
    x, y = np.random.default_rng(0).normal(size=(2, 30, 1))
    assert gram.make_design(x, y[:, 0], 0.1).is_small(30)
    assert not gram.make_design(x, y[:, 0], 1e-6).is_small(30)
    assert not gram.make_design(x, y[:, 0], 0.1).is_small(gram.FEW_ROWS + 1)


def test_losses_survive_matrices_that_rounding_made_indefinite():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(50, 3))
    design = gram.make_design(x, rng.normal(size=50), 0.5)
    products = gram.gram(design, np.arange(50))
    broken = np.zeros_like(products)
    broken[0, 0] = -1e-9  # no Cholesky factor: the batch takes the other way
    # of the left sides one is the whole node and the other cannot be factorised, of the right
    # sides the other way round
    left, right = gram.losses(design, products + broken, np.stack([products, broken]))
    whole = ridge_loss(x, design.rows[:50, -1], 0.5)
    assert [left[0], right[1]] == pytest.approx([whole, whole], rel=1e-9)
    assert left[1] == right[0] == 0.0


# Agreement with linear-tree ------------------------------------------------------------------


class DoubleRegression(LinearRegression):
    """linear-tree hands its leaves single precision; this solves them in double."""

    def fit(self, X, y, sample_weight=None):
        return super().fit(np.asarray(X, dtype=np.float64), y, sample_weight)

    def predict(self, X):
        return super().predict(np.asarray(X, dtype=np.float64))


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2, 3))])
def test_it_grows_the_tree_of_linear_tree(seed):
    x, y = regimes(n=220, p=4, seed=seed, noise=5.0)
    x = np.floor(16 * x) / 16  # few values: linear-tree has a quantile at each of them
    y = 10 * y  # large losses: linear-tree compares them rounded to five decimals
    theirs = linear_tree_regressor(
        base_estimator=DoubleRegression(), max_depth=3, max_bins=120
    ).fit(x, y)
    ours = LinearModelTreeRegressor(max_depth=3, min_samples_leaf=0.1, alpha=0.0, **RAW).fit(x, y)
    expected = sorted(
        (node["col"], node["th"], node["samples"])
        for node in theirs.summary().values()
        if "col" in node
    )
    found = sorted(
        (node.feature, node.threshold, node.size) for node in ours.tree_.nodes if not node.is_leaf
    )
    assert len(found) >= 2
    assert [(f, n) for f, _, n in found] == [(f, n) for f, _, n in expected]
    for (feature, mine, _), (_, other, _) in zip(found, expected, strict=True):
        assert np.array_equal(x[:, feature] <= mine, x[:, feature] <= other)
    np.testing.assert_allclose(ours.predict(x), theirs.predict(x), rtol=1e-6)


# Invariance ----------------------------------------------------------------------------------


@pytest.mark.parametrize("factor", [1e-9, 1e-3, 1e6])
def test_the_unit_of_the_target_changes_nothing(factor):
    x, y = regimes(noise=3.0)
    model = LinearModelTreeRegressor().fit(x, y)
    other = clone(model).fit(x, factor * y)
    assert np.array_equal(model.apply(x), other.apply(x))
    np.testing.assert_allclose(other.predict(x), factor * model.predict(x), rtol=1e-9)
    np.testing.assert_allclose(other.feature_importances_, model.feature_importances_, atol=1e-9)


# Rules of growth and pruning -----------------------------------------------------------------


def test_leaves_keep_their_least_size_and_depth():
    x, y = regimes(noise=30.0)
    model = LinearModelTreeRegressor(max_depth=3, min_samples_leaf=37, **RAW).fit(x, y)
    assert np.unique(model.apply(x), return_counts=True)[1].min() >= 37
    assert model.get_depth() <= 3
    share = LinearModelTreeRegressor(min_samples_leaf=0.11, **RAW).fit(x, y)
    assert np.unique(share.apply(x), return_counts=True)[1].min() >= 44


def test_pruning_keeps_a_real_change_of_law_and_predicts_better():
    x, y = regimes(noise=5.0)
    z, true = regimes(n=2000, seed=9, noise=0.0)
    pruned = LinearModelTreeRegressor().fit(x, y)
    grown = LinearModelTreeRegressor(prune=None).fit(x, y)
    assert 2 <= pruned.get_n_leaves() < grown.get_n_leaves()
    assert np.std(pruned.predict(z) - true) < np.std(grown.predict(z) - true)


# Safe predictions ----------------------------------------------------------------------------


def test_a_leaf_does_not_extrapolate_beyond_its_training_range_and_margin():
    x, y = regimes()
    far = np.full((1, 5), 0.3)
    far[0, 0] = 1e6
    side = x[:, 1] <= 0.4
    width = np.ptp(y[side])
    safe = LinearModelTreeRegressor(max_depth=1).fit(x, y)
    assert safe.predict(far)[0] == pytest.approx(y[side].max() + 0.1 * width)
    free = LinearModelTreeRegressor(max_depth=1, clip=False).fit(x, y)
    assert free.predict(far)[0] > 1e6


def test_a_leaf_with_constant_and_copied_columns_predicts_sensibly():
    x, y = regimes(n=120)
    x = np.column_stack([x, np.ones(120), x[:, 0], np.where(x[:, 1] <= 0.4, 1.0, x[:, 4])])
    z, true = regimes(n=500, seed=5, noise=0.0)
    z = np.column_stack([z, np.ones(500), z[:, 0], np.where(z[:, 1] <= 0.4, 1.0, z[:, 4])])
    for alpha in (0.0, 0.1):
        model = LinearModelTreeRegressor(alpha=alpha, clip=False).fit(x, y)
        assert np.quantile(np.abs(model.predict(z) - true), 0.95) < 0.5


# Weights and smoothing -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [{}, {"min_samples_leaf": 9}, {"prune": None}],
)
def test_a_row_of_weight_three_is_three_rows(options):
    x, y = regimes(n=200, noise=20.0)
    weights = np.random.default_rng(0).integers(0, 4, 200)
    model = LinearModelTreeRegressor(**options)
    weighted = model.fit(x, y, sample_weight=weights).predict(x)
    shares = model.feature_importances_
    repeated = clone(model).fit(np.repeat(x, weights, axis=0), np.repeat(y, weights))
    assert model.get_n_leaves() > 1
    np.testing.assert_allclose(weighted, repeated.predict(x), rtol=1e-9)
    np.testing.assert_allclose(shares, repeated.feature_importances_, atol=1e-9)


def test_weights_of_zero_alone_are_refused():
    x, y = regimes(n=40)
    with pytest.raises(ValueError, match="at least one non-zero"):
        LinearModelTreeRegressor().fit(x, y, sample_weight=np.zeros(40))


def test_a_smooth_law_is_smoothed_and_a_sharp_one_is_not():
    rng = np.random.default_rng(0)
    x = rng.uniform(-1, 1, (300, 2))
    z = rng.uniform(-1, 1, (2000, 2))
    curved = LinearModelTreeRegressor().fit(x, x[:, 0] ** 2 + 0.1 * rng.normal(size=300))
    plain = LinearModelTreeRegressor(smoothing=0.0).fit(x, curved.predict(x))
    assert curved.smoothing_ > 0
    assert plain.smoothing_ == 0
    sharp = LinearModelTreeRegressor().fit(*regimes(noise=0.5))
    assert sharp.get_n_leaves() > 1
    assert sharp.smoothing_ == 0
    assert np.abs(curved.predict(z) - z[:, 0] ** 2).mean() < 0.05


def test_the_least_error_of_rows_left_out_is_that_of_fitting_without_them():
    rng = np.random.default_rng(2)
    x = rng.normal(size=(30, 3))
    y = x[:, 0] - x[:, 1] + rng.normal(size=30)
    rows = gram.make_design(x, y, 0.5)
    everything = np.arange(30)
    total = gram.gram(rows, everything)
    node = grow.Node(30, 30.0, total, gram.fits(rows, total[None])[0], y.min(), y.max(), 0)
    for left_out in (0, 7, 29):
        rest = gram.gram(rows, np.delete(everything, left_out))
        kept = gram.fits(rows, rest[None])[0]
        expected = kept.intercept + x[left_out] @ kept.coef
        assert _left_out(node, rows, everything)[left_out] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("data", "least"),
    [
        # what linear-tree 0.3.5 reaches on the same folds, or perfml without smoothing
        (lambda: make_friedman1(400, noise=1, random_state=0), 0.832),
        (lambda: load_diabetes(return_X_y=True), 0.488),
        (lambda: make_friedman2(400, noise=50, random_state=0), 0.976),
        (lambda: make_friedman3(400, noise=0.1, random_state=0), 0.845),
    ],
    ids=["friedman1", "diabetes", "friedman2", "friedman3"],
)
def test_it_predicts_rows_it_never_saw_as_well_as_linear_tree(data, least):
    folds = KFold(5, shuffle=True, random_state=0)
    assert cross_val_score(LinearModelTreeRegressor(), *data(), cv=folds).mean() >= least


# Importances ---------------------------------------------------------------------------------


def test_importances_on_a_linear_law_are_the_shares_of_its_variance():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4000, 4))
    model = LinearModelTreeRegressor().fit(x, x @ [3.0, 2.0, -1.0, 0.0])
    assert model.get_n_leaves() == 1
    np.testing.assert_allclose(model.feature_importances_, [9 / 14, 4 / 14, 1 / 14, 0], atol=0.03)
    assert np.all(model.feature_importances_ >= 0)
    assert model.feature_importances_.sum() == pytest.approx(1)


# Explanations --------------------------------------------------------------------------------


def test_the_text_shows_names_thresholds_sizes_and_equations():
    x, y = regimes(n=2000, noise=0.0)
    frame = pd.DataFrame(x, columns=["gld", "occupancy", "dram", "l2", "tex"])
    text = (
        LinearModelTreeRegressor(max_depth=1, alpha=0.0)
        .fit(frame, y)
        .export_text(target="time_us", max_terms=1, digits=3)
    )
    lines = text.splitlines()
    assert lines[0] == "|--- occupancy <= 0.4"
    low = np.sum(x[:, 1] <= 0.4)
    assert lines[1].startswith(f"|   |--- leaf 1, {low} rows: time_us = 100 + 40 gld ... and ")
    assert lines[3].endswith("rows: time_us = 300 - 80 gld ... and 4 smaller terms")


# In scikit-learn's company -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_depth", -1),
        ("min_samples_leaf", 0),
        ("min_samples_leaf", 0.7),
        ("min_samples_split", 1),
        ("alpha", -1.0),
        ("alpha", np.inf),
        ("prune", "aic"),
        ("max_depth", "x"),
        ("max_depth", 2.5),
        ("min_samples_split", "x"),
        ("alpha", "x"),
        ("alpha", np.nan),
        ("smoothing", "x"),
        ("clip", "x"),
    ],
)
def test_a_parameter_that_is_wrong_is_refused_as_scikit_learn_does(name, value):
    x, y = regimes(n=40)
    with pytest.raises(ValueError, match=f"The '{name}' parameter of LinearModelTreeRegressor"):
        LinearModelTreeRegressor(**{name: value}).fit(x, y)


def test_a_wrong_number_of_names_is_refused():
    x, y = regimes(n=40)
    with pytest.raises(ParameterError, match="2 names"):
        LinearModelTreeRegressor().fit(x, y).export_text(feature_names=["a", "b"])


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
