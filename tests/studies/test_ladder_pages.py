"""The pages of the ladders hold what the data give, and what they say of the seeds is so."""

from __future__ import annotations

import pytest

from studies.ladders.page import (
    CONV,
    PAGES,
    QKV,
    QKV_VERSIONS,
    SIZES,
    TABLES,
    busy,
    columns,
    conv_counters,
    kernels,
    lines_a_request,
    qkv_seed,
    spans,
    table_of,
    times,
)
from studies.workloads.qkv.shapes import SHAPES, layer_name

pytestmark = pytest.mark.page

ANEW = "write it anew: python -m studies.ladders.page"
EXPLAINED = ("conv1", "conv2", "yolo03", "yolo20", "smallsteps", "largesteps")
LAYERS = ("conv1_b1000", "conv2_b1000")


@pytest.mark.parametrize("name", [each for each in TABLES if each not in EXPLAINED])
def test_a_table_of_a_page_is_what_the_data_give(name):
    assert table_of(name) == TABLES[name](), ANEW


@pytest.mark.slow
@pytest.mark.parametrize("name", EXPLAINED)
def test_a_step_is_what_perfml_says_of_it(name):
    assert table_of(name) == TABLES[name](), ANEW


def test_every_page_has_its_tables_once():
    for page, tables in PAGES.items():
        text = page.read_text(encoding="utf-8")
        assert [text.count(f"<!-- {each.__name__} -->") for each in tables] == [1] * len(tables)
        assert text.count("<!-- end -->") == len(tables)


# --- convolution


def _ratio(before, after, layer, precision="fp32"):
    return times(CONV)[after, precision, layer] / times(CONV)[before, "fp32", layer]


def test_streams_gain_five_percent_at_most_and_lose_where_launches_are_short():
    for layer in SIZES:
        gain = busy()["streams", "fp32", layer] / busy()["unroll", "fp32", layer]
        lasted = spans("streams", layer) / spans("unroll", layer)
        if layer.endswith("_b100"):
            assert gain > 1.05
            assert lasted > 1.5
        else:
            assert 0.95 < gain < 1.001
            assert lasted == pytest.approx(gain, abs=0.005)


def test_parts_of_a_launch_read_as_much_as_the_whole():
    mine = kernels(CONV).query("kernel == 'multiply' and layer == 'conv1_b1000' and iteration == 0")
    read = mine.groupby("backend")["dram_read_bytes"].agg(["sum", "size"])
    assert read["size"].to_dict() == {"streams": 4, "unroll": 1}
    assert read.loc["streams", "sum"] == pytest.approx(read.loc["unroll", "sum"], rel=0.001)
    assert read.loc["unroll", "sum"] == pytest.approx(1.25e9, rel=0.01)


@pytest.mark.parametrize("version", ["restrict", "unrolled"])
def test_what_the_compiler_did_already_changes_nothing(version):
    for layer in SIZES:
        assert _ratio("fused", version, layer) == pytest.approx(1, abs=0.002)
    for layer in LAYERS:
        table = conv_counters(layer)
        assert table.loc[version].to_numpy() == pytest.approx(
            table.loc["fused"].to_numpy(), rel=0.006
        )


def test_constant_memory_is_slower_for_other_reasons_than_misses():
    assert _ratio("restrict", "constant", "conv1_b1000") < 1
    assert _ratio("restrict", "constant", "conv2_b1000") > 2.5
    for layer in LAYERS:
        before, after = (conv_counters(layer).loc[name] for name in ("restrict", "constant"))
        assert after["L1 hit %"] < before["L1 hit %"] - 10
        assert after["memory stalls %"] < before["memory stalls %"]
        assert after["DRAM, MB"] == pytest.approx(before["DRAM, MB"], rel=0.01)
    assert after["operand stalls %"] > 2 * before["operand stalls %"]


@pytest.mark.parametrize("version", ["wmma_tf32", "wmma_fp16"])
def test_tensor_cores_help_by_fewer_instructions_and_are_idle_themselves(version):
    for layer in LAYERS:
        before, after = (conv_counters(layer).loc[name] for name in ("restrict", version))
        assert after["tensor %"] < 2
        assert after["instructions, M"] < 0.73 * before["instructions, M"]
        assert after["occupancy %"] < 0.65 * before["occupancy %"]
        assert before["memory stalls %"] < 12
        assert after["L1 hit %"] > before["L1 hit %"]
    precision = version.removeprefix("wmma_")
    assert _ratio("restrict", version, "yolo20_b1", precision) > 2


def test_the_best_tile_is_the_one_whose_rows_have_work():
    widths = {"tile8": 8, "restrict": 16, "tile32": 32}
    for layer, maps, best in ((LAYERS[0], 4, "tile8"), (LAYERS[1], 16, "restrict")):
        spent = {name: times(CONV)[name, "fp32", layer] for name in widths}
        assert min(spent, key=spent.get) == best
        filled = {name: maps / (-(-maps // width) * width) for name, width in widths.items()}
        assert filled[best] == max(filled.values())
    for layer in ("yolo03_b1", "yolo20_b1"):
        assert 1 < _ratio("restrict", "tile32", layer) < 1.07


def test_cudnn_in_half_precision_transforms_one_channel_into_eight():
    mine = kernels(CONV).query("backend == 'cudnn' and precision == 'fp16' and iteration == 0")
    first = mine[mine["layer"] == "conv1_b1000"].iloc[0]
    images = 1000 * 86 * 86 * 2
    assert "nchwToNhwc" in first["kernel"]
    assert first["dram_write_bytes"] == pytest.approx(8 * images, rel=0.05)


# --- QKV


def test_time_is_instructions_over_issue_slots():
    own = kernels(QKV).query("backend != 'cublas'")
    for name, shape in SHAPES.items():
        mine = own[own["layer"].str.startswith(name)]
        constant = mine["ncu_time_us"] * mine["ipc"] / (mine["inst_executed"] / shape.iterations)
        assert (constant / constant.median()).between(0.975, 1.075).all()


def test_full_blocks_take_a_cycle_for_each_line_of_a_request():
    for version in QKV_VERSIONS:
        for shape in SHAPES:
            ours = columns().loc[(version, shape, 32)]["cycles_per_request"]
            assert 0 <= ours - lines_a_request(version, shape) < 0.9, (version, shape)
    for version, lines in (("base_w2", 1), ("strip", 6), ("strip_w2", 2.5)):
        assert lines_a_request(version, "large") == lines
        there = qkv_seed().loc[(version, "large", 32), "conflicts_per_request"]
        assert there + 1 == pytest.approx(lines, abs=0.2)
    assert columns().loc[("base_w2", "large", 32)]["sectors_per_request"] == pytest.approx(
        columns().loc[("strip_w2", "large", 32)]["sectors_per_request"], rel=0.001
    )


def test_reads_of_the_small_layer_are_those_that_the_blocks_make_necessary():
    small, multiprocessors = SHAPES["small"], 132
    weights, words = 4 * small.model * small.qkv, 4 * small.model * small.words
    whole = (multiprocessors * weights + words) / small.read_bytes
    assert whole == pytest.approx(1.42, abs=0.005)
    assert columns().loc[("base", "small", 3)]["reads"] == pytest.approx(whole, rel=0.005)
    thirds = (multiprocessors * weights / 3 + 3 * words) / small.read_bytes
    assert columns().loc[("base", "small", 1)]["reads"] == pytest.approx(thirds, rel=0.005)


def test_strips_cut_the_traffic_and_not_the_time_of_rearranged_weights():
    table, key = columns(), ("large", 32)
    before, after = (table.loc[(name, *key)] for name in ("base_w2", "strip_w2"))
    assert after["reads"] == pytest.approx(before["reads"] / 4, rel=0.02)
    assert after["time_us"] > 1.6 * before["time_us"]
    # no limit of the traffic: it grows, and the time falls, with the warps
    fewer = table.loc[("base_w2", "large", 16)]
    assert before["gb_per_s"] > 1.6 * fewer["gb_per_s"] > 5000
    for version in ("base", "strip"):
        row = table.loc[(version, *key)]
        assert row["time_us"] / row["cycles_per_request"] == pytest.approx(564, rel=0.01)


def test_the_assignments_table_is_complete():
    assert len(qkv_seed()) == 42
    measured = columns().loc[list(QKV_VERSIONS)]
    assert set(qkv_seed().index) <= set(measured.index)
    assert {layer_name(SHAPES[shape], warps) for _, shape, warps in measured.index} == set(
        kernels(QKV)["layer"]
    )
