"""A time is of one launch or of all: N equal launches save N times as much as one."""

import math

import pytest

from perfml.explain import TERMS, advise, explain
from perfml.explain.advice.first_fix import _gain
from perfml.explain.load import pair_kernels
from perfml.ingest.merge.groups import kernels_as_layers
from perfml.util.findings import Time
from tests.support.causes import pair_with
from tests.support.tables import make_kernels

CAUSES = ("memory_fence", "global_atomics", "local_memory")


def launched(cause, side, often):
    """Return a table without ranges of one kernel, launched as often as told."""
    launch = pair_with(cause)[side]
    row = {"layer": None, "kernel": "mine(float*)", "time_us": launch.time_us, **launch.counters}
    # a trace has the program as it ran: its launches are no repeats of each other
    return make_kernels([{**row, "start_us": 100.0 * at} for at in range(often)])


def fix_of(cause, often, target=None):
    sides = [launched(cause, at, (often, target or often)[at]) for at in (0, 1)]
    loaded = pair_kernels(("one", sides[0]), ("two", sides[1]))
    (detail,) = explain(
        loaded.baseline, loaded.target, alignment=loaded.alignment, model=None
    ).details
    return detail.fix


@pytest.mark.parametrize("cause", CAUSES)
@pytest.mark.parametrize("often", [2, 40])
def test_equal_launches_save_as_many_times_as_much(cause, often):
    one, many = fix_of(cause, 1), fix_of(cause, often)
    assert one.term == many.term
    assert many.now.us == pytest.approx(often * one.now.us)
    for name in ("likely", "low", "high"):
        ratios = [getattr(fix.gain, name) / fix.now for fix in (one, many)]
        assert ratios[0] == pytest.approx(ratios[1])


@pytest.mark.parametrize("often", [2, 40])
def test_what_advice_saves_grows_with_the_launches_and_its_order_does_not_change(often):
    rows = [
        {"kernel": f"{cause}(float*)", "layer": None, **pair_with(cause)[1].counters}
        | {"time_us": pair_with(cause)[1].time_us}
        for cause in CAUSES
    ]
    one, many = (in_layers(make_kernels(rows * n)) for n in (1, often))
    assert one["rules"].tolist() == many["rules"].tolist()
    assert one["kernel"].tolist() == many["kernel"].tolist()
    saved = many["saved_us"].to_numpy() / one["saved_us"].to_numpy()
    assert saved == pytest.approx([often] * len(one))


def in_layers(kernels):
    return advise(kernels_as_layers(kernels)).table


def test_times_of_a_launch_and_of_all_launches_have_no_difference():
    with pytest.raises(ValueError, match="of a launch is no part of one of all launches"):
        Time(9.0, "all launches") - Time(3.0, "launch")
    assert (Time(9.0) - Time(3.0)).us == 6.0
    assert Time(9.0).without(math.inf).us == 0.0


def test_where_no_launch_has_the_cause_there_is_no_time_after_it():
    launch = pair_with("memory_fence")[1]
    assert _gain(TERMS["memory_fence"], (), (launch,), Time(launch.time_us)) is None
