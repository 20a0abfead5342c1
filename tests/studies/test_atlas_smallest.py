"""The search for a small set offers one of each group of twins, the cheapest."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import rankdata

from perfml.predict.python import reference
from studies.atlas.data import analysing, features, metric_columns_of, metrics, networks, rows
from studies.atlas.smallest import CHOSEN, TRIED, TWINS, by_cost, offered_by, search, twins

pytestmark = pytest.mark.slow


def test_twins_say_the_same_and_the_cheapest_stands_for_them():
    order, table = by_cost(), features("counted")
    groups = twins()
    assert sorted(name for group in groups for name in group) == sorted(metrics())
    for group in groups:
        assert group == sorted(group, key=order.index)
        ranks = [
            rankdata(table[metric_columns_of(name)[0]].fillna(-np.inf).to_numpy()) for name in group
        ]
        if len(ranks) > 1:
            assert np.abs(np.corrcoef(ranks)).min() >= TWINS - 1e-9
    assert sorted(offered_by(TRIED[CHOSEN])) == sorted(group[0] for group in groups)


def test_facts_of_the_launch_come_before_counters():
    order = by_cost()
    assert {"kernels", "threads", "waves_per_sm"} <= set(order[:5])


def test_a_longer_search_begins_like_a_shorter_one():
    members, rules = np.unique(networks())[:12], TRIED[CHOSEN]
    offered = ["kernels", "threads", "inst_executed", "dram_read_bytes"]
    long = search(members, rules, offered, 3)
    assert long[:2] == search(members, rules, offered, 2)
    assert len(set(long)) == 3


def test_other_rows_are_analysed_inside_a_block_only():
    whole, table = len(rows()), reference()
    some = table[table["workload"].isin(table["workload"].unique()[:4])]
    with analysing(some):
        assert int(networks().max()) + 1 == 4
        assert len(features("shape")) == len(rows()) < whole
    assert len(rows()) == whole
