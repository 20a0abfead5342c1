"""The explainable boosting machine: a yardstick behind an extra."""

from __future__ import annotations

import numpy as np
import pytest
from typer.testing import CliRunner

from perfml.cli import app
from perfml.errors import MissingExtraError, PerfmlError
from perfml.modeling import evaluate, make_estimator, rank
from perfml.modeling.models.registry import CLASSIFICATION, REGRESSION, get_model
from perfml.util.installed import install_command
from tests.support.modeling_data import linear_layers

pytestmark = pytest.mark.long


@pytest.fixture
def installed():
    return pytest.importorskip("interpret.glassbox")


@pytest.fixture
def absent(monkeypatch):
    def nothing(name):
        return None

    monkeypatch.setattr("perfml.modeling.models.ebm.find_spec", nothing)


@pytest.mark.slow
def test_it_predicts_layers_it_never_saw_and_names_what_made_the_time(installed, monkeypatch):
    monkeypatch.setattr("perfml.modeling.models.ebm.ROUNDS", 80)
    monkeypatch.setattr("perfml.modeling.models.ebm.BAGS", 2)
    layers = linear_layers(layers=12, repeats=1)
    found = evaluate(
        layers,
        models=["ebm"],
        protocols=["leave-one-layer-out"],
        splits=1,
        importances=True,
        n_jobs=1,
    )
    scores = found.scores.set_index("model")["mean"]
    assert scores["ebm"] < 0.5 * scores["backend-mean"]
    mean = found.importances.groupby("metric")["importance"].mean().sort_values()
    assert set(mean.index[-2:]) == {"dram_utilization", "stall_sync"}
    assert set(found.importances["method"]) == {"term-importance"}


@pytest.mark.slow
def test_it_ranks_and_it_classifies(installed, monkeypatch):
    monkeypatch.setattr("perfml.modeling.models.ebm.ROUNDS", 50)
    monkeypatch.setattr("perfml.modeling.models.ebm.BAGS", 2)
    layers = linear_layers(layers=6, repeats=1)
    ranking = rank(
        layers,
        task="classification",
        models=["ebm"],
        methods=["builtin"],
        resamples=2,
        permutations=20,
        n_jobs=1,
    )
    assert ranking.summary["members"].iloc[0] == "tex_fu_utilization"
    assert set(ranking.table["method"]) == {"term-importance"}


def test_an_undefined_metric_keeps_its_importance_in_one_place(installed):
    layers = linear_layers(layers=6, repeats=1)
    layers.loc[layers.index[::3], "dram_utilization"] = np.nan
    values = layers[["dram_utilization", "stall_sync"]].to_numpy()
    fitted = make_estimator("ebm").fit(values, layers["time_us"])
    from perfml.modeling.models.registry import imputed_owners
    from perfml.modeling.ranking.importance import builtin_importance

    owners = imputed_owners(fitted["imputer"], 2)
    assert list(owners) == [0, 1, 0]
    terms = fitted["model"].term_importances()
    assert builtin_importance(fitted, owners, 2) == pytest.approx([terms[0] + terms[2], terms[1]])


@pytest.mark.parametrize("task", ["regression", "classification"])
def test_without_the_package_the_extra_is_named_before_any_work(absent, task):
    with pytest.raises(MissingExtraError, match=r"pip install '.*\[explain\]'") as caught:
        evaluate(linear_layers(layers=4), task=task, models=["dt", "ebm"])
    assert "explainable boosting machine needs the package interpret-core" in str(caught.value)


def test_without_the_package_the_command_line_says_the_same(absent):
    ran = CliRunner().invoke(app, ["train", "h200-yolov4-tiny", "--model", "ebm"])
    assert ran.exit_code == 1
    assert install_command("explain") in ran.output


def test_it_is_in_no_default_list_and_is_offered_where_a_name_is_wrong():
    for task, names in (("regression", REGRESSION), ("classification", CLASSIFICATION)):
        assert "ebm" not in names
        with pytest.raises(PerfmlError, match="ebm"):
            get_model("ebmm", task)
