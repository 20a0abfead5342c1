"""Ordered kernel patterns give launches their layers, as the study did for Darknet."""

import pandas as pd
import pytest

from perfml.errors import InputError
from perfml.ingest.layer_map import LayerMap, apply_layer_map, read_layer_map
from perfml.readers.frame import kernels_frame

DARKNET = """
skip = ["*memset*"]

[[layer]]
name = "conv_01"
kernels = ["im2col_gpu_kernel", "*gemm* +", "add_bias_kernel ?"]

[[layer]]
name = "conv_02"
kernels = ["im2col_gpu_kernel", "*gemm* +", "add_bias_kernel ?"]
"""


def table(*kernels):
    launches = pd.DataFrame({"kernel": kernels, "time_us": [1.0] * len(kernels)})
    return kernels_frame(launches, [()] * len(kernels))


@pytest.fixture
def darknet(tmp_path):
    path = tmp_path / "map.toml"
    path.write_text(DARKNET)
    return read_layer_map(path)


IM2COL = "im2col_gpu_kernel(int, float const*)"
GEMM = "void cutlass::sgemm_128x64<float>(Params)"
BIAS = "add_bias_kernel(float*)"


def test_layers_are_found_in_launch_order(darknet):
    found = apply_layer_map(table(IM2COL, GEMM, BIAS, IM2COL, GEMM), darknet)
    assert found["layer"].tolist() == ["conv_01"] * 3 + ["conv_02"] * 2
    assert found["iteration"].tolist() == [0] * 5


def test_the_list_is_matched_again_for_each_iteration(darknet):
    once = (IM2COL, GEMM, IM2COL, GEMM)
    found = apply_layer_map(table(*once, *once), darknet)
    assert found["iteration"].tolist() == [0] * 4 + [1] * 4
    assert found["kernel_index"].tolist() == [0, 1, 2, 3] * 2


def test_launches_outside_a_match_have_no_layer(darknet):
    found = apply_layer_map(table("fill_kernel", IM2COL, GEMM, IM2COL, GEMM, "softmax"), darknet)
    assert found["layer"].isna().tolist() == [True, False, False, False, False, True]


def test_skipped_launches_may_lie_within_a_layer(darknet):
    found = apply_layer_map(table(IM2COL, "my_memset_kernel", GEMM, IM2COL, GEMM), darknet)
    assert found["layer"].fillna("-").tolist() == ["conv_01", "-", "conv_01", "conv_02", "conv_02"]


def test_plus_takes_several_launches(darknet):
    found = apply_layer_map(table(IM2COL, GEMM, GEMM, GEMM, IM2COL, GEMM), darknet)
    assert found["layer"].tolist() == ["conv_01"] * 4 + ["conv_02"] * 2


def test_a_map_that_does_not_fit_names_the_layer_and_what_was_there_instead(darknet):
    with pytest.raises(InputError) as error:
        apply_layer_map(table(IM2COL, GEMM, "winograd(float*)"), darknet)
    assert "conv_02" in str(error.value)
    assert "after conv_01" in str(error.value)
    assert "winograd" in str(error.value)


def test_a_map_survives_the_manifest(darknet):
    assert LayerMap.from_dict(darknet.as_dict()) == darknet


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("layer = 3", "no [[layer]]"),
        ("[[layer]]\nname = 'a'\nkernels = []", "list of kernel patterns"),
        ("[[layer]]\nname = ''\nkernels = ['x']", "name must be text"),
        ("[[layer]]\nname = 'a'\nkernels = ['x ?']", "for certain"),
        ("[[layer]]\nname = 'a'\nkernels = ['x']\n[[layer]]\nname = 'a'\nkernels = ['y']", "same"),
        ("nonsense = [", "not TOML"),
        ("other = 1", "unknown key"),
    ],
)
def test_a_wrong_map_is_refused_with_its_place(tmp_path, text, says):
    path = tmp_path / "map.toml"
    path.write_text(text)
    with pytest.raises(InputError) as error:
        read_layer_map(path)
    assert says in str(error.value)
    assert "map.toml" in str(error.value)
