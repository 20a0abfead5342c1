"""Planted families: their own sources on the CPU against the references."""

import re
from pathlib import Path

import numpy as np
import pytest

from collectors.workloads.cuda import Source
from studies.workloads.planted import blocks, bulk, families, memory, plans, units
from studies.workloads.planted.answers import ANSWERS
from studies.workloads.planted.definition import NEVER, WIDE_VECTORS, Call, Plan
from studies.workloads.planted.reference import expected
from studies.workloads.planted.workload import LIMIT, wait
from tests.support.ladders_on_cpu import CpuModule

ROOM = Path(plans.__file__).parent
OURS = (*memory.FAMILIES, *units.FAMILIES, *blocks.FAMILIES, *bulk.FAMILIES)
SMS = 132
FACTOR, INVERSE = 22695477, 690295837
SMALL = [
    Call("load_stride", 4, 256, ("in", "out", 10, 2, 5)),
    Call("chase", 2, 256, ("next", "in", "out", 50, 7)),
    Call("load_chain", 2, 64, ("next", "out", 50, 16)),
    Call("bank_conflicts_held", 2, 256, ("in", "out", 4, 3)),
    Call("divergence", 4, 256, ("in", "out", 3, 2, 10, 2)),
    Call("barriers", 1, 1024, ("in", "out", 64, 4)),
    Call("dependency", 1, 128, ("in", "out", 5)),
    Call("special", 1, 256, ("in", "out", 20, 1)),
    Call("doubles", 1, 256, ("in", "out", 20)),
    Call("doubles_or_none", 1, 256, ("in", "out", 20)),
    Call("code_footprint", 2, 256, ("in", "out", 6, 63), source="instructions"),
    Call("waves", 1, 1024, ("in", "out", 20)),
    Call("advance", 1, 256, ("in", "out", 8)),
    Call("atomic_bins", 2, 256, ("in", "out", 12, 6, 1, 5), source="memory"),
    Call("atomic_bins", 2, 256, ("in", "out", 12, 8, 4, 16), source="memory"),
    Call("shared_bins", 2, 256, ("in", "out", 0, 11), source="memory"),
    Call("shared_bins", 2, 256, ("in", "out", 5, 11), source="memory"),
    Call("local_array", 2, 256, ("in", "out", 30, 0), source="memory"),
    Call("spilled", 1, 256, ("in", "out", 30), source="memory"),
    Call("copy_words", 1, 256, ("in", "out", 12, 2), source="memory"),
    Call("passes", 2, 256, ("wide", "out", 9), source="memory"),
    Call("passes_busy", 2, 256, ("wide", "out", 9), source="memory"),
    Call("reloads", 2, 256, ("in", "out", 12, 9), source="memory"),
    Call("staged", 2, 128, ("in", "out", 12, 9), source="memory"),
    Call("fences", 2, 256, ("in", "out", 12, 4), source="memory"),
    Call("fences", 2, 256, ("in", "out", 12, NEVER), source="memory"),
    Call("constant_table", 1, 256, ("in", "out", 0, 300), source="memory"),
    Call("constant_table", 1, 256, ("in", "out", 3, 20), source="memory"),
    Call("conversions", 2, 256, ("in", "out", 20), source="units"),
    Call("roots", 2, 256, ("in", "out", 20), source="units"),
    Call("rotations", 2, 256, ("in", "out", 21, 7), source="units"),
    Call("addresses", 2, 256, ("in", "out", 12, 9, FACTOR, INVERSE, 12345), source="units"),
    Call("exchanges", 2, 256, ("in", "out", 20), source="units"),
    Call("products", 2, 128, ("in", "out", 0, 3), source="units"),
    Call("products", 2, 128, ("in", "out", 3, 3), source="units"),
    Call("products", 2, 128, ("in", "out", 8, 3), source="units"),
    Call("walk", 6, 64, ("next", "out", 50, 7, 12, 2), source="blocks"),
    Call("uneven", 4, 1024, ("in", "out", 10, 30, 1), source="blocks"),
    Call("bulk_depth", 3, 128, ("in", "out", 12, 11), source="bulk"),
    Call("bulk_width", 2, 128, ("in", "out", 12, 11), source="bulk"),
]
KERNELS = {
    source: sorted({call.kernel for call in SMALL if call.source == source})
    for source in ("planted", "instructions", "memory", "units", "blocks", "bulk")
}
PLAIN = {
    r'const unsigned at =[^;]*;\s*asm volatile\("ld.volatile.shared.v4.*?"memory"\);': (
        "std::memcpy(value + 4 * k, tile + (k % 8) * 128 + lane * 4, 16);"
    ),
    r'asm volatile\("fma.rn.f32 %0, %0, %1, %2; // path[^\n]*': (
        "a = fmaf(a, 1.0f - 0.0005f * (n + 1), 0.125f * (n + 1));"
    ),
    r'asm volatile\("ex2[^\n]*': "y = std::exp2(x);",
    r'asm volatile\("// piece.*?\+ 1\)\)\);': (
        "for (int i = 0; i < 64; ++i) a = fmaf(a, 0.99999f, 0.001f * ((n) + 1));"
    ),
}
"""PTX in the sources, and the same in C++."""


def build(name, level, folder, before="", after=""):
    """Compile a source for the CPU, with a text in it replaced."""
    text = (ROOM / f"{name}.cu").read_text(encoding="utf-8")
    assert before in text
    for ptx, plain in PLAIN.items():
        text = re.sub(ptx, plain, text, flags=re.DOTALL)
    source = folder / f"{name}.cu"
    source.write_text(text.replace(before, after), encoding="utf-8")
    (folder / "common.cuh").write_text((ROOM / "common.cuh").read_text("utf-8"), "utf-8")
    made = Source(source, plans.source_macros(level)[name])
    return CpuModule(made, folder, kernels=tuple(KERNELS[name]), functions="planted.h")


LEVELS = [0, pytest.param(3, marks=pytest.mark.slow)]


@pytest.fixture(scope="module", params=LEVELS, ids=lambda level: f"level {level}")
def level(request, tmp_path_factory):
    """Return a level's macros, and its sources compiled for the CPU."""
    built = {
        name: build(name, request.param, tmp_path_factory.mktemp(f"{name}{request.param}"))
        for name in KERNELS
    }
    return plans.macros(request.param), built


def run(module, macros, *calls):
    """Launch on the CPU into an output of NaN; return it and what the reference says."""
    import torch

    random = np.random.default_rng(11)
    order = torch.from_numpy(random.permutation(50))
    given = torch.from_numpy(random.uniform(-1, 0, 1 << 14).astype(np.float32))
    wide = torch.from_numpy(random.uniform(-1, 0, 1 << 15).astype(np.float32))
    out = torch.full((1 << 14,), torch.nan)
    table = order.to(torch.int32).repeat_interleave(32)
    tensors = {"in": given, "wide": wide, "rows": order, "next": table, "out": out}
    for call in calls:
        arguments = [tensors[each] if isinstance(each, str) else each for each in call.arguments]
        module.kernel(call.kernel)(call.grid, call.block, *arguments)
    wanted = expected(Plan(calls, calls[0].grid * calls[0].block, 0), macros, tensors)
    return out.double(), wanted


def off(out, wanted):
    """Return the relative error of what a launch has to write."""
    return float((out[: len(wanted)] - wanted).norm() / wanted.norm())


@pytest.mark.extras
@pytest.mark.parametrize("call", SMALL, ids=lambda call: f"{call.kernel} {call.arguments[2:]}")
def test_a_kernel_computes_what_its_reference_says_and_writes_nothing_else(call, level):
    macros, built = level
    out, wanted = run(built[call.source], macros, call)
    assert off(out, wanted) < 1e-5
    assert bool(out[len(wanted) :].isnan().all())


@pytest.mark.extras
def test_several_launches_continue_where_the_one_before_ended(level):
    macros, built = level
    calls = [Call("advance", 1, 256, (source, "out", 8)) for source in ("in", "out")]
    out, wanted = run(built["planted"], macros, *calls)
    assert off(out, wanted) < 1e-5


FAULTS = {
    "a copy is read before it came": (
        "memory", "copies_wait<kSlots - 1>();", "copies_wait<kSlots>();",
        Call("staged", 2, 128, ("in", "out", 12, 9), source="memory"),
    ),
    "a tile is read before it came": (
        "bulk", "barrier_wait(&full[i % Depth], (i / Depth) & 1);", "",
        Call("bulk_depth", 3, 128, ("in", "out", 12, 11), source="bulk"),
    ),
    "two strips of the tensor core change places": (
        "units", "multiply(sum[top][2 * half + 1], rows, strips.z",
        "multiply(sum[top][2 * half + 1], rows, strips.x",
        Call("products", 2, 128, ("in", "out", 8, 3), source="units"),
    ),
    "heavy blocks get a light one's work": (
        "blocks", "< heavy_blocks ? heavy : light", "< heavy_blocks ? light : light",
        Call("walk", 6, 64, ("next", "out", 50, 7, 12, 2), source="blocks"),
    ),
}  # fmt: skip


@pytest.mark.extras
@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_kernel_does_not_pass(fault, tmp_path):
    name, before, after, call = FAULTS[fault]
    module = build(name, 1, tmp_path, before, after)
    out, wanted = run(module, plans.macros(1), call)
    assert not off(out, wanted) <= LIMIT


def test_there_are_the_new_families_with_their_confounders_and_some_kept_aside():
    assert len(OURS) >= 14
    assert sum(bool(family.along) for family in OURS) >= 2
    assert 5 <= sum(family.held_out for family in OURS) <= len(OURS) // 2
    assert all(families.BY_NAME[family.name] is family for family in OURS)
    # a cause that is only kept aside could not be learned by its sign on any other kernel
    shown = {answer for family in OURS if not family.held_out for answer in family.cause.terms}
    assert all(shown & set(family.cause.terms) for family in OURS if family.held_out)


def test_every_new_family_says_in_one_place_which_terms_name_its_cause():
    assert {family.name for family in OURS} == set(ANSWERS)
    assert all(ANSWERS[family.name] == family.cause.terms for family in OURS)
    assert all(re.fullmatch(r"[a-z0-9_]+", each) for ids in ANSWERS.values() for each in ids)


def test_uneven_shares_add_up_to_the_same_work():
    for percent in (100, 150, 200, 300, 600):
        light, heavy = blocks.shares(percent, 8 * SMS, SMS, 1000)
        assert light * 7 * SMS + heavy * SMS == pytest.approx(8 * SMS * 1000, rel=1e-3)
        assert 0 < light <= 1000 <= heavy


def test_atomics_are_merged_to_the_last_value():
    family = families.BY_NAME["atomic_count"]
    for place in range(4):
        for size in range(4):
            planned = plans.plan(family, place, size, SMS)
            assert planned.rounds % family.values[place] == 0


def test_the_wide_input_is_long_enough_for_every_size():
    for family in OURS:
        for place in range(4):
            for size in range(4):
                planned = plans.plan(family, place, size, SMS)
                call = planned.calls[0]
                if "wide" in call.arguments:
                    read = 4 * call.grid * call.block * planned.rounds
                    assert read <= WIDE_VECTORS * 2048 * SMS * 4


def test_the_host_pauses_as_long_as_it_is_told():
    import time

    began = time.perf_counter()
    wait(3000)
    assert time.perf_counter() - began >= 3e-3
