"""The reproduction of the published study: its numbers, verdicts, files and command."""

import contextlib
import importlib.metadata
import json
import os
import re
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from collectors.workloads.yolov4_tiny.darknet import builtin_cfg
from collectors.workloads.yolov4_tiny.network import build_network
from perfml.cli import app
from perfml.errors import InputError, PerfmlError
from perfml.ingest.profiles import ingest
from perfml.metrics import PUBLISHED
from perfml.report.render.text import table_text
from perfml.report.tables import value_table
from perfml.reproduce import VERDICTS, Plan, public_runs, reproduce, write
from perfml.reproduce.chapter import device_table, engine_steps, filter_cross, fusion_table
from perfml.reproduce.claims import (
    CARRIES,
    DOES_NOT_CARRY,
    ELSEWHERE,
    NOT_REPRODUCED,
    NOT_TESTABLE,
    REPRODUCED,
    SPREAD,
    by_share,
    percent,
)
from perfml.reproduce.files import (
    SCORE_COLUMNS,
    SCORE_SPARE,
    claim_lines,
    data_notes,
    headline,
    score_lines,
)
from perfml.reproduce.published import CONSTANT, RANGES, SHAPES
from perfml.reproduce.source import find_recording
from perfml.reproduce.splits import OWN, studied_model
from perfml.reproduce.summary import ordered_top
from tests.support.paths import PUBLIC, ROOT
from tests.support.published_data import synthetic

pytestmark = pytest.mark.long

QUICK = Plan(splits=4, model_seeds=2, own_splits=2, n_jobs=1)


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


def verdict(found, start):
    return next(claim for claim in found.claims if claim.claim.startswith(start))


def test_results_have_the_documented_shape(found):
    results = found.results
    assert results["data"].keys() >= {"rows", "conditions", "distinct_feature_rows", "sha256"}
    assert len(results["data"]["sha256"]) == 64
    assert [set(row) for row in results["ranges"]] == [
        {"metric", "published", "file", "match"}
    ] * 21
    assert results["regression"].keys() >= {"dt", "gbr", "lmt"}
    for entry in results["regression"].values():
        assert entry["random"].keys() >= {"median", "q025", "q975", "splits"}
        assert entry.keys() >= {"published_mape", "percentile_of_published", "leave_one_layer_out"}
        assert set(entry["top3"][0]) >= {"metric", "probability"}
    for name in ("dt", "gbr", "lmt"):
        entry = results["regression"][name]
        assert len(entry["published_top3"]) == 3
        assert 0 <= entry["published_top3_share"] <= 1
        assert 0 <= entry["percentile_of_published"] <= 100
    assert results["classification"].keys() >= {"dt", "lr", "rf", "lr:0.1"}
    for entry in results["classification"].values():
        assert entry["random"].keys() >= {"median", "share_perfect"}
        assert "published_accuracy" in entry
    assert results["lookup_gld_mape"] > 0
    assert {claim["verdict"] for claim in results["claims"]} <= set(VERDICTS)
    assert all(claim["evidence"].endswith(".") for claim in results["claims"])
    json.dumps(results, allow_nan=False)


def test_a_file_of_another_hash_is_said_to_be_another_file(found):
    assert not found.results["data"]["original"]
    assert any("not the file of the study" in note for note in found.notes)


def test_claims_about_unknown_layers_are_not_testable(found):
    assert found.results["data"]["layers"] == []
    assert found.results["regression"]["dt"]["leave_one_layer_out"] is None
    for start in ("The scores carry over", "TensorRT is fastest, cuDNN", "TensorRT with INT8"):
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


def test_every_table_and_figure_is_written_as_csv_and_png(written):
    folder, files = written
    names = {path.name for path in files}
    tables = ("1", "2", "3", "3_cells", "4", "5", "6")
    drawn = ("1", "2", "3_fp32", "3_int8", "4", "5", "5_layer_20", "6", "7")
    parts = [*(f"table_2_{n}" for n in tables), *(f"figure_2_{n}" for n in drawn)]
    assert names >= {f"{part}.{end}" for part in parts for end in ("csv", "png")}
    assert names >= {"results.json", "report.html", "verdicts.csv"}
    assert all((folder / f"{part}.png").read_bytes()[:4] == b"\x89PNG" for part in parts)
    assert not [path for path in folder.iterdir() if path.name.endswith(".tmp")]
    assert json.loads((folder / "results.json").read_text())["data"]["rows"] == 84


def test_the_report_needs_nothing_from_outside_and_holds_every_verdict(written, found):
    page = (written[0] / "report.html").read_text(encoding="utf-8")
    assert "http" not in page.replace("http-equiv", "")
    assert page.count('<td class="v ') == len(found.claims)


def test_layers_and_kernels_are_judged_on_the_recording(found):
    assert verdict(found, "Structures of layers 3 and 20").verdict == REPRODUCED
    assert verdict(found, "Which layers have which filter size").verdict == REPRODUCED
    claim = verdict(found, "cuDNN is faster than cuBLAS in every layer")
    assert claim.verdict == DOES_NOT_CARRY
    assert claim.data.startswith("h200")
    assert "NVIDIA H200, cuBLAS of CUDA 13.0, cuDNN 9.19, torch 2.11.0" in claim.data


def test_what_was_judged_on_another_gpu_is_never_called_reproduced(found):
    of_the_network = {"Structures of layers 3 and 20", "Which layers have which filter size"}
    for claim in found.claims:
        elsewhere = claim.data != found.source.name and not claim.claim.startswith(
            tuple(of_the_network)
        )
        if elsewhere:
            assert claim.verdict in (CARRIES, DOES_NOT_CARRY, NOT_TESTABLE, ELSEWHERE), claim
        else:
            assert claim.verdict not in (CARRIES, DOES_NOT_CARRY), claim


def test_what_was_read_in_a_public_profile_is_said_to_be_computed_nowhere(found):
    constants = [claim for claim in found.claims if claim.data == public_runs.SOURCE]
    assert len(constants) == 4
    assert {claim.verdict for claim in constants} == {ELSEWHERE}
    assert [claim for claim in found.claims if claim.verdict == ELSEWHERE] == constants


def test_kernels_of_cublas_and_filters_are_judged_with_their_numbers(found):
    copies = verdict(found, "im2col is bound by memory bandwidth alone")
    product = verdict(found, "SGEMM uses memory and compute units in balance")
    assert "layer 3: DRAM busy" in copies.evidence
    assert "layer 20:" in product.evidence
    filters = verdict(found, "Fast layers tend to have more than 128 filters")
    assert "of 5 fast layers" in filters.evidence


def test_the_device_stands_beside_the_studys_and_layers_in_the_cells_of_table_2_3(found):
    device = device_table(found.network["about"]).set_index("what")
    assert device.loc["multiprocessors"].tolist() == ["6", "132"]
    assert device.loc["cuDNN"].tolist() == ["8.4", "9.19"]
    assert device_table({})["recording"].str.startswith("not recorded").all()
    cells = filter_cross(found.network["filters"]).set_index("input_channels")
    numbers = sorted(
        int(word)
        for text in cells[["3x3", "1x1"]].to_numpy().ravel()
        for word in re.findall(r"\d+", text)
    )
    assert numbers == list(range(1, 22))
    assert sum(text.count("(slow)") for text in cells[["3x3", "1x1"]].to_numpy().ravel()) == 5


def test_every_layer_of_the_network_is_in_a_step_of_every_engine():
    document = engine_steps()
    named = {layer.name for layer in build_network(builtin_cfg(2)).layers}
    for precision, steps in document["engines"].items():
        inside = {name for _, *layers in steps for name in layers}
        assert inside <= named, precision
        assert {f"conv_{number:02d}" for number in SHAPES} <= inside
    table = fusion_table(document)
    assert len(table) == sum(len(steps) for steps in document["engines"].values())


@pytest.mark.slow
def test_the_engines_steps_are_those_that_are_built_here():
    if not list(find_distribution("tensorrt-rtx-cu13-bindings", "onnx")):
        pytest.skip("needs TensorRT for RTX and onnx")
    from studies.seeds.engine import STEPS, document

    assert STEPS.read_text(encoding="utf-8") == document()


@pytest.mark.skipif(not PUBLIC.is_dir(), reason="public profiles may be read, not committed")
def test_the_public_profile_of_tensorrt_shows_what_is_said_of_it():
    table = ingest([PUBLIC / "yolov4tiny_trt_jetson_nano.nvvp"]).frame
    assert len(table) == public_runs.KERNELS
    assert round(table["time_us"].sum()) == public_runs.TOTAL_US
    number = table["layer"].str.extract(r"/(?:PWN\()?(\d{3})_convolutional", expand=False)
    convolutions = table[number.notna() & ~table["layer"].str.contains("PWN|Reformat")]
    assert len(convolutions) == public_runs.CONVOLUTIONS
    assert convolutions["layer"].str.contains("_bn").sum() == public_runs.NORMALISED
    winograd = convolutions[convolutions["kernel"].str.contains("winograd")]
    assert len(winograd) == public_runs.WINOGRAD
    ours = dict(zip(convolutions["layer"], SHAPES, strict=True))
    assert {
        (SHAPES[ours[layer]].size, SHAPES[ours[layer]].stride) for layer in winograd["layer"]
    } == {(3, 1)}
    assert sum(shape.size == 3 for shape in SHAPES.values()) == public_runs.THREE_BY_THREE
    times = table.assign(number=number).groupby("number")["time_us"]
    slowest = times.sum().nlargest(4)
    numbers = [ours[layer] for layer in convolutions["layer"]]
    by_number = dict(zip(number[convolutions.index], numbers, strict=True))
    assert [by_number[each] for each in slowest.index] == [
        one.number for one in public_runs.SLOWEST
    ]
    assert [round(each / 10) for each in slowest] == [
        round(one.time_us / 10) for one in public_runs.SLOWEST
    ]
    assert public_runs.THIRD in convolutions["kernel"].iloc[2]
    assert not table["layer"].str.contains("route").any()


def find_distribution(*names):
    for name in names:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            yield importlib.metadata.distribution(name)


def test_without_a_recording_its_claims_are_not_testable(made, monkeypatch):
    monkeypatch.setattr("perfml.reproduce.run.find_recording", lambda: None)
    alone = reproduce(made, plan=Plan(splits=2, own_splits=1, n_jobs=1))
    claim = verdict(alone, "Layer 3 under cuDNN")
    assert claim.verdict == NOT_TESTABLE
    assert "No recording" in claim.evidence


def test_a_recording_that_cannot_be_read_is_passed_over_or_named(made, monkeypatch, tmp_path):
    from perfml.reproduce import source

    (tmp_path / "notes.md").write_text("nothing recorded yet")
    whole = source.find
    monkeypatch.setattr(
        source, "find", lambda name: tmp_path if name == source.RECORDED[0] else whole(name)
    )
    assert find_recording().name == source.RECORDED[1]
    monkeypatch.setattr(source, "find", lambda name: tmp_path)
    found = reproduce(made, plan=Plan(splits=2, own_splits=1))
    claim = verdict(found, "Layer 3 under cuDNN")
    assert claim.verdict == NOT_TESTABLE
    assert "no profile in this folder" in claim.evidence


def test_the_shapes_are_those_of_the_network_that_is_collected():
    layers = build_network(builtin_cfg(2)).convolutions
    assert len(layers) == len(SHAPES)
    for layer, shape in zip(layers, SHAPES.values(), strict=True):
        told = layer.describe(1, 4)
        assert (told["filters"], told["size"], told["stride"], told["pad"]) == (
            shape.filters,
            shape.size,
            shape.stride,
            shape.pad,
        )
        assert told["input"] == "x".join(map(str, shape.input))
        assert told["output"] == "x".join(map(str, shape.output))


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


def test_a_rare_share_never_rounds_to_never_or_always():
    assert percent(0.0002) == "less than 0.1 %"
    assert percent(0.9996) == "more than 99.9 %"
    assert (percent(0.0), percent(1.0), percent(0.123)) == ("0 %", "100 %", "12.3 %")


def test_fewer_splits_of_our_own_tree_are_said(found):
    assert found.results["regression"][OWN]["random"]["splits"] == 2
    assert any("on 2 of the 4 splits" in note for note in found.results["footnotes"])


def test_a_narrow_terminal_keeps_our_scores(found):
    table = value_table(SCORE_COLUMNS, score_lines(found.results), spare=SCORE_SPARE)
    told = table_text(table, width=60)
    assert "(60 columns: without published, percentile" in told
    scores = found.results["regression"]["dt"]["random"]
    assert f"{scores['median']:.4f}" in told


def test_other_data_of_claims_are_named_once(found):
    told = claim_lines(found)
    marked = [claim for claim, *_ in told if claim.endswith(" *")]
    other = {claim.data for claim in found.claims} - {found.source.name}
    assert len(marked) > 1
    assert not any(name in claim for claim, *_ in told for name in other)
    assert data_notes(found)[0].startswith("* about ")
    assert [note.partition(" about ")[2] for note in data_notes(found)] == list(
        dict.fromkeys(each.data for each in found.claims if each.data in other)
    )


def test_claims_are_counted_in_words_that_agree(found):
    tally = headline(found)[-1]
    assert not re.search(r"(?<!\d)(?:[2-9]|\d\d+) (?:carries|does not carry)", tally)


def test_the_command_prints_verdicts_beside_held_out_layers(made, tmp_path, monkeypatch):
    monkeypatch.setattr("perfml.reproduce.run.find_recording", lambda: None)
    out = tmp_path / "r"
    run = CliRunner().invoke(
        app, ["reproduce", "--data", str(made), "--out", str(out), "--splits", "2", "-q"]
    )
    assert run.exit_code == 0, run.output
    assert "one layer held out" in run.stdout
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
    assert "cannot make this folder" in run.output


def test_the_recording_at_batch_1_has_all_layers():
    recording = find_recording()
    assert recording is not None
    assert set(recording.layers["batch"].dropna()) == {1}
    assert recording.layers["layer"].nunique() == len(SHAPES)


def test_published_ranges_are_those_of_the_19_metrics_type_and_time():
    assert list(RANGES) == [*PUBLISHED, "type", "time"]


def published_file():
    beside = ROOT.parent / "shared" / "data" / "nazir2024_gtx1050ti.csv"
    named = os.environ.get("PERFML_DATA")
    return Path(named) if named else beside


@pytest.mark.slow
@pytest.mark.skipif(not published_file().is_file(), reason="the published file has no licence")
def test_the_published_file_gives_the_measured_numbers(monkeypatch):
    """Bands of 99.8 % for medians over 100 splits, test size 0.3 (shared/reproduction.md)."""
    monkeypatch.setattr("perfml.reproduce.run.find_recording", lambda: None)
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
