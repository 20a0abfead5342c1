"""The SM clock that is measured is one that the GPU has."""

from __future__ import annotations

import subprocess

import pytest

from collectors.profilers import sm_clock

pytestmark = pytest.mark.gpu


def test_the_measured_clock_is_steady_and_no_higher_than_the_gpu_goes():
    command = ["nvidia-smi", "--query-gpu=clocks.max.sm", "--format=csv,noheader,nounits"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    most = float(said.splitlines()[0])
    clocks = [sm_clock.measured({}) for _ in range(3)]
    assert all(clock is not None for clock in clocks)
    assert all(0.1 * most < clock <= 1.01 * most for clock in clocks)
    assert max(clocks) < 1.03 * min(clocks)
