import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfml.account.device_time import group_times
from perfml.account.intervals import intersection, union

SPANS = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 20)), max_size=12)


def covered(spans):
    """The whole microseconds of which any interval holds the middle."""
    return {time for start, length in spans for time in range(start, start + length)}


def united(spans):
    return union([start for start, _ in spans], [start + length for start, length in spans])


@given(SPANS)
def test_a_union_is_as_long_as_what_is_covered(spans):
    assert united(spans).length_us == len(covered(spans))


@given(SPANS)
def test_a_union_is_disjoint_and_in_order(spans):
    result = united(spans)
    assert bool((result.start[1:] > result.end[:-1]).all())


@given(SPANS, SPANS)
def test_an_intersection_is_as_long_as_what_both_cover(one, other):
    both = intersection(united(one), united(other))
    assert both.length_us == len(covered(one) & covered(other))


def test_an_interval_that_ends_before_it_starts_is_refused():
    with pytest.raises(ValueError, match="ends before it starts"):
        union([2.0], [1.0])


GROUPED = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 60), st.integers(1, 20)), min_size=1, max_size=20
)


@given(GROUPED)
def test_a_group_is_busy_as_long_as_the_union_of_its_launches(launches):
    busy, wall = group_times(*zip(*launches, strict=True))
    for group in {group for group, _, _ in launches}:
        spans = [(start, length) for each, start, length in launches if each == group]
        assert busy[group] == len(covered(spans))
        last = max(start + length for start, length in spans)
        assert wall[group] == last - min(start for start, _ in spans)


def test_a_group_of_which_one_start_is_not_known_is_unknown_and_the_others_are_not():
    busy, wall = group_times([0, 0, 1, 1], [0.0, 5.0, 0.0, np.nan], [10.0, 10.0, 1.0, 1.0])
    assert busy[0] == wall[0] == 15.0
    assert np.isnan([busy[1], wall[1]]).all()


def test_launches_one_after_another_take_the_sum_of_their_times_digit_for_digit():
    start, time = [0.1, 0.4, 0.9], [0.3, 0.1, 0.7]
    assert group_times([0, 0, 0], start, time)[0][0] == sum(time)
