"""Why a device was idle: the host is a reason where the recording shows that it was one."""

from __future__ import annotations

import pytest

from perfml import advise
from perfml.account.account import Account
from perfml.account.causes import findings
from perfml.account.steps import SERVED
from perfml.explain.advice.network import step_findings
from perfml.explain.remedies import of_account
from perfml.readers import read
from tests.support.torch_trace import Trace


@pytest.fixture
def account(tmp_path):
    def of(trace):
        path = tmp_path / "trace.json"
        path.write_bytes(trace.data())
        return Account.from_dict(read(path).provenance["step"])

    return of


def idle(found):
    """Return the idle time of a step by its reason, what is longer than a microsecond."""
    return {each.state: pytest.approx(each.us) for each in found.devices[0].idle if each.us > 1}


def decode(ends_at=2_400.0, thread=41):
    """A host that launches a graph, waits for the step before, and is recorded no further."""
    trace = Trace()
    trace.event("user_annotation", "forward", 0, ends_at)
    trace.event("cpu_op", "aten::add", 90, 30, tid=thread)
    trace.launch("prepare(int*)", 100, 8_400, 10.0)
    arguments = {"correlation": 77}
    trace.event("cuda_runtime", "hipGraphLaunch", 500, 600.0, args=arguments)
    trace.event("cuda_runtime", "hipMemcpyWithStream", 1_200, 1_000.0, args={"correlation": 78})
    for kernel in range(4):
        trace.launch("gemm(float*)", None, 8_420 + 100 * kernel, 90.0, correlation=77)
    return trace


def test_a_device_that_has_work_and_does_not_begin_it_waits_for_no_host(account):
    found = account(decode())
    assert idle(found)["unrecorded"] == 8_400 - 105
    assert not {"synchronising", "host"} & set(idle(found))
    # kernels of eight blocks leave most of the device empty, which is no matter of the host
    (launching,) = (each for each in findings(found) if not each.cause.fills)
    assert launching.cause.id == "launch_bound"
    assert launching.saved_us < 100


def test_a_call_that_blocks_over_most_of_the_time_is_why_the_host_launches_nothing(account):
    trace = decode(ends_at=9_000.0)
    for event in trace.events:
        if event["name"] == "hipMemcpyWithStream":
            event["dur"] = 7_000.0
    found = account(trace)
    assert idle(found)["blocked"] == 7_000.0
    assert not {"synchronising", "host"} & set(idle(found))
    # what the device does meanwhile is not recorded, so that nothing is promised
    (first,) = (each for each in step_findings(found) if each.rules == ("blocked",))
    assert first.gain is None


def test_a_device_that_pauses_later_waits_for_the_host_that_waits(account):
    """As where another program has its turn: what was launched before is in the recording."""
    trace = Trace()
    for step in range(4):
        base = 5_000.0 * step
        trace.launch("gemm(float*)", base + 10, base + 30, 100.0)
        trace.launch("sum(float*)", base + 40, base + 4_000, 100.0)
        trace.event("cuda_runtime", "cudaStreamSynchronize", base + 50, 4_060.0)
    found = idle(account(trace))
    assert "unrecorded" not in found
    assert found["synchronising"] == pytest.approx(4 * 3_870, rel=0.05)


def test_what_nobody_recorded_leads_where_little_else_is_known(tmp_path):
    path = tmp_path / "trace.json"
    path.write_bytes(decode().data())
    first = advise(path).findings[0]
    assert (first.rules, first.gain) == (("unrecorded",), None)


@pytest.mark.parametrize(("recorded", "state"), [(True, "host"), (False, "unrecorded")])
def test_a_host_computes_where_the_launch_after_it_is_recorded(account, recorded, state):
    trace = Trace()
    trace.event("user_annotation", "work", 0, 40_000)
    trace.launch("a(float*)", 10, 30, 100.0)
    trace.launch("b(float*)", 20_000 if recorded else None, 20_030, 100.0, correlation=500)
    trace.launch("c(float*)", 20_100, 20_140, 100.0)
    assert idle(account(trace))[state] == pytest.approx(20_000 - 130, abs=50)


def test_a_graph_that_is_captured_is_start_up(account):
    trace = Trace()
    trace.launch("fill(float*)", 10, 30, 5.0)
    trace.event("cuda_runtime", "hipStreamBeginCapture", 50, 5.0)
    for call in range(50):
        trace.event("cpu_op", "aten::mm", 60 + 100.0 * call, 90)
        trace.event("cuda_runtime", "hipLaunchKernel", 70 + 100.0 * call, 5.0)
    trace.event("cuda_runtime", "hipStreamEndCapture", 5_100, 20.0)
    trace.launch("fill(float*)", 5_200, 5_220, 5.0)
    found = account(trace)
    assert idle(found)["warming_up"] == 5_120 - 50
    assert "warm_up" not in {each.cause.id for each in findings(found)}


def test_what_a_program_calls_warm_up_is_start_up_and_no_step(account):
    trace = Trace()
    for step, name in enumerate([*["net|warmup|forward"] * 3, *["forward"] * 3]):
        base, long = (9_000.0 * step, 8_000) if step < 3 else (27_000 + 1_000.0 * step, 900)
        trace.event("user_annotation", name, base, long)
        trace.event("cuda_runtime", "cudaMalloc", base + 10, 0.9 * long)
        trace.launch("gemm(float*)", base + 0.95 * long, base + long, 100.0)
    found = account(trace)
    assert found.marked_by == "forward"
    assert len(found.walls_us) == 3
    whole = account(warming())
    assert set(idle(whole)) == {"warming_up"}


def warming():
    """One warm-up and one measurement: nothing repeats."""
    trace = Trace()
    trace.event("user_annotation", "net|warmup|forward", 0, 900_000)
    trace.launch("gemm(float*)", 10, 20, 10.0)
    trace.event("cpu_op", "aten::cudnn_convolution", 100, 800_000)
    trace.event("cuda_runtime", "cudaMalloc", 200, 400_000)
    trace.launch("gemm(float*)", 800_200, 800_210, 10.0)
    return trace


@pytest.mark.parametrize("call", ["cudaStreamCreate", "cublasCreate", "cudaFuncGetAttributes"])
def test_making_what_a_program_has_once_is_start_up(account, call):
    trace = Trace()
    trace.launch("gemm(float*)", 10, 20, 10.0)
    trace.event("cuda_runtime", call, 100, 700_000)
    trace.launch("gemm(float*)", 700_200, 700_210, 10.0)
    assert idle(account(trace))["warming_up"] == 700_000


SERVERS = (
    "execute_32_context_0(sq0sk0)_generation_32(sq32sk55086)",
    "execute_context_1(512)_generation_3(3)",
    "execute_new_1_cached_2",
    "step[DECODE bs=32]",
)


@pytest.mark.parametrize("name", SERVERS)
def test_the_batches_that_a_server_marks_are_its_steps_and_layers_in_them_none(account, name):
    trace = Trace()
    trace.event("user_annotation", name, 0, 10_000)
    for layer in range(24):
        trace.event("python_function", f"nn.Module: Attention_{layer}", 10 + 400.0 * layer, 390)
        trace.launch("gemm(float*)", 20 + 400.0 * layer, 60 + 400.0 * layer, 300.0)
    found = account(trace)
    assert (found.marked_by, len(found.walls_us)) == (SERVED, 1)
    assert found.devices[0].launches == 24


@pytest.mark.parametrize("name", ["forward", "decode", "generate", "execute", "step[1]"])
def test_no_program_without_a_servers_marks_is_offered_its_options(account, name):
    trace = Trace()
    for step in range(4):
        trace.event("user_annotation", name, 9_000.0 * step, 8_000)
        trace.launch("paged_attention(float*)", 9_000.0 * step + 10, 9_000.0 * step + 30, 50.0)
    assert not of_account(account(trace)).serves


def test_what_launches_anybodys_kernels_from_pytorch_on_amd_is_told_in_lines_of_pytorch(tmp_path):
    trace = Trace(deviceProperties=[{"id": 0, "name": "AMD Instinct MI300X", "warpSize": 64}])
    for step in range(3):
        trace.event("user_annotation", f"ProfilerStep#{step}", 10_000.0 * step, 9_900)
        for at in range(40):
            base = 10_000.0 * step + 200 * at
            trace.event("cpu_op", "aiter::norm", base, 180)
            for kernel in range(3):
                called = base + 20 + 30 * kernel
                trace.launch("ck_tile_norm(float*)", called, called + 20, 2.0)
    path = tmp_path / "trace.json"
    path.write_bytes(trace.data())
    found = [each for each in advise(path).findings if "launch_bound" in each.rules]
    assert any(each.where.layers for each in found)
    assert all("torch" in each.command for each in found)
