"""Limits on kernels recorded on an H100, whose limit is known by how they were written."""

import pytest

from perfml.experiments.limits import LIMITS, breakdown
from perfml.experiments.record import read_experiments
from perfml.experiments.responses import responses
from perfml.experiments.verdicts import (
    IMPLAUSIBLE,
    OPEN,
    PLAUSIBLE,
    of_layer,
    verdict,
)
from tests.support.paths import ROOT

RECORDED = ROOT / "studies" / "data" / "h100-experiments"
KNOWN = {
    "stream": "dram", "stride32": "dram", "l1": "multiprocessor", "fma": "multiprocessor",
    "dfma": "multiprocessor", "sfu": "multiprocessor", "wmma": "multiprocessor",
    "bank": "multiprocessor", "sync": "multiprocessor", "fma_1warp": "fixed",
    "chase_1warp": "memory_latency", "gather_full": "memory_latency",
    "gather_half": "memory_latency", "atomic": "l2", "tail": "fixed", "small": "fixed",
    "empty": "launch",
}  # fmt: skip
"""Kernels of the probe: streams, chains, atomics on eight words, eight blocks, ..."""


@pytest.fixture(scope="module")
def probe():
    return responses(read_experiments(RECORDED / "probe.csv.xz"))


def test_kernels_of_known_limit_stand_at_it(probe):
    found = {each.launch.ranges[-1]: breakdown(each).largest for each in probe}
    assert {name: found[name] for name in KNOWN} == KNOWN


@pytest.mark.parametrize("name", ["probe", "yolov4-tiny-cudnn-fp32", "planted-level_3"])
def test_shares_add_up_to_one_and_none_is_negative(name):
    for each in responses(read_experiments(RECORDED / f"{name}.csv.xz")):
        shares = breakdown(each).shares
        assert set(shares) == set(LIMITS)
        assert sum(shares.values()) == pytest.approx(1)
        assert min(shares.values()) >= -1e-12


def test_limits_alone_make_a_cause_plausible_or_implausible(probe):
    stream, fma = of_layer(probe, "stream"), of_layer(probe, "fma")
    assert verdict(stream, "dram_bytes").verdict == PLAUSIBLE
    assert verdict(stream, "fp32_pipe_time").verdict == IMPLAUSIBLE
    assert verdict(fma, "fp32_pipe_time").verdict == PLAUSIBLE
    assert verdict(fma, "theoretical_occupancy").verdict == IMPLAUSIBLE
    said = verdict(fma, "dram_bytes")
    assert said.low <= said.share <= said.high < 0.01
    assert "units of the multiprocessor" in said.sentence(fma)


def test_what_no_experiment_on_a_launch_can_tell_is_not_decided(probe):
    said = verdict(of_layer(probe, "fma"), "launch_gaps")
    assert said.verdict == OPEN
    assert "outside the launch" in said.sentence(probe[0])
    assert of_layer(probe, "no such layer") is None
