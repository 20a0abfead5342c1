"""Causes of a step: what each takes, what its remedy saves, and what two steps differ by."""

import pytest

from perfml.account.account import (
    Account,
    Copies,
    DeviceAccount,
    Idle,
    Part,
    shows_training,
)
from perfml.account.causes import amounts, causes, changes, findings
from perfml.account.device_time import DeviceTime
from perfml.kernel_names import kernel_traits


def account(*, idle=(), parts=(), copies=(), trains=False):
    """One step on one device; its wall is what is in it."""
    idle = tuple(Idle(state, us, "") for state, us in idle)
    parts, copies = tuple(parts), tuple(copies)
    sums = [sum(each.us for each in group) for group in (parts, copies, idle)]
    step = DeviceTime(1, sums[0], *sums)
    launches = sum(part.launches for part in parts)
    device = DeviceAccount(0, step, (step,), idle, parts, copies, launches)
    return Account("step", (step.wall_us,), False, (device,), (), trains)


def part(kernel, us, *, operator="aten::op", launches=1.0, does="", traits=(), zone="", back=False):
    return Part(zone, operator, back, kernel, does, tuple(traits), "", us, launches)


def first(found):
    return findings(found)[0].cause.id


WAITED_FOR = {"paced", "warm_up"}
"""Causes of which nothing can be saved."""


def test_every_cause_is_seen_in_something_and_its_remedy_saves_a_share():
    for cause in causes():
        assert (0 < cause.saves <= 1 or cause.fills) != (cause.id in WAITED_FOR)
        assert cause.idle or cause.kernels or cause.copies is not None


def test_every_microsecond_has_one_cause_or_none():
    found = account(
        idle=[("loading", 100.0), ("python", 50.0), ("profiling", 7.0)],
        parts=[
            part("a", 30.0, traits=["type:double", "unaligned"], does="product"),
            part("b", 20.0),
        ],
        copies=[Copies("to_device", True, 5.0, 1.0, 1.0), Copies("filled", False, 3.0, 1.0, 1.0)],
    )
    amount = amounts(found, found.devices[0])
    assert sum(each.us for each in amount.values()) == pytest.approx(found.step_us)
    assert amount["double_precision"].us == pytest.approx(30.0)
    assert amount["unaligned"].us == 0.0
    assert amount["fills"].us == pytest.approx(3.0)
    assert amount[""].us == pytest.approx(7.0 + 20.0)


def test_batch_statistics_are_a_cause_only_where_nothing_is_trained():
    norm = [part("bn_fw_tr", 90.0, does="normalisation", traits=["statistics"])]
    assert first(account(parts=norm)) == "training_mode"
    assert not any(
        each.cause.id == "training_mode" for each in findings(account(parts=norm, trains=True))
    )


def test_a_batch_norm_beside_a_conversion_is_no_conversion():
    norm = part("bn_bw_1C11", 90.0, does="normalisation", traits=["nchw"])
    assert not any(each.cause.id == "layout" for each in findings(account(parts=[norm])))
    turned = part("nchwToNhwcKernel", 4.0, does="layout", traits=["layout_conversion"])
    (found,) = findings(account(parts=[norm, turned]))
    assert (found.cause.id, found.amount.us, found.saved_us) == ("layout", 4.0, 4.0)


def test_kernels_of_the_layout_that_is_converted_differ_from_those_of_the_other_by_layout():
    slow = account(parts=[part("bn_fw_NCHW", 60.0, does="normalisation", traits=["nchw"])])
    fast = account(parts=[part("bn_fw_nhwc", 20.0, does="normalisation", traits=["nhwc"])])
    assert [each.id for each in changes(fast, slow)] == ["layout"]
    assert [each.id for each in changes(slow, fast)] == ["layout"]


def test_a_cause_saves_no_more_than_it_holds_and_launching_is_shared_once():
    parts = [
        part("gemm", 50.0, launches=60.0),
        part("nchwToNhwcKernel", 10.0, does="layout", traits=["layout_conversion"], launches=40.0),
    ]
    found = {
        each.cause.id: each for each in findings(account(idle=[("python", 200.0)], parts=parts))
    }
    assert found["layout"].amount.us == pytest.approx(10.0 + 80.0)
    assert found["launch_bound"].amount.us == pytest.approx(120.0)
    assert all(each.saved_us <= each.amount.us for each in found.values())


def test_an_optimizer_that_takes_all_parameters_at_once_is_no_loop():
    fused = part("multi_tensor_apply", 90.0, zone="optimizer", does="optimizer")
    assert findings(account(parts=[fused])) == []
    loop = part("elementwise", 90.0, zone="optimizer", does="elementwise", launches=300.0)
    assert first(account(parts=[loop])) == "optimizer_loop"


def test_what_two_steps_differ_by_adds_up_and_its_cause_comes_first():
    one = account(idle=[("python", 40.0)], parts=[part("gemm", 100.0, does="product")])
    other = account(
        idle=[("python", 30.0), ("loading", 500.0)], parts=[part("gemm", 110.0, does="product")]
    )
    found = changes(one, other)
    assert sum(each.us for each in found) == pytest.approx(other.step_us - one.step_us)
    assert [(each.id, each.us) for each in found] == [
        ("data_loading", 500.0),
        ("same_kernels", 10.0),
        ("launch_bound", -10.0),
    ]
    # the other way round the same causes have the other sign
    assert {each.id: -each.us for each in changes(other, one)} == {
        each.id: each.us for each in found
    }
    assert changes(other, one)[0].id == "data_loading"


def test_launching_longer_is_the_fault_of_what_launches_more():
    one = account(
        idle=[("operators", 100.0)], parts=[part("gemm", 50.0, launches=100.0)], trains=True
    )
    other = account(
        idle=[("operators", 190.0)],
        parts=[
            part("gemm", 50.0, launches=100.0),
            part("gemm", 25.0, launches=90.0, zone="recomputed"),
        ],
        trains=True,
    )
    (change,) = changes(one, other)
    assert (change.id, change.us) == ("recomputation", pytest.approx(90.0 + 25.0))


def test_an_operator_is_compared_with_itself_and_the_kernels_names_tell_why():
    one = account(parts=[part("gemm_align8", 10.0, does="product", traits=["type:half"])])
    odd = part("gemm_align1", 60.0, does="product", traits=["type:half", "unaligned"])
    assert [each.id for each in changes(one, account(parts=[odd]))] == ["unaligned"]
    other = part("gemm_256x128", 60.0, does="product", traits=["type:half"])
    assert [each.id for each in changes(one, account(parts=[other]))] == ["other_kernels"]
    single = part("gemm_tf32", 60.0, does="product", traits=["type:tf32"])
    assert [each.id for each in changes(one, account(parts=[single]))] == ["wider_type"]
    again = part("gemm_align8", 60.0, does="product", traits=["type:half"], launches=6.0)
    assert [each.id for each in changes(one, account(parts=[again]))] == ["more_launches"]


@pytest.mark.parametrize(
    ("kernel", "trains", "cause"),
    [
        ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", True, "all_to_all"),
        ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*)", True, "communication"),
        ("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(x)", True, "sharded_parameters"),
        ("ncclDevKernel_AllReduce_Sum_f16_RING_LL(x)", False, "activations_reduced"),
    ],
)
def test_communication_is_told_apart_by_collective_and_phase(kernel, trains, cause):
    traits = kernel_traits(kernel)
    ran = part(kernel, 90.0, does=traits.does, traits=traits.ids(), zone="communication")
    product = part("gemm", 1.0, does="product")
    assert first(account(parts=[ran, product], trains=trains)) == cause


@pytest.mark.parametrize(
    ("names", "trains"),
    [
        (["sm90_xmma_wgrad_implicit_gemm"], True),
        (["Optimizer.step#AdamW.step"], True),
        (["cudnn::bn_bw_1C11_kernel_new"], True),
        (["cudnn::cnn::dgrad2d_grouped_direct_kernel"], False),  # a transposed convolution
        (["sm90_xmma_gemm", "forward"], False),
        (["multi_tensor_apply_kernel<TensorListMetadata<3>, LerpFunctor<float>>"], True),
        (["multi_tensor_apply_kernel<UnaryOpFunctor<long, 2>, at::Copy<long, long>>"], False),
    ],
)
def test_kernels_and_ranges_of_backward_or_an_optimizer_show_training(names, trains):
    assert shows_training(names) == trains


EMBEDDING = part("embedding_bag_kernel", 5.0, does="embedding")
EXCHANGE = part("nccl_SendRecv", 5.0, does="communication", traits=["all_to_all"])
FLASH = part("flash_fwd", 5.0, does="attention")


@pytest.mark.parametrize(
    ("parts", "trains", "kind"),
    [
        ([part("gemm", 5.0, does="product")], True, "training"),
        ([EMBEDDING, EXCHANGE], False, "recommender"),
        # experts are exchanged, too
        ([EMBEDDING, EXCHANGE, FLASH], False, "inference"),
        ([FLASH, part("argmax", 1.0, does="sampling")], False, "decoding"),
        ([FLASH, part("argmax", 1.0, does="sampling", launches=0.1)], False, "inference"),
        ([FLASH, part("reshape_and_cache", 1.0, does="cache")], False, "decoding"),
        ([part("fprop", 5.0, does="convolution")], False, "convolutional"),
        ([part("k", 5.0, operator="aten::cudnn_convolution")], False, "convolutional"),
        # a transformer of images cuts them into patches by one convolution
        (
            [part("gemm", 5.0, does="product", launches=9.0), part("f", 1.0, does="convolution")],
            False,
            "inference",
        ),
        ([part("stencil", 5.0)], False, "unknown"),
    ],
)
def test_what_program_it_is_is_seen_in_what_it_launches(parts, trains, kind):
    assert account(parts=parts, trains=trains).kind == kind


def test_ranks_of_a_program_that_is_no_network_add_up_no_activations():
    reduced = part("ncclAllReduce", 90.0, does="communication", zone="communication")
    assert first(account(parts=[reduced, part("stencil", 5.0)])) == "communication"


def test_what_no_counter_tells_saves_no_number():
    found = findings(account(parts=[part("vecCopy", 90.0, traits=["type:double"])]))
    (one,) = (each for each in found if each.cause.id == "double_precision")
    assert one.saved_us == 0.0
    assert "double_precision_fu_utilization" in one.tells
    summed = part("reduce_kernel", 90.0, does="reduction", traits=["type:double"])
    assert first(account(parts=[summed])) == "double_precision"


def test_backward_kernels_of_miopen_show_training_and_a_gemm_of_integers_does_not():
    assert shows_training(["MIOpenBatchNormBwdSpatial"])
    assert shows_training(["igemm_wrw_gtcx3_nhwc_fp16_bx0"])
    assert not shows_training(["igemm_fwd_gtcx3_nhwc_fp16_bx0", "MIOpenBatchNormFwdInferSpatial"])
