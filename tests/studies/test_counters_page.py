"""The costs on the page about counters are those that were recorded."""

import json

import pytest

from benchmarks import agreement, counters_page
from studies.page_tables import table_on

pytestmark = pytest.mark.page


@pytest.fixture(scope="module")
def page(root):
    return (root / "docs" / "explanation" / "counters.md").read_text(encoding="utf-8")


def results(root, name):
    return json.loads((root / "benchmarks" / "results" / name).read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", counters_page.TABLES)
def test_a_table_is_what_was_recorded(name):
    anew = "write it anew: python -m benchmarks.counters_page"
    assert table_on(counters_page.PAGE, name) == counters_page.TABLES[name](), anew


def test_counted_work_agrees_with_nsight_compute_as_told(root, page):
    kinds = results(root, "agreement-h200.json")["kinds"]
    counted = [row for name, row in kinds.items() if name.startswith(("of instr", "that count"))]
    assert len(counted) == 2
    largest = max(row[pair][1] for row in counted for pair in agreement.PAIRS if row[pair])
    assert largest < 0.01
    assert f"differ by {largest:.1g} at the most" in page


def test_the_goals_are_told_as_measured(root, page):
    costs = results(root, "collect-h200-once.json")["costs"]
    many = [cost for cost in costs if cost["tool"] == "cupti, 30 x"]
    whole = [cost["ms_a_launch"] for cost in many]
    assert f"({whole[0]:.1f} for YOLOv4-Tiny and {whole[1]:.1f} for ResNet-34 with 30" in page
    theirs = [
        next(c for c in costs if c["network"] == cost["network"] and c["tool"].startswith("ncu"))
        for cost in many
    ]
    less = [
        ncu["ms_a_launch"] / cost["ms_a_launch"] for ncu, cost in zip(theirs, many, strict=True)
    ]
    assert f"({less[0]:.0f} and {less[1]:.0f} times less)" in page
    again = [
        cost["again_ms_a_launch"]
        for cost in costs
        if cost["metrics"] == "default" and cost["again_ms_a_launch"]
    ]
    assert f"used again ({min(again):.1f} to {max(again):.1f})" in page
    assert max(again) <= 8.5


def test_the_cost_of_a_pass_is_the_recorded_one(root, page):
    recorded = results(root, "counter-passes-h200.json")

    def work(name):
        return [one[1] for one in recorded["sets"][name]["passes_us"]]

    *hardware, instrumented = work(next(iter(recorded["sets"])))
    assert {round(each, -2) for each in hardware} == {900}
    assert round(instrumented, -2) == 3900
    assert all(60 <= work(name)[0] <= 70 for name in ("l1tex sectors alone", "lts, dram and gpu"))
    alone = sorted(recorded["instrumented_us_alone"].values(), reverse=True)
    assert [round(each / 1e3, 2) for each in alone[:4]] == [1.44, 0.85, 0.37, 0.36]
    assert (round(alone[4], -1), round(alone[-1], -1)) == (270, 90)
    assert "(1.4 ms a launch alone), `inst_integer` (0.85)" in page


def test_graphs_are_refused_since_instrumented_code_counts_nothing_of_them(root, page):
    ratios = results(root, "counter-passes-h200.json")["graph_user_range_over_sum_of_launches"]
    assert {ratios[name] for name in ratios if "__sass_" in name} == {0.0}
    assert {ratios[name] for name in ratios if name.startswith(("smsp__inst", "l1tex"))} == {1.0}
    assert "instrumented code counts nothing and says 0" in page


def test_the_sweep_is_the_recorded_one(root, page):
    runs = results(root, "sweep-by-both-h200.json")["runs"]
    assert {run["status"] for run in runs} == {"done"}
    ours = [run for run in runs if run["asked"] == "auto"]
    small, large = (run for run in runs if run["asked"] == "ncu")
    seconds, launches = [run["seconds"] for run in ours], sum(run["launches"] for run in ours)
    assert len(ours) == 12
    assert f"{launches:,} launches) took {sum(seconds):.0f} s through CUPTI" in page
    assert f"{min(seconds):.1f} to {max(seconds):.0f} s a run" in page
    assert f"{small['seconds']:.1f} s for the one with the fewest launches (86)" in page
    assert f"and {large['seconds']:.1f} s for {large['launches']}" in page
    times = [run["seconds"] / same(run, ours)["seconds"] for run in (small, large)]
    assert f"{times[0]:.1f} and {times[1]:.1f} times as long" in page
    more = (large["seconds"] - small["seconds"]) / (large["launches"] - small["launches"])
    line = more * launches + 12 * (small["seconds"] - more * small["launches"])
    assert f"{more:.2f} s a launch all twelve would take {line:.0f} s" in page
    assert f"s, {line / sum(seconds):.1f} times as long" in page
    least = 12 * (small["seconds"] - 0.247 * small["launches"]) + 0.247 * launches
    assert f"{least:.0f} s, {least / sum(seconds):.1f} times" in page
    assert least > 4 * sum(seconds)


def same(run, runs):
    names = ("backend", "precision", "batch")
    return next(other for other in runs if all(other[name] == run[name] for name in names))


def test_two_ranks_are_as_told(root, page):
    one, two, reduced = results(root, "two-ranks-h200.json")["ranks"]
    spans = []
    for each in (one, two):
        work = sorted(passes[1] / 1e3 for passes in each["pass_us"][1:-1])
        spans.append(f"{work[0]:.2f} to {work[-1]:.2f}")
    assert f"{spans[0]} ms a pass with one rank and {spans[1]} with two" in page
    work = sorted(passes[1] / 1e3 for passes in reduced["pass_us"][1:-1])
    assert f"it took {work[0]:.1f} to {work[-1]:.1f} ms" in page
    assert f"instrumented pass {reduced['pass_us'][-1][1] / 1e6:.1f} s a launch" in page
    assert reduced["rows"] == 3
