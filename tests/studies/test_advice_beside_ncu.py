"""Advice on launches of a device, and what Nsight Compute's rules say of them."""

import pytest

from perfml.explain import advise
from perfml.explain.advice.finding import table_of
from perfml.explain.advice.symptoms import load_symptoms
from perfml.readers import read
from studies.truth.labels import causes_of_rules
from studies.truth.ncu_agreement import load_ncu_rules

pytestmark = pytest.mark.long

ON_DEVICE = {
    "uncoalesced_load": "uncoalesced_load",
    "uncoalesced_store": "uncoalesced_store",
    "bank_conflicts": "bank_conflicts",
    "small_grid": "small_grid",
    "tail_wave": "tail_wave",
    "low_occupancy_shared": "occupancy_shared",
    "barriers": "barrier_stalls",
    "double_precision": "double_precision",
    "special_functions": "special_functions",
    "divergence": "divergence",
    "dependent_chain": "exec_dependency",
    "long_code": "instruction_fetch",
}
"""Kernels of `rules_hazards.csv.xz`, and the rule of its day that each was planted for."""


@pytest.fixture(scope="module")
def hazards(recorded):
    return recorded / "ncu" / "rules_hazards.csv.xz"


def test_hazards_planted_on_a_device_are_found(hazards):
    table = table_of(advise(read(hazards).frame).of_layers)
    said = table.groupby("layer")["rules"].agg(
        lambda rules: {one for each in rules for one in each}
    )
    missed = {
        name
        for name, rule in ON_DEVICE.items()
        if not said.get(name, set()) & causes_of_rules([rule])
    }
    assert missed == set()


def test_healthy_kernels_are_told_nothing_surely(hazards):
    table = table_of(advise(read(hazards).frame).of_layers)
    healthy = table[table["layer"].isin(["healthy_copy", "healthy_fma"])]
    assert not (healthy["confidence"] == "high").any()
    first = healthy.groupby("layer")["rules"].first()
    assert first["healthy_copy"][0] in ("dram_bytes", "l2_sectors")
    # at its roof or improbable: no finding at all
    assert first.get("healthy_fma", ("fp32_operations",))[0] in (
        "fp32_pipe_time",
        "fp32_operations",
    )


@pytest.mark.parametrize(
    ("rule", "message", "cause"),
    [
        ("MemoryCacheAccessPattern", "for global loads in L1TEX might", "sectors_per_request"),
        ("MemoryCacheAccessPattern", "for global stores from", None),
        ("UncoalescedGlobalAccess", "This kernel has uncoalesced accesses", "sectors_per_request"),
        ("CPIStall", "waiting at a barrier", "stall_sync"),
    ],
)
def test_rules_in_the_words_of_older_versions_count_as_ours(rule, message, cause):
    same = [each.causes[0] for each in load_symptoms()[0] if each.says(rule, message)]
    assert same == ([] if cause is None else [cause])


def test_results_of_nsight_computes_rules_are_read(hazards):
    results = load_ncu_rules(hazards)
    assert {"SharedMemoryConflicts", "ThreadDivergence"} <= set(results["rule"])
