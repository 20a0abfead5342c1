"""Two traces: the verdict is the step on the clock, with its first cause and what to do."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from perfml.account.account import Account, Copies, DeviceAccount, Idle, Part
from perfml.account.build import account_of_sums
from perfml.account.device_time import DeviceTime
from perfml.explain import explain
from perfml.explain.advice.answer import in_one_order
from perfml.explain.advice.network import step_findings
from perfml.explain.advice.unexplained import longest_kernels
from perfml.explain.compare import step_comparison
from perfml.explain.compared import make_side
from perfml.explain.confidence import COUNTED
from perfml.explain.steps import StepComparison, bounds_of
from perfml.explain.words import step_action, step_cause
from perfml.readers import read
from perfml.report.sections.clock import step_notes
from tests.support.command_line import run
from tests.support.nsys_export import Export
from tests.support.paths import ROOT
from tests.support.tables import make_kernels
from tests.support.torch_trace import Trace

pytestmark = pytest.mark.long

PAIRS = ROOT.parent / "shared" / "data" / "pairs_2026_11_25" / "torch"
NOTHING = pd.DataFrame()
CAUSES = {
    "p01": "synchronising",
    "p03": "layout",
    "p05": "optimizer_loop",
    "p07": "attention_written_out",
    "p08": "unaligned",
    "p09": "data_loading",
    "p10": "pageable_copies",
    "p12": "double_precision",
    "p13": "training_mode",
    "p17": "fft_length",
    "p18": "recomputation",
}
"""The frozen labels of the pairs, as ids."""


def sides(one, other):
    def account(walls):
        step = DeviceTime(0, 0.0, 0.0, 0.0, sum(walls) / len(walls))
        idle = (Idle("loading", step.wall_us, ""),)
        device = DeviceAccount(0, step, (step,), idle, (), (), 0.0)
        return Account("step", tuple(walls), False, (device,), (), False)

    return StepComparison(("a", "b"), account(one), account(other))


def summed(kernel_us, copies):
    return account_of_sums([("k(float*)", "", kernel_us, 2.0)], copies)


def test_sums_of_two_summaries_are_compared_with_their_copies():
    # by hand: 12,948 us of managed memory against 1,112 + 27,101 + 12,669 us
    copied = [("[CUDA memcpy HtoD]", 27_101.0, 2), ("[CUDA memcpy DtoH]", 12_669.0, 1)]
    one, other = summed(12_948.0, ()), summed(1_112.0, copied)
    step = StepComparison(("managed", "manual"), one, other)
    assert (step.verdict, step.first_cause, step.leads) == ("slower", "copies_to_device", True)
    assert step.ratio == pytest.approx(40_882 / 12_948)
    # as many copies of a size that nobody knows may be equal ones
    longer = [(name, 2 * us, times) for name, us, times in copied]
    assert StepComparison(("a", "b"), other, summed(1_112.0, longer)).verdict == "undecided"
    # a sum is no time on the clock
    table = make_kernels([{"kernel": "k"}])
    sides = [replace(make_side(name, table), account=one) for name in "ab"]
    assert step_comparison(*sides) is not None
    clocked = replace(sides[1], account=replace(one, unknown=()))
    assert step_comparison(sides[0], clocked) is None


def test_what_goes_of_copies_in_a_summary_is_not_known_and_they_stand_by_their_time():
    found = step_findings(summed(1_112.0, [("[CUDA memcpy HtoD]", 27_101.0, 2)]))
    (copies,) = found
    assert (copies.rules, copies.gain, copies.holds.us) == (("copies_to_device",), None, 27_101.0)
    kernels = make_kernels([{"kernel": "k(float*)", "layer": None, "time_us": 1_112.0}])
    ordered = in_one_order((), found, (), longest_kernels(kernels))
    assert [each.holds.us for each in ordered] == [27_101.0, 1_112.0]


@pytest.mark.parametrize(
    ("one", "other", "verdict"),
    [
        ([100.0, 101.0, 99.0], [200.0, 210.0, 190.0], "slower"),
        ([200.0, 210.0, 190.0], [100.0, 101.0, 99.0], "faster"),
        ([100.0, 101.0, 99.0], [100.0, 102.0, 101.0], "no difference"),
        ([100.0, 150.0, 90.0], [160.0, 210.0, 190.0], "slower"),  # medians further apart
        ([100.0, 150.0, 90.0], [155.0, 210.0, 160.0], "undecided"),  # than the steps of a side
        ([100.0, 101.0, 99.0], [90.0, 210.0, 300.0], "undecided"),
        ([100.0], [140.0], "undecided"),
        ([100.0], [160.0], "slower"),
        ([100.0, 175.0], [170.0, 290.0], "undecided"),
        # one late step of ten decides nothing, and ranks do
        ([*[100.0] * 9, 700.0], [*[300.0] * 9, 310.0], "slower"),
        ([100.0, 104.0, 98.0, 120.0], [101.0, 99.0, 140.0, 97.0], "undecided"),
        ([100.0, 101.0, 102.0, 103.0], [103.5, 104.0, 104.5, 105.0], "no difference"),
        ([100.0, 130.0, 110.0, 120.0], [140.0, 170.0, 150.0, 160.0], "slower"),
    ],
)
def test_steps_that_disagree_leave_it_undecided(one, other, verdict):
    step = sides(one, other)
    assert step.verdict == verdict
    decided = verdict in ("slower", "faster")
    assert step.confidence == ("medium" if decided else "low")
    assert step.probability == (COUNTED["step"] if decided else 0.0)


def test_from_four_steps_a_side_the_interval_is_that_of_the_rank_test():
    stats = pytest.importorskip("scipy.stats")
    drawn = np.random.default_rng(0)
    for _ in range(100):
        one, other = (drawn.lognormal(by, 0.1, drawn.integers(4, 12)) for by in (0.0, 0.08))
        low, high = bounds_of(one, other)
        p = stats.mannwhitneyu(one, other, method="exact").pvalue
        assert (p < 0.05) == (low > 0 or high < 0)
    assert bounds_of([1.0] * 3, [2.0] * 9) is None


def test_launching_the_same_kernels_longer_under_a_profiler_is_no_difference_of_programs():
    def account(idle, state, *, launches=50.0):
        step = DeviceTime(50, 100.0, 100.0, 0.0, idle)
        device = DeviceAccount(0, step, (step,), (Idle(state, idle, ""),), (), (), launches)
        return Account("step", (step.wall_us,) * 10, False, (device,), (), False)

    plain = account(400.0, "python")
    compared = StepComparison(("a", "b"), plain, account(520.0, "python"))
    assert compared.verdict == "undecided"
    assert "compute 100 µs against 100 µs" in step_notes(compared)[-1]
    assert StepComparison(("a", "b"), plain, account(520.0, "loading")).verdict == "slower"
    assert StepComparison(("a", "b"), plain, account(900.0, "python")).verdict == "slower"


def loop(loads):
    """Three steps of a kernel of 100 us; the host loads for some time in each."""
    trace = Trace()
    base = 0.0
    for step in range(3):
        trace.event("user_annotation", "step", base, loads + 300)
        trace.event("user_annotation", "data", base, loads)
        trace.launch("gemm(float*)", base + loads + 10, base + loads + 20, 100.0, correlation=step)
        base += loads + 310
    return trace


def test_data_loading_is_told_though_no_kernel_differs(tmp_path):
    for name, loads in (("fast", 100.0), ("slow", 5000.0)):
        (tmp_path / f"{name}.json").write_bytes(loop(loads).data())
    names = [str(tmp_path / f"{name}.json") for name in ("fast", "slow")]
    found = explain(*names, model=None)
    assert found.total.verdict == "slower"
    assert found.total.ratio == pytest.approx(5310 / 410, rel=0.01)
    assert found.step.first.id == "data_loading"
    assert sum(us for _, us in found.step.rows[:-1]) == pytest.approx(found.step.rows[-1][1])
    shown = run("explain", *names).output
    assert "slower: a step takes" in shown.split("Every layer")[0]
    assert "DataLoader(" in shown
    brief = json.loads(run("explain", *names, "--brief", "--json").stdout)
    assert "slower" in brief["verdict"]
    advice = run("advise", names[1]).output
    assert "DataLoader(" in advice
    report = run("report", names[1], "--out", str(tmp_path / "r.md")).output
    assert report.startswith("1. The device waits while the host prepares data")


def test_steps_are_compared_where_no_layer_of_one_side_answers_to_one_of_the_other(tmp_path):
    def record(name, operators, pause):
        trace = Trace()
        for step in range(4):
            base = (200 + 3 * pause) * step
            trace.event("user_annotation", "step", base, 190 + 3 * pause)
            for place, operator in enumerate(operators):
                at = base + 10 + pause * place
                trace.event("cpu_op", operator, at, 30)
                number = 10 * step + place
                trace.launch(f"k{operator[-1]}()", at + 5, at + 20, 50.0, correlation=number)
        (tmp_path / name).write_bytes(trace.data())
        return str(tmp_path / name)

    names = (
        record("a.json", ["x::a", "x::b"], 100.0),
        record("b.json", ["x::c", "x::d", "x::e"], 900.0),
    )
    found = explain(*names, model=None)
    assert found.step is not None
    assert found.total.verdict == found.step.verdict
    assert "a step takes" in run("explain", *names).output
    brief = json.loads(run("explain", *names, "--json").stdout)
    assert brief["step"]["verdict"] == found.step.verdict
    run("report", *names, "--out", str(tmp_path / "r.md"))
    assert "a step takes" in (tmp_path / "r.md").read_text()


def test_a_part_of_a_trace_has_no_account(tmp_path):
    path = tmp_path / "slow.json"
    path.write_bytes(loop(5000.0).data())
    whole = run("inspect", str(path)).output
    assert "a step takes" in whole.lower()
    chosen = run("inspect", str(path), "--kernel", "gemm", "--skip", "1").output
    assert "a step takes" not in chosen.lower()


def truth(path):
    """Return a step on the clock as ``truth.py`` beside the traces counts it, and each step's."""
    import gzip

    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    timed = [event for event in events if event.get("ph") == "X"]
    steps = [e for e in timed if e.get("cat") == "user_annotation" and e["name"] == "step"]
    kinds = ("kernel", "gpu_memcpy", "gpu_memset")
    device = [e for e in timed if e.get("cat") in kinds]
    end = max(event["ts"] + event["dur"] for event in (*steps, *device))
    return (end - min(step["ts"] for step in steps)) / len(steps)


def test_a_step_without_length_is_compared_and_divides_nothing():
    found = sides([100.0, 0.0, 101.0, 99.0], [200.0, 0.0, 210.0, 190.0])
    assert found.verdict in ("slower", "undecided")
    assert found.total.log_low is not None
    assert sides([0.0], [0.0]).verdict == "no difference"


if PAIRS.is_dir():

    def file_of(name):
        return PAIRS / f"{name}.json.gz"

    def account(name):
        return Account.from_dict(read(file_of(name)).provenance["step"])

    @pytest.mark.slow
    def test_the_headline_of_recorded_steps_is_the_step_on_the_clock():
        for path in sorted(PAIRS.glob("p*.json.gz")):
            kernels = read(path)
            found = Account.from_dict(kernels.provenance["step"])
            known = truth(path)
            assert sum(found.walls_us) / len(found.walls_us) == pytest.approx(known, abs=0.01), path
            assert min(found.walls_us) <= found.step_us <= max(found.walls_us)
            inside = kernels.frame["layer"].notna()
            covered = kernels.frame["time_us"][inside].sum() / kernels.frame["time_us"].sum()
            assert covered >= 0.95

    @pytest.mark.parametrize("pair", CAUSES)
    def test_the_labelled_cause_of_a_recorded_pair_comes_first(pair):
        names = (f"{pair}_fast", f"{pair}_slow")
        fast, slow = map(account, names)
        step = StepComparison(names, fast, slow)
        assert step.first.id == CAUSES[pair]
        assert sum(each.us for each in step.changes) == pytest.approx(step.difference_us, abs=0.01)
        ratio = truth(file_of(names[1])) / truth(file_of(names[0]))
        if ratio > 1.5:
            assert step.verdict == "slower"
        first, *_ = in_one_order(NOTHING, step_findings(slow), ())
        assert first.hazard == step.first.cause.words


@pytest.mark.parametrize(
    ("bare", "verdict", "ratio"),
    [
        (([400.0, 410.0, 390.0, 402.0], [401.0, 409.0, 391.0, 400.0]), "no difference", 1.0),
        (([400.0, 404.0, 402.0, 401.0], [800.0, 808.0, 803.0, 806.0]), "slower", 2.0),
    ],
)
def test_where_steps_of_both_sides_were_timed_without_a_profiler_they_are_compared(
    bare, verdict, ratio
):
    def account(idle, bare_steps):
        step = DeviceTime(50, 300.0, 300.0, 0.0, idle)
        idles = (Idle("python", idle / 2, ""), Idle("loading", idle / 2, ""))
        device = DeviceAccount(0, step, (step,), idles, (), (), 50.0)
        walls = (step.wall_us,) * 5
        return Account("step", walls, False, (device,), (), False, bare_steps_us=tuple(bare_steps))

    # one side is traced three times as long
    step = StepComparison(("a", "b"), account(200.0, bare[0]), account(1200.0, bare[1]))
    assert (step.verdict, step.total.verdict) == (verdict, verdict)
    assert step.ratio == pytest.approx(ratio, rel=0.02)
    assert sum(each.us for each in step.changes) == pytest.approx(step.difference_us, abs=1.0)
    assert sum(step.parts.values()) == pytest.approx(step.difference_us)
    assert not all(step.idle) or verdict == "slower"


def test_launching_that_a_profiler_lengthens_decides_nothing_where_all_else_differs_otherwise():
    def account(computing, launching):
        step = DeviceTime(50, computing, computing, 0.0, launching)
        part = Part("", "aten::conv2d", False, "conv", "convolution", (), us=computing)
        idle = (Idle("operators", launching, ""),)
        device = DeviceAccount(0, step, (step,), idle, (part,), (), 50.0)
        return Account("step", (step.wall_us,) * 10, False, (device,), (), False)

    # one computes 2.5 times as long, the other launches for twice as long under the profiler
    step = StepComparison(("a", "b"), account(430.0, 1550.0), account(1050.0, 100.0))
    assert (step.verdict, step.confidence) == ("undecided", "low")
    assert (step.first.id, step.slower, step.first.kernel) == ("same_kernels", "b", "conv")
    # no profiler does that much
    assert StepComparison(("a", "b"), account(430.0, 4000.0), step.target).verdict == "faster"


def test_sides_that_hardly_differ_get_no_advice():
    step = sides([100.0, 104.0, 98.0, 120.0], [101.0, 99.0, 140.0, 97.0])
    assert step.verdict == "undecided"
    assert (step.first, step_action(step), step_cause(step)) == (None, "", "")


def test_one_event_and_equal_copies_of_one_sample_a_side_are_no_difference():
    def account(copying, longest):
        step = DeviceTime(10, 100.0, 100.0, copying, 50.0 + longest, longest_us=longest)
        idle = (Idle("host", 50.0 + longest, ""),)
        copies = (Copies("to_device", False, copying, 4096.0, 1.0),)
        device = DeviceAccount(0, step, (step,), idle, (), copies, 10.0)
        return Account("", (step.wall_us,), False, (device,), (), False)

    for other in (account(20.0, 900.0), account(500.0, 10.0)):
        step = StepComparison(("a", "b"), account(20.0, 10.0), other)
        assert step.ratio > 3
        assert (step.verdict, step.confidence, step.leads) == ("undecided", "low", False)


@pytest.mark.parametrize("turned", [False, True])
def test_a_kernel_that_changed_for_certain_stands_below_an_undecided_clock(tmp_path, turned):
    waits = [0, 500, 80, 300, 0, 900], [400, 0, 100, 200, 600, 0]
    for name, us, gaps in zip("ab", (50.0, 59.0), waits, strict=True):
        trace, at = Trace(), 0
        for step, gap in enumerate(gaps):
            trace.event("user_annotation", f"ProfilerStep#{step}", at, 400 + gap)
            for place in range(5):
                # the last one takes more only in the mean, and by more
                long = us + step % 2 * 0.2 if place == 3 else 50.0
                long += (us - 50.0) * 2 + gap / 6 if place == 4 else 0.0
                trace.event("cpu_op", f"aten::op{place}", at + 5 + place * 20, 15)
                begins = at + 100 + place * 60
                trace.launch(
                    f"k{place}()", at + 7 + place * 20, begins, long, correlation=at + place
                )
            at += 620 + gap
        (tmp_path / f"{name}.json").write_bytes(trace.data())
    paths = [tmp_path / "a.json", tmp_path / "b.json"]
    answer = explain(*(paths[::-1] if turned else paths), top=1, model=None)
    assert answer.step.verdict == "undecided"
    assert answer.headline.startswith("undecided")
    assert "aten::op3" in answer.headline
    assert [each.layer for each in answer.details] == ["aten::op3"]
    brief = run("explain", "--brief", *paths).stdout.splitlines()
    assert "undecided" in brief[0]
    assert "aten::op3" in brief[0]
    assert any("op3 is" in line for line in run("explain", *paths).stdout.splitlines())


def window(path, gap_us, times, length_ms=200.0):
    """Write what a server does in a time of fixed length: three kernels a request, in any order."""
    export, random, now = Export(path), np.random.default_rng(len(times)), 1e6
    while now < length_ms * 1e6:
        for name in random.permutation(list(times)):
            end = now + times[name] * random.uniform(970.0, 1030.0)
            export.launch(f"{name}(float *)", int(now) - 500, int(now), int(end))
            now = end + 1e3 * gap_us
    return export.close()


@pytest.mark.parametrize(
    ("gap_us", "times", "ratio", "verdict"),
    [
        (100.0, (1000, 300, 200), 1.0, "no difference"),
        (10.0, (300, 200, 100), 0.35, "faster"),  # twice as short, and launched without gaps
        (10.0, (1000, 300, 200), 0.85, "undecided"),  # one window a side
        (1100.0, (1000, 300, 200), 2.67, "slower"),
    ],
)
def test_in_windows_of_one_length_what_repeats_more_often_is_faster(
    gap_us, times, ratio, verdict, tmp_path
):
    names = ("gemm", "norm", "act")
    one = window(tmp_path / "one.sqlite", 100.0, dict(zip(names, (1000, 300, 200), strict=True)))
    other = window(tmp_path / "other.sqlite", gap_us, dict(zip(names, times, strict=True)))
    step = explain(str(one), str(other), model=None).step
    assert step.verdict == verdict
    assert step.ratio == pytest.approx(ratio, rel=0.03)
    back = explain(str(other), str(one), model=None).step
    assert back.ratio == pytest.approx(1 / step.ratio, rel=0.03)


def test_a_recording_that_launches_other_kernels_more_often_is_compared_as_it_is(tmp_path):
    one = window(tmp_path / "one.sqlite", 100.0, {"gemm": 1000, "norm": 300, "act": 200})
    other = window(tmp_path / "other.sqlite", 100.0, {"gemm": 400, "norm": 300, "more": 100})
    step = explain(str(one), str(other), model=None).step
    assert (step.often, step.verdict) == (1.0, "no difference")
