"""Two runs of one program with different arguments are different work."""

import json
import lzma

import pytest

from perfml.ingest import IngestSettings
from perfml.ingest.profiles import ingest
from perfml.ingest.run_labels import Identity, differing_arguments
from tests.support.paths import DATA

SAME = ("gemm", "eager", "fp32", "1")


@pytest.fixture
def runs(tmp_path, sweep):
    """Two collected runs of one program, which only its arguments tell apart."""
    for size, batch in (("512", 1), ("1024", 8)):
        folder = tmp_path / "runs" / f"gemm-{size}"
        folder.mkdir(parents=True)
        for name, source in (("metrics.csv", ""), ("timing.csv", "_timing")):
            recorded = sweep / f"yolov4tiny_cudnn_fp32_b{batch}{source}.csv.xz"
            (folder / name).write_bytes(lzma.decompress(recorded.read_bytes()))
        manifest = {"run_id": f"gemm-{size}", "workload": "gemm", "backend": "eager"}
        manifest |= {"precision": "fp32", "batch": 1, "program": ["./gemm", "--size", size]}
        (folder / "run.json").write_text(json.dumps(manifest))
    return tmp_path / "runs"


def test_they_become_workloads_of_their_own_and_a_warning_names_the_argument(runs):
    kernels = ingest([runs])
    assert set(kernels.frame["workload"]) == {"gemm --size 512", "gemm --size 1024"}
    [warning] = [text for text in kernels.warnings if "different arguments" in text]
    assert "--size 512" in warning
    assert "--size 1024" in warning
    assert "--label workload=gemm" in warning


def test_they_are_repeats_where_the_user_says_so(runs):
    kernels = ingest([runs], settings=IngestSettings(Identity("gemm")))
    assert set(kernels.frame["workload"]) == {"gemm"}
    assert any("count as repeats" in text for text in kernels.warnings)


def test_the_command_that_nvprof_wrote_counts_too(tmp_path):
    log = (DATA / "nvprof" / "summary.csv").read_text()
    command = next(line for line in log.splitlines() if "command:" in line)
    for size in ("512", "1024"):
        folder = tmp_path / size
        folder.mkdir()
        (folder / "summary.csv").write_text(log.replace(command, f"{command} {size}"))
    workloads = set(ingest([tmp_path / "512", tmp_path / "1024"]).frame["workload"])
    assert len(workloads) == 2


@pytest.mark.parametrize(
    ("commands", "labels"),
    [
        ([("a", "1"), ("a", "1")], ["", ""]),
        ([("a", "1"), ("b", "2")], ["", ""]),
        ([("/x/a", "1"), ("/y/a", "2")], ["1", "2"]),
        ([("a", "--n=1", "v"), ("a", "--n=2", "v")], ["--n=1", "--n=2"]),
        ([("a", "-n", "1"), ("a",)], ["-n 1", "no arguments"]),
        ([(), ("a", "1")], ["", ""]),
    ],
)
def test_only_arguments_of_one_program_are_compared(commands, labels):
    runs = [(SAME, command) for command in commands]
    assert differing_arguments(runs) == labels


def test_runs_of_other_conditions_are_not_compared():
    runs = [(SAME, ("a", "1")), ((*SAME[:3], "8"), ("a", "2"))]
    assert differing_arguments(runs) == ["", ""]
