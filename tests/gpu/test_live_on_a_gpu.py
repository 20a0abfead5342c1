"""On a real GPU: attach to a server, lines for which warps wait, ranks of one program."""

import subprocess
import sys
from pathlib import Path

import pytest

import perfml
from benchmarks.attach import server
from collectors.attach import attach
from collectors.profilers.lines import sample
from perfml.ingest.profiles import ingest

PROGRAMS = Path(__file__).parent / "programs"
pytestmark = pytest.mark.gpu


def test_a_server_goes_on_while_and_after_its_kernels_are_recorded(tmp_path):
    with server("tiny", 60, tmp_path) as (pid, rates):
        for share in (0.1, 0.1):
            before = rates.read_text().count("\n")
            run = attach(pid, seconds=2, share=share, out=tmp_path / "runs")
            assert rates.read_text().count("\n") > before
            frame = ingest([run]).frame
            assert frame["time_us"].gt(0).all()
            # whole replays: as many additions as products
            kernels = frame["kernel"].value_counts()
            assert len(kernels) == 2
            assert kernels.iloc[0] == kernels.iloc[1] >= 1200


def test_the_planted_line_is_waited_for_most(build, tmp_path):
    source = PROGRAMS / "planted_lines.cu"
    program = build("planted_lines", "-lineinfo")
    found = sample([program, "3"], log=tmp_path / "log.txt", timeout_s=120)
    first = {}
    for each in found:
        first.setdefault(each.kernel, each)
    text = source.read_text().splitlines()
    planted = {number for number, line in enumerate(text, 1) if line.endswith("// HOT")}
    assert len(first) == 10
    assert sum(each.line in planted for each in first.values()) >= 9


RANKED = """
import sys, torch, perfml
model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU()).cuda()
batch = torch.randn(64, 256, device="cuda")
model(batch)
with perfml.profile(model, metrics=(), out=sys.argv[1], name="ranked", bare=0):
    for _ in range(4):
        model(batch)
"""


def test_ranks_of_torchrun_are_runs_of_their_own(tmp_path):
    script = tmp_path / "ranked.py"
    script.write_text(RANKED)
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    subprocess.run([*command, str(script), str(tmp_path / "runs")], check=True)
    layers = perfml.merge(ingest([tmp_path / "runs"]).frame)
    assert layers.groupby("process")["iteration"].nunique().to_dict() == {0: 4, 1: 4}
    assert layers["run_id"].nunique() == 2
