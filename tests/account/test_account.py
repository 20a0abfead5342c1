"""The account of a step, from small traces whose times are added up by hand."""

import random

import pytest

from perfml.account.account import Account, is_warm_up
from perfml.account.causes import findings
from perfml.readers import read
from tests.support.torch_trace import Trace


@pytest.fixture
def account(tmp_path):
    def of(trace):
        path = tmp_path / "trace.json"
        path.write_bytes(trace.data())
        return Account.from_dict(read(path).provenance["step"])

    return of


def copy(trace, name, start, duration, called, number, call=20.0):
    more = {"device": 0, "stream": 7, "correlation": number, "bytes": 4096}
    trace.event("gpu_memcpy", name, start, duration, pid=0, tid=7, args=more)
    trace.event("cuda_runtime", "cudaMemcpyAsync", called, call, args={"correlation": number})


def loop(steps=3, name="step", busy=100.0, length=1000.0):
    """Steps of one kernel each, which begins 50 us into the step."""
    trace = Trace()
    for step in range(steps):
        base = step * length
        trace.event("user_annotation", name, base, length - 10)
        trace.launch("relu(float*)", base + 20, base + 50, busy, correlation=1000 + step)
    return trace


def test_walls_add_up_from_the_first_steps_start_to_the_last_activitys_end(account):
    trace = loop()
    trace.launch("late(float*)", 2500, 3400, 200.0)  # launched in the last step, done at 3,600
    found = account(trace)
    assert found.marked_by == "step"
    # a step is over when the host left it and what it launched is done
    assert found.walls_us == pytest.approx((990.0, 1000.0, 1610.0))
    assert sum(found.walls_us) == pytest.approx(3600.0)
    for step in found.devices[0].steps:
        parts = step.computing_us + step.copying_us + step.both_us + step.idle_us
        assert parts == pytest.approx(step.wall_us)
    device = found.devices[0]
    assert device.step.computing_us == pytest.approx(500.0 / 3)
    whole = sum(each.us for each in device.idle) + sum(each.us for each in device.parts)
    assert whole == pytest.approx(found.step_us)


def test_a_kernel_belongs_to_the_step_that_launched_it_however_late_it_runs(account):
    trace = Trace()
    for step in range(3):  # the host takes 100 us a step, the device 400
        trace.event("user_annotation", "train", step * 100.0, 90)
        trace.launch("gemm(float*)", step * 100.0 + 10, 20 + step * 400.0, 400.0)
    found = account(trace)
    assert found.walls_us == pytest.approx((420.0, 400.0, 400.0))
    assert found.devices[0].launches == pytest.approx(1.0)


def test_copies_beside_kernels_are_neither_idle_nor_counted_twice(account):
    trace = loop(steps=2)
    copy(trace, "Memcpy HtoD (Pinned -> Device)", 100, 100.0, 60, 50)  # half of it beside relu
    step = account(trace).devices[0].steps[0]
    assert step.both_us == pytest.approx(50.0)
    assert step.copying_us == pytest.approx(50.0)
    assert step.computing_us == pytest.approx(50.0)


def test_devices_are_told_one_by_one(account):
    trace = loop(steps=2)
    for step in range(2):
        base = step * 1000.0
        trace.launch("other()", base + 30, base + 60, 500.0, device=1, correlation=70 + step)
    first, second = account(trace).devices
    assert (first.device, second.device) == (0, 1)
    assert first.step.computing_us == pytest.approx(100.0)
    assert second.step.computing_us == pytest.approx(500.0)
    assert account(trace).busiest.device == 1


@pytest.mark.parametrize(
    ("walls", "warm"),
    [
        ([300.0, 100.0, 101.0], True),
        ([300.0, 100.0, 190.0], False),  # the others lie as far apart
        ([110.0, 100.0, 100.0], False),
        ([300.0, 100.0], False),
        ([300.0], False),
    ],
)
def test_a_first_step_out_of_line_is_warm_up(walls, warm):
    assert is_warm_up(walls) is warm


def test_idle_time_is_divided_by_what_the_host_did(account):
    trace = loop(steps=2, length=10_000.0)
    # the device is idle from 150 to 10,050: the host loads until 8,000, and is in an operator then
    trace.event(
        "user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 1000, 7000
    )
    trace.event("cpu_op", "aten::view", 8500, 40)
    found = account(trace)
    idle = {each.state: each.us * 2 for each in found.devices[0].idle}
    assert idle["loading"] == pytest.approx(7000.0)
    assert idle["operators"] == pytest.approx(40.0)
    assert sum(idle.values()) == pytest.approx(found.devices[0].step.idle_us * 2)


def test_a_gap_that_ends_with_a_copy_to_the_device_was_spent_on_what_is_copied(account):
    trace = loop(steps=2, length=10_000.0)
    copy(trace, "Memcpy HtoD (Pinned -> Device)", 9000, 20.0, 8990, 50)
    idle = {each.state: each.us * 2 for each in account(trace).devices[0].idle}
    # python alone from 150 (the kernel's end) to 8,990 (the copy's call)
    assert idle["loading"] == pytest.approx(8840.0)


def test_after_a_synchronising_call_the_device_waits_for_the_host(account):
    trace = loop(steps=2)
    trace.event("cpu_op", "aten::_local_scalar_dense", 60, 140)
    trace.event("cuda_runtime", "cudaStreamSynchronize", 70, 100)
    trace.launch("next()", 300, 320, 10.0)
    found = account(trace)
    idle = {each.state: each.us * 2 for each in found.devices[0].idle}
    # the call waits until 170, and nothing runs until next() begins at 320
    assert idle["synchronising"] == pytest.approx(20.0)
    assert idle["relaunching"] == pytest.approx(150.0)
    (wait,) = found.waits
    assert (wait.call, wait.operator, wait.times) == (
        "cudaStreamSynchronize",
        "aten::_local_scalar_dense",
        1,
    )


def test_a_wait_that_begins_while_the_device_is_idle_is_no_more_than_its_call(account):
    trace = loop(steps=2)
    trace.event("cuda_runtime", "cudaDeviceSynchronize", 160, 10)  # the kernel ended at 150
    trace.launch("next()", 300, 320, 10.0)
    idle = {each.state: each.us * 2 for each in account(trace).devices[0].idle}
    assert idle["synchronising"] == pytest.approx(10.0)
    assert "relaunching" not in idle


def test_an_operator_that_calls_no_device_computes_on_the_cpu(account):
    trace = loop(steps=2, length=10_000.0)
    trace.event("cpu_op", "aten::embedding", 1000, 6000)
    trace.event("cpu_op", "aten::index_select", 1010, 5900)
    trace.event("cpu_op", "aten::add", 8000, 900)  # its time is a launch's, which takes long
    trace.launch("add()", 8100, 9800, 10.0, correlation=60)
    (idle,) = (each for each in account(trace).devices[0].idle if each.state == "cpu_operators")
    assert idle.us * 2 == pytest.approx(6000.0)
    assert idle.where == "aten::embedding"


def test_an_operator_that_only_allocates_computes_nothing(account):
    trace = loop(steps=2, length=10_000.0)
    trace.event("cpu_op", "aten::empty_like", 1000, 6000)
    trace.event("cpu_op", "aten::empty", 1010, 5900)
    states = {each.state for each in account(trace).devices[0].idle}
    assert "cpu_operators" not in states


def test_compiling_is_no_waiting_for_the_device(account):
    trace = loop(steps=2, length=100_000.0)
    trace.event("cuda_runtime", "cudaStreamSynchronize", 70, 100)
    name = "entire_frame_compile (dynamo_timed)"
    trace.event("user_annotation", name, 1000, 90_000)
    trace.event("cpu_op", "aten::mul", 2000, 400)  # on fake tensors
    trace.launch("next()", 95_000, 95_010, 10.0, correlation=60)
    idle = {each.state: each.us * 2 for each in account(trace).devices[0].idle}
    assert idle["compiling"] == pytest.approx(90_000.0)
    assert idle["synchronising"] == pytest.approx(20.0)
    assert "cpu_operators" not in idle


def test_a_copy_to_pinned_memory_is_no_wait_of_the_host(account):
    trace = loop(steps=2)
    copy(trace, "Memcpy DtoH (Device -> Pinned)", 160, 600.0, 120, 50)
    found = account(trace)
    assert {each.cause.id for each in findings(found) if each.amount.copying_us} == {
        "copies_to_host"
    }


def test_an_account_survives_json(account):
    found = account(loop())
    assert Account.from_dict(found.to_dict()) == found


def test_a_cycle_of_ranges_is_a_step_and_without_repeats_the_whole_is_one(account):
    trace = Trace()
    for step in range(3):
        base = step * 1000.0
        trace.event("user_annotation", "load", base, 100)
        trace.event("user_annotation", "forward", base + 200, 600)
        trace.launch("gemm()", base + 210, base + 220, 50.0)
    found = account(trace)
    assert len(found.walls_us) == 3
    assert found.walls_us[1:] == pytest.approx((1000.0, 1000.0))
    alone = Trace()
    alone.launch("gemm()", 10, 20, 50.0)
    alone.launch("gemm()", 110, 120, 50.0)
    assert account(alone).walls_us == pytest.approx((160.0,))
    assert account(alone).marked_by == ""


def test_where_only_the_optimizer_is_marked_its_range_ends_a_step(account):
    trace = Trace()
    for step in range(3):
        base = step * 1000.0
        trace.launch("forward()", base + 100, base + 110, 50.0, correlation=10 * step + 1)
        trace.event("user_annotation", "Optimizer.step#SGD.step", base + 700, 100)
        trace.launch("update()", base + 710, base + 720, 5.0, correlation=10 * step + 2)
    found = account(trace)
    # from the first launch at 100 to the end of the first range at 800, and on from there
    assert found.walls_us == pytest.approx((700.0, 1000.0, 1000.0))
    assert found.devices[0].launches == pytest.approx(2.0)


def test_an_operator_that_launches_after_computing_for_long_computes_on_the_cpu(account):
    trace = loop(steps=2, length=10_000.0)
    trace.event("cpu_op", "aten::attention_forward", 1000, 6000)  # plans, and launches at its end
    trace.event("cpu_op", "aten::empty", 1100, 20)
    trace.launch("attention()", 6900, 7010, 10.0, correlation=60)
    device = account(trace).devices[0]
    (idle,) = (each for each in device.idle if each.state == "cpu_operators")
    assert idle.us * 2 == pytest.approx(5780.0, abs=1.0)
    assert idle.where == "aten::attention_forward"


def test_the_operator_in_which_the_host_launches_for_most_of_the_time_is_named(account):
    trace = loop(steps=2, length=3_000.0)
    for at in range(3):  # short operators, one after another
        trace.event("cpu_op", "aten::addmm", 500 + 800 * at, 700)
        trace.launch("add()", 510 + 800 * at, 1250 + 800 * at, 5.0, correlation=60 + at)
    (idle,) = (each for each in account(trace).devices[0].idle if each.state == "operators")
    assert idle.where == "aten::addmm"


@pytest.mark.parametrize(("jitter", "state"), [(50.0, "paced"), (9_000.0, "loading")])
def test_a_program_that_begins_its_frames_at_even_intervals_waits_on_purpose(
    account, jitter, state
):
    trace, drawn = Trace(), random.Random(0)
    for frame in range(20):
        base = 40_000.0 * frame + drawn.uniform(0, jitter)
        copy(trace, "Memcpy HtoD (Pinned -> Device)", base + 10, 200, base, 2 * frame + 1)
        for at in range(2):
            number = 1_000 + 2 * frame + at
            trace.launch(
                f"filter_{at}()", base + 30, base + 300 + 900 * at, 800, correlation=number
            )
    found = account(trace)
    waits = max(found.devices[0].idle, key=lambda idle: idle.us)
    assert waits.state == state
    # whether kernels fill the device has nothing to do with it
    others = [each for each in findings(found) if not each.cause.fills]
    assert ("data_loading" in [each.cause.id for each in others]) == (state == "loading")
    # nor whether the host is too slow to launch
    assert all(each.saved_us <= 0.02 * each.step_us for each in others) == (state == "paced")


def test_the_first_call_of_a_library_is_warm_up_and_no_allocation_of_every_step(account):
    trace = Trace()
    for step in range(6):
        base = 100_000.0 * step
        trace.launch("gemm()", base + 5, base + 10, 100.0, correlation=step + 1)
        length = 60_000.0 if step == 0 else 300.0
        trace.event("cuda_runtime", "cudaMalloc", base + 500, length)
        trace.launch("gemm()", base + 70_000, base + 70_010, 100.0, correlation=50 + step)
    idle = {each.state: each.us for each in account(trace).devices[0].idle}
    assert idle["warming_up"] == pytest.approx(60_000.0)
    assert idle["allocating"] == pytest.approx(5 * 300.0)


def test_a_launch_that_loads_its_code_is_warm_up_and_no_slow_host(account):
    trace = Trace()
    for at in range(40):
        base, length = 1_000.0 * at, 6_500.0 if at == 20 else 6.0
        base += 6_500.0 * (at > 20)
        trace.launch(f"k{at}()", base, base + length + 2, 100.0, correlation=at + 1)
        trace.events[-1]["dur"] = length
    idle = {each.state: each.us for each in account(trace).devices[0].idle}
    assert idle["warming_up"] == pytest.approx(6_500.0, rel=0.01)
    assert idle.get("launching", 0.0) < 1_000.0
