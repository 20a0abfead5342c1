"""One account of time: all verbs say the same total, and what is counted by hand or sqlite3."""

from __future__ import annotations

import json
import re

import pytest

import perfml
from perfml.gate.policy import ExitCode
from tests.support.command_line import run
from tests.support.counted import counted
from tests.support.nsys_export import Export
from tests.support.others_files import REFUSED, others_files
from tests.support.paths import DATA
from tests.support.torch_trace import Trace

pytestmark = pytest.mark.long
SECONDS = {"s": 1e6, "ms": 1e3, "µs": 1.0}


def document(*words):
    result = run(*words, "--json", "-q")
    assert result.exit_code in (0, 1, 3), result.stderr
    return json.loads(result.stdout)


def takes_us(text):
    """Return the total that a report says behind what to do, microseconds."""
    time = r" ([0-9.,]+)\s(µs|ms|s)\b"
    # a summary adds up kernels and copies, and says the former behind it
    number, unit = (re.findall(f"takes{time}", text) or re.findall(f"computing{time}", text))[-1]
    return float(number.replace(",", "")) * SECONDS[unit]


def summary(path, tmp_path):
    return " ".join(document("report", path, "--out", tmp_path / "report.html")["summary"])


def trace_of(path, *kernels, ranges=(), gap_us=2.0, device=0):
    """Write a trace of (name, microseconds, launches), one launch after the other."""
    trace = Trace()
    for name, start, length in ranges:
        trace.event("user_annotation", name, start, length)
    start = 1000.0
    for name, time_us, launches in kernels:
        for _ in range(launches):
            trace.launch(name, start - 5, start, time_us, device=device)
            start += time_us + gap_us
    path.write_bytes(trace.data())
    return path


@pytest.fixture
def many(tmp_path):
    """A kernel of 100 us once, and one of 10 us a hundred times: 1,100 us."""
    return trace_of(tmp_path / "many.json", ("long(float*)", 100, 1), ("short(float*)", 10, 100))


@pytest.fixture
def half(tmp_path):
    """The same with fifty launches of the short kernel: 600 us."""
    return trace_of(tmp_path / "half.json", ("long(float*)", 100, 1), ("short(float*)", 10, 50))


def test_a_profile_without_ranges_takes_the_time_of_all_its_launches(many, tmp_path):
    said = summary(many, tmp_path)
    # 101 launches, 2 us apart, of which the first was asked for 5 us before it began
    assert takes_us(said) == 1305
    assert "computing 1,100" in said
    assert "short, takes 91" in said
    assert document("inspect", many)["runs"][0]["us_per_iteration"] == 1100
    # of one recording people read one time, the clock's
    assert "µs an" not in run("inspect", many).stdout
    first = document("advise", many)["kernels"][0]
    assert (first["kernel"], first["launches"]) == ("short", 100)
    assert first["share"] == pytest.approx(1000 / 1100)


def test_a_kernel_that_is_launched_half_as_often_takes_half_as_long(many, half):
    found = document("explain", many, half, "--model", "none")
    assert found["total"]["verdict"] == "faster"
    assert found["total"]["ratio"] == pytest.approx(600 / 1100)
    short = next(each for each in found["details"] if each["layer"] == "short")
    assert short["time"]["ratio"] == pytest.approx(0.5)
    first = short["causes"]["terms"][0]
    assert (first["term"], first["factor"]) == ("launch_count", pytest.approx(0.5))
    # What repeats is one short kernel: each 12 us after the one before, the first 15 us after its
    # launch. To repeat it half as often is no difference of a repeat.
    step = found["step"]
    assert step["baseline_us"] == pytest.approx((15 + 99 * 12) / 100)
    assert step["target_us"] == pytest.approx((15 + 49 * 12) / 50)
    assert step["verdict"] == "no difference"
    assert step["difference_us"] == pytest.approx(0.03)
    assert sum(each["us"] for each in step["changes"]) == pytest.approx(0.03)
    assert "gaps" not in found, "idle time is told once"
    gate = document("gate", half, many)
    assert gate["verdict"] == "worse"
    assert gate["layers"][0]["time"]["ratio"] == pytest.approx(1100 / 600)


def both_devices(path):
    """An export of two devices, each busy 10 times 100 of 110 us with one range at one time."""
    export = Export(path)
    export.range("fc", 0, 4_000_000)
    for device in (0, 1):
        for place in range(10):
            start = 1_000_000 + 110_000 * place
            number = 1 + 10 * device + place
            export.launch(
                "gemm(float*)", start - 500, start, start + 100_000,
                correlation=number, device=device,
            )  # fmt: skip
    return export.close()


def test_devices_are_told_one_by_one_and_never_added_up(tmp_path):
    two = both_devices(tmp_path / "two.sqlite")
    found = document("inspect", two)
    assert found["runs"][0]["us_per_iteration"] == 1000
    devices = {each["device"]: each for each in found["clock"]}
    assert set(devices) == {0, 1}
    for each in devices.values():
        assert (each["wall_us"], each["computing_us"], each["idle_us"]) == (1090, 1000, 90)
    # one clock for both, which begins with the first launch, 0.5 us before its kernel
    said = summary(two, tmp_path)
    assert "takes 1,090 µs on the clock" in re.sub(r"\s", " ", said)
    for device in (0, 1):
        assert f"Device {device} is computing 1,000 µs, idle 90.5 µs" in re.sub(r"\s", " ", said)
    found = document("explain", two, two, "--model", "none")
    assert found["layers"][0]["baseline_us"] == pytest.approx(1000)
    # what repeats is a kernel on each, every 110 us
    assert found["step"]["baseline_us"] == pytest.approx(110)
    assert found["step"]["verdict"] == "no difference"


def test_graphs_traced_as_a_whole_take_their_time(tmp_path):
    export = Export(tmp_path / "graphs.sqlite")
    export.connection.execute(
        "CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE(start INTEGER, end INTEGER, "
        "deviceId INTEGER, graphId INTEGER, streamId INTEGER, correlationId INTEGER)"
    )
    export.launch("prepare(float*)", 900_000, 1_000_000, 1_100_000, correlation=1)
    for place in range(10):
        start = 1_200_000 + 5_100_000 * place
        cells = {"start": start, "end": start + 5_000_000, "deviceId": 0, "graphId": 3}
        export.insert("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", **cells, streamId=7)
    path = export.close()
    # from the launch at 0.9 ms to the end of the last graph at 1.2 + 9 * 5.1 + 5 ms
    said = summary(path, tmp_path)
    assert takes_us(said) == 51_200
    assert "computing 50.1 ms, idle 1,100 µs" in re.sub(r"\s", " ", said)
    found = document("inspect", path)
    assert found["runs"][0]["us_per_iteration"] == 50_100
    assert "99.8% of the kernels' time" in re.sub(r"\s%", "%", run("inspect", path).stderr)
    assert document("advise", path)["kernels"][0]["kernel"] == "CUDA_graph_3"
    found = document("explain", path, path, "--model", "none")
    assert found["total"]["baseline_us"] == pytest.approx(50_100)


def slowed_down(path, idle_us, bare_us):
    """A trace of four steps whose host a profiler slows down, and the steps without it beside."""
    trace, length = Trace(), 1_000.0 + idle_us
    for step in range(4):
        base = length * step
        trace.event("user_annotation", f"ProfilerStep#{step}", base, length - 10)
        trace.event("cpu_op", "aten::mm", base, length - 20)
        trace.launch("gemm(float*)", base + idle_us, base + idle_us + 10, 900.0)
    path.write_bytes(trace.data())
    beside = path.with_name(path.name + ".step.json")
    beside.write_text(json.dumps({"step_us": [bare_us, bare_us + 8, bare_us + 4, bare_us - 3]}))
    return path


@pytest.mark.parametrize("bare_us", [1_100.0, 2_500.0])
def test_no_surface_saves_more_of_a_step_than_it_takes_without_a_profiler(tmp_path, bare_us):
    """A tool of the server for agents answers with the document of its verb."""
    one = slowed_down(tmp_path / "one.json", 400.0, bare_us / 2)
    other = slowed_down(tmp_path / "other.json", 9_000.0, bare_us)
    most = bare_us + 8
    steps = [each for each in document("advise", other)["answer"] if each["holds"]["of"] == "step"]
    assert steps
    for each in steps:
        assert each["holds"]["us"] <= most
        assert each["gain"] is None or each["gain"]["high"]["us"] <= most
    step = document("explain", one, other, "--model", "none")["step"]
    assert (step["verdict"], step["target_us"] <= most) == ("slower", True)
    assert step["difference_us"] <= step["target_us"]
    assert all(abs(each["us"]) <= most for each in step["changes"])
    times = [each["slow"] for each in step["numbers"] if each["unit"] == "us"]
    assert all(time <= most for time in times)
    shown = perfml.explain(str(one), str(other), model=None)._repr_html_()
    said = re.findall(r"([0-9][0-9.,]*)\s(µs|ms|s)\b", shown)
    assert said
    assert all(float(n.replace(",", "")) * SECONDS[unit] <= most for n, unit in said)


NCU = (
    '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size",'
    '"Grid Size","Device","CC","Section Name","Metric Name","Metric Unit","Metric Value"\n'
    '"0","1","app","127.0.0.1","product(float *)","1","7","(128, 1, 1)","(148, 1, 1)","0","9.0",'
    '"Command line profiler metrics","gpu__time_duration.sum","us","{time}"\n'
)


def test_a_report_of_counters_does_not_compare_with_a_trace(tmp_path):
    counters = tmp_path / "counters.csv"
    counters.write_text(NCU.format(time="11.15"))
    export = Export(tmp_path / "trace.sqlite")
    for place in range(2):
        start = 10_000 + 200_000 * place
        export.launch("product(float *)", start - 500, start, start + 7_000)
    trace = export.close()
    found = document("explain", trace, counters, "--model", "none")
    assert found["total"]["verdict"] == "undecided"
    assert found["total"]["interval"] is None
    assert found["details"][0]["fix"] is None
    said = run("explain", trace, counters, "--model", "none").stdout
    assert "believe trace for the time of the program" in " ".join(said.split())
    gate = run("gate", trace, counters)
    assert gate.exit_code in (ExitCode.CANNOT_TELL, ExitCode.NOT_COMPARABLE)


def test_streams_that_overlap_are_faster_by_the_time_the_device_was_busy():
    words = ("--baseline", "unroll", "--target", "streams", "--layer", "conv2_b1000")
    found = document("explain", "h200-conv", *words, "--model", "none")["details"][0]
    assert found["time"]["verdict"] == "faster"
    assert found["time"]["ratio"] == pytest.approx(1542.5 / 1618.2, abs=0.002)
    assert "side_by_side" in {each["term"] for each in found["causes"]["terms"]}


def test_gate_does_not_fail_streams_that_made_a_layer_faster(root):
    runs = [
        next((root / "studies/data/h200-conv/runs").glob(f"conv-{name}-fp32-*"))
        for name in ("unroll", "streams")
    ]
    gate = document("gate", *runs, "--where", "layer=conv2_b1000")
    assert (gate["exit_code"], gate["verdict"]) == (0, "better")


PROFILES = {
    **others_files(),
    **{
        f"tests/{path.name}": path
        for path in sorted((DATA / "torch_trace").rglob("*.json.gz"))
    },
}  # fmt: skip
READ = [name for name in PROFILES if name.rsplit("/", 1)[-1] not in REFUSED]


@pytest.mark.slow
@pytest.mark.parametrize("name", READ)
def test_totals_shares_and_idle_times_are_those_that_json_and_sqlite3_count(name, tmp_path):
    path = PROFILES[name]
    found = document("inspect", path)
    ran = found["runs"]
    total = [each["us_per_iteration"] for each in ran]
    devices = counted(path)
    if devices is not None:
        longest = max(each.kernels_us for each in devices.values())
        assert sum(each["us_per_iteration"] * each["iterations"] for each in ran) == (
            pytest.approx(longest, rel=1e-5, abs=0.01 * ran[0]["iterations"])
        )
        # of a single launch there is nothing to tell
        if found["clock"]:
            _clock_agrees(found["clock"], devices, whole=ran[0]["iterations"] == 1)
    advice = document("advise", path)
    if advice["kernels"] and len(ran) == 1 and ran[0]["layers"] == 0:
        # no ranges: every verb adds up all launches
        sums = sum(each["launches"] * each["time_us"] for each in advice["kernels"])
        assert sums / ran[0]["iterations"] == pytest.approx(total[0], rel=1e-3, abs=0.01)
        assert sum(each["share"] for each in advice["kernels"]) == pytest.approx(1.0)
        # what people read is the clock's where there is one
        walls = [each["wall_us"] for each in found["clock"]]
        assert takes_us(summary(path, tmp_path)) == pytest.approx(
            max(walls, default=total[0]), rel=0.006
        )
        if devices is not None:
            (device,) = devices.values()
            first = max(device.by_kernel.values()) / device.kernels_us
            assert advice["kernels"][0]["share"] == pytest.approx(first, rel=1e-5)
    same = document("explain", path, path, "--model", "none")
    assert same["total"]["ratio"] == pytest.approx(1.0)
    if same["step"] is not None:
        assert same["step"]["difference_us"] == 0
        assert all(each["us"] == 0 for each in same["step"]["changes"])
    gate = document("gate", path, path)
    assert gate["verdict"] in ("same", "cannot tell")
    assert all(each["time"] is None or each["time"]["ratio"] == 1 for each in gate["layers"])


def _clock_agrees(clock, devices, *, whole):
    for each in clock:
        mine = devices[each["device"]]
        computing = each["computing_us"] + each["both_us"]
        parts = computing + each["copying_us"] + each["idle_us"]
        assert each["wall_us"] == pytest.approx(parts)
        assert computing <= each["kernels_us"] * (1 + 1e-9)
        if whole:
            near = {"rel": 1e-5, "abs": 0.01}
            assert each["launches"] == len(mine.kernels)
            assert each["kernels_us"] == pytest.approx(mine.kernels_us, **near)
            assert computing == pytest.approx(mine.computing_us, **near)
            assert each["wall_us"] == pytest.approx(mine.wall_us, **near)
            assert each["idle_us"] == pytest.approx(mine.idle_us, **near)


def test_where_no_layer_answers_gate_and_explain_say_the_clock_and_name_it(tmp_path):
    def recorded(name, layer, kernel, idle):
        export = Export(tmp_path / f"{name}.sqlite")
        export.range(layer, 0, 9_000_000)
        for place in range(4):
            start = 1_000_000 + (100_000 + idle) * place
            export.launch(f"{kernel}(float*)", start - 500, start, start + 100_000)
        return export.close()

    one = recorded("one", "first", "gemm", 60_000)
    other = recorded("other", "second", "product", 10_000)
    found, gate = document("explain", one, other, "--model", "none"), document("gate", one, other)
    assert found["headline"]["of"] == found["total"]["of"] == gate["time"]["of"] == "clock"
    assert gate["time"]["ratio"] == pytest.approx(found["headline"]["ratio"])
    assert found["headline"]["ratio"] == found["step"]["ratio"] < 0.8


def test_the_ratio_of_the_headline_is_the_clock_s_beside_that_of_the_kernels(tmp_path):
    def recorded(name, us):
        return trace_of(tmp_path / f"{name}.json", ("add(float*)", us, 1), gap_us=2.0)

    found = document("explain", recorded("one", 1000.0), recorded("other", 100.0))
    assert (found["headline"]["of"], found["total"]["of"]) == ("clock", "kernels")
    assert found["headline"]["ratio"] == pytest.approx(105 / 1005)
    assert found["total"]["ratio"] == pytest.approx(0.1)
