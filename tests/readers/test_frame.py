import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfml.readers.frame import kernels_frame, occurrences
from perfml.util.ranges import split_range


def layers_of(ranges, instances=None):
    launches = pd.DataFrame({"kernel": [f"k{i}" for i in range(len(ranges))], "time_us": 1.0})
    frame = kernels_frame(launches, ranges, instances=instances)
    missing = frame["layer"].isna()
    return list(zip(frame["iteration"], frame["layer"].where(~missing, "").fillna(""), strict=True))


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (["iter_0", "conv_03"], (0, ("conv_03",))),
        (["iteration 12", "a", "b"], (12, ("a", "b"))),
        (["step-4"], (4, ())),
        (["iterate", "x"], (None, ("iterate", "x"))),
        (["iter_1", "iter_2"], (1, ("iter_2",))),
        ([], (None, ())),
    ],
)
def test_a_range_path_splits_into_iteration_and_layer(path, expected):
    assert split_range(path) == expected


def test_a_launch_outside_every_range_has_no_layer():
    assert layers_of([["iter_0"], ["iter_0", "conv_01"], []]) == [(0, ""), (0, "conv_01"), (0, "")]


def test_a_layer_entered_again_in_an_iteration_is_another_layer():
    ranges = [["iter_0", "conv"], ["iter_0", "relu"], ["iter_0", "conv"], ["iter_1", "conv"]]
    assert layers_of(ranges) == [(0, "conv"), (0, "relu"), (0, "conv#2"), (1, "conv")]


def test_without_iterations_the_occurrences_are_the_iterations():
    ranges = [["conv"], ["relu"], ["conv"], ["relu"]]
    assert layers_of(ranges) == [(0, "conv"), (0, "relu"), (1, "conv"), (1, "relu")]


def test_coming_back_from_an_inner_range_is_the_same_outer_layer():
    ranges = [["iter_0", "block"], ["iter_0", "block", "conv"], ["iter_0", "block"]]
    assert layers_of(ranges) == [(0, "block"), (0, "block/conv"), (0, "block")]


def test_instances_tell_apart_what_follows_itself():
    assert layers_of([["conv"], ["conv"]], instances=[1, 2]) == [(0, "conv"), (1, "conv")]
    assert layers_of([["conv"], ["conv"]], instances=[1, 1]) == [(0, "conv"), (0, "conv")]


def test_launches_are_numbered_within_their_iteration():
    launches = pd.DataFrame({"kernel": list("abc"), "time_us": 1.0})
    frame = kernels_frame(launches, [["iter_0"], ["iter_0"], ["iter_1"]])
    assert frame["kernel_index"].tolist() == [0, 1, 0]


def one_by_one(iterations, paths):
    """Count occurrences as the definition says: keep a list of the ranges that are open."""
    opened, count, found, last = [], {}, [], None
    for iteration, path in zip(iterations, paths, strict=True):
        if iteration != last:
            opened = []
        kept = 0
        while kept < min(len(opened), len(path)) and opened[kept][0] == path[kept]:
            kept += 1
        opened = opened[:kept]
        for depth in range(kept, len(path)):
            key = (iteration, tuple(path[: depth + 1]))
            count[key] = count.get(key, -1) + 1
            opened.append((path[depth], count[key]))
        found.append(opened[-1][1] if path else 0)
        last = iteration
    return found


@given(
    st.lists(
        st.tuples(
            st.integers(0, 2),
            st.lists(st.sampled_from("ab"), max_size=4).map(tuple),
            st.integers(0, 1),
        ),
        max_size=40,
    )
)
def test_occurrences_are_those_of_ranges_that_open_and_close(launches):
    iterations, paths, instances = map(list, zip(*launches, strict=True)) if launches else ([],) * 3
    layers = sorted(set(paths))
    codes = np.array([layers.index(path) for path in paths], dtype=np.int64)
    numbers = np.array(iterations, dtype=np.int64)
    assert occurrences(numbers, codes, layers, None).tolist() == one_by_one(iterations, paths)
    # where instances are known, launches of one need not follow each other
    found = occurrences(numbers, codes, layers, instances).tolist()
    keys = list(zip(iterations, paths, strict=True))
    for key in set(keys):
        mine = [n for n, each in zip(instances, keys, strict=True) if each == key]
        order = list(dict.fromkeys(mine))
        numbered = [n for n, each in zip(found, keys, strict=True) if each == key]
        assert numbered == [order.index(instance) for instance in mine]


def test_sizes_of_zero_were_not_recorded():
    # as CUPTI writes kernels that a CUDA graph launched, beside one that it saw launched
    launches = pd.DataFrame({"kernel": ["graph", "own"], "time_us": 1.0})
    launches["grid"] = ["(0, 0, 0)", "(10, 1, 1)"]
    launches["block"] = ["(0, 0, 0)", "(128, 1, 1)"]
    launches["threads"] = [0.0, 1280.0]
    launches["registers_per_thread"] = [0.0, 32.0]
    launches["shared_memory_per_block"] = [0.0, 0.0]
    frame = kernels_frame(launches, [[], []])
    columns = ["grid", "block", "threads", "registers_per_thread", "shared_memory_per_block"]
    assert frame.loc[0, columns].isna().all()
    assert frame.loc[1, columns].tolist() == ["(10, 1, 1)", "(128, 1, 1)", 1280, 32, 0]


def test_a_size_with_zeros_in_its_digits_is_kept():
    launches = pd.DataFrame({"kernel": ["k"], "time_us": 1.0, "grid": "(100, 20, 1)"})
    assert kernels_frame(launches, [[]])["grid"].tolist() == ["(100, 20, 1)"]
