"""Responses and elasticities, with expected values worked out by hand."""

import math

import pytest

from perfml.experiments.record import Condition, Examined, Experiments
from perfml.experiments.responses import resampled, responses


def launch(**times):
    amounts = {"sm_half": 0.5, "warps_half": 0.5}
    conditions = [
        Condition(name, "all", amounts.get(name, 1.0), tuple(rounds))
        for name, rounds in times.items()
    ]
    return Examined((), "f", conditions=tuple(conditions))


def experiments(*launches, known=(), empty_us=2.0):
    return Experiments(132, 50 << 20, empty_us, tuple(known), tuple(launches))


def test_a_ratio_is_of_medians_and_an_elasticity_of_logarithms():
    (found,) = responses(
        experiments(launch(all=[10, 12, 11], sm_half=[22, 100, 21], warps_half=[11, 11, 11]))
    )
    assert found.time_us == 11
    assert found.ratio("sm_half") == 2
    assert found.by_condition["sm_half"].elasticity == 1
    assert found.by_condition["warps_half"].elasticity == 0


def test_an_interval_spans_what_the_rounds_allow():
    steady = launch(all=[10.0] * 7, sm_half=[20.0] * 7)
    noisy = launch(all=[10.0] * 7, sm_half=[10, 12, 14, 20, 26, 28, 30])
    first, second = responses(experiments(steady, noisy))
    assert first.by_condition["sm_half"].elasticity == 1
    low, high = second.by_condition["sm_half"].low, second.by_condition["sm_half"].high
    assert 1.2 <= low < 2 < high <= 2.8
    drawn = [each.ratio("sm_half") for each in resampled(second, 100)]
    assert min(drawn) < 2 < max(drawn)
    assert {each.ratio("sm_half") for each in resampled(first, 20)} == {2.0}


def test_launch_overhead_is_taken_from_both_sides_of_a_ratio():
    # 2 of 10 us are an empty kernel's: 8 us of work that becomes 16 makes 18 of 10
    (found,) = responses(experiments(launch(all=[10] * 3, sm_half=[18] * 3)))
    assert found.launch_share == pytest.approx(0.2)
    assert found.by_condition["sm_half"].elasticity < 1
    assert found.elasticity_beyond_launch("sm_half") == pytest.approx(1)


def test_traffic_is_measured_by_what_it_does_to_a_kernel_of_known_limit():
    def under(traffic):
        made = launch(all=[10] * 3, dram_traffic=[10 * traffic] * 3)
        return Examined((), "dram", conditions=made.conditions)

    known, subject = under(1.5), under(1.5**2)
    (found,) = responses(experiments(subject, known=[known]))
    assert found.by_condition["dram_traffic"].elasticity == pytest.approx(2)
    (unknown,) = responses(experiments(subject))
    assert math.isnan(unknown.by_condition["dram_traffic"].elasticity)


def test_what_launching_adds_is_taken_off_where_the_programs_own_time_is_known():
    conditions = launch(all=[4.0] * 3, sm_half=[5.0] * 3).conditions
    (made,) = responses(
        experiments(Examined((), "tiny", conditions=conditions, own_us=1.0), empty_us=4.2)
    )
    assert made.time_us == 1.0
    assert made.ratio("sm_half") == 2.0
    assert made.empty_us == pytest.approx(1.2)
    (plain,) = responses(experiments(Examined((), "f", conditions=conditions), empty_us=4.2))
    assert (plain.time_us, plain.ratio("sm_half"), plain.empty_us) == (4.0, 1.25, 4.2)


def test_a_kernel_of_a_microsecond_takes_that_and_answers_to_nothing_that_it_does_not_use():
    # one warp on an H200, 2026-11-29: alone 0.831 us by CUPTI, in a graph of launches 1.18
    conditions = launch(
        all=[1.184, 1.20533, 1.16089, 1.15378, 1.18044, 1.18933, 1.168],
        sm_half=[1.17156, 1.16978, 1.18222, 1.16089, 1.17511, 1.16089, 1.18222],
    ).conditions
    one = Examined((), "one", conditions=conditions, own_us=0.831)
    (made,) = responses(experiments(one, empty_us=0.6))
    assert made.time_us == 0.831
    assert made.ratio("sm_half") == pytest.approx(1, abs=0.02)
    assert made.by_condition["sm_half"].low > 0.95


def test_launching_adds_no_more_to_a_long_launch_than_to_an_empty_kernel():
    conditions = launch(all=[108.0] * 3, sm_half=[208.0] * 3).conditions
    (made,) = responses(
        experiments(Examined((), "f", conditions=conditions, own_us=100.0), empty_us=2.0)
    )
    assert made.ratio("sm_half") == pytest.approx(206 / 106)
