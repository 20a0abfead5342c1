"""What chance gives a ranking, and what counts as one piece of evidence."""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import RandomForestRegressor

from perfml.datasets import load
from perfml.metrics import PUBLISHED
from perfml.modeling import average_repeats, build_problem, rank
from perfml.modeling.distinct_layers import distinct_layers
from perfml.modeling.ranking.draws import arrangements, permuted_problems
from perfml.modeling.ranking.measure import Measured
from perfml.modeling.ranking.null import LEVEL, Baseline, Null
from perfml.modeling.ranking.summary import tied_first
from perfml.modeling.scoring.targets import make_target
from perfml.report.verbs import rank_document
from studies.ranking.power import Case, said
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


def test_a_p_value_counts_the_table_itself_and_is_not_below_the_share_of_chance():
    # 39 permuted tables, of which one reaches the score: 2 of 40
    null = Null(39, 5, tuple(np.arange(39.0)), 38.0)
    assert null.p_value == pytest.approx(2 / 40)
    assert null.limit == 37.0
    assert Null(39, 5, tuple(np.arange(39.0)), 37.0).p_value > LEVEL
    assert Null(18, 5, tuple(np.arange(18.0)), 99.0).p_value > LEVEL, "19 tables cannot tell 5 %"


def test_a_ranking_is_given_up_only_where_no_further_permutation_can_help():
    behind = tuple(np.arange(20.0))
    assert Null(20, 5, behind, 17.5).hopeless(40), "two of at most 41 are ahead already"
    assert not Null(20, 5, behind, 18.5).hopeless(40)


@pytest.mark.parametrize("columns", [1, 3, 12])
def test_a_perfect_metric_is_more_than_chance_among_however_few_columns(columns):
    rng = np.random.default_rng(columns)
    X = np.repeat(rng.uniform(size=(24, columns)), 5, axis=0)
    y = np.exp(2 * X[:, 0]) * (1 + 0.02 * rng.normal(size=120))
    found = rank(
        pd.DataFrame(X).add_prefix("m"),
        y,
        groups=np.repeat(range(24), 5),
        models=RandomForestRegressor(20),
        methods="permutation",
        resamples=20,
        permutations=20,
        n_jobs=1,
    )
    assert found.beyond_chance == ("m0",)
    assert found.chance.startswith("m0 explains more than chance does (p = 0.0476")


def test_noise_is_more_than_chance_in_no_more_than_a_few_of_many_tables():
    alarms = sum(said(Case(3, 0.0), seed) for seed in range(20))
    # more than four of twenty would be of 5 % in 3 of 1000 such tests
    assert alarms <= 4


def test_what_cannot_be_permuted_is_not_tested_and_it_is_said():
    layers = average_repeats(linear_layers(layers=6)).drop_duplicates("layer")
    alone = layers.assign(workload=layers["layer"])  # each layer under settings of its own
    problem, pieces = build_problem(alone), distinct_layers(alone)
    assert arrangements(problem, pieces) == 1
    assert arrangements(build_problem(layers), distinct_layers(layers)) == 720
    found = rank(alone, models="dt", methods="builtin", resamples=4, permutations=20, n_jobs=1)
    assert "can be permuted in only 1 ways" in found.chance
    assert found.summary["p_value"].isna().all()
    assert found.beyond_chance == ()


def test_backends_of_a_layer_are_permuted_in_as_many_ways_as_give_other_answers():
    layers = average_repeats(linear_layers(layers=3))
    problem = build_problem(layers, "classification")
    # three names exchanged in each of three layers, but for exchanging all alike: 6 * 6 * 6 / 6
    assert arrangements(problem, distinct_layers(layers)) == 36


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
