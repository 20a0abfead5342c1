"""The reproduction of the published study: its numbers, verdicts, files and command."""

import html
import json
import os
import re
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from perfml.cli import app
from perfml.errors import InputError, PerfmlError
from perfml.metrics import PUBLISHED
from perfml.report.render.text import to_text
from perfml.reproduce import Plan, reproduce, write
from perfml.reproduce.claims import (
    NOT_REPRODUCED,
    NOT_TESTABLE,
    REPRODUCED,
    SPREAD,
    by_share,
)
from perfml.reproduce.files import reproduction_document
from perfml.reproduce.published import CONSTANT, RANGES
from perfml.reproduce.splits import OWN, studied_model
from perfml.reproduce.summary import ordered_top
from tests.support.paths import ROOT
from tests.support.published_data import QUICK, synthetic, verdict

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    path = tmp_path_factory.mktemp("made") / "dataset.csv"
    synthetic().to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def found(made):
    return reproduce(made, plan=QUICK)


@pytest.fixture(scope="module")
def written(found, tmp_path_factory):
    folder = tmp_path_factory.mktemp("out") / "deep" / "r"
    return folder, write(found, folder)


def test_a_file_of_another_hash_is_said_to_be_another_file(found):
    assert not found.results["data"]["original"]
    assert any("not the file of the study" in note for note in found.notes)


def test_every_claim_is_about_the_file(found):
    assert len(found.claims) > 15
    assert {claim.data for claim in found.claims} == {found.source.name}


def test_claims_about_unknown_layers_are_not_testable(found):
    assert found.results["data"]["layers"] == []
    assert found.results["regression"]["dt"]["leave_one_layer_out"] is None
    for start in ("The scores carry over", "TensorRT is fastest, cuDNN"):
        claim = verdict(found, start)
        assert claim.verdict == NOT_TESTABLE
        assert claim.evidence


def test_constant_columns_and_wrong_ranges_are_found_in_any_file(found):
    assert verdict(found, "three metrics never change").verdict == REPRODUCED
    claim = verdict(found, "21 value ranges")
    assert claim.verdict == NOT_REPRODUCED
    assert "different: " in claim.evidence
    row = next(row for row in found.results["ranges"] if row["metric"] == "gld_efficiency")
    assert row == {
        "metric": "gld_efficiency",
        "published": [0.54, 0.94],
        "file": [0.54, 0.94],
        "match": True,
    }


def test_a_lookup_that_matches_the_models_is_said_at_the_top(found):
    assert found.results["lookup_gld_mape"] < 0.03
    assert "look" in found.results["leakage"]["warning"]
    assert "gld_efficiency" in found.results["data"]["identifying_metrics"]


@pytest.mark.slow
def test_tables_and_figures_of_the_file_are_written_as_csv_and_png(written):
    folder, files = written
    names = {path.name for path in files}
    parts = ["table_2_5", "table_2_6", "figure_2_1", "figure_2_6", "figure_2_7"]
    assert names >= {f"{part}.{end}" for part in parts for end in ("csv", "png")}
    assert "table_2_2.csv" in names
    assert names >= {"results.json", "report.html", "verdicts.csv"}
    assert all((folder / f"{part}.png").read_bytes()[:4] == b"\x89PNG" for part in parts)
    assert not [path for path in folder.iterdir() if path.name.endswith(".tmp")]
    assert json.loads((folder / "results.json").read_text())["data"]["rows"] == 84


def test_the_report_needs_nothing_from_outside_and_holds_every_verdict(written, found):
    page = (written[0] / "report.html").read_text(encoding="utf-8")
    assert "src=" not in page
    assert "<link" not in page.replace('<link rel="icon" href="data:,">', "")
    text = html.unescape(re.sub("<[^>]*>", "", page)).replace("\xa0", " ")
    assert all(claim.evidence in text for claim in found.claims)
    assert page.count("<svg") >= 5


def test_trying_each_partition_once_gives_the_very_tree_of_linear_tree():
    frame = synthetic(1)
    x = frame[[name for name in PUBLISHED if name not in CONSTANT]].to_numpy()
    y = frame["time"].to_numpy() / 1000
    plain = studied_model("lmt:linear-tree", "regression").make(0).fit(x, y)
    ours = studied_model("lmt", "regression").make(0).fit(x, y)
    assert np.array_equal(plain.feature_importances_, ours.feature_importances_)
    assert np.array_equal(plain.predict(x), ours.predict(x))
    assert ours.base_estimator.state["equal"]
    assert len(ours._leaves) > 1


def test_a_single_split_can_be_repeated_with_scikit_learn_alone(found):
    from sklearn.model_selection import train_test_split
    from sklearn.tree import DecisionTreeRegressor

    problem = found.regression.problem
    x, y = problem.design.values, problem.time_us / 1000
    for seed in range(3):
        parts = train_test_split(x, y, test_size=0.3, random_state=seed)
        tree = DecisionTreeRegressor(random_state=seed).fit(parts[0], parts[2])
        error = np.mean(np.abs(tree.predict(parts[1]) - parts[3]) / parts[3])
        assert found.regression.random["dt"].score[seed] == pytest.approx(error, abs=1e-12)


def test_a_metric_without_importance_is_never_in_a_list():
    top = ordered_top(np.array([[0.0, 0.7, 0.0, 0.3], [0.2, 0.2, 0.5, 0.1]]))
    assert top.tolist() == [[1, 3, -1], [2, 0, 1]]


@pytest.mark.parametrize(
    ("share", "expected"),
    [(1.0, REPRODUCED), (0.95, REPRODUCED), (0.94, SPREAD), (0.05, SPREAD), (0.04, NOT_REPRODUCED)],
)
def test_verdicts_follow_the_share_of_splits(share, expected):
    assert by_share(share) == expected


def test_fewer_splits_of_our_own_tree_are_said(found):
    assert found.results["regression"][OWN]["random"]["splits"] == 2
    assert any("on 2 of the 4 splits" in note for note in found.results["footnotes"])


def test_a_narrow_terminal_keeps_our_scores(found):
    told = to_text(reproduction_document(found), width=60)
    scores = found.results["regression"]["dt"]["random"]
    assert f"{scores['median']:.4g}" in told
    assert all(claim.verdict in told for claim in found.claims)


def test_the_command_prints_verdicts_beside_held_out_layers(made, tmp_path):
    out = tmp_path / "r"
    run = CliRunner().invoke(
        app, ["reproduce", "--data", str(made), "--out", str(out), "--splits", "2", "-q"]
    )
    assert run.exit_code == 0, run.output
    assert "unseen" in run.stdout
    assert "not testable on this data" in run.stdout
    assert (out / "results.json").is_file()


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        reproduce(tmp_path / "absent.csv", plan=QUICK)


def test_a_single_split_is_refused(made):
    with pytest.raises(PerfmlError, match="at least two splits"):
        reproduce(made, plan=Plan(splits=1))


def test_a_folder_that_cannot_be_made_is_named_before_any_work(made, tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    arguments = ["reproduce", "--data", str(made), "--out", str(blocked / "r")]
    run = CliRunner().invoke(app, arguments)
    assert run.exit_code == 1
    assert "cannot write here" in run.output


def test_published_ranges_are_those_of_the_19_metrics_type_and_time():
    assert list(RANGES) == [*PUBLISHED, "type", "time"]


def published_file():
    beside = ROOT.parent / "shared" / "data" / "nazir2024_gtx1050ti.csv"
    named = os.environ.get("PERFML_DATA")
    return Path(named) if named else beside


@pytest.mark.slow
@pytest.mark.skipif(not published_file().is_file(), reason="the published file has no licence")
def test_the_published_file_gives_the_measured_numbers():
    """Bands of 99.8 % for medians over 100 splits, test size 0.3 (shared/reproduction.md)."""
    done = reproduce(published_file(), plan=Plan(splits=100, model_seeds=4, own_splits=5))
    results = done.results
    data = results["data"]
    assert (data["rows"], data["conditions"], data["distinct_feature_rows"]) == (261, 6, 135)
    assert data["rows_per_backend"] == {"trt": 87, "cublas": 87, "cudnn": 87}
    assert sorted(row["rows"] for row in data["spread"]) == [41, 41, 43, 44, 46, 46]
    assert round(100 * data["variance_explained_by_conditions"], 2) == 99.66
    assert all(row["match"] for row in results["ranges"])
    models = results["regression"]
    bands = {"dt": (0.0066, 0.0077), "gbr": (0.0059, 0.0069), "lmt": (0.0080, 0.0101)}
    below = {"dt": (0.84, 0.99), "gbr": (0.97, 1.0), "lmt": (0.50, 0.79)}
    for name, (low, high) in bands.items():
        random = models[name]["random"]
        assert low <= random["median"] <= high
        assert below[name][0] <= random["share_below_0.01"] <= below[name][1]
        assert all(fold["min"] > 0.2 for fold in models[name]["leave_one_layer_out"]["folds"])
        inside = random["q025"] <= models[name]["published_mape"] <= random["q975"]
        assert inside
    assert 0.0069 <= results["lookup_gld_mape"] <= 0.0076
    condition = results["baselines"]["regression"]["condition-mean"]["random_median"]
    assert 0.0105 <= condition <= 0.0118
    for name in ("dt", "gbr"):
        assert results["key_metric"]["regression"][name]["first"] == 1.0
    classes = results["classification"]
    assert classes["dt"]["random"]["share_perfect"] >= 0.90
    assert classes["dt"]["random"]["min"] >= 0.95
    assert classes["lr"]["random"]["share_perfect"] == 1.0
    assert classes["rf"]["random"]["share_perfect"] == 1.0
    assert classes["lr:0.1"]["published_top3_share"] == 1.0
    assert 0.49 <= classes["rf"]["published_top3_set_share"] <= 0.78
    assert verdict(done, "262 samples").verdict == NOT_REPRODUCED
    assert verdict(done, "21 value ranges").verdict == REPRODUCED
    assert verdict(done, "MAPE order").verdict == NOT_REPRODUCED
    assert verdict(done, "The scores carry over").verdict == NOT_REPRODUCED
    assert verdict(done, "TensorRT is fastest, cuDNN").verdict == REPRODUCED
    assert verdict(done, "Linear Model Tree: most important").verdict == NOT_REPRODUCED
    assert verdict(done, "Logistic Regression with C = 0.1").verdict == REPRODUCED
