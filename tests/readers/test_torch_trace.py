"""The reader of Chrome traces that PyTorch's profiler exports."""

from __future__ import annotations

import gzip
import json

import msgspec
import numpy as np
import pandas as pd
import pytest

from perfml.account.account import Account
from perfml.account.audit import AUDIT, Audit, Fact
from perfml.errors import InputError
from perfml.readers import Source, read, recognise, torch_trace
from perfml.readers.torch_events import operands_of
from perfml.tables import metric_columns
from tests.support.paths import DATA
from tests.support.torch_trace import Trace, filled

RECORDED = DATA / "torch_trace" / "yolov4tiny_cublas_fp32_b1_h200.json.gz"


@pytest.fixture
def readable(tmp_path):
    def reads(trace):
        path = tmp_path / "trace.json"
        path.write_bytes(trace.data() if isinstance(trace, Trace) else trace)
        return read(path)

    return reads


def layers(kernels):
    return kernels.frame["layer"].fillna("-").tolist()


def test_a_recorded_trace_gives_the_layers_it_was_recorded_with():
    kernels = read(RECORDED)
    frame = kernels.frame
    assert len(frame) == 117
    assert frame["layer"].isna().sum() == 3
    assert frame["layer"].nunique() == 34
    assert frame["layer"].dropna().iloc[0] == "conv_01"
    assert frame["time_us"].sum() == pytest.approx(572.061)
    assert frame["time_source"].unique().tolist() == ["torch"]
    assert kernels.provenance["format"] == "torch-trace"
    assert kernels.provenance["streams"] == 1


@pytest.mark.parametrize("half", [rb"\ud83d", rb"\uDE00", b"\xed\xb2\x80"])
def test_half_a_surrogate_pair_in_a_name_is_one_unreadable_character(readable, half):
    whole = filled().data()
    name = b'"gemm(float*)"'
    assert name in whole
    # an escaped backslash before it is a character of its own
    cut = whole.replace(name, b'"ge\\\\ud83dmm' + half + b'"')
    names = readable(cut).frame["kernel"]
    assert names.tolist().count("ge\\ud83dmm\ufffd") == 2
    assert len(names) == 6


def test_modules_and_profiler_steps_become_layers_and_iterations(readable):
    kernels = readable(filled())
    frame = kernels.frame
    assert layers(kernels) == ["Net_0/Conv2d_0", "Net_0/Conv2d_0", "Net_0/ReLU_0"] * 2
    assert frame["iteration"].tolist() == [3, 3, 3, 4, 4, 4]
    assert frame["time_us"].tolist() == [2.5, 10.0, 1.5] * 2
    assert frame["grid"].iloc[0] == "(4, 2, 1)"
    assert frame["threads"].iloc[0] == 2048
    assert frame["device"].unique().tolist() == ["NVIDIA H200"]
    assert frame["compute_capability"].unique().tolist() == ["9.0"]


def test_pytorchs_estimate_of_occupancy_is_no_metric(readable):
    facts = {"registers_per_thread", "shared_memory_per_block", "threads"}
    assert set(metric_columns(readable(filled()).frame)) == facts


def test_without_annotations_the_outermost_operators_are_the_layers(readable):
    trace = Trace()
    trace.event("user_annotation", "ProfilerStep#0", 0, 500)
    trace.event("cpu_op", "aten::conv2d", 10, 100)
    trace.event("cpu_op", "aten::convolution", 12, 90)
    trace.launch("gemm()", 20, 1000, 5)
    trace.event("cpu_op", "aten::relu", 110, 50)
    trace.launch("relu()", 110, 1010, 5)  # where one operator ends and the next one begins
    kernels = readable(trace)
    assert layers(kernels) == ["aten::conv2d", "aten::relu"]
    assert any("with_modules=True" in text for text in kernels.warnings)


def test_a_launch_belongs_to_the_ranges_of_its_own_thread(readable):
    trace = Trace()
    trace.event("user_annotation", "forward", 0, 100)
    trace.event("user_annotation", "backward", 0, 100, tid="autograd")
    trace.launch("a()", 10, 1000, 5)
    trace.launch("b()", 20, 1010, 5, thread="autograd")
    trace.launch("c()", None, 50, 5)
    kernels = readable(trace)
    assert layers(kernels)[:2] == ["forward", "backward"]
    assert any("1 kernel has no API call" in text for text in kernels.warnings)


def test_gaps_count_copies_and_other_streams_as_work(readable):
    trace = Trace()
    trace.launch("a()", 1, 100, 50)
    trace.launch("b()", 2, 120, 80, stream=20)
    trace.event("gpu_memcpy", "Memcpy DtoH", 200, 10, pid=0, args={"device": 0, "stream": 7})
    trace.launch("c()", 3, 216, 4)
    kernels = readable(trace)
    np.testing.assert_allclose(kernels.frame["gap_us"], [np.nan, 0.0, 6.0])
    assert kernels.provenance["streams"] == 2


def test_a_trace_is_recognised_compressed_and_as_a_plain_list(tmp_path):
    trace = filled()
    packed = tmp_path / "profile.bin"
    packed.write_bytes(gzip.compress(trace.data()))
    assert recognise(Source(packed)) is torch_trace
    plain = tmp_path / "list.json"
    plain.write_bytes(json.dumps(trace.events).encode())
    assert read(plain).frame["time_us"].tolist() == read(packed).frame["time_us"].tolist()


def test_older_traces_have_capitals_and_numbers_as_text(readable):
    trace = filled()
    for event in trace.events:
        event["cat"] = {"kernel": "Kernel", "cuda_runtime": "Runtime"}.get(
            event["cat"], event["cat"]
        )
        if event["cat"] == "Kernel":
            event["args"] = {name: str(value) for name, value in event["args"].items()}
    assert readable(trace).frame["grid"].iloc[0] == "(4, 2, 1)"


def test_a_trace_of_the_host_alone_says_how_to_record_the_device(readable):
    trace = Trace()
    trace.event("cpu_op", "aten::add", 0, 5)
    with pytest.raises(InputError, match=r"no kernels .*1 of cpu_op(?s:.*)ProfilerActivity.CUDA"):
        readable(trace)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (b'"ts": ', b'"ts": "x" + ', "no whole JSON document"),
        (b'"dur": 2.5', b'"dur": NaN', "NaN where a number belongs"),
        (b'"dur": 2.5', b'"dur": -2.5', "no usable time"),
        (b'"dur": 2.5', b'"dur": 1e999', "out of range"),
        (b'"name": "im2col(float*)"', b'"name": ""', "no name"),
        (b'"traceEvents": [', b'"traceEvents": 5, "x": [', "no list of events"),
    ],
)
def test_damage_is_an_error_that_says_what_is_wrong(old, new, says, readable):
    data = filled().data()
    assert old in data
    with pytest.raises(InputError, match=says):
        readable(data.replace(old, new))


def test_lists_nested_beyond_reason_are_an_error(readable):
    data = b'{"traceEvents": [], "x": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    with pytest.raises(InputError, match="nested too deeply"):
        readable(data)


def test_events_with_counters_alone_are_named(readable):
    trace = Trace()
    trace.event("cuda_profiler_range", "gemm()", 0, 1, args={"smsp__inst_executed.sum": 3200.0})
    with pytest.raises(InputError, match=r"holds no kernels .*cuda_profiler_range"):
        readable(trace)


def test_events_are_the_same_however_long_the_parts_are_that_are_read(readable, monkeypatch):
    whole = readable(filled()).frame
    monkeypatch.setattr("perfml.readers.source._PART", 300)
    monkeypatch.setattr("perfml.readers.chrome_trace._TAIL", 200)
    pd.testing.assert_frame_equal(readable(filled()).frame, whole)


def test_an_mtia_trace_has_the_kernels_of_its_device(readable):
    trace = Trace(deviceProperties=[])
    trace.event("mtia_runtime", "runFunction - job_prep_and_submit", 1, 5, args={"correlation": 9})
    arguments = {"correlation": 9, "device": 2}
    trace.event("mtia_ccp_events", "fba_gemm", 10, 4, pid=2, tid=3, args=arguments)
    kernels = readable(trace)
    assert kernels.frame["kernel"].tolist() == ["fba_gemm"]
    assert kernels.frame["time_us"].tolist() == [4.0]
    assert kernels.provenance["device"] == "MTIA"


@pytest.mark.parametrize("name", ["event_wait", "EVENT_RECORD", "Notify_Wait", "stream sync"])
def test_entries_of_a_queue_that_wait_for_others_are_no_work_of_a_device(readable, name):
    trace = Trace(deviceProperties=[{"id": 2, "name": "ARTEMIS"}])
    arguments = {"device": 2, "size": 64, "direction": "DEVICE_TO_HOST"}
    for start, kind, long in ((0, "merge", 10), (10, name, 80), (90, "dma_request", 10)):
        trace.event("mtia_ccp_events", kind, start, long, pid=2, tid=start, args=arguments)
    trace.event("mtia_ccp_events", name, 0, 100, pid=2, tid=7, args=arguments)
    kernels = readable(trace)
    assert kernels.frame["kernel"].tolist() == ["merge"]
    assert kernels.frame["device"].tolist() == ["MTIA ARTEMIS"]
    (device,) = Account.from_dict(kernels.provenance["step"]).devices
    assert (device.recorded.computing_us, device.recorded.copying_us) == (10.0, 10.0)
    assert device.recorded.idle_us == 80.0
    assert (device.copies[0].kind, device.copies[0].bytes) == ("to_host", 64.0)


def test_a_chrome_trace_made_of_an_export_of_nsight_systems_has_names_and_times(readable):
    """As nsys2json writes it: a list, with names for processes and threads."""
    event = {"name": "gemm", "ph": "X", "cat": "cuda", "ts": 10.5, "dur": 4.0, "args": {}}
    events = [
        {**event, "tid": "Stream 7", "pid": "Device 1"},
        {**event, "tid": "Stream 9", "pid": "Device 1", "ts": 20.5, "name": "relu"},
        {**event, "cat": "nvtx", "tid": "NVTX Thread 3", "pid": "Device 1", "name": "step"},
        {**event, "tid": "API calls", "pid": 77, "name": "cuLaunchKernel"},
    ]
    kernels = readable(json.dumps(events).encode())
    assert kernels.frame["kernel"].tolist() == ["gemm", "relu"]
    assert kernels.frame["time_us"].tolist() == [4.0, 4.0]
    assert kernels.frame["stream"].tolist() == [7, 9]
    assert kernels.frame["device_id"].tolist() == [1, 1]
    assert any("the .sqlite file has sizes" in text for text in kernels.warnings)


def launches(kernels=3, timed=3):
    """Return a trace of three launches, of which some have a kernel, and some a kernel's time."""
    events = []
    for n in range(3):
        call = {"name": "cudaLaunchKernel", "cat": "cuda_runtime", "pid": 1, "tid": 1}
        events.append(
            {**call, "ph": "X", "ts": 100.0 * n + 10, "dur": 5, "args": {"correlation": n}}
        )
    for n in range(kernels):
        when = {"ts": 100.0 * n + 50, "dur": 20} if n < timed else {"ts": 0, "dur": 0}
        arguments = {"device": 0, "stream": 7, "correlation": n}
        events.append({"ph": "X", "cat": "kernel", "name": "gemm", **when, "args": arguments})
    return json.dumps({"traceEvents": events}).encode()


def test_kernels_without_times_are_left_out_and_a_fact_of_the_audit(readable):
    kernels = readable(launches(timed=2))
    assert kernels.frame["time_us"].tolist() == [20, 20]
    (fact,) = msgspec.convert(kernels.provenance[AUDIT], Audit).facts
    assert (fact.id, fact.count, fact.of) == ("kernels_without_times", 1, 3)


def test_launches_without_any_kernel_are_told_from_a_trace_of_the_processor(readable):
    with pytest.raises(InputError) as error:
        readable(launches(kernels=0))
    assert error.value.found == Fact("launches_without_kernels", 3, 3).words
    assert error.value.cure == Fact("launches_without_kernels").cure


def test_equal_texts_of_operands_are_decoded_once_and_readable_events_never_repaired(
    readable, monkeypatch
):
    trace = Trace()
    given = {"Input Dims": [[64, 32]], "Input type": ["float"], "Input Strides": [[32, 1]]}
    for at in range(50):
        trace.event("cpu_op", "aten::mul", at * 100, 50, args=given)
        trace.launch("mul()", at * 100 + 5, at * 100 + 60, 20, correlation=at)
    monkeypatch.setattr("perfml.readers.chrome_trace.paired", lambda text: 1 / 0)
    operands_of.cache_clear()
    step = Account.from_dict(readable(trace).provenance["step"])
    assert operands_of.cache_info().misses <= 2  # and launches have none
    assert sum(part.elements for part in step.busiest.parts) == pytest.approx(50 * 64 * 32)
