"""Tables of many networks: what runs say of layers, copies that count once, the roofline beside."""

from __future__ import annotations

import pandas as pd
import pytest

from perfml.modeling import average_copies, average_repeats, evaluate, with_layer_facts
from perfml.modeling.features import BOUND
from perfml.modeling.layer_shapes import FACTS
from studies import yardsticks
from tests.support.modeling_data import networks_with_law

MANIFEST = {
    "run_id": "net0",
    "settings": {"attention": "flash", "compile": None, "cudnn_enabled": True},
    "layers": [
        {
            "layer": "layer0",
            "kind": "Conv2d",
            "input": "1x3x8x8",
            "output": "1x4x8x8",
            "parameters": 108,
            "flops": 13824,
            "weight_bytes": 432,
            "input_bytes": 768,
            "output_bytes": 1024,
            "size": [3, 3],
            "groups": 1,
        }
    ],
}


@pytest.fixture(scope="module")
def layers():
    return networks_with_law()


def test_what_a_run_says_of_its_layers_becomes_columns(layers):
    bare = layers.drop(columns=list(FACTS), errors="ignore")
    told = with_layer_facts(bare, {"runs": [MANIFEST]})
    first = told.iloc[0]
    assert (first["kind"], first["output"], first["size"]) == ("Conv2d", "1x4x8x8", "3x3")
    assert first["arithmetic_intensity"] == pytest.approx(13824 / (432 + 768 + 1024))
    assert first["variant"] == "attention=flash"
    assert told.iloc[1][["kind", "flops"]].isna().all()
    assert set(told["variant"].iloc[-3:]) == {""}


def test_malformed_facts_are_missing_and_nothing_else(layers):
    odd = {"run_id": "net0", "layers": [{"layer": "layer0", "flops": "many", "kind": None}]}
    bare = layers.drop(columns=["flops", "kind"])
    told = with_layer_facts(bare, {"runs": [odd, 3], "layers": "x"})
    assert told[["flops", "kind"]].isna().all(axis=None)


def test_equal_blocks_of_a_network_count_once(layers):
    one = with_layer_facts(average_repeats(layers), {})
    block = one.iloc[[0] * 5].copy()
    block["layer"] = [f"again{place}" for place in range(5)]
    block["time_us"] = [10.0, 20.0, 30.0, 40.0, 50.0]
    alone = average_copies(one)
    together = average_copies(pd.concat([one, block], ignore_index=True))
    assert len(together) == len(alone)
    before, after = alone.iloc[0], together.iloc[0]
    assert after["copies"] == before["copies"] + 5
    total = before["time_us"] * before["copies"] + 150.0
    assert after["time_us"] == pytest.approx(total / after["copies"])


def test_the_roofline_stands_beside_the_models_where_bounds_are_known(layers):
    bounded = layers.assign(**{BOUND: layers["time_us"] / 3})
    found = evaluate(
        bounded,
        models=yardsticks.named(["power-law"]),
        protocols="leave-one-network-out",
        features="before-run",
        target="time-per-bound",
    ).scores.set_index("model")
    assert found.loc["roofline", "mean"] == pytest.approx(2 / 3)
    assert found.loc["roofline-scaled", "mean"] == pytest.approx(0, abs=1e-9)
    assert found.loc["power-law", "mean"] == pytest.approx(0, abs=1e-6)
    assert found["splits"].eq(6).all()


def test_a_table_of_one_network_leaves_that_protocol_out():
    layers = networks_with_law(networks=1)
    found = evaluate(
        layers,
        models="dt",
        protocols=("random", "leave-one-network-out"),
        features="before-run",
        splits=2,
    )
    assert set(found.scores["protocol"]) == {"random"}
    assert any("one network only" in warning for warning in found.warnings)
