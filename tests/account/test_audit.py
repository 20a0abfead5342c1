"""The audit of a recording: what is missing from it, and what that makes unknown."""

from __future__ import annotations

import msgspec
import pytest

from perfml.account.account import Account
from perfml.account.audit import IDLE, LAUNCH_BOUND, Audit, Fact, audited, unrecorded
from perfml.account.build import account_of
from perfml.account.causes import findings
from perfml.account.origins import Origins
from perfml.account.recording import Activity, DeviceKind, HostKind, HostSpan, Recording
from perfml.account.steps import find_steps

MS = 1_000_000


def call(name, start, length, correlation=None, thread=1):
    return HostSpan(HostKind.CALL, name, start, start + length, thread, correlation)


def kernel(start, length, correlation=None, name="gemm", stream=7):
    return Activity(DeviceKind.KERNEL, name, start, start + length, 0, stream, correlation)


def recorded(kernels=10, launches=10):
    """Return a kernel of 1 ms every 2 ms, and as many calls as are asked for."""
    host = [call("cudaLaunchKernel", 2 * MS * n, 5000, n) for n in range(launches)]
    return Recording.of(host, [kernel(2 * MS * n + 9000, MS, n) for n in range(kernels)])


def test_whole_recording_has_no_facts():
    recording = recorded()
    same, audit = audited(recording)
    assert same is recording
    assert audit == Audit()
    assert not audit.unknown


@pytest.mark.parametrize(("kernels", "unknown"), [(3, {IDLE, LAUNCH_BOUND}), (995, set())])
def test_launches_without_kernels_are_counted_and_many_leave_idle_time_unknown(kernels, unknown):
    launches = 10 if kernels < 10 else 1000
    recording, audit = audited(recorded(kernels, launches))
    assert audit.facts == (Fact("launches_without_kernels", launches - kernels, launches),)
    assert audit.unknown == unknown
    assert unrecorded(recording) == tuple(2 * MS * n for n in range(kernels, launches))


def test_calls_that_record_a_graph_launch_nothing():
    host = [
        call("cudaStreamBeginCapture_v10000", 0, 10),
        call("cudaLaunchKernel", 100, 10, 5),
        call("cudaLaunchKernel", 100, 10, 6, thread=2),
        call("cudaStreamEndCapture", 200, 10),
        call("cudaGraphLaunch", 300, 10, 7),
    ]
    assert unrecorded(Recording.of(host, [kernel(400, 10, 7), kernel(400, 10, 6)])) == ()


def test_kernel_that_later_ones_of_its_stream_overtake_ends_where_the_next_begins():
    whole = recorded()
    wrong = [kernel(2 * MS + 9000, 1600 * MS, 1), *whole.activities[2:]]
    mended, audit = audited(Recording(whole.host, (whole.activities[0], *wrong)))
    assert audit.facts[0].id == "overlap_on_stream"
    assert audit.facts[0].count == 1
    assert mended.activities[1].end == whole.activities[2].start
    assert mended.activities[2:] == whole.activities[2:]


def test_launch_before_the_end_of_the_one_before_is_no_wrong_time():
    overlapped = [kernel(MS * n, MS + 20_000, n) for n in range(9)]
    side_by_side = [kernel(MS * n, MS // 2, 9) for n in range(3)]
    replay = kernel(0, 20 * MS, 9)
    for activities in (overlapped, [replay, *side_by_side]):
        recording = Recording.of([], activities)
        assert audited(recording) == (recording, Audit())


@pytest.mark.parametrize(
    ("name", "fact", "unknown"),
    [
        ("hipMemcpyWithStream", "blocked_in_copy", {LAUNCH_BOUND}),
        ("cudaMemcpy", "blocked_in_copy", {LAUNCH_BOUND}),
        ("hipStreamSynchronize", "waits_for_nothing", {LAUNCH_BOUND}),
        ("cudaMemcpyAsync", None, set()),
        ("cudaMalloc", None, set()),
    ],
)
def test_host_that_waits_while_nothing_is_recorded(name, fact, unknown):
    host = [call("cudaLaunchKernel", 0, 10, 1), call(name, MS, 199 * MS)]
    host.append(call("cudaLaunchKernel", 201 * MS, 10, 2))
    activities = [kernel(100, MS, 1), kernel(202 * MS, MS, 2)]
    _, audit = audited(Recording.of(host, activities))
    assert [each.id for each in audit.facts] == ([fact] if fact else [])
    assert audit.unknown == unknown


def test_host_that_waits_beside_a_launch_without_kernel_may_wait_for_that():
    host = [call("hipLaunchKernel", 0, 10, 1), call("hipGraphLaunch", MS, 10, 2)]
    host += [call("hipStreamSynchronize", 2 * MS, 198 * MS)]
    host += [call("hipLaunchKernel", 201 * MS, 10, 3)]
    _, audit = audited(Recording.of(host, [kernel(100, MS, 1), kernel(202 * MS, MS, 3)]))
    assert [each.id for each in audit.facts] == ["launches_without_kernels", "blocked_in_wait"]
    assert audit.unknown == {IDLE, LAUNCH_BOUND}


def test_host_that_waits_for_a_recorded_kernel_is_not_blocked():
    host = [call("cudaLaunchKernel", 0, 10, 1), call("cudaDeviceSynchronize", 500, 100 * MS)]
    _, audit = audited(Recording.of(host, [kernel(100, 99 * MS, 1)]))
    assert audit == Audit()


def test_facts_of_the_reader_stand_first_and_survive_json():
    said = Fact("profiler_said", detail="CUPTI_ERROR_INVALID_DEVICE")
    _, audit = audited(recorded(3), [said])
    assert audit.facts[0] == said
    assert msgspec.convert(audit.to_dict(), Audit) == audit
    assert len(audit.sentences) == 2


def accounted(recording, unknown=()):
    steps = find_steps(recording)
    finder = Origins(recording, steps)
    origins = finder.all(recording.activities)
    return account_of(recording, steps, finder, origins, unknown=unknown)


@pytest.fixture
def two_of_six():
    """Return six steps of 10 ms with two launches each; the third and the fourth have kernels."""
    host, activities = [], []
    for step in range(6):
        start = 10 * MS * step
        host.append(HostSpan(HostKind.RANGE, f"ProfilerStep#{step}", start, start + 10 * MS, 1))
        for launch in range(2):
            time, number = start + (1 + 4 * launch) * MS, 2 * step + launch
            host.append(call("cudaLaunchKernel", time, 5000, number))
            if step in (2, 3):
                activities.append(kernel(time + 9000, MS, number))
    return Recording.of(host, activities)


def test_steps_with_launches_that_were_not_recorded_do_not_count(two_of_six):
    _, audit = audited(two_of_six)
    account = accounted(two_of_six, audit.unknown)
    assert account.cut == (0, 1, 4, 5)
    assert account.step_us == 10_000
    assert account.busiest.step.computing_us == pytest.approx(2000)


def test_nothing_is_saved_of_idle_time_that_nobody_can_know(two_of_six):
    _, audit = audited(two_of_six)
    assert not [each for each in findings(accounted(two_of_six, audit.unknown)) if each.cause.idle]
    assert [each for each in findings(accounted(two_of_six)) if each.cause.idle]
    assert Account.from_dict(accounted(two_of_six, audit.unknown).to_dict()).unknown == (
        IDLE,
        LAUNCH_BOUND,
    )
