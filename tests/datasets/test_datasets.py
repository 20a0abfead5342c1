"""The recorded datasets are what their cards say, and load as scikit-learn's do."""

import numpy as np
import pytest

from perfml.datasets import DATASETS, find, load, load_h200_yolov4_tiny, to_published
from perfml.datasets.registry import is_dataset
from perfml.errors import PerfmlError
from perfml.metrics import PUBLISHED
from perfml.readers import read
from tests.support.paths import ROOT

pytestmark = pytest.mark.long

SAMPLED = (
    "achieved_occupancy",
    "stall_exec_dependency",
    "stall_memory_dependency",
    "stall_inst_fetch",
    "stall_sync",
    "stall_pipe_busy",
    "single_precision_fu_utilization",
    "ldst_fu_utilization",
)
"""Metrics relative to active cycles or warps, which the gaps inside a range do not dilute."""


@pytest.fixture(scope="module")
def frame():
    return load_h200_yolov4_tiny(as_frame=True).frame


def test_it_loads_as_a_scikit_learn_bunch():
    bunch = load_h200_yolov4_tiny()
    assert bunch.data.shape == (3780, 19)
    assert bunch.target.shape == (3780,)
    assert bunch.feature_names == list(PUBLISHED)
    assert "Known defects" in bunch.DESCR
    data, target = load_h200_yolov4_tiny(as_frame=True, return_X_y=True)
    assert list(data.columns) == list(PUBLISHED)
    assert target.name == "time_us"


@pytest.mark.filterwarnings("ignore:dataset.csv has no layer column")
def test_dataset_csv_holds_the_same_rows(frame, tmp_path):
    path = tmp_path / "dataset.csv"
    to_published(frame).to_csv(path, index=False)
    table = load(path).frame
    np.testing.assert_allclose(table["time_us"], frame["time_us"])
    for name in PUBLISHED:
        np.testing.assert_allclose(table[name], frame[name])


def test_the_merge_agrees_with_whole_layers_measured_as_one(frame):
    folder = find("h200-yolov4-tiny")
    pairs: dict[str, list[float]] = {name: [] for name in (*SAMPLED, "l2_utilization")}
    for backend in ("cublas", "cudnn", "inductor"):
        whole = read(folder / f"range_{backend}.csv.xz").frame.set_index("layer")
        chosen = frame[(frame["backend"] == backend) & (frame["precision"] == "fp32")]
        merged = chosen[chosen["batch"] == 1].groupby("layer").mean(numeric_only=True)
        for layer, row in whole.iterrows():
            ours = merged.loc[layer]
            for name in SAMPLED:
                pairs[name].append(abs(row[name] - ours[name]))
            stretch = row["ncu_time_us"] / ours["ncu_time_us"]
            pairs["l2_utilization"].append(
                abs(row["l2_utilization"] * stretch - ours["l2_utilization"])
            )
    for name, differences in pairs.items():
        assert len(differences) == 18
        assert np.median(differences) < 0.03, name
    assert np.median(pairs["achieved_occupancy"]) == pytest.approx(0.0066, abs=5e-4)
    assert np.median(pairs["l2_utilization"]) == pytest.approx(0.0012, abs=5e-4)


def test_layers_carry_the_work_that_their_shapes_tell():
    frame = load("h200-yolov4-tiny").frame
    conv_03 = frame[frame["layer"] == "conv_03"]
    # 104 x 104 outputs x 64 filters x 3 x 3 x 64 inputs, two operations each, per image
    operations = 104 * 104 * 64 * 3 * 3 * 64 * 2 * conv_03["batch"].astype(float)
    assert (conv_03["flops"] >= operations).all()
    assert (conv_03["flops"] < 1.01 * operations).all()


def test_an_unknown_dataset_names_the_known_ones():
    with pytest.raises(PerfmlError, match="h200-yolov4-tiny"):
        find("imagenet")


def test_only_what_ships_is_listed_and_the_studies_recordings_are_found_in_a_checkout(monkeypatch):
    assert set(DATASETS) == {"atlas", "h200-yolov4-tiny", "nazir2024"}
    assert find("h200-sweep") == ROOT / "studies/data/h200-sweep"
    assert is_dataset("h200-sweep")
    assert not is_dataset("h200-nothing")
    assert not is_dataset("h200-sweep/../h200-sweep")
    monkeypatch.setattr("perfml.util.installed.studies", lambda: None)
    with pytest.raises(PerfmlError, match=r"Datasets are: .* need a checkout"):
        find("h200-sweep")
    with pytest.raises(PerfmlError, match="no such file or dataset") as failed:
        load("h200-conv")
    assert "checkout" in str(failed.value)
