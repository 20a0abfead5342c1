"""Serial numbers, addresses and counters in the names of ranges are no identity."""

from __future__ import annotations

import json
import time

import pytest

from perfml.readers import read
from perfml.util.ranges import joined_names
from tests.support.nsys_export import Export

SERIAL = "aten::{}, seq = {}, op_id = {}, sizes = [[8, 8]], input_op_ids = [[{}, 0], [1, 2]]"


@pytest.mark.parametrize(
    ("names", "common"),
    [
        (["mm, op_id = 7", "mm, op_id = 9"], {"mm"}),
        ([SERIAL.format("mm", 1, 2, 3)], {"aten::mm, sizes = [[8, 8]]"}),
        (["copy 0x7ffe12345678", "copy 0x7ffe87654321"], {"copy 0x*"}),
        (["decode frame 3", "decode frame 4", "decode frame 5"], {"decode frame"}),
        (["request-10", "request-11", "request-12"], {"request"}),
    ],
)
def test_numbers_that_count_are_left_out(names, common):
    assert set(joined_names(names)[0].values()) == common
    assert set(joined_names(names)[0]) == set(names)
    assert joined_names(names)[1]


@pytest.mark.parametrize(
    "names",
    [
        ["layer_1", "layer_2", "layer_3", "h.0", "h.1", "conv_01", "conv_02"],
        ["batch_1", "batch_32", "batch_128"],
        ["iter_1", "iter_2", "iter_3", "step 4", "step 5", "step 6"],
        ["copy 0x7ffe12345678", "free 0x7ffe12345678"],
        ["epoch 3"],
    ],
)
def test_numbers_that_name_something_stay(names):
    assert joined_names(names) == ({}, [])


def test_work_grows_with_the_length_of_a_name_and_no_faster():
    def seconds(length):
        begun = time.process_time()
        for part in (", seq = ", "input_op_ids = [", "step ", "0xabcdef", " "):
            joined_names([part * (length // len(part)) + str(n) for n in range(3)])
        return time.process_time() - begun

    assert seconds(160_000) < 40 * max(seconds(16_000), 0.001)


@pytest.fixture(params=["sqlite", "json"])
def numbered(request, tmp_path):
    """Return a recording of two layers in three steps, with serial numbers in their names."""
    path = tmp_path / f"run.{request.param}"
    starts = [(1000 * n, f"aten::{('mm', 'relu')[n % 2]}, op_id = {90 + n}") for n in range(6)]
    if request.param == "sqlite":
        export = Export(path)
        for start, name in starts:
            export.range(name, start, start + 900)
            export.launch("gemm()", start + 10, start + 100, start + 200)
        export.close()
        return path
    events = []
    for n, (start, name) in enumerate(starts):
        host = {"ph": "X", "pid": 1, "tid": 1}
        events.append({**host, "cat": "user_annotation", "name": name, "ts": start, "dur": 900})
        call = {"cat": "cuda_runtime", "name": "cudaLaunchKernel", "args": {"correlation": n}}
        events.append({**host, **call, "ts": start + 10, "dur": 5})
        ran = {"args": {"device": 0, "stream": 7, "correlation": n}, "ts": start + 100, "dur": 100}
        events.append({"ph": "X", "cat": "kernel", "name": "gemm()", **ran})
    path.write_text(json.dumps({"traceEvents": events}))
    return path


def test_layers_of_serial_ranges_repeat_in_every_source(numbered):
    kernels = read(numbered)
    counts = kernels.frame["layer"].str.split("#").str[0].value_counts()
    assert counts.to_dict() == {"aten::mm": 3, "aten::relu": 3}
    assert kernels.frame["iteration"].nunique() == 3
    assert any("6 names" in text for text in kernels.warnings)
