"""What to do first about files without counters: what takes the time, with a line to type."""

import json
import shlex

import pandas as pd
import pytest

from perfml.account.account import Account, DeviceAccount, Idle, Part
from perfml.account.build import account_without_host, kernels_of
from perfml.account.device_time import DeviceTime, Spans
from perfml.explain import advise
from perfml.explain.advice.answer import in_one_order
from perfml.explain.advice.network import step_findings
from perfml.explain.advice.unexplained import longest_kernels, profile_command
from perfml.explain.steps import StepComparison
from perfml.ingest.merge.groups import kernels_as_layers
from perfml.report.sections.clock import step_differences
from perfml.report.write import report
from perfml.util.findings import Time
from tests.support.command_line import run
from tests.support.paths import PUBLIC
from tests.support.tables import make_kernels

DOUBLE = "void reduce_kernel<512, double>(double*)"
PAIRS = PUBLIC.parent / "pairs_2026_11_25" / "torch"
others = pytest.mark.skipif(not PUBLIC.is_dir(), reason="may be read, not committed")


def first(name):
    return report(PUBLIC / name, out=None).answer.first


def launches(kernel="k(float *)", *, gap=0.0, **columns):
    """Return ten launches of 100 us, so far apart."""
    starts = [at * (100.0 + gap) for at in range(10)]
    table = {
        "run_id": "run",
        "workload": None,
        "iteration": 0,
        "kernel": kernel,
        "kernel_index": range(10),
        "grid": "(1000, 1, 1)",
        "block": "(128, 1, 1)",
        "time_us": 100.0,
        "start_us": starts,
        "gap_us": [float("nan"), *[gap] * 9],
        **columns,
    }
    return pd.DataFrame(table)


def test_what_takes_most_of_the_clock_comes_first():
    def found(gap):
        begins = [int(1e3 * place * (100 + gap)) for place in range(10)]
        spans = Spans.of([(0, begin, begin + 100_000) for begin in begins])
        account = account_without_host(kernels_of(["k"] * 10, spans, [0] * 10))
        return in_one_order(pd.DataFrame(), step_findings(account), (), longest_kernels(launches()))

    # by hand: nine gaps of 300 us beside ten kernels of 100 us
    idle = found(300.0)[0]
    # it leads, and has no gain: nothing says what of it can be saved
    assert (idle.rules, idle.gain, idle.holds.us) == (("unrecorded",), None, 2700.0)
    assert idle.command.split()[0] == "nsys"
    assert found(0.0)[0].hazard == "Profile k"


def test_a_kernel_that_leaves_most_multiprocessors_idle_is_to_start_more_blocks():
    small = launches(grid="(8, 1, 1)", device="NVIDIA H200")
    (step,) = longest_kernels(small)
    assert step.hazard == "Start more blocks in k"
    assert "8 blocks on 132 multiprocessors" in step.mitigation
    (step,) = longest_kernels(launches(grid="(100, 1, 1)", device="NVIDIA H200"))
    assert step.hazard == "Profile k"
    # a grid of zeros was not recorded: it says nothing of blocks
    (step,) = longest_kernels(launches(grid="(0, 0, 0)", device="NVIDIA H200"))
    assert step.hazard == "Profile k"


def test_the_tool_that_profiles_a_kernel_fits_its_device():
    def tool(**row):
        return shlex.split(profile_command("void ns::k<int>(int)", pd.Series(row)))

    ncu = tool(device="NVIDIA H100", compute_capability="9.0", time_source="nsys")
    assert ncu[0] == "ncu"
    assert ncu[ncu.index("--kernel-name") + 1] == "k"
    assert tool(compute_capability="6.1", time_source="nvprof")[0] == "nvprof"
    assert tool(device="AMD Instinct MI210", time_source="torch")[-2:] == ["python", "script.py"]
    odd = profile_command("<img src=x onerror=alert(1)>", pd.Series({"time_source": "nsys"}))
    assert "regex:.+img" in odd
    assert "<" not in odd
    graph = profile_command("CUDA_graph_7", pd.Series({"time_source": "nsys"}))
    assert "--cuda-graph-trace node" in graph


def test_the_longest_kernel_is_named_whether_or_not_a_range_is_around_it():
    # two steps: 10 us in an operator, 4 us outside; a kernel of 2 and 100 us outside of all
    kernels = make_kernels(
        [
            {"iteration": step, "layer": layer, "kernel": kernel, "time_us": us, "start_us": start}
            for step in (0, 1)
            for layer, kernel, us, start in (
                ("aten::mm", "gemm", 10.0, 1000.0 * step),
                (None, "gemm", 4.0, 1000.0 * step + 10),
                (None, "mine", 100.0, 1000.0 * step + 20),
            )
        ]
    )
    (named, second) = advise(kernels).unexplained
    assert (named.where.layers, named.holds) == (("mine",), Time(200.0))
    assert (second.where.layers, second.holds.us) == (("gemm",), 28.0)


def test_what_a_kernel_takes_is_what_the_account_says_of_it():
    rows = [("mine", 100.0), ("mine", 102.0), ("other", 20.0)]
    kernels = make_kernels([{"kernel": name, "time_us": us} for name, us in rows])
    step = DeviceTime(2, 111.0, 111.0, 0.0, 889.0)
    parts = tuple(
        Part("", "", False, name, "", (), us=us, launches=1.0)
        for name, us in (("mine", 101.0), ("other", 10.0))
    )
    device = DeviceAccount(0, step, (step, step), (), parts, (), 2.0)
    account = Account("step", (1000.0, 1000.0), False, (device,), (), False)
    found = longest_kernels(kernels, account=account)
    assert [each.holds for each in found] == [Time(101.0, "step"), Time(10.0, "step")]


def test_a_row_of_many_launches_holds_the_time_of_all_of_them():
    # by hand: 1000 x 500 us and 3 x 2 us
    kernels = make_kernels(
        [
            {"kernel": DOUBLE, "layer": None, "time_us": 500.0, "launches": 1000},
            {"kernel": "mine", "layer": None, "time_us": 2.0, "launches": 3},
        ]
    )
    for table in (kernels, kernels_as_layers(kernels)):
        advice = advise(table)
        (cause,) = advice.network
        assert (cause.rules, cause.holds.us) == (("double_precision",), 500_006.0)
        assert cause.numbers[0].slow == 500_000.0
        assert advice.unexplained[0].holds.us == 500_000.0


def test_a_collective_is_not_profiled_alone():
    kernel = "ncclDevKernel_AllReduce_Sum_f16_RING_LL(ncclDevComm*)"
    assert longest_kernels(launches(kernel)) == ()


@others
@pytest.mark.parametrize(
    ("name", "title", "command"),
    [
        (
            "csc746_nsys_report1.sqlite.xz",
            "Long kernels start too few blocks and threads: most of the device is idle",
            "kernel<<<",
        ),
        ("traffic_metrics_sqlite.nvprof.gz", "Profile step_print_histogram", "nvprof --kernels"),
        (
            "titanxp_cfd_gpu_summary_unified_memory.csv",
            "Profile cuda_compute_flux",
            "nvprof --kernels cuda_compute_flux",
        ),
    ],
)
def test_public_files_without_counters_say_what_to_type(name, title, command):
    step = first(name)[0]
    assert step.title == title
    assert step.command.startswith(command)


def clocks(one, other):
    """Return two steps on the clock whose device waits for the loader of data, in microseconds."""

    def account(wall):
        step = DeviceTime(0, 0.0, 0.0, 0.0, wall)
        device = DeviceAccount(0, step, (step,), (Idle("loading", wall, ""),), (), (), 0.0)
        return Account("step", (wall - 1, wall, wall + 1), False, (device,), (), False)

    return StepComparison(("before", "after"), account(one), account(other))


def test_of_two_traces_the_clock_comes_first_with_what_to_do():
    do, time = step_differences(clocks(1000.0, 1500.0))
    assert (do.title, do.gain, do.look) == ("A step is slower", "500 µs a step lost", "lost")
    assert do.text.index(" Why: ") > 0
    assert (time.sure, "1,500 µs on the clock against 1,000 µs" in time.text) == ("medium", True)


def test_steps_that_do_not_differ_on_the_clock_are_nothing_to_do():
    (time,) = step_differences(clocks(1000.0, 1000.5))
    assert (time.about, time.sure) == ("time", "low")


@pytest.mark.slow
@others
def test_the_page_of_two_traces_says_what_explain_says(tmp_path):
    pair = [PAIRS / f"p05_{side}.json.gz" for side in ("slow", "fast")]
    page = tmp_path / "page.html"
    shown = run("report", *pair, "--out", str(page), "--json")
    explained = run("explain", *pair, "--json")
    summary, step = json.loads(shown.stdout)["summary"], json.loads(explained.stdout)["step"]
    assert summary[0].startswith(f"A step is {step['verdict']}: ")
    assert 'id="clock"' in page.read_text(encoding="utf-8")


def test_a_kernel_with_counters_is_profiled_for_those_that_are_missing():
    (bare,), (some,) = (
        longest_kernels(launches(**more)) for more in ({}, {"achieved_occupancy": 0.5})
    )
    assert bare.hazard == some.hazard == "Profile k"
    assert bare.mitigation != some.mitigation
