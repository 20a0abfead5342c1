"""What is left to gain: by limit, and when to stop."""

import math

import pytest

from perfml.explain.speed_of_light import KernelLevels, headroom


def levels(time_us, compute, memory, share=1.0):
    return KernelLevels("k", 2, time_us / 2, share, compute, memory, math.nan, 3)


def test_a_kernel_at_its_roofline_without_a_saving_is_where_to_stop():
    left = headroom([levels(100.0, 0.3, 0.93)], saving_us=1.0)
    assert left.stop
    kernel = left.kernels[0]
    assert (kernel.category, kernel.at_roofline, kernel.first_launch) == ("memory", True, 3)
    assert kernel.headroom_us == pytest.approx(7.0)


def test_a_kernel_at_its_roofline_that_moves_too_much_goes_on():
    assert not headroom([levels(100.0, 0.3, 0.93)], saving_us=40.0).stop


def test_time_that_no_unit_fills_is_underutilized_and_the_rest_is_by_limit():
    left = headroom([levels(60.0, 0.2, 0.3, 0.6), levels(40.0, 0.75, 0.1, 0.4)], saving_us=0.0)
    assert not left.stop
    assert {each.category: each.headroom_us for each in left.limits} == pytest.approx(
        {"underutilized": 42.0, "compute": 10.0}
    )


def test_what_was_not_measured_is_no_headroom_and_is_said():
    left = headroom([levels(100.0, math.nan, 0.2)], saving_us=0.0)
    assert (left.stop, left.limits) == (False, ())
    assert "is known for 0 %" in left.reason
    assert headroom([], 0.0) is None
