"""One clock for every recording with times: beside an independent count, whatever tool wrote it."""

from __future__ import annotations

import gzip
import importlib.util
import itertools
import json
import re

import numpy as np
import pytest

from perfml.account.account import Account
from perfml.account.build import account_without_host, kernels_of, moves_of
from perfml.account.causes import findings
from perfml.account.device_time import Spans, idle_before, recorded_times
from perfml.account.host import State
from perfml.account.ranks import account_in
from perfml.account.recording import move_kind
from perfml.account.steps import cut_steps
from perfml.account.words import step_sentence
from perfml.datasets import Selection, read_inputs
from perfml.explain.remedies import of_account, remedy_for
from perfml.ingest import ingest
from perfml.readers import read
from tests.support.nsys_export import Export
from tests.support.paths import ROOT

pytestmark = pytest.mark.long

SHARED = ROOT.parent / "shared"
CASES = SHARED / "cases"
RECORDED = [
    *sorted((CASES / "recordings_2026_11_28").glob("*.sqlite")),
    *sorted((CASES / "recordings_2026_11_28").glob("*.json")),
    *sorted((CASES / "several_devices_one_trace").glob("*.json")),
    *sorted((CASES / "several_devices_one_trace").glob("*.sqlite")),
    *sorted((ROOT / "tests/data/torch_trace").rglob("*.json.gz")),
    *sorted((ROOT / "tests/data/ranks").glob("*.json.gz")),
    *sorted((ROOT / "tests/data/servers").glob("*.json.gz")),
    SHARED / "data/public_profiles/pytorch_chrome_trace_rank0.json.gz",
]
NO_KERNELS = {"no_kernels_says_why.sqlite", "launches_without_kernels.json"}
WRONG_TIMES = {"overflow_same_stream.json"}
"""Recordings of which the audit finds that they cannot be right, and what counts as they say."""
PARTS = {
    "wall": "wall_us",
    "computing": "computing_us",
    "copying": "copying_us",
    "both": "both_us",
    "idle": "idle_us",
}


def account_of(path):
    return Account.from_dict(read(path).provenance["step"])


@pytest.fixture(scope="module")
def oracle():
    path = SHARED / "oracle" / "clock.py"
    if not path.is_file():
        pytest.skip("the independent count is not committed")
    spec = importlib.util.spec_from_file_location("oracle_clock", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


WHOLE = [path for path in RECORDED if path.is_file() and path.name not in WRONG_TIMES | NO_KERNELS]


@pytest.mark.parametrize("path", WHOLE, ids=lambda path: path.name)
def test_each_device_is_accounted_for_as_by_an_independent_count(oracle, path):
    own = {each.device: each.recorded for each in account_of(path).devices}
    spans = {}
    events = oracle.nsys if ".sqlite" in path.name else oracle.kineto
    for device, *span in events(str(path)):
        if span[1] > 0 and span[2] > span[1]:
            spans.setdefault(device, []).append(span)
    assert own.keys() == spans.keys()
    for device, times in own.items():
        counted = oracle.account(spans[device])
        for name, attribute in PARTS.items():
            assert getattr(times, attribute) == pytest.approx(counted[name], abs=1.0), name


def union_us(spans):
    """Count the nanoseconds that any of some spans covers, one by one."""
    return len({ns for start, end in spans for ns in range(start, end)}) / 1e3


def test_kernels_and_copies_of_a_collected_program_add_up(tmp_path):
    rows = ["iteration,layer,kernel,time_us,grid,block,start_us,bytes"]
    kernels = [(0.0, 1.5), (2.0, 0.5), (6.0, 1.0), (6.5, 2.0)]
    copies = [(1.0, 0.8, "Memcpy HtoD (Pageable -> Device)"), (10.0, 0.4, "Memset (Device)")]
    rows += [f"0,a,gemm,{time},,,{start}," for start, time in kernels]
    rows += [f"0,a,{name},{time},,,{start},64" for start, time, name in copies]
    path = tmp_path / "x_timing.csv"
    path.write_text("\n".join(rows) + "\n")
    account = account_of(path)
    own = account.devices[0].recorded
    spans = [
        [(round(1e3 * start), round(1e3 * (start + time))) for start, time, *_ in each]
        for each in (kernels, copies)
    ]
    busy = union_us(spans[0] + spans[1])
    assert own.wall_us == pytest.approx(10.4)
    assert own.idle_us == pytest.approx(10.4 - busy)
    assert own.both_us == pytest.approx(union_us(spans[0]) + union_us(spans[1]) - busy)
    assert own.copying_us == pytest.approx(busy - union_us(spans[0]))
    assert not account.host
    assert [idle.state for idle in account.devices[0].idle] == [State.UNRECORDED]
    assert {each.kind for each in account.devices[0].copies} == {"to_device", "filled"}


def test_iterations_of_a_collected_program_are_steps(tmp_path):
    rows = ["iteration,layer,kernel,time_us,grid,block,start_us"]
    rows += [f"{n},a,gemm,10,,,{100 * n + 30 * k}" for n in range(4) for k in range(2)]
    path = tmp_path / "x_timing.csv"
    path.write_text("\n".join(rows) + "\n")
    account = account_of(path)
    assert account.marked_by == "iteration"
    # from the end of one to the end of the next
    assert account.walls_us == (40.0, 100.0, 100.0, 100.0)
    # what passed before the first one was not recorded
    assert (account.cut, account.kept_us) == ((0,), (100.0, 100.0, 100.0))
    assert sum(account.walls_us) == account.devices[0].recorded.wall_us


def test_dispatches_of_rocprof_have_a_clock(tmp_path):
    head = "Kind,Agent_Id,Queue_Id,Kernel_Name,Start_Timestamp,End_Timestamp," + ",".join(
        f"{what}_Size_{axis}" for what in ("Workgroup", "Grid") for axis in "XYZ"
    )
    spans = {4: [(100, 600), (500, 900), (5_000, 5_500)], 5: [(0, 250)]}
    rows = [
        f"KERNEL_DISPATCH,Agent {agent},1,axpy,{start},{end},64,1,1,64,1,1"
        for agent, own in spans.items()
        for start, end in own
    ]
    path = tmp_path / "kernel_trace.csv"
    path.write_text("\n".join([head, *rows]) + "\n")
    account = account_of(path)
    for device in account.devices:
        own = spans[device.device]
        assert device.recorded.computing_us == pytest.approx(union_us(own))
        wall = (max(end for _, end in own) - min(start for start, _ in own)) / 1e3
        assert device.recorded.wall_us == pytest.approx(wall)
    assert not account.host


def test_a_trace_of_jax_has_a_clock(recorded):
    path = recorded / "deployed" / "jax.trace.json.gz"
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    spans = [
        (float(each["ts"]), float(each["ts"]) + float(each["dur"]))
        for each in events
        if each.get("ph") == "X" and "hlo_op" in (each.get("args") or {})
    ]
    edges = np.unique(spans)
    busy = sum(
        end - start
        for start, end in itertools.pairwise(edges)
        if any(one <= start and end <= other for one, other in spans)
    )
    own = account_of(path).devices[0].recorded
    assert own.computing_us == pytest.approx(busy, abs=1.0)
    assert own.wall_us == pytest.approx(edges[-1] - edges[0], abs=1.0)


def test_one_recording_as_json_and_as_sqlite_is_one_account():
    folder = CASES / "several_devices_one_trace"
    if not folder.is_dir():
        pytest.skip("the cases are not committed")
    one, other = (account_of(folder / f"two.{form}") for form in ("json", "sqlite"))
    for mine, theirs in zip(one.devices, other.devices, strict=True):
        assert mine.recorded == theirs.recorded
        assert mine.parts == theirs.parts
    assert step_sentence(one) == step_sentence(other)


def test_processes_of_one_export_have_one_clock(tmp_path):
    export = Export(tmp_path / "a.sqlite")
    for pid in (1, 2):
        # ids of calls count within a process
        export.launch("gemm", 1_000, 10_000 * pid, 10_000 * pid + 5_000, pid=pid, correlation=1)
    found = Account.from_dict(export.read().provenance["step"])
    assert found.devices[0].recorded.wall_us == pytest.approx(15.0)
    assert found.devices[0].recorded.computing_us == pytest.approx(10.0)


def test_what_is_idle_directly_before_a_copy_is_idle_and_no_copy():
    # kernel 0 to 10; copy 90 to 92; kernel 93 to 100
    kernels, copies = (
        Spans.of([(0, 0, 10_000), (0, 93_000, 100_000)]),
        Spans.of([(0, 90_000, 92_000)]),
    )
    assert idle_before(kernels, copies)[1] == pytest.approx(81.0)
    times = recorded_times(kernels, copies)[0]
    assert (times.idle_us, times.copying_us, times.wall_us) == pytest.approx((81.0, 2.0, 100.0))


def test_copies_before_the_first_kernel_and_after_the_last_one_count():
    times = recorded_times(
        Spans.of([(0, 50_000, 60_000)]), Spans.of([(0, 0, 40_000), (0, 61_000, 99_000)])
    )
    assert (times[0].wall_us, times[0].copying_us) == pytest.approx((99.0, 78.0))


@pytest.mark.parametrize(
    ("launched", "cut"),
    [
        (["abc", "abc", "abc", "ab"], {3}),
        (["c", "abc", "abc"], {0}),
        (["abc", "abc", "abc"], set()),
        # every third step has more to do
        (["ab", "abc", "ab", "abc", "ab"], set()),
        (["abc", "ab"], set()),
        (["xabc", "abc", "abc"], set()),
        (["", "abc", "abc", ""], {0, 3}),
        (["", "abc", "", "abc"], {0}),
    ],
)
def test_a_step_is_cut_if_it_has_a_part_of_what_the_others_have(launched, cut):
    assert cut_steps(launched) == cut


def test_verbs_are_given_the_clock_of_what_they_read():
    path = CASES / "recordings_2026_11_28" / "frames_10.sqlite"
    if not path.is_file():
        pytest.skip("the cases are not committed")
    given = read_inputs(Selection((str(path),))).first
    assert given.account.devices[0].recorded.wall_us > 300_000


COLUMNS = (
    *("Start", "Duration", "Grid X", "Grid Y", "Grid Z", "Block X", "Block Y", "Block Z", "Size"),
    *("SrcMemType", "DstMemType", "Device", "Context", "Stream", "Name"),
)
TRACE = f"""==1== NVPROF is profiling process 1, command: ./net
==1== Profiling result:
{",".join(f'"{name}"' for name in COLUMNS)}
ms,us,,,,,,,MB,,,,,,
0.000000,400.0,,,,,,,1.0,"Pageable","Device","Tesla T4 (0)","1","7","[CUDA memcpy HtoD]"
0.500000,100.0,64,2,1,256,1,1,,,,"Tesla T4 (0)","1","7","gemm"
1.000000,300.0,128,1,1,32,4,1,,,,"Tesla T4 (0)","1","7","axpy"
1.200000,200.0,,,,,,,1.0,"Device","Pinned","Tesla T4 (0)","1","8","[CUDA memcpy DtoH]"
"""


def test_a_trace_of_nvprof_has_a_clock_with_its_copies(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text(TRACE)
    account = account_of(path)
    own = account.devices[0].recorded
    told = (own.wall_us, own.computing_us, own.copying_us, own.both_us, own.idle_us)
    assert told == pytest.approx((1400, 300, 500, 100, 500))
    copies = {(each.kind, each.pageable, each.bytes) for each in account.devices[0].copies}
    assert copies == {("to_device", True, 2**20), ("to_host", False, 2**20)}
    assert findings(account)[0].cause.id == "pageable_copies"


def test_rounded_starts_of_a_printed_trace_lose_no_time_of_kernels(tmp_path):
    # five digits of a second: ten kernels of 15 us one after another begin at two printed times
    head = "   Start  Duration  Grid Size  Block Size  Regs*  Device  Context  Stream  Name"
    rows = [
        f"1.0000{n // 7}s  15.000us  (64 1 1)  (256 1 1)  14  Tesla T4 (0)  1  7  gemm [{n}]"
        for n in range(10)
    ]
    path = tmp_path / "trace.txt"
    path.write_text(
        "\n".join([TRACE.splitlines()[0], head, *rows, "", "Regs: Number of registers", ""])
    )
    assert account_of(path).devices[0].recorded.computing_us == pytest.approx(150.0)


def test_records_that_a_profiler_dropped_make_idle_time_unknown(tmp_path):
    path = tmp_path / "trace.csv"
    path.write_text(f"==1== Warning: 3 records have invalid timestamps\n{TRACE}")
    assert "idle" in account_of(path).unknown
    for text, lost in (("Not all NVTX events", False), ("4 CUDA events were dropped", True)):
        export = Export(tmp_path / f"{lost}.sqlite", "2026")
        export.launch("gemm", 1_000, 10_000, 15_000)
        export.insert("DIAGNOSTIC_EVENT", timestamp=0, severity=2, text=text)
        unknown = Account.from_dict(export.read().provenance["step"]).unknown
        assert ("idle" in unknown) == lost


def test_launches_without_kernels_in_an_export_make_idle_time_unknown(tmp_path):
    export = Export(tmp_path / "a.sqlite")
    for n in range(4):
        base = 100_000 * n
        export.launch("gemm", base + 1_000, base + 10_000, base + 15_000)
        export.call("cudaLaunchKernel_v7000", base + 20_000, base + 25_000, 900 + n)
    read = export.read()
    assert [each["id"] for each in read.provenance["audit"]["facts"]] == [
        "launches_without_kernels"
    ]
    assert "idle" in Account.from_dict(read.provenance["step"]).unknown


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("Memcpy HtoD (Pageable -> Device)", "to_device"),
        ("[CUDA memcpy Device-to-Host]", "to_host"),
        ("MEMORY_COPY_HOST_TO_DEVICE", "to_device"),
        ("CopyDeviceToHost", "to_host"),
        ("MemcpyH2D", "to_device"),
        ("Memcpy DtoD (Device -> Device)", "copied"),
        ("[Unified Memory Memcpy HtoD]", "managed"),
        ("[CUDA memset]", "filled"),
    ],
)
def test_copies_are_told_apart_by_every_name_that_profilers_give_them(name, kind):
    assert move_kind(name) == kind


def _found(export):
    account = Account.from_dict(export.read().provenance["step"])
    return account, {each.cause.id: each for each in findings(account)}


@pytest.mark.parametrize(("threads", "part"), [(1, 1 / 128), (256, 1.0)])
def test_a_long_kernel_of_one_block_saves_at_most_what_lanes_without_a_thread_leave(
    tmp_path, threads, part
):
    export = Export(tmp_path / "a.sqlite", "2020")  # a T4 of 40 multiprocessors
    export.launch("add", 1_000, 10_000, 9_010_000)
    query = "UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET gridX = 1, gridY = 1, blockX = ?"
    export.connection.execute(query, (threads,))
    export.copy(1_000_000, 4_000_000, copyKind=11)
    _, found = _found(export)
    few = found["few_blocks"]
    assert few.amount.computing_us == pytest.approx(6_000.0)
    assert few.most_us == pytest.approx(6_000.0 * (1 - part / 40))
    assert few.saved_us == pytest.approx(6_000.0 * (1 - (part / 40) ** 0.5))
    assert found["managed_memory"].amount.copying_us == pytest.approx(3_000.0)


@pytest.mark.parametrize("side_by_side", [False, True])
def test_kernels_that_fill_the_device_together_do_not_start_too_few_blocks(tmp_path, side_by_side):
    export = Export(tmp_path / "a.sqlite", "2020")  # 8 blocks of 256 threads: a fifth of a T4
    for n in range(5):
        begin = 10_000 if side_by_side else 10_000 + 100_000 * n
        export.launch("k", 1_000 + n, begin, begin + 100_000, stream=n)
    _, found = _found(export)
    assert ("few_blocks" in found) is not side_by_side
    if not side_by_side:
        assert found["few_blocks"].most_us == pytest.approx(500.0 * 0.8)


def test_the_host_computes_until_it_touches_a_page_that_moves(tmp_path):
    export = Export(tmp_path / "a.sqlite")
    export.launch("add", 1_000, 10_000, 1_010_000)
    for n in range(9):
        at = 1_060_000 + 60_000 * n
        export.copy(at, at + 10_000, copyKind=11)
    account, found = _found(export)
    idle = {each.state: each.us for each in account.busiest.idle}
    assert idle.pop("host") == pytest.approx(450.0)
    assert sum(idle.values()) == pytest.approx(9.0)  # before the kernel
    assert "launch_bound" not in found  # of one launch there is no graph


@pytest.mark.parametrize("first_us", [103, 4])
def test_a_first_launch_that_loads_code_is_no_launch_that_a_graph_saves(tmp_path, first_us):
    export = Export(tmp_path / "a.sqlite")
    begin = 1_000
    for n in range(8):
        length = 1_000 * (first_us if n == 0 else 4)
        export.launch("k", begin, begin + length, begin + length + 3_000)
        export.connection.execute(
            "UPDATE CUPTI_ACTIVITY_KIND_RUNTIME SET end = ? WHERE start = ?",
            (begin + length, begin),
        )
        begin += length + 3_000
    account, found = _found(export)
    idle = {each.state: each.us for each in account.busiest.idle}
    assert idle.get("warming_up", 0.0) == pytest.approx(103.0 if first_us == 103 else 0.0)
    assert found["launch_bound"].amount.us == pytest.approx(28.0 + (first_us == 4) * 4)


@pytest.mark.parametrize("both", [0.0, 120.0])
def test_the_parts_in_words_add_up_to_the_step(both):
    kernels = Spans.of([(0, 0, 600_000)])
    copies = Spans.of([(0, round(600_000 - 1e3 * both), 700_000), (0, 998_000, 1_000_000)])
    step = recorded_times(kernels, copies)[0]
    account = account_without_host(
        [*kernels_of(["k"], kernels, [0]), *moves_of(["Memset"] * 2, copies)]
    )
    said = re.findall(r"(?:computing|copying|idle) ([\d.,]+) µs", step_sentence(account))
    assert sum(float(text.replace(",", "")) for text in said) == pytest.approx(
        step.wall_us, rel=2e-3
    )


@pytest.mark.parametrize("program", [["./a.out"], None])
def test_processes_of_a_collected_program_have_one_clock_and_a_built_in_workload_none(
    tmp_path, program
):
    manifest = {"run_id": "a", "workload": "a", "program": program}
    (tmp_path / "run.json").write_text(json.dumps(manifest))
    for name, period in (("timing", 100), ("timing_2", 120), ("timing_3", 300)):
        rows = ["iteration,layer,kernel,time_us,grid,block,start_us"]
        rows += [f"{n},a,gemm,10,,,{period * n + 30 * k}" for n in range(4) for k in range(2)]
        (tmp_path / f"{name}.csv").write_text("\n".join(rows) + "\n")
    account = account_in(ingest([tmp_path]).provenance)
    if program is None:
        assert account is None
    else:
        # every process is a repeat
        assert account.kept_us == (100.0,) * 3 + (120.0,) * 3 + (300.0,) * 3
        (device,) = account.devices
        assert device.step.wall_us == account.step_us == pytest.approx(520 / 3)
        assert sum(each.us for each in device.parts) == pytest.approx(device.step.computing_us)
        assert sum(each.us for each in device.idle) == pytest.approx(device.step.idle_us)
        assert device.launches == 2.0


@pytest.mark.parametrize(("kernel_ns", "once"), [(1_000, True), (900_000, False)])
def test_copies_longer_than_the_kernels_are_not_to_be_hidden_behind_them(kernel_ns, once):
    ran, copied = Spans.of([(0, 0, kernel_ns)]), Spans.of([(0, kernel_ns, kernel_ns + 500_000)])
    done = [*kernels_of(["k"], ran, [0]), *moves_of(["Memcpy HtoD"], copied)]
    account = account_without_host(done)
    (copies,) = (each for each in findings(account) if each.cause.id == "copies_to_device")
    remedy = remedy_for(copies.cause.id, of_account(account))
    assert ("once" in remedy.line) is once
    assert ("too short" in remedy.say) is once
