"""Gaps between kernels: by hand, on recorded traces, and where the host's pauses are known."""

from __future__ import annotations

import json
import lzma
import math

import pandas as pd
import pytest

from perfml.explain import advise, explain, make_side
from perfml.explain.gaps import Gaps, Timeline
from perfml.explain.timelines import compare_gaps, idle_layers, layers_on_the_clock, timeline
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
    assert found == Timeline("a", 3, 35.0, 5.0, 2.5, longest_us=5.0, iterations=3)
    assert found.as_graph_us == pytest.approx(30.6)
    assert timeline(rows.drop(columns="gap_us")) is None
    assert timeline(None) is None


def test_what_the_clock_shows_is_kernels_times_gaps():
    gaps = Gaps(Timeline("a", 10, 100.0, 20.0, 2.0), Timeline("b", 10, 400.0, 320.0, 30.0))
    assert gaps.wall_ratio == pytest.approx(4.0)
    # what the kernels take is 80 us on both sides
    assert gaps.contribution.log_ratio == pytest.approx(math.log(4))
    assert gaps.contribution.term is TERMS["launch_gaps"]
    assert gaps.sentence() == (
        "on the clock, from the first kernel to the last, b takes 400 µs and a 100 µs (×4.00): "
        "gaps between kernels ×4.00, the kernels themselves ×1.00"
    )
    little = Timeline("a", 10, 100.0, 5.0, 0.5)
    assert Gaps(little, little).sentences() == ()


@pytest.fixture(scope="module")
def traced(recorded):
    """Return what was measured of each trace, and the launches of its second repeat."""
    folder = recorded / "torch_trace" / "gaps"
    cases = json.loads((folder / "gaps.json").read_text(encoding="utf-8"))["cases"]
    found = {}
    for case in cases:
        frame = read(folder / f"{case['name']}.json.gz").frame
        found[case["name"]] = (case, frame[frame["layer"] == "region"])
    return found


def test_a_trace_shows_the_time_that_the_clock_showed(traced):
    for name, (case, frame) in traced.items():
        found = timeline(frame)
        # before the first kernel is one launch (of a graph the longest), after the last one wait
        assert 0 < case["traced_wall_us"] - found.wall_us < 150, name
        assert found.kernels == case["kernels"]


def test_kernels_shorter_than_their_launch_are_idle_between_and_a_graph_ends_it(traced):
    for slow, fast in (("tiny_eager", "tiny_graph"), ("mlp_eager", "mlp_graph")):
        before, after = (timeline(traced[name][1]) for name in (slow, fast))
        assert before.idle_share > 0.85
        assert "Record the launches as one CUDA graph" in before.sentence()
        assert before.as_graph_us == pytest.approx(after.wall_us, rel=0.12)
        # and of the graph there is nothing more to say
        assert after.sentence() is None


def test_long_kernels_hide_their_launches(traced):
    found = timeline(traced["long_kernels"][1])
    assert found.idle_share < 0.01
    assert found.sentence() is None


def test_a_host_that_waits_or_computes_is_in_the_gaps_and_not_in_the_kernels(traced):
    for slow, fast in (("sync_each", "sync_none"), ("host_60_us", "host_none")):
        gaps = compare_gaps(traced[fast][1], traced[slow][1], (fast, slow))
        kernels = gaps.wall_ratio / math.exp(gaps.contribution.log_ratio)
        assert gaps.wall_ratio > 2
        assert kernels == pytest.approx(1.0, abs=0.02)
    assert timeline(traced["host_60_us"][1]).gap_us > 60


def test_planted_pauses_are_named_with_their_length(root):
    page = (root / "docs/explanation/truth.md").read_text(encoding="utf-8")
    page = page.split("## Gaps between kernels")[1].split("\n## ")[0]
    # the host works 0, 20, 60 and 160 us before each launch
    sides = {}
    for path in sorted((root / "datasets/h200-planted-causes/runs").glob("*/timing.csv.xz")):
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
        gaps = Gaps(sides["base"], sides[level])
        assert pause < sides[level].gap_us < pause + 40
        assert gaps.contribution.log_ratio == pytest.approx(math.log(gaps.wall_ratio), abs=0.02)
        said = f"{gaps.wall_ratio:.2f}"
        assert said in page
        assert f"{sides[level].gap_us:.0f}" in page
        assert gaps.sentence() is not None


def test_explain_and_advise_say_it_of_traces_and_nothing_of_others(traced):
    fast, slow = (traced[name][1] for name in ("tiny_graph", "tiny_eager"))
    found = explain(make_side("graph", fast), make_side("eager", slow), model=None)
    assert found.gaps.target.kernels == 100
    assert any("gaps between kernels ×" in note for note in found.time_notes)
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
        "a 33.0 µs (×3.36): gaps between kernels ×3.36, the kernels themselves ×1.00"
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
    assert "gaps between kernels ×3.36" in waits.disagreements[0]
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
    quiet = Timeline("a", 3, 32.0, 2.0, 1.0, longest_us=1.0)
    once = Timeline("b", 3, 131.0, 101.0, 1.0, longest_us=100.0)
    assert Gaps(quiet, once).wall_ratio > 4
    assert Gaps(quiet, once).sentence() is None
    assert not Gaps(quiet, once).hidden
    often = Timeline("b", 3, 130.0, 100.0, 50.0, longest_us=50.0)
    assert Gaps(quiet, often).dominate
    again = Timeline("b", 3, 131.0, 101.0, 1.0, longest_us=100.0, iterations=2)
    assert Gaps(quiet, again).dominate
    # without their longest gaps it would be the other side that waits
    other = Timeline("a", 3, 70.0, 40.0, 20.0, longest_us=20.0)
    assert Gaps(other, once).proven == 0.0


@pytest.mark.parametrize(("idle_us", "first"), [(400.0, False), (1300.0, True)])
def test_gaps_before_more_launches_are_theirs_unless_each_is_longer(idle_us, first):
    one = Timeline("a", 2, 350.0, 50.0, 50.0, iterations=9)
    # 25 launches have 24 gaps: of 17 and of 54 us
    many = Timeline("b", 25, 350.0 + idle_us, idle_us, 17.0, iterations=9)
    for gaps in (Gaps(one, many), Gaps(many, one)):
        assert gaps.hidden
        assert gaps.dominate is first


def test_a_layer_that_waited_once_in_one_iteration_is_not_said_to_wait():
    pairs = [("steady", "steady"), ("waits", "waits")]
    quiet, waits = (_steps(pause)[:6] for pause in (1.0, 40.0))
    once = waits.assign(gap_us=[1.0, 1.0, 1.0, 1.0, 400.0, 1.0])
    assert layers_on_the_clock(quiet, once, ("a", "b"), pairs) == {}
    assert list(layers_on_the_clock(quiet, waits, ("a", "b"), pairs)) == ["waits"]
