"""Lists of items are found as a regular expression finds them, but never slowly."""

import re
import time

from hypothesis import given
from hypothesis import strategies as st

from perfml.ingest.layer_map import REPEATS, Pattern
from tests.support.examples import examples

ITEM = st.tuples(st.sets(st.integers(0, 2), min_size=1), st.sampled_from(REPEATS))
GROUP = st.lists(ITEM, min_size=1, max_size=3).filter(
    lambda items: any(repeat in ("", "+") for _, repeat in items)
)


def expression(groups, pause):
    def letters(symbols):
        return "[" + "".join(chr(97 + each) for each in sorted(symbols)) + "]"

    skip = f"{letters(pause)}*" if pause else ""
    parts = [
        "(" + "".join(f"(?:{letters(symbols)}{skip}){repeat}" for symbols, repeat in group) + ")"
        for group in groups
    ]
    return "".join(parts)


@given(
    st.lists(GROUP, min_size=1, max_size=3),
    st.sets(st.integers(0, 2), max_size=1),
    st.lists(st.integers(0, 2), max_size=14),
)
@examples(600)
def test_matches_are_those_of_a_regular_expression(groups, pause, sequence):
    items = [[(frozenset(symbols), repeat) for symbols, repeat in group] for group in groups]
    pattern = Pattern(items, pause)
    found = list(pattern.matches(sequence))
    text = "".join(chr(97 + each) for each in sequence)
    wanted = []
    for match in re.finditer(expression(groups, pause), text):
        starts = [match.start(n + 1) for n in range(len(groups))]
        wanted.append((*starts, match.end()))
    assert found == wanted
    if not found:
        for count in range(1, len(groups)):
            part = re.search(expression(groups[:count], pause), text)
            assert pattern.furthest.get(count) == (part.end() if part else None)


def test_a_list_that_almost_fits_everywhere_takes_linear_time():
    many = [[(frozenset({0}), "*") for _ in range(40)] + [(frozenset({1}), "")]]
    took = []
    for length in (1000, 8000):
        began = time.process_time()
        assert list(Pattern(many).matches([0] * length)) == []
        took.append(time.process_time() - began)
    assert took[1] < 30 * took[0]
