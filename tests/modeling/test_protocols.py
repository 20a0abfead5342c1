"""Splitters keep together what belongs together, and work inside scikit-learn."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfml.errors import PerfmlError
from perfml.modeling import build_problem, make_protocol
from perfml.modeling.features import SHAPE_AMOUNTS
from perfml.modeling.own_data import twin_codes
from perfml.modeling.scoring.protocols import PROTOCOLS, group_folds
from tests.support.modeling_data import networks_with_law, six_conditions


def test_every_protocol_tests_rows_it_did_not_train_on():
    problem = build_problem(networks_with_law(networks=3), features="before-run")
    for name in PROTOCOLS:
        protocol = make_protocol(name, problem, splits=3)
        for train, test in protocol.splits:
            assert len(test)
            assert not np.intersect1d(train, test).size
            assert len(train) + len(test) == problem.rows, name


@pytest.mark.parametrize(
    ("name", "columns", "splits"),
    [
        ("leave-one-layer-out", ["layer"], 2),
        ("leave-one-condition-out", ["backend", "layer"], 6),
        ("by-run", ["run_id", "iteration"], 10),
    ],
)
def test_groups_of_a_layers_table_are_never_split(name, columns, splits):
    layers = six_conditions()
    label = layers[columns].astype(str).agg("/".join, axis=1)
    found = make_protocol(name, build_problem(layers)).splits
    assert len(found) == splits
    for train, test in found:
        assert not set(label.iloc[train]) & set(label.iloc[test])


@pytest.mark.parametrize(
    ("name", "column"), [("network", "workload"), ("kind", "kind"), ("device", "device")]
)
def test_networks_kinds_and_gpus_are_left_out_whole(name, column):
    layers = networks_with_law(networks=3)
    protocol = make_protocol(f"leave-one-{name}-out", build_problem(layers, features="before-run"))
    held_out = [set(layers[column].iloc[test]) for _, test in protocol.splits]
    assert [len(each) for each in held_out] == [1] * layers[column].nunique()
    for train, test in protocol.splits:
        assert not set(layers[column].iloc[train]) & set(layers[column].iloc[test])


def test_a_shape_that_two_networks_have_is_left_out_of_both():
    layers = networks_with_law(networks=3)
    amounts = list(SHAPE_AMOUNTS)
    other = layers["workload"] != layers["workload"].iloc[0]
    twin = layers[other].iloc[0].copy()
    twin[amounts] = layers[amounts].iloc[0].to_numpy()
    twin["layer"] = "twin"
    layers = pd.concat([layers, twin.to_frame().T.astype(layers.dtypes)], ignore_index=True)
    shape = build_problem(layers, features="before-run").shape
    assert shape[-1] == shape[0]


def test_groups_are_dealt_out_into_as_many_folds_as_asked():
    problem = build_problem(networks_with_law(networks=3), features="before-run")
    folds = make_protocol("leave-one-layer-out:4", problem).splits
    assert len(folds) == 4
    for train, test in folds:
        assert not set(problem.layer[train]) & set(problem.layer[test])
    with pytest.raises(PerfmlError, match="number of folds"):
        make_protocol("leave-one-layer-out:x", problem)


def test_no_twin_leaves_no_copy_of_a_test_row_in_training():
    rng = np.random.default_rng(0)
    X = rng.integers(0, 3, size=(200, 3)).astype(float)
    X[rng.random(X.shape) < 0.1] = np.nan
    rows = [tuple(np.nan_to_num(row, nan=-1.0)) for row in X]
    splits = group_folds(twin_codes(X), 5)
    assert len(splits) == 5
    for train, test in splits:
        assert not {rows[i] for i in train} & {rows[i] for i in test}


@given(
    st.lists(
        st.lists(st.sampled_from([0.0, -0.0, 1.0, float("nan")]), min_size=2, max_size=2),
        min_size=1,
        max_size=30,
    )
)
def test_rows_have_one_code_exactly_if_their_features_are_equal(rows):
    codes = twin_codes(np.array(rows))
    plain = [tuple("nan" if value != value else value + 0.0 for value in row) for row in rows]
    for i in range(len(rows)):
        for j in range(len(rows)):
            assert (codes[i] == codes[j]) == (plain[i] == plain[j])


@pytest.mark.parametrize("name", ["kfold", "random:2", "random:x", "by-run:3"])
def test_unknown_protocols_are_named(name):
    with pytest.raises(PerfmlError) as error:
        make_protocol(name, build_problem(six_conditions()))
    assert name in str(error.value)
