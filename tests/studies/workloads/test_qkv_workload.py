"""The workload qkv: shapes, options, every kernel's source on the CPU; and the ladder's tables.

The table of the ladder is synthetic: its numbers were made up for the test.
"""

import pytest

from collectors.workloads import Options, workload
from perfml.errors import InputError, PerfmlError
from perfml.tables import write_table
from studies.ladders import measure, qkv_columns
from studies.ladders.qkv_columns import parse_layer
from studies.workloads.qkv import shapes
from studies.workloads.qkv import workload as qkv
from studies.workloads.qkv.shapes import SHAPES, Shape, blocks_of, parse_blocks
from tests.support.ladders_on_cpu import COMPILER, on_cpu
from tests.support.ranges import ListedRanges
from tests.support.tables import make_kernels

pytestmark = pytest.mark.slow


def test_the_shapes_are_those_of_the_assignment():
    small, large = SHAPES["small"], SHAPES["large"]
    assert (small.model, small.qkv, small.words) == (32, 96, 29700)
    assert (large.model, large.qkv, large.words) == (512, 1536, 2970)
    assert large.iterations == 512 * 1536 * 2970
    # 12 and 3,072 KiB of weights, 3,712 and 5,940 KiB of words
    assert small.read_bytes == (12 * 1024) + 29700 * 128
    assert large.read_bytes == (3072 + 5940) * 1024


def test_every_shape_is_launched_with_every_number_of_warps():
    found = [f"{shape.name}_w{warps}" for shape, warps in qkv.WORKLOAD.layers(Options("strip"))]
    warps = (1, 2, 3, 4, 8, 16, 32)
    assert found == [f"{shape}_w{each}" for shape in ("small", "large") for each in warps]
    assert parse_layer("large_w16") == (SHAPES["large"], 16)
    assert parse_layer("conv_03") is None
    assert parse_layer("huge_w4") is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (Options("nosuch"), "no such version"),
        (Options("base", precision="fp16"), "does not offer this precision"),
        (Options("base", batch=2), "part of a shape"),
        (Options("base", device="cpu"), "CUDA kernels"),
        (Options("base", settings=(("shapes", "huge"),)), "not a list of layer shapes"),
        (Options("base", settings=(("shapes", "small,small"),)), "not a list of layer shapes"),
        (Options("base", settings=(("warps", "33"),)), "not a list of warps"),
        (Options("base", settings=(("warps", "4,04"),)), "not a list of warps"),
        (Options("base", settings=(("blocks", "-33"),)), "not a number of blocks"),
        (Options("base", settings=(("blocks", "--1"),)), "not a number of blocks"),
    ],
)
def test_what_cannot_be_run_is_refused(options, message):
    with pytest.raises(InputError, match=message):
        workload("qkv").session(options)


def test_blocks_are_one_a_multiprocessor_unless_asked_for():
    assert parse_blocks("0") == 0
    assert parse_blocks("264") == 264
    assert [blocks_of(parse_blocks(text), 132) for text in ("0", "-1", "-2", "264")] == [
        132, 132, 264, 264,
    ]  # fmt: skip
    assert qkv_columns.parse_layer("large_w4_n2") == (SHAPES["large"], 4)
    assert qkv_columns.parse_layer("large_w4_n") is None


@pytest.mark.extras
@pytest.mark.skipif(COMPILER is None, reason="needs a C++ compiler")
@pytest.mark.parametrize("version", [*qkv.VERSIONS, qkv.YARDSTICK])
def test_every_version_is_right_on_fresh_inputs(version, monkeypatch, tmp_path):
    # fewer words, and no multiple of the four that a warp of the strips has
    few = {
        name: Shape(name, each.model, each.qkv, 38 if name == "small" else 3)
        for name, each in SHAPES.items()
    }
    monkeypatch.setattr(qkv, "SHAPES", few)
    monkeypatch.setattr(shapes, "SHAPES", few)
    settings = (("warps", "1,3"), ("blocks", "0"))
    with on_cpu(monkeypatch, qkv, tmp_path):
        session = workload("qkv").session(Options(version, settings=settings))
        with session.active():
            rows = session.check()
            ranges = ListedRanges()
            session.run(ranges)
    names = ["small_w1", "small_w3", "large_w1", "large_w3"]
    assert ranges.paths == names
    assert [row.output for row in rows] == [f"{name}/qkv" for name in names]
    assert all(row.passed for row in rows), rows
    described = session.describe()
    assert described["settings"]["blocks"] == 3
    assert described["layers"][1]["warps"] == 3


# --- the ladder's tables

READS = {"base": 1000.0, "base_w2": 1000.0, "strip": 250.0, "strip_w2": 250.0}
SECTORS = {"base": 16.5, "base_w2": 2.5, "strip": 6.0, "strip_w2": 2.5}
TIMES = {"base": 6000.0, "base_w2": 1600.0, "strip": 2200.0, "strip_w2": 1000.0}


def synthetic_table():
    large = SHAPES["large"]
    rows = []
    for backend, time in TIMES.items():
        for iteration in range(4):
            rows.append(
                {
                    "run_id": f"synthetic-{backend}",
                    "workload": "qkv",
                    "backend": backend,
                    "device": "NVIDIA H200",
                    "iteration": iteration,
                    "layer": "large_w16",
                    "kernel": f"{backend}_large",
                    "kernel_index": 0,
                    "time_us": time * (1 + 0.001 * iteration),
                    "inst_executed": 3.5 * large.iterations / 32,
                    "ipc": 1.12,
                    "gld_transactions": SECTORS[backend] * large.iterations * 2 / 32,
                    "gld_transactions_per_request": SECTORS[backend],
                    "gst_transactions": large.write_bytes / 32,
                    "global_load_requests": large.iterations * 2 / 32,
                    "global_store_requests": large.write_bytes / 128,
                    "l2_global_load_bytes": READS[backend] * large.read_bytes,
                    "l2_local_global_store_bytes": 1.0 * large.write_bytes,
                    qkv_columns.CONFLICTS: (SECTORS[backend] - 1) * large.iterations * 2 / 32,
                }
            )
    return make_kernels(rows)


@pytest.fixture
def synthetic(tmp_path):
    path = tmp_path / "synthetic_qkv.parquet"
    write_table(synthetic_table(), path, kind="kernels", provenance={})
    return path


def test_a_step_has_its_ratio_and_what_explains_it(synthetic):
    found = measure.ladder(str(synthetic))
    steps = {(row["before"], row["after"]): row for row in found["steps"]}
    measured = set(TIMES)
    assert list(steps) == [pair for pair in workload("qkv").steps() if set(pair) <= measured]
    first = steps["base", "base_w2"]
    assert first["ratio"] == pytest.approx(1600 / 6000)
    assert first["verdict"] == "faster"
    # what was counted and changed are the sectors
    assert "sectors per request ×0.27" in first["because"]
    assert steps["base", "strip"]["layer"] == "large_w16"


def test_the_columns_of_the_study_are_normalised_to_the_least_work(synthetic):
    rows = {row["backend"]: row for row in measure.ladder(str(synthetic))["qkv"]}
    row = rows["strip_w2"]
    assert row["insn_per_iteration"] == pytest.approx(3.5)
    assert row["issue"] == pytest.approx(28.0)
    assert row["sectors_per_request"] == 2.5
    assert row["conflicts_per_request"] == pytest.approx(1.5)
    # 3.5 instructions an iteration, two of them loads, 1.12 a cycle
    assert row["cycles_per_request"] == pytest.approx(3.5 / 2 / 1.12)
    assert row["reads"] == pytest.approx(250.0)
    assert row["writes"] == pytest.approx(1.0)
    bytes_moved = 250 * SHAPES["large"].read_bytes + SHAPES["large"].write_bytes
    assert row["gb_per_s"] == pytest.approx(bytes_moved / row["time_us"] / 1e3)
    assert row["insn"] == pytest.approx(28.0 * 3 / 3.5)
    # 2.3 G multiply-adds at 33.5 T a second take 70 of 1,001 us
    assert row["fp"] == pytest.approx(100 * 69.7 / row["time_us"], rel=0.01)
    assert row["bars"] == "++----"


def test_a_metric_that_was_not_collected_is_missing_and_no_zero(tmp_path):
    path = tmp_path / "few.parquet"
    table = synthetic_table().drop(columns=["l2_global_load_bytes", qkv_columns.CONFLICTS])
    write_table(table, path, kind="kernels", provenance={})
    row = measure.ladder(str(path))["qkv"][0]
    assert row["reads"] is None
    assert row["gb_per_s"] is None
    assert row["conflicts_per_request"] is None
    assert row["writes"] == pytest.approx(1.0)


def test_steps_can_be_named_and_a_ladder_without_any_is_an_error(synthetic, capsys):
    found = measure.ladder(str(synthetic), "base:strip_w2")
    assert [(row["before"], row["after"]) for row in found["steps"]] == [("base", "strip_w2")]
    with pytest.raises(PerfmlError, match="pair of backends"):
        measure.ladder(str(synthetic), "base")
    assert measure.main([str(synthetic), "--steps", "base:cublas"]) == 1
    assert "no step of the ladder" in capsys.readouterr().err


def test_a_workload_of_the_users_own_is_compared_backend_by_backend(tmp_path):
    path = tmp_path / "own.parquet"
    table = synthetic_table().assign(workload="my_kernels")
    write_table(table, path, kind="kernels", provenance={})
    found = measure.ladder(str(path))
    pairs = [(row["before"], row["after"]) for row in found["steps"]]
    assert pairs == [("base", "base_w2"), ("base_w2", "strip"), ("strip", "strip_w2")]
    assert found["qkv"] == []


def test_a_yardstick_is_compared_in_the_precision_of_the_version_beside_it():
    rows = [("fused", "fp32"), ("wmma", "fp16"), ("cudnn", "fp32"), ("cudnn", "fp16")]
    table = make_kernels([{"backend": name, "precision": each} for name, each in rows])
    assert measure.precisions(table, "wmma", "cudnn") == [("fp16", "fp16")]
    assert measure.precisions(table, "fused", "cudnn") == [("fp32", "fp32")]
    assert measure.precisions(table, "fused", "wmma") == [("fp32", "fp16")]
    assert measure.precisions(table, "fused", "absent") == []


def test_kernels_that_overlap_on_streams_count_once(synthetic, tmp_path):
    lines = ["iteration,layer,kernel,time_us,start_us,grid,block"]
    lines += [
        f"{i},large_w16,k,{time},{start},,"
        for i in (0, 1)
        for start, time in ((0 + 100 * i, 10), (5 + 100 * i, 10), (50 + 100 * i, 5))
    ]
    for backend in ("base", "strip"):
        run = tmp_path / "runs" / f"synthetic-{backend}"
        run.mkdir(parents=True)
        (run / "timing.csv").write_text("\n".join(lines) + "\n")
    assert measure.busy_times(tmp_path / "runs")["synthetic-base", "large_w16"] == 20.0
    found = measure.ladder(str(synthetic), "base:strip", runs=tmp_path / "runs")
    assert found["steps"][0]["busy_us"] == 20.0
    assert found["steps"][0]["busy_ratio"] == 1.0
    assert "busy, us" in measure.markdown(found)
