"""What names of kernels say where nothing was counted."""

import pytest

from perfml.account.audit import audited
from perfml.account.build import account_without_host, kernels_of
from perfml.account.device_time import Spans
from perfml.account.recording import Recording
from perfml.explain import advise
from perfml.explain.advice.network import name_findings, step_findings
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


def test_a_type_in_the_signature_of_an_authors_kernel_saves_nothing_that_is_known():
    rows = [{"kernel": "vecCopy(double*, double*, int)", "time_us": 90.0}]
    found = advise(make_kernels(rows)).findings
    (double,) = (each for each in found if each.rules == ("double_precision",))
    assert double.gain is None
    assert double.confidence == "low"
    assert "double_precision_fu_utilization" in double.tells
    assert found[0].rules == ("not_known",)  # what to count comes first


def test_statistics_are_no_loss_where_backward_runs():
    backward = "void cudnn::bn_bw_1C11_kernel_new<float>(float)"
    table = make_kernels([{"kernel": NORM, "time_us": 90.0}, {"kernel": backward, "time_us": 9.0}])
    assert not any("training_mode" in each.rules for each in name_findings(table))


def test_where_counters_were_collected_they_tell():
    table = make_kernels([{"kernel": DOUBLE, "time_us": 90.0, "dram_utilization": 0.5}])
    assert name_findings(table) == ()


@pytest.mark.parametrize(("idle_ms", "first"), [(2, "not_known"), (30, "unrecorded")])
def test_idle_time_that_nothing_explains_leads_where_it_is_the_largest_part(idle_ms, first):
    begins = [1_000_000 * (10 + idle_ms) * n for n in range(3)]
    ran = Spans.of([(0, begin, begin + 10_000_000) for begin in begins])
    account = account_without_host(kernels_of(["gemm"] * 3, ran, [0] * 3))
    table = make_kernels([{"kernel": "gemm(float*)", "time_us": 1e4}] * 3)
    found = advise(table, account=account).findings
    assert found[0].rules[0] == first
    (idle,) = (each for each in found if each.rules[0] == "unrecorded")
    assert idle.holds.us == pytest.approx(2_000.0 * idle_ms)
    assert idle.gain is None


def test_of_a_recording_of_communication_alone_idle_time_is_not_known():
    ran = Spans.of([(0, 0, 10_000_000), (0, 50_000_000, 60_000_000)])
    activities = kernels_of(["ncclDevKernel_AllReduce_Sum_f32_RING_LL"] * 2, ran, [0] * 2)
    _, audit = audited(Recording((), tuple(activities)))
    assert [fact.id for fact in audit.facts] == ["no_computing"]
    account = account_without_host(activities, unknown=audit.unknown)
    assert step_findings(account) == ()
