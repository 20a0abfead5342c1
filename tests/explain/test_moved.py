"""Copies and fills of memory beside kernels, with shares worked out by hand."""

from __future__ import annotations

import math

import pytest

from perfml.explain import advise, explain, make_side
from perfml.explain.timelines import compare_clocks, layers_on_the_clock, timeline
from perfml.explain.tree.causes import TERMS
from perfml.ingest.profiles import ingest
from perfml.readers import read

HEAD = "iteration,layer,kernel,time_us,grid,block,start_us,bytes"


def recording(folder, *, host, starts=True):
    """Read a timing pass of two iterations; on the host side a layer goes to the host and back.

    Kernels of 10 us: product 0 to 10; copies 10 to 90 and 100 to 102; centre at 104; shift at 115.
    On the other side centre begins at 11 and shift at 22.
    """
    rows = [HEAD]
    copies = []
    for step in range(2):
        at = 1000.0 * step
        begins = (0, 104, 115) if host else (0, 11, 22)
        for layer, begin in zip(("product", "centre", "shift"), begins, strict=True):
            rows.append(f"{step},{layer},{layer}_kernel,10,,,{at + begin},")
        if host:
            copies.append(f"{step},centre,Memcpy DtoH (Device -> Pageable),80,,,{at + 10},4194304")
            copies.append(f"{step},centre,Memcpy HtoD (Pageable -> Device),2,,,{at + 100},4096")
    path = folder / f"{host}_timing.csv"
    path.write_text("\n".join([*rows, *copies]) + "\n")
    frame = read(path).frame
    return frame if starts else frame.drop(columns=["start_us", "gap_us"])


@pytest.fixture
def sides(tmp_path):
    host, device = (recording(tmp_path, host=host) for host in (True, False))
    # no kernel of the other side moves anything, so its file has no such column
    return host, device.assign(gap_us=[math.nan, 1.0, 1.0, 968.0, 1.0, 1.0])


def test_kernels_copies_and_what_is_idle_make_the_wall_time(sides):
    found = timeline(sides[0])
    assert found.wall_us == pytest.approx(125.0)
    assert found.idle_us == pytest.approx(13.0)  # 10 + 2 around the second copy, 1 before shift
    assert found.moved.total_us == pytest.approx(82.0)
    assert found.busiest.copying_us == pytest.approx(82.0)
    assert found.moved_sentence() == (
        "82.0 µs of 125 µs (66 %) are copies and fills of memory while no kernel runs: 4.19 MB "
        "copied to the host in 80.0 µs. Leave it on the device: in PyTorch no .cpu(), .numpy(), "
        ".tolist() or .item() in a step. The host waits for such a copy, and the device then for "
        "the host."
    )
    assert timeline(sides[1]).moved_sentence() is None


def test_copies_are_a_cause_beside_gaps_and_kernels(sides):
    gaps = compare_clocks(sides[1], sides[0], ("device", "host"))
    assert gaps.cause is TERMS["memory_moves"]
    # of 93 us more 82 are copies and 11 idle; the kernels take 30 us on both sides
    assert list(gaps.parts.values()) == pytest.approx([0.0, 0.0, 82.0, 11.0])
    assert gaps.sentence() == (
        "on the clock, from the first kernel to the last, host takes 125 µs and device 32.0 µs "
        "(+93.0 µs): copies and fills of memory +82.0 µs, idle between kernels +11.0 µs (host: "
        "4.19 MB copied to the host in 80.0 µs)"
    )
    assert gaps.action().startswith("do in host: Leave it on the device")


def test_the_layer_that_copies_is_named_and_its_kernels_are_not(sides):
    pairs = [(name, name) for name in ("product", "centre", "shift")]
    (layer, gaps) = next(iter(layers_on_the_clock(sides[1], sides[0], ("a", "b"), pairs).items()))
    assert layer == "centre"
    assert (gaps.target.wall_us, gaps.baseline.wall_us) == (pytest.approx(104), pytest.approx(11))
    assert gaps.dominate


def test_advise_says_how_much_of_a_layer_is_a_copy(sides):
    notes = advise(sides[0]).time_notes
    assert any(
        note.startswith("centre: 82.0 µs of 104 µs (79 %) are copies and fills of memory")
        for note in notes
    )
    assert not any("copies" in note for note in advise(sides[1]).time_notes)


def test_a_built_in_run_whose_gaps_are_not_known_still_says_its_copies(tmp_path):
    found = timeline(recording(tmp_path, host=True, starts=False))
    assert (found.wall_us, found.idle_us, found.clock) == (pytest.approx(112.0), 0.0, False)
    gaps = compare_clocks(
        recording(tmp_path, host=True, starts=False).assign(to_host_us=0.0, to_device_us=0.0),
        recording(tmp_path, host=True, starts=False),
        ("a", "b"),
    )
    assert gaps.sentence() == (
        "by their times, with copies and fills of memory, b takes 112 µs and a 30.0 µs (+82.0 µs): "
        "copies and fills of memory +82.0 µs (b: 4.19 MB copied to the host in 80.0 µs)"
    )


def test_what_one_kernel_does_not_know_is_no_nothing(sides):
    unknown = sides[0].copy()
    unknown.loc[1, "to_host_us"] = math.nan
    whole = timeline(unknown[unknown["iteration"] == 0])
    # the copies of the iteration are not known, and not 2 us
    assert whole.moved.total_us == 0.0
    assert whole.moved_sentence() is None


@pytest.fixture(scope="module")
def runs(recorded):
    """Return the launches of each recording of ``tests/data/moves``."""
    return {path.name: ingest([path]).frame for path in (recorded / "moves").glob("*/")}


def test_a_recorded_layer_that_goes_to_the_host_is_told_so_though_its_kernels_are_faster(runs):
    found = explain(
        make_side("device", runs["device"]), make_side("host", runs["host"]), model=None
    )
    centre = next(each for each in found.details if each.layer == "centre")
    assert centre.time.verdict == "faster"
    assert centre.on_the_clock.dominate
    assert "host: 4.19 MB copied to the host in 1,376 µs" in centre.reasons[0]
    assert centre.reasons[1].startswith("do in host: Leave it on the device")
    moved = found.to_dict()["gaps"]["target"]["moved"]
    assert {way: each["bytes"] for way, each in moved.items()} == {
        "to_host": 4 << 20,
        "to_device": 4096,
    }
    # gaps and copies are the whole difference: the kernels take as long or less
    gaps = found.gaps
    assert gaps.target.wall_us / gaps.baseline.wall_us == pytest.approx(8.06, abs=0.01)
    assert gaps.between_us > gaps.wall_us


def test_a_recorded_width_of_4093_is_to_be_padded_and_saves_what_4096_saved(runs):
    odd, even = (runs[name].groupby("layer")["time_us"].mean() for name in ("odd", "even"))
    table = advise(runs["odd"]).table.explode("rules").set_index(["layer", "rules"])
    promised, saved = (
        [100 * share[layer] for layer in ("wide", "deep")]
        for share in (
            table.xs("padding_to_tiles", level="rules")["gain_high"],
            1 - even / odd,
        )
    )
    assert [round(each) for each in promised] == [87, 82]
    assert [round(each) for each in saved] == [88, 82]
    for layer, sizes in (("deep", "n 4096, k 4093"), ("wide", "n 4093, k 4096")):
        row = table.loc[(layer, "padding_to_tiles")]
        assert sizes in row["evidence"]
        assert row["saved_us"] == pytest.approx(odd[layer] - even[layer], rel=0.02)
    fits = advise(runs["even"]).table
    assert "padding_to_tiles" not in set(fits["rules"].explode())
