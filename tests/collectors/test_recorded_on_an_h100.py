"""What was recorded on an H100: in the process, under CUDA graphs, and by samples of lines."""

import csv
import json
import lzma
import shutil
from collections import defaultdict

import pytest

import perfml
from collectors.profilers import lines
from collectors.profilers.process import ProfilerError
from perfml.account.account import ACCOUNT, Account
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


def test_no_advice_saves_more_than_the_step_without_a_profiler(tmp_path):
    run, bare_us = tmp_path / "run", 7000.0
    shutil.copytree(RECORDED / "in_process", run)
    rows = rows_of(run / "timing.csv")
    with (run / "timing.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, rows[0])
        table.writeheader()
        # the host is slowed down by a profiler: most of the step is idle time of unknown reason
        table.writerows({**row, "start_us": 3 * float(row["start_us"])} for row in rows)
    record = json.loads((run / "run.json").read_text())
    record["timing"]["step_us"] = [bare_us] * 3 + [None, "late"]
    (run / "run.json").write_text(json.dumps(record))
    (source,) = (s for s in ingest([run]).provenance["sources"] if ACCOUNT in s)
    account = Account.from_dict(source[ACCOUNT])
    assert (account.step_us > 2 * bare_us, account.bare_us) == (True, bare_us)
    of_step = [each for each in perfml.advise(run).findings if each.holds.of == "step"]
    assert ("unrecorded",) in [each.rules for each in of_step]
    assert all(0 < each.holds.us <= bare_us for each in of_step)
    (idle,) = (each for each in of_step if each.rules == ("unrecorded",))
    assert idle.gain is None
    # the idle time is that of the step without a profiler, too
    assert idle.numbers[0].slow == pytest.approx(account.bare.busiest.step.idle_us)
    gains = [each.gain for each in of_step if each.gain is not None]
    assert all(gain.high.us <= bare_us for gain in gains)


@pytest.fixture
def recorded(tmp_path):
    """Return the samples of the planted kernels, and their code beside them."""
    for packed in ("planted_lines.tsv.xz", "3989636605.cubin.xz"):
        path = tmp_path / packed.removesuffix(".xz")
        path.write_bytes(lzma.decompress((RECORDED / packed).read_bytes()))
    return tmp_path / "planted_lines.tsv"


def test_the_planted_line_is_waited_for_most_in_nine_of_ten_kernels(recorded, tmp_path):
    source = PLANTED.read_text(encoding="utf-8").splitlines()
    planted = {number for number, line in enumerate(source, 1) if line.endswith("// HOT")}
    found = lines.lines_of([recorded])
    lines.write_lines(found, tmp_path / "lines.csv")
    first = {}
    for row in rows_of(tmp_path / "lines.csv"):
        first.setdefault(row["kernel"].split("(")[0], row)
    assert len(first) == 10
    missed = {kernel for kernel, row in first.items() if int(row["line"]) not in planted}
    # its load waits longest, behind the atomics that the planted line sends
    assert missed == {"counted"}
    # it is waited for where its address is overwritten, in the line before
    assert (first["stored"]["waits_at"], first["inlined"]["called_at"]) == (
        "planted_lines.cu:71",
        "planted_lines.cu:82",
    )
    # the samples are those of the record
    told = sum(
        int(cell.partition("=")[2])
        for line in recorded.read_text().splitlines()
        for cell in line.split("\t")[5:]
        if not cell.partition("=")[0].endswith("_not_issued")
    )
    assert sum(each.sampled for each in found) == pytest.approx(told)


def test_without_the_code_the_kernels_are_what_is_left(recorded):
    recorded.with_name("3989636605.cubin").unlink()
    found = lines.lines_of([recorded])
    assert len(found) == 10
    assert {each.file for each in found} == {""}


def test_damaged_code_or_samples_are_no_traceback(recorded):
    cubin = recorded.with_name("3989636605.cubin")
    cubin.write_bytes(cubin.read_bytes()[:5000])
    assert {each.file for each in lines.lines_of([recorded])} == {""}
    recorded.write_text("P\tkernel\n")
    with pytest.raises(ProfilerError, match="damaged"):
        lines.lines_of([recorded])
    recorded.write_text("# error PCSamplingEnable: busy\n")
    with pytest.raises(ProfilerError, match="cannot sample"):
        lines.lines_of([recorded])
    recorded.write_text("# end\n")
    with pytest.raises(ProfilerError, match="no sample"):
        lines.lines_of([recorded])
