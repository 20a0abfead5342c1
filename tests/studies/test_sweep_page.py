"""What docs/scale.md and the guide say of sweeps is what was measured."""

from __future__ import annotations

import re
import statistics

import pandas as pd
import pytest

from studies.sweep.page import FOLDER, NAMES, PAGE, TABLES, cases, results, table_of

pytestmark = pytest.mark.page

ANEW = "write it anew: python -m studies.sweep.page"


@pytest.fixture(scope="module")
def section():
    text = PAGE.read_text(encoding="utf-8")
    return text.split("## Sweeps on two GPUs", 1)[1].split("\n## ", 1)[0]


@pytest.mark.parametrize("name", TABLES)
def test_a_table_of_the_page_is_what_was_measured(name):
    assert table_of(name) == TABLES[name](), ANEW


def test_the_page_says_which_sweep_reaches_the_goal(section):
    ratios = {name: wall[0] / wall[1] for name, wall, *_ in cases()}
    for key in NAMES:
        measured = results(key)["cases"][key]["ratio"]["2"]
        assert ratios[NAMES[key]] == pytest.approx(measured, abs=0.001)
    reached = {key for key in NAMES if ratios[NAMES[key]] >= 1.8}
    assert reached == {"long", "network"}
    assert "A network's metrics of one pass and long kernels reach it" in section


def test_the_cold_network_s_ratio_is_corrected(section):
    log = (FOLDER / "sweep-network-cold-1.log").read_text(encoding="utf-8")
    done = re.findall(r"\] done (\S+)-\w+ on .*: ([\d.]+) s,", log)
    conditions = pd.DataFrame(done, columns=["condition", "s"]).astype({"s": float})
    cold = [0, 3]
    excess = 0.0
    for place in cold:
        alike = conditions[conditions["condition"] == conditions["condition"][place]]
        excess += conditions["s"][place] - alike.drop(index=place)["s"].mean()
    by_gpus = results("network-cold")["cases"]["network"]["by_gpus"]
    one, two = (by_gpus[count]["wall_s"] for count in ("1", "2"))
    assert f"on another machine: {one / two:.2f}, but" in section
    assert f"it is {(one - excess) / two:.2f}" in section


def test_the_kills_on_the_page_are_those_that_were_measured(section):
    found = results("network-cold")
    worker, driver, taken = (found[name] for name in ("worker killed", "driver killed", "taken up"))
    assert worker["passed"]
    assert driver["passed"]
    assert taken["passed"]
    assert taken["boot"] != results("long")["left"]["boot"]
    told = (
        f"A worker killed while it profiled: its run was done again (attempts "
        f"{', '.join(map(str, worker['attempts']))}), the sweep of four took {worker['wall_s']} s."
    )
    assert told in section
    again = "finished runs were kept untouched, the others done again,"
    told = (
        f"A driver killed: {driver['finished_before']} {again} {driver['wall_s']} s with the "
        "resumption."
    )
    assert told in section
    assert f"taken up on another: {taken['kept']} {again} {taken['wall_s']} s." in section
    gone = max(each["profiler_gone_s"] for each in (worker, driver))
    assert f"gone after {gone} s" in section


def test_the_metrics_of_the_network_differ_as_repeats_do():
    found = results("network")["cases"]["network"]["metrics"]["2"]
    assert found["within"] == pytest.approx(found["repeats_within"], abs=0.03)
    assert found["median"] == pytest.approx(found["repeats_median"], rel=0.05)


def test_the_single_probes_on_the_page_are_those_that_were_measured(section):
    probes = results("long")["probes"]
    replay = [each for each in probes if each["what"] == "application replay"]
    alone, two = (each["seconds_per_launch"] for each in replay)
    assert f"took {alone[0]:.3f} s a launch on one GPU" in section
    assert f"and {sum(two) / 2:.3f} s beside a second profiler" in section
    starts = {each["what"]: each for each in probes if each["what"].startswith("start")}
    bare = starts["start: the program"]
    under = starts["start: the program under ncu, 3 launches in one pass"]
    told = f"{bare['on 1']:.2f} s alone and {bare['on 2']:.2f} beside a second one"
    assert told in section
    assert f"under ncu {under['on 1']:.2f} and {under['on 2']:.2f} s" in section


def test_the_guide_to_sweeps_tells_the_same_numbers():
    text = (PAGE.parent / "howto/sweep.md").read_text(encoding="utf-8")
    for name, wall, *_ in cases():
        assert name not in NAMES.values() or f"{wall[0] / wall[1]:.2f}" in text
    probes = {each["what"]: each.get("seconds_per_launch") for each in results()["probes"]}
    alone, beside = {}, {}
    for passes, name in ((1, "1 pass"), (3, "3 passes"), (8, "8 passes")):
        alone[passes] = probes[f"{name}, alone"][0]
        beside[passes] = statistics.mean(probes[f"{name}, two"])
    assert f"{alone[8]:.3f} s a launch" in text
    assert f"and {beside[8]:.2f} s under each of two at once" in text
    assert f"three passes {alone[3]:.3f} and {beside[3]:.3f} s" in text
    assert f"one pass {alone[1]:.4f} and {beside[1]:.4f} s" in text
