"""What is left to gain: by limit, and when to stop."""

import math

import pytest

from perfml.explain.speed_of_light import KernelLevels, headroom


def levels(time_us, compute, memory, share=1.0):
    return KernelLevels("k", 2, time_us / 2, share, compute, memory, math.nan, 3)


def test_what_saves_a_part_of_a_step_is_set_against_the_step():
    assert headroom([levels(100.0, 0.3, 0.93)], [(40.0, 1000.0)]).stop
    left = headroom([levels(10_000.0, 0.3, 0.93)], [(90.0, 1000.0), (100.0, math.nan)])
    assert not left.stop
    assert "90 µs of 1,000 µs" in left.reason.replace("90.0", "90")


def test_a_kernel_that_keeps_both_busy_is_limited_by_both():
    assert levels(100.0, 0.85, 0.83).limits == "compute and memory"
    assert (levels(100.0, 0.85, 0.3).limits, levels(1.0, 0.85, 0.83).category) == ("compute",) * 2


def test_a_kernel_at_its_roofline_without_a_saving_is_where_to_stop():
    left = headroom([levels(100.0, 0.3, 0.93)], [(1.0, math.nan)])
    assert left.stop
    kernel = left.kernels[0]
    assert (kernel.category, kernel.at_roofline, kernel.first_launch) == ("memory", True, 3)
    assert kernel.headroom_us == pytest.approx(7.0)


def test_a_kernel_at_its_roofline_that_moves_too_much_goes_on():
    assert not headroom([levels(100.0, 0.3, 0.93)], [(40.0, math.nan)]).stop


def test_time_that_no_unit_fills_is_underutilized_and_the_rest_is_by_limit():
    left = headroom([levels(60.0, 0.2, 0.3, 0.6), levels(40.0, 0.75, 0.1, 0.4)], [])
    assert not left.stop
    assert {each.category: each.headroom_us for each in left.limits} == pytest.approx(
        {"underutilized": 42.0, "compute": 10.0}
    )


def test_what_was_not_measured_is_no_headroom_and_is_said():
    left = headroom([levels(100.0, math.nan, 0.2)], [])
    assert (left.stop, left.limits) == (False, ())
    assert "is known for 0 %" in left.reason
    assert headroom([], []) is None
