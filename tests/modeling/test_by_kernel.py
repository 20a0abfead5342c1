"""A profile without ranges is ranked by kernel: from one's own file to a plot in ten lines."""

from __future__ import annotations

import csv

import pandas as pd
import pytest

import perfml
from perfml.tables import BY_KERNEL
from tests.support.paths import DATA

FEW = {"models": "dt", "resamples": 3, "permutations": 19, "n_jobs": 1}


@pytest.fixture(scope="module")
def unranged(tmp_path_factory):
    """Return a recorded CSV of ncu as it is without NVTX ranges."""
    with (DATA / "ncu" / "conv_03_cublas.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    kept = [place for place, name in enumerate(rows[0]) if "_Range" not in name]
    path = tmp_path_factory.mktemp("own") / "x.csv"
    with path.open("w", newline="") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows(
            [row[place] for place in kept] for row in rows
        )
    return path


def test_an_own_csv_is_ranked_and_drawn_in_ten_lines(unranged):
    kernels = perfml.read(unranged)
    ranking = perfml.rank(kernels, **FEW)
    table = ranking.summary
    ax = ranking.plot()
    assert isinstance(table, pd.DataFrame)
    assert len(ax.get_yticks()) == min(12, len(table))
    assert ranking.warnings[0] == BY_KERNEL
    assert ranking.distinct_layers == 5
    assert not {"ncu_time_us", "kernel_index"} & set(ranking.feature_names_in_)
    assert len(ranking.feature_importances_) == len(ranking.feature_names_in_)


def test_a_path_launches_and_merged_launches_are_ranked_alike(unranged):
    launches = perfml.read(unranged)
    merged = perfml.merge(launches)
    assert merged.attrs["warnings"] == [BY_KERNEL]
    assert len(merged) == 5
    one, *others = (perfml.rank(each, **FEW) for each in (unranged, launches, merged))
    for other in others:
        pd.testing.assert_frame_equal(other.summary, one.summary)
    assert perfml.load_dataset(unranged).attrs["warnings"][-1] == BY_KERNEL
