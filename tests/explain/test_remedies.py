"""One table of remedies: every cause has one, and none is given where its needs are not met."""

import math
import re
import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfml.account.account import Account
from perfml.account.causes import _table, causes
from perfml.explain.advice.settings import PRECISIONS
from perfml.explain.advice.symptoms import load_results, load_symptoms, situation_of
from perfml.explain.remedies import (
    LONGER,
    NEEDS,
    Person,
    Situation,
    load_remedies,
    of_account,
    remedy_for,
)
from perfml.explain.tree.causes import TERMS
from perfml.readers import read
from tests.support.examples import examples
from tests.support.launches import launch
from tests.support.torch_trace import filled

OF_LAUNCHES = (*TERMS, *load_symptoms()[1])
OF_STEPS = (*(cause.id for cause in causes()), *_table()["other"])
SAID = tuple(symptom.causes[0] for symptom in load_results()[0])
OTHERS = ("precision", "backend", "uneven_ranks")
ALL = tuple(dict.fromkeys((*OF_LAUNCHES, *SAID, *OF_STEPS, *OTHERS)))

FITS = {
    "time_us": 1.0,
    "resident_blocks_limit_registers": 8.0,
    "resident_blocks_limit_shared_memory": 2.0,
    "resident_blocks_limit_warps": 16.0,
    "resident_blocks_limit_slots": 32.0,
    "registers_per_thread": 32.0,
    "shared_memory_per_block": 102400.0,
}

KINDS = ("training", "decoding", "recommender", "convolutional", "inference", "unknown")
CUDA = re.compile(
    r"cu(da|blas|dnn)[A-Z]|CUBLAS|CUDNN|CUDA_MO|nvcc|nsys|\bncu\b|__nv|TF32_|cp\.async"
)
SERVER = re.compile(r"vllm|sglang|max.num.(seqs|batched)|continuous batching", re.IGNORECASE)
"""What only the user of a server can do."""

WORKERS = "_MultiProcessingDataLoaderIter"

SITUATIONS = st.builds(
    Situation,
    reader=st.sampled_from(Person),
    kernel=st.sampled_from(["", "k", "nchwToNhwcKernel", "gemm_align1", "direct_copy_kernel"]),
    operations=st.frozensets(st.sampled_from(["product", "convolution"])),
    capability=st.sampled_from([5.2, 6.1, 7.0, 7.5, 8.0, 9.0, 12.0]),
    amd=st.booleans(),
    kind=st.sampled_from(["", *KINDS]),
    waits=st.sampled_from(["", "aten::nonzero"]),
    copies=st.sampled_from(["", LONGER]),
    shows=st.sets(st.sampled_from(["workers", "sharded"])).map(tuple),
    serves=st.booleans(),
    limit=st.just(""),
    setting=st.sampled_from(["", *PRECISIONS, "cudnn", "channels_last"]),
)


@pytest.mark.parametrize("reader", Person)
@pytest.mark.parametrize("cause", sorted({*OF_LAUNCHES, *SAID}))
def test_every_cause_of_a_launch_has_a_remedy_for_every_reader_or_says_why_not(cause, reader):
    remedy = remedy_for(cause, Situation(reader))
    assert remedy.helps or remedy.none, (
        f"remedies.toml has no row with {cause} for a {reader.value}"
    )
    assert not remedy.helps or not remedy.none


@pytest.mark.parametrize("amd", [False, True])
@pytest.mark.parametrize("reader", [Person.AUTHOR, Person.PYTORCH])
@pytest.mark.parametrize("cause", OF_STEPS)
def test_every_cause_of_a_step_has_a_remedy_on_every_vendors_devices(cause, reader, amd):
    here = Situation(reader, kind="training", amd=amd)
    assert remedy_for(cause, here).helps or remedy_for(cause, here).none, cause


def test_every_row_is_of_a_cause_that_exists_and_needs_what_can_be_asked():
    for row in load_remedies():
        assert row.against <= {*ALL, "compute", "memory", "latency", "at_roof"}, row.against - {
            *ALL
        }
        assert set(row.needs) <= set(NEEDS)
        assert bool(row.helps) is not bool(row.none)


@examples(300)
@given(cause=st.sampled_from(ALL), here=SITUATIONS)
def test_no_remedy_is_given_where_what_it_needs_is_missing(cause, here):
    remedy = remedy_for(cause, here)
    said = remedy.text
    assert remedy.applies(here)
    if here.reader is Person.AUTHOR:
        assert not re.search(r"\btorch\b|aten::|model\.", said), said
    if "channels_last" in said:
        assert "convolution" in here.operations or cause in ("backend", *LAUNCHES), said
    if not here.amd:
        newer = (form for since, form in NEWER.items() if here.capability < since)
        assert not any(re.search(form, said) for form in newer), said
    if not here.amd and here.capability < 7 and "no tensor cores" not in said:
        assert "autocast" not in said or cause not in ("tensor_unused", "no_tensor_cores"), said
    if here.amd and cause in OF_STEPS:
        assert not CUDA.search(said), said
    if here.kind not in ("", "training") or cause == "all_to_all":
        assert "DistributedDataParallel" not in said
    assert here.serves or not SERVER.search(said), said
    assert here.kind in ("", "training") or "loss" not in remedy_for("synchronising", here).line


@pytest.mark.parametrize("cause", ["launch_bound", "host_work", "synchronising"])
@pytest.mark.parametrize("amd", [False, True])
def test_the_user_of_a_server_is_offered_its_options(cause, amd):
    here = Situation(Person.PYTORCH, amd=amd, kind="decoding", waits="aten::copy_", serves=True)
    assert SERVER.search(remedy_for(cause, here).line)


LAUNCHES = ("kernels_appeared", "kernels_vanished", "launch_count")
"""Of launches that turn layouts around, which convolutions ask for."""
NEWER = {
    8.0: r"TF32|tf32|bf16|BF16|bfloat16|cp\.async|asynchronous cop|__reduce_\w+_sync",
    8.9: r"fp8|FP8",
    9.0: r"\bTMA\b|warpgroup|cluster|cp\.async\.bulk",
}
"""What devices have from a compute capability on (CUDA C++ Programming Guide, Feature Support)."""


def test_of_several_remedies_the_one_with_a_measured_gain_is_taken():
    here = Situation(Person.LIBRARY, "cutlass_tensorop_gemm_align1")
    assert remedy_for("instructions", here).measured
    assert not remedy_for("instructions", Situation(Person.LIBRARY, "gemm")).measured


@pytest.mark.parametrize(("capability", "line"), [(6.1, ""), (7.0, "float16"), (9.0, "bfloat16")])
def test_a_device_is_offered_the_types_that_it_has(capability, line):
    remedy = remedy_for("no_tensor_cores", Situation(Person.PYTORCH, capability=capability))
    assert bool(remedy.helps) is bool(line)
    assert line in remedy.line


def test_what_limits_the_blocks_that_fit_is_named_with_its_number():
    said = remedy_for("theoretical_occupancy", situation_of(launch(FITS))).say
    assert "with 102,400 bytes a block 2 block(s) fit" in said
    of_registers = launch({**FITS, "resident_blocks_limit_registers": 1.0})
    said = remedy_for("theoretical_occupancy", situation_of(of_registers)).say
    assert "with 32 of them 1 block(s) fit" in said


def test_where_blocks_are_limited_by_their_warps_or_it_is_not_known_no_resource_is_named():
    of_warps = launch({**FITS, "resident_blocks_limit_warps": 1.0})
    assert situation_of(of_warps).limit == ""
    assert situation_of(launch({"time_us": 1.0})).limit == ""
    assert math.isnan(situation_of(launch(FITS)).capability)


@pytest.mark.parametrize(
    ("kernel", "pattern"),
    [
        ("void ns::gemm<float, 4>(float const*)", "gemm"),
        ("", "NAME"),
        ("a b;rm -rf $HOME'\x1b[2J", None),
        ("k" * 5000, "k" * 80),
    ],
)
def test_a_line_that_collects_counters_names_the_kernel_and_nothing_else_is_typed(kernel, pattern):
    line = remedy_for("same_kernels", Situation(kernel=kernel)).line
    assert line.isprintable()
    command = shlex.split(line.partition("  #")[0])
    assert command[command.index("--kernel") + 2 :][:2] == ["--launches", "3:5"]
    typed = command[command.index("--kernel") + 1]
    assert pattern is None or typed == pattern
    assert len(typed) < 200
    re.compile(typed)


COPIES = ("copies_to_device", "copies_to_host", "pageable_copies", "host_operators")
"""What parameters that stay on the host bring about."""


@pytest.mark.parametrize(
    ("category", "name", "shows"),
    [
        ("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", ()),
        ("user_annotation", f"enumerate(DataLoader)#{WORKERS}.__next__", ("workers",)),
        ("cpu_op", f"enumerate(DataLoader)#{WORKERS}.__next__", ("workers",)),
        ("user_annotation", "DistributedDataParallel.forward", ()),
        ("user_annotation", "FullyShardedDataParallel.forward", ("sharded",)),
        ("user_annotation", "FSDP::post_backward_reshard (layers.0)", ("sharded",)),
        ("cpu_op", "fsdp::all_gather_copy_in", ("sharded",)),
        ("python_function", "nn.Module: FullyShardedDataParallel_0", ("sharded",)),
    ],
)
def test_workers_that_run_and_a_model_that_is_sharded_have_remedies_of_their_own(
    tmp_path, category, name, shows
):
    trace = filled()
    trace.event(category, name, 3010, 20)
    path = tmp_path / "trace.json"
    path.write_bytes(trace.data())
    here = of_account(Account.from_dict(read(path).provenance["step"]))
    assert here.shows == shows
    assert ("Workers run" in remedy_for("data_loading", here).say) is ("workers" in shows)
    for cause in COPIES:
        line = remedy_for(cause, here).line
        assert ("fully_shard" in line) is ("sharded" in shows)
        assert ("pin_memory" in line or ".to(" in line or "stream" in line) is not (
            "sharded" in shows
        )


@pytest.mark.parametrize(
    ("kernel", "pads"),
    [
        ("cutlass_80_simt_sgemm_128x256_8x4_tt_align1", False),
        ("void cutlass::Kernel2<cutlass_80_tensorop_f16_s16816gemm_f16_64x64_nn_align1>(P)", True),
    ],
)
def test_only_rows_of_tensor_core_products_are_padded(kernel, pads):
    here = Situation(Person.LIBRARY, kernel, frozenset({"product"}), capability=8.6)
    remedy = remedy_for("tensor_unused", here)
    assert ("multiple of 16 bytes" in remedy.say) is pads
    assert pads or "TF32" in remedy.say
