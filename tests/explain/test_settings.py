"""What other settings of PyTorch give: measured in recorded networks, or bounded by the chip."""

import math

import pytest

from perfml import chips
from perfml.datasets import load
from perfml.explain.advice.settings import setting_gains


@pytest.fixture(scope="module")
def recorded():
    return load("h200-yolov4-tiny")


def part(frame, **chosen):
    for name, value in chosen.items():
        frame = frame[frame[name] == value]
    return frame


def total(frame, **chosen):
    """Return the median over iterations of the sum of all layers, by hand."""
    rows = part(frame, **chosen)
    return rows.groupby("iteration")["time_us"].sum().median()


def test_recorded_precisions_are_measured_over_the_same_layers_and_batch(recorded):
    frame = recorded.frame
    now = part(frame, precision="fp32", batch=1)
    gains = {gain.rules[1]: gain for gain in setting_gains(now, frame, recorded.provenance["runs"])}
    best = min(total(now, backend=each) for each in now["backend"].unique())
    for precision in ("tf32", "fp16"):
        gain = gains[precision]
        assert gain.gain.known_by == "measured"
        assert gain.where.backend == "inductor"
        same = {"precision": precision, "batch": 1, "backend": "inductor"}
        assert gain.left_us == pytest.approx(total(frame, **same))
        assert gain.holds.us == pytest.approx(best)
    assert "set_float32_matmul_precision" in gains["tf32"].command
    # that run was recorded in channels-last layout, and compiled
    assert "channels_last" in gains["tf32"].command
    assert "torch.compile" in gains["tf32"].command


def test_a_larger_batch_is_told_for_each_item(recorded):
    frame = recorded.frame
    now = part(frame, precision="fp32", batch=1)
    (batch,) = [gain for gain in setting_gains(now, frame) if gain.rules[0] == "batch"]
    same = {"precision": "fp32", "batch": 8, "backend": batch.where.backend}
    assert batch.left_us == pytest.approx(total(frame, **same) / 8)


def test_what_was_not_recorded_is_bounded_by_tensor_cores_and_memory(recorded):
    now = part(recorded.frame, precision="fp32", batch=1)
    gains = {gain.rules[1]: gain for gain in setting_gains(now, now)}
    assert not any(gain.gain.known_by == "measured" for gain in gains.values())
    chip, bound = chips.of_table(now), 0.0
    for row in now.drop_duplicates("layer").to_dict("records"):
        moved = row["weight_bytes"] + row["input_bytes"] + row["output_bytes"]
        arithmetic = row["flops"] / chip.peak_flops_per_us("tf32")
        bound += max(arithmetic, moved / chip.peak_dram_bytes_per_us())
    assert gains["tf32"].left_us == pytest.approx(bound)


def test_without_known_work_or_other_settings_nothing_is_promised(recorded):
    now = part(recorded.frame, precision="fp32", batch=1)
    assert setting_gains(now.assign(flops=math.nan), now) == ()
    assert setting_gains(now.drop(columns="precision"), now) == ()
    half = part(recorded.frame, precision="fp16", batch=8)
    assert setting_gains(half, half) == ()
