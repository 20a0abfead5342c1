"""Traces of old versions, of graphs and of other makers' GPUs; logs as people post them."""

import json

import pytest

from perfml.readers import read
from tests.support.command_line import run
from tests.support.torch_trace import Trace


def written(trace, folder, name="trace.json"):
    path = folder / name
    path.write_bytes(trace.data())
    return path


def two_operators(kinds):
    trace = Trace()
    annotation, operator, call, kernel = kinds
    for step in (0, 1):
        base = 1000.0 * step
        trace.event(annotation, f"ProfilerStep#{step}", base, 900)
        for place, (name, us) in enumerate((("aten::conv2d", 200.0), ("aten::relu", 50.0))):
            start = base + 10 + 300 * place
            trace.event(operator, name, start, 50)
            trace.launch(f"{name[6:]}(float*)", start + 10, start + 30, us)
            trace.events[-1]["cat"], trace.events[-2]["cat"] = call, kernel
    return trace


def test_categories_of_pytorch_1_8_read_like_todays(tmp_path):
    old = two_operators(("Operator", "Operator", "Runtime", "Kernel"))
    new = two_operators(("user_annotation", "cpu_op", "cuda_runtime", "kernel"))
    frames = [read(written(trace, tmp_path)).frame for trace in (old, new)]
    assert frames[0].equals(frames[1])
    assert frames[0]["layer"].tolist() == ["aten::conv2d", "aten::relu"] * 2
    assert frames[0]["iteration"].tolist() == [0, 0, 1, 1]


def test_a_range_among_old_operators_is_a_range(tmp_path):
    trace = Trace()
    trace.event("Operator", "forward", 0, 400)
    trace.event("Operator", "aten::conv2d", 10, 100)
    trace.event("Operator", "detach", 20, 10)  # lies in an operator
    trace.launch("conv()", 30, 100, 50.0)
    assert read(written(trace, tmp_path)).frame["layer"].tolist() == ["forward"]


@pytest.fixture
def replay(tmp_path):
    """One range around one graph without grids: attention 10 x 300 us, norm 90 x 10 us."""
    trace = Trace()
    trace.event("user_annotation", "decode_step", 900, 200)
    trace.event("cuda_runtime", "cudaGraphLaunch", 950, 20, args={"correlation": 7})
    start = 1000.0
    for place in range(100):
        name, us = ("attention(half*)", 300.0) if place % 10 == 0 else ("norm(half*)", 10.0)
        trace.launch(name, None, start, us, correlation=7, grid=[0, 0, 0])
        start += us + 1
    return written(trace, tmp_path)


@pytest.mark.parametrize("verb", ["inspect", "advise"])
def test_the_kernels_of_a_replayed_graph_are_named_with_their_share(replay, verb):
    shown = run(verb, str(replay)).output
    lines = [line.split() for line in shown.splitlines() if line.startswith("attention")]
    assert lines[0] == ["attention", "10", "3,000", "77", "%"]


def test_a_report_of_a_replayed_graph_names_its_kernel(replay, tmp_path):
    ended = run("report", str(replay), "--out", str(tmp_path / "r.md"), "--json")
    first, *others = json.loads(ended.stdout)["summary"]
    assert first.startswith("Profile attention: 3,000 µs in 10 launches")
    assert any("computing 3,900 µs" in each for each in others)


def test_a_replayed_kernel_whose_grid_is_unknown_is_not_to_start_more_blocks(replay):
    found = json.loads(run("advise", str(replay), "--json").stdout)["answer"]
    shown = [(each["rules"], each["where"]["layers"], each["holds"]["us"]) for each in found]
    assert shown == [(["not_known"], ["attention"], 3000.0), (["not_known"], ["norm"], 900.0)]
    assert not any("blocks" in each["hazard"] + each["mitigation"] for each in found)


@pytest.mark.parametrize("listed", [0, 2])
def test_a_gpu_of_amd_keeps_its_name_and_is_asked_for_no_counters_of_ncu(tmp_path, listed):
    device = {"id": listed, "name": "AMD Instinct MI210", "computeMajor": 9, "computeMinor": 0}
    trace = Trace(deviceProperties=[{**device, "warpSize": 64}])
    trace.event("user_annotation", "fc", 900, 3000)
    for place in range(10):
        start = 1000 + 110.0 * place
        trace.launch("Cijk_Ailk_Bljk", start - 5, start, 100.0, device=2)
    path = written(trace, tmp_path)
    frame = read(path).frame
    assert frame["device"].unique().tolist() == ["AMD Instinct MI210"]
    assert frame["compute_capability"].isna().all()
    said = [run(verb, str(path), *more).output for verb, more in (
        ("advise", ()),
        ("report", ("--out", str(tmp_path / "r.md"))),
    )]  # fmt: skip
    page = (tmp_path / "r.md").read_text(encoding="utf-8")
    assert not any("ncu --metrics" in text for text in (*said, page))


def test_files_of_rocprofv3_and_of_an_mtia_are_asked_for_no_counters_of_ncu(tmp_path):
    counted = tmp_path / "1_counter_collection.csv"
    counted.write_text(
        "Dispatch_Id,Agent_Id,Grid_Size,Kernel_Name,Counter_Name,Counter_Value,Start_Timestamp,"
        "End_Timestamp\n1,4,1024,add,SQ_WAVES,16.0,100,90000\n"
    )
    trace = Trace(deviceProperties=[])
    trace.event("mtia_ccp_events", "fba_gemm", 10, 90, pid=2, tid=3, args={"device": 2})
    for path in (counted, written(trace, tmp_path, "mtia.json")):
        page = tmp_path / "r.md"
        assert run("report", str(path), "--out", str(page)).exit_code == 0
        assert "ncu --" not in page.read_text(encoding="utf-8")


def test_a_posted_summary_of_nvprof_without_its_header_is_read(tmp_path):
    path = tmp_path / "posted.txt"
    path.write_text(
        " GPU activities:   60.00%  6.00000s     30000  200.00us  3.4240us  433.22us  gather_rows\n"
        "                   30.00%  3.00000s     30000  100.00us  4.4480us  157.47us  scale\n"
        "                   10.00%  1.00000s     10000  100.00us  16.000us  143.23us  "
        "[CUDA memcpy DtoH]\n",
        encoding="utf-8",
    )
    frame = read(path).frame
    assert frame["kernel"].tolist() == ["gather_rows", "scale"]
    assert (frame["time_us"] * frame["launches"]).sum() == pytest.approx(9e6)
