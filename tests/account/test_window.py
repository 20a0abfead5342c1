"""Of a long recording the first steps are accounted for, and the numbers are theirs."""

from __future__ import annotations

import pytest

from perfml.account.account import Account
from perfml.readers import read
from tests.support.nsys_export import Export
from tests.support.torch_trace import Trace

STEPS = 30


def torch_steps(path):
    trace = Trace()
    for step in range(STEPS):
        trace.event("user_annotation", f"ProfilerStep#{step}", 1000 * step, 900)
        for place in (0, 1):
            at = 1000.0 * step + 100 * place
            trace.launch("gemm()", at + 10, at + 30, 50, correlation=2 * step + place)
    path.write_bytes(trace.data())
    return read(path)


def nsys_steps(path):
    export = Export(path)
    for step in range(STEPS):
        base = 1_000_000 * step
        export.range(f"step {step}", base, base + 900_000)
        for place in (0, 1):
            at = base + 100_000 * place
            export.launch("gemm()", at + 10_000, at + 30_000, at + 80_000)
    return export.read()


@pytest.mark.parametrize("made", [torch_steps, nsys_steps])
def test_a_long_recording_has_the_account_of_its_first_steps(made, tmp_path, monkeypatch):
    whole = Account.from_dict(made(tmp_path / "whole").provenance["step"])
    assert len(whole.walls_us) == STEPS
    for module in ("perfml.account.window", "perfml.readers.nsys.recording"):
        monkeypatch.setattr(f"{module}.MOST", 50)  # three spans a step
    kernels = made(tmp_path / "first")
    first = Account.from_dict(kernels.provenance["step"])
    assert len(kernels.frame) == 2 * STEPS
    assert 10 <= len(first.walls_us) < 20
    assert first.walls_us[:-1] == pytest.approx(whole.walls_us[: len(first.walls_us) - 1])
    launches = 2 * len(first.walls_us)
    assert any(f"with {launches} of 60 kernels" in text for text in kernels.warnings)
    (mine,), (theirs,) = first.devices, whole.devices
    assert mine.steps[3].kernels_us == theirs.steps[3].kernels_us == pytest.approx(100.0)
