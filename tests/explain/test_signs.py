"""Where one kernel replaces several, in which direction every cause works."""

import pytest

from perfml.explain import explain, load_tables, sides_of
from perfml.explain.results import points_of

pytestmark = pytest.mark.long

SEVERAL = {"fused", "split"}


@pytest.fixture(scope="module", params=["cudnn", "inductor"])
def both_ways(request, sweep):
    """Return a backend explained against cuBLAS, and cuBLAS against it, layer by layer."""
    layers, kernels = load_tables(sweep, ["batch=1"])
    found = [
        explain(*sides_of(layers, *pair, kernels=kernels), model=None, top=99)
        for pair in (("cublas", request.param), (request.param, "cublas"))
    ]
    return [{detail.layer: detail for detail in each.details} for each in found]


def replaced(details):
    return [each for each in details.values() if SEVERAL & set(each.kernels["change"])]


@pytest.mark.slow
def test_kernels_that_vanished_save_and_those_that_appeared_cost(both_ways):
    for details in both_ways:
        for detail in replaced(details):
            by_term = {each.term.id: each.log_ratio for each in detail.causes.totals}
            assert by_term.get("kernels_vanished", -1) < 0, detail.layer
            assert by_term.get("kernels_appeared", 1) > 0, detail.layer


@pytest.mark.slow
def test_what_makes_it_slower_is_what_makes_the_other_way_faster(both_ways):
    there, back = both_ways
    opposite = {"kernels_vanished": "kernels_appeared", "kernels_appeared": "kernels_vanished"}
    for detail in replaced(there):
        ours = {each.term.id: each.log_ratio for each in detail.causes.totals}
        theirs = {each.term.id: each.log_ratio for each in back[detail.layer].causes.totals}
        for term, value in ours.items():
            if abs(value) > 0.05:
                assert theirs[opposite.get(term, term)] == pytest.approx(-value, rel=1e-6)


def test_the_cause_that_is_said_first_goes_the_way_of_the_measured_time(both_ways):
    for details in both_ways:
        for detail in replaced(details):
            if detail.time.slower is None or not detail.causes.towards(detail.time.log_ratio):
                continue
            first = detail.causes.towards(detail.time.log_ratio)[0]
            assert points_of(detail)["why"].startswith(first.term.label), detail.layer
