import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfml.account.intervals import busy_by_group, intersection, union

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


def test_launches_side_by_side_count_once_and_an_unknown_start_leaves_the_group_unknown():
    rows = pd.DataFrame(
        {
            "layer": ["a", "a", "b", "b"],
            "start_us": [0.0, 5.0, 0.0, np.nan],
            "time_us": [10.0, 10.0, 1.0, 1.0],
        }
    )
    busy = busy_by_group(rows, ["layer"])
    assert busy["a"] == 15.0
    assert np.isnan(busy["b"])
