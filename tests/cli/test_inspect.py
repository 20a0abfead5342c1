"""The verb inspect: a profile's kernels with their calls and times, as nvprof listed them."""

import csv
import io
import json
import math

import pandas as pd

from perfml.cli.tables import kernel_times
from tests.support.command_line import run


def listed(*words):
    result = run("inspect", *words, "--json", "-q")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)["kernels"]


def test_calls_and_times_of_a_kernel_are_those_of_its_rows_in_the_file(recorded):
    path = recorded / "ncu" / "vectors.csv"
    text = path.read_text(encoding="utf-8").splitlines()
    start = next(number for number, line in enumerate(text) if line.startswith('"ID"'))
    rows = list(csv.DictReader(io.StringIO("\n".join(text[start:]))))
    units, launches = rows[0], rows[1:]
    factor = {"us": 1.0, "ns": 1e-3, "ms": 1e3}[units["gpu__time_duration.sum"]]
    found = {row["kernel"].partition("(")[0]: row for row in listed(path)}
    names = {row["Kernel Name"].partition("(")[0] for row in launches}
    assert set(found) == names
    for name in names:
        times = [
            float(row["gpu__time_duration.sum"].replace(",", "")) * factor
            for row in launches
            if row["Kernel Name"].partition("(")[0] == name
        ]
        assert found[name]["calls"] == len(times)
        for key, value in (
            *(("total_us", sum(times)), ("mean_us", sum(times) / len(times))),
            *(("least_us", min(times)), ("largest_us", max(times))),
        ):
            assert math.isclose(found[name][key], value, rel_tol=1e-9)
    assert math.isclose(sum(row["share"] for row in found.values()), 1.0)
    totals = [row["total_us"] for row in listed(path)]
    assert totals == sorted(totals, reverse=True)


def test_a_data_set_of_layers_lists_the_launches_behind_them():
    result = run("inspect", "h200-conv", "-q")
    head = next(line for line in result.stdout.splitlines() if "calls" in line)
    assert head.split() == ["time", "calls", "total,", "µs", "mean", "min", "max", "kernel"]
    assert listed("h200-yolov4-tiny")


def test_a_row_that_stands_for_several_launches_has_no_least_and_no_largest_time():
    frame = pd.DataFrame(
        {
            "kernel": ["a", "a", "b", "c"],
            "time_us": [2.0, 4.0, 5.0, None],
            "launches": [3, None, 1, 1],
        }
    )
    a, b, c = sorted(kernel_times(frame), key=lambda row: row["kernel"])
    assert (a["calls"], a["total_us"], a["mean_us"]) == (4, 10.0, 2.5)
    assert math.isnan(a["least_us"])
    assert math.isnan(a["largest_us"])
    assert (b["least_us"], b["largest_us"]) == (5.0, 5.0)
    assert c["calls"] == 1
    assert math.isnan(c["total_us"])
