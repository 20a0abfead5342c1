"""Ingest into a folder: whole runs, each once, as in memory."""

import json
import shutil
from pathlib import Path

import joblib
import numpy as np
import pandas as pd
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest

from perfml.errors import InputError
from perfml.ingest import IngestSettings, ingest_folder
from perfml.ingest import folder as ingesting
from perfml.ingest.merge.files import kernel_files
from perfml.ingest.profiles import ingest
from perfml.ingest.run_labels import Identity
from perfml.tables import read_table
from tests.support.command_line import run
from tests.support.paths import ROOT

pytestmark = pytest.mark.long

SWEEP = ROOT / "studies/data/h200-sweep"
RUNS = ("yolov4tiny_cublas_fp32_b1", "yolov4tiny_cudnn_fp32_b1")
ORDER = ["run_id", "iteration", "kernel_index"]


@pytest.fixture
def profiles(tmp_path):
    """Two recorded runs and their layers' shapes."""
    folder = tmp_path / "profiles"
    folder.mkdir()
    for path in SWEEP.iterdir():
        if path.name.startswith(RUNS) or path.name == "layers.json":
            shutil.copy(path, folder)
    return folder


def tables(folder):
    return sorted(folder.rglob("*.parquet"))


def content(folder):
    frames = [read_table(path, kind="kernels").frame for path in tables(folder)]
    return pd.concat(frames, ignore_index=True).sort_values(ORDER, ignore_index=True)


def timing(path, kernels=("im2col", "gemm"), layers=("conv_01", "conv_02")):
    lines = ["iteration,layer,kernel,time_us"]
    lines += [f"0,{layer},{kernel},{3.5}" for layer in layers for kernel in kernels]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_a_folder_holds_what_one_table_would(profiles, tmp_path):
    landed = ingest_folder([profiles], tmp_path / "kernels", n_jobs=1)
    expected = ingest([profiles]).frame.sort_values(ORDER, ignore_index=True)
    found = content(tmp_path / "kernels")
    assert landed.kernels == len(expected) == len(found)
    assert sorted(landed.added) == sorted(expected["run_id"].unique())
    for name in expected:
        if pd.api.types.is_numeric_dtype(expected[name]):
            np.testing.assert_array_equal(
                found[name].to_numpy(dtype=float), expected[name].to_numpy(dtype=float)
            )
        else:
            pd.testing.assert_series_equal(
                found[name].astype("string"), expected[name].astype("string")
            )


def test_tables_lie_by_workload_and_backend_with_their_own_provenance(profiles, tmp_path):
    ingest_folder([profiles], tmp_path / "kernels", n_jobs=1)
    places = {path.parent.relative_to(tmp_path / "kernels") for path in tables(tmp_path)}
    assert places == {
        Path("workload=yolov4-tiny/backend=cublas"),
        Path("workload=yolov4-tiny/backend=cudnn"),
    }
    for path in tables(tmp_path):
        table = read_table(path, kind="kernels")
        (run_id,) = table.frame["run_id"].unique()
        assert [each["run_id"] for each in table.provenance["sources"]] == [run_id, run_id]
        assert all(len(each["sha256"]) == 64 for each in table.provenance["sources"])
    whole = kernel_files(tmp_path / "kernels").provenance
    expected = ingest([profiles]).provenance
    assert whole["layers"] == expected["layers"]
    assert sorted(each["sha256"] for each in whole["sources"]) == sorted(
        each["sha256"] for each in expected["sources"]
    )


def test_columns_have_one_type_in_all_files_and_pyarrow_reads_them_as_one(profiles, tmp_path):
    timing(tmp_path / "net_triton_fp16_b1.csv")
    ingest_folder([profiles, tmp_path / "net_triton_fp16_b1.csv"], tmp_path / "kernels", n_jobs=1)
    common = pq.read_schema(tmp_path / "kernels" / "_common_metadata")
    names = set()
    for path in tables(tmp_path):
        schema = pq.read_schema(path)
        assert all(common.field(field.name).type == field.type for field in schema)
        names.update(schema.names)
    assert names == set(common.names)
    whole = pyarrow.dataset.dataset(tables(tmp_path), schema=common)
    assert whole.count_rows() == len(content(tmp_path / "kernels"))
    assert whole.to_table(columns=["gld_efficiency"]).column(0).null_count >= 4


def test_only_what_is_new_is_read(profiles, tmp_path, monkeypatch):
    ingest_folder([profiles], tmp_path / "kernels", n_jobs=1)
    new = timing(profiles / "net_triton_fp16_b1.csv")
    read = []
    real = ingesting.ingest_runs
    monkeypatch.setattr(
        ingesting,
        "ingest_runs",
        lambda groups, **rest: (read.append(groups), real(groups, **rest))[1],
    )
    landed = ingest_folder([profiles], tmp_path / "kernels", n_jobs=1)
    assert [files for groups in read for files, _ in groups] == [[new]]
    assert len(landed.added) == 1
    assert len(landed.present) == 2


def test_other_settings_replace_what_was_read_before(profiles, tmp_path):
    ingest_folder([profiles], tmp_path / "kernels", n_jobs=1)
    rows = len(content(tmp_path / "kernels"))
    settings = IngestSettings(identity=Identity(backend="mine"))
    landed = ingest_folder([profiles], tmp_path / "kernels", settings=settings, n_jobs=1)
    assert len(landed.replaced) == 2
    found = content(tmp_path / "kernels")
    assert len(found) == rows
    assert found["backend"].unique().tolist() == ["mine"]


def test_a_run_of_the_same_name_and_other_content_is_refused(tmp_path):
    for folder, kernels in (("a", ("gemm",)), ("b", ("gemm", "relu"))):
        (tmp_path / folder).mkdir()
        timing(tmp_path / folder / "timing.csv", kernels)
        manifest = {"run_id": "net-1", "workload": "net", "backend": "cudnn"}
        (tmp_path / folder / "run.json").write_text(json.dumps(manifest))
    ingest_folder([tmp_path / "a"], tmp_path / "kernels", n_jobs=1)
    landed = ingest_folder([tmp_path / "b"], tmp_path / "kernels", n_jobs=1)
    ((source, error),) = landed.failed
    assert source == str(tmp_path / "b")
    assert "has the run already" in str(error)
    assert len(content(tmp_path / "kernels")) == 2


def test_one_bad_file_is_reported_and_the_others_land(profiles, tmp_path):
    (profiles / "net_cublas_b1.csv").write_text('"ID","Process ID","Process Name"\n')
    landed = ingest_folder([profiles], tmp_path / "kernels", n_jobs=2)
    assert len(landed.added) == 2
    ((source, error),) = landed.failed
    assert source.endswith("net_cublas_b1.csv")
    assert error.cure
    assert not list((tmp_path / "kernels").glob(".incoming*"))


def test_a_crash_while_landing_leaves_no_half_table(profiles, tmp_path, monkeypatch):
    def killed(table, path):
        path.write_bytes(b"PAR1 half")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ingesting, "_save", killed)
        with pytest.raises(KeyboardInterrupt):
            ingest_folder([profiles], tmp_path / "kernels", n_jobs=1)
    assert tables(tmp_path / "kernels") == []
    assert len(ingest_folder([profiles], tmp_path / "kernels", n_jobs=1).added) == 2


def test_a_run_whose_table_is_lost_is_read_again(profiles, tmp_path):
    ingest_folder([profiles], tmp_path / "kernels", n_jobs=1)
    lost = tables(tmp_path / "kernels")[0]
    lost.unlink()
    assert len(ingest_folder([profiles], tmp_path / "kernels", n_jobs=1).added) == 1
    assert lost.exists()


def test_an_nvprof_log_that_finds_its_times_later_is_not_counted_twice(tmp_path):
    """A metrics log alone, then beside the log that has its times: the same run, now timed."""
    recorded = ROOT / "tests" / "data" / "nvprof"
    logs = tmp_path / "logs"
    logs.mkdir()
    shutil.copy(recorded / "summary.csv", logs)
    shutil.copy(recorded / "trace.csv", logs)
    ingest_folder([logs], tmp_path / "kernels", n_jobs=1)
    first = content(tmp_path / "kernels")
    shutil.copy(recorded / "metrics.csv", logs)
    landed = ingest_folder([logs], tmp_path / "kernels", n_jobs=1)
    expected = ingest([logs]).frame
    found = content(tmp_path / "kernels")
    assert not landed.failed
    assert len(found) == len(expected) < len(first) + 2
    assert sorted(found["run_id"].unique()) == sorted(expected["run_id"].unique())


def test_a_timing_pass_that_comes_later_replaces_the_run_without_it(profiles, tmp_path):
    (timing_pass,) = profiles.glob("*cublas*_timing.csv.xz")
    timing_pass.rename(tmp_path / timing_pass.name)
    ingest_folder([profiles], tmp_path / "kernels", n_jobs=1)
    (tmp_path / timing_pass.name).rename(timing_pass)
    ingest_folder([profiles], tmp_path / "kernels", n_jobs=1)
    assert len(content(tmp_path / "kernels")) == len(ingest([profiles]).frame)
    assert len(tables(tmp_path / "kernels")) == 2


def test_collected_runs_with_the_same_bytes_are_two_runs(tmp_path):
    for run_id in ("net-1", "net-2"):
        (tmp_path / "runs" / run_id).mkdir(parents=True)
        timing(tmp_path / "runs" / run_id / "timing.csv")
        manifest = {"run_id": run_id, "workload": "net", "backend": "cudnn"}
        (tmp_path / "runs" / run_id / "run.json").write_text(json.dumps(manifest))
    landed = ingest_folder([tmp_path / "runs"], tmp_path / "kernels", n_jobs=1)
    assert sorted(landed.added) == ["net-1", "net-2"]


def test_processes_start_only_for_work_that_pays_for_them(tmp_path, monkeypatch):
    sources = [
        timing(tmp_path / f"net_cudnn_fp32_b{batch}.csv", (f"k{batch}",)) for batch in range(1, 7)
    ]
    started = []
    real = joblib.Parallel

    def counted(**words):
        started.append(words)
        return real(**{**words, "n_jobs": 2, "prefer": "threads"})

    monkeypatch.setattr(joblib, "Parallel", counted)
    assert len(ingest_folder(sources, tmp_path / "short").added) == 6
    assert started == []
    monkeypatch.setattr(ingesting, "WORTH_PROCESSES", 0)
    assert len(ingest_folder(sources, tmp_path / "long").added) == 6
    assert [words["n_jobs"] for words in started] == [-1]


@pytest.mark.parametrize("name", ["../../etc", "a/b", "", ".", "..", "ünï %2F=", "x" * 300])
def test_names_from_profiles_never_leave_the_folder(tmp_path, name):
    source = timing(tmp_path / "net_cudnn_fp32_b1.csv")
    folder = tmp_path / "kernels"
    settings = IngestSettings(identity=Identity(workload=name or None, backend=name or None))
    ingest_folder([source], folder, settings=settings, n_jobs=1)
    (table,) = tables(tmp_path)
    assert table.parent.parent.parent == folder
    assert read_table(table).frame["workload"].iloc[0] == (name or "net")


def test_a_folder_that_cannot_be_made_is_an_error(profiles, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot write here"):
        ingest_folder([profiles], tmp_path / "file", n_jobs=1)


def test_the_verbs_go_from_profiles_to_layers_through_a_folder(profiles, tmp_path):
    out, layers = tmp_path / "kernels", tmp_path / "layers.parquet"
    first = run("ingest", profiles, "--partition", "--out", out, "--jobs", 1, "--json", "-q")
    assert first.exit_code == 0, first.output
    assert json.loads(first.stdout)["kernels"] == len(content(out))
    second = run("ingest", profiles, "--partition", "--out", out, "-q")
    assert "2 runs there already" in second.stdout
    merged = run("merge", out, "--out", layers, "--json", "-q")
    assert merged.exit_code == 0, merged.output
    document = json.loads(merged.stdout)
    assert (document["layers"], len(document["runs"])) == (21, 2)
    assert document["rows"] == len(read_table(layers).frame)
