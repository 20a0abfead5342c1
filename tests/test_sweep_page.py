"""What docs/scale.md says of sweeps is what was measured, and the estimates go by it."""

from __future__ import annotations

import pytest
from _sweep_page import PAGE, TABLES, results, table_of

from collectors.campaign.cost import ALONE, BESIDE, BESIDE_RUN_S, RUN_S

ANEW = "write it anew: python tests/_sweep_page.py"


@pytest.fixture(scope="module")
def section():
    text = PAGE.read_text(encoding="utf-8")
    return text.split("## Sweeps on two GPUs", 1)[1].split("\n## ", 1)[0]


@pytest.mark.parametrize("name", TABLES)
def test_a_table_of_the_page_is_what_was_measured(name):
    assert table_of(name) == TABLES[name](), ANEW


def test_the_page_says_that_the_goal_was_missed_while_it_is(section):
    found = results()
    ratios = [found[name]["ratio"] for name in ("sweep", "one pass")]
    assert max(ratios) < 1.8
    assert "was missed" in section
    for name in ("sweep", "one pass"):
        one, two = found[name]["wall_s"]
        assert found[name]["ratio"] == pytest.approx(one / two, abs=0.005)


def test_the_kills_on_the_page_are_those_that_were_measured(section):
    found = results()
    worker, driver = found["worker killed"], found["driver killed"]
    assert worker["passed"]
    assert driver["passed"]
    told = (
        f"A worker killed while it profiled: its run was done again (attempts "
        f"{', '.join(map(str, worker['attempts']))}), the sweep of four took {worker['wall_s']} s."
    )
    assert told in section
    told = (
        f"A driver killed: {driver['finished_before']} finished runs were kept untouched, the "
        f"others done again, {driver['wall_s']} s with the resumption."
    )
    assert told in section
    assert f"gone after {worker['profiler_gone_s']} s" in section


def test_the_metrics_of_both_sweeps_are_told_as_compared(section):
    found = results()["sweep"]["metrics"]
    assert found["same_kernels"]
    assert f"{found['values']:,} values" in section
    assert f"{found['within']:.0%} of them differ by 0.02 at most" in section
    assert f"median difference is {found['median']:.5f}" in section
    assert f"largest {found['largest']:.2f}" in section


def test_the_estimates_of_a_plan_are_the_measured_ones():
    probes = {each["what"]: each.get("seconds_per_launch") for each in results()["probes"]}
    for passes, name in ((1, "1 pass"), (3, "3 passes"), (8, "8 passes")):
        assert ALONE[passes] == pytest.approx(probes[f"{name}, alone"][0], rel=0.01)
        two = probes[f"{name}, two"]
        assert BESIDE[passes] == pytest.approx(sum(two) / len(two), rel=0.01)
    runs = [times for name, times in results()["sweep"]["run_s"].items() if "yolov4" in name]
    rates = results()["sweep"]["seconds_per_launch"]
    launches = (17, 16, 12, 21)  # of these runs, in the log of the sweep
    besides = [
        sum(
            times[place] - count * rates[place] for times, count in zip(runs, launches, strict=True)
        )
        for place in (0, 1)
    ]
    assert besides[0] / 4 == pytest.approx(RUN_S, rel=0.06)
    assert (besides[1] - besides[0]) / 4 == pytest.approx(BESIDE_RUN_S, rel=0.1)


def test_the_guide_to_sweeps_tells_the_same_numbers():
    text = (PAGE.parent / "howto/sweep.md").read_text(encoding="utf-8")
    found = results()
    for name in ("sweep", "one pass"):
        one, two = found[name]["wall_s"]
        assert f"{one:.1f} s" in text
        assert f"{two:.1f} s" in text
        assert f"{found[name]['ratio']:.2f}" in text
    assert f"{ALONE[8]} s a launch" in text
    assert f"three passes {ALONE[3]:.3f} and {BESIDE[3]:.3f} s; one pass {ALONE[1]}" in text
