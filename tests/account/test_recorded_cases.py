"""The recordings whose truth is known by construction: their clock, steps and what takes it."""

from __future__ import annotations

import re

import pytest

import perfml
from perfml.account.account import Account
from perfml.account.causes import _table, causes, findings
from perfml.errors import InputError
from perfml.explain.remedies import of_account, remedy_for
from perfml.readers import read
from tests.support.paths import ROOT

FOLDER = ROOT.parent / "shared" / "cases" / "recordings_2026_11_28"
pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="the cases are not committed")


def account_of(name):
    return Account.from_dict(read(FOLDER / name).provenance["step"])


@pytest.mark.parametrize(
    ("name", "wall", "computing", "copying", "idle"),
    [
        ("idle_before_copy.sqlite", 761_715, 30_000, 4_000, 727_715),
        ("frames_10.sqlite", 361_715, 15_000, 2_000, 344_715),
        ("frames_24.sqlite", 921_215, 24_000, 4_800, 892_415),
        # copies before the first kernel and after the last one
        ("one_kernel_between_copies.sqlite", 3_660, 40, 3_000, 620),
        ("copies_dominate_with_ranges.sqlite", 90_210, 2_160, 87_600, 450),
        ("sequential_products.sqlite", 84_047, 84_000, 0, 47),
        ("old_gpu_table.sqlite", 16_210, 4_000, 800, 11_410),
        ("run_results.db", 590, 400, 0, 190),
        ("tensorflow_gpu.xplane.pb", 1_170, 240, 0, 920),
    ],
)
def test_the_recording_is_computing_copying_and_idle(name, wall, computing, copying, idle):
    account = account_of(name)
    own = account.devices[0].recorded
    told = (own.wall_us, own.computing_us, own.copying_us, own.idle_us)
    assert told == pytest.approx((wall, computing, copying, idle))
    # nothing marks steps, so the recording is what a person waits for
    assert account.unit == "recording"
    assert account.step_us == pytest.approx(own.wall_us)


@pytest.mark.parametrize(
    ("name", "step", "computing", "left_out"),
    [
        ("last_step_cut.json", 16_000, 12_000, (3,)),
        ("overflow_same_stream.json", 16_000, None, ()),
        ("zero_timestamps.json", 16_000, 12_000, (2,)),
        ("six_of_eight_steps_without_kernels.json", 12_000, 6_000, (0, 1, 2, 5, 6, 7)),
    ],
)
def test_a_step_is_the_mean_of_those_that_were_recorded_whole(name, step, computing, left_out):
    account = account_of(name)
    assert account.step_us == pytest.approx(step)
    assert account.cut == left_out
    if computing is not None:
        assert account.busiest.step.computing_us == pytest.approx(computing)


@pytest.mark.parametrize(
    "name", ["copies_dominate_with_ranges.sqlite", "one_kernel_between_copies.sqlite"]
)
def test_copies_that_take_nearly_all_of_the_clock_come_first(name):
    account = account_of(name)
    first, *others = findings(account)
    assert first.cause.id == "copies_to_device"
    # a device that copies for 97 % of the time saves less than 3 % in its kernels
    kernels = sum(each.amount.computing_us for each in others)
    assert kernels <= 0.03 * account.step_us


def test_a_host_that_is_blocked_in_a_copy_waits_and_does_not_launch():
    first = findings(account_of("host_blocked_in_copy.json"))[0]
    assert first.cause.id == "synchronising"


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.*")), ids=lambda path: path.name)
def test_what_is_advised_of_a_recording_is_of_its_program_and_vendor(path):
    try:
        step = read(path).provenance.get("step")
    except InputError:
        return
    if step is None:
        return
    account = Account.from_dict(step)
    here = of_account(account)
    for cause in (*causes(), *_table()["other"].values()):
        said = remedy_for(cause.id, here).text
        assert account.pytorch or "torch" not in said, said
        assert not account.amd or not re.search(r"cu(da|blas|dnn)[A-Z]|nvcc|nsys|CUDNN", said), said
        assert "channels_last" not in said or "convolution" in account.launched, said
        assert "bucket_cap" not in said or (account.trains and cause.id == "communication"), said


def sides(*names, door=str):
    """Return an explanation of two recordings, opened in one way, without a model."""
    return perfml.explain(*(door(str(FOLDER / name)) for name in names), model=None)


@pytest.mark.parametrize("door", [str, perfml.read, perfml.load_dataset])
def test_the_clock_of_two_recordings_without_a_common_range_is_compared(door):
    found = sides("frames_10.sqlite", "emit_nvtx_a.sqlite", door=door)
    # neither side marks steps: a repeat of one is compared with a repeat of the other
    assert found.step.unit == "repeat"
    assert found.total.ratio == pytest.approx(5.0 / 40.0)
    assert found.step.difference_us == pytest.approx(-35_000)
    assert found.step.changes[0].us == pytest.approx(-38_300)


def test_rows_without_some_of_their_recording_have_no_clock():
    some = sides("frames_10.sqlite", "frames_24.sqlite", door=lambda name: perfml.read(name)[1:])
    assert some.step is None


def test_a_filter_twice_as_fast_is_faster_however_long_was_recorded():
    found = sides("frames_10.sqlite", "frames_24.sqlite")
    ratios = dict(zip(found.layers["layer"], found.layers["ratio"], strict=True))
    assert ratios == pytest.approx({"filter": 0.5, "blend": 1.0})
    assert found.step.unit == "repeat"
    assert (found.step.verdict, found.step.ratio) == ("no difference", pytest.approx(1.0))
    assert found.step.parts["copying_us"] == pytest.approx(0.0)


def test_serial_numbers_in_names_of_ranges_divide_no_layer():
    found = sides("emit_nvtx_a.sqlite", "emit_nvtx_b.sqlite")
    ratios = {
        str(layer).rpartition("::")[2]: ratio
        for layer, ratio in zip(found.layers["layer"], found.layers["ratio"], strict=True)
    }
    assert ratios == pytest.approx({"linear": 1.0, "relu": 1.0, "softmax": 3.0})
    assert found.step.parts["computing_us"] == pytest.approx(600.0)
