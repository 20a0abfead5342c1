"""The gate: counted work decides, times confirm, and what nobody can tell is said to be so."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import perfml
from perfml.cli import app
from perfml.datasets import load
from perfml.errors import InputError, PerfmlError
from perfml.explain.compared import WHOLE
from perfml.gate import ExitCode, Policy, Verdict, judge, load_policy
from perfml.gate.render import junit, markdown, text
from perfml.gate.verdict import ALL, OUTSIDE
from perfml.gate.work import COUNTED
from perfml.tables import write_table

pytestmark = pytest.mark.long


def layers(time=10.0, scatter=0.02, repeats=8, seed=0, layer="conv", **counters):
    """Return a Layers table of one layer with counted work."""
    counted = {
        "kernels": 2,
        "inst_executed": 1e6,
        "global_load_requests": 2e4,
        "gld_transactions": 8e4,
        "global_store_requests": 1e4,
    }
    rng = np.random.default_rng(seed)
    rows = {**counted, **counters}
    return pd.DataFrame(
        {
            "run_id": "r",
            "workload": "w",
            "backend": "b",
            "precision": "fp32",
            "batch": 1,
            "device": "d",
            "compute_capability": "9.0",
            "iteration": range(repeats),
            "layer": layer,
            "kernel_names": "k",
            "time_us": time * np.exp(rng.normal(0, scatter, repeats)),
            **rows,
        }
    )


def verdict(before, after, policy=None):
    return judge(before, after, policy).verdict


@pytest.mark.slow
def test_the_same_work_is_the_same_however_the_times_scatter():
    assert verdict(layers(seed=1, scatter=0.05), layers(seed=2, scatter=0.05)) is Verdict.SAME


def test_two_per_cent_more_instructions_are_worse_and_named():
    result = judge(layers(seed=1), layers(seed=2, inst_executed=1.02e6))
    assert result.verdict is Verdict.WORSE
    assert result.exit_code == 1
    assert result.layers[0].reason == "inst_executed +2.0 %, not seen in the time"


def test_less_work_is_better():
    result = judge(layers(seed=1), layers(seed=2, time=8, gld_transactions=4e4))
    assert (result.verdict, result.exit_code) == (Verdict.BETTER, 0)
    assert "confirmed by the time" in result.layers[0].reason


def test_more_instructions_that_run_faster_are_no_regression():
    assert verdict(layers(), layers(time=5, inst_executed=1.5e6)) is Verdict.BETTER


def test_work_that_moves_both_ways_is_decided_by_the_time_or_unclear():
    vectors = {"global_load_requests": 5e3, "gld_transactions": 9e4}
    assert verdict(layers(seed=1), layers(seed=2, **vectors)) is Verdict.UNCLEAR
    assert verdict(layers(), layers(time=20, **vectors)) is Verdict.WORSE


def test_three_times_as_slow_with_equal_work_has_an_exit_code_of_its_own():
    result = judge(layers(), layers(time=30))
    assert (result.verdict, result.exit_code) == (Verdict.SLOWER, ExitCode.SLOWER)
    assert result.layers[0].changed == ()


@pytest.mark.parametrize(
    ("time", "expected"),
    [(30, Verdict.UNCLEAR), (14, Verdict.UNCLEAR), (10.2, Verdict.SAME), (5, Verdict.SAME)],
)
@pytest.mark.parametrize("names", [("conv",), ("conv", "pool", "norm")])
def test_single_repeats_pass_only_where_no_other_process_would_differ_so_much(
    names, time, expected
):
    sides = [
        pd.concat([layers(repeats=1, scatter=0, time=each, layer=name) for name in names])
        for each in (10, time)
    ]
    result = judge(*sides)
    assert result.verdict is expected
    assert result.overall.time.ratio == pytest.approx(time / 10)


@pytest.mark.parametrize(
    ("kernels", "time", "expected"),
    [
        (2, 30, Verdict.UNCLEAR),
        (2, 5, Verdict.BETTER),
        (9, 3, Verdict.UNCLEAR),
        (9, 30, Verdict.WORSE),
    ],
)
def test_a_single_repeat_against_other_kernels_leaves_it_unclear(kernels, time, expected):
    sides = [layers(repeats=1, scatter=0, time=10, kernels=5)]
    sides += [layers(repeats=1, scatter=0, time=time, kernels=kernels)]
    assert verdict(*(side.drop(columns="inst_executed") for side in sides)) is expected


def test_a_network_of_single_repeats_that_is_slower_in_all_does_not_pass():
    names = [f"conv_{number}" for number in range(30)]
    sides = [
        pd.concat([layers(repeats=1, scatter=0, time=time, layer=name) for name in names])
        for time in (10, 10.8)
    ]
    assert verdict(*sides) is Verdict.UNCLEAR


def test_a_layer_alone_that_two_processes_may_time_so_is_not_called_slower():
    assert verdict(layers(), layers(time=11.5)) is Verdict.UNCLEAR
    assert verdict(layers(), layers(time=10.3)) is Verdict.SAME


def test_one_of_many_layers_may_differ_by_more_between_two_processes():
    names = [f"conv_{number}" for number in range(20)]
    before = pd.concat([layers(layer=name) for name in names])
    after = before.assign(time_us=before["time_us"].where(before["layer"] != "conv_3", 11.2))
    assert verdict(before, after) is Verdict.SAME
    after = before.assign(time_us=before["time_us"].where(before["layer"] != "conv_3", 13.0))
    assert verdict(before, after) is Verdict.UNCLEAR


def test_a_network_that_is_slower_in_all_is_called_slower():
    names = [f"conv_{number}" for number in range(5)]
    sides = [
        pd.concat([layers(time=time, layer=name, seed=seed) for seed, name in enumerate(names)])
        for time in (10, 11.5)
    ]
    assert verdict(*sides) is Verdict.SLOWER


def test_a_network_is_slower_in_all_where_no_layer_shows_it_alone():
    # what one layer takes longer in a repeat the other one takes less
    swing = np.linspace(-4, 4, 8)
    sides = []
    for factor in (1, 1.1):
        parts = [
            layers(layer=name).assign(time_us=factor * (10 + sign * swing))
            for name, sign in (("a", 1), ("b", -1), ("c", 1), ("d", -1))
        ]
        sides.append(pd.concat(parts))
    result = judge(*sides)
    assert not result.of(Verdict.SLOWER)
    assert result.exit_code == ExitCode.SLOWER


def test_sides_timed_in_several_processes_need_no_such_distance():
    sides = [layers(seed=seed, time=time, scatter=0.002) for seed, time in enumerate((10, 10.8))]
    processes = [side.assign(process=side["iteration"] // 2) for side in sides]
    assert verdict(*processes) is Verdict.SLOWER


def test_without_counters_times_that_agree_pass_and_say_so():
    bare = [layers(seed=seed).drop(columns=list(COUNTED[1:]), errors="ignore") for seed in (1, 2)]
    result = judge(*bare)
    assert result.verdict is Verdict.SAME
    assert "not all work was counted" in text(result, "a", "b")
    bare[1]["time_us"] *= 3
    assert verdict(*bare) is Verdict.SLOWER
    bare[1]["time_us"] = np.nan
    result = judge(*bare)
    assert result.verdict is Verdict.UNCLEAR
    assert "--metrics default" in result.layers[0].reason


def test_identical_tables_pass_whatever_they_lack():
    noisy = layers(scatter=0.5, repeats=2, inst_executed=[1e6, 2e6])
    assert verdict(noisy, noisy) is Verdict.SAME
    bare = noisy.drop(columns=list(COUNTED[1:]), errors="ignore")
    assert verdict(bare, bare) is Verdict.SAME


def without(table, counter, *repeats):
    table = table.copy()
    table.loc[list(repeats), counter] = np.nan
    return table


def test_a_repeat_that_lacks_a_counter_does_not_hide_what_the_others_count():
    assert (
        verdict(layers(), without(layers(inst_executed=2e6), "inst_executed", 3)) is Verdict.WORSE
    )
    assert verdict(without(layers(), "inst_executed", 0), layers(seed=2)) is Verdict.SAME


@pytest.mark.parametrize("lacking", [range(5), range(8)])
def test_a_counter_that_most_repeats_lack_is_not_equal(lacking):
    result = judge(layers(), without(layers(seed=2), "inst_executed", *lacking))
    assert result.verdict is Verdict.UNCLEAR
    assert f"inst_executed is missing in {len(lacking)} of 8 repeats" in result.layers[0].reason


def test_a_counter_that_only_the_new_version_has_is_not_asked_for():
    assert verdict(layers(), layers(seed=2, flop_count_sp=5e5)) is Verdict.SAME


def with_odd_repeats(factor, *repeats, **counters):
    table = layers(**counters)
    table.loc[list(repeats), "inst_executed"] *= factor
    return table


@pytest.mark.parametrize("growth", [1.02, 1.45])
def test_one_odd_repeat_of_the_baseline_does_not_open_the_gate(growth):
    result = judge(with_odd_repeats(1.25, 3), layers(inst_executed=growth * 1e6))
    assert result.verdict is Verdict.WORSE
    assert "Repeats apart from the others did not decide: inst_executed" in text(result, "a", "b")


def test_one_odd_repeat_of_the_new_version_does_not_close_it():
    assert verdict(layers(), with_odd_repeats(2, 3, seed=2)) is Verdict.SAME


def test_repeats_that_do_not_agree_hide_small_changes_and_not_large_ones():
    divided = with_odd_repeats(1.25, 0, 3, 6)
    result = judge(divided, layers(seed=2, inst_executed=1.1e6))
    assert result.verdict is Verdict.UNCLEAR
    assert "repeats of the baseline do not agree on inst_executed" in result.layers[0].reason
    assert verdict(divided, layers(seed=2, inst_executed=2e6)) is Verdict.WORSE
    assert verdict(layers(seed=2), divided) is Verdict.UNCLEAR


@pytest.mark.parametrize(("repeats", "expected"), [(2, Verdict.UNCLEAR), (3, Verdict.WORSE)])
def test_a_small_change_takes_three_repeats_because_some_programs_count_their_waiting(
    repeats, expected
):
    sides = [layers(repeats=repeats), layers(repeats=repeats, seed=2, inst_executed=1.012e6)]
    assert verdict(*sides) is expected
    assert verdict(sides[0], layers(repeats=repeats, inst_executed=1.02e6)) is Verdict.WORSE


def test_a_few_sectors_beside_a_million_instructions_are_no_work():
    few = {"inst_executed": 4e7, "global_store_requests": 107, "gst_transactions": 107}
    more = {**few, "gst_transactions": 111}
    assert verdict(layers(**few), layers(seed=2, **more)) is Verdict.SAME


def test_less_work_that_takes_longer_is_slower_and_not_more_work():
    less = {"inst_executed": 0.9e6}
    assert verdict(layers(), layers(time=10.4, **less)) is Verdict.BETTER
    assert verdict(layers(), layers(time=13, **less)) is Verdict.SLOWER


def test_a_little_more_work_is_not_excused_by_a_time_that_another_process_could_give():
    assert verdict(layers(), layers(time=9.6, inst_executed=1.02e6)) is Verdict.WORSE


@pytest.mark.parametrize("work", [0.9, 1.0, 1.1])
def test_two_kinds_of_gpu_are_not_compared(work):
    result = judge(layers(), layers(inst_executed=work * 1e6).assign(device="e"))
    assert (result.verdict, result.exit_code) == (Verdict.NOT_COMPARABLE, ExitCode.NOT_COMPARABLE)
    assert result.layers[0].reason == "another GPU: e against d"


def test_another_batch_is_another_amount_of_work():
    result = judge(layers(), layers(inst_executed=5e5).assign(batch=2))
    assert result.exit_code == ExitCode.NOT_COMPARABLE


def test_a_side_that_does_not_know_its_gpu_is_not_another_one():
    assert verdict(layers(), layers(seed=2).assign(device=None)) is Verdict.SAME


def test_at_another_clock_work_decides_and_times_do_not():
    clocks = [{"sm_clock_mhz": clock} for clock in (1980.0, 1500.0)]
    result = judge(layers(**clocks[0]), layers(time=13.2, **clocks[1]))
    assert (result.verdict, result.layers[0].time) == (Verdict.NOT_COMPARABLE, None)
    assert "another SM clock: 1,500 MHz against 1,980 MHz" in result.layers[0].reason
    more = judge(layers(**clocks[0]), layers(time=5, inst_executed=1.1e6, **clocks[1]))
    assert more.verdict is Verdict.WORSE
    near = {"sm_clock_mhz": 1965.0}
    assert verdict(layers(**clocks[0]), layers(seed=2, **near)) is Verdict.SAME
    unknown = {"sm_clock_mhz": np.nan}
    assert verdict(layers(**clocks[0]), layers(seed=2, **unknown)) is Verdict.SAME


def test_a_profilers_time_is_not_compared_with_the_programs_own():
    sides = [
        layers(time=time).assign(time_source=source)
        for time, source in ((10, "ncu"), (30, "timing"))
    ]
    assert judge(*sides).layers[0].time is None


def test_a_layer_without_a_partner_is_not_passed_over():
    both = pd.concat([layers(), layers(layer="pool")])
    result = judge(both, layers())
    assert (result.verdict, result.only_baseline) == (Verdict.UNCLEAR, ("pool",))


def test_layers_with_other_names_are_not_passed_and_not_unreadable():
    sides = [
        pd.concat([layers(layer=f"{start}_{number}") for number in range(3)])
        for start in ("conv", "block")
    ]
    result = judge(*sides)
    assert (result.exit_code, result.layers) == (ExitCode.CANNOT_TELL, ())
    assert len(result.only_baseline) == len(result.only_new) == 3
    assert result.overall.time.ratio == pytest.approx(1)


@pytest.fixture
def launches():
    """Return a Kernels table: three iterations of a launch in a layer and one outside."""
    rows = pd.concat([layers(repeats=3, scatter=0)] * 2, ignore_index=True)
    rows = rows.drop(columns=["kernels", "kernel_names"])
    kernels = rows.assign(kernel="k", grid="(1, 1, 1)", block="(32, 1, 1)", stream=7)
    kernels["layer"] = ["conv"] * 3 + [None] * 3
    kernels["kernel_index"] = [0] * 3 + [1] * 3
    return kernels


def test_work_outside_every_layer_is_judged_as_one_more_layer(launches):
    inside = launches[launches["layer"].notna()].reset_index(drop=True)
    more = perfml.gate(inside, launches)
    assert more.exit_code == ExitCode.CANNOT_TELL
    assert (more.only_new, more.overall.time.ratio) == ((OUTSIDE,), pytest.approx(2))
    same = perfml.gate(launches, launches)
    assert (same.exit_code, len(same.layers)) == (0, 2)
    grown = launches.assign(
        inst_executed=launches["inst_executed"].where(launches["layer"].notna(), 2e6)
    )
    (worse,) = perfml.gate(launches, grown).of(Verdict.WORSE)
    assert worse.layer == OUTSIDE


def test_launches_outside_without_a_time_still_count(launches):
    untimed = launches.assign(time_us=launches["time_us"].where(launches["layer"].notna()))
    assert perfml.gate(untimed, untimed).exit_code == 0
    grown = untimed.assign(
        inst_executed=untimed["inst_executed"].where(untimed["layer"].notna(), 2e6)
    )
    assert perfml.gate(untimed, grown).exit_code == ExitCode.MORE_WORK


@pytest.mark.parametrize("counter", ["inst_executed", "kernels", "gst_transactions"])
def test_a_negative_count_is_refused_by_name(counter):
    with pytest.raises(PerfmlError, match=counter):
        judge(layers(), layers(**{counter: -1e6}))


def test_no_instructions_of_a_launch_are_not_less_work():
    assert verdict(layers(), layers(inst_executed=0.0)) is Verdict.UNCLEAR


def test_an_exception_holds_for_the_layers_it_names(tmp_path):
    file = tmp_path / "gate.toml"
    file.write_text('work = 0.01\n[layers]\n"con*" = 0.05\n')
    assert verdict(layers(), layers(inst_executed=1.02e6), load_policy(file)) is Verdict.SAME
    file.write_text('[layers]\n"pool*" = 0.05\n')
    assert verdict(layers(), layers(inst_executed=1.02e6), load_policy(file)) is Verdict.WORSE


@pytest.mark.parametrize(
    "content", ["work = -1", "work = true", "wrok = 1", "layers = 3", "work = ["]
)
def test_tolerances_that_cannot_be_meant_are_refused(tmp_path, content):
    file = tmp_path / "gate.toml"
    file.write_text(content)
    with pytest.raises(InputError, match=r"gate\.toml"):
        load_policy(file)


def test_several_backends_on_a_side_are_refused():
    two = pd.concat([layers(), layers().assign(backend="c")])
    with pytest.raises(PerfmlError, match="several values of backend"):
        judge(two, layers())


def recorded():
    """Return recorded layers with counted work: three profiled iterations, ten timed ones."""
    frame = load("h200-yolov4-tiny").frame
    return frame[(frame.backend == "cudnn") & (frame.precision == "fp32") & (frame.batch == 8)]


@pytest.mark.slow
def test_iterations_of_one_recorded_run_are_never_worse_than_each_other():
    run = recorded()
    policy = Policy()
    halves = [run[run.iteration % 2 == half] for half in (0, 1)]
    verdicts = [layer.verdict for layer in judge(*halves, policy).layers]
    assert Verdict.WORSE not in verdicts
    assert Verdict.BETTER not in verdicts


def test_two_per_cent_in_one_recorded_layer_close_the_gate_and_are_named():
    run = recorded()
    for layer in sorted(run.layer.unique())[::4]:
        planted = run.copy()
        planted.loc[planted.layer == layer, "inst_executed"] *= 1.02
        worse = judge(run, planted).of(Verdict.WORSE)
        assert [row.layer for row in worse] == [layer]
        assert worse[0].changed[0].counter == "inst_executed"


def test_the_renderings_escape_what_comes_from_outside():
    name = "<b>|conv_1"
    result = judge(layers(layer=name), layers(layer=name, inst_executed=2e6))
    assert "inst_executed +100.0 %" in text(result, "a", "b")
    assert "&lt;b&gt;\\|conv_1" in markdown(result, "a", "b")
    suite = ElementTree.fromstring(junit(result, "a", "b").encode())
    assert suite.attrib["failures"] == "2"
    assert suite.findall("testcase")[1].attrib["name"] == name


def test_markdown_for_a_pull_request_lists_what_changed_and_what_was_not_compared():
    both = pd.concat([layers(seed=1), layers(layer="pool"), layers(layer="norm")])
    new = pd.concat([layers(seed=2, time=20, inst_executed=1.5e6), layers(layer="pool")])
    lines = markdown(judge(both, new), "main", "@someone/pr").splitlines()
    head, _, end = lines[0].partition(" (time of kernels ×0.997")
    assert (head, end.partition(": ")[2]) == (
        "**More work",
        "of 2 layers 1 worse, 1 same** (@\u2060someone/pr against main)",
    )
    assert lines[2:4] == ["| layer | verdict | why | time |", "|---|---|---|---|"]
    (row,) = (line for line in lines if line.startswith("| conv"))
    assert "| worse | inst_executed +50.0 %, confirmed by the time | 1.993 [1.9" in row
    assert "- Only in the baseline, not compared: norm." in lines


def test_junit_has_a_case_a_layer_and_skips_what_nobody_can_tell():
    before = pd.concat([layers(layer=name) for name in ("a", "b", "c")])
    after = pd.concat(
        [layers(layer="a"), layers(layer="b", time=11.5), layers(layer="c", inst_executed=2e6)]
    )
    suite = ElementTree.fromstring(junit(judge(before, after), "main", "pr").encode())
    assert suite.attrib["name"] == "perfml gate: pr against main"
    counts = {name: suite.attrib[name] for name in ("tests", "failures", "skipped")}
    assert counts == {"tests": "4", "failures": "2", "skipped": "1"}
    cases = suite.findall("testcase")
    outcome = {case.attrib["name"]: [part.tag for part in case] for case in cases}
    assert outcome == {ALL: ["failure"], "a": [], "b": ["skipped"], "c": ["failure"]}


def test_every_form_says_the_ratio_of_the_whole_times_first():
    sides = [
        pd.concat([layers(layer=name, time=time, scatter=0) for name in ("a", "b")])
        for time in (10, 10.2)
    ]
    result = judge(*sides)
    assert "1.020" in text(result, "main", "pr").splitlines()[0]
    assert "1.020" in markdown(result, "main", "pr").splitlines()[0]
    suite = ElementTree.fromstring(junit(result, "main", "pr").encode())
    assert "1.020" in suite.findtext("system-out").splitlines()[0]
    assert result.to_dict()["time"]["ratio"] == pytest.approx(1.02)


def gate(*words):
    return CliRunner().invoke(app, ["gate", *map(str, words)])


@pytest.fixture
def tables(tmp_path, monkeypatch):
    """Write a baseline and a version with more work; return their folder, the working one."""
    monkeypatch.chdir(tmp_path)
    for name, table in (("base", layers(seed=1)), ("more", layers(seed=2, inst_executed=1.1e6))):
        write_table(table, tmp_path / f"{name}.parquet", kind="layers", provenance={})
    return tmp_path


def test_the_exit_code_is_the_verdict(tables):
    assert gate("base.parquet", "base.parquet").exit_code == 0
    worse = gate("base.parquet", "more.parquet")
    assert worse.exit_code == 1
    assert "of 1 layer 1 worse" in worse.stdout
    broken = gate("base.parquet", "missing.parquet")
    assert broken.exit_code == ExitCode.UNREADABLE
    assert "missing.parquet" in broken.stderr


def test_a_saved_baseline_is_used_by_its_name(tables):
    assert gate("--save", "main", "base.parquet").exit_code == 0
    done = gate("main", "more.parquet", "--json")
    assert done.exit_code == 1
    assert json.loads(done.stdout)["layers"][0]["changed"][0]["counter"] == "inst_executed"


def test_a_baseline_that_nobody_saved_names_those_that_are(tables):
    gate("--save", "main", "base.parquet")
    done = gate("mian", "more.parquet")
    assert done.exit_code == ExitCode.UNREADABLE
    assert "baselines: main" in done.stderr


def test_a_report_for_ci_is_written_whole(tables):
    words = ("base.parquet", "more.parquet", "--format", "junit", "--out", "gate.xml")
    assert gate(*words).exit_code == 1
    assert ElementTree.parse(tables / "gate.xml").getroot().tag == "testsuite"


@pytest.mark.parametrize("counted", [True, False])
def test_a_single_launch_that_runs_in_half_the_time_is_to_be_repeated(counted):
    sides = [
        layers(repeats=1, scatter=0, time=10.0),
        layers(repeats=1, scatter=0, time=5.4, inst_executed=1.06e6),
    ]
    sides = sides if counted else [side.drop(columns="inst_executed") for side in sides]
    result = judge(*sides)
    assert result.verdict is Verdict.UNCLEAR
    assert "--launch-count" in result.layers[0].reason
    several = [pd.concat([side.assign(iteration=n) for n in range(4)]) for side in sides]
    assert "--launch-count" not in judge(*several).layers[0].reason


def test_a_single_launch_cannot_confirm_what_was_counted():
    result = judge(layers(repeats=1), layers(repeats=1, time=50.0, inst_executed=2e6))
    assert result.verdict is Verdict.WORSE
    assert result.layers[0].reason == (
        "inst_executed +100.0 %, with no repeated times to confirm it"
    )


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ("ab" * 24, Verdict.SAME),
        ("ab" * 5, Verdict.SAME),
        ("ab" * 10 + "a", Verdict.WORSE),
        ("ab" * 10 + "c", Verdict.WORSE),
    ],
)
def test_a_whole_run_that_was_recorded_longer_is_no_more_work(names, expected):
    def run(kernels):
        rows = layers(repeats=1, layer=WHOLE, kernels=len(kernels), time=float(len(kernels)))
        rows["kernel_names"] = "\n".join(kernels)
        return rows.drop(columns=[name for name in COUNTED if name != "kernels"], errors="ignore")

    result = judge(run("ab" * 10), run(names))
    assert result.verdict is expected
    # as long a launch, however many were recorded
    if expected is Verdict.SAME:
        assert result.overall.time.ratio == pytest.approx(1.0)
        assert result.layers[0].reason != "the same recording"
