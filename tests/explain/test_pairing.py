"""Kernels of two profiles without ranges: which answers to which, and what that makes of times."""

import pandas as pd
import pytest
from hypothesis import given as tried_with
from hypothesis import strategies as st

from perfml.errors import PerfmlError
from perfml.explain.compare import explain
from perfml.explain.load import pair_kernels
from tests.support.examples import examples
from tests.support.tables import make_kernels


def launches(*rows):
    """Return a Kernels table without ranges from (kernel, grid, time) or (kernel, time)."""
    return make_kernels(
        [
            {"layer": pd.NA, "kernel": row[0], "grid": row[1] if len(row) > 2 else "(1, 1, 1)"}
            | {"time_us": float(row[-1])}
            for row in rows
        ]
    )


def paired(left, right):
    pairing = pair_kernels(("before", left), ("after", right))
    pairs = pairing.alignment.pairs
    return pairing, [tuple(row) for row in pairs.itertuples(index=False)]


def total(pairing):
    return explain(pairing.baseline, pairing.target, alignment=pairing.alignment, model=None).total


def test_kernels_of_one_name_are_paired_whatever_their_order_and_parameters():
    _, pairs = paired(
        launches(("warm()", 1), ("void gemm<1>(int)", 4)),
        launches(("void gemm<2>(int)", 2), ("warm()", 1)),
    )
    assert pairs == [("warm", "warm", "name"), ("gemm", "gemm", "name")]


def test_of_several_of_one_name_the_same_signature_and_shape_is_paired():
    _, pairs = paired(
        launches(("gemm<1>", "(1, 1, 1)", 1), ("gemm<2>", "(2, 1, 1)", 2)),
        launches(("gemm<2>", "(2, 1, 1)", 2), ("gemm<1>", "(1, 1, 1)", 1)),
    )
    assert [(left.split()[1], right.split()[1]) for left, right, _ in pairs] == [
        ("(1,1,1)x(32,1,1)", "(1,1,1)x(32,1,1)"),
        ("(2,1,1)x(32,1,1)", "(2,1,1)x(32,1,1)"),
    ]
    assert {how for _, _, how in pairs} == {"signature"}


def test_what_is_left_is_paired_by_place_and_that_is_said():
    pairing, pairs = paired(
        launches(("warm", 1), ("naive", 9)), launches(("warm", 1), ("tiled", 3))
    )
    assert pairs[1] == ("naive", "tiled", "place")
    assert "1 by name, 1 by place (naive with tiled)" in pairing.alignment.said[0]


RENAMED = (("cache_L1", "(8, 1, 1)", 6), ("cache_L2", "(4, 1, 1)", 2), ("cache_L3", "(2, 1, 1)", 1))


def test_kernels_without_a_common_name_are_paired_by_order_where_grids_are_alike():
    renamed = [(f"mod_{name}", grid, 2 * us) for name, grid, us in RENAMED[:2]]
    renamed.append(("mod_cache_L3", "(9, 1, 1)", 1))  # one grid may be another
    pairing, pairs = paired(launches(*RENAMED), launches(*renamed))
    assert pairs == [(name, f"mod_{name}", "order") for name, *_ in RENAMED]
    assert total(pairing).ratio == pytest.approx(17 / 9)


@pytest.mark.parametrize(
    "others",
    [
        [
            (f"mod_{name}", f"({place + 20}, 1, 1)", us)
            for place, (name, _, us) in enumerate(RENAMED)
        ],
        [(f"mod_{name}", grid, us) for name, grid, us in (*RENAMED, RENAMED[0])],
    ],
    ids=["other grids", "another order"],
)
def test_other_programs_are_not_paired_by_order_and_it_is_said_what_to_type(others):
    pairing, pairs = paired(launches(*RENAMED), launches(*others))
    assert not pairs
    with pytest.raises(PerfmlError) as caught:
        total(pairing)
    assert "--kernel cache_L1 --kernel-b mod_cache_L1" in caught.value.cure


def test_kernels_that_were_fused_are_one_pair_and_the_sign_is_that_of_the_time():
    pairing, pairs = paired(
        launches(("conv", 6), ("bias", 2), ("relu", 2), ("pool", 1)),
        launches(("conv_bias_relu", 7), ("pool", 1)),
    )
    assert ("conv + bias + relu", "conv_bias_relu", "place") in pairs
    found = explain(pairing.baseline, pairing.target, alignment=pairing.alignment, model=None)
    assert found.total.ratio == pytest.approx(8 / 11)
    detail = found.details[0]
    assert detail.time.verdict == "faster"
    by_term = detail.causes.terms.set_index("term")["log_ratio"]
    assert by_term["kernels_vanished"] < 0
    assert "kernels_appeared" not in by_term.index
    assert by_term.sum() == pytest.approx(detail.time.log_ratio)


def test_a_group_that_is_launched_unequally_often_is_one_repeat():
    before = [("conv", 6), ("conv", 6), ("relu", 2)]
    pairing, _ = paired(launches(*before), launches(("conv_relu", 7)))
    assert pairing.baseline.layers["time_us"].tolist() == [14]


def test_repeats_of_a_fused_group_are_its_launches_where_all_are_launched_equally_often():
    before = [("conv", 6), ("relu", 2)] * 3
    pairing, _ = paired(launches(*before), launches(*[("conv_relu", 7)] * 2))
    assert pairing.baseline.layers["time_us"].tolist() == [8, 8, 8]
    assert total(pairing).repeats == (3, 2)


def test_kernels_launched_unequally_often_are_compared_by_all_their_launches():
    pairing, _ = paired(
        launches(*[("gemm", 2)] * 10, ("relu", 5)), launches(*[("gemm", 1)] * 4, ("relu", 5))
    )
    assert total(pairing).ratio == pytest.approx((4 * 1 + 5) / (10 * 2 + 5))
    assert "gemm 10 and 4 times" in pairing.alignment.said[1]


SIDE = st.lists(
    st.tuples(
        st.sampled_from(["gemm<1>(int)", "gemm<2>(int)", "relu()", "pool()", "conv()", "add()"]),
        st.sampled_from(["(1, 1, 1)", "(2, 1, 1)"]),
        st.floats(0.5, 9.0),
    ),
    min_size=1,
    max_size=8,
)


@pytest.mark.long
@examples(40)
@tried_with(SIDE, SIDE)
def test_every_launch_is_in_one_pair_or_said_to_be_alone(before, after):
    pairing, pairs = paired(launches(*before), launches(*after))
    sides = (
        (pairing.baseline, 0, pairing.alignment.only_baseline, before),
        (pairing.target, 1, pairing.alignment.only_target, after),
    )
    for side, column, alone, rows in sides:
        names = [pair[column] for pair in pairs]
        assert len(set(names)) == len(names)
        assert {*names, *alone} == set(side.layers["layer"])
        assert not set(names) & set(alone)
        assert side.layers["time_us"].sum() == pytest.approx(sum(row[2] for row in rows))
    # both have some alone only where nothing is common
    assert not pairs or not all((pairing.alignment.only_baseline, pairing.alignment.only_target))


@pytest.mark.parametrize("turned", [False, True])
def test_programs_without_a_common_kernel_are_not_paired_by_place(turned):
    sides = launches(("conv", 6), ("pool", 2)), launches(("sort", 5), ("scan", 3), ("hash", 1))
    pairing, pairs = paired(*(sides[::-1] if turned else sides))
    assert pairs == []
    alone = pairing.alignment.only_baseline, pairing.alignment.only_target
    assert sorted(map(len, alone)) == [2, 3]
    assert "no kernel in common" in pairing.alignment.said[0]
    with pytest.raises(PerfmlError, match="no kernel of one side"):
        total(pairing)
