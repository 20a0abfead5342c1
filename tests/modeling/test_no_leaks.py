"""What gives the answer away is no feature: times, row numbers, the target in disguise."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import perfml
from perfml.errors import PerfmlError
from perfml.modeling.disguise import disguised
from perfml.modeling.features import build_design, timed_metrics
from perfml.modeling.own_data import own_problem
from tests.support.paths import DATA

NCU = DATA / "ncu" / "conv_03_cublas.csv"


def test_neither_times_nor_numbers_of_an_ncu_csv_are_ranked():
    launches = perfml.read(NCU)
    assert {"ncu_time_us", "kernel_index"} <= set(launches.columns)
    problem = own_problem(launches, "time_us", "kernel")
    assert not {"ncu_time_us", "kernel_index", "iteration", "launches"} & set(problem.design.names)
    assert problem.design.dropped["ncu_time_us"] == "a time, like the target"
    assert problem.design.dropped["kernel_index"].startswith("says which row it is")
    rates = [name for name in launches.columns if name.endswith("_throughput")]
    assert not set(rates) & set(problem.design.names)


def test_cycles_and_rates_contain_the_time():
    assert "cycles" in timed_metrics()["sm_active_cycles_max"]
    assert "rate" in timed_metrics()["gld_throughput"]
    assert "inst_executed" not in timed_metrics()


def noisy(rows: int = 40, repeats: int = 4) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(rows // repeats), repeats)
    cause = rng.uniform(size=rows // repeats)[groups]
    return cause, np.exp(2 * cause) * (1 + 0.01 * rng.normal(size=rows)), groups


def test_a_perfect_metric_is_no_disguise_and_the_time_in_another_unit_is():
    cause, time, groups = noisy()
    assert not disguised(cause, time, groups), "it does not follow the noise of the repeats"
    for copy in (time / 1000, -time, np.log(time), np.round(time, 4)):
        assert disguised(copy, time, groups)
    assert not disguised(np.random.default_rng(1).uniform(size=40), time, groups)


def test_without_repeats_a_disguise_has_the_order_of_the_target_in_every_row():
    rng = np.random.default_rng(0)
    time = rng.uniform(1, 2, size=30)
    alone = np.arange(30)
    assert disguised(time**3, time, alone)
    assert not disguised(time * (1 + 0.1 * rng.normal(size=30)), time, alone)
    assert not disguised(time[:7], time[:7], alone[:7]), "too few rows to tell"


def test_the_target_in_disguise_and_row_numbers_are_named_and_left_out():
    cause, time, groups = noisy()
    noise = np.random.default_rng(2).uniform(size=40)
    table = pd.DataFrame({"cause": cause, "noise": noise, "copy": time / 1e3})
    table["row"] = np.arange(40)
    found = perfml.rank(
        table, time, groups=groups, models="dt", resamples=3, permutations=19, n_jobs=1
    )
    assert set(found.feature_names_in_) == {"cause", "noise"}
    assert "copy is the target in disguise, and left out" in found.warnings[0]
    assert found.dropped["row"] == "numbers the rows in their order"
    kept = own_problem(table, time, groups, features=["copy", "noise"])
    assert kept.design.names == ("copy", "noise")
    assert "which you named" in kept.notes[0]


CLOCKS = ("gpu__time_duration.sum", "Duration", "sm__cycles_elapsed.max", "time_ms", "elapsed")


def measured_twice(scatter: float = 0.03) -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
    """Return 24 groups of 5 rows: a cause, clocks of their own noise, and the target."""
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(24), 5)
    cause = rng.uniform(0.2, 1, size=24)[groups]
    time = 100 * np.exp(2 * cause + 0.5 * rng.normal(size=24)[groups])
    table = pd.DataFrame({"cause": cause, "noise": rng.uniform(size=120)})
    for name in (*CLOCKS, "second"):
        table[name] = 7 * time * np.exp(scatter * rng.normal(size=120))
    share = rng.uniform(0.3, 0.7, size=24)[groups]
    table = table.assign(here=time * share, there=time * (1 - share))
    return table, time * np.exp(scatter * rng.normal(size=120)), groups


def test_no_clock_explains_a_clock_and_it_is_said():
    table, time, groups = measured_twice()
    problem = own_problem(table.drop(columns=["second", "here", "there"]), time, groups)
    assert set(problem.design.names) == {"cause", "noise"}
    assert set(problem.design.dropped) == set(CLOCKS)
    assert "no clock explains a clock" in " ".join(problem.notes)
    kept = own_problem(table, time, groups, features=["cause", "Duration"])
    assert kept.design.names == ("cause", "Duration")
    price = table[["cause", "elapsed"]].assign(price=np.arange(120) % 7 + 1.0)
    assert "elapsed" in own_problem(price, "price", groups).design.names, "the target is no time"


@pytest.mark.parametrize("parts", [["second"], ["here", "there"]])
def test_a_column_or_a_sum_that_is_the_target_over_groups_is_left_out(parts):
    table, time, groups = measured_twice()
    table = table[["cause", "noise", *parts]]
    problem = own_problem(table, time, groups)
    assert set(problem.design.names) == {"cause", "noise"}
    assert set(problem.design.dropped) == set(parts)
    assert all(name in " ".join(problem.notes) for name in parts)
    # an amount of work may be the cause itself: it stays, and is named
    named = table.rename(columns={parts[0]: "bytes"})
    assert "bytes" in own_problem(named, time, groups).design.names


def test_a_time_is_no_feature_of_a_layers_table_even_if_it_is_named():
    layers = perfml.load_dataset("h200-yolov4-tiny", where=["batch=1", "precision=fp32"])
    design = build_design(layers, ["time_us", "achieved_occupancy", "ncu_time_us"])
    assert design.names == ("achieved_occupancy",)
    facts = {"waves_per_sm", "registers_per_thread", "resident_blocks_limit_registers"}
    assert facts <= set(build_design(layers).names), "models see what the causes are found in"
    with pytest.raises(PerfmlError, match="no feature is left"):
        build_design(layers, ["time_us"])
