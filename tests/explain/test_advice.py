"""Advice: a launch beside its ideal says what it loses, and what could not be checked."""

import math
import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfml.explain import advise
from perfml.explain.advice.finding import Finding, Gain, Where
from perfml.explain.advice.hazards import Advice
from perfml.explain.advice.symptoms import load_symptoms, symptom_of
from perfml.explain.limits.state import LaunchState, derived
from perfml.explain.load import load_tables
from perfml.explain.tree.causes import TERMS
from perfml.explain.tree.ideal import load_ideals
from perfml.metrics import load_catalogue
from perfml.report.render.text import to_text
from perfml.report.verbs import advice_document
from perfml.util.findings import Time
from tests.support.causes import HEALTHY, ONE_SIDE
from tests.support.examples import examples
from tests.support.launches import launch as one_launch
from tests.support.tables import make_kernels

pytestmark = pytest.mark.long


"""What to change of a healthy launch so that this cause takes most."""

SAME = {"wavefronts_per_shared_load": "bank_conflicts", "shared_memory_busy_time": "shared_loads"}
SAME |= {"fp32_operations": "fp32_pipe_time", "l2_sectors": "dram_bytes"}
"""Causes of one remedy."""


def launch(**cells):
    return make_kernels([{**HEALTHY, **cells}])


def found(table, **options):
    return set(advise(table, **options).table["rules"].explode())


def by_rule(table):
    """Return findings by cause; one of several causes once for each."""
    return table.explode("rules").set_index("rules")


def test_of_a_healthy_launch_nothing_is_said_surely():
    assert {one.confidence for one in advise(launch()).of_layers} <= {"low"}


@pytest.mark.parametrize("cause", ONE_SIDE)
def test_a_planted_cause_takes_most(cause):
    advice = advise(launch(**ONE_SIDE[cause]))
    row = advice.table.iloc[0]
    named = {SAME.get(name, name) for name in row["rules"]}
    assert cause in named, f"{named} instead: is the launch's time in a limit under which it grows?"
    assert 0 <= row["gain"] <= row["gain_high"] <= 1
    assert row["saved_us"] == pytest.approx(row["gain_high"] * 100.0)
    assert row["mitigation"].endswith(".")
    assert "{" not in row["evidence"]
    assert "nan" not in row["evidence"]


AT_ROOF = {
    "dram": {"dram_utilization": 0.93, "global_store_requests": 1e6},
    "fp32": {"single_precision_fu_utilization": 0.93, "issue_slot_utilization": 0.95},
    "tensor": {"tensor_utilization": 0.93},
}
"""A launch that copies, multiplies and adds, or multiplies matrices as fast as a chip can."""
WASTE = {
    "dram": {"global_store_requests": 1e4},  # a hundred loads a store may be of the same bytes
    "fp32": {"warp_execution_efficiency": 0.4},
    "tensor": {"sm_active_cycles_mean": 50e3, "sm_efficiency": 0.5},
}


@pytest.mark.parametrize("unit", AT_ROOF)
def test_a_launch_at_its_roof_has_no_finding_unless_something_counted_is_lost(unit):
    assert advise(launch(**AT_ROOF[unit])).of_layers == ()
    assert advise(launch(**{**AT_ROOF[unit], **WASTE[unit]})).of_layers


def test_what_several_launches_hand_over_through_memory_is_fused():
    rows = [{**HEALTHY, **AT_ROOF["dram"], "kernel": name} for name in ("one", "other")]
    assert "dram_bytes" in found(make_kernels(rows))


def test_constants_that_all_lanes_read_are_not_serialised():
    busy = {"constant_cache_utilization": 0.95}
    assert "constant_serialization" in found(launch(**busy, constant_cache_requests=8e7))
    assert "constant_serialization" not in found(launch(**busy, constant_cache_requests=4e6))


@pytest.mark.parametrize("level", [0.7, 0.9])
def test_work_that_may_be_needed_claims_no_more_than_its_unit_holds(level):
    # the power sum of `engine.exposed`: half of the accesses stay
    row = by_rule(advise(launch(shared_utilization=level), min_gain=0.0).table)
    names = {"shared_loads", "shared_memory_busy_time"} & set(row.index)
    active = HEALTHY["sm_efficiency"]
    most = active * (1 - (1 - (level / active) ** 2.5 * (1 - 0.5**2.5)) ** 0.4)
    assert sum(row.loc[name, "gain"] for name in names) <= most + 1e-9
    assert names


def test_that_a_bandwidth_is_the_limit_is_said_where_it_is_nearly_used():
    said = by_rule(advise(launch(shared_utilization=0.7)).table).loc["shared_loads", "hazard"]
    assert "is the limit" in said
    assert "is the limit" not in symptom_of("shared_loads").hazard_at(0.5)


@pytest.mark.slow
def test_likely_gains_of_a_launch_add_up_to_less_than_its_time():
    for cells in ONE_SIDE.values():
        table = advise(launch(**cells), min_gain=0.0).table
        split = table["rules"].map(lambda rules: rules == ("wave_quantization",))
        assert table.loc[~split, "gain"].sum() < 1


def test_a_library_s_product_on_cuda_cores_is_told_of_tensor_cores():
    cells = {"single_precision_fu_utilization": 0.8, "tensor_utilization": 0.0}
    cells |= {"flop_count_sp": 1e10, "tensor_cycles_utilization": 0.0}
    row = advise(launch(**cells, kernel="ampere_sgemm_128x64_nn")).table.iloc[0]
    assert "tensor_unused" in row["rules"]
    assert "tensor cores" in row["mitigation"]
    assert "tensor_unused" not in found(launch(**cells, kernel="mine"))


@pytest.mark.parametrize("counted", [{}, {"inst_executed": 1e6}, {"inst_executed": 1e6, "ipc": 2}])
def test_how_busy_l1_is_is_unknown_where_nothing_of_it_was_counted(counted):
    assert math.isnan(LaunchState(one_launch({"time_us": 1.0, **counted}))["l1_level"])


def test_a_wait_for_loads_is_a_memory_s_as_far_as_they_stand_in_a_queue():
    # 58 of 64 warps, 20 cycles an instruction, an instruction a load: 0.8 of the time waited for it
    wait = {"stall_memory_dependency": 0.8, "inst_executed": 2e6, "dram_utilization": 0.3}
    quick, queued = (LaunchState(one_launch({**HEALTHY, **wait, "ipc": ipc})) for ipc in (1, 0.05))
    cycles = 0.9 * 64 * 2e6 / 0.05 / 1e6 * 0.8
    assert queued["load_wait"] == pytest.approx(cycles)
    assert queued["queued_loads"] == pytest.approx(1 - queued["load_latency"] / cycles)
    assert quick["queued_loads"] == 0


def test_what_a_grid_below_one_wave_leaves_idle_is_no_imbalance():
    idle = {"grid": "(8, 1, 1)", "waves_per_sm": 0.0076, "sm_active_cycles_max": 100e3}
    idle |= {"achieved_occupancy": 0.12, "sm_active_cycles_mean": 6.06e3, "sm_efficiency": 0.06}
    idle |= dict.fromkeys(("dram_utilization", "l2_utilization", "shared_utilization"), 0.01)
    first = advise(launch(**idle)).table.iloc[0]
    assert first["rules"] == ("wave_quantization",)
    # as many blocks as multiprocessors, half of which end early
    uneven = {"grid": "(132, 1, 1)", "waves_per_sm": 0.125, "achieved_occupancy": 0.12}
    uneven |= {"sm_active_cycles_mean": 50e3, "sm_efficiency": 0.5}
    assert "sm_imbalance" in advise(launch(**uneven)).table["rules"].iloc[0]


def test_launches_of_a_layer_are_looked_at_together():
    rows = [
        {**HEALTHY, "kernel": "im2col_kernel", "time_us": 30.0},
        {**HEALTHY, "kernel": "sgemm", "time_us": 60.0},
        {**HEALTHY, "kernel": "add", "time_us": 2.0},
        {**HEALTHY, "kernel": "relu", "time_us": 2.0},
    ]
    row = by_rule(advise(make_kernels(rows)).table).loc["transform_kernels"]
    assert row["gain"] == pytest.approx(30 / 94)
    # as one launch, of which half of the longest stays
    assert row["gain_high"] == pytest.approx((94 - 30) / 94)
    assert (
        "launches that rearrange data (im2col, copies, layout changes, split-K" in row["evidence"]
    )
    short = [{**each, "time_us": each["time_us"] / 15} for each in rows]
    assert {"launch_bound", "transform_kernels"} <= found(make_kernels(short))


def test_two_products_whose_types_name_iterators_that_convert_are_no_rearranging_kernels():
    name = "void cutlass::Kernel<cutlass::gemm::kernel::Gemm<{}, NumericConverter>>(Params)"
    rows = [
        {**HEALTHY, "kernel": name.format(shape), "time_us": 11.0}
        for shape in ("GemmShape<128, 96, 64>", "GemmShape<128, 64, 64>")
    ]
    assert "transform_kernels" not in found(make_kernels(rows))


@pytest.mark.parametrize(
    ("operators", "rearranges"),
    [
        ("poi_fused__to_copy_transpose_2", True),
        ("poi_fused_clone_permute_view_1", True),
        ("red_fused_add_native_layer_norm_backward_transpose_3", False),
        ("per_fused__to_copy_clone_gelu_transpose_view_12", False),
    ],
)
def test_a_kernel_of_inductor_rearranges_where_all_its_operators_do(operators, rearranges):
    rows = [
        {**HEALTHY, "kernel": name, "time_us": us}
        for name, us in ((f"triton_{operators}", 40.0), ("sgemm", 60.0))
    ]
    assert ("transform_kernels" in found(make_kernels(rows))) is rearranges


def test_a_product_that_a_library_repeats_gains_what_no_unit_is_busy_for():
    gemm = {**HEALTHY, "kernel": "nvjet_sm90_tst_64x8_64x16_2x1_v_bz_TNT", "time_us": 10.0}
    four = [gemm | {"grid": "(132, 1, 1)", "waves_per_sm": 1.0}] * 4
    row = by_rule(advise(make_kernels(four)).table).loc["repeated_products"]
    assert row["gain"] == pytest.approx(1 - 0.25)
    assert "4 of 4 launches" in row["evidence"]
    # another size each time, one call that the largest grid cuts, three, short ones, one's own
    sizes = [one | {"grid": f"({132 * n}, 1, 1)"} for n, one in enumerate(four, 1)]
    cut = [one | {"grid": "(1, 65535, 1)"} for one in four]
    short = [one | {"time_us": 2.0} for one in four]
    own = [one | {"kernel": "my_gemm"} for one in four]
    for others in (sizes, cut, four[:3], short, own):
        assert "repeated_products" not in found(make_kernels(others))


def product(n, k, element=2, **cells):
    sizes = {"product_m": 512.0, "product_n": n, "product_k": k, "product_bytes": element}
    sizes["product_flops"] = 22.23e9
    kernel = "cutlass_80_tensorop_f16_s16816gemm_f16_256x64_32x4_tn_align1"
    return make_kernels([{**HEALTHY, "kernel": kernel, "precision": "fp16", **sizes, **cells}])


@pytest.mark.parametrize(
    ("n", "k", "element", "row"),
    [(4093, 4096, 2, 2), (4096, 4092, 2, 8), (4096, 4094, 4, 8), (4088, 4100, 1, 4)],
)
def test_a_product_whose_rows_are_no_multiple_of_16_bytes_is_to_be_padded(n, k, element, row):
    advice = by_rule(advise(product(n, k, element)).table).loc["padding_to_tiles"]
    assert f"n {n}, k {k}: rows are a multiple of {row} bytes" in advice["evidence"]
    # an H200 does 741e12 operations a second in fp16: 30 of 100 us
    assert advice["gain_high"] == pytest.approx(0.7)
    assert advice["mitigation"].startswith("The kernel is a library's. Pad the sizes")


@pytest.mark.parametrize(
    "cells",
    [
        {"n": 4096, "k": 4088},
        {"n": 4094, "k": 4092, "element": 8},
        # smaller than a tile, on CUDA cores, a kernel that is no product, sizes that nobody knows,
        # where the name tells aligned rows
        {"n": 7, "k": 4096},
        {"n": 4093, "k": 4093, "precision": "fp32"},
        {"n": 4093, "k": 4093, "kernel": "my_kernel"},
        {"n": math.nan, "k": math.nan, "kernel": "cutlass_80_tensorop_f16_s16816gemm_nn_align8"},
        # what DRAM is busy for no other kernel saves, and a device of which no peak is known
        {"n": 4093, "k": 4093, "dram_utilization": 0.99},
        {"n": 4093, "k": 4093, "device": "GPU of tomorrow"},
    ],
)
def test_sizes_that_fit_or_are_nobodys_fault_are_no_hazard(cells):
    assert "padding_to_tiles" not in found(product(**cells))


def test_the_longest_launch_is_never_an_extra_one():
    rows = [{**HEALTHY, "kernel": "copy_transpose", "time_us": 50.0}]
    assert "transform_kernels" not in found(make_kernels(rows))


def test_a_kernel_s_gain_is_weighted_by_its_share_of_the_layer():
    even = {"sm_efficiency": 1.0}  # the start of a launch is a larger part of a short one
    slow = {**HEALTHY, **ONE_SIDE["stall_sync"], **even, "kernel": "slow", "time_us": 25.0}
    whole = by_rule(advise(make_kernels([{**slow, "time_us": 100.0}])).table).loc["stall_sync"]
    rows = make_kernels([slow, {**HEALTHY, "kernel": "rest", "time_us": 75.0}])
    quarter = by_rule(advise(rows).table).loc["stall_sync"]
    assert quarter["gain"] == pytest.approx(whole["gain"] / 4)
    assert quarter["kernel"] == "slow"


def test_launches_of_one_kernel_are_one_finding_whose_gains_add_up():
    even = {"sm_efficiency": 1.0}  # the start of a launch is a larger part of a short one
    slow = {**HEALTHY, **ONE_SIDE["stall_sync"], **even, "kernel": "slow", "time_us": 50.0}
    row = by_rule(advise(make_kernels([slow, slow])).table).loc["stall_sync"]
    one = by_rule(advise(make_kernels([{**slow, "time_us": 100.0}])).table).loc["stall_sync"]
    assert row["gain"] == pytest.approx(one["gain"])
    assert row["evidence"].startswith("2 launches, 100 µs of the layer's 100 µs")


def test_a_gain_stops_where_another_unit_is_busy():
    cells = {"constant_cache_utilization": 0.95}
    free = by_rule(advise(launch(**cells)).table).loc["constant_serialization"]
    busy = by_rule(advise(launch(**cells, alu_utilization=0.6)).table).loc["constant_serialization"]
    # 98 % of the time there is a block; integers may be fewer, too
    assert free["gain_high"] > busy["gain_high"] == pytest.approx(1 - 0.6 * 0.98, abs=0.05)


def test_findings_are_sorted_by_the_time_they_may_save():
    rows = [
        {**HEALTHY, **ONE_SIDE["stall_inst_fetch"], "layer": "short", "time_us": 10.0},
        {**HEALTHY, **ONE_SIDE["stall_sync"], "layer": "long", "time_us": 500.0},
    ]
    likely = advise(make_kernels(rows)).table
    assert likely["layer"].iloc[0] == "long"
    saved = likely.groupby("layer", sort=False).first()
    assert (saved["gain"] * saved["time_us"]).is_monotonic_decreasing


def test_what_was_not_collected_is_said_by_condition():
    rows = [HEALTHY, {**HEALTHY, "backend": "cudnn", "stall_sync": np.nan}]
    missing = advise(make_kernels(rows)).not_checked
    told = missing[missing["rule"] == "stall_sync"]
    assert told[["backend", "missing", "why"]].to_numpy().tolist() == [
        ["cudnn", "stall_sync", "not collected"]
    ]


def test_a_metric_that_is_undefined_for_a_kernel_was_collected_all_the_same():
    rows = [{**HEALTHY, "shared_efficiency": np.nan}, {**HEALTHY, "kernel": "other"}]
    missing = advise(make_kernels(rows)).not_checked
    assert "wavefronts_per_shared_load" not in set(missing["rule"])


def test_a_layer_without_any_counters_is_named():
    bare = {name: np.nan for name in HEALTHY if name in load_catalogue()}
    rows = [HEALTHY, {**HEALTHY, **bare, "layer": "pool_01"}]
    assert "counters of pool_01" in set(advise(make_kernels(rows)).not_checked["missing"])


def test_a_profile_without_counters_is_not_said_to_be_checked():
    advice = advise(make_kernels([{"time_us": 5.0}]))
    said = to_text(advice_document(advice, 5))
    assert re.search(r"\d\d (rules|causes) could not be checked", said)


def test_merged_layers_alone_are_looked_at_as_far_as_they_go(root):
    where = ["batch=1", "precision=fp32"]
    layers, kernels = load_tables(root / "datasets" / "h200-yolov4-tiny", where)
    advice = advise(layers)
    assert "wave_quantization" not in set(advice.table["rules"].explode())
    assert "launches (a Kernels table)" in set(advice.not_checked["missing"])
    assert advice.warnings
    whole = advise(layers, kernels=kernels)
    assert not whole.warnings
    assert {"transform_kernels", "wave_quantization"} <= set(whole.table["rules"].explode())


def test_an_expert_s_findings_for_conv_20(root):
    """cuDNN's implicit GEMM has too few blocks at batch 1; cuBLAS pays for im2col."""
    where = ["batch=1", "precision=fp32"]
    layers, kernels = load_tables(root / "datasets" / "h200-yolov4-tiny", where)
    table = advise(layers, kernels=kernels, layers=["conv_20"]).table
    cudnn = table[table["backend"] == "cudnn"]
    assert "wave_quantization" in set(cudnn["rules"].explode())
    assert "0.13 waves" in by_rule(cudnn).loc["wave_quantization", "evidence"]
    cublas = by_rule(table[table["backend"] == "cublas"])
    assert cublas.loc["transform_kernels", "gain"] == pytest.approx(0.296, abs=0.005)
    assert set(table["layer"]) == {"conv_20"}


LEVEL = st.one_of(st.just(float("nan")), st.floats(0.0, 1.0))


@examples(30)
@given(data=st.data())
def test_gains_stay_between_nothing_and_all(data):
    names = [name for name in HEALTHY if name in load_catalogue()]
    cells = {name: data.draw(LEVEL, label=name) for name in names}
    cells["registers_per_thread"] = data.draw(st.floats(1, 255))
    cells["waves_per_sm"] = data.draw(st.floats(0.001, 40))
    for one in advise(launch(**cells), min_gain=0.0).of_layers:
        assert 0 <= one.least_us <= one.likely_us <= one.saved_us <= one.holds.us


def test_every_symptom_is_of_causes_that_exist_and_every_ideal_has_one():
    symptoms, layers = load_symptoms()
    causes = [cause for symptom in symptoms for cause in symptom.causes]
    assert len(causes) == len(set(causes))
    assert set(causes) <= set(TERMS)
    assert {row.cause for row in load_ideals()} <= set(causes)
    assert all(symptom_of(name) is symptom for name, symptom in layers.items())
    assert all(symptom.source for symptom in (*symptoms, *layers.values()))


def test_every_quantity_of_an_ideal_or_a_remedy_is_known():
    state, catalogue = LaunchState(one_launch({"time_us": 1.0})), load_catalogue()
    for row in load_ideals():
        assert all(name in catalogue for name in (*row.scales, *row.sets)), row
    for symptom in load_symptoms()[0]:
        for name in re.findall(r"\{([\w.]+)", symptom.evidence):
            known = name in catalogue or name in derived() or name in state.functions
            assert known or name.startswith(("wait.", "share.")), (symptom.id, name)


def test_nothing_is_left_out_for_its_share_of_the_run():
    hazard = {**HEALTHY, "double_precision_fu_utilization": 0.9}
    rows = [{**hazard, "layer": "long", "time_us": 1e6}, {**hazard, "layer": "short"}]
    assert set(advise(make_kernels(rows)).table["layer"]) == {"long", "short"}


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_tn_align1", 2),
        ("cutlass_80_tensorop_f16_s16816gemm_f16_256x128_32x3_nn_align2", 4),
        ("cutlass_80_tensorop_s1688gemm_128x128_nn_align2", 8),
        ("cutlass_80_tensorop_f16_s16816gemm_f16_256x128_32x3_nn_align8", None),
        ("cutlass_80_simt_sgemm_256x128_8x4_nn_align1", None),
    ],
)
def test_a_product_s_name_tells_rows_that_are_not_aligned(name, row):
    kernel = {"kernel": f"void cutlass::Kernel2<{name}>(T1::Params)", "time_us": 80.0}
    slow = {**HEALTHY, **kernel, "tensor_utilization": 0.25, "dram_utilization": 0.1}
    other = {**HEALTHY, "kernel": "mine", "time_us": 20.0}
    table = by_rule(advise(make_kernels([slow, other])).table)
    if row is None:
        assert "padding_to_tiles" not in table.index
        return
    padded = table.loc["padding_to_tiles"]
    assert f"rows are a multiple of {row} bytes" in padded["evidence"]
    # what tensor cores are busy for is needed
    assert padded["gain"] == pytest.approx(0.8 * (1 - 0.25))
    assert padded["probability"] > 0.6
    # few blocks are a limit of their own, and what nobody counted is not known to be free
    for limit in ({"waves_per_sm": 0.3}, {"tensor_utilization": float("nan")}):
        assert "padding_to_tiles" not in found(make_kernels([{**slow, **limit}, other]))


@pytest.mark.parametrize(("counted", "busy"), [({"l1_utilization": 0.37}, 0.37), ({}, math.nan)])
def test_l1_is_as_busy_as_the_largest_counter_says_and_unknown_is_not_idle(counted, busy):
    state = LaunchState(one_launch({"time_us": 1.0, **counted}))
    assert state["l1_busy"] == pytest.approx(busy, nan_ok=True)


def test_a_first_screen_has_no_saving_below_one_in_a_hundred_but_the_first():
    def one(layer, holds, likely):
        gain = None if likely is None else Gain(Time(likely), Time(likely), "counters")
        return Finding(
            rules=("r",),
            where=Where((layer,)),
            holds=Time(holds),
            gain=gain,
            probability=0.5,
            hazard="h",
            evidence="e",
            mitigation=layer,
        )

    sizes = (("a", 1000.0, 100.0), ("b", 10.0, 9.0), ("c", 50.0, 20.0), ("d", 9.0, None))
    findings = tuple(one(*size) for size in sizes)
    shown = Advice(findings, pd.DataFrame()).worth
    assert [each.layer for each in shown] == ["a", "c", "d"]
    assert [each.layer for each in Advice(findings[1:2], pd.DataFrame()).worth] == ["b"]


def test_what_is_improbable_or_promises_little_is_in_the_json_with_its_probability():
    waits = {**HEALTHY, "layer": "a", "stall_memory_dependency": 0.25, "achieved_occupancy": 0.8}
    found = advise(make_kernels([waits]), min_gain=0.0)
    little = advise(make_kernels([waits]), min_gain=0.9)
    every = found.to_dict()
    assert {one["probability"] for one in every["not_listed"]}
    assert found.below == len(every["not_listed"]) > 0
    assert not little.of_layers
    assert little.below == found.below + len(found.of_layers)
