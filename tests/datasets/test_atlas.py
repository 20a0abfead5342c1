"""The atlas is what its card says."""

import pytest

from perfml.datasets import find, load_atlas
from perfml.datasets.table_files import part_files
from perfml.metrics import clock_of, load_catalogue
from perfml.modeling.layer_shapes import FACTS
from perfml.tables import metric_columns
from studies.parts import LARGEST

pytestmark = pytest.mark.long

LEFT_OUT = ("unet", "convnext", "gpt2", "mobilenet_v3", "vit_b", "vit_base", "/bert", "resnet50")
"""What others keep as a test that nothing here has seen."""


@pytest.fixture(scope="module")
def bunch():
    return load_atlas(as_frame=True)


@pytest.fixture(scope="module")
def layers(bunch):
    return bunch.frame


def test_a_thousand_layers_with_kind_shapes_and_work(layers):
    one = layers.drop_duplicates(["run_id", "layer"])
    described = one[list(FACTS[:8])].notna().all(axis=1)
    assert described.mean() > 0.999
    assert len(one[described][["kind", "input", "output", "precision"]].drop_duplicates()) > 1000


def test_networks_that_others_test_with_are_not_in_it(layers):
    names = layers["workload"].str.lower().unique()
    assert not [name for name in names if any(word in name for word in LEFT_OUT)]


def test_parts_are_small_and_hold_no_rates(layers):
    folder = find("atlas")
    sizes = [path.stat().st_size for path in folder.iterdir()]
    assert max(sizes) <= LARGEST
    kinds = {load_catalogue()[name].kind for name in metric_columns(layers)}
    assert "rate" not in kinds
    assert {clock_of(name) for name in metric_columns(layers)} == {"counted", "clocked", "timed"}
    assert part_files(folder, "kernels")
