"""Of a long recording the first steps are accounted for, and the numbers are theirs."""

from __future__ import annotations

import json

import numpy as np
import pytest

from perfml.account.account import Account
from perfml.account.phase_times import phase_times
from perfml.account.words import step_sentence
from perfml.ingest.profiles import ingest
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


def attached(folder, windows=4):
    """A server's run: in each second 50 ms of steps, a step of 3 ms every 4 ms."""
    folder.mkdir(parents=True)
    rows = ["iteration,layer,kernel,time_us,grid,block,start_us"]
    for window in range(windows):
        for step in range(12):
            begin = 1e6 * window + 4000.0 * step
            for name, at, time in (("gemm", 0, 2000.0), ("softmax", 2000.0, 1000.0)):
                rows.append(f'0,,{name},{time},"(1,1,1)","(32,1,1)",{begin + at}')
    (folder / "timing.csv").write_text("\n".join(rows) + "\n")
    manifest = {"run_id": "server", "workload": "server", "program": ["./server"]}
    manifest["timing"] = {"seen_share": 0.048, "windows": windows}
    (folder / "run.json").write_text(json.dumps(manifest))
    return ingest([folder])


def test_holes_between_windows_are_no_time_of_the_program(tmp_path):
    kernels = attached(tmp_path / "runs" / "server")
    (source,) = kernels.provenance["sources"]
    found = Account.from_dict(source["step"])
    # eleven steps of 4 ms, and the last one until its last kernel ends
    assert found.walls_us == pytest.approx((47_000.0,) * 4)
    step = found.busiest.step
    assert (step.computing_us, step.idle_us) == pytest.approx((36_000.0, 11_000.0))
    assert sum(each.us for each in found.busiest.idle) == pytest.approx(11_000.0)
    assert step_sentence(found).startswith("A window takes 47.0 ms")
    # what was idle before a window is not known; before other steps it is
    gaps = kernels.frame["gap_us"].to_numpy(dtype=float).reshape(4, 12, 2)[:, :, 0]
    assert np.isnan(gaps[:, 0]).all()
    assert gaps[:, 1:] == pytest.approx(1000.0)


def test_what_passes_before_a_step_is_the_median_and_knows_no_hole(tmp_path):
    frame = attached(tmp_path / "runs" / "server").frame
    frame["layer"] = [f"decode/{name}" for name in frame["kernel"]]
    frame["phase"] = "decode"
    frame["iteration"] = np.arange(len(frame)) // 2
    (decode,) = phase_times(frame)
    assert (decode.steps, decode.wall_us, decode.before_us) == pytest.approx((48, 3000.0, 1000.0))
