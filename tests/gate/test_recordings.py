"""The gate of two recordings: the clock decides, and it is that of explain."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

import perfml
from perfml.cli import app
from perfml.gate import ExitCode, Verdict
from tests.support.paths import ROOT
from tests.support.torch_trace import Trace

pytestmark = pytest.mark.long

RECORDED = ROOT.parent / "shared" / "cases" / "recordings_2026_11_28"


def test_the_clock_of_two_recordings_is_that_of_explain():
    """Kernels of one layer take three times as long, in time that the device was idle before."""
    sides = [str(RECORDED / f"emit_nvtx_{side}.sqlite") for side in "ab"]
    found, step = perfml.gate(*sides), perfml.explain(*sides, model=None).step
    assert step.verdict == "no difference"
    assert found.overall.time.ratio == pytest.approx(step.ratio)
    assert (found.verdict, found.exit_code) == (Verdict.SAME, ExitCode.PASSED)
    assert [each.layer for each in found.of(Verdict.SLOWER)] == ["aten::softmax"]
    assert perfml.gate(*(perfml.load_dataset(side) for side in sides)).verdict is Verdict.SLOWER
    result = CliRunner().invoke(app, ["gate", *sides, "--json"])
    assert (result.exit_code, json.loads(result.stdout)["verdict"]) == (0, "same")


def recorded_steps(tmp_path, name, us, launches):
    """Return a trace of eight steps, each of so many kernels that take some time together."""
    trace = Trace()
    for step in range(8):
        base = step * (us + 200.0)
        trace.event("user_annotation", f"ProfilerStep#{step}", base, us + 180.0)
        trace.event("cpu_op", "aten::mul", base + 5, us)
        for at in range(launches):
            length = (us + step) / launches
            trace.launch("k()", base + 6 + at, base + 20 + at * length, length)
    path = tmp_path / f"{name}.json"
    path.write_bytes(trace.data())
    return str(path)


@pytest.mark.parametrize(
    ("us", "launches", "expected"),
    [
        (1000.0, 10, Verdict.SAME),
        (500.0, 10, Verdict.BETTER),
        (1900.0, 2, Verdict.SLOWER),
    ],
)
def test_the_verdict_on_two_traces_is_that_of_the_clock_however_often_kernels_are_launched(
    tmp_path, us, launches, expected
):
    base = recorded_steps(tmp_path, "base", 1000.0, 5)
    new = recorded_steps(tmp_path, "new", us, launches)
    result = perfml.gate(base, new)
    assert result.verdict is expected
    step = perfml.explain(base, new, model=None).step
    assert result.overall.time.ratio == pytest.approx(step.ratio)
