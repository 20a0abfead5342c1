"""Advice for who calls kernels: one finding where there is one thing to do."""

import pytest

from perfml.explain import advise
from perfml.explain.advice.finding import table_of
from tests.support.tables import make_kernels

ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>(int)"
MUL = "void at::native::elementwise_kernel<128, at::native::sqrt_kernel_cuda(at::X)>(int)"
COPY = "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda()>(int)"
GEMM = "nvjet_sm90_tst_80x64_64x11_4x1_v_bz_TNN"
BUSY = {"dram_utilization": 0.9, "stall_memory_dependency": 0.5, "l2_utilization": 0.3}
WAITS = {"dram_utilization": 0.1, "stall_memory_dependency": 0.8, "l2_utilization": 0.05}


def findings(*launches):
    rows = [
        {"run_id": "r", "layer": "block", "iteration": 0, "kernel_index": place, **row}
        for place, row in enumerate(launches)
    ]
    return table_of(advise(make_kernels(rows), min_gain=0.0).of_layers)


def test_kernels_that_are_fused_together_are_one_finding_whose_gains_add_up():
    launches = (
        {"kernel": ADD, "time_us": 50.0, **BUSY},
        {"kernel": MUL, "time_us": 50.0, **WAITS},
    )
    found = findings(*launches)
    (first,) = found.to_dict("records")
    assert {"dram_busy_time", "stall_memory_dependency"} <= set(first["rules"])
    alone = [findings(each)["gain"].iloc[0] for each in launches]
    assert first["gain"] == pytest.approx(sum(alone) / 2)
    assert "[CUDAFunctor_add]: " in first["evidence"]
    assert "[sqrt_kernel_cuda]: " in first["evidence"]


def test_the_hazards_of_a_library_s_kernel_with_one_thing_to_do_are_one_finding():
    rows = {"stall_sync": 0.3, "stall_barrier": 0.3, **WAITS, "inst_executed_async_copies": 0.0}
    found = findings({"kernel": GEMM, "time_us": 50.0, **rows})
    assert any({"stall_memory_dependency", "stall_sync"} <= set(rules) for rules in found["rules"])
    own = findings({"kernel": "mine", "time_us": 50.0, **rows})
    assert not any(
        {"stall_memory_dependency", "stall_sync"} <= set(rules) for rules in own["rules"]
    )


def test_a_copy_is_not_the_kernel_that_others_would_be_fused_into():
    found = findings({"kernel": COPY, "time_us": 80.0}, {"kernel": GEMM, "time_us": 20.0})
    (copies,) = [row for row in found.to_dict("records") if "transform_kernels" in row["rules"]]
    assert copies["gain"] == pytest.approx(0.8)
    alone = findings({"kernel": COPY, "time_us": 80.0}, {"kernel": COPY, "time_us": 20.0})
    (rest,) = [row for row in alone.to_dict("records") if "transform_kernels" in row["rules"]]
    assert rest["gain"] == pytest.approx(0.2)
