"""The costs on the page about counters are those that were recorded."""

import json

import pytest

pytestmark = pytest.mark.page


@pytest.fixture(scope="module")
def page(root):
    return (root / "docs" / "explanation" / "counters.md").read_text(encoding="utf-8")


def results(root, name):
    return json.loads((root / "benchmarks" / "results" / name).read_text(encoding="utf-8"))


def test_the_cost_of_the_default_set_is_the_recorded_one(root, page):
    recorded = results(root, "collect-h200-8-passes.json")
    (cost,) = recorded["costs"]
    sums = sorted(sum(map(sum, each)) / 1e3 for each in recorded["measurements_us_a_launch"])
    shown = [f"{cost[name]:.1f}" for name in ("ms_a_launch", "counter_ms_a_launch")]
    again = f"{cost['again_ms_a_launch']:.1f}; undisturbed {sums[0]:.1f}"
    assert f"| 10 | {cost['passes']} | {' | '.join(shown)} | {again} |" in page
    assert f"at {sums[0]:.1f} ms, and the others took {sums[1]:.1f} to {sums[-1]:.1f}" in page


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
    recorded = results(root, "sweep-of-twelve-h200.json")
    runs = recorded["runs"]
    seconds = [run["seconds"] for run in runs]
    assert {run["status"] for run in runs} == {"done"}
    assert len(runs) == 12
    assert f"{sum(run['launches'] for run in runs):,} launches" in page
    assert f"took {sum(seconds):.0f} s through CUPTI" in page
    assert f"{min(seconds):.1f} to {max(seconds):.0f} s a run" in page
    assert f"took {recorded['eight_passes']['run']['seconds']:.1f} s in eight passes" in page
