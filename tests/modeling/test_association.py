"""One permutation test of several statistics: what it sees, and how seldom it sees nothing."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import perfml
from perfml.modeling import average_repeats, build_problem, rank
from perfml.modeling.layer_shapes import distinct_layers
from perfml.modeling.ranking.association import against_chance
from perfml.modeling.ranking.measure import exchanged_classes, exchanged_rows
from perfml.modeling.results import LEVEL
from tests.support.modeling_data import linear_layers


def drawn(rows, columns, seed):
    rng = np.random.default_rng([seed, rows, columns])
    return rng.normal(size=(rows, columns)), rng.normal(size=rows)


def p_of(X, y, *, groups=None, **options):
    pieces = np.arange(len(y)) if groups is None else groups
    options = {"permutations": 99, "seed": 0} | options
    return against_chance(X, y, pieces, np.zeros(len(y), dtype=int), **options)


SHAPES = {
    "monotone": lambda X: np.exp(3 * X[:, 0]),
    "shape": lambda X: np.abs(X[:, 0]),
    "pair": lambda X: np.sign(X[:, 0] * X[:, 1]),
}


@pytest.mark.parametrize(("statistic", "shape"), SHAPES.items())
def test_a_feature_is_shown_whatever_the_shape_of_its_effect(statistic, shape):
    X, noise = drawn(80, 6, 0)
    frame, chance = p_of(X, shape(X) + 0.3 * noise)
    assert frame["p_value"][0] <= LEVEL
    assert chance.p_value == frame["p_value"].min()
    assert (frame["p_value"][2:] > LEVEL).all()
    if statistic != "monotone":
        assert frame["statistic"][0] == statistic
        assert (frame["partner"][0] == 1) == (statistic == "pair")


@pytest.mark.slow
def test_what_a_five_line_test_finds_is_found_and_power_says_how_often():
    found, seen = 0, []
    for seed in range(25):
        X, noise = drawn(100, 12, seed)
        frame, chance = p_of(X, np.sqrt(0.2) * X[:, 0] + np.sqrt(0.8) * noise)
        found += frame["p_value"][0] <= LEVEL
        seen.append(chance.power)
    assert found >= 21, "the largest Spearman correlation finds 23 of 25 such tables"
    assert min(seen) > 0.9, "an R2 of 0.3 among 100 rows is seldom missed"
    assert p_of(*drawn(12, 12, 0))[1].power < 0.5


@pytest.mark.slow
def test_noise_is_shown_in_no_more_than_a_few_of_many_tables():
    groups = np.repeat(np.arange(20), np.random.default_rng(0).integers(1, 9, 20))
    alarms = 0
    for seed in range(60):
        X, noise = drawn(20, 5, seed)
        y = noise[groups] + 0.3 * np.random.default_rng(seed).normal(size=len(groups))
        alarms += p_of(X[groups], y, groups=groups)[1].p_value <= LEVEL
    # more than 8 of 60 would be of 5 % in 4 of 1000 such tests
    assert alarms <= 8


def test_a_strong_feature_lends_no_partner_its_effect():
    alarms = 0
    for seed in range(40):
        X, noise = drawn(60, 4, seed)
        X[:, 0] = X[:, 0] > 1.2
        frame, _ = p_of(X, 3 * X[:, 0] + 0.2 * noise)
        alarms += (frame["p_value"][1:] <= LEVEL).any()
    assert alarms <= 6


def test_a_group_of_many_rows_counts_as_much_as_one_of_few():
    X, noise = drawn(24, 4, 0)
    y = 0.8 * X[:, 0] + 0.6 * noise
    sizes = np.where(np.abs(y - X[:, 0]) > 0.7, 40, 1)
    groups = np.repeat(np.arange(24), sizes)
    assert sizes.sum() > 100, "some groups that fit badly have forty rows"
    once = p_of(X, y)[0]["p_value"]
    often = p_of(X[groups], y[groups], groups=groups)[0]["p_value"]
    assert once[0] <= LEVEL
    assert often[0] <= LEVEL


def test_p_is_exact_in_the_smallest_steps():
    X, noise = drawn(40, 3, 0)
    frame, _ = p_of(X, X[:, 0] + 0.01 * noise, permutations=19)
    assert frame["p_value"][0] == pytest.approx(1 / 20)


def test_the_unit_of_the_target_changes_nothing():
    X, noise = drawn(30, 5, 1)
    X = np.round(X, 1)  # ties
    y = np.exp(0.4 * X[:, 0] + noise)
    options = {"models": ("dt", "gbr"), "resamples": 4, "permutations": 99, "n_jobs": 1}
    one, other = (perfml.rank(X, y * unit, **options) for unit in (1.0, 1000.0))
    pd.testing.assert_frame_equal(one.summary, other.summary, check_exact=True)
    pd.testing.assert_frame_equal(one.table, other.table, check_exact=True)


def test_undefined_cells_may_be_what_explains():
    X, noise = drawn(60, 3, 2)
    X[::3, 0] = np.nan
    frame, _ = p_of(X, 2.0 * np.isnan(X[:, 0]) + 0.3 * noise)
    assert (frame["p_value"][0] <= LEVEL, frame["statistic"][0]) == (True, "shape")


def test_classes_are_tested_inside_their_layers():
    layers = average_repeats(linear_layers(layers=8))
    found = rank(layers, task="classification", models="dt", methods="builtin", resamples=3)
    assert found.beyond_chance[0] == "tex_fu_utilization"
    assert found.null.rows == 8


def test_exchanged_times_stay_within_a_configuration_and_move_whole_layers():
    layers = average_repeats(linear_layers(layers=8))
    problem, pieces = build_problem(layers), distinct_layers(layers)
    rng = np.random.default_rng(0)
    tables = exchanged_rows(pieces, problem.configuration, 5, rng)
    assert (tables[0] == np.arange(problem.rows)).all()
    for donors in tables[1:]:
        assert not np.array_equal(donors, tables[0])
        assert (problem.configuration[donors] == problem.configuration).all()
        moves = pd.Series(pieces[donors]).groupby(pieces).nunique()
        assert (moves == 1).all(), "a layer gets the times of one other under all backends"


def test_a_smaller_piece_gives_its_rows_to_a_larger_one():
    pieces = np.array([0, 0, 0, 1, 2, 2])
    donors = exchanged_rows(pieces, np.zeros(6, dtype=int), 30, np.random.default_rng(0))
    for one in donors:
        assert (pd.Series(pieces[one]).groupby(pieces).nunique() == 1).all()


def test_exchanged_backends_keep_their_number_within_a_layer():
    layers = average_repeats(linear_layers(layers=8))
    problem = build_problem(layers, "classification")
    rng = np.random.default_rng(0)
    tables = exchanged_classes(problem.truth, distinct_layers(layers), 3, rng)
    assert not np.array_equal(tables[1], problem.truth)
    for code in range(problem.n_layers):
        assert sorted(tables[1][problem.layer == code]) == [0, 1, 2]


def test_what_cannot_be_exchanged_is_not_tested_and_it_is_said():
    layers = average_repeats(linear_layers(layers=6)).drop_duplicates("layer")
    alone = layers.assign(workload=layers["layer"])  # each layer under settings of its own
    found = rank(alone, models="dt", methods="builtin", resamples=4, permutations=20, n_jobs=1)
    assert "in only 1 ways" in found.chance
    assert found.summary["p_value"].isna().all()
    assert found.beyond_chance == ()


def test_nothing_shown_is_not_shown_and_has_its_power():
    X, noise = drawn(20, 4, 3)
    found = rank(X, np.exp(noise), models="dt", methods="builtin", resamples=3, n_jobs=1)
    assert found.beyond_chance == ()
    assert 0.0 < found.null.power < 1.0
    assert "is shown" in found.chance
    assert "No metric explains" not in found.chance
    assert f"{found.null.rows} independent rows" in found.chance
