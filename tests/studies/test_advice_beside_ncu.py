"""Advice beside Nsight Compute's own rules, on launches that were profiled on a device."""

import math

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from perfml.cli import app
from perfml.errors import PerfmlError
from perfml.explain import advise
from perfml.explain.advice.rules import shipped_rules
from perfml.explain.load import load_tables
from perfml.readers import read
from studies.truth.ncu_agreement import (
    Agreement,
    compare_flags,
    compare_with_ncu,
    load_ncu_rules,
    ncu_flags,
)
from tests.support.tables import make_kernels

pytestmark = pytest.mark.long


def run(*words):
    return CliRunner().invoke(app, [*map(str, words)])


PROFILES = ("hazards", "cublas_fp32", "cudnn_fp32")

ON_DEVICE = {
    "uncoalesced_load": "uncoalesced_load",
    "uncoalesced_store": "uncoalesced_store",
    "bank_conflicts": "bank_conflicts",
    "small_grid": "small_grid",
    "tail_wave": "tail_wave",
    "low_occupancy_shared": "occupancy_shared",
    "low_occupancy_registers": "occupancy_registers",
    "barriers": "barrier_stalls",
    "pointer_chase": "memory_latency",
    "double_precision": "double_precision",
    "special_functions": "special_functions",
    "divergence": "divergence",
    "dependent_chain": "exec_dependency",
    "long_code": "instruction_fetch",
    "l2_traffic": "l2_bound",
}
"""Kernels of tests/gpu/programs/hazards.cu, and the rule that should find each."""


@pytest.fixture(scope="module")
def profiled(recorded):
    """Return launches, results of Nsight Compute's rules, and advice of each profile."""
    found = {}
    for name in PROFILES:
        path = recorded / "ncu" / f"rules_{name}.csv.xz"
        kernels, results = read(path).frame, load_ncu_rules(path)
        found[name] = (kernels, results, advise(kernels))
    return found


@pytest.fixture(scope="module")
def page(root):
    return (root / "studies" / "truth" / "RESULTS.md").read_text(encoding="utf-8")


def test_hazards_planted_on_a_device_are_found_but_for_three(profiled):
    kernels, results, advice = profiled["hazards"]
    found = advice.table.explode("rules")
    pairs = set(zip(found["layer"], found["rules"], strict=True))
    missed = {name for name, rule in ON_DEVICE.items() if (name, rule) not in pairs}
    assert missed == {"low_occupancy_registers", "pointer_chase", "l2_traffic"}
    flags = ncu_flags(kernels, results, shipped_rules())
    place = {name: row for row, name in enumerate(kernels["layer"])}
    theirs = {
        name for name, rule in ON_DEVICE.items() if rule in flags and flags[rule][place[name]]
    }
    assert set(ON_DEVICE) - theirs == {"special_functions", "l2_traffic"}


@pytest.mark.parametrize(
    ("ncu_rule", "message", "ours"),
    [
        ("MemoryCacheAccessPattern", "for global loads in L1TEX might", {"uncoalesced_load"}),
        ("MemoryCacheAccessPattern", "for global loads from L1TEX might", {"uncoalesced_load"}),
        ("MemoryCacheAccessPattern", "for global stores in L1TEX might", {"uncoalesced_store"}),
        (
            "UncoalescedGlobalAccess",
            "This kernel has uncoalesced global accesses",
            {"uncoalesced_load", "uncoalesced_copy", "uncoalesced_store"},
        ),
    ],
)
def test_rules_in_the_words_of_older_versions_count_as_ours(ncu_rule, message, ours):
    result = {"launch": 0, "rule": ncu_rule, "message": message, "kind": "warning"}
    results = pd.DataFrame([{**result, "kernel": "gemm", "speedup": np.nan}])
    flags = ncu_flags(make_kernels([{"kernel": "gemm"}]), results, shipped_rules())
    assert {name for name, flag in flags.items() if flag.any()} == ours


def test_healthy_kernels_are_told_nothing_but_what_bounds_them(profiled):
    table = profiled["hazards"][2].table
    healthy = table[table["layer"].isin(["healthy_copy", "healthy_fma"])]
    rules = set(healthy["rules"].explode())
    assert rules <= {"dram_bound", "fp32_pipe_bound"}
    assert "dram_bound" in rules


def test_the_measured_agreement_is_what_the_results_say(profiled, page):
    counts = pd.concat([compare_with_ncu(*each[:2])[0] for each in profiled.values()])
    counts = (
        counts[counts["launches"] > 0]
        .groupby("rule", sort=False)[list(Agreement.__annotations__)[2:6]]
        .sum()
    )
    sides = np.array([[True, True], [True, False], [False, True], [False, False]])
    pooled = [
        (rule, *compare_flags(*np.repeat(sides, row, axis=0).T).row())
        for rule, row in zip(counts.index, counts.to_numpy(), strict=True)
    ]
    whole = pd.DataFrame(pooled, columns=list(Agreement.__annotations__))
    for row in whole.itertuples():
        kappa = "-" if math.isnan(row.kappa) else f"{row.kappa:.2f}"
        counts = f"{row.both} | {row.only_perfml} | {row.only_ncu} | {row.neither}"
        line = f"| `{row.rule}` | {row.launches} | {counts} | {row.agree:.2f} | {kappa} |"
        assert line in page
    same, total = int((whole["both"] + whole["neither"]).sum()), int(whole["launches"].sum())
    assert f"{same} of {total} cases ({100 * same / total:.0f} %)" in page
    assert whole["launches"].max() == 53


def test_a_higher_bar_for_nsight_compute_s_estimates_leaves_fewer_of_its_flags(profiled):
    kernels, results, _ = profiled["cublas_fp32"]
    counts = [
        int(compare_with_ncu(kernels, results, min_speedup=bar)[0]["only_ncu"].sum())
        for bar in (0.0, 2.0, 50.0)
    ]
    assert counts == sorted(counts, reverse=True)
    assert counts[0] > counts[1] > counts[2]


def test_the_upper_gains_cover_what_another_backend_really_saves(root, page):
    layers, kernels = load_tables(root / "datasets" / "h200-yolov4-tiny")
    table = advise(layers, kernels=kernels, min_gain=0.0).table
    keys = ["precision", "batch", "layer", "backend"]
    gains = table.groupby(keys)["gain_high"].agg(["max", "sum"])
    times = layers.groupby(keys)["time_us"].mean()
    saved = 1 - times.groupby(keys[:3]).transform("min") / times
    cases = gains.join(saved[saved > 0.1].rename("saved"), how="right")
    assert not cases["max"].isna().any()
    most, whole = ((cases[name] >= cases["saved"]).sum() for name in ("max", "sum"))
    assert f"covers what the other backend really saves in {most} of the {len(cases)}" in page
    assert f"the sum of all findings in {whole}" in page


def said(*rows):
    columns = ["launch", "kernel", "rule", "section", "kind", "message", "speedup", "scope"]
    return pd.DataFrame(rows, columns=columns)


DIVERGES = (0, "gemm", "ThreadDivergence", "s", "optimization", "lanes", 40.0, "local")


@pytest.mark.parametrize(
    ("results", "message"),
    [
        (said(), "no results of Nsight Compute's rules"),
        (said((5, *DIVERGES[1:])), "other launches"),
        (said((0, "copy", *DIVERGES[2:])), "copy where the table has gemm"),
    ],
)
def test_results_of_other_launches_are_refused(results, message):
    with pytest.raises(PerfmlError, match=message):
        compare_with_ncu(make_kernels([{"kernel": "gemm"}]), results)
