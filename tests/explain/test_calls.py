"""What who calls PyTorch or a library is told, and what leaving launches out saves."""

import pytest

from perfml.explain import explain, sides_of
from perfml.explain.load import load_tables
from perfml.explain.remedies import Person, Situation, remedy_for
from perfml.explain.tree.library_kernels import is_product

GEMM = "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize128x128x8_aligna4_alignc4_execute_kernel"
COPY = "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda()>(int)"


def said_to(person, cause, kernel=""):
    return remedy_for(cause, Situation(person, kernel, frozenset({"convolution"}))).text.lower()


@pytest.mark.parametrize(
    ("term", "kernel", "said"),
    [
        ("kernels_appeared", COPY, "convert or copy once"),
        ("kernels_appeared", "at::native::im2col_kernel<float>", "F.conv2d"),
        ("kernels_vanished", "at::native::index_elementwise_kernel<128>", "torch.where"),
        ("kernels_appeared", "DeviceSegmentedRadixSortKernel", "torch.topk"),
        ("kernels_appeared", "at::native::vectorized_elementwise_kernel<4>(int)", "F.layer_norm"),
        ("dram_bytes", "at::native::vectorized_gather_kernel<16>", "nn.EmbeddingBag"),
        ("fp64_pipe_time", "at::native::vectorized_elementwise_kernel<2>", "float32"),
        ("sectors_per_request", "cunn_SpatialSoftMaxForward<float>", "contiguous"),
        ("sectors_per_request", "at::native::index_elementwise_kernel<128>", "sort the index"),
        ("global_atomics", "at::native::index_elementwise_kernel<128>", "segment_reduce"),
        ("global_requests", "at::native::elementwise_kernel<128>(int)", "one memory_format"),
        ("wave_quantization", "tensor_kernel_scan_outer_dim<float>", "contiguous dimension"),
    ],
)
def test_who_calls_pytorch_is_told_which_call_to_make(term, kernel, said):
    assert said.lower() in said_to(Person.PYTORCH, term, kernel)


@pytest.mark.parametrize(
    ("term", "kernel", "said"),
    [
        ("instructions", "cutlass_75_tensorop_bf16_s1688gemm_bf16_nn_align1", "pad rows"),
        ("stall_memory_dependency", "cutlass_80_tensorop_f16_nn_align2", "pad rows"),
        ("tensor_unused", GEMM, "set_float32_matmul_precision"),
        ("kernels_appeared", "nchwToNhwcKernel", "channels_last"),
        ("instructions", "internal::gemvx::kernel<int>", "point by point"),
        ("kernels_appeared", GEMM, "F.scaled_dot_product_attention"),
    ],
)
def test_who_calls_a_library_is_told_what_its_kernel_s_name_says(term, kernel, said):
    assert said.lower() in said_to(Person.LIBRARY, term, kernel)


def test_who_adds_whole_tensors_needs_no_other_layout():
    whole = "at::native::vectorized_elementwise_kernel<4>(int)"
    assert "memory_format" not in said_to(Person.PYTORCH, "global_requests", whole)


def test_aligned_rows_are_not_to_be_padded():
    usual = said_to(Person.LIBRARY, "instructions")
    for kernel in ("cutlass_80_tensorop_f16_nn_align8", GEMM):
        assert said_to(Person.LIBRARY, "instructions", kernel) == usual


def test_a_kernel_that_turns_data_around_is_no_product():
    assert is_product(GEMM)
    assert not is_product("cudnn::engines_precompiled::nhwcToNchwKernel")
    assert not is_product(COPY)
    assert not is_product("void cublasLt::splitKreduce_kernel<32, 16, int, float>()")
    assert not is_product("void cudnn::bn_fw_inf_1C11_kernel_NCHW<float, float, true, 1>()")
    assert is_product("void trsm_batch_left_lower_kernel<float>(cublasTrsmBatchParams<float>)")
    assert is_product("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_3")


@pytest.fixture(scope="module")
def fixes():
    layers, kernels = load_tables("h200-torch-pairs")
    sides = sides_of(layers, "before", "after", kernels=kernels)
    names = ["int8_linear", "conv_stage", "gelu_by_hand", "grouped_conv", "attention_block"]
    names += ["adam_step", "projection", "window_signal"]
    return {each.layer: each.fix for each in explain(*sides, layers=names, model=None).details}


def test_without_launches_of_one_side_only_their_time_goes(fixes):
    # both conversions take 340.6 of 379.6 us, and the product stays
    assert fixes["int8_linear"].after_us == pytest.approx(38.9, abs=0.2)
    assert fixes["conv_stage"].after_us == pytest.approx(115, abs=1)
    fix = fixes["gelu_by_hand"]
    assert fix.after_low_us < 77.7 < fix.after_high_us  # what F.gelu took


def test_what_other_kernels_of_a_library_would_take_is_not_said(fixes):
    for layer in ("attention_block", "grouped_conv", "adam_step", "projection"):
        assert fixes[layer].gain is None
        assert fixes[layer].unsaid == "algorithm"


def test_a_loop_of_products_is_one_call_s_to_do(fixes):
    assert "Let one call do what 15 launches" in fixes["grouped_conv"].action


def test_floats_in_place_of_doubles_are_half_the_bytes(fixes):
    fix = fixes["window_signal"]
    assert fix.term.id == "fp64_pipe_time"
    assert fix.now.us - fix.likely_us == pytest.approx(482, rel=0.05)  # as it was measured
