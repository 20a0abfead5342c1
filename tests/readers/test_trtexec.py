"""The reader of what trtexec says of an engine's layers."""

from __future__ import annotations

import json

import numpy as np
import pytest

from perfml.errors import InputError
from perfml.explain import advise
from perfml.ingest import ingest
from perfml.readers import Source, read, recognise, trtexec
from perfml.tables import metric_columns
from tests.support.paths import PUBLIC

# As trtexec writes them, with its blanks before the colons and its commas at the front.
PROFILE = """[
  { "count" : 200 }
, { "name" : "Reformat input", "timeMs" : 2.0, "averageMs" : 0.01, "medianMs" : 0.009 }
, { "name" : "Conv_0 + Relu_1", "timeMs" : 60.0, "averageMs" : 0.3, "medianMs" : 0.3 }
, { "name" : "Conv_0 + Relu_1", "timeMs" : 20.0, "averageMs" : 0.1, "medianMs" : 0.1 }
, { "name" : "Dropped", "timeMs" : 0, "averageMs" : 0, "medianMs" : 0 }
]
"""
LAYERS = """{"Layers": [{
  "Name": "Reformat input",
  "LayerType": "Reformat",
  "Inputs": []
},{
  "Name": "Conv_0 + Relu_1",
  "LayerType": "CaskConvolution",
  "TacticName": "sm75_xmma_fprop_implicit_gemm"
}],
"Bindings": ["input", "output"]
}
"""


@pytest.fixture
def readable(tmp_path):
    def reads(text, name="model.profile.json"):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return read(path)

    return reads


def test_each_layer_of_a_profile_is_a_row_with_its_mean_time(readable):
    kernels = readable(PROFILE)
    frame = kernels.frame
    assert frame["layer"].tolist() == ["Reformat input", "Conv_0 + Relu_1", "Conv_0 + Relu_1"]
    np.testing.assert_allclose(frame["time_us"], [10.0, 300.0, 100.0])
    assert frame["time_source"].unique().tolist() == ["trtexec"]
    assert kernels.provenance["inferences"] == 200
    assert kernels.provenance["backend"] == "tensorrt"
    assert "1 layer takes no time at all." in kernels.warnings
    assert metric_columns(frame) == []


def test_an_old_profile_without_means_is_divided_by_its_count(readable):
    entries = json.loads(PROFILE)
    for entry in entries:
        entry.pop("averageMs", None)
    np.testing.assert_allclose(readable(json.dumps(entries)).frame["time_us"], [10.0, 300.0, 100.0])


def test_layer_information_names_kernels_and_has_no_times(readable):
    kernels = readable(LAYERS, "model.layers.json")
    frame = kernels.frame
    assert frame["kernel"].tolist() == ["Reformat input", "sm75_xmma_fprop_implicit_gemm"]
    assert frame["layer_type"].tolist() == ["Reformat", "CaskConvolution"]
    assert frame["time_us"].isna().all()
    assert any("has no times" in text for text in kernels.warnings)


def test_a_profile_takes_the_kernels_that_layer_information_names(readable):
    named = trtexec.named_by(readable(PROFILE), readable(LAYERS, "model.layers.json"))
    kernel = "sm75_xmma_fprop_implicit_gemm"
    assert named.frame["kernel"].tolist() == ["Reformat input", kernel, kernel]
    assert named.frame["layer_type"].iloc[1] == "CaskConvolution"
    assert named.provenance["layer_info"] == "model.layers.json"
    assert not any("are not in the layer" in text for text in named.warnings)
    other = LAYERS.replace("Conv_0 + Relu_1", "Conv_9").replace("Reformat input", "Reformat")
    strange = trtexec.named_by(readable(PROFILE), readable(other, "other.json"))
    assert any("2 layers of the profile are not in" in text for text in strange.warnings)


def test_in_a_folder_files_of_one_engine_meet_whatever_they_are_called(tmp_path):
    (tmp_path / "net-profile.json").write_text(PROFILE, encoding="utf-8")
    (tmp_path / "net-layer-info.json").write_text(LAYERS, encoding="utf-8")
    other = LAYERS.replace("Conv_0", "Conv_9")
    (tmp_path / "another.json").write_text(other.replace('"TacticName"', '"x"'), encoding="utf-8")
    kernels = ingest([tmp_path / "net-layer-info.json", tmp_path / "net-profile.json"])
    assert kernels.frame["run_id"].nunique() == 1
    np.testing.assert_allclose(kernels.frame["time_us"], [10.0, 300.0, 100.0])
    assert kernels.frame["kernel"].iloc[1] == "sm75_xmma_fprop_implicit_gemm"
    assert kernels.frame["workload"].unique().tolist() == ["net-profile"]
    # layers of another engine give no times to it
    folder = ingest([tmp_path])
    assert folder.frame["time_us"].isna().sum() == 2


def test_what_tensorrt_reformats_is_named_with_what_helps_there(readable):
    entries = json.loads(PROFILE)
    entries[1]["name"] = "Reformatting CopyNode for Input Tensor 0 to /net/self_attn/Softmax"
    entries[1]["averageMs"] = 0.4
    kernels = readable(json.dumps(entries))
    (found,) = advise(kernels.frame).network
    # by hand: 400 of 800 us
    assert (found.rules, found.holds.us, found.numbers[0].slow) == (("conversions",), 800.0, 400.0)
    assert found.command.startswith("trtexec ")


def test_the_number_of_a_tactic_is_no_name(readable):
    kernels = readable(LAYERS.replace("sm75_xmma_fprop_implicit_gemm", "0x00000000000003e8"))
    assert kernels.frame["kernel"].tolist()[1] == "Conv_0 + Relu_1"


def test_an_engine_built_without_details_says_how_to_have_them(readable):
    kernels = readable('{"Layers": ["Conv_0 + Relu_1", "Pool"], "Bindings": []}')
    assert kernels.frame["layer"].tolist() == ["Conv_0 + Relu_1", "Pool"]
    assert any("--profilingVerbosity=detailed" in text for text in kernels.warnings)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (PROFILE.replace("0.3,", "null,").replace('"timeMs" : 60.0, ', ""), "no usable time"),
        (PROFILE.replace("0.3,", "-0.3,"), "no usable time"),
        (PROFILE.replace('"name" : "Dropped", ', ""), "a layer has no name"),
        (PROFILE[:-20], "no whole JSON document"),
        ('[ { "count" : 1 }, { "name" : "a", "timeMs" : 0, "averageMs" : 0 } ]', "no layer with a"),
        ('{"Layers": []}', "no layers in this layer information"),
        ('{"Layers": [{"LayerType": "x"}]}', "a layer has no name"),
    ],
)
def test_damage_is_an_error_that_says_what_is_wrong(text, says, readable):
    with pytest.raises(InputError, match=says) as error:
        readable(text)
    assert len(str(error.value).splitlines()) == 2


if PUBLIC.is_dir():

    def test_the_public_profile_has_the_layers_of_the_public_engine_graph():
        folder = PUBLIC / "trtexec"
        profile = read(folder / "mobilenet.qat.onnx.engine.profile.json")
        assert recognise(Source(folder / "mobilenet.qat.onnx.engine.graph.json")) is trtexec
        assert len(profile.frame) == 72
        assert "1 layer takes no time at all." in profile.warnings
        assert profile.frame["time_us"].sum() == pytest.approx(470.4, abs=0.1)
        assert profile.provenance["inferences"] == 6610
        named = trtexec.named_by(profile, read(folder / "mobilenet.qat.onnx.engine.graph.json"))
        assert not any("are not in the layer" in text for text in named.warnings)
        assert named.frame["kernel"].str.startswith("sm75_xmma").sum() == 18
        assert named.frame["layer_type"].value_counts()["CaskConvolution"] == 36
