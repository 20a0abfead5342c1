"""Whom advice is for: the kernel's author, or who calls a library's or PyTorch's."""

import pandas as pd
import pytest

from perfml.explain import advise
from perfml.explain.remedies import (
    Person,
    Situation,
    person_of,
    person_of_all,
    remedy_for,
)
from tests.support.tables import make_kernels

SCATTERED = {"gld_efficiency": 0.125, "stall_memory_dependency": 0.8, "gld_transactions": 8e6}
SCATTERED |= {"gst_transactions": 0.0, "l2_utilization": 0.5, "dram_utilization": 0.1}
CUDNN = "sm80_xmma_fprop_implicit_gemm_f32f32_f32f32_f32_nchwkcrs_nchw"


def launches(kernel, backend="mine", time_us=100.0):
    row = {"run_id": backend, "backend": backend, "kernel": kernel, "time_us": time_us}
    return make_kernels([{**row, **SCATTERED}])


def first(*tables):
    table = advise(pd.concat(tables)).table
    return table[[rules[0] == "uncoalesced_loads" for rules in table["rules"]]].iloc[0]


@pytest.mark.parametrize(
    ("kernel", "person"),
    [
        (CUDNN, Person.LIBRARY),
        ("nvjet_sm90_hsh_64x8_64x16_4x1_v_bz_TNT", Person.LIBRARY),
        ("void cutlass::Kernel2<cutlass_80_tensorop>(Params)", Person.LIBRARY),
        ("void flash_fwd_kernel<Flash_fwd_kernel_traits<64>>()", Person.LIBRARY),
        ("void gemmSN_TN_kernel<float>(int)", Person.LIBRARY),
        ("sgemm_128x128x8_NN_vec", Person.LIBRARY),
        ("void sgemm_largek_lds64<true, false, 5>(float*, float const*)", Person.LIBRARY),
        ("ampere_sgemm_128x64_nn", Person.LIBRARY),
        ("void ampere_lstm_tile16<32, 1>(params_t)", Person.LIBRARY),
        ("triton_poi_fused_relu_0", Person.PYTORCH),
        ("void at::native::im2col_kernel<float>(long)", Person.PYTORCH),
        ("void (anonymous namespace)::softmax_warp_forward<float>()", Person.PYTORCH),
        ("attention_wgmma", Person.AUTHOR),
        ("sgemm_naive(int, int, float const*)", Person.AUTHOR),
        ("void sgemm_128x128x8_kernel<8>(int, float*)", Person.AUTHOR),
        ("sgemm_v3", Person.AUTHOR),
        ("hopper_gemm(__half const*, float*)", Person.AUTHOR),
        ("load_stride(float const*)", Person.AUTHOR),
        ("my_format::scale(float*)", Person.AUTHOR),
    ],
)
def test_a_kernel_s_name_tells_who_can_change_it(kernel, person):
    assert person_of(kernel) is person


def test_of_several_kernels_one_s_own_decides():
    assert person_of_all([CUDNN, "mine"]) is Person.AUTHOR
    assert person_of_all([CUDNN, "triton_poi_fused_0"]) is Person.PYTORCH
    assert person_of_all([CUDNN, CUDNN]) is Person.LIBRARY
    assert person_of_all([]) is Person.AUTHOR


def test_the_author_of_a_kernel_is_told_how_to_write_it():
    row = first(launches("mine"))
    assert row["person"] == "kernel author"
    assert row["mitigation"] == remedy_for(row["rules"][0], Situation()).say
    assert row["for_author"] is None


@pytest.mark.parametrize(
    ("kernel", "person", "said"),
    [
        (CUDNN, "library user", "The kernel is a library's. Pass contiguous, aligned data"),
        ("triton_poi_fused_0", "PyTorch user", "The kernel is PyTorch's. Keep its tensors contig"),
    ],
)
def test_users_are_told_what_they_can_do_and_the_author_s_text_stays(kernel, person, said):
    row = first(launches(kernel))
    assert row["person"] == person
    assert row["mitigation"].startswith(said)
    assert row["for_author"] == remedy_for(row["rules"][0], Situation()).say
