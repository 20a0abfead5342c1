"""What kernels do, by the names that libraries give them."""

import pytest

from perfml.kernel_names import kernel_class, kernel_phase

# as profiles name them: torch 2.11 on an H100, vLLM 0.9 to 0.18, SGLang, FlashInfer, TensorRT-LLM
NAMES = {
    "gemm": [
        "nvjet_sm90_tst_64x8_64x16_4x1_v_bz_TNT",
        "void cublasLt::splitKreduce_kernel<32, 16, int, float, __nv_bfloat16>(int)",
        "std::enable_if<!(false), void>::type internal::gemvx::kernel<int, int, float>(int)",
        "void cutlass::Kernel2<cutlass_80_simt_sgemm_128x32_8x5_nn_align1>(Params)",
        "fused_moe_kernel",
        "_w8a8_block_fp8_matmul",
        "_matmul_ogs_NNT_bf16xbf16xmxfp4_16x256x128x1_swiglu",
        "void mul_mat_q<(ggml_type)8, 128, false>(char const*)",
        "triton_tem_fused_addmm_relu_3",
    ],
    "attention": [
        "void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<int>>>(P)",
        "void pytorch_flash::flash_fwd_splitkv_kernel<Flash_fwd_kernel_traits<64, 64>>(P)",
        "fmha_cutlassF_bf16_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<int>)",
        "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x64",
        "void flashinfer::BatchPrefillWithPagedKVCacheKernel<(flashinfer::MaskMode)1>(int)",
        "_fwd_grouped_kernel_stage1",
        "void vllm::paged_attention_v2_reduce_kernel<c10::Half, 128>(int)",
    ],
    "cache": [
        "void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16, __nv_bfloat16>(int)",
        "void vllm::concat_and_cache_mla_kernel<__nv_bfloat16, unsigned char>(int)",
        "void flashinfer::AppendPagedKVCacheKernel<128u, 8u>(int)",
        "_compute_slot_mappings_kernel",
    ],
    "rotary": [
        "void vllm::rotary_embedding_kernel<c10::BFloat16, true>(long const*)",
        "void flashinfer::BatchQKApplyRotaryPosIdsCosSinCacheKernel<false>(int)",
        "void (anonymous namespace)::fused_rope_store_kernel<true, 128l>(int)",
        "void tensorrt_llm::kernels::applyBiasRopeUpdateKVCacheV2<__half>(P)",
    ],
    "norm": [
        "std::enable_if<vllm::_typeConvert<T>::exists>::type vllm::fused_add_rms_norm_kern<T>()",
        "void flashinfer::norm::FusedAddRMSNormKernel<8u, __nv_bfloat16>(int)",
        "kernel_cutlass_kernel_flashinfernormkernelsfused_add_rmsnormFusedAddRMSNormKernel_object",
        "triton_red_fused__fused_rms_norm__unsafe_view_add_10",
        "triton_red_fused__to_copy_add_mean_mul_pow_rsqrt_2",
    ],
    "elementwise": [
        "void vllm::act_and_mul_kernel<c10::Half, &vllm::silu_kernel<c10::Half>, true>(int)",
        "void at::native::vectorized_elementwise_kernel<8, at::native::CUDAFunctor_add<int>>(int)",
        "triton_poi_fused_convolution_leaky_relu_0",
    ],
    "communication": [
        "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*)",
        "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<1>(int)",
        "moeA2ADispatchKernel",
    ],
    "routing": [
        "void vllm::moe::topkGatingSoftmax<8, 128, 4, 16, 32, int>(float const*)",
        "void moe_align_block_size_kernel<int>(int const*, int*)",
        "finalizeMoeRoutingKernel",
        "void moe_sum_reduce_kernel<c10::BFloat16, 8>(c10::BFloat16 const*)",
    ],
    "sampling": [
        "void at::native::sbtopk::gatherTopK<float, unsigned int, 2, false>(int)",
        "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, ArgMaxOps<float>>>()",
        "void flashinfer::sampling::TopKTopPSamplingFromProbKernel<1024u>(float*)",
        "_gumbel_sample_kernel",
    ],
    "quantization": [
        "void vllm::scaled_fp8_quant_kernel<c10::BFloat16>(c10::Float8_e4m3fn*)",
        "void per_token_group_quant_8bit_kernel<c10::BFloat16>(int)",
    ],
    "copy": [
        "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<int>>(int)",
        "void at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(int)>()",
        "void at::native::multi_tensor_apply_kernel<UnaryOpFunctor<long>, at::native::Copy<l>>()",
    ],
    "state_space": ["selective_state_update_kernel", "void causal_conv1d_update_kernel<T>(P)"],
    "convolution": [
        "conv_10/void implicit_convolve_sgemm<float, float, 128, 5, 5>(int)",
        "features.3.conv.2.weight + QuantizeLinear_138 + Conv_142 + Add_144",
    ],
    "other": ["mhc_pre_big_fuse_tilelang_kernel", "add(int, float*, float*)"],
}


@pytest.mark.parametrize(("layer", "name"), [(k, n) for k, names in NAMES.items() for n in names])
def test_a_kernel_is_of_the_class_that_its_library_names(layer, name):
    assert kernel_class(name).layer == layer


@pytest.mark.parametrize(
    ("name", "phase"),
    [
        ("void flashinfer::BatchDecodeWithPagedKVCacheKernel<1>(int)", "decode"),
        ("void masked_multihead_attention_kernel<unsigned short, 128>(P)", "decode"),
        ("_fwd_grouped_kernel_stage1", "decode"),
        ("void flashinfer::BatchPrefillWithRaggedKVCacheKernel<1>(int)", "prefill"),
        ("_fwd_kernel", "prefill"),
        # vLLM runs this one for both
        ("void flash::flash_fwd_splitkv_kernel<Traits>(P)", ""),
        ("decode_tokens_kernel", ""),
    ],
)
def test_an_attention_kernel_that_is_made_for_one_phase_says_which(name, phase):
    assert kernel_phase(name) == phase
