"""Merging on disk gives what merging in memory gives, however the rows lie in their files."""

import subprocess
import sys
import textwrap
from unittest import mock

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfml.errors import InputError, TableError
from perfml.ingest import ingest
from perfml.ingest.merge import batches
from perfml.ingest.merge.batches import merge_files
from perfml.ingest.merge.rule import merge, unattributed_time
from perfml.tables import read_table, write_table
from perfml.util.json_values import json_value
from tests.support.command_line import run
from tests.support.examples import examples
from tests.support.paths import DATA, ROOT
from tests.support.tables import make_kernels

pytestmark = pytest.mark.long

FRACTION, COUNT, MOST = "achieved_occupancy", "inst_executed", "registers_per_thread"
KEY = ["run_id", "iteration", "layer"]
RECORDED = ROOT / "datasets" / "h200-yolov4-tiny" / "kernels.parquet"


def write(kernels, path, rows=None):
    """Write a Kernels table with so many launches a row group."""
    write_table(kernels, path, kind="kernels", provenance={"sources": [{"path": path.name}]})
    if rows is not None:
        table = pq.read_table(path)
        pq.write_table(table, path, row_group_size=rows)
    return path


def same(found, expected, *, ordered=True):
    """Compare two Layers tables: numbers to 1e-12, all else exactly."""
    assert list(found.columns) == list(expected.columns)
    if not ordered:
        found, expected = (
            each.sort_values([*KEY, "kernel_names"]).reset_index(drop=True)
            for each in (found, expected)
        )
    for name in expected:
        if name in ("kernel_names", "kernels", *KEY) or not pd.api.types.is_numeric_dtype(
            expected[name]
        ):
            left, right = (each[name].astype(object) for each in (found, expected))
            assert (left.isna() == right.isna()).all(), name
            assert left.dropna().tolist() == right.dropna().tolist(), name
        else:
            np.testing.assert_allclose(
                found[name].to_numpy(dtype=float),
                expected[name].to_numpy(dtype=float),
                rtol=1e-12,
                err_msg=name,
            )


def on_disk(source, tmp_path, batch=batches.BATCH_ROWS, **options):
    """Merge with so many launches in a batch."""
    out = tmp_path / "layers.parquet"
    with mock.patch.object(batches, "BATCH_ROWS", batch):
        merge_files(source, out, **options)
    return read_table(out, kind="layers").frame


@pytest.fixture(scope="session")
def recorded():
    """Six recorded runs of several backends."""
    frame = read_table(RECORDED, kind="kernels").frame
    by_backend = frame.groupby("backend")["run_id"].unique()
    runs = [run for runs in by_backend for run in runs[:2]]
    return frame[frame["run_id"].isin(runs)].reset_index(drop=True)


missing = st.just(float("nan"))
# no fraction is so small that its product with a time leaves the range of a double
fraction = st.one_of(st.just(0.0), st.floats(1e-100, 1), missing)
launch = st.fixed_dictionaries(
    {
        "run_id": st.sampled_from(["a", "b"]),
        "layer": st.sampled_from(["conv_01", "conv_02", None]),
        "iteration": st.integers(0, 1),
        "kernel": st.sampled_from(["gemm", "im2col", "gemm2"]),
        "kernel_index": st.integers(0, 3),
        "device": st.sampled_from(["H200", None]),
        "time_us": st.floats(0.001, 1e6),
        "launches": st.sampled_from([1, 1, 5, None]),
        FRACTION: fraction,
        COUNT: st.one_of(st.integers(0, 10**9).map(float), missing),
        MOST: st.one_of(st.integers(0, 255).map(float), missing),
    }
)


@pytest.mark.slow
@examples(60)
@given(
    rows=st.lists(launch, min_size=1, max_size=30),
    size=st.integers(1, 31),
    batch=st.integers(1, 31),
    ordered=st.booleans(),
)
def test_any_rows_in_batches_of_any_size_merge_as_in_memory(
    tmp_path_factory, rows, size, batch, ordered
):
    if ordered:
        rows = sorted(rows, key=lambda row: [str(row[name]) for name in KEY])
    kernels = make_kernels(rows)
    if kernels["layer"].isna().all():
        return
    folder = tmp_path_factory.mktemp("merge")
    path = write(kernels, folder / "kernels.parquet", size)
    expected = merge(read_table(path).frame)
    # of runs whose launches are mixed the one that ends first is written first
    same(on_disk(path, folder, batch), expected, ordered=ordered)


def test_rows_that_never_say_how_many_launches_they_stand_for_stand_for_one(tmp_path):
    path = write(make_kernels([{"launches": None}, {"launches": None}]), tmp_path / "k.parquet")
    merged = on_disk(path, tmp_path, 1)
    same(merged, merge(read_table(path).frame))
    assert merged["kernels"].tolist() == [2]


def test_a_folder_of_runs_merges_as_one_table(recorded, tmp_path):
    for run_id, part in recorded.groupby("run_id", sort=False):
        (tmp_path / "all" / f"backend={part['backend'].iloc[0]}").mkdir(parents=True, exist_ok=True)
        write(part, tmp_path / "all" / f"backend={part['backend'].iloc[0]}" / f"{run_id}.parquet")
    found = on_disk(tmp_path / "all", tmp_path, 2000)
    same(found, merge(recorded), ordered=False)
    document = read_table(tmp_path / "layers.parquet").provenance
    assert len(document["sources"]) == recorded["run_id"].nunique()


def test_a_run_that_is_spread_over_files_stays_one_run(recorded, tmp_path):
    part = recorded[recorded["run_id"] == recorded["run_id"].iloc[0]]
    (tmp_path / "all").mkdir()
    for number, rows in enumerate(np.array_split(np.arange(len(part)), 7)):
        write(part.iloc[rows], tmp_path / "all" / f"part-{number}.parquet")
    same(on_disk(tmp_path / "all", tmp_path, 300), merge(part))


def test_what_ran_outside_layers_is_accounted_for(tmp_path):
    rows = [
        {"run_id": run, "layer": layer, "time_us": time, "kernel_index": i}
        for run in ("b", "a")
        for i, (layer, time) in enumerate([("conv_01", 3.0), (None, 1.0), ("conv_01", 2.0)])
    ]
    kernels = make_kernels([*rows, {"run_id": "c", "layer": None, "time_us": np.nan}])
    path = write(kernels, tmp_path / "kernels.parquet", 2)
    merged = merge_files(path, tmp_path / "layers.parquet")
    pd.testing.assert_frame_equal(
        pd.DataFrame(merged.unattributed), unattributed_time(kernels), check_dtype=False
    )
    assert merged.kernels == 7
    assert [run["run_id"] for run in merged.runs] == ["b", "a"]


def test_what_was_not_measured_is_told_as_in_memory(tmp_path):
    rows = [
        {"layer": f"l{i}", "time_us": time, FRACTION: value, COUNT: value}
        for i in range(4)
        for time, value in [(1.0 + i, 0.5), (2.0, np.nan)]
    ]
    kernels = make_kernels(rows)
    path = write(kernels, tmp_path / "kernels.parquet", 3)
    with mock.patch.object(batches, "BATCH_ROWS", 3):
        merged = merge_files(path, tmp_path / "layers.parquet")
    expected = merge(kernels).attrs["coverage"]
    assert json_value(merged.coverage) == expected
    document = read_table(tmp_path / "layers.parquet").provenance
    assert document["coverage"] == expected
    assert {entry["metric"]: entry["left_out"] for entry in expected} == {FRACTION: 1, COUNT: 4}
    assert any("4 of 4 rows" in warning for warning in document["warnings"])


def test_the_summary_counts_rows_layers_and_iterations_a_run(recorded, tmp_path):
    path = write(recorded, tmp_path / "kernels.parquet", 500)
    merged = merge_files(path, tmp_path / "layers.parquet")
    expected = merge(recorded)
    assert merged.rows == len(expected)
    assert merged.layers == expected["layer"].nunique()
    by_run = expected.groupby("run_id", sort=False)
    assert [run["rows"] for run in merged.runs] == by_run.size().tolist()
    assert [run["layers"] for run in merged.runs] == by_run["layer"].nunique().tolist()
    assert [run["iterations"] for run in merged.runs] == by_run["iteration"].nunique().tolist()
    expected_us = by_run["time_us"].sum() / by_run["iteration"].nunique()
    np.testing.assert_allclose(
        [run["us_per_iteration"] for run in merged.runs], expected_us, atol=0.0051
    )


@pytest.mark.parametrize("time", [0.0, -1.0, np.nan, np.inf])
def test_a_time_that_is_not_positive_is_an_error_that_names_the_kernel(tmp_path, time):
    rows = [{"iteration": i} for i in range(9)]
    kernels = make_kernels([*rows, {"kernel": "volta_sgemm_128x64_nn", "time_us": time}])
    path = write(kernels, tmp_path / "kernels.parquet", 2)
    with pytest.raises(TableError, match="volta_sgemm_128x64_nn"):
        merge_files(path, tmp_path / "layers.parquet")
    assert list(tmp_path.iterdir()) == [path]


def test_damage_within_a_file_is_an_error_that_names_it(recorded, tmp_path):
    path = write(recorded, tmp_path / "kernels.parquet", 500)
    data = bytearray(path.read_bytes())
    data[len(data) // 3 : len(data) // 2] = bytes(len(data) // 2 - len(data) // 3)
    path.write_bytes(data)
    with pytest.raises(InputError, match="not a readable Parquet file"):
        merge_files(path, tmp_path / "layers.parquet")


def test_tables_of_layers_and_folders_without_tables_are_refused(recorded, tmp_path):
    write_table(
        merge(recorded.head(200)), tmp_path / "layers.parquet", kind="layers", provenance={}
    )
    with pytest.raises(InputError, match="a layers table"):
        merge_files(tmp_path / "layers.parquet", tmp_path / "out.parquet")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="no Parquet file"):
        merge_files(tmp_path / "empty", tmp_path / "out.parquet")


def test_of_a_table_with_many_metrics_fewer_launches_are_read_at_once(
    monkeypatch, recorded, tmp_path
):
    monkeypatch.setattr(batches, "BATCH_CELLS", 100_000)
    sizes = []
    read = batches.KernelFiles.read

    def noting(files, columns, rows):
        sizes.append(rows * len(columns))
        return read(files, columns, rows)

    monkeypatch.setattr(batches.KernelFiles, "read", noting)
    path = write(recorded, tmp_path / "kernels.parquet")
    same(on_disk(path, tmp_path), merge(recorded))
    assert max(sizes) < 150_000


@pytest.mark.slow
def test_memory_does_not_grow_with_the_table(recorded, tmp_path):
    """What more rows take is less than half of their numbers."""
    code = """
        import sys
        from perfml.ingest.merge.batches import merge_files
        merge_files(sys.argv[1], sys.argv[2])
        lines = open("/proc/self/status").read().split("VmHWM:")[1].split()
        print(int(lines[0]) // 1024)
    """
    peaks = []
    schema = None
    for repeats in (20, 60):
        path = tmp_path / f"{repeats}.parquet"
        schema = pa.Table.from_pandas(recorded, preserve_index=False).schema
        with pq.ParquetWriter(path, schema) as writer:
            for number in range(repeats):
                part = recorded.assign(run_id=recorded["run_id"] + f"-{number}")
                writer.write_table(pa.Table.from_pandas(part, schema, preserve_index=False))
        command = [sys.executable, "-c", textwrap.dedent(code), path, tmp_path / "out.parquet"]
        peaks.append(int(subprocess.check_output(command, text=True)))
    numbers = 40 * recorded.select_dtypes("number").size * 8 / 2**20
    assert peaks[1] - peaks[0] < numbers / 2, (peaks, numbers)


def test_where_times_come_from_is_kept_over_files_of_which_one_does_not_say(tmp_path):
    told = make_kernels(
        [
            {"run_id": "a", "time_source": source, "process": number, "kernel": source}
            for source, number in (("timing", 1), ("apportioned", 1))
        ]
    )
    silent = make_kernels([{"run_id": "b", "kernel": "gemm"}])
    (tmp_path / "in").mkdir()
    write(told, tmp_path / "in" / "a.parquet")
    write(silent, tmp_path / "in" / "b.parquet")
    merge_files(tmp_path / "in", tmp_path / "out.parquet")
    layers = read_table(tmp_path / "out.parquet", kind="layers").frame
    assert layers["time_source"].fillna("").tolist() == ["apportioned+timing", ""]
    assert layers["process"].fillna(0).tolist() == [1, 0]


@pytest.mark.parametrize("name", ["trace.csv", "kernels.parquet"])
def test_the_verb_merges_by_kernel_where_no_launch_lies_in_a_range(name, tmp_path):
    trace = DATA / "nvprof" / "trace.csv"
    kernels = ingest([trace])
    (tmp_path / "trace.csv").write_bytes(trace.read_bytes())
    write_table(kernels.frame, tmp_path / "kernels.parquet", kind="kernels", provenance={})
    words = ["merge", tmp_path / name, "--out", tmp_path / "layers.parquet"]
    done = run(*words)
    assert done.exit_code == 0, done.output
    assert set(read_table(tmp_path / "layers.parquet").frame["layer"]) == {"im2col", "gemm"}
