"""The kernels of a layer that a reader of the page chooses."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from perfml.report.conditions import conditions
from perfml.report.kernels import EVERYTHING, OUTSIDE, kernel_times, pack_kernels
from tests.support.report_data import BACKENDS, kernels, layers

pytestmark = pytest.mark.long


def test_chooser_has_every_layer_its_kernels_and_shares_that_add_up():
    frame = kernels(layers=2)
    outside = frame.iloc[:1].assign(layer=None, kernel="copy", time_us=7.0)
    frame = pd.concat([frame, outside], ignore_index=True)
    data = pack_kernels(frame, conditions(layers(layers=2)), dict.fromkeys(BACKENDS, 0))
    (condition,) = data.packed["conditions"]
    assert [each["name"] for each in condition["layers"]] == [
        EVERYTHING,
        "conv_01",
        "conv_02",
        OUTSIDE,
    ]
    first = condition["layers"][1]["rows"]["0"]
    names = [data.packed["names"][row[0]][0] for row in first]
    assert names == ["gemm", "im2col"]
    assert [row[1] for row in first] == [1, 1]
    assert [row[2] for row in first] == pytest.approx([4.04, 1.01])
    assert [row[3] for row in first] == pytest.approx([0.8, 0.2])


def test_kernel_without_a_time_has_no_share():
    frame = kernels(layers=1, repeats=1, backends=("a",))
    frame.loc[1, "time_us"] = np.nan
    times = kernel_times(frame).set_index("kernel")
    assert times.loc["void gemm<a>(int)", "share"] == 1
    assert np.isnan(times.loc["im2col", "share"])


def test_launches_count_what_a_row_stands_for():
    frame = kernels(layers=1, repeats=2, backends=("a",), launches=3)
    assert kernel_times(frame)["launches"].tolist() == [3.0, 3.0]


def test_kernels_of_other_conditions_are_left_out():
    frame = kernels(layers=1, batches=(1, 8))
    only = layers(layers=1, batches=(1, 8))
    shown = conditions(only[only["batch"] == 8])
    (condition,) = pack_kernels(frame, shown, dict.fromkeys(BACKENDS, 0)).packed["conditions"]
    assert condition["label"] == "fp32, batch 8"
    assert condition["layers"][1]["rows"]["0"][0][2] == pytest.approx(8 * 4.04)
