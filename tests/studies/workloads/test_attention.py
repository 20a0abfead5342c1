"""The attention workload: options, tiles, and its CUDA sources on the CPU (tests/cuda_on_cpu)."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.workloads import Options, workload
from collectors.workloads.session import KernelSession
from perfml.errors import InputError, PerfmlError
from studies.workloads.attention import launch, tensor_map
from studies.workloads.attention.problems import Problem, parse_sizes, reference
from studies.workloads.attention.variants import LADDER, LAZY, SHARED_LIMIT, VARIANTS
from studies.workloads.attention.workload import choose_variants, plan
from tests.support.attention_sources import (
    changed_sources,
    compiled,
    in_double,
    inputs,
    off,
    run_on_cpu,
    tensor_program,
)

pytestmark = pytest.mark.slow


# ---- options -------------------------------------------------------------------------------------


def test_the_published_sizes_are_a_set_and_small_ones_keep_their_head_dimensions():
    published = [(each.count, each.tokens, each.dim) for each in parse_sizes("published")]
    assert published == [
        (10, 2048, 64), (13600, 128, 32), (500, 2048, 64), (4, 32768, 32), (2, 32768, 64),
    ]  # fmt: skip
    assert [each.dim for each in parse_sizes("small")] == [each[2] for each in published]
    assert {(each.count, each.dim) for each in parse_sizes("tokens")} == {(48, 64)}


@given(st.lists(st.tuples(*[st.integers(1, 10**5)] * 3), min_size=1, max_size=5, unique=True))
def test_sizes_are_read_as_they_are_written(sizes):
    text = ", ".join("x".join(map(str, size)) for size in sizes)
    assert [(p.count, p.tokens, p.dim) for p in parse_sizes(text)] == sizes


@pytest.mark.parametrize(
    "text", ["", "10x2048", "0x128x32", "large", "2x128x32,2x128x32", "small,"]
)
def test_a_size_that_is_none_is_refused(text):
    with pytest.raises(InputError, match="--set sizes"):
        parse_sizes(text)


def test_a_causal_problem_has_half_the_operations_and_a_name_of_its_own():
    full, masked = Problem(2, 100, 64), Problem(2, 100, 64, causal=True)
    assert full.flops == 2 * masked.flops == 4 * 2 * 100 * 100 * 64
    assert masked.name == "b2_n100_d64_causal"


def test_a_batch_multiplies_the_problems():
    options = Options("fused", batch=3, settings=(("sizes", "10x256x64"),))
    assert plan(options) == [("b30_n256_d64", Problem(30, 256, 64), "")]


@pytest.mark.parametrize(
    ("backend", "settings", "message"),
    [
        ("fused", {"sizes": "1x100x64"}, "multiples of 128"),
        ("fused", {"sizes": "1x128x128"}, "head dimensions 32 and 64"),
        ("wmma", {"sizes": "1x128x32"}, "head dimensions 64 and 128"),
        ("triton", {"sizes": "1x128x48"}, "head dimensions 32, 64 and 128"),
        ("wmma", {"sizes": "70000x128x64"}, "65535 problems"),
        ("split_q", {"causal": "1"}, "no causal mask"),
        ("mma", {"causal": "yes"}, "causal is 0 or 1"),
        ("wmma", {"variants": "q33_kv64"}, "no such variant"),
        ("wmma", {"variants": "q64_kv160", "sizes": "1x128x128"}, "no such variant"),
        ("mma", {"variants": "r16_kv64_w8,r16_kv64_w8"}, "twice"),
        ("torch-fa2", {"variants": "all"}, "has no variants"),
        ("mma", {"tiles": "32x64"}, "no setting of this name"),
    ],
)
def test_what_a_version_cannot_do_is_refused_before_anything_is_compiled(
    backend, settings, message
):
    with pytest.raises(InputError, match=message):
        plan(Options(backend, precision="fp16", settings=tuple(settings.items())))


def test_layers_are_named_by_the_size_so_that_versions_compare_and_by_the_tile_where_asked():
    sizes = ("sizes", "48x25600x64")
    names = {
        backend: [name for name, _, _ in plan(Options(backend, "fp16", settings=(sizes,)))]
        for backend in ("wmma", "mma", "wgmma", "torch-fa2")
    }
    assert set(map(tuple, names.values())) == {("b48_n25600_d64",)}
    tiles = plan(Options("wmma", "fp16", settings=(sizes, ("variants", "q16_kv32,q64_kv160"))))
    assert [name for name, _, _ in tiles] == [
        "b48_n25600_d64_q16_kv32", "b48_n25600_d64_q64_kv160",
    ]  # fmt: skip


def test_the_workload_offers_the_ladder_first_and_its_steps_in_order():
    found = workload("attention")
    assert found.default_backends() == tuple(LADDER)
    assert found.steps()[:2] == (("separate", "fused"), ("fused", "shared_48k"))
    assert {found.precisions(name) for name in LADDER} == {("fp32",)}
    with pytest.raises(InputError, match="no such version"):
        found.precisions("flash")


def test_a_session_without_a_gpu_is_refused():
    with pytest.raises(InputError, match="GPU only"):
        workload("attention").session(Options("fused", device="cpu"))


# ---- tiles ---------------------------------------------------------------------------------------


def test_every_tile_of_the_study_fits_at_head_dimension_64_and_all_but_the_largest_at_128():
    tiles = [name for name in VARIANTS["wmma"] if name.count("_") == 1]
    assert len(tiles) == 16
    assert set(choose_variants("wmma", "all", 64)) >= set(tiles)
    assert set(tiles) - set(choose_variants("wmma", "all", 128)) == {"q64_kv160"}


@pytest.mark.parametrize("dim", [64, 128])
@pytest.mark.parametrize("backend", VARIANTS)
def test_a_default_variant_exists_for_each_head_dimension(backend, dim):
    (chosen,) = choose_variants(backend, "default", dim)
    assert 0 < VARIANTS[backend][chosen].shared_bytes(dim) <= SHARED_LIMIT


@pytest.mark.parametrize("name", VARIANTS["wgmma"])
def test_the_warpgroups_of_wgmma_ask_for_no_more_registers_than_they_started_with(name):
    variant = VARIANTS["wgmma"][name]
    macros, threads = variant.defines, variant.threads
    at_start = 65536 // macros["MIN_BLOCKS"] // threads // 8 * 8
    wanted = 128 * (macros["CONSUMERS"] * macros["REGISTERS"] + macros["PRODUCER_REGISTERS"])
    assert wanted <= at_start * threads
    assert macros["REGISTERS"] % 8 == macros["PRODUCER_REGISTERS"] % 8 == 0
    assert threads == 128 * (macros["CONSUMERS"] + 1)
    assert macros["REGISTERS"] >= at_start >= macros["PRODUCER_REGISTERS"]


@given(st.integers(1, 40_000))
def test_a_panel_of_separate_kernels_divides_the_tokens(tokens):
    assert tokens % launch.panel(tokens) == 0
    assert launch.panel(tokens) <= launch.PANEL


def test_a_grid_covers_the_rows_once():
    problem = Problem(10, 2048, 64)
    assert launch.rung_grid(LADDER["fused"], problem) == (10, 1)
    assert launch.rung_grid(LADDER["split_q"], problem) == (10, 16)


# ---- tensor maps ---------------------------------------------------------------------------------


class Driver:
    """Keeps what it is asked to encode."""

    def __init__(self, status):
        self.status, self.seen = status, None

    def cuTensorMapEncodeTiled(self, *given):  # noqa: N802 - the driver's name
        self.seen = [getattr(each, "value", None) or list(each) for each in given[2:8:1]]
        self.room = given[0].value
        return self.status


def test_a_tensor_map_names_columns_first_and_strides_in_bytes(monkeypatch):
    driver = Driver(0)
    monkeypatch.setattr(tensor_map.ctypes, "CDLL", lambda _: driver)
    made = tensor_map.encode(4096, (48, 25600, 128), 192)
    assert len(made) == tensor_map.BYTES
    assert driver.seen == [
        3, 4096, [128, 25600, 48], [256, 25600 * 256], [64, 192, 1], [1, 1, 1],
    ]  # fmt: skip
    assert driver.room % 64 == 0


def test_a_map_that_the_driver_refuses_is_an_error_of_ours(monkeypatch):
    monkeypatch.setattr(tensor_map.ctypes, "CDLL", lambda _: Driver(1))
    with pytest.raises(PerfmlError, match="refuses a tensor map"):
        tensor_map.encode(4096, (1, 128, 64), 64)


def test_without_a_driver_the_message_names_its_library(monkeypatch):
    def missing(_):
        raise OSError

    monkeypatch.setattr(tensor_map.ctypes, "CDLL", missing)
    with pytest.raises(PerfmlError, match=r"libcuda\.so\.1"):
        tensor_map.encode(4096, (1, 128, 64), 64)


# ---- the kernels' own sources, on the CPU --------------------------------------------------------


@pytest.fixture(scope="module", params=[32, 64])
def ladder_program(request, tmp_path_factory):
    macros = {"SOURCE": '"ladder.cu"', "HALF": 0, "HEAD_DIM": request.param}
    return compiled(tmp_path_factory.mktemp("ladder"), macros), request.param


def test_every_version_of_the_ladder_computes_attention(ladder_program):
    program, dim = ladder_program
    tensors = inputs(2, 256, dim, np.float32)
    expected = in_double(*tensors)
    errors = {
        name: off(run_on_cpu(program, tensors, rung.kernel or "separate"), expected)
        for name, rung in LADDER.items()
    }
    # 2e-7 to 4e-7, with exact exponentials; the device's limit is for its approximate ones
    assert {name: error for name, error in errors.items() if not error < 1e-6} == {}


@pytest.mark.parametrize(
    ("backend", "name", "dim", "causal"),
    [
        ("wmma", "q32_kv64", 64, True),
        ("wmma", "q32_kv64_no_pad_through_l1", 64, False),
        ("mma", "d128_r16_kv64_w4", 128, True),
        ("wgmma", "kv128_c3_turns", 64, False),
        ("wgmma", "d128_kv64_c3", 128, True),
    ],
)
def test_tensor_core_kernels_compute_attention_with_a_last_tile_that_is_not_full(
    tmp_path, backend, name, dim, causal
):
    program = tensor_program(tmp_path, VARIANTS[backend][name], dim, causal)
    tensors = inputs(1, 330, dim, np.float16)
    error = off(run_on_cpu(program, tensors), in_double(*tensors, causal))
    assert error < 4e-4  # 2.4e-4 to 2.8e-4: what halves of P and O cost
    assert error < launch.LIMITS["fp16"]


@pytest.mark.parametrize(
    ("backend", "name"),
    [
        ("mma", "r32_kv64_w4"),
        ("wgmma", "kv128_c3_turns"),
    ],
)
def test_rows_whose_largest_scores_come_last_are_rescaled_on_the_way(tmp_path, backend, name):
    program = tensor_program(tmp_path, VARIANTS[backend][name], 64, False)
    q, k, v = inputs(1, 700, 64, np.float32)
    # scores of N(0, 1) hardly rise by the eight powers of two that LAZY allows; these do for good
    k *= np.linspace(*launch.RAISED, 700, dtype=np.float32)[None, :, None]
    scores = (q @ k.transpose(0, 2, 1))[0] / 8 * launch.LOG2_E
    rises = np.maximum.accumulate(scores, axis=1)[:, [63, 699]]
    assert np.median(rises[:, 1] - rises[:, 0]) > 4 * LAZY
    tensors = [each.astype(np.float16) for each in (q, k, v)]
    error = off(run_on_cpu(program, tensors), in_double(*tensors))
    assert error < 3e-4  # 1.9e-4 to 2.2e-4


@pytest.mark.parametrize(
    ("backend", "name", "before", "after"),
    [
        ("mma", "r32_kv64_w4", "    __syncthreads();\n    if (tile + 1", "    if (tile + 1"),
        (
            "wgmma",
            "kv128_c3_turns",
            "    products_wait<0>();\n    release(at.v_empty, tile - 1);\n",
            "    release(at.v_empty, tile - 1);\n    products_wait<0>();\n",
        ),
    ],
    ids=["barrier", "release"],
)
def test_a_barrier_left_out_or_a_tile_released_too_early_shows_on_the_cpu(
    tmp_path, backend, name, before, after
):
    variant = VARIANTS[backend][name]
    changed = changed_sources(tmp_path, variant.source, (before, after))
    program = tensor_program(tmp_path, variant, 64, False, changed)
    tensors = inputs(1, 900, 64, np.float16)
    assert not off(run_on_cpu(program, tensors), in_double(*tensors)) < launch.LIMITS["fp16"]


@pytest.mark.extras
@pytest.mark.parametrize("causal", [False, True])
def test_the_reference_in_parts_is_the_one_at_once(monkeypatch, causal):
    import torch

    tensors = inputs(3, 50, 32, np.float32)
    given = [torch.from_numpy(each) for each in tensors]
    for scores in (1 << 27, 7 * 50, 130 * 50):
        monkeypatch.setattr("studies.workloads.attention.problems._SCORES", scores)
        found = reference(*given, causal=causal).numpy()
        assert off(found, in_double(*tensors, causal)) < 1e-14


# ---- the benchmark's verdict ---------------------------------------------------------------------


@pytest.mark.extras
@pytest.mark.parametrize("fault", ["none", "late", "lost"])
def test_the_benchmark_sees_a_fault_that_shows_only_where_scores_grow_along_a_row(
    monkeypatch, fault
):
    import torch

    from studies.attention import parts

    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    shape, problem = (2, 500, 64), Problem(2, 500, 64)
    values = {name: torch.empty(shape, dtype=torch.float16) for name in ("q", "k", "v", "o")}
    tensors = launch.Tensors(problem, values)

    def run():
        out = reference(*(values[name] for name in "qkv"), causal=False)
        scores = values["q"].double() @ values["k"].double().transpose(1, 2) / 8
        rising = bool((scores[..., 64:].amax(-1) - scores[..., :64].amax(-1)).mean() > LAZY)
        # "late": as if a row were not rescaled; "lost": not a number
        factor = {"none": 1.0, "late": 1.5, "lost": float("nan")}[fault] if rising else 1.0
        values["o"].copy_(out * factor)

    made = launch.layer(problem.name, tensors, run, "fp16")
    rising, drawn = KernelSession([made], {}).check()
    assert drawn.passed
    assert rising.passed == (fault == "none")
    assert (parts.checked(made, 1) < launch.LIMITS["fp16"]) == (fault == "none")
