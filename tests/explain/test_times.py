"""What an interval of times covers, and how many layers are judged at once."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from scipy.stats import ttest_ind

from perfml.errors import PerfmlError
from perfml.explain import compare_times, explain
from perfml.explain.times import corrected_verdicts, did_the_same, follow, processes_of
from perfml.gate import judge
from perfml.ingest.merge import merge
from tests.support.tables import make_kernels


def timed(rng, processes, repeats, between, within, shift=0.0):
    """Return times and the process of each: processes differ by more than the repeats of one."""
    offsets = np.repeat(rng.normal(shift, between, processes), repeats)
    times = np.exp(offsets + rng.normal(0.0, within, processes * repeats))
    return times, np.repeat(np.arange(processes), repeats)


def test_an_interval_over_processes_covers_what_differs_between_them():
    rng = np.random.default_rng(1)
    covered = {"repeats": 0, "processes": 0}
    for _ in range(300):
        before, old = timed(rng, 5, 6, 0.03, 0.003)
        after, new = timed(rng, 5, 6, 0.03, 0.003, shift=0.1)
        pooled = compare_times(before, after)
        across = compare_times(before, after, baseline_process=old, target_process=new)
        covered["repeats"] += pooled.log_low <= 0.1 <= pooled.log_high
        covered["processes"] += across.log_low <= 0.1 <= across.log_high
    assert covered["repeats"] / 300 < 0.75
    assert 0.92 <= covered["processes"] / 300 <= 0.98


def test_the_sentence_says_what_the_interval_covers():
    rng = np.random.default_rng(0)
    before, old = timed(rng, 3, 4, 0.01, 0.001)
    after, new = timed(rng, 4, 4, 0.01, 0.001, shift=0.5)
    across = compare_times(before, after, baseline_process=old, target_process=new)
    assert across.processes == (3, 4)
    assert across.repeats == (12, 16)
    assert "over 3 and 4 processes" in across.sentence()
    assert "within one process" in compare_times(before, after).sentence()
    one_sided = compare_times(before, after, baseline_process=old)
    assert "within one process" in one_sided.sentence()
    assert json.loads(json.dumps(across.to_dict()))["scope"] == "over 3 and 4 processes"


def test_a_run_is_a_process_and_the_column_process_numbers_more():
    rows = pd.DataFrame({"run_id": ["a", "a", "b", "b"], "time_us": 1.0})
    assert processes_of(rows).tolist() == [0, 0, 1, 1]
    assert processes_of(rows.assign(process=[0, 1, 0, 0])).tolist() == [0, 1, 2, 2]
    assert processes_of(rows[["time_us"]]) is None


def test_another_number_of_processes_than_times_is_refused():
    with pytest.raises(PerfmlError, match="number of processes"):
        compare_times([1.0, 1.1], [1.0, 1.1], baseline_process=[0, 1, 2])


def test_without_a_tolerance_the_p_value_is_that_of_welchs_test():
    rng = np.random.default_rng(0)
    before, after = rng.normal(2, 0.1, 7), rng.normal(2.1, 0.2, 9)
    ratio = compare_times(np.exp(before), np.exp(after), tolerance=0.0)
    assert ratio.p_value == pytest.approx(ttest_ind(before, after, equal_var=False).pvalue)


def test_many_equal_layers_are_rarely_called_different_when_judged_together():
    rng = np.random.default_rng(2)
    alone = together = 0
    for _ in range(150):
        ratios = [compare_times(*np.exp(rng.normal(0.0, 0.05, (2, 10)))) for _ in range(21)]
        calls = ("slower", "faster")
        alone += any(ratio.verdict in calls for ratio in ratios)
        together += any(ratio.verdict in calls for ratio in corrected_verdicts(ratios))
    assert alone / 150 > 0.2
    assert together / 150 <= 0.05


def test_a_clear_difference_stays_one_among_many_layers():
    rng = np.random.default_rng(3)
    equal = [compare_times(*np.exp(rng.normal(0.0, 0.02, (2, 10)))) for _ in range(20)]
    slower = compare_times([10, 10.1, 9.9, 10], [20, 20.1, 19.9, 20])
    judged = corrected_verdicts([*equal, slower])
    assert judged[-1].verdict == "slower"
    assert judged[-1].compared == 21


def test_what_the_correction_takes_back_is_undecided_and_says_so():
    borderline = compare_times([10.0, 10.4, 9.7, 10.1], [10.8, 11.2, 10.5, 10.7])
    assert borderline.verdict == "slower"
    judged = corrected_verdicts([borderline] * 40)[0]
    assert judged.verdict == "undecided"
    assert "for 40 layers judged together" in judged.sentence()


def test_a_layer_with_one_repeat_has_no_p_value_and_takes_no_part():
    single = compare_times([10.0], [12.0])
    assert single.p_value is None
    assert corrected_verdicts([single])[0] == single


@pytest.mark.parametrize(
    ("target", "verdict"),
    [(100.9, "no difference"), (102.9, "undecided"), (97.2, "undecided"), (103.2, "slower")],
)
def test_one_launch_a_side_does_not_tell_three_per_cent_apart(target, verdict):
    ratio = compare_times([100.0], [target])
    assert ratio.verdict == verdict
    assert ("one launch is not exact to this" in ratio.sentence()) == (verdict == "undecided")


def test_a_wider_tolerance_holds_for_one_launch_too():
    assert compare_times([100.0], [104.0], tolerance=0.05).verdict == "no difference"


def test_a_difference_of_three_per_cent_of_one_process_is_not_claimed_however_well_it_repeats():
    before, after = [200.6, 200.4, 200.4], [206.6, 206.2, 206.2]
    assert compare_times(before, after).verdict == "undecided"
    assert compare_times(after, before).verdict == "undecided"
    # in several processes a side it is
    runs = {"baseline_process": [0, 1, 2], "target_process": [0, 1, 2]}
    assert compare_times(before, after, **runs).verdict == "slower"
    assert compare_times(before, [1.04 * time for time in before]).verdict == "slower"


@pytest.mark.parametrize(
    ("counted", "same"),
    [
        ({}, True),
        ({"inst_executed": 1.02e8}, False),
        ({"kernel_names": "other"}, False),
        ({"dram_read_bytes": 1.2e8}, False),
    ],
)
def test_less_than_two_processes_differ_by_is_not_claimed_of_sides_that_did_the_same(counted, same):
    row = {"kernel_names": "mean", "inst_executed": 1e8, "gld_transactions": 4e6}
    row |= {"dram_read_bytes": 1e8}
    before, after = (pd.DataFrame([each] * 3) for each in (row, {**row, **counted}))
    assert did_the_same(before, after) == same
    found = compare_times([95.9, 96.0, 96.1], [100.0, 100.1, 99.9], same_work=same)
    assert found.verdict == ("undecided" if same else "slower")
    assert ("two processes of one program differ by as much" in found.sentence()) == same
    # more than that is claimed, and so is what several processes agree on
    assert compare_times([90.0, 90.1], [100.0, 100.1], same_work=True).verdict == "slower"
    process = [0, 0, 1, 1]
    several = {"baseline_process": process, "target_process": process, "same_work": True}
    agreed = compare_times([96.0, 96.1] * 2, [100.0, 100.1] * 2, **several)
    assert agreed.verdict == "slower"


def test_where_nothing_was_counted_nobody_knows_whether_both_did_the_same():
    rows = pd.DataFrame([{"kernel_names": "mean", "time_us": 1.0}])
    assert not did_the_same(rows, rows)
    assert not did_the_same(rows.assign(inst_executed=0.0), rows.assign(inst_executed=0.0))
    known, unknown = rows.assign(inst_executed=9.0), rows.assign(inst_executed=float("nan"))
    assert not did_the_same(known, unknown)
    assert did_the_same(known, known)


def side_by_side(times, streams, starts=None):
    """Return a side of one layer whose launches of 10 us lie on streams, in three iterations."""
    rows = [
        {"iteration": step, "kernel": f"k{place}", "time_us": time + step / 100, "stream": stream}
        | ({} if starts is None else {"start_us": 100.0 * step + starts[place]})
        for step in range(3)
        for place, (time, stream) in enumerate(zip(times, streams, strict=True))
    ]
    return make_kernels(rows)


def test_of_launches_that_may_overlap_nothing_is_claimed_by_explain_or_gate():
    one = side_by_side([10.0, 10.0], [7, 7])
    two = side_by_side([14.0, 14.0], [7, 8])
    found = explain(one, two, model=None)
    assert found.total.verdict == found.details[0].time.verdict == "undecided"
    assert found.total.interval is None
    assert "only the sums of their times are known" in found.total.sentence()
    assert found.details[0].reasons == ()
    gate = judge(merge(one), merge(two)).layers[0]
    assert (gate.time.verdict, gate.time.interval) == ("undecided", None)


def test_where_starts_are_known_launches_side_by_side_are_compared_by_the_clock():
    one = side_by_side([10.0, 10.0], [7, 7], [0.0, 10.5])
    two = side_by_side([14.0, 14.0], [7, 8], [0.0, 1.0])
    found = explain(one, two, model=None)
    # 15 of 28 us on the clock against 20
    assert found.total.verdict == "faster"
    assert found.total.ratio == pytest.approx(15 / 20, rel=0.002)
    assert found.details[0].causes.totals[0].term.id == "side_by_side"


def test_layers_that_run_side_by_side_are_no_sum():
    one = side_by_side([10.0, 10.0], [7, 7], [0.0, 10.0]).assign(layer=["a", "b"] * 3)
    two = side_by_side([12.0, 12.0], [7, 8], [0.0, 0.0]).assign(layer=["a", "b"] * 3)
    assert explain(one, two, model=None).total.ratio == pytest.approx(12 / 20, rel=0.002)


def test_levels_of_a_search_are_compared_launch_by_launch():
    rng = np.random.default_rng(3)
    levels = np.array([2.0, 8.0, 40.0, 210.0, 480.0, 120.0, 30.0, 6.0, 2.5])
    before, after = (levels * factor * np.exp(rng.normal(0.0, 0.01, 9)) for factor in (1.0, 1.3))
    assert compare_times(before, after).verdict == "undecided"
    pairs = compare_times(before, after, in_order=True)
    assert pairs.verdict == "slower"
    assert pairs.interval[0] < 1.3 < pairs.interval[1] < 1.4
    # the ratio is that of all launches
    assert pairs.ratio == pytest.approx(after.sum() / before.sum())
    table, other = (
        make_kernels(
            [{"run_id": name, "layer": "search", "kernel": "level", "time_us": us} for us in times]
        )
        for name, times in (("a", before), ("b", after))
    )
    for columns in ({}, {"layer": None}):
        found = explain(table.assign(**columns), other.assign(**columns), model=None)
        assert found.layers["verdict"].tolist() == ["slower"]
        assert found.layers["ratio"].iloc[0] == pytest.approx(pairs.ratio)


def test_intervals_over_pairs_cover_and_repeats_alike_are_no_pairs():
    rng = np.random.default_rng(4)
    levels = np.exp(rng.normal(3.0, 1.5, 20))
    covered = paired = 0
    for _ in range(300):
        before, after = (levels * np.exp(rng.normal(0.0, 0.1, 20)) for _ in range(2))
        low, high = compare_times(before, after, in_order=True).interval
        covered += low <= 1.0 <= high
        paired += follow(*np.exp(rng.normal(0.0, 0.02, (2, 6))))
    assert covered / 300 >= 0.93
    assert paired / 300 <= 0.03


def test_pairs_of_which_one_is_nearly_all_of_the_time_have_no_interval():
    before, after = [1e6, 1.0, 1.1, 0.9], [3e6, 1.0, 1.0, 1.0]
    ratio = compare_times(before, after, in_order=True)
    assert ratio.interval is None
    assert ratio.ratio == pytest.approx(3.0, rel=1e-3)
    assert ratio.sentence()
    assert ratio.to_dict()["p_value"] is None
