"""What names of kernels say where nothing was counted."""

import pytest

from perfml.explain import advise
from perfml.explain.advice.network import name_findings
from tests.support.tables import make_kernels

DOUBLE = "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<double, F>>(T)"
ODD = "void cutlass::Kernel2<cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_tn_align1>(P)"
NORM = "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, int, 512>(cudnnTensorStruct)"


@pytest.mark.parametrize(
    ("kernel", "cause"),
    [(DOUBLE, "double_precision"), (ODD, "unaligned"), (NORM, "training_mode")],
)
def test_a_name_answers_what_counters_were_asked_for(kernel, cause):
    table = make_kernels(
        [{"kernel": kernel, "time_us": 90.0}, {"kernel": "mine(float*)", "time_us": 10.0}]
    )
    (found,) = advise(table).network
    assert found.rules == (cause,)
    assert found.holds.us == pytest.approx(100.0)
    assert 0 < found.saved_us <= 90.0


def test_statistics_are_no_loss_where_backward_runs():
    backward = "void cudnn::bn_bw_1C11_kernel_new<float>(float)"
    table = make_kernels([{"kernel": NORM, "time_us": 90.0}, {"kernel": backward, "time_us": 9.0}])
    assert not any("training_mode" in each.rules for each in name_findings(table))


def test_where_counters_were_collected_they_tell():
    table = make_kernels([{"kernel": DOUBLE, "time_us": 90.0, "dram_utilization": 0.5}])
    assert name_findings(table) == ()
