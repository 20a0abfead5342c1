"""Chapter 2 beyond its file: layers, kernels and engines, judged on what was recorded."""

import json
import re

import pytest

from collectors.workloads.yolov4_tiny.darknet import builtin_cfg
from collectors.workloads.yolov4_tiny.network import build_network
from perfml.ingest.profiles import ingest
from perfml.reproduce import Plan, write
from perfml.reproduce.claims import (
    CARRIES,
    DOES_NOT_CARRY,
    ELSEWHERE,
    NOT_TESTABLE,
    REPRODUCED,
)
from studies.reproduction import public_runs
from studies.reproduction.chapter import device_table, engine_steps, filter_cross, fusion_table
from studies.reproduction.parts import all_parts
from studies.reproduction.published import SHAPES
from studies.reproduction.study import reproduce
from tests.support.paths import PUBLIC
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
    return folder, write(found.analysis, folder, all_parts(found))


@pytest.mark.slow
def test_every_table_and_figure_is_written_as_csv_and_png(written):
    folder, files = written
    names = {path.name for path in files}
    tables = ("1", "2", "3", "3_cells", "4", "5", "6")
    drawn = ("1", "2", "3_fp32", "3_int8", "4", "5", "5_layer_20", "6", "7")
    parts = [*(f"table_2_{n}" for n in ("5", "6")), *(f"figure_2_{n}" for n in drawn)]
    assert names >= {f"{part}.{end}" for part in parts for end in ("csv", "png")}
    assert names >= {f"table_2_{n}.csv" for n in tables}
    assert names >= {"results.json", "report.html", "verdicts.csv"}
    assert all((folder / f"{part}.png").read_bytes()[:4] == b"\x89PNG" for part in parts)
    assert not [path for path in folder.iterdir() if path.name.endswith(".tmp")]
    assert json.loads((folder / "results.json").read_text())["data"]["rows"] == 84


@pytest.mark.slow
def test_layers_and_kernels_are_judged_on_the_recording(found):
    assert verdict(found, "Structures of layers 3 and 20").verdict == REPRODUCED
    assert verdict(found, "Which layers have which filter size").verdict == REPRODUCED
    claim = verdict(found, "cuDNN is faster than cuBLAS in every layer")
    assert claim.verdict == DOES_NOT_CARRY
    assert claim.data.startswith("h200")
    assert "NVIDIA H200, cuBLAS of CUDA 13.0, cuDNN 9.19, torch 2.11.0" in claim.data


@pytest.mark.slow
def test_what_was_judged_on_another_gpu_is_never_called_reproduced(found):
    of_the_network = {"Structures of layers 3 and 20", "Which layers have which filter size"}
    for claim in found.claims:
        elsewhere = claim.data != found.analysis.source.name and not claim.claim.startswith(
            tuple(of_the_network)
        )
        if elsewhere:
            assert claim.verdict in (CARRIES, DOES_NOT_CARRY, NOT_TESTABLE, ELSEWHERE), claim
        else:
            assert claim.verdict not in (CARRIES, DOES_NOT_CARRY), claim


@pytest.mark.slow
def test_what_was_read_in_a_public_profile_is_said_to_be_computed_nowhere(found):
    constants = [claim for claim in found.claims if claim.data == public_runs.SOURCE]
    assert len(constants) == 4
    assert {claim.verdict for claim in constants} == {ELSEWHERE}
    assert [claim for claim in found.claims if claim.verdict == ELSEWHERE] == constants


@pytest.mark.slow
def test_kernels_of_cublas_and_filters_are_judged_with_their_numbers(found):
    copies = verdict(found, "im2col is bound by memory bandwidth alone")
    product = verdict(found, "SGEMM uses memory and compute units in balance")
    assert "layer 3: DRAM busy" in copies.evidence
    assert "layer 20:" in product.evidence
    filters = verdict(found, "Fast layers tend to have more than 128 filters")
    assert "of 5 fast layers" in filters.evidence


@pytest.mark.slow
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
    named = {layer.name for layer in build_network(builtin_cfg()).layers}
    for precision, steps in document["engines"].items():
        inside = {name for _, *layers in steps for name in layers}
        assert inside <= named, precision
        assert {f"conv_{number:02d}" for number in SHAPES} <= inside
    table = fusion_table(document)
    assert len(table) == sum(len(steps) for steps in document["engines"].values())


@pytest.mark.slow
@pytest.mark.extras
def test_the_engines_steps_are_those_that_are_built_here():
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


def test_without_a_recording_its_claims_are_not_testable(made, monkeypatch):
    monkeypatch.setattr("studies.reproduction.study.find_recording", lambda: None)
    alone = reproduce(made, plan=Plan(splits=2, own_splits=1, n_jobs=1))
    claim = verdict(alone, "Layer 3 under cuDNN")
    assert claim.verdict == NOT_TESTABLE
    assert "No recording" in claim.evidence


@pytest.mark.slow
def test_a_recording_that_cannot_be_read_is_named(made, monkeypatch, tmp_path):
    (tmp_path / "notes.md").write_text("nothing recorded yet")
    monkeypatch.setattr("perfml.reproduce.published.find", lambda name: tmp_path)
    found = reproduce(made, plan=Plan(splits=2, own_splits=1))
    claim = verdict(found, "Layer 3 under cuDNN")
    assert claim.verdict == NOT_TESTABLE
    assert "no profile in this folder" in claim.evidence
