"""The reader of what trtexec says of an engine's layers."""

from __future__ import annotations

import json

import numpy as np
import pytest

from perfml.errors import InputError
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
