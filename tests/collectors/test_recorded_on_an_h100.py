"""What was recorded on an H100: in the process, under CUDA graphs, and by samples of lines."""

import csv
from collections import defaultdict
from pathlib import Path

import pytest

import perfml
from perfml.ingest.merge.rule import merge
from perfml.ingest.profiles import ingest
from tests.support.paths import DATA, ROOT

RECORDED = DATA / "deployed"
PLANTED = ROOT / "tests" / "gpu" / "programs" / "planted_lines.cu"


def rows_of(path):
    with path.open(newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def sums(rows):
    found = defaultdict(float)
    for row in rows:
        if not row["bytes"]:
            found[row["layer"]] += float(row["time_us"])
    return found


def test_nodes_of_replayed_graphs_are_in_the_modules_that_were_compiled():
    by_layer = sums(rows_of(RECORDED / "gpt2_graphs" / "timing.csv"))
    whole = sum(by_layer.values())
    # what torch copies into the graph's inputs is in no module of it
    assert 1 - by_layer["GPT2Model"] / whole >= 0.95
    for block in range(4):
        for part in ("attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj"):
            assert by_layer[f"h.{block}.{part}"] > 0


def test_a_replay_is_an_iteration_with_the_same_layers():
    layers = merge(ingest([RECORDED / "gpt2_graphs"]).frame)
    first, second = (set(part["layer"]) for _, part in layers.groupby("iteration"))
    assert first == second
    recorded = sums(rows_of(RECORDED / "gpt2_graphs" / "timing.csv"))
    assert layers["time_us"].sum() == pytest.approx(sum(recorded.values()))


def test_a_run_of_the_process_itself_has_times_and_counters_of_every_module():
    layers = merge(ingest([RECORDED / "in_process"]).frame)
    names = {"norm", "up", "after_up", "down", "after_down"}
    assert set(layers["layer"]) == {f"{block}.{name}" for block in range(4) for name in names}
    assert layers["time_us"].notna().all()
    assert layers["achieved_occupancy"].notna().all()
    # 64 x 256 rows of 512 by 2048 are 34.4 GFLOP: at most what an H100 does in fp32 (67 TFLOP/s)
    up = layers[layers["layer"] == "1.up"]["time_us"].median()
    assert 2 * 64 * 256 * 512 * 2048 / up / 1e6 < 67


def test_what_suffers_in_that_run_is_told():
    found = perfml.advise(str(RECORDED / "in_process"))
    assert len(found.table)


def test_the_planted_line_is_the_first_of_its_kernel_in_eight_of_ten():
    source = PLANTED.read_text(encoding="utf-8").splitlines()
    planted = {number for number, line in enumerate(source, 1) if line.endswith("// HOT")}
    waiting = defaultdict(dict)
    for row in rows_of(RECORDED / "lines.csv"):
        if Path(row["file"]).name == PLANTED.name:
            waiting[row["kernel"]][int(row["line"])] = int(row["stalled"])
    first = {kernel: max(lines, key=lines.get) for kernel, lines in waiting.items()}
    assert len(first) == 10
    missed = {kernel.split("(")[0] for kernel, line in first.items() if line not in planted}
    # there the line before it, which makes its operand, waits longer
    assert missed == {"counted", "stored"}
