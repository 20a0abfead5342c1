"""Elasticities from experiments on the same program become columns of its launches."""

import numpy as np
import pandas as pd
import pytest

from perfml.errors import InputError
from perfml.experiments.record import Condition, Examined, Experiments, experiments_csv
from perfml.ingest.run_labels import CONDITIONS, with_experiments


def examined(layer, kernel, ratio):
    conditions = (
        Condition("all", "all", 1.0, (10.0,) * 3),
        Condition("sm_half", "all", 0.5, (10.0 * ratio,) * 3),
    )
    return Examined(("iter_1", layer), kernel, conditions=conditions)


@pytest.fixture
def folder(tmp_path):
    launches = (examined("a", "f", 2), examined("a", "f", 1), examined("b", "f", 4))
    made = Experiments(132, 50 << 20, 3.0, (), launches)
    (tmp_path / "experiments.csv").write_text(experiments_csv(made), encoding="utf-8")
    return tmp_path


@pytest.fixture
def launches():
    rows = [("a", "f"), ("a", "f"), ("a", "g"), ("b", "f")]
    frame = pd.DataFrame(rows * 2, columns=["layer", "kernel"])
    return frame.assign(iteration=np.repeat([0, 1], 4))


def test_a_launch_is_found_by_layer_kernel_and_place(folder, launches):
    found = with_experiments(launches, folder)
    # twice the time with half of the multiprocessors: 1; four times: 2; g was not examined
    assert found["elasticity_sm"].tolist() == pytest.approx([1, 0, np.nan, 2] * 2, nan_ok=True)
    assert found["elasticity_warps"].isna().all()
    assert set(found.columns) == {*launches.columns, *CONDITIONS}


def test_without_experiments_nothing_changes_and_a_damaged_table_is_an_error(
    folder, launches, tmp_path
):
    assert with_experiments(launches, tmp_path / "none") is launches
    (folder / "experiments.csv").write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match="no table of experiments"):
        with_experiments(launches, folder)
