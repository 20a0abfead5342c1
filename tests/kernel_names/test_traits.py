"""What names of kernels tell; the names are of recorded traces and profiles."""

import pytest

from perfml.kernel_names import kernel_traits

NAMES = {
    "void cutlass::Kernel2<cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_tn_align1>(Params)": (
        *("product", "bf16", True, 1),
        {"unaligned"},
    ),
    "cutlass_80_tensorop_s16816gemm_f16_64x128_64x3_nn_align8": ("product", "half", True, 8, set()),
    "sm80_xmma_gemm_f32f32_f32f32_f32_nn_n_tilesize64x64x8_stage3_warpsize1x4x1_ffma_aligna4": (
        *("product", "float", False, 4),
        {"no_tensor_cores"},
    ),
    "cutlass_80_simt_sgemm_256x128_8x4_nn_align1": (
        *("product", "float", False, 1),
        {"no_tensor_cores"},
    ),
    "ampere_sgemm_128x64_nn": ("product", "float", False, None, {"no_tensor_cores"}),
    "nvjet_sm90_hsh_64x64_64x13_1x2_h_bz_splitK_NTT": ("product", "half", True, None, {"split_k"}),
    "sm90_xmma_gemm_f64f64_f64f64_f64_nn_n_tilesize32x64x32_stage3_tensor16x8x16_execute_kernel": (
        *("product", "double", True, None),
        set(),
    ),
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<double, F, unsigned int, double>>"
    "(T)": ("reduction", "double", None, None, set()),
    "void at::native::vectorized_elementwise_kernel<8, at::native::CUDAFunctor_add<c10::Half>, A>"
    "(int)": ("elementwise", "half", None, None, set()),
    "void multi_tensor_apply_kernel<TensorListMetadata<4>, FusedAdamMathFunctor<float, 4>, "
    "float const*, double, double>(T)": ("optimizer", "float", None, None, set()),
    "void cudnn::engines_precompiled::nchwToNhwcKernel<__half, __half, float, false>(P)": (
        *("layout", "half", None, None),
        {"layout_conversion", "nhwc"},
    ),
    "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, int, 512>(cudnnTensorStruct)": (
        *("normalisation", "float", None, None),
        {"statistics", "nchw"},
    ),
    "void cudnn::bn_fw_inf_1C11_kernel_NCHW<float, float, true, 1>(float)": (
        *("normalisation", "float", None, None),
        {"inference", "nchw"},
    ),
    "void cudnn::batchnorm_bwtr_nhwc_semiPersist<__half, float, __half, 512>(P)": (
        *("normalisation", "half", None, None),
        {"nhwc"},
    ),
    "void multi_bluestein_fft<256u, EPT<16u>, 16u, 0u, unsigned int, float>(A)": (
        *("fft", "float", None, None),
        {"bluestein"},
    ),
    "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x64": (
        *("attention", "half", True, None),
        set(),
    ),
    "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)": (
        *("communication", "float", None, None),
        set(),
    ),
    "void (anonymous namespace)::softmax_warp_forward<float, float, float, 11, true, false>(T)": (
        *("softmax", "float", None, None),
        {"log_softmax"},
    ),
    "triton_poi_fused_gelu_0": ("elementwise", "", None, None, {"triton"}),
    "saxpy(int, float, float*, float*)": ("", "float", None, None, set()),
}


@pytest.mark.parametrize("name", NAMES)
def test_a_name_tells_what_a_kernel_does_and_how_it_is_built(name):
    does, kind, cores, alignment, traits = NAMES[name]
    found = kernel_traits(name)
    assert (found.does, found.type, found.alignment) == (does, kind, alignment)
    assert found.tensor_cores is cores
    assert found.ids() == traits | ({f"type:{kind}"} if kind else set())
