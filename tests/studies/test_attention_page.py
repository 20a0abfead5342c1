"""The page and the card of the attention ladder hold what was recorded; the recorder fits it."""

from __future__ import annotations

import importlib.util
import json
import re

import pandas as pd
import pytest

from collectors.workloads import Options, parse_settings
from perfml.datasets import load
from perfml.ingest.profiles import ingest
from perfml.merge.rule import merge
from perfml.metrics import PUBLISHED, load_catalogue
from perfml.metrics.sets import DURATION
from perfml.tables import read_table
from studies.attention.counters import (
    KERNELS,
    PROFILED,
    TENSOR,
    clock,
    least_wavefronts,
    rows_of,
    steps_of,
    tensor_instructions,
    tensor_share,
)
from studies.attention.page import (
    CARD,
    DATA,
    LADDER,
    PAGE,
    PUBLISHED_RANGES,
    SEED_SECONDS,
    TABLES,
    benchmark,
    table_of,
)
from studies.data import load as load_recording
from studies.workloads.attention import launch
from studies.workloads.attention.workload import plan

pytestmark = pytest.mark.page

ANEW = "write it anew: python -m studies.attention.page"
SKIPPED = {"fused", "shared_48k"}
"""Profiled at two of five sizes."""
ON_CARD = ("times", "times_fp16", "ranges")


@pytest.fixture(scope="module")
def layers():
    return load(DATA).frame


@pytest.fixture(scope="module")
def recording():
    spec = importlib.util.spec_from_file_location("record_attention", DATA / "record.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.RECORDING


# ---- the page ------------------------------------------------------------------------------------


EXPLAINED = ("steps", "tensor_steps", "version_steps")


@pytest.mark.parametrize(
    "name",
    [pytest.param(each, marks=pytest.mark.slow) if each in EXPLAINED else each for each in TABLES],
)
def test_a_table_is_what_the_data_give(name):
    assert table_of(name, CARD if name in ON_CARD else PAGE) == TABLES[name](), ANEW


def test_the_page_says_how_much_faster_the_ladder_became():
    times = {
        (row["rung"], row["size"]): row["ms"] for row in benchmark()["ladder"] if "rung" in row
    }
    text = PAGE.read_text(encoding="utf-8")
    first = "b10_n2048_d64"
    whole = times["separate", first] / times["o_registers", first]
    assert f"is {whole:.0f} times as fast as the five kernels" in text
    sizes = {size for _, size in times}
    gains = [times["split_q", size] / times["o_registers", size] for size in sizes]
    assert f"{min(gains):.0f} to {max(gains):.0f} times as fast as `split_q`" in text
    slower = times["fused", first] / times["separate", first]
    assert f"makes this size {slower:.0f} times *slower*" in text


def test_the_page_says_how_fast_the_tensor_core_kernels_are():
    at = {row["backend"]: row for row in benchmark()["tokens"] if row["tokens"] == 25_600}
    ratio = {name: at["torch-fa2"]["ms"] / row["ms"] for name, row in at.items()}
    claim = (
        f"as fast as FlashAttention-2 ({ratio['wmma']:.2f} times), `mma` {ratio['mma']:.2f} "
        f"times, `wgmma` {ratio['wgmma']:.2f} times as fast; cuDNN is at {ratio['torch-cudnn']:.2f}"
    )
    assert claim in PAGE.read_text(encoding="utf-8")


def test_the_gains_of_the_seed_are_quotients_of_its_own_times():
    row = next(line for line in table_of("gains").splitlines() if "to `float4`" in line)
    assert f"({SEED_SECONDS['split_q']['t29'] / SEED_SECONDS['float4']['t29']:.2f})" in row
    assert "(3.19)" in row


# ---- the ladder's table --------------------------------------------------------------------------


@pytest.mark.slow
def test_the_ladder_has_its_columns_in_the_order_of_the_steps():
    found = steps_of.ladder(str(DATA), layers=["b1360_n128_d32"])
    assert list(found["times"][0])[: len(LADDER) + 1] == ["layer", *LADDER]
    assert [row["after"] for row in found["steps"]] == list(LADDER)[1:]
    # one launch a layer: the time a kernel ran is the time, and is not told twice
    assert "busy, us" not in steps_of.markdown(found)


# ---- what the prose says of the counters ---------------------------------------------------------


def test_only_the_two_fastest_overlap_products_and_exponentials():
    for layer in TENSOR:
        found = rows_of(layer)
        both = {
            name: tensor_share(found.loc[name], layer) + found.loc[name, "special_fu_utilization"]
            for name in KERNELS
        }
        assert {name for name, share in both.items() if share > 1} == {"wgmma", "torch-cudnn"}
        assert max(share for share in both.values() if share < 1) < 0.76


def test_an_instruction_of_mma_is_counted_once_and_does_4096_operations():
    # so the share of the tensor cores' peak, which is no counter, rests on the right cycles
    row = rows_of("b48_n25600_d64").loc["mma"]
    assert tensor_instructions(row) == pytest.approx(4 * 48 * 25_600**2 * 64 / 4096, rel=1e-3)


def test_shared_memory_is_read_without_conflicts():
    found = rows_of("b48_n6400_d64_q32_kv64").loc["wmma"]
    least = least_wavefronts("wmma", "q32_kv64", "b48_n6400_d64")
    assert 1 <= found["shared_load_transactions"] / least < 1.003
    found = rows_of("b50_n512_d64")["shared_load_transactions"]
    assert found["no_conflicts"] / found["lm_registers"] == pytest.approx(0.22, abs=0.005)


def test_the_clock_falls_under_the_two_fastest():
    found = rows_of("b48_n25600_d64")
    # cycles are those of the profiled iteration: the same work at another clock
    ran = {name: clock(row) * row["ncu_time_us"] / row["time_us"] for name, row in found.iterrows()}
    assert {name for name, clock_ in ran.items() if clock_ < 1.65} == {"wgmma", "torch-cudnn"}
    assert min(clock(row) for _, row in found.iterrows()) > 1.78


def test_fewer_blocks_that_fit_fill_more_of_a_wave_and_change_nothing():
    # what the causes leave out below one wave
    found = rows_of("b50_n512_d64")
    before, after = found.loc["q_registers"], found.loc["o_registers"]
    assert after["theoretical_occupancy"] == before["theoretical_occupancy"] / 2
    assert after["waves_per_sm"] == pytest.approx(2 * before["waves_per_sm"])
    assert after["achieved_occupancy"] == pytest.approx(before["achieved_occupancy"], rel=0.03)


# ---- the dataset ---------------------------------------------------------------------------------


def test_the_recording_has_every_version_at_its_sizes(layers):
    assert len(layers) == 820
    assert set(layers["backend"]) == {*LADDER, *KERNELS}
    sizes = layers.groupby("backend")["layer"].nunique()
    assert set(sizes[list(LADDER)]) == {5}
    assert dict(sizes[list(KERNELS)]) == {
        "wmma": 8, "mma": 4, "wgmma": 7, "torch-fa2": 4, "torch-cudnn": 4,
    }  # fmt: skip
    assert set(layers.groupby(["run_id", "layer"])["iteration"].nunique()) == {10}
    halves = layers["precision"] == "fp16"
    assert set(layers["backend"][halves]) == set(KERNELS)
    assert load_recording("h200-attention").data.shape == (820, 19)


def test_counters_lack_where_the_card_says_so_and_nowhere_else(layers):
    without = layers[layers["inst_executed"].isna()]
    assert set(without["backend"]) == SKIPPED
    assert set(without["layer"]) == {"b10_n1024_d64", "b4_n2048_d32", "b2_n1024_d64"}
    assert not set(PROFILED) & set(without["layer"])
    assert len(without) == 60


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_what_was_recorded_gives_the_tables_again(layers):
    kernels = ingest([DATA / "runs"])
    stored = read_table(DATA / "kernels.parquet", kind="kernels").frame
    pd.testing.assert_frame_equal(kernels.frame, stored)
    pd.testing.assert_frame_equal(merge(kernels.frame), layers)
    assert set(stored["time_source"]) == {"timing"}


def test_the_card_tells_the_rows_and_the_spread_of_the_tables(layers):
    card = CARD.read_text(encoding="utf-8")
    launches = len(read_table(DATA / "kernels.parquet", kind="kernels").frame)
    assert f"`kernels.parquet` | {launches:,} launches" in card
    assert f"into {len(layers):,} rows of layers" in card
    times = layers.groupby(["backend", "layer"])["time_us"].agg(["min", "median", "max"])
    spread = (times["max"] - times["min"]) / times["median"]
    wide = {place for place, each in spread.items() if each > 0.02 and place[0] in LADDER}
    told = {"float4", "restructured", "coalesced", "no_conflicts"}
    assert wide == {(rung, "b10_n1024_d64") for rung in told} | {("no_conflicts", "b50_n512_d64")}
    loud = {place[0] for place, each in spread.items() if each > 0.06 and place[0] in KERNELS}
    assert loud == {"wgmma", "torch-cudnn"}


def test_the_card_has_the_range_of_every_published_metric():
    assert set(PUBLISHED_RANGES) == set(PUBLISHED)


def test_no_folder_of_the_recording_machine_is_left():
    for path in (DATA / "runs").glob("*/run.json"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r'"/(tmp|opt|root|home|work)\b', text), path


@pytest.mark.parametrize("name", ["benchmark", "benchmark_small"])
def test_every_version_of_the_benchmarks_was_right(name):
    found = benchmark(name)
    assert found["failures"] == []
    halves = [row["error"] for part in ("variants", "tokens", "other") for row in found[part]]
    assert len(halves) == 45 + 30 + 27
    assert max(halves) < launch.LIMITS["fp16"] / 5
    checks = [row for row in found["ladder"] if "check" in row]
    assert {row["check"] for row in checks} == {*LADDER, "torch-efficient"}
    assert max(row["error"] for row in checks) < launch.LIMITS["fp32"] / 20


# ---- the recorder --------------------------------------------------------------------------------


def test_the_recorded_runs_are_those_of_the_recorder(recording):
    wanted = set()
    for run in recording.runs:
        settings = run.settings or recording.settings
        wanted.add((run.backend, run.precision, *sorted(settings)))
    found = set()
    for path in (DATA / "runs").glob("*/run.json"):
        run = json.loads(path.read_text(encoding="utf-8"))
        settings = sorted(f"{key}={value}" for key, value in run["set"].items())
        found.add((run["backend"], run["precision"], *settings))
    assert found == wanted
    assert len(recording.runs) == len(wanted) == 18
    skipped = {run.backend for run in recording.runs if run.layers}
    assert skipped == SKIPPED


def test_every_run_of_the_recorder_can_be_planned(recording):
    for run in recording.runs:
        settings = parse_settings(run.settings or recording.settings)
        work = plan(Options(run.backend, run.precision, settings=settings))
        names = [name for name, *_ in work]
        assert len(names) == len(set(names)) > 2
    assert {name for name, *_ in work} == {row["layer"] for row in _recorded()["layers"]}


def test_the_recorder_asks_for_the_metrics_of_the_recorded_runs(recording):
    # of some metrics it asks for other counters since, which take fewer passes (`Metric.asked`)
    catalogue = load_catalogue()
    metrics = [catalogue[name] for name in catalogue.select(list(recording.metrics))]
    ways = [way for each in metrics for way in (each.ncu, each.guard, each.asked) if way]
    wanted = {name for way in ways for name in way.names}
    assert set(_recorded()["metrics_requested"]) - wanted <= {DURATION}


def _recorded():
    path = next((DATA / "runs").glob("*-coalesced-*/run.json"))
    return json.loads(path.read_text(encoding="utf-8"))
