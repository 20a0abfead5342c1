"""Features, a target and estimators of one's own: in both kinds of split, and in a ranking."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from perfml.errors import PerfmlError, TableError
from perfml.modeling import evaluate, rank
from perfml.modeling.models.own import chosen_models, own_importance
from perfml.modeling.own_data import own_problem

pytestmark = pytest.mark.long

FEW = {"resamples": 4, "permutations": 20, "methods": ("builtin", "permutation")}


def operators(groups: int = 12, repeats: int = 3, seed: int = 0) -> pd.DataFrame:
    """Return repeats of operators: ``latency`` is 10 + 90 * ``bytes``, with 1 % of noise."""
    rng = np.random.default_rng(seed)
    size = np.repeat(rng.uniform(size=groups), repeats)
    return pd.DataFrame(
        {
            "op": np.repeat([f"op_{number:02d}" for number in range(groups)], repeats),
            "bytes": size,
            "noise": rng.uniform(size=groups * repeats),
            "always": 1.0,
            "kind": np.where(size > 0.5, "big", "small"),
            "latency": (10 + 90 * size) * (1 + 0.01 * rng.normal(size=len(size))),
        }
    )


def score_of(found, model, protocol):
    rows = found.scores[found.scores["protocol"] == protocol].set_index("model")
    return float(rows.loc[model, "mean"])


def test_columns_by_name_or_beside_the_table_give_the_same_scores():
    table = operators()
    words = {"models": [LinearRegression()], "splits": 3}
    named = evaluate(table, "latency", groups="op", **words)
    beside = evaluate(
        table[["bytes", "noise", "always", "kind"]], table["latency"], groups=table["op"], **words
    )
    arrays = evaluate(
        table[["bytes", "noise", "always"]].to_numpy(),
        table["latency"].to_numpy(),
        groups=table["op"].to_numpy(),
        features=["bytes", "noise", "always"],
        **words,
    )
    for other in (beside, arrays):
        pd.testing.assert_frame_equal(named.scores, other.scores)
    assert named.features == ("bytes", "noise")
    assert named.dropped == {"always": "constant: always 1", "kind": "holds no numbers"}
    assert score_of(named, "LinearRegression", "leave-one-group-out") < 0.03


def test_a_random_split_never_comes_without_one_that_holds_out_groups():
    table = operators()
    for groups, other in (("op", "leave-one-group-out"), (None, "no-twin")):
        found = evaluate(
            table.drop(columns=[] if groups else "op"),
            "latency",
            groups=groups,
            models=[Ridge()],
            protocols="random",
            splits=2,
        )
        assert set(found.scores["protocol"]) == {"random", other}
    assert found.warnings[0].startswith("Name with groups=")


def test_labels_are_classified_and_keep_their_names():
    found = evaluate(
        operators()[["bytes", "noise", "kind", "op"]],
        "kind",
        groups="op",
        models={"mine": LogisticRegression(C=100), "tree": "dt"},
        splits=2,
    )
    assert found.task == "classification"
    assert found.classes == ("big", "small")
    assert set(found.scores["model"][~found.scores["baseline"]]) == {"mine", "dt"}
    assert set(found.predictions["predicted"]) == {"big", "small"}


def test_every_fit_is_of_a_clone_and_gets_its_own_seed_unless_one_was_set():
    forest, fixed = RandomForestRegressor(n_estimators=2), DecisionTreeRegressor(random_state=7)
    models = chosen_models([forest, fixed, "dt", forest], "regression")
    assert [model.name for model in models] == [
        "RandomForestRegressor", "DecisionTreeRegressor", "dt", "RandomForestRegressor-2",
    ]  # fmt: skip
    assert [models[0].make(seed).random_state for seed in (3, 4)] == [3, 4]
    assert models[1].make(3).random_state == 7
    assert models[0].seeded
    assert not models[1].seeded
    evaluate(operators(), "latency", groups="op", models=[forest], splits=1)
    assert not hasattr(forest, "estimators_")


def test_a_ranking_of_own_features_has_its_interval_and_its_null():
    models = [make_pipeline(StandardScaler(), Ridge()), KNeighborsRegressor(3), "dt"]
    found = rank(operators(), "latency", groups="op", models=models, **FEW)
    assert found.summary["members"][0] == "bytes"
    assert {"rank_low", "rank_high", "rho", "p_value"} <= set(found.summary.columns)
    pairs = set(zip(found.table["model"], found.table["method"], strict=True))
    assert {("Ridge", "own"), ("Ridge", "permutation"), ("dt", "gini")} <= pairs
    assert ("KNeighborsRegressor", "own") not in pairs
    assert found.beyond_chance == ("bytes",)
    assert (found.null.permutations, found.null.rows) == (FEW["permutations"], 12)
    assert "12 independent rows (values of op)" in found.chance
    assert found.distinct_layers == 12


def test_without_groups_a_ranking_says_so_and_takes_equal_rows_together():
    table = pd.concat([operators(repeats=1)] * 3, ignore_index=True).drop(columns="op")
    found = rank(table, "latency", models=[Ridge()], **FEW)
    assert found.warnings[0].startswith("Name with groups=")
    assert found.distinct_layers == 12
    with pytest.raises(PerfmlError, match="it needs 5 distinct rows") as caught:
        rank(table[:4], "latency", models=[Ridge()], **FEW)
    assert caught.value.found == "4"


def test_own_importances_are_of_features_or_none():
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(50, 3)) * [1.0, 1000.0, 1.0]
    y = X[:, 0] + 0.002 * X[:, 1]
    owners = np.arange(3)
    plain = own_importance(LinearRegression().fit(X, y), X, owners, 3)
    scaled = make_pipeline(StandardScaler(), LinearRegression()).fit(X, y)
    searched = GridSearchCV(LinearRegression(), {"fit_intercept": [True]}, cv=2).fit(X, y)
    # the second column is a thousand times as wide, and twice as important
    assert plain[1] / plain[0] == pytest.approx(2, rel=0.2)
    for other in (scaled, searched):
        assert own_importance(other, X, owners, 3) == pytest.approx(plain)
    components = make_pipeline(PCA(3), LinearRegression()).fit(X, y)
    for nothing in (components, HistGradientBoostingRegressor().fit(X, y)):
        assert own_importance(nothing, X, owners, 3) is None


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"y": "latencies"}, "'latencies' is no column of X"),
        ({"y": "classification"}, "is a task, not a target"),
        ({"y": [1.0, 2.0]}, "X and y differ in length"),
        ({"groups": "operator"}, "groups='operator' is no column of X"),
        ({"groups": ["one"] * 36}, "at least 2 groups"),
        ({"groups": [None] * 36}, "a row has no group"),
        ({"y": np.zeros(36)}, "must be positive"),
        ({"y": [np.nan] * 36}, "a row has no target"),
        ({"task": "regression", "y": "kind"}, "must hold numbers"),
        ({"task": "ranking"}, "no task is called"),
        ({"models": Ridge}, "a name or a scikit-learn estimator"),
        ({"models": [DecisionTreeClassifier()]}, "is no regressor"),
        ({"models": [ColumnTransformer([("all", PCA(), [0])])]}, "is no regressor"),
        ({"models": [make_pipeline(ColumnTransformer([("a", PCA(), [0])]), Ridge())]}, "by their"),
        ({"models": []}, "no model was named"),
        ({"features": ["bites"]}, "X has no column 'bites'"),
        ({"target": "time-per-flop"}, "needs the shapes"),
    ],
)
def test_what_cannot_be_is_told(wrong, said):
    words = {"y": "latency", "groups": "op", "models": [Ridge()], "splits": 1, **wrong}
    with pytest.raises(PerfmlError, match=said) as caught:
        evaluate(operators(), **words)
    assert len(str(caught.value).splitlines()) <= 2


def test_rows_of_another_order_are_not_put_together():
    table = operators()
    shuffled = table["latency"].sample(frac=1, random_state=0)
    with pytest.raises(PerfmlError, match="different row labels"):
        evaluate(table[["bytes"]], shuffled)
    with pytest.raises(TableError, match="one name"):
        evaluate(table.rename(columns={"noise": "bytes"}), table["latency"])
    with pytest.raises(PerfmlError, match="two dimensions"):
        evaluate(np.ones(5), np.ones(5))
    with pytest.raises(PerfmlError, match="as many names"):
        evaluate(np.ones((5, 2)), np.ones(5), features=["a"])


def test_predictions_of_an_own_target_are_drawn_in_its_unit():
    from perfml.report.figures import predicted_vs_measured

    found = evaluate(operators(), "latency", groups="op", models=[Ridge()], splits=1)
    ax = predicted_vs_measured(found.predictions, protocol="leave-one-group-out")
    assert ax.get_xlabel() == "measured latency"
    assert ax.get_legend() is None
    assert ax.collections[0].get_offsets()[:, 0].max() == pytest.approx(
        operators()["latency"].max(), rel=1e-6
    )


@pytest.mark.parametrize("unit", ["timedelta64[us]", "datetime64[us]"])
def test_durations_and_dates_are_not_taken_for_labels(unit):
    X = pd.DataFrame({"a": range(8)})
    y = pd.Series(np.arange(8).astype(unit))
    with pytest.raises(TableError, match="total_seconds"):
        evaluate(X, y, models=["dt"], splits=2)


@pytest.mark.parametrize("X", [None, "table.csv", {"a": [1, 2]}])
def test_what_is_no_table_is_named_by_its_type(X):
    with pytest.raises(PerfmlError, match=f"found: a {type(X).__name__}"):
        evaluate(X)
    with pytest.raises(PerfmlError, match=f"found: a {type(X).__name__}"):
        evaluate(X, [1.0, 2.0])


def test_a_table_without_times_hears_of_y():
    with pytest.raises(PerfmlError, match="another target with y"):
        rank(pd.DataFrame({"a": range(8)}))


def test_a_target_of_several_columns_is_refused():
    with pytest.raises(PerfmlError, match="y has several columns"):
        rank(np.ones((20, 2)), np.ones((20, 2)))


def test_tables_of_polars_and_arrow_are_those_of_pandas():
    table = operators()
    words = {"groups": "op", "models": [LinearRegression()], "splits": 3}
    scores = [
        evaluate(given, "latency", **words).scores
        for given in (table, pl.from_pandas(table), pa.Table.from_pandas(table))
    ]
    for other in scores[1:]:
        pd.testing.assert_frame_equal(scores[0], other)
    columns = pl.from_pandas(table)
    problem = own_problem(columns.drop("latency"), columns["latency"], columns["op"])
    assert problem.words.target == "latency"


@pytest.mark.parametrize("written", ["{:.6f} ms", "{:.6f}ms", " {:.6f}  ms"])
def test_a_target_with_a_unit_is_a_time(written):
    table = operators()
    text = table.assign(latency=[written.format(value) for value in table["latency"]])
    problem = own_problem(text, "latency", "op")
    assert problem.task == "regression"
    np.testing.assert_allclose(problem.truth, 1000 * table["latency"], rtol=1e-3)
    assert any("latency is text" in note for note in problem.notes)


@pytest.mark.parametrize("odd", ["n/a", "1,5 ms", "3", "4 minutes"])
def test_a_row_without_a_number_is_refused_by_name(odd):
    table = operators()
    texts = [f"{value} ms" for value in table["latency"]]
    with pytest.raises(TableError, match="latency, row"):
        own_problem(table.assign(latency=[*texts[:-1], odd]), "latency", "op")


def test_labels_stay_labels_and_text_that_is_left_out_is_named():
    table = operators().assign(fast=lambda rows: np.where(rows["latency"] > 50, "yes", "no"))
    problem = own_problem(table, "fast", "op")
    assert problem.classes == ("no", "yes")
    assert any("kind" in note and "no numbers" in note for note in problem.notes)
