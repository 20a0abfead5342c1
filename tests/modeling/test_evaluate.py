"""Scores come with baselines and an honest protocol, and do not depend on how they are computed."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from perfml.datasets import load
from perfml.errors import PerfmlError
from perfml.modeling import (
    average_repeats,
    build_problem,
    evaluate,
    shapes_of_runs,
    with_shapes,
)
from perfml.modeling.models import forest
from perfml.modeling.models.forest import QuickForestClassifier
from perfml.modeling.models.registry import get_model
from studies import yardsticks
from tests.support.modeling_data import linear_layers, six_conditions

pytestmark = pytest.mark.long

FAST = ("dt", "lmt")


def score_of(evaluation, model, protocol="random", column="median"):
    scores = evaluation.scores
    row = scores[(scores["model"] == model) & (scores["protocol"] == protocol)]
    assert len(row) == 1
    return row[column].item()


def test_both_protocols_and_every_baseline_are_shown_unasked():
    found = evaluate(six_conditions(), models=FAST, splits=4)
    shown = set(zip(found.scores["model"], found.scores["protocol"], strict=True))
    names = (*FAST, "training-mean", "backend-mean", "condition-mean", "lookup")
    assert shown == {(n, p) for n in names for p in ("random", "leave-one-layer-out")}
    assert set(found.scores["score"]) == {"mape"}
    assert list(found.scores["baseline"]).count(True) == 8


def test_unseen_layers_are_scored_on_the_means_of_repeats_where_asked_for():
    layers = six_conditions()
    found = evaluate(layers, models="dt", splits=3, average=True)
    unseen = "leave-one-layer-out"
    same = {
        "random": evaluate(layers, models="dt", splits=3, protocols="random"),
        unseen: evaluate(average_repeats(layers), models="dt", splits=3, protocols=unseen),
    }
    for protocol, each in same.items():
        for part, theirs in ((found.scores, each.scores), (found.predictions, each.predictions)):
            own = part[part["protocol"] == protocol].reset_index(drop=True)
            assert own.equals(theirs)
    assert len(found.folds) == sum(len(each.folds) for each in same.values())


def test_a_random_split_score_is_the_one_plain_scikit_learn_gives():
    layers = six_conditions()
    X = layers[list(build_problem(layers).design.names)].to_numpy()
    y = layers["time_us"].to_numpy() / 1000
    expected = []
    for seed in (5, 6, 7):
        a, b, c, d = train_test_split(X, y, test_size=0.25, random_state=seed)
        guess = DecisionTreeRegressor(random_state=seed).fit(a, c).predict(b)
        expected.append(np.mean(np.abs(d - guess) / d))
    found = evaluate(layers, models=["dt"], protocols=["random:0.25"], splits=3, seed=5)
    scores = found.folds[found.folds["model"] == "dt"]["score"]
    assert list(scores) == pytest.approx(expected, abs=1e-15)
    assert score_of(found, "dt", "random:0.25", "mean") == pytest.approx(np.mean(expected))


def test_classification_scores_are_the_ones_plain_scikit_learn_gives():
    layers = six_conditions().drop(columns="gld_efficiency")
    X = layers[list(build_problem(layers).design.names)].to_numpy()
    y = layers["backend"].to_numpy()
    a, b, c, d = train_test_split(X, y, test_size=0.3, random_state=0)
    found = evaluate(
        layers, task="classification", models=["dt", "lr"], protocols=["random"], splits=1
    )
    tree = DecisionTreeClassifier(random_state=0).fit(a, pd.factorize(c)[0])
    # class codes follow the study's order, so ties may fall otherwise: compare accuracy loosely
    reference = np.mean(pd.factorize(c)[1][tree.predict(b)] == d)
    assert score_of(found, "dt") == pytest.approx(reference, abs=0.15)
    logistic = LogisticRegression(max_iter=10_000, tol=1e-8).fit(a, c)
    assert score_of(found, "lr") == np.mean(logistic.predict(b) == d)


def test_predictions_of_held_out_rows_are_averaged_over_splits():
    layers = six_conditions()
    found = evaluate(layers, models=["dt"], splits=6)
    rows = found.predictions.query("model == 'dt' and protocol == 'leave-one-layer-out'")
    assert list(rows["row"]) == list(range(len(layers)))
    assert set(rows["count"]) == {3}
    assert np.allclose(rows["truth"], layers["time_us"] / 1000)
    random = found.predictions.query("model == 'dt' and protocol == 'random'")
    assert random["count"].sum() == 6 * 36


def test_seeded_models_are_fitted_with_several_seeds_on_unseen_layers():
    found = evaluate(six_conditions(), models=("dt", "lmt"), splits=10)
    folds = found.folds[found.folds["protocol"] == "leave-one-layer-out"]
    seeds = folds.groupby("model")["seed"].nunique()
    assert seeds["dt"] == 5
    assert seeds["lmt"] == 0
    assert score_of(found, "dt", "leave-one-layer-out", "splits") == 10
    assert score_of(found, "lmt", "leave-one-layer-out", "splits") == 2


def test_results_do_not_depend_on_the_number_of_processes():
    layers = linear_layers()
    layers.loc[::5, "gld_efficiency"] = np.nan
    one = evaluate(layers, models=FAST, splits=3, n_jobs=1)
    two = evaluate(layers, models=FAST, splits=3, n_jobs=2)
    pd.testing.assert_frame_equal(one.scores, two.scores)
    pd.testing.assert_frame_equal(one.predictions, two.predictions)


def test_a_dependence_that_holds_everywhere_is_learned_for_unseen_layers():
    layers = linear_layers(layers=15)
    found = evaluate(layers, models=["lmt"], splits=3)
    assert score_of(found, "lmt", "leave-one-layer-out", "mean") < 0.02
    assert score_of(found, "backend-mean", "leave-one-layer-out", "mean") > 0.2
    assert not any("no better than" in each for each in found.warnings)


def test_a_table_without_layers_loses_the_layer_protocol_with_a_warning():
    layers = six_conditions().assign(layer=None)
    found = evaluate(layers, models=["dt"], splits=2)
    assert set(found.scores["protocol"]) == {"random"}
    assert any("leave-one-layer-out was left out" in each for each in found.warnings)
    with pytest.raises(PerfmlError, match="which layer"):
        evaluate(layers, models=["dt"], protocols=["leave-one-layer-out"])


def test_twin_layers_can_be_held_out_together():
    layers = linear_layers(layers=6)
    shapes = pd.DataFrame(
        {"layer": layers["layer"].unique(), "flops": [1e6, 1e6, 2e6, 3e6, 3e6, 4e6]}
    )
    shapes = shapes.assign(weight_bytes=1e3, input_bytes=1e3, output_bytes=1e3)
    found = evaluate(
        with_shapes(layers, shapes),
        models=["lmt"],
        protocols=["leave-one-shape-out", "leave-one-layer-out"],
        target="time-per-flop",
    )
    assert score_of(found, "lmt", "leave-one-shape-out", "splits") == 4
    assert score_of(found, "lmt", "leave-one-layer-out", "splits") == 6
    without = evaluate(layers, models=["dt"], protocols=["random", "leave-one-shape-out"], splits=2)
    assert any("leave-one-shape-out was left out" in each for each in without.warnings)


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        ({"models": ["xgboost"]}, "no regression model"),
        ({"models": ["rf"]}, "a classification model"),
        ({"models": []}, "no model"),
        ({"protocols": ["kfold"]}, "no protocol"),
        ({"splits": 0}, "at least one split"),
        ({"target": "speed"}, "no target"),
        ({"features": "all"}, "no feature set"),
    ],
)
def test_a_wrong_name_is_an_error_that_lists_the_right_ones(wrong, what):
    with pytest.raises(PerfmlError, match=what):
        evaluate(six_conditions(), **{"models": ["dt"], "splits": 2} | wrong)


def test_the_quick_forest_is_scikit_learns_forest():
    layers = six_conditions().drop(columns="gld_efficiency")
    problem = build_problem(layers, "classification")
    X, y = problem.design.values, problem.truth + 4
    theirs = RandomForestClassifier(20, random_state=9).fit(X, y)
    ours = QuickForestClassifier(20, random_state=9).fit(X, y)
    assert np.array_equal(ours.predict_proba(X), theirs.predict_proba(X))
    assert np.array_equal(ours.predict(X), theirs.predict(X))
    assert np.array_equal(ours.feature_importances_, theirs.feature_importances_)
    assert clone(ours).get_params() == {"n_estimators": 20, "random_state": 9}
    for own, tree in zip(ours.estimators_, theirs.estimators_, strict=True):
        assert np.array_equal(own.predict_proba(X), tree.predict_proba(X))
        assert np.array_equal(own.tree_.threshold, tree.tree_.threshold)


def test_the_quick_forest_needs_no_part_of_scikit_learn_that_may_go(monkeypatch):
    problem = build_problem(six_conditions().drop(columns="gld_efficiency"), "classification")
    X, y = problem.design.values, problem.truth
    built = QuickForestClassifier(10, random_state=3).fit(X, y)
    monkeypatch.setattr(forest, "_BUILDER", False)
    plain = QuickForestClassifier(10, random_state=3).fit(X, y)
    assert np.array_equal(built.predict_proba(X), plain.predict_proba(X))
    for own, tree in zip(built.estimators_, plain.estimators_, strict=True):
        assert vars(own).keys() == vars(tree).keys()


@pytest.mark.parametrize(("name", "task"), [("gbr", "regression"), ("rf", "classification")])
def test_a_row_of_weight_three_is_three_equal_rows(name, task):
    problem = build_problem(six_conditions().drop(columns="gld_efficiency"), task)
    model = get_model(name, task)
    assert model.counts
    X, y = problem.design.values, problem.truth
    times = np.random.default_rng(0).integers(1, 4, len(X))
    counted = model.make(9).fit(X, y, sample_weight=times.astype(float))
    repeated = model.make(9).fit(np.repeat(X, times, axis=0), np.repeat(y, times))
    if task == "regression":
        # among splits that part the rows alike, rounding chooses: what is fitted is the same
        assert counted.predict(X) == pytest.approx(repeated.predict(X), rel=1e-9)
    else:
        assert np.array_equal(counted.predict_proba(X), repeated.predict_proba(X))


def test_the_newton_solver_finds_the_optimum_of_the_default_solver():
    layers = six_conditions()
    problem = build_problem(layers, "classification")
    ours = get_model("lr", "classification").make(0)
    ours.fit(problem.design.values, problem.truth)
    default = LogisticRegression(max_iter=100_000, tol=1e-10)
    default.fit(problem.design.values, problem.truth)
    assert np.allclose(ours.coef_, default.coef_, atol=1e-4)


@pytest.fixture(scope="module")
def recorded_layers(sweep):
    """Return the batch 1 layers of the recorded sweep, one row a condition, with shapes."""
    table = load(sweep)
    layers = with_shapes(table.frame, shapes_of_runs(table.provenance))
    return average_repeats(layers[layers["batch"] == 1].reset_index(drop=True))


@pytest.mark.slow
def test_layers_nobody_measured_are_predicted_from_what_is_known_before_a_run(recorded_layers):
    assert len(recorded_layers) == 63
    found = evaluate(
        recorded_layers,
        models=yardsticks.named(["gp"]),
        protocols=["leave-one-layer-out", "leave-one-shape-out"],
        features="before-run",
        target="time-per-flop",
    )
    assert score_of(found, "gp", "leave-one-layer-out", "mean") < 0.12
    assert score_of(found, "gp", "leave-one-shape-out", "mean") < 0.15
    assert score_of(found, "backend-mean", "leave-one-layer-out", "mean") > 0.5


@pytest.mark.slow
def test_quick_scores_fit_ensembles_once_a_fold_and_single_trees_as_often_as_ever():
    words = {"protocols": "leave-one-layer-out", "models": "dt,gbr", "splits": 3}
    layers = linear_layers(layers=5)
    slow, quick = evaluate(layers, **words), evaluate(layers, quick=True, **words)
    fits = quick.folds.groupby("model").size()
    assert (fits["dt"], fits["gbr"]) == (15, 5)
    once = slow.folds[(slow.folds["model"] == "gbr") & (slow.folds["seed"] == 0)]
    assert list(quick.folds[quick.folds["model"] == "gbr"]["score"]) == list(once["score"])
