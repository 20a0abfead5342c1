"""The design matrix says what it leaves out; undefined metrics stay undefined until training."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from perfml.datasets.published import COLUMNS, from_published, to_published
from perfml.errors import InputError, PerfmlError, TableError
from perfml.metrics import PUBLISHED
from perfml.modeling import (
    average_repeats,
    build_design,
    build_problem,
    shapes_of_runs,
    with_shapes,
)
from perfml.modeling.models.own import builtin_importance
from perfml.modeling.models.registry import get_model, imputed_owners, make_imputer
from perfml.modeling.scoring.folds import prepare
from perfml.modeling.scoring.protocols import make_target
from tests.support.modeling_data import linear_layers, six_conditions


def test_constant_missing_and_undefined_metrics_are_left_out_with_the_reason():
    layers = six_conditions().drop(columns="stall_sync")
    layers["gst_efficiency"] = np.nan
    design = build_design(layers)
    assert design.dropped == {
        "special_fu_utilization": "constant: always 0.1",
        "stall_sync": "not in the table",
        "gst_efficiency": "undefined in every row",
    }
    assert len(design.names) == 16
    assert design.values.shape == (120, 16)


def test_a_metric_that_is_constant_where_defined_is_kept():
    layers = six_conditions()
    layers["gst_efficiency"] = np.where(layers["backend"] == "trt", np.nan, 1.0)
    assert "gst_efficiency" in build_design(layers).names


def test_the_collected_set_leaves_out_rates_because_they_contain_the_time():
    layers = linear_layers()
    layers["gld_throughput"] = 1.0 / layers["time_us"]
    layers["ipc"] = np.linspace(0, 1, len(layers))
    design = build_design(layers, "collected")
    assert "ipc" in design.names
    assert "time" in design.dropped["gld_throughput"]


def test_no_feature_left_is_an_error_that_says_why():
    layers = linear_layers().assign(stall_sync=1.0)
    with pytest.raises(PerfmlError, match="constant: always 1"):
        build_design(layers, ["stall_sync"])
    with pytest.raises(PerfmlError, match="no feature set"):
        build_design(layers, "everything")
    with pytest.raises(TableError, match="infinite"):
        build_design(layers.assign(stall_sync=np.inf))
    with pytest.raises(TableError, match="numbers"):
        build_design(layers, ["backend"])


def test_imputation_uses_the_training_median_and_flags_undefined_cells():
    layers = linear_layers()
    layers.loc[layers["backend"] == "trt", "gld_efficiency"] = np.nan
    problem = build_problem(layers)
    column = problem.design.names.index("gld_efficiency")
    train, test = np.arange(0, 40), np.arange(40, 72)
    prepared = prepare(problem, train, test)
    assert not np.isnan(prepared.train).any()
    assert not np.isnan(prepared.test).any()
    median = np.nanmedian(problem.design.values[train, column])
    undefined = np.isnan(problem.design.values[test, column])
    assert np.all(prepared.test[undefined, column] == median)
    assert list(prepared.owners) == [*range(19), column]
    assert np.array_equal(prepared.test[:, -1].astype(bool), undefined)


def test_the_importance_of_an_indicator_is_its_metrics():
    layers = linear_layers()
    undefined = layers["backend"] == "trt"
    layers["gld_efficiency"] = np.where(undefined, np.nan, 0.5)
    layers["time_us"] = np.where(undefined, 900.0, 100.0)
    problem = build_problem(layers)
    imputer = make_imputer().fit(problem.design.values)
    model = get_model("dt", "regression").make(0)
    model.fit(imputer.transform(problem.design.values), problem.truth)
    owners = imputed_owners(imputer, len(problem.design.names))
    importance = builtin_importance(model, owners, len(problem.design.names))
    assert problem.design.names[int(importance.argmax())] in (
        "gld_efficiency",
        "tex_fu_utilization",
    )
    assert importance.sum() == pytest.approx(1.0)
    only_gld = build_problem(layers, features=["gld_efficiency"])
    imputer = make_imputer().fit(only_gld.design.values)
    model = model.fit(imputer.transform(only_gld.design.values), only_gld.truth)
    assert list(builtin_importance(model, imputed_owners(imputer, 1), 1)) == [1.0]


def test_too_little_data_is_an_error():
    layers = six_conditions()
    with pytest.raises(PerfmlError, match="too few rows"):
        build_problem(layers.head(3))
    with pytest.raises(PerfmlError, match="at least two backends"):
        build_problem(layers[layers["backend"] == "trt"], "classification")
    with pytest.raises(TableError, match="no backend"):
        build_problem(layers.assign(backend=None), "classification")
    with pytest.raises(PerfmlError, match="no task"):
        build_problem(layers, "clustering")
    with pytest.raises(TableError, match="row 5"):
        build_problem(layers.assign(time_us=layers["time_us"].mask(layers.index == 5, 0.0)))


@pytest.mark.parametrize("name", ["time", "log-time", "time-per-flop", "time-per-byte"])
def test_a_target_and_its_inverse_cancel(name):
    layers = linear_layers().assign(
        flops=lambda t: t["time_us"] * 3e6, input_bytes=1e5, weight_bytes=2e5, output_bytes=3e5
    )
    target = make_target(name, layers)
    rows = np.arange(5, 25)
    time = layers["time_us"].to_numpy()[rows] / 1000
    assert np.allclose(target.inverse(target.forward(time, rows), rows), time)


def test_a_target_without_its_shapes_is_an_error():
    with pytest.raises(TableError, match="shapes"):
        make_target("time-per-flop", linear_layers())
    with pytest.raises(TableError, match="positive"):
        make_target("time-per-flop", linear_layers().assign(flops=0))


def write_published(path, layers):
    to_published(layers).to_csv(path, index=False)
    return path


def published_layers():
    layers = six_conditions(repeats=3)
    layers["kernels"] = 1
    layers["kernel_names"] = "gemm"
    layers["device"] = "GPU"
    layers["compute_capability"] = "6.1"
    return layers


def test_the_published_schema_survives_a_round_trip(tmp_path):
    layers = published_layers()
    layers.loc[4, "gld_efficiency"] = np.nan
    path = write_published(tmp_path / "dataset.csv", layers)
    assert path.read_text().splitlines()[0] == ",".join(COLUMNS)
    with pytest.warns(UserWarning, match="layers of .* are unknown"):
        again = from_published(path)
    assert list(again["backend"]) == list(layers["backend"])
    assert again["layer"].isna().all()
    pd.testing.assert_frame_equal(
        again[[*PUBLISHED, "time_us"]], layers[[*PUBLISHED, "time_us"]], check_exact=True
    )


@pytest.mark.parametrize(
    ("change", "where", "what"),
    [
        (lambda text: text.replace(",time\n", ",duration\n"), ":1", "schema"),
        (lambda text: text.replace("gld_efficiency", "gst_efficiency", 1), ":1", "schema"),
        (lambda text: text[: text.rindex(",")], ":19", "21 cells"),
        (lambda text: text.replace("trt,0.", "trt,x0.", 1), ":2, column warp_execution", "number"),
        (
            lambda text: text.rstrip("\n").rpartition(",")[0] + ",-3\n",
            ":19, column time",
            "positive",
        ),
        (lambda text: text.replace("trt,", " ,", 1), ":2, column type", "type"),
        (lambda text: text.splitlines()[0], "", "no rows"),
        (lambda text: "", ":1", "schema"),
    ],
)
def test_a_broken_published_file_names_line_and_column(tmp_path, change, where, what):
    path = write_published(tmp_path / "dataset.csv", published_layers())
    path.write_text(change(path.read_text()))
    with pytest.raises(InputError, match=what) as error:
        from_published(path)
    assert where in str(error.value.where)


def test_a_published_file_in_another_encoding_is_an_error(tmp_path):
    path = tmp_path / "dataset.csv"
    path.write_bytes(b"type,\xff\n")
    with pytest.raises(InputError, match="UTF-8"):
        from_published(path)


def shapes_of(layers, **changes):
    names = layers["layer"].unique()
    table = pd.DataFrame({"name": names, "flops": np.arange(1, len(names) + 1) * 1e6})
    return table.assign(weight_bytes=1e4, input_bytes=2e4, output_bytes=1e4).assign(**changes)


def test_shapes_are_joined_by_layer_and_batch():
    layers = linear_layers(layers=3)
    layers["batch"] = pd.array(layers["batch"], dtype="Int64")
    table = shapes_of(layers)
    shapes = pd.concat([table.assign(batch=1), table.assign(batch=8, flops=-0.0)])
    joined = with_shapes(layers, shapes.to_dict("records"))
    assert list(joined["flops"].unique()) == [1e6, 2e6, 3e6]
    assert joined["arithmetic_intensity"].iloc[0] == 25.0
    assert "flops" not in layers.columns
    assert "flops" in build_design(joined, "before-run").names


def test_shapes_of_runs_are_taken_from_the_provenance():
    layers = linear_layers(layers=3, repeats=1)
    records = shapes_of(layers).to_dict("records")
    provenance = {"runs": [{"run_id": "run_0", "layers": records}, {"run_id": "other"}]}
    joined = with_shapes(layers, shapes_of_runs(provenance))
    assert joined["flops"].notna().all()
    assert with_shapes(layers, shapes_of_runs({"layers": records})).equals(joined)
    assert shapes_of_runs({"sources": []}) is None


def test_shapes_that_cannot_be_meant_are_errors():
    layers = linear_layers(layers=3)
    with pytest.raises(TableError, match="lack flops"):
        with_shapes(layers, shapes_of(layers).drop(columns="flops"))
    with pytest.raises(TableError, match="two shapes for one layer: conv_00"):
        with_shapes(layers, pd.concat([shapes_of(layers)] * 2))
    with pytest.raises(TableError, match="negative"):
        with_shapes(layers, shapes_of(layers, flops=-1))
    with pytest.raises(PerfmlError, match="no layer of the table"):
        with_shapes(layers, shapes_of(layers).assign(name=["a", "b", "c"]))


def test_layers_that_compute_the_same_are_one_shape():
    layers = linear_layers(layers=4)
    shapes = shapes_of(layers).assign(flops=[1e6, 2e6, 1e6, 3e6])
    problem = build_problem(with_shapes(layers, shapes))
    shape_of = dict(zip(problem.layer_names, problem.shape, strict=True))
    assert shape_of["conv_00"] == shape_of["conv_02"]
    assert len(set(shape_of.values())) == 3
    assert (build_problem(layers).shape == -1).all()


def test_repeats_are_averaged_by_condition():
    layers = six_conditions(repeats=5)
    layers.loc[0, "stall_sync"] = np.nan
    means = average_repeats(layers)
    assert len(means) == 6
    first = layers[(layers["layer"] == "conv_03") & (layers["backend"] == "trt")]
    assert means["time_us"].iloc[0] == pytest.approx(first["time_us"].mean())
    assert means["stall_sync"].iloc[0] == pytest.approx(first["stall_sync"].mean())
    assert list(means["backend"]) == list(layers["backend"].drop_duplicates()) * 2
