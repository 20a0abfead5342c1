"""Ranges in two parts mean what the whole path of each launch means."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from perfml.readers.frame import CodedRanges
from perfml.util.ranges import split_range

NAME = st.sampled_from(["iter_0", "iter_1", "step 2", "conv", "relu"])
PATH = st.lists(NAME, max_size=3).map(tuple)
LAUNCHES = st.lists(st.tuples(PATH, PATH), min_size=1, max_size=8)


def in_two_parts(launches):
    """Return ranges coded as a reader of cells does: parts recur, and some are never used."""
    around = list(dict.fromkeys([(), *(first for first, _ in launches), ("iter_9",)]))
    within = list(dict.fromkeys([(), *(rest for _, rest in launches), ("iter_8", "unused")]))
    outer = np.array([around.index(first) for first, _ in launches])
    inner = np.array([within.index(rest) for _, rest in launches])
    return CodedRanges(outer, around, inner, within)


@given(LAUNCHES)
def test_iteration_and_layer_are_those_of_the_whole_path(launches):
    iterations, codes, layers = in_two_parts(launches).split()
    expected = [split_range(first + rest) for first, rest in launches]
    assert [layers[code] for code in codes] == [layer for _, layer in expected]
    numbers = [-1 if number is None else number for number, _ in expected]
    assert iterations.tolist() == numbers
    assert len(set(layers)) == len(layers)


@given(LAUNCHES)
def test_the_innermost_range_is_the_last_name_of_the_path(launches):
    codes, names = in_two_parts(launches).innermost()
    paths = [first + rest for first, rest in launches]
    assert [names[code] for code in codes] == [path[-1] if path else "" for path in paths]


@given(LAUNCHES, st.data())
def test_ranges_inside_others_are_named_after_them(launches, data):
    others = data.draw(st.lists(PATH, min_size=len(launches), max_size=len(launches)))
    both = in_two_parts(launches).inside(CodedRanges.of(others))
    paths = [other + first + rest for other, (first, rest) in zip(others, launches, strict=True)]
    assert [both.path(launch) for launch in range(len(paths))] == paths


def test_no_launches_have_no_ranges():
    iterations, codes, _ = CodedRanges.of([]).split()
    assert len(iterations) == len(codes) == 0
