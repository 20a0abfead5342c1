"""Steps that nothing marks: what the devices do again and again, however often."""

from __future__ import annotations

import pytest

from perfml.account.account import Account
from perfml.account.build import account_without_host
from perfml.account.recording import Activity, DeviceKind
from perfml.account.steps import repeated_steps
from perfml.explain.steps import StepComparison
from perfml.readers import read
from tests.support.torch_trace import Trace


def activities(names, *, wait=50, length=10):
    """Return kernels of some length, so long apart; before a capital they wait longer."""
    at, made = 0, []
    for name in names:
        at += (10 * wait if name.isupper() else wait) * 1000
        made.append(Activity(DeviceKind.KERNEL, name, at, at + length * 1000, 0, 7, None))
        at += length * 1000
    return made


def found(names):
    made = activities(names)
    steps = repeated_steps(made, [each.start for each in made])
    return None if steps is None else len(steps.starts)


@pytest.mark.parametrize(
    ("names", "repeats"),
    [
        ("Abc" * 5, 5),
        ("xyz" + "Abc" * 5, 5),
        ("a" * 10, 10),
        # cut within a repeat: a repeat still begins after the longest wait
        ("Abc" * 5 + "Ab", 5),
        ("Abc" * 2, None),
        ("abcdefgh", None),
        # most of it does not repeat
        ("abcdefghijklmnopqr" + "st" * 3, None),
    ],
)
def test_a_repeat_is_the_shortest_piece_that_comes_again_and_again(names, repeats):
    assert found(names) == repeats


def test_longer_recordings_of_one_program_are_equal_a_repeat():
    sides = [account_without_host(activities("Abc" * turns)) for turns in (10, 24)]
    assert [side.unit for side in sides] == ["recording", "recording"]
    again = [side.repeated for side in sides]
    # nobody knows what passed before the first one
    assert [(side.cut, len(side.kept_us)) for side in again] == [((0,), 9), ((0,), 23)]
    step = StepComparison(("a", "b"), *again)
    assert step.verdict == "no difference"
    assert step.first is None
    assert step.difference_us == pytest.approx(0.0)


def test_an_account_with_repeats_goes_through_json():
    account = account_without_host(activities("Abc" * 5))
    assert Account.from_dict(account.to_dict()) == account


def marked(*, name, warm):
    """Return a trace with a warm-up before the one range that a program marks."""
    trace = Trace()
    for number in range(warm):
        trace.launch("gemm()", 1000.0 * number, 1000.0 * number + 10, 100.0)
    base = 1000.0 * warm + 50_000
    trace.event("user_annotation", name, base, 5_000)
    for number in range(40):
        at = base + 20 + 110 * number
        trace.launch(f"k{number}()", at, at + 10, 100.0)
    return trace


@pytest.mark.parametrize(
    ("name", "warm", "unit"),
    [
        ("inference", 8, "range"),
        ("warm_up", 8, "recording"),
        # most of the work is outside, or all of it is inside
        ("inference", 60, "recording"),
        ("inference", 0, "recording"),
    ],
)
def test_a_range_marked_once_is_the_clock_where_it_holds_most_of_the_work(
    tmp_path, name, warm, unit
):
    path = tmp_path / "marked.json"
    path.write_bytes(marked(name=name, warm=warm).data())
    account = Account.from_dict(read(path).provenance["step"])
    assert account.unit == unit
    step = account.busiest.step
    if unit == "range":
        assert step.wall_us == pytest.approx(5_000.0, abs=10.0)
        assert step.computing_us == pytest.approx(4_000.0)
