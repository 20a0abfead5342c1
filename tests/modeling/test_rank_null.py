"""What chance gives a ranking, and what counts as one piece of evidence."""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd
import pytest

from benchmarks.ranking import CASES, METRICS, ask
from benchmarks.ranking import table as simulated
from perfml.datasets import load
from perfml.metrics import PUBLISHED
from perfml.modeling import average_repeats, build_problem, rank
from perfml.modeling.distinct_layers import distinct_layers
from perfml.modeling.ranking.measure import Measured
from perfml.modeling.ranking.null import Baseline, Null, permuted_problems
from perfml.modeling.ranking.summary import tied_first
from perfml.modeling.scoring.targets import make_target
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


def test_layers_that_compute_the_same_are_one_distinct_layer():
    layers = average_repeats(linear_layers(layers=6))
    number = layers["layer"].str[-2:].astype(int)
    for name in ("flops", "weight_bytes", "input_bytes", "output_bytes"):
        layers[name] = 100.0 * (number // 2 + 1)
    assert len(np.unique(distinct_layers(layers))) == 3
    layers["batch"] = number % 2
    assert len(np.unique(distinct_layers(layers))) == 6


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


def test_permuted_times_stay_within_a_configuration_and_move_whole_layers():
    layers = average_repeats(linear_layers(layers=8))
    problem = build_problem(layers)
    pieces = distinct_layers(layers)
    target = make_target("time", layers)
    for permuted in permuted_problems(problem, target, pieces, 5, seed=0):
        assert not np.array_equal(permuted.truth, problem.truth)
        for code in range(int(problem.configuration.max()) + 1):
            inside = problem.configuration == code
            assert sorted(permuted.truth[inside]) == sorted(problem.truth[inside])
        wide = pd.DataFrame({"layer": problem.layer, "time": permuted.truth})
        donors = wide.groupby("layer")["time"].agg(frozenset)
        original = pd.Series(problem.truth).groupby(problem.layer).agg(frozenset)
        # one layer gives its times to another one under all backends
        assert set(donors) == set(original)


def test_permuted_backends_keep_their_number_within_each_layer():
    layers = average_repeats(linear_layers(layers=8))
    problem = build_problem(layers, "classification")
    target = make_target("time", layers)
    permuted = next(permuted_problems(problem, target, distinct_layers(layers), 1, seed=0))
    assert not np.array_equal(permuted.truth, problem.truth)
    for code in range(problem.n_layers):
        assert sorted(permuted.truth[problem.layer == code]) == [0, 1, 2]


def test_an_importance_is_scored_by_what_its_group_gets_by_chance():
    rng = np.random.default_rng(0)
    spread = np.array([1.0, 5.0])
    results = [
        Measured("dt", "gini", seed, row, row)
        for seed, row in enumerate(5.0 + spread * rng.normal(size=(2000, 2)))
    ]
    baseline = Baseline.of(results)
    # both are two of their own standard deviations above chance
    assert baseline.scores(np.array([7.0, 15.0])) == pytest.approx([2.0, 2.0], abs=0.15)
    assert baseline.scores(np.array([-1.0, -1.0])).max() <= 0.0


def test_the_limit_of_the_null_is_exceeded_by_chance_in_one_case_of_twenty():
    null = Null(39, 10, tuple(np.arange(39) / 39))
    # with the observed table there are 40: two may lie beyond
    assert sum(share > null.limit for share in null.p_top3) == 1
    assert Null(20, 10, (0.5,) * 19 + (0.9,)).limit == 0.9


def test_a_share_equal_to_the_limit_but_for_rounding_is_no_more_than_chance():
    null = Null(20, 3, (0.5,) * 17 + (7 / 9,) * 3)
    assert null.exceeded_by(0.8)
    assert not null.exceeded_by(7 / 9 + 1e-15)


def test_a_null_in_stages_ends_above_chance_and_is_the_whole_one_where_it_does_not():
    layers = linear_layers(layers=12)
    layers["time_us"] = 100 + 900 * layers["dram_utilization"]
    few = {"models": "dt", "methods": "builtin", "resamples": 12, "permutations": 20}
    whole = rank(layers, null_resamples=12, **few)
    early = rank(layers, null_resamples=(8, 12), **few)
    assert (early.null.resamples, whole.null.resamples) == (8, 12)
    # chance is measured less often, the metrics are measured the same
    pd.testing.assert_frame_equal(early.table, whole.table)
    assert early.summary["members"][0] == whole.summary["members"][0] == "dram_utilization"
    open_question = rank(layers, null_resamples=(1, 12), **few)
    pd.testing.assert_frame_equal(open_question.summary, whole.summary)
    assert open_question.null == whole.null


def test_metrics_whose_order_the_resamples_decide_tie_for_the_first_place():
    def measured(seed: int, *joint: float) -> Measured:
        return Measured("dt", "gini", seed, np.array(joint), np.array(joint))

    baseline = {("dt", "gini"): Baseline(np.zeros(3), np.ones(3))}
    # by turns the first and the second lead, one time more the first
    found = [measured(seed, 3 + seed % 2, 3 + (seed + 1) % 2, 1) for seed in range(21)]
    assert tied_first(found, baseline) == [1, 0]
    alone = [measured(seed, 4, 3, 1) for seed in range(21)]
    assert tied_first(alone, baseline) == []


def test_a_tie_is_said_and_one_that_leads_alone_is_not():
    layers = linear_layers(layers=12)
    layers["time_us"] = 100 + 900 * layers["dram_utilization"]
    few = {"models": "dt", "methods": "builtin", "permutations": 20, "null_resamples": 1}
    found = rank(layers, resamples=10, **few)
    assert (found.tied, found.tie) == ((), "")
    tied = dataclasses.replace(found, tied=(("dram_utilization",), ("l2_utilization", "ipc")))
    sentence = "dram_utilization and l2_utilization tie for the first place"
    assert tied.tie.startswith(sentence)
    assert sentence in " ".join(repr(tied).split())
    assert sentence in rank_document(tied, 3).sections[0].blocks[-1].text


@pytest.mark.slow
def test_the_quick_null_of_a_report_raises_no_more_false_alarms_than_one_in_twenty():
    answers = [ask(CASES["no signal, 7 layers"], seed, ["dt"], quick=True) for seed in range(12)]
    # more than two of twelve would be of 5 % in 20 of 1000 such tests
    assert sum(each.largest > each.limit for each in answers) <= 2


@pytest.mark.slow
def test_a_group_of_five_noise_metrics_has_no_advantage():
    firsts = 0
    for seed in range(8):
        found = rank(
            simulated(CASES["no signal, five metrics are one group"], seed),
            models="dt",
            resamples=20,
            permutations=20,
            methods=("builtin", "permutation"),
            features=METRICS,
            seed=100 * seed,
        )
        firsts += len(found.summary["members"].iloc[0].split(", ")) == 5
    # by its best member it was first in 95 of 100; one of six groups is due a sixth
    assert firsts <= 4
