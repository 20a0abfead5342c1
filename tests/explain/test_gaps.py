"""Gaps between kernels: by hand, on recorded traces, and where the host's pauses are known."""

from __future__ import annotations

import json
import lzma
import math

import pandas as pd
import pytest

from perfml.account.device_time import DeviceTime
from perfml.explain import advise, explain, make_side
from perfml.explain.gaps import Timeline, Waterfall
from perfml.explain.timelines import compare_clocks, idle_layers, layers_on_the_clock, timeline
from perfml.explain.tree.causes import TERMS
from perfml.readers import read
from perfml.readers.timeline import Spans, idle_before
from perfml.report.sections.explanation import explanation_summary
from tests.support.tables import make_kernels

pytestmark = pytest.mark.long


def test_the_first_kernel_waits_for_nobody_and_the_usual_iteration_counts():
    rows = pd.DataFrame(
        {
            "iteration": [0, 0, 0, 1, 1, 1, 2, 2, 2],
            "start_us": [0, 15, 25, 100, 115, 125, 200, 300, 400],
            "time_us": 10.0,
            "gap_us": [math.nan, 5, 0, 65, 5, 0, 65, 90, 90],
        }
    )
    found = timeline(rows, "a")
    account = DeviceTime(3, 30.0, 30.0, 0.0, 5.0, gap_us=2.5, longest_us=5.0)
    assert found == Timeline("a", (account,), iterations=3)
    assert found.wall_us == 35.0
    assert found.as_graph_us == pytest.approx(30.6)
    assert timeline(rows.drop(columns="gap_us")) is None
    assert timeline(None) is None


def side(name, launches, kernels_us, idle_us, gap_us=0.0, *, repeats=2, longest_us=0.0, copied=0.0):
    """One device whose kernels run one after another, and what it is idle between them."""
    account = DeviceTime(launches, kernels_us, kernels_us, copied, idle_us, gap_us, longest_us)
    return Timeline(name, (account,), repeats)


def test_what_two_sides_differ_by_on_the_clock_is_a_sum_of_microseconds():
    before = Timeline("a", (DeviceTime(10, 80.0, 80.0, 0.0, 20.0),), 2)
    # 30 of 110 us of kernels run side by side
    after = Timeline("b", (DeviceTime(10, 110.0, 80.0, 4.0, 316.0),), 2)
    found = Waterfall(before, after)
    assert found.parts == {
        "kernels": 30.0,
        "side_by_side": -30.0,
        "copies": 4.0,
        "idle": 296.0,
    }
    assert found.wall_us == sum(found.parts.values()) == 300.0
    assert found.cause is TERMS["launch_gaps"]
    assert found.sentence() == (
        "on the clock, from the first kernel to the last, b takes 400 µs and a 100 µs (+300 µs): "
        "idle between kernels +296 µs, the kernels themselves +30.0 µs, "
        "kernels side by side -30.0 µs, copies and fills of memory +4.00 µs"
    )
    assert Waterfall(before, before).sentence() is None


def test_kernels_side_by_side_are_told_beside_the_time_in_which_one_ran():
    account = DeviceTime(20, 2000.0, 1000.0, 0.0, 90.0)
    (said,) = Timeline("", (account,)).account()
    assert "1,090 µs = 1,000 µs computing (2,000 µs of kernels, side by side) + 90.0" in said


def test_what_is_idle_leads_where_it_is_nearly_all_of_the_added_time():
    # as factors these were "gaps x1.53, kernels x5.64", though 94 % of what is added is idle
    before, after = side("a", 10, 100.0, 5_000.0), side("b", 10, 564.0, 12_264.0)
    found = Waterfall(before, after)
    assert found.dominate
    assert found.cause_us / found.wall_us == pytest.approx(0.94, abs=0.001)
    assert ": idle between kernels +7,264 µs, the kernels themselves +464 µs" in found.sentence()


def test_each_device_has_its_own_account_and_nothing_saves_more_than_the_busiest_leaves():
    rows = pd.DataFrame(
        {
            "iteration": 0,
            "device_id": [0] * 10 + [1] * 10,
            "start_us": [110.0 * place for place in range(10)] * 2,
            "time_us": [100.0] * 10 + [20.0] * 10,
            "gap_us": ([math.nan] + [10.0] * 9) + ([math.nan] + [90.0] * 9),
        }
    )
    found = timeline(rows)
    assert [each.device for each in found.devices] == [0, 1]
    assert [each.wall_us for each in found.devices] == [1090.0, 1010.0]
    assert [each.idle_us for each in found.devices] == [90.0, 810.0]
    # device 0 computes 1,000 us whatever device 1 could do
    assert found.as_graph_us >= 1000.0
    assert found.sentence() is None
    assert found.account() == (
        "On the clock, device 0: 1,090 µs = 1,000 µs computing + 90.0 µs idle.",
        "On the clock, device 1: 1,010 µs = 200 µs computing + 810 µs idle.",
    )


@pytest.fixture(scope="module")
def traced(recorded):
    """Return what was measured of each trace, and the launches of its second repeat."""
    folder = recorded / "torch_trace" / "gaps"
    cases = json.loads((folder / "gaps.json").read_text(encoding="utf-8"))["cases"]
    found = {}
    for case in cases:
        frame = read(folder / f"{case['name']}.json.gz").frame
        # a graph's kernels are layers of their own
        inside = frame[frame["layer"].str.startswith("region")]
        found[case["name"]] = (case, inside.assign(layer="region"))
    return found


def test_a_trace_shows_the_time_that_the_clock_showed(traced):
    for name, (case, frame) in traced.items():
        found = timeline(frame)
        # before the first kernel is one launch (of a graph the longest), after the last one wait
        assert 0 < case["traced_wall_us"] - found.wall_us < 150, name
        assert found.busiest.launches == case["kernels"]


def test_kernels_shorter_than_their_launch_are_idle_between_and_a_graph_ends_it(traced):
    for slow, fast in (("tiny_eager", "tiny_graph"), ("mlp_eager", "mlp_graph")):
        before, after = (timeline(traced[name][1]) for name in (slow, fast))
        assert before.idle_us > 0.85 * before.wall_us
        assert "Record the launches as one CUDA graph" in before.sentence()
        assert before.as_graph_us == pytest.approx(after.wall_us, rel=0.12)
        # and of the graph there is nothing more to say
        assert after.sentence() is None


def test_long_kernels_hide_their_launches(traced):
    found = timeline(traced["long_kernels"][1])
    assert found.idle_us < 0.01 * found.wall_us
    assert found.sentence() is None


def test_a_host_that_waits_or_computes_is_in_the_gaps_and_not_in_the_kernels(traced):
    for slow, fast in (("sync_each", "sync_none"), ("host_60_us", "host_none")):
        found = compare_clocks(traced[fast][1], traced[slow][1], (fast, slow))
        assert found.target.wall_us > 2 * found.baseline.wall_us
        assert abs(found.computing_us) < 0.02 * found.baseline.wall_us
    assert timeline(traced["host_60_us"][1]).busiest.gap_us > 60


def test_planted_pauses_are_named_with_their_length(root):
    # the host works 0, 20, 60 and 160 us before each launch
    sides = {}
    for path in sorted((root / "studies/data/h200-planted-causes/runs").glob("*/timing.csv.xz")):
        with lzma.open(path, "rt") as file:
            table = pd.read_csv(file)
        rows = table[table["layer"] == "launch_gaps_s0"].copy()
        if rows.empty:
            continue
        level = path.parent.name.split("-fp32")[0].removeprefix("planted-").replace("-", "_")
        start = (rows["start_us"] * 1e3).round().astype("int64").to_numpy()
        end = start + (rows["time_us"] * 1e3).round().astype("int64").to_numpy()
        rows["gap_us"] = idle_before(Spans(start * 0, start, end))
        sides[level] = timeline(rows, level)
    assert set(sides) == {"base", "level_1", "level_2", "level_3"}
    assert sides["base"].sentence() is None
    for level, pause in (("level_1", 20), ("level_2", 60), ("level_3", 160)):
        found = Waterfall(sides["base"], sides[level])
        gap_us = sides[level].busiest.gap_us
        assert pause < gap_us < pause + 40
        assert found.between_us == pytest.approx(found.wall_us, rel=0.02)
        assert found.sentence() is not None


def test_explain_and_advise_say_it_of_traces_and_nothing_of_others(traced):
    fast, slow = (traced[name][1] for name in ("tiny_graph", "tiny_eager"))
    found = explain(make_side("graph", fast), make_side("eager", slow), model=None)
    assert found.gaps.target.busiest.launches == 100
    assert any("idle between kernels +" in note for note in found.time_notes)
    assert found.to_dict()["gaps"]["term"] == "launch_gaps"
    (note,) = advise(slow).time_notes
    assert note.startswith("Between its kernels the device is idle 1,394 µs of 1,474 µs (95 %)")
    plain = make_kernels([{"time_us": 10.0}, {"time_us": 20.0}])
    assert explain(plain, plain, model=None).gaps is None


def _steps(pause_us: float) -> pd.DataFrame:
    """Two layers of three kernels of 10 us in two steps; the second waits before each kernel."""
    rows = []
    start = 0.0
    for step in range(2):
        for place in range(6):
            gap = pause_us if place > 3 else 1.0
            start += gap
            rows.append((step, place, "steady" if place < 3 else "waits", start, 10.0, gap))
            start += 10.0
    columns = ["iteration", "kernel_index", "layer", "start_us", "time_us", "gap_us"]
    return pd.DataFrame(rows, columns=columns)


def test_layers_whose_kernels_wait_are_named_on_the_clock():
    pairs = [("steady", "steady"), ("waits", "waits")]
    found = layers_on_the_clock(_steps(1.0), _steps(40.0), ("a", "b"), pairs)
    # three kernels of 10 us, a gap of 1 us and two of 40 or 1 us
    assert {layer: gaps.of_layer() for layer, gaps in found.items()} == {
        "waits": "on the clock, with what was idle before each of its kernels, b takes 111 µs and "
        "a 33.0 µs (+78.0 µs): idle between kernels +78.0 µs"
    }
    assert layers_on_the_clock(_steps(1.0), _steps(1.0), ("a", "b"), pairs) == {}
    assert layers_on_the_clock(None, _steps(40.0), ("a", "b"), pairs) == {}
    assert idle_layers(_steps(40.0)) == (
        "Within layers it is idle longest in waits (idle 81.0 µs of 111 µs)."
    )
    assert idle_layers(_steps(1.0)) is None
    assert idle_layers(_steps(40.0), ["steady"]) is None


def test_a_layer_has_what_was_idle_before_its_own_kernels_and_not_what_others_hide():
    mixed = _steps(40.0)
    mixed["layer"] = ["steady", "waits"] * 6
    # gaps before the kernels of "waits" are 1, 1 and 40 us, of "steady" (0), 1 and 40
    assert idle_layers(mixed) == (
        "Within layers it is idle longest in waits (idle 42.0 µs of 72.0 µs), "
        "steady (idle 41.0 µs of 71.0 µs)."
    )
    beside = mixed.assign(start_us=0.0, gap_us=0.0)
    assert idle_layers(beside) is None


def test_a_layer_that_waits_is_told_beside_the_times_of_its_kernels():
    sides = []
    for name, pause in (("a", 1.0), ("b", 40.0)):
        steps = _steps(pause)
        table = make_kernels(
            steps[["iteration", "kernel_index", "layer", "time_us"]].to_dict("records")
        )
        sides.append(make_side(name, table.assign(start_us=steps.start_us, gap_us=steps.gap_us)))
    found = explain(*sides, layers=["steady", "waits"], model=None)
    steady, waits = found.details
    assert (steady.time.verdict, waits.time.verdict) == ("no difference", "no difference")
    assert steady.disagreements == ()
    assert "idle between kernels +78.0 µs" in waits.disagreements[0]
    assert waits.reasons[:2] == (waits.disagreements[0], waits.on_the_clock.action())
    assert waits.reasons[1].startswith("do in b: Record the launches as one CUDA graph")
    assert (steady.on_the_clock, waits.fix) == (None, None)
    assert any(note.startswith("waits: on the clock") for note in found.time_notes)
    only = explain(*sides, layers=["steady"], model=None)
    assert not any(note.startswith("waits:") for note in only.time_notes)
    told = repr(explanation_summary(found))
    assert "waits: no difference, kernels alone, " in told
    assert "caution: on the clock" not in told


def test_one_gap_of_one_iteration_proves_nothing_and_several_or_a_second_iteration_do():
    quiet = side("a", 3, 30.0, 2.0, 1.0, repeats=1, longest_us=1.0)
    once = side("b", 3, 30.0, 101.0, 1.0, repeats=1, longest_us=100.0)
    assert Waterfall(quiet, once).wall_us == pytest.approx(99.0)
    assert Waterfall(quiet, once).sentence() is None
    assert not Waterfall(quiet, once).hidden
    often = side("b", 3, 30.0, 100.0, 50.0, repeats=1, longest_us=50.0)
    assert Waterfall(quiet, often).dominate
    again = side("b", 3, 30.0, 101.0, 1.0, repeats=2, longest_us=100.0)
    assert Waterfall(quiet, again).dominate
    # without their longest gaps it would be the other side that waits
    other = side("a", 3, 30.0, 40.0, 20.0, repeats=1, longest_us=20.0)
    assert Waterfall(other, once).between_us == 0.0


@pytest.mark.parametrize(("idle_us", "first"), [(400.0, False), (1300.0, True)])
def test_gaps_before_more_launches_are_theirs_unless_each_is_longer(idle_us, first):
    one = side("a", 2, 300.0, 50.0, 50.0)
    # 25 launches have 24 gaps: of 17 and of 54 us
    many = side("b", 25, 350.0, idle_us, 17.0)
    for found in (Waterfall(one, many), Waterfall(many, one)):
        assert found.hidden
        assert found.dominate is first


def test_a_layer_that_waited_once_in_one_iteration_is_not_said_to_wait():
    pairs = [("steady", "steady"), ("waits", "waits")]
    quiet, waits = (_steps(pause)[:6] for pause in (1.0, 40.0))
    once = waits.assign(gap_us=[1.0, 1.0, 1.0, 1.0, 400.0, 1.0])
    assert layers_on_the_clock(quiet, once, ("a", "b"), pairs) == {}
    assert list(layers_on_the_clock(quiet, waits, ("a", "b"), pairs)) == ["waits"]
