"""What the range profiler left of one process; recorded on an H100."""

import csv

import pytest

from collectors.profilers.counter_record import read_record
from collectors.profilers.counter_table import Measurement, counter_csv, merged
from collectors.profilers.process import ProfilerError
from tests.support.paths import DATA

RECORDED = DATA / "cupti" / "h100_repeats.tsv"


def test_the_recorded_process_is_read():
    record = read_record(RECORDED)
    assert (record.unit, record.units, record.launches) == ("nvtx", 20, 4)
    assert record.complete
    assert record.ended
    assert record.group_passes == {0: 12}
    assert len(record.timed) == 12
    assert [row.kernel.split("(")[0] for row in record.rows] == ["scale", "add", "reduce", "reduce"]
    assert record.rows[2].ranges == ("iter_3", "reduce")
    assert (record.rows[2].registers, record.rows[2].dynamic_shared) == (12, 1024)
    assert record.machine.device == "NVIDIA H100 80GB HBM3"


def test_times_without_counters_are_shorter_than_under_them():
    record = read_record(RECORDED)
    timed = [launch.end_ns - launch.start_ns for launch in record.timed[4:8]]
    under = [row.values["gpu__time_duration.sum"] for row in record.rows]
    assert all(0.5 < left / right < 1.1 for left, right in zip(timed, under, strict=True))


def test_half_a_line_of_a_process_that_was_killed_is_left_out(tmp_path):
    path = tmp_path / "1.tsv"
    lines = RECORDED.read_text().splitlines(keepends=True)
    rows = [place for place, line in enumerate(lines) if line.startswith("R")]
    path.write_text("".join(lines[: rows[1]]) + lines[rows[1]][:40])
    record = read_record(path)
    assert (len(record.rows), record.ended, record.complete) == (1, False, False)


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [("R\t0\t0\t", "R\t0\tx\t", "damaged"), ("# dropped 0", "# dropped 3", "lost records")],
)
def test_damage_and_losses_are_refused(tmp_path, before, after, says):
    path = tmp_path / "1.tsv"
    path.write_text(RECORDED.read_text().replace(before, after, 1))
    with pytest.raises(ProfilerError, match=says):
        read_record(path)


def test_runs_that_launch_different_kernels_are_not_put_together(tmp_path):
    path = tmp_path / "1.tsv"
    path.write_text(RECORDED.read_text().replace("add(float*", "sub(float*"))
    with pytest.raises(ProfilerError, match="two runs of the program launch different kernels"):
        merged([read_record(RECORDED), read_record(path)])


def test_a_metric_that_a_launch_lacks_is_an_empty_cell():
    record = read_record(RECORDED)
    measurement = Measurement(record.machine, "iterations", 12)
    text = counter_csv(record.rows, ["gpu__time_duration.sum", "m__absent"], measurement)
    assert [line.endswith(",") for line in text.splitlines()[-4:]] == [True] * 4


def test_registers_are_those_that_a_thread_is_given():
    record = read_record(RECORDED)
    assert [row.registers for row in record.rows] == [8, 10, 12, 12]
    text = counter_csv(record.rows, [], Measurement(record.machine, "iterations", 12))
    rows = list(csv.DictReader(line for line in text.splitlines() if not line.startswith("#")))
    # as Nsight Compute shows them
    assert [row["launch__registers_per_thread"] for row in rows] == ["16"] * 4
