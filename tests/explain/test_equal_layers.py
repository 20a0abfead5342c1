"""Equal layers are one finding, and one action over a network stands before its layers."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest

from perfml.explain import advise
from perfml.explain.brief import brief_advice
from perfml.explain.tree.ideal import START_US
from tests.support.tables import make_kernels

FEW_BLOCKS = {
    "kernel": "cudnn_conv",
    "time_us": 50.0,
    "grid": "(8, 1, 1)",
    "block": "(128, 1, 1)",
    "precision": "fp32",
    "waves_per_sm": 0.01,
    "achieved_occupancy": 0.06,
    "theoretical_occupancy": 0.5,
    "inst_executed": 1e6,
}


def network(*layers: dict[str, Any]) -> pd.DataFrame:
    """Return a launch a layer, one run of one iteration."""
    return make_kernels([{**FEW_BLOCKS, **each} for each in layers])


def blocks(count: int, **cells: Any) -> list[dict[str, Any]]:
    return [{"layer": f"blocks.{number}.fc", **cells} for number in range(count)]


def wave_quantizations(table: pd.DataFrame) -> pd.DataFrame:
    groups = advise(table).table
    return groups[groups["rules"].map(lambda rules: "wave_quantization" in rules)]


def test_equal_layers_are_one_finding_with_the_sum_of_what_they_save():
    table = network(*blocks(4), {"layer": "head", "time_us": 120.0, "grid": "(4, 1, 1)"})
    advice = advise(table)
    one, other = (wave_quantizations(table).iloc[place] for place in (0, 1))
    assert set(one["layers"]) == {f"blocks.{number}.fc" for number in range(4)}
    each = [found.saved_us for found in advice.of_layers if found.layer in one["layers"]]
    assert one["saved_us"] == pytest.approx(sum(each))
    assert one["time_us"] == pytest.approx(200.0)
    # the head is the slowest layer, and all blocks together take longer
    assert other["layers"] == ("head",)
    assert one["saved_us"] > other["saved_us"] > max(each)


@pytest.mark.parametrize(
    "odd",
    [
        {"kernel": "cudnn_other"},
        {"grid": "(9, 1, 1)"},
        {"block": "(64, 1, 1)"},
        {"time_us": 60.0},
        {"inst_executed": 1.1e6},
        {"precision": "fp16"},
    ],
    ids=lambda odd: next(iter(odd)),
)
def test_a_layer_that_does_something_else_is_not_equal(odd):
    found = wave_quantizations(network(*blocks(3), {"layer": "blocks.3.fc", **odd}))
    assert sorted(map(len, found["layers"])) == [1, 3]


def test_a_kernel_is_one_finding_in_all_its_shapes_where_there_are_no_ranges():
    shapes = [{"layer": f"gemm ({n}, 1, 1)x(8, 1, 1)", "grid": f"({n}, 1, 1)"} for n in (3, 4, 5)]
    table = network(*({**each, "kernel": "gemm(float*)", "time_us": 40.0} for each in shapes))
    found = wave_quantizations(table)
    assert found["layers"].map(len).tolist() == [3]
    assert found["time_us"].tolist() == [pytest.approx(120.0)]
    each = [one.saved_us for one in advise(table).of_layers if "wave_quantization" in one.rules]
    assert found["saved_us"].iloc[0] == pytest.approx(sum(each))


def test_times_of_equal_layers_may_scatter():
    times = (50.0, 54.0, 46.0)
    rows = [{"layer": f"blocks.{number}.fc", "time_us": each} for number, each in enumerate(times)]
    found = wave_quantizations(network(*rows))
    assert found["layers"].map(len).tolist() == [3]
    # named by the one whose evidence is shown
    assert found["layers"].iloc[0][0] == "blocks.1.fc"


def test_an_action_over_the_network_stands_first_with_its_sum():
    table = network(*blocks(9), {"layer": "head", "time_us": 120.0, "grid": "(4, 1, 1)"})
    advice = advise(table)
    first = advice.network[0]
    assert "wave_quantization" in first.rules
    same = (one for one in advice.of_layers if one.mitigation == first.mitigation)
    assert first.saved_us == pytest.approx(sum(one.saved_us for one in same))
    assert first.holds.us == pytest.approx(9 * 50.0 + 120.0)
    assert set(first.where.layers) == set(table["layer"])
    assert advice.findings[0] == first
    # what it says of each layer is not said again
    assert sum("wave_quantization" in one.rules for one in advice.findings) == 1
    assert brief_advice(advice, ("run",)).layers[0]["layer"] == first.where.name


def test_short_launches_are_one_finding_over_the_network_though_no_layer_has_two():
    table = network(*blocks(30, time_us=3.0), {"layer": "head", "time_us": 60.0})
    advice = advise(table)
    assert "launch_bound" not in {rule for one in advice.of_layers for rule in one.rules}
    (short,) = (each for each in advice.network if each.rules == ("launch_bound",))
    # joined with its neighbours a layer keeps its work: the start of its launch goes
    assert short.likely_us == pytest.approx(30 * START_US)
    assert short.saved_us == pytest.approx(90.0)
    assert short.evidence.startswith("30 of 31 launches last under 5 µs and take 90.0 of 150.0 µs")


def test_a_few_layers_are_no_network():
    assert advise(network(*blocks(7))).network == ()
    assert advise(network(*blocks(9)), layers=["blocks.1.fc"]).network == ()
