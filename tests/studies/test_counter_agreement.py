"""Counters of two profilers side by side: `benchmarks.agreement`."""

import pytest

from benchmarks.agreement import PAIRS, compare, metrics_table, table_of
from tests.support.paths import DATA


@pytest.fixture
def tables():
    table = table_of(DATA / "cupti" / "h100_repeats.csv")
    return {side: table.copy() for side in ("iterations", "again", "ncu", "flushed")}


def test_equal_tables_do_not_differ(tables):
    result = compare(tables)
    assert result["launches"] == 4
    assert {
        tuple(row[pair]) for row in result["kinds"].values() for pair in PAIRS if row[pair]
    } == {(0.0, 0.0)}


def test_a_difference_is_that_of_the_larger_value_and_of_its_pairs_alone(tables):
    name = "smsp__inst_executed.sum"
    tables["ncu"].loc[1, name] *= 1.25
    row = compare(tables)["metrics"][name]
    assert row["iterations to ncu, no flush"] == [0.0, 0.2]
    assert row["ncu, flush to no flush"] == [0.0, 0.2]
    assert row["iterations, repeated"] == [0.0, 0.0]
    shown = metrics_table(compare(tables))
    assert f"| `{name}` | 4 | 0 / 0.2 | 0 / 0 | 0 / 0.2 | 0 / 0 |" in shown


def test_other_kernels_are_refused(tables):
    tables["flushed"] = tables["flushed"].iloc[:3]
    with pytest.raises(ValueError, match="other kernels in flushed: 3 and 4 launches"):
        compare(tables)
