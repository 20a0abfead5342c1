"""A ranking carries its uncertainty, and interchangeable metrics stand together."""

from __future__ import annotations

import json

import jsonschema
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.base import is_classifier
from sklearn.ensemble import GradientBoostingRegressor, RandomForestClassifier
from sklearn.inspection import permutation_importance as scikit_permutation
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeRegressor
from typer.testing import CliRunner

from perfml.cli import app
from perfml.cli.documents import schema_of
from perfml.errors import PerfmlError
from perfml.modeling import build_problem, rank
from perfml.modeling.layer_shapes import distinct_layers
from perfml.modeling.models.forest import tree_shapley
from perfml.modeling.models.own import permutation_importance, shapley_importance
from perfml.modeling.ranking.measure import resampled, spearman_groups
from perfml.modeling.ranking.summary import ranks, top_share
from perfml.tables import write_table
from tests.support.modeling_data import linear_layers, six_conditions

pytestmark = pytest.mark.long

FAST = ("builtin", "permutation", "group-permutation")
FEW = {"permutations": 99}


def names_of(problem, groups):
    return {tuple(problem.design.names[j] for j in group) for group in groups}


def test_the_metrics_that_make_the_time_are_first():
    found = rank(linear_layers(layers=30), models=("dt", "lmt"), resamples=6, **FEW)
    assert found.resampling == "layers"
    assert found.summary["group"].iloc[0] == "dram_utilization"
    assert found.summary["group"].iloc[1] == "stall_sync"
    assert found.summary["p_top1"].iloc[0] > 0.9
    assert found.summary["p_top3"].iloc[1] > 0.8
    assert found.beyond_chance == ("dram_utilization", "stall_sync")
    assert found.warnings == ()


def test_every_method_of_every_model_is_in_the_table():
    found = rank(linear_layers(), task="classification", resamples=2, **FEW)
    methods = found.table.groupby("model")["method"].agg(set)
    common = {"permutation", "group-permutation", "shapley"}
    assert methods["dt"] == {"gini", *common}
    assert methods["rf"] == {"gini", *common}
    assert methods["lr"] == {"coefficient", *common}
    assert found.summary["group"].iloc[0] == "tex_fu_utilization"


def test_interchangeable_metrics_are_one_group():
    problem = build_problem(six_conditions())
    groups = names_of(problem, spearman_groups(problem))
    assert ("stall_sync", "achieved_occupancy") in groups
    assert ("gld_efficiency",) in groups
    assert sum(len(group) for group in groups) == len(problem.design.names)


def test_two_copies_of_a_metric_share_the_importance_and_the_group():
    layers = linear_layers(layers=15)
    layers["l2_utilization"] = layers["dram_utilization"]
    found = rank(layers, models=["dt"], resamples=12, methods=FAST, **FEW)
    gini = found.table[found.table["method"] == "gini"].set_index("metric")
    # neither copy is always first, because ties between them are broken anew in each resample
    for name in ("dram_utilization", "l2_utilization"):
        assert 0.1 < gini.loc[name, "p_top1"] < 0.9
    assert found.summary["members"].iloc[0] == "l2_utilization, dram_utilization"
    whole = found.table[found.table["method"] == "group-permutation"].iloc[0]
    single = found.table[found.table["method"] == "permutation"].set_index("metric")
    assert whole["metric"] == "l2_utilization + dram_utilization"
    assert whole["importance"] > single.loc["dram_utilization", "importance"]


def test_conditions_of_few_layers_are_ranked_and_the_claim_ends_at_these_layers():
    found = rank(six_conditions(), models="dt", resamples=3, methods="builtin", **FEW)
    assert (found.null.rows, found.resampling) == (6, "conditions")
    assert any("6 independent rows are conditions of 2 distinct" in one for one in found.warnings)
    few = six_conditions().query("backend != 'trt'")
    with pytest.raises(PerfmlError, match="no ranking: it needs 5 distinct layers") as error:
        rank(few, models="dt", resamples=3, methods=FAST)
    assert error.value.found == "2"
    assert "more layers" in error.value.cure


def test_a_resample_that_drew_one_row_alone_is_learnt_from():
    table = linear_layers(layers=5).drop_duplicates("layer").reset_index(drop=True)
    found = rank(table, resamples=60, permutations=20, models=["lmt"], seed=0)
    assert found.distinct_layers == 5


def test_a_table_without_layers_is_not_ranked():
    layers = linear_layers().assign(layer=pd.NA)
    with pytest.raises(PerfmlError, match="does not say which layer"):
        rank(layers, models="dt", resamples=3)


def test_a_resample_of_layers_holds_whole_layers_out():
    layers = linear_layers(layers=8)
    problem = build_problem(layers)
    for rows, held_out in resampled(problem, distinct_layers(layers), range(5)):
        assert not set(problem.layer[rows]) & set(problem.layer[held_out])
        assert len(rows) == problem.rows


def test_a_resample_keeps_every_backend():
    layers = linear_layers(layers=6)
    rare = layers[(layers["backend"] != "trt") | (layers["layer"] <= "conv_01")]
    problem = build_problem(rare.reset_index(drop=True), "classification")
    for rows, _ in resampled(problem, problem.layer, range(30)):
        assert len(np.unique(problem.truth[rows])) == 3


def test_stacked_permutation_agrees_with_scikit_learn():
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(300, 4))
    y = 1.0 + 3 * X[:, 1] + X[:, 2]
    model = GradientBoostingRegressor(random_state=0).fit(X, y)
    ours = permutation_importance(
        model.predict,
        lambda guess: np.mean(np.abs(guess - y) / y, axis=1),
        X,
        [np.array([j]) for j in range(4)],
        repeats=40,
        rng=rng,
    )
    theirs = scikit_permutation(
        model, X, y, scoring="neg_mean_absolute_percentage_error", n_repeats=40, random_state=0
    ).importances_mean
    assert ours == pytest.approx(theirs, abs=0.01)
    assert list(np.argsort(ours)[-2:]) == [2, 1]


def test_columns_of_a_group_move_together():
    X = np.column_stack([np.arange(100.0), -np.arange(100.0)])
    found = permutation_importance(
        lambda values: values.sum(axis=1),
        lambda guess: np.abs(guess).max(axis=1),
        X,
        [np.array([0, 1]), np.array([0])],
        repeats=2,
        rng=np.random.default_rng(0),
    )
    assert found[0] == 0.0
    assert found[1] > 0.0


@pytest.mark.extras
@pytest.mark.parametrize(
    "model",
    [
        DecisionTreeRegressor(random_state=0),
        GradientBoostingRegressor(random_state=0),
        RandomForestClassifier(9, random_state=0),
    ],
)
def test_shapley_values_of_trees_are_those_of_the_package_shap(model):
    import shap

    rng = np.random.default_rng(0)
    X, rows = rng.uniform(size=(60, 5)), rng.uniform(size=(30, 5))
    y = 4 * X[:, 0] * X[:, 1] + X[:, 2]
    model.fit(X, np.digitize(y, [1, 2]) if is_classifier(model) else y)
    theirs = np.asarray(shap.TreeExplainer(model).shap_values(rows, check_additivity=False))
    theirs = theirs[None] if theirs.ndim == 2 else np.moveaxis(theirs, -1, 0)
    ours = shapley_importance(model, rows, X, [np.arange(5)])[0]
    assert ours == pytest.approx(np.abs(theirs).mean(axis=(0, 1)), rel=1e-9)


def test_shapley_values_of_every_row_add_up_to_its_prediction():
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(80, 4))
    model = DecisionTreeRegressor(random_state=0).fit(X, X[:, 0] + X[:, 1] * X[:, 2])
    values = tree_shapley([model.tree_], X)
    mean = model.tree_.value[0, 0, 0]
    assert values.sum(axis=2)[0] == pytest.approx(model.predict(X) - mean)


def test_shapley_values_of_a_linear_model_are_distances_from_the_mean():
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(60, 2))
    model = LogisticRegression().fit(X, X[:, 0] > 0.5)
    expected = np.abs(model.coef_[0] * (X - X.mean(axis=0))).mean(axis=0)
    found = shapley_importance(model, X, X, [np.arange(2)])[0]
    assert found == pytest.approx(expected)


@given(arrays(float, (3, 6), elements=st.sampled_from([-1.0, 0.0, 0.5, 1.0])))
def test_the_shares_of_the_first_places_add_up_to_their_number(values):
    for k in (1, 3):
        shares = top_share(values, k)
        assert shares.sum(axis=1) == pytest.approx(k)
        assert (shares[values == values.max(axis=1, keepdims=True)] > 0).all()
    # of three, all are among the first three
    assert (top_share(values[:, :3], 3) == 1).all()


def test_ties_share_places():
    assert list(ranks(np.array([5.0, 1.0, 5.0]))) == [1.5, 3.0, 1.5]
    assert list(top_share(np.array([5.0, 1.0, 5.0]), 1)) == [0.5, 0.0, 0.5]


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        ({"methods": ["magic"]}, "no importance"),
        ({"methods": []}, "no importance"),
        ({"resamples": 1}, "at least two resamples"),
        ({"permutations": 18}, "at least 19 permutations"),
    ],
)
def test_a_wrong_name_is_an_error_that_lists_the_right_ones(wrong, what):
    with pytest.raises(PerfmlError, match=what) as error:
        rank(linear_layers(), **{"models": ["dt"], "resamples": 2} | wrong)
    assert error.value.cure


def test_the_command_says_what_chance_gives(tmp_path):
    missing = {"device": "GPU", "compute_capability": "9.0", "kernels": 1, "kernel_names": "k"}
    layers = linear_layers(layers=8).assign(**missing)
    write_table(layers, tmp_path / "layers.parquet", kind="layers", provenance={})
    words = ["rank", str(tmp_path / "layers.parquet"), "--model", "dt", "--method", "builtin"]
    words += ["--resamples", "3", "--permutations", "99", "-q"]
    shown = CliRunner().invoke(app, words)
    assert shown.exit_code == 0, shown.output
    assert "99 permutations of times" in " ".join(shown.stdout.split())
    document = json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)
    jsonschema.validate(document, schema_of("rank", strict=True))
    assert (document["null"]["permutations"], document["null"]["rows"]) == (99, 8)
    assert 1 / 100 <= document["null"]["p_value"] <= 1
