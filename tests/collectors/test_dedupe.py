"""Layers that launch the same are measured once, and the measurement stands for all of them."""

import json
import lzma

import pytest

from collectors.dedupe import find_duplicates
from perfml.errors import InputError
from perfml.ingest.duplicate_layers import expand_twins
from perfml.ingest.timing import join_timing
from perfml.readers import read
from tests.support.paths import ROOT

pytestmark = pytest.mark.process

DATA = ROOT / "tests" / "data/fake_tools/yolov4-tiny"


@pytest.fixture
def recorded(tmp_path):
    path = tmp_path / "timing.csv"
    path.write_bytes(lzma.decompress((DATA / "timing.csv.xz").read_bytes()))
    return path


@pytest.fixture
def shapes():
    return json.loads((DATA / "run.json").read_text())["layers"]


def timing(tmp_path, rows):
    path = tmp_path / "timing.csv"
    lines = ["iteration,layer,kernel,time_us,grid,block", *rows]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_layers_of_the_same_shape_and_kernels_are_twins(recorded, shapes):
    found = find_duplicates(recorded, iteration="iter_0", layers="conv_.*", shapes=shapes)
    duplicates = sorted(members for members in found.groups.values() if len(members) > 1)
    assert duplicates == [("conv_04", "conv_05"), ("conv_08", "conv_09"), ("conv_12", "conv_13")]
    assert len(found.groups) == 18
    assert found.filters()[0] == "iter_0/conv_01/"
    assert found.launches < 89
    assert found.stands_for == 2 * 89


def test_every_layer_is_measured_or_has_a_twin_that_is(recorded, shapes):
    found = find_duplicates(recorded, iteration="iter_0", shapes=shapes)
    members = [each for group in found.groups.values() for each in group]
    assert len(members) == len(set(members)) == 34


def test_the_same_kernels_on_another_shape_are_no_twins(tmp_path):
    path = timing(tmp_path, ["0,a,gemm,10.0,1,1", "0,b,gemm,10.0,1,1"])
    shapes = [{"layer": "a", "input": "13x13x256"}, {"layer": "b", "input": "13x13x512"}]
    assert set(find_duplicates(path, iteration=None, shapes=shapes).groups) == {"a", "b"}


def test_without_shapes_the_times_must_agree(tmp_path):
    path = timing(tmp_path, ["0,a,gemm,10.0,1,1", "0,b,gemm,10.5,1,1", "0,c,gemm,20.0,1,1"])
    assert find_duplicates(path, iteration=None).groups == {"a": ("a", "b"), "c": ("c",)}


@pytest.mark.parametrize("other", ["gemm,10.0,2,1", "gemm,10.0,1,2", "gemv,10.0,1,1"])
def test_another_kernel_grid_or_block_is_no_twin(tmp_path, other):
    path = timing(tmp_path, ["0,a,gemm,10.0,1,1", f"0,b,{other}"])
    assert set(find_duplicates(path, iteration=None).groups) == {"a", "b"}


def test_names_that_cannot_be_filtered_for_are_refused(tmp_path):
    path = timing(tmp_path, ['0,"Thunk:#op=a,id=1#",gemm,10.0,1,1'])
    with pytest.raises(InputError, match="cannot select a range"):
        find_duplicates(path, iteration=None)
    path = timing(tmp_path, ["0,,gemm,10.0,1,1"])
    with pytest.raises(InputError, match="nothing to measure once"):
        find_duplicates(path, iteration=None)


def test_a_measurement_stands_for_its_twins_in_the_joined_table(recorded, shapes, tmp_path):
    path = tmp_path / "metrics.csv"
    path.write_bytes(lzma.decompress((DATA / "metrics.csv.xz").read_bytes()))
    full = read(path).frame
    duplicates = find_duplicates(recorded, iteration="iter_0", layers="conv_.*", shapes=shapes)
    measured = full[full["layer"].isin(list(duplicates.groups))].reset_index(drop=True)
    whole = expand_twins(measured, duplicates.as_dict())
    assert sorted(whole["layer"]) == sorted(full["layer"])
    assert whole["stands_for"].groupby(whole["layer"]).first()["conv_05"] == 4
    assert whole["stands_for"].groupby(whole["layer"]).first()["conv_01"] == 2
    joined, _ = join_timing(whole, read(recorded).frame, where="test")
    conv = joined[joined["layer"].str.startswith("conv_", na=False)]
    assert conv["achieved_occupancy"].notna().all()
    # the twins really are alike: what was measured on conv_05 itself agrees with conv_04's
    own = full[full["layer"] == "conv_05"]["achieved_occupancy"].to_numpy()
    lent = whole[whole["layer"] == "conv_05"]["achieved_occupancy"].to_numpy()
    assert lent == pytest.approx(own, rel=0.1)
