"""The leakage detector tells a lookup from learning, and the baselines are what they say."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfml.errors import PerfmlError
from perfml.modeling import build_problem, detect_leakage, make_protocol
from perfml.modeling.scoring.baselines import Lookup, best_metric, predict_baseline
from tests.support.modeling_data import linear_layers, six_conditions


def test_six_conditions_are_a_lookup():
    leakage = detect_leakage(build_problem(six_conditions()))
    assert leakage.rows == 120
    assert leakage.conditions == 6
    assert leakage.lookup_metric == "gld_efficiency"
    assert leakage.identifying_metrics == ("gld_efficiency",)
    assert leakage.variance_explained > 0.999
    assert "lookup table on gld_efficiency" in leakage.warning
    assert "6 conditions" in leakage.warning


def test_rows_that_each_have_their_own_time_are_no_lookup():
    layers = linear_layers(layers=60, repeats=1)
    layers["layer"] = [f"conv_{i}" for i in range(len(layers))]
    leakage = detect_leakage(build_problem(layers))
    assert leakage.conditions == 180
    assert leakage.twin_share == 0.0
    assert leakage.identifying_metrics == ()
    assert leakage.warning is None


def test_exact_copies_are_twins():
    layers = linear_layers(repeats=3)
    problem = build_problem(layers)
    leakage = detect_leakage(problem)
    assert leakage.distinct_feature_rows == 36
    # a row has two copies; both are in the test set as well in about 0.3 * 0.3 of splits
    assert leakage.twin_share == pytest.approx(0.91, abs=0.04)


def test_the_variance_that_conditions_explain_is_one_minus_the_share_within():
    layers = linear_layers(repeats=2)
    layers["time_us"] = np.tile([90.0, 110.0], 36) + np.repeat(np.arange(36) * 10.0, 2)
    time = layers["time_us"].to_numpy()
    expected = 1 - 100.0 / time.var()
    assert detect_leakage(build_problem(layers)).variance_explained == pytest.approx(expected)


def test_baselines_are_means_of_their_training_rows():
    layers = six_conditions()
    problem = build_problem(layers)
    train, test = make_protocol("random", problem, splits=1).splits[0]
    time = layers["time_us"] / 1000
    by_condition = time.iloc[train].groupby([layers["layer"], layers["backend"]]).mean()
    by_backend = time.iloc[train].groupby(layers["backend"]).mean()
    keys = list(zip(layers["layer"].iloc[test], layers["backend"].iloc[test], strict=True))
    found = {
        name: predict_baseline(name, problem, train, test)
        for name in ("training-mean", "backend-mean", "condition-mean", "lookup")
    }
    assert np.allclose(found["training-mean"], time.iloc[train].mean())
    assert np.allclose(found["condition-mean"], [by_condition[key] for key in keys])
    assert np.allclose(found["backend-mean"], [by_backend[backend] for _, backend in keys])
    # here gld_efficiency names the condition, so its lookup table is the table of conditions
    assert np.allclose(found["lookup"], found["condition-mean"])


def test_a_lookup_on_a_metric_that_is_not_there_is_an_error():
    problem = build_problem(six_conditions())
    with pytest.raises(PerfmlError, match="special_fu_utilization"):
        predict_baseline("lookup:special_fu_utilization", problem, np.arange(9), np.arange(9, 12))


@given(
    st.lists(st.tuples(st.integers(0, 8), st.floats(1, 9)), min_size=1, max_size=20),
    st.lists(st.floats(-2, 10), min_size=1, max_size=20),
)
def test_a_lookup_answers_with_the_mean_at_the_nearest_value(rows, asked):
    values = np.array([float(value) for value, _ in rows])
    truth = np.array([time for _, time in rows])
    answers = Lookup.fit(values, truth, "regression").predict(np.array(asked))
    for value, answer in zip(asked, answers, strict=True):
        distance = np.abs(values - value)
        nearest = values[distance == distance.min()]
        candidates = [truth[values == key].mean() for key in set(nearest)]
        assert any(answer == pytest.approx(mean) for mean in candidates)


def test_a_lookup_keeps_undefined_apart():
    values = np.array([np.nan, np.nan, 1.0, 2.0])
    table = Lookup.fit(values, np.array([9.0, 7.0, 1.0, 2.0]), "regression")
    assert list(table.predict(np.array([np.nan, 0.0, 100.0]))) == [8.0, 1.0, 2.0]


def test_the_best_metric_is_chosen_with_each_row_left_out():
    rng = np.random.default_rng(0)
    truth = np.repeat([1.0, 2.0, 3.0], 30) * rng.normal(1, 0.01, 90)
    names_condition = np.repeat([0.1, 0.2, 0.3], 30)
    names_row = rng.permutation(90) / 90.0  # a different value in every row explains nothing
    values = np.column_stack([names_row, names_condition])
    assert best_metric(values, truth, "regression") == 1
    assert best_metric(values, np.repeat([0, 1, 2], 30), "classification") == 1


def test_rows_without_repeats_are_not_called_repeats():
    layers = six_conditions(repeats=1)
    layers = pd.concat(
        [layers.assign(layer=layers["layer"] + f"_{index}") for index in range(7)],
        ignore_index=True,
    )
    found = detect_leakage(build_problem(layers))
    assert found.rows == found.conditions == 42
    assert "repeats" not in found.warning
    assert "No condition was measured twice" in found.warning
