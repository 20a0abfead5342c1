"""The page and the card of the attention ladder hold what was recorded; the recorder fits it."""

from __future__ import annotations

import importlib.util
import json

import numpy as np
import pandas as pd
import pytest
from _attention_page import (
    CARD,
    DATA,
    LADDER,
    PAGE,
    SEED_SECONDS,
    TABLES,
    benchmark,
    steps_of,
    table_of,
)

from collectors.workloads import Options, parse_settings
from collectors.workloads.attention import launch
from collectors.workloads.attention.workload import plan
from perfml.datasets import load_h200_attention
from perfml.ingest import ingest
from perfml.merge import merge
from perfml.metrics import PUBLISHED, load_catalogue
from perfml.tables import read_table

ANEW = "write it anew: python tests/_attention_page.py"
MISSING = {"lm_registers", "no_conflicts", "q_registers", "o_registers"}


@pytest.fixture(scope="module")
def layers():
    return read_table(DATA / "layers.parquet", kind="layers").frame


@pytest.fixture(scope="module")
def recording():
    spec = importlib.util.spec_from_file_location("record_attention", DATA / "record.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.RECORDING


# ---- the page ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in TABLES if name != "times"])
def test_a_table_of_the_page_is_what_the_data_give(name):
    assert table_of(name) == TABLES[name](), ANEW


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
    alone = {row["variant"]: row["ms"] for row in benchmark()["variants"]}
    overlap = [alone["kv128_c2_turns"], alone["kv128_c3"]] / np.array(alone["kv128_c3_turns"])
    claim = f"instead of two ({overlap[0]:.2f} times) that take turns ({overlap[1]:.2f} times)"
    assert claim in PAGE.read_text(encoding="utf-8")


def test_the_gains_of_the_seed_are_quotients_of_its_own_times():
    row = next(line for line in table_of("gains").splitlines() if "to `float4`" in line)
    assert f"({SEED_SECONDS['split_q']['t29'] / SEED_SECONDS['float4']['t29']:.2f})" in row
    assert "(3.19)" in row


# ---- the ladder's table --------------------------------------------------------------------------


def test_the_ladder_has_its_columns_in_the_order_of_the_steps():
    found = steps_of.ladder(str(DATA), layers=["b10_n1024_d64"])
    profiled = [rung for rung in LADDER if rung not in MISSING]
    assert list(found["times"][0]) == ["layer", *profiled]
    text = steps_of.markdown(found)
    assert text.startswith(f"| layer | {' | '.join(profiled)} |")
    # one launch a layer: the time a kernel ran is the time, and is not told twice
    assert "busy, us" not in text


def test_multiprocessors_without_work_are_told_and_are_no_unexplained_rest():
    # two blocks are 0.00 waves in the profiler's output, so no term is left to tell it
    found = steps_of.ladder(str(DATA), "shared_48k:split_q", layers=["b2_n1024_d64"])
    (row,) = found["steps"]
    assert row["ratio"] == pytest.approx(0.135, abs=5e-4)
    assert "unexplained" not in row["because"]
    assert "multiprocessors busy 12% of the time, 2% in the step before" in row["because"]


# ---- the dataset ---------------------------------------------------------------------------------


def test_the_recording_has_seven_versions_at_five_sizes(layers):
    assert len(layers) == 175
    assert set(layers["backend"]) == set(LADDER) - MISSING
    assert set(layers.groupby("backend")["layer"].nunique()) == {5}
    assert set(layers["precision"]) == {"fp32"}
    assert load_h200_attention().data.shape == (175, 19)


def test_what_was_recorded_gives_the_tables_again(layers):
    kernels = ingest([DATA / "runs"])
    stored = read_table(DATA / "kernels.parquet", kind="kernels").frame
    pd.testing.assert_frame_equal(kernels.frame, stored)
    pd.testing.assert_frame_equal(merge(kernels.frame), layers)
    assert set(stored["time_source"]) == {"timing"}


def test_the_card_tells_the_times_and_what_is_missing():
    assert table_of("times", CARD) == TABLES["times"](), ANEW
    card = CARD.read_text(encoding="utf-8")
    assert {name for name in LADDER if f"`{name}`" in card.split("Not profiled")[1]} >= MISSING
    assert "**no counters yet**" in PAGE.read_text(encoding="utf-8")


def test_the_ranges_of_the_card_are_those_of_the_table(layers):
    rows = [line.split(" | ") for line in CARD.read_text(encoding="utf-8").splitlines()]
    told = {row[0].strip("| "): row[1] for row in rows if len(row) == 3}
    for metric in set(PUBLISHED) & set(told):
        low, high = (f"{value:.2f}" for value in (layers[metric].min(), layers[metric].max()))
        assert told[metric] == (low if low == high else f"{low} to {high}"), metric
    assert len(set(PUBLISHED) & set(told)) == len(PUBLISHED)


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


def test_the_recorder_begins_with_what_is_missing(recording):
    names = [run.backend for run in recording.runs]
    assert set(names[: len(MISSING)]) == MISSING
    later = names[len(MISSING) :]
    first_known = min(later.index(rung) for rung in LADDER if rung in later)
    missing = {"wmma", "mma", "wgmma", "torch-fa2", "torch-cudnn"}
    assert set(later[:first_known]) == missing
    assert set(names) == set(LADDER) | missing
    assert len(set(map(str, recording.runs))) == len(recording.runs)


def test_every_run_of_the_recorder_can_be_planned(recording):
    for run in recording.runs:
        settings = parse_settings(run.settings or recording.settings)
        work = plan(Options(run.backend, run.precision, settings=settings))
        names = [name for name, *_ in work]
        assert len(names) == len(set(names)) > 2
    assert {name for name, *_ in work} == {row["layer"] for row in _recorded()["layers"]}


def test_the_recorder_asks_for_the_counters_of_the_recorded_runs(recording):
    wanted = load_catalogue().ncu_request(list(recording.metrics))
    assert set(wanted) == set(_recorded()["metrics_requested"])


def _recorded():
    path = next((DATA / "runs").glob("*-coalesced-*/run.json"))
    return json.loads(path.read_text(encoding="utf-8"))
