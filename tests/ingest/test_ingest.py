import json
import lzma
import shutil

import numpy as np
import pandas as pd
import pytest

from perfml.errors import InputError
from perfml.ingest.layer_map import LayerMap
from perfml.ingest.merge.rule import merge
from perfml.ingest.profiles import IngestSettings, ingest
from perfml.ingest.run_labels import Identity
from perfml.tables import metric_columns
from tests.support.paths import DATA


@pytest.fixture(scope="module")
def first_recordings(recorded):
    return ingest(sorted((recorded / "ncu").glob("yolov4tiny_*_b1_fp32.csv.xz")))


def test_conv_03_under_cudnn_agrees_with_a_calculation_by_hand(first_recordings):
    layers = merge(first_recordings.frame).set_index(["backend", "layer"])
    found = layers.loc[("cudnn", "conv_03")]
    # The three launches of the layer, copied from the recording: durations in us, then
    # sm__warps_active.avg.pct_of_peak_sustained_active, long_scoreboard in percent.
    times = np.array([47.104, 4.704, 3.36])
    occupancy = np.array([8.663519, 66.033372, 23.672092])
    memory = np.array([1.712587, 50.137603, 68.408293])
    assert found["time_us"] == pytest.approx(times.sum(), abs=1e-9)
    weights = times / times.sum()
    assert found["achieved_occupancy"] == pytest.approx((weights * occupancy).sum() / 100, abs=1e-9)
    assert found["stall_memory_dependency"] == pytest.approx(
        (weights * memory).sum() / 100, abs=1e-9
    )


def test_provenance_lists_every_file_with_its_hash(first_recordings):
    sources = first_recordings.provenance["sources"]
    assert [each["format"] for each in sources] == ["ncu-csv", "ncu-csv"]
    assert all(len(each["sha256"]) == 64 for each in sources)


def test_a_profile_takes_the_times_of_the_timing_pass_beside_it(sweep):
    kernels = ingest(sorted(sweep.glob("yolov4tiny_cudnn_fp32_b1*.csv.xz")))
    frame = kernels.frame
    assert frame["iteration"].nunique() == 10
    assert set(frame["metrics_iteration"]) == {0, 1}
    per_inference = frame["time_us"].sum() / 10
    assert per_inference == pytest.approx(885, rel=0.001)
    assert frame["ncu_time_us"].sum() / 10 > per_inference
    assert any("called differently" in warning for warning in kernels.warnings)


@pytest.mark.long
def test_a_folder_is_read_whole(sweep):
    kernels = ingest([sweep])
    assert kernels.frame["run_id"].nunique() == 6
    assert kernels.frame["backend"].nunique() == 3
    assert set(kernels.frame["batch"]) == {1, 8}
    assert len(metric_columns(kernels.frame)) >= 19


@pytest.mark.long
def test_shapes_beside_loose_profiles_travel_in_the_provenance(sweep, tmp_path):
    shapes = {row["layer"]: row for row in ingest([sweep]).provenance["layers"]}
    assert len(shapes) == 21
    assert shapes["conv_03"]["filters"] == 64
    assert shapes["conv_20"]["input"] == "26x26x384"
    profile = sweep / "yolov4tiny_cudnn_fp32_b1.csv.xz"
    (tmp_path / profile.name).write_bytes(profile.read_bytes())
    (tmp_path / "layers.json").write_text('{"layers": {"conv_01": 3}}')
    with pytest.raises(InputError, match="not a list of layer shapes"):
        ingest([tmp_path / profile.name])


def test_what_the_user_says_names_the_run(recorded):
    path = recorded / "ncu" / "yolov4tiny_cudnn_b1_fp32.csv.xz"
    frame = ingest([path], settings=IngestSettings(Identity(backend="mine", batch=4))).frame
    assert set(frame["backend"]) == {"mine"}
    assert set(frame["batch"]) == {4}


@pytest.mark.parametrize(
    ("source", "name", "precision", "warned"),
    [
        ("yolov4tiny_cudnn_b1_fp32.csv.xz", "net_fp32.csv.xz", "fp32", False),
        ("yolov4tiny_cudnn_b1_fp32.csv.xz", "net_bf16.csv.xz", "fp32", True),  # kernels tell
        ("vectors.csv", "vectors_bf16.csv", "bf16", True),  # of another type nothing does
    ],
)
def test_a_precision_that_only_the_file_is_named_by_does_not_decide(
    source, name, precision, warned, recorded, tmp_path
):
    path = tmp_path / name
    data = (recorded / "ncu" / source).read_bytes()
    path.write_bytes(data.replace(b"float", b"T") if source == "vectors.csv" else data)
    kernels = ingest([path])
    assert set(kernels.frame["precision"]) == {precision}
    assert any("--label precision" in each for each in kernels.warnings) is warned
    told = ingest([path], settings=IngestSettings(Identity(precision="fp16")))
    assert set(told.frame["precision"]) == {"fp16"}
    assert not any("--label precision" in each for each in told.warnings)


def test_a_run_folder_is_named_by_its_manifest(sweep, tmp_path):
    folder = tmp_path / "out" / "run-1"
    folder.mkdir(parents=True)
    for name, source in (("metrics.csv", ""), ("timing.csv", "_timing")):
        path = sweep / f"yolov4tiny_cudnn_fp32_b1{source}.csv.xz"
        (folder / name).write_bytes(lzma.decompress(path.read_bytes()))
    manifest = {
        "run_id": "run-1",
        "workload": "w",
        "backend": "cudnn",
        "precision": "fp32",
        "batch": 1,
    }
    (folder / "run.json").write_text(json.dumps(manifest))
    (folder / "log.txt").write_text("what the program printed")
    kernels = ingest([tmp_path / "out"])
    assert set(kernels.frame["run_id"]) == {"run-1"}
    assert set(kernels.frame["workload"]) == {"w"}
    assert kernels.frame["iteration"].nunique() == 10
    assert kernels.provenance["runs"][0]["backend"] == "cudnn"


def test_nvprof_metrics_take_their_times_from_a_log_of_the_same_program(recorded):
    folder = recorded / "nvprof"
    frame = ingest([folder / "metrics.csv", folder / "summary.csv"]).frame
    assert frame["run_id"].nunique() == 1
    assert frame["time_us"].notna().all()
    assert metric_columns(frame)


def test_a_log_of_one_layer_is_given_its_name(recorded):
    folder = recorded / "nvprof"
    kernels = ingest(
        [folder / "metrics.csv", folder / "summary.csv"], settings=IngestSettings(layer="conv_03")
    )
    layers = merge(kernels.frame)
    assert layers["layer"].tolist() == ["conv_03"]
    # a row of nvprof's summary stands for all launches of its kernel
    total = (kernels.frame["time_us"] * kernels.frame["launches"]).sum()
    assert layers["time_us"].iloc[0] == pytest.approx(total)


def test_a_layer_map_gives_layers_to_a_trace_without_ranges(recorded):
    path = recorded / "nvprof" / "trace.txt"
    names = ingest([path]).frame["kernel"].tolist()
    layer_map = LayerMap((("conv_01", (names[0],)), ("conv_02", (names[1],))))
    frame = ingest([path], settings=IngestSettings(layer_map=layer_map)).frame
    assert frame["layer"].tolist()[:2] == ["conv_01", "conv_02"]


def test_an_empty_folder_and_a_missing_file_are_errors(tmp_path):
    with pytest.raises(InputError, match="no profile in this folder"):
        ingest([tmp_path])
    with pytest.raises(InputError, match="no such file"):
        ingest([tmp_path / "none.csv"])


def test_a_run_folder_without_a_profile_is_an_error(tmp_path):
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(InputError, match="has no profile"):
        ingest([tmp_path])


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"SQLite format 3\x00" + b"\0" * 100, None),
        (b"hello\nworld\n", "text, beginning 'hello'"),
        (b"PAR1....", "a Parquet file"),
        (b"\x00\x01\x02", "binary data"),
        (b"\n\n", "only blank lines"),
        (b"", "the file is empty"),
    ],
)
def test_what_is_no_profile_is_named_for_what_it_is(tmp_path, content, found):
    path = tmp_path / "profile"
    path.write_bytes(content)
    with pytest.raises(InputError) as error:
        ingest([path])
    assert str(path) in str(error.value)
    assert found is None or found in str(error.value)


def test_runs_with_different_metrics_stack_with_missing_values(recorded, sweep):
    frame = ingest(
        [recorded / "ncu" / "yolov4tiny_cudnn_b1_fp32.csv.xz", recorded / "nvprof" / "summary.csv"]
    ).frame
    assert isinstance(frame, pd.DataFrame)
    timed_only = frame[frame["time_source"] == "nvprof"]
    assert len(timed_only) == 2
    assert timed_only["achieved_occupancy"].isna().all()


@pytest.mark.parametrize("name", ["run.log", "notes.txt", "empty.log"])
def test_text_in_a_folder_that_is_no_profile_is_left_out_and_named(tmp_path, name):
    shutil.copy(DATA / "ncu" / "vectors.csv", tmp_path / "a.csv")
    (tmp_path / name).write_text("" if name.startswith("empty") else "loss 0.1\n")
    found = ingest([tmp_path])
    assert len(found.provenance["sources"]) == 1
    assert any(name in text for text in found.warnings)
    assert any(name in text for text in found.provenance["warnings"])
    with pytest.raises(InputError, match=r"not a profile|the file is empty"):
        ingest([tmp_path / name])


def test_a_table_beside_profiles_in_a_folder_is_left_out_and_named(tmp_path):
    shutil.copy(DATA / "ncu" / "conv_03_cublas.csv", tmp_path / "conv.csv")
    (tmp_path / "notes.csv").write_text("layer,owner\nconv_03,me\n")
    found = ingest([tmp_path])
    assert len(found.frame) == 5
    assert any("left out: notes.csv" in text for text in found.warnings)
    (tmp_path / "conv.csv").unlink()
    with pytest.raises(InputError, match="no profile in this folder"):
        ingest([tmp_path])


def test_a_file_named_twice_is_read_once_and_a_copy_is_told(tmp_path):
    path = tmp_path / "conv.csv"
    shutil.copy(DATA / "ncu" / "conv_03_cublas.csv", path)
    found = ingest([path, tmp_path / "." / "conv.csv"])
    assert len(found.frame) == 5
    assert any("conv.csv was named more than once" in text for text in found.warnings)
    shutil.copy(path, tmp_path / "again.csv")
    found = ingest([tmp_path])
    assert found.frame["run_id"].nunique() == 2
    assert any("again.csv, conv.csv have the same content" in text for text in found.warnings)
