"""What counts as one piece of evidence, and what ties for the first place."""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd
import pytest

from perfml.datasets import load
from perfml.metrics import PUBLISHED
from perfml.modeling import average_repeats, rank
from perfml.modeling.layer_shapes import distinct_layers
from perfml.modeling.ranking.measure import Measured
from perfml.modeling.ranking.summary import tied_first
from perfml.report.verbs import rank_document
from tests.support.modeling_data import linear_layers


def test_near_copies_of_a_layer_are_one_distinct_layer():
    layers = average_repeats(linear_layers(layers=6))
    rng = np.random.default_rng(0)
    copy = layers[layers["layer"] == "conv_02"].assign(layer="other_name")
    copy["time_us"] *= 1.01
    copy[list(PUBLISHED)] += 0.003 * rng.normal(size=(len(copy), len(PUBLISHED)))
    both = pd.concat([layers, copy], ignore_index=True)
    codes = pd.Series(distinct_layers(both)).groupby(both["layer"]).first()
    assert codes.nunique() == 6
    assert codes["other_name"] == codes["conv_02"]
    # as a layer of another time it would be evidence of its own
    slower = both.assign(time_us=both["time_us"].where(both["layer"] != "other_name", 5e3))
    assert len(np.unique(distinct_layers(slower))) == 7


@pytest.mark.long
def test_the_recorded_network_repeats_three_of_its_layers():
    layers = load("h200-sweep").frame
    one = average_repeats(layers[layers["batch"] == 1])
    names = one.groupby(distinct_layers(one))["layer"].unique()
    assert sorted(sorted(group) for group in names if len(group) > 1) == [
        ["conv_04", "conv_05"],
        ["conv_08", "conv_09"],
        ["conv_12", "conv_13"],
    ]


def test_metrics_whose_order_the_resamples_decide_tie_for_the_first_place():
    def measured(seed: int, *joint: float) -> Measured:
        return Measured("dt", "gini", seed, np.array(joint), np.array(joint))

    # by turns the first and the second lead, one time more the first
    found = [measured(seed, 3 + seed % 2, 3 + (seed + 1) % 2, 1) for seed in range(21)]
    assert tied_first(found, ["builtin"], [0, 1, 2]) == [1, 0]
    alone = [measured(seed, 4, 3, 1) for seed in range(21)]
    assert tied_first(alone, ["builtin"], [0, 1, 2]) == []


def test_a_tie_is_said_and_one_that_leads_alone_is_not():
    layers = linear_layers(layers=12)
    layers["time_us"] = 100 + 900 * layers["dram_utilization"]
    few = {"models": "dt", "methods": "builtin", "permutations": 99}
    found = rank(layers, resamples=10, **few)
    assert (found.tied, found.tie) == ((), "")
    tied = dataclasses.replace(found, tied=(("dram_utilization",), ("l2_utilization", "ipc")))
    sentence = "dram_utilization and l2_utilization tie for the first place"
    assert tied.tie.startswith(sentence)
    assert sentence in " ".join(repr(tied).split())
    assert sentence in rank_document(tied, 3).sections[0].blocks[-1].text
