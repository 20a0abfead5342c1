"""The account of a step of an export of Nsight Systems, added up by hand."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from perfml.account.account import Account
from perfml.account.host import State
from perfml.cli import app
from tests.support.nsys_export import Export

MS = 1_000_000


def loop(path, *, pageable=True, ranges=True, calls=True):
    """Four steps of 1 ms: two kernels of 100 us, and a copy to the host of 200 us.

    The host launches the second kernel at once, waits in the copy from 290 us on, and is in no
    call from 510 us to the next step.
    """
    export = Export(path)
    export.insert("ENUM_CUDA_MEM_KIND", id=0, name="PAGEABLE", label="Pageable")
    export.insert("ENUM_CUDA_MEM_KIND", id=1, name="PINNED", label="Pinned")
    export.insert("ENUM_CUDA_MEM_KIND", id=2, name="DEVICE", label="Device")
    for step in range(4):
        base = step * MS
        if ranges:
            export.range(f"step {step}", base + 1_000, base + 900_000)
            export.range("forward", base + 1_000, base + 280_000)
        for place in (0, 1):
            start = base + 20_000 + 110_000 * place
            called = start - 10_000 if calls else None
            export.launch(("gemm(float*)", "relu(float*)")[place], called, start, start + 100_000)
        copy = 900 + step
        ways = {"copyKind": 2, "srcKind": 2, "dstKind": 0 if pageable else 1}
        export.copy(base + 300_000, base + 500_000, correlationId=copy, streamId=7, **ways)
        if calls:
            export.call("cudaMemcpyAsync_v3020", base + 290_000, base + 510_000, copy)
    return export


def test_a_step_is_computing_copying_and_idle_and_begins_where_the_last_one_ended(tmp_path):
    found = Account.from_dict(loop(tmp_path / "a.sqlite").read().provenance["step"])
    assert found.marked_by == "step"
    # from the end of one range, at 900 us, to the next
    assert found.walls_us == pytest.approx((899.0, 1000.0, 1000.0, 1000.0))
    (device,) = found.devices
    for step in device.steps:
        assert (step.computing_us, step.copying_us, step.both_us) == pytest.approx((200, 200, 0))
        assert step.idle_us == pytest.approx(step.wall_us - 400)
        assert (step.launches, step.kernels_us) == (2, pytest.approx(200.0))
    (copies,) = device.copies
    assert (copies.kind, copies.pageable, copies.bytes) == ("to_host", True, 4.0)
    assert {(part.kernel, part.where) for part in device.parts} == {
        ("gemm", "forward"),
        ("relu", "forward"),
    }


def test_without_ranges_the_recording_is_one_step(tmp_path):
    found = Account.from_dict(loop(tmp_path / "a.sqlite", ranges=False).read().provenance["step"])
    assert (found.marked_by, found.host, len(found.walls_us)) == ("", True, 1)
    assert found.devices[0].recorded.wall_us == pytest.approx(3480.0)


def test_without_calls_nothing_is_known_of_why_a_device_is_idle(tmp_path):
    found = Account.from_dict(loop(tmp_path / "a.sqlite", calls=False).read().provenance["step"])
    assert not found.host
    assert [each.state for each in found.devices[0].idle] == [State.UNRECORDED]


def test_a_copy_is_pageable_only_where_the_file_says_so(tmp_path):
    for name, pageable in (("a", True), ("b", False)):
        path = loop(tmp_path / f"{name}.sqlite", pageable=pageable).close()
        run = CliRunner().invoke(app, ["advise", str(path), "--json", "-q"])
        found = {rule: each for each in json.loads(run.stdout)["answer"] for rule in each["rules"]}
        assert ("pageable_copies" in found) is pageable
        # the program is none of PyTorch's
        assert all("torch" not in each["mitigation"] for each in found.values())


def test_operators_that_pytorch_marks_in_two_processes_are_no_steps(tmp_path):
    """As ``emit_nvtx`` writes them: ranges of every operator, and none of the program."""
    export = Export(tmp_path / "a.sqlite")
    for rank in range(2):
        process = {"pid": 77 + rank, "thread": 5}
        for layer in range(6):
            base = 5 * MS * layer
            for at, name in enumerate(["AllToAll4D", "AllToAll4D", "AllToAll4D", "aten::linear"]):
                begin, number = base + MS * at, 100 * rank + 10 * layer + at + 1
                export.range(f"{name}, op_id = {number}", begin, begin + MS // 2, **process)
                for kernel in range(1 + 8 * (at == 3)):
                    start = begin + 20_000 * (kernel + 1)
                    export.launch(
                        f"{name}(float*)", start - 9_000, start, start + 8_000,
                        correlation=1_000 * number + kernel, device=rank, **process,
                    )  # fmt: skip
    found = Account.from_dict(export.read().provenance["step"])
    assert (found.marked_by, found.unit) == ("", "recording")
    assert [each.device for each in found.devices] == [0, 1]
    assert all(each.step.computing_us == pytest.approx(6 * 12 * 8.0) for each in found.devices)
