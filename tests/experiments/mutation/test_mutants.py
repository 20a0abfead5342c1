"""Mutants of kernels that nvcc compiled, run by a warp of 32 lanes that notes its accesses."""

import math
import re
import shutil
import struct
import subprocess

import pytest

from perfml.experiments.mutation.programs import (
    MUTATIONS,
    RECOMPILED,
    WORDS,
    global_variables,
    kernels_of,
    lacking,
    mutants,
    mutations_of,
)
from perfml.experiments.mutation.ptx import BLOCKS, kernel, kernels_in
from perfml.experiments.verdicts import LIMITS_OF
from tests.support.paths import DATA
from tests.support.ptx_warp import ALL, Warp

pytestmark = pytest.mark.long

PTX = (DATA / "ptx" / "habits.ptx").read_text()
FROM, TO = 1 << 34, 1 << 35


def mutant(name, mutation):
    """Return the PTX of a mutant."""
    (made,) = [each.ptx for each in mutants(PTX, name) if each.mutation == mutation]
    return made


def addresses(ptx, parameters, kind, space="global", **settings):
    """Return, for every such access of a warp, the addresses of its lanes."""
    warp = Warp(ptx, parameters, **settings)
    return [made for code, at, made in warp.accesses if at == space and code.startswith(kind)]


def lines(made, size=128):
    return {address // size for address in made}


@pytest.mark.parametrize("name", kernels_in(PTX))
def test_a_module_with_one_kernel_does_what_the_kernel_did(name):
    alone = kernel(PTX, name).text
    assert kernels_in(alone) == [name]
    assert ".loc\t" not in alone


@pytest.mark.parametrize(
    ("name", "mutation", "parameters"),
    [
        ("records", "dense_loads", (FROM, TO)),
        ("rows", "dense_loads", (FROM, TO, 32)),
        ("scatters", "dense_stores", (FROM, TO)),
        ("banks", "no_conflicts", (FROM, TO)),
        pytest.param("bins", "no_conflicts", (FROM, TO), marks=pytest.mark.slow),
        ("copies", "dense_accesses", (FROM, TO, 1)),
        ("constants", "alike_constants", (FROM, TO)),
        ("bins", "no_global_atomics", (FROM, TO)),
        ("fences", "no_fences", (TO,)),
    ],
)
def test_with_its_switch_off_a_mutant_accesses_what_the_program_does(name, mutation, parameters):
    settings = {"loads": lambda address: address // 4 % 61, "block": 3}
    switched = Warp(mutant(name, mutation), parameters, switch=0, **settings)
    program = Warp(mutant(name, RECOMPILED), parameters, **settings)
    assert switched.accesses == program.accesses
    assert switched.barriers == program.barriers


def test_fields_of_records_are_read_as_if_each_were_an_array():
    ptx, taken = mutant("records", "dense_loads"), (FROM, TO)
    before = addresses(ptx, taken, "ld", switch=0)
    after = addresses(ptx, taken, "ld", switch=ALL)
    assert [len(lines(made)) for made in before] == [12, 12, 12, 12]
    assert [len(lines(made)) for made in after] == [1, 1, 1, 1]
    # no two fields share a line, and none lies outside of what the warp's records hold
    touched = set().union(*map(lines, after))
    assert len(touched) == 4
    assert touched <= set().union(*map(lines, before)) | {FROM // 128}
    assert all(sorted(a % 128 for a in made) == list(range(0, 128, 4)) for made in after)


def test_a_walk_along_rows_reads_the_same_lines_one_whole_line_at_a_time():
    ptx, taken = mutant("rows", "dense_loads"), (FROM, TO, 32)
    before = addresses(ptx, taken, "ld", switch=0)
    after = addresses(ptx, taken, "ld", switch=ALL)
    assert [len(lines(made)) for made in before] == [32] * 32
    assert [len(lines(made)) for made in after] == [1] * 32
    assert set().union(*map(lines, after)) == set().union(*map(lines, before))


def test_stores_become_dense_and_lanes_that_do_not_store_take_no_part():
    ptx = mutant("scatters", "dense_stores")
    for block, lanes in ((0, 32), (3, 32)):
        (made,) = addresses(ptx, (FROM, TO), "st", switch=ALL, block=block)
        assert len(made) == lanes
        assert len(lines(made)) == 1


def test_loads_whose_data_decides_where_stay_where_they_are():
    assert "dense_loads" not in {each.mutation for each in mutants(PTX, "gathers")}


def test_lanes_take_banks_of_their_own_in_the_rows_where_they_were():
    ptx = mutant("banks", "no_conflicts")
    before = addresses(ptx, (FROM, TO), "ld", "shared", switch=0)
    after = addresses(ptx, (FROM, TO), "ld", "shared", switch=ALL)
    assert [len({a // 4 % 32 for a in made}) for made in before] == [1, 32]
    assert [len({a // 4 % 32 for a in made}) for made in after] == [32, 32]
    assert [a // 128 for a in before[0]] == [a // 128 for a in after[0]]


def test_atomics_in_shared_memory_meet_no_longer():
    ptx = mutant("bins", "no_conflicts")
    (made,) = addresses(ptx, (FROM, TO), "atom", "shared", switch=ALL)
    assert len({a // 4 % 32 for a in made}) == 32


def test_with_dense_loads_and_stores_a_warp_touches_as_many_lines_as_words():
    ptx = mutant("copies", "dense_accesses")
    for kind in ("ld", "st"):
        (before,) = addresses(ptx, (FROM, TO, 1), kind, switch=0)
        (after,) = addresses(ptx, (FROM, TO, 1), kind, switch=ALL)
        assert (len(lines(before)), len(lines(after))) == (32, 1)
    made = {each.mutation for each in mutants(PTX, "scatters")}
    assert "dense_stores" in made
    assert "dense_accesses" not in made


def test_only_loads_from_arrays_that_are_not_written_to_pass_by_stores():
    before = Warp(mutant("adds", RECOMPILED), (FROM, TO))
    after = Warp(mutant("adds", "read_only_loads"), (FROM, TO))
    assert [made[1:] for made in before.accesses] == [made[1:] for made in after.accesses]
    past = {min(at): "nc" in code.split(".") for code, _, at in after.accesses}
    assert past == {FROM: True, TO: False}
    assert "read_only_loads" not in {each.mutation for each in mutants(PTX, "fences")}


def test_fast_math_does_the_same_operations_in_the_compilers_fast_way():
    before, after = (mutant("functions", each) for each in (RECOMPILED, "fast_math"))
    fast = re.findall(r"(?:div|ex2|add|mul|fma)\.[\w.]*f32", after)
    assert len(fast) == len(re.findall(r"(?:div|ex2|add|mul|fma)\.[\w.]*f32", before))
    assert all("ftz" in each.split(".") for each in fast)
    assert "div.approx.ftz.f32" in fast
    assert "div.rn.f32" not in after
    # exponentials are as fast as they get: what they cost tells the other mutant
    assert "ex2.approx.ftz.f32" in after
    assert "ex2" not in mutant("functions", "cheap_functions")
    assert "fast_math" not in {each.mutation for each in mutants(PTX, "doubles")}


@pytest.mark.parametrize("name", ["records", "scatters", "divides", "copies"])
def test_threads_of_smaller_and_of_larger_blocks_do_what_they_did(name):
    parameters = {"divides": (FROM, TO, 7, 1 << 40), "copies": (FROM, TO, 5)}.get(name, (FROM, TO))
    smaller, larger = (mutant(name, f"{each}_blocks") for each in ("smaller", "larger"))
    for block in (0, 3):
        for part in range(4):
            lanes = [64 * part + lane for lane in range(32)]
            own = {"%tid.x": lanes, "%nctaid.x": [8] * 32}
            program = Warp(mutant(name, RECOMPILED), parameters, block=block, special=own)
            places = {"%ntid.x": [64] * 32, "%nctaid.x": [32] * 32}
            made = Warp(smaller, parameters, block=4 * block + part, special=places)
            assert made.accesses == program.accesses
            own = {"%nctaid.x": [8] * 32}
            program = Warp(
                mutant(name, RECOMPILED), parameters, block=4 * block + part, special=own
            )
            places = {"%tid.z": [part] * 32, "%nctaid.x": [2] * 32}
            assert (
                Warp(larger, parameters, block=block, special=places).accesses == program.accesses
            )
    for tied in ("banks", "bins"):
        assert not {"smaller_blocks", "larger_blocks"} & {e.mutation for e in mutants(PTX, tied)}


@pytest.mark.parametrize("mutation", ["unrolled_loops", "batched_loads"])
@pytest.mark.parametrize("turns", [*range(1, 10), 32, 35])
def test_an_unrolled_loop_makes_as_many_turns_and_tests_less_often(mutation, turns):
    program = Warp(mutant("rows", RECOMPILED), (FROM, TO, turns))
    made = Warp(mutant("rows", mutation), (FROM, TO, turns))
    assert [at for _, _, at in made.accesses] == [at for _, _, at in program.accesses]
    past = {"nc" in code.split(".") for code, _, _ in made.accesses if code.startswith("ld")}
    assert past == {mutation == "batched_loads"}
    branches = [each.steps["bra"] for each in (program, made)]
    assert branches[0] - turns < 3
    assert turns < 5 or branches[1] < branches[0] + 3
    assert turns < 16 or branches[1] < 0.8 * branches[0]


@pytest.mark.parametrize("test", ["setp.lt.s32 %p2, %r10, %r4;", "setp.ne.s32 %p2, %r10, %r4;"])
def test_loops_are_unrolled_however_they_count_and_only_where_nothing_else_ends_them(test):
    ptx = PTX.replace("setp.lt.s32 \t%p2, %r10, %r4;", test)
    for turns in (1, 4, 5, 11):
        (made,) = (e.ptx for e in mutants(ptx, "rows") if e.mutation == "unrolled_loops")
        read = [at for code, _, at in Warp(made, (FROM, TO, turns)).accesses if code[:2] == "ld"]
        assert [at[0] - FROM for at in read] == [4 * turn for turn in range(turns)]
    leaves = ptx.replace(test, f"@%p1 bra $L__BB1_3; {test}")
    steps = ptx.replace("add.s32 \t%r10, %r10, 1;", "add.s32 \t%r10, %r10, %r4;")
    for other in (leaves, steps):
        assert "unrolled_loops" not in {each.mutation for each in mutants(other, "rows")}


def test_a_warp_reads_one_constant():
    def loads(address):
        return address // 4 % 61

    ptx = mutant("constants", "alike_constants")
    (made,) = addresses(ptx, (FROM, TO), "ld", "const", switch=ALL, loads=loads)
    (own,) = addresses(ptx, (FROM, TO), "ld", "const", switch=0, loads=loads)
    assert len(set(own)) > 20
    assert set(made) == {own[0]}


def test_atomics_barriers_and_fences_are_left_out_and_a_swap_loop_ends():
    ptx = mutant("bins", "no_global_atomics")
    assert addresses(ptx, (FROM, TO), "atom", switch=ALL) == []
    assert len(addresses(ptx, (FROM, TO), "atom", switch=0)) == 1
    swaps = mutant("swaps", "no_global_atomics")
    assert addresses(swaps, (TO, 1), "atom", switch=ALL) == []
    assert Warp(mutant("banks", "no_barriers"), (FROM, TO), switch=ALL).barriers == 0
    fences = Warp(mutant("fences", "no_fences"), (TO,), switch=ALL)
    assert [at for _, at, _ in fences.accesses] == ["global", "global"]


@pytest.mark.parametrize("width", [1, 2, 3, 7, 32, 100, 128])
def test_cheap_quotients_are_not_larger_and_remainders_stay_below_the_divisor(width):
    ptx = mutant("divides", "cheap_division")
    for block in (0, 3, 700):
        (made,) = addresses(ptx, (FROM, TO, width, 1 << 40), "ld", block=block)
        for lane, address in enumerate(made):
            i = 256 * block + lane
            most = i // width + width - 1
            assert 0 <= (address - FROM) // 4 <= most
            if math.log2(width).is_integer():
                assert (address - FROM) // 4 == i // width + i % width


def test_single_precision_has_no_operation_in_double_left():
    text = mutant("doubles", "single_precision")
    left = [line for line in text.splitlines() if ".f64" in line and ".reg" not in line]
    assert all("ld.global" in line or "mov.f64" in line for line in left)
    assert "rcp.rn.f32" in text
    assert "sqrt.rn.f32" in text


def test_bounds_on_registers_go_and_the_size_of_blocks_stays():
    text = mutant("bounded", "more_registers")
    assert ".minnctapersm" not in text
    assert ".maxntid" in text
    assert ".maxnreg 64" in mutant("rows", "registers_64").split("{")[0]
    assert "registers_64" not in {each.mutation for each in mutants(PTX, "bounded")}


def test_variables_that_a_mutant_takes_over_are_named():
    assert mutants(PTX, "constants")[0].variables == ("table",)


def test_what_cannot_be_read_has_no_mutants():
    assert mutants(PTX, "unknown") == []
    assert mutants(".version 8.0\n.entry a() { @ }", "a") == []


def test_every_mutation_has_words_and_every_cause_with_one_can_be_judged():
    assert set(WORDS) == set(MUTATIONS)
    causes = [pair for kind in mutations_of().values() for pair in kind.items()]
    assert {name for _, names in causes for name in names} == set(MUTATIONS)
    assert {cause for cause, _ in causes} <= set(LIMITS_OF) | {"stall_constant_memory_dependency"}


@pytest.mark.extras
@pytest.mark.process
def test_the_assembler_takes_every_mutant(tmp_path):
    assembler = shutil.which("ptxas")
    if assembler is None:
        pytest.skip("needs ptxas")
    for name in kernels_in(PTX):
        for each in mutants(PTX, name):
            for text in filter(None, (each.ptx, each.counted)):
                (tmp_path / "a.ptx").write_text(text)
                command = [assembler, "-arch=sm_90", "a.ptx", "-o", "a.cubin"]
                done = subprocess.run(
                    command, cwd=tmp_path, capture_output=True, text=True, check=False
                )
                assert done.returncode == 0, (name, each.mutation, done.stderr)


@pytest.mark.parametrize("name", kernels_in(PTX))
def test_a_counting_kernel_does_the_same_and_counts_each_block_at_its_own_place(name):
    (plain, *_) = mutants(PTX, name)
    counted = plain.counted
    if "call" in plain.ptx:
        assert counted is None
        return
    places = re.findall(r"red\.global\.add\.u64 \[perfml_blocks\+(\d+)\], 1;", counted)
    assert [int(each) for each in places] == list(range(0, 8 * len(places), 8))
    assert f"{BLOCKS}[{len(places)}]" in counted
    assert re.sub(r"red\.global\.add\.u64 \[perfml_blocks\+\d+\], 1;\n", "", counted) != counted


def test_ptx_in_a_program_is_read_as_it_is_and_compressed_by_lz4(tmp_path, monkeypatch):
    text = b".version 8.0\n.entry late() { ret; }\0"
    literals = bytes([0xF0, len(text) - 15]) + text  # a block of LZ4 without a repetition
    for flags, packed, size in ((0, text, 0), (0x2000, literals, len(literals))):
        entry = struct.pack("<HHIQI", 1, 0x101, 64, len(packed), size).ljust(40, b"\0")
        entry += struct.pack("<QQQ", flags, 0, len(text)) + packed
        head = b"\x50\xed\x55\xba" + struct.pack("<HHQ", 1, 16, len(entry))
        (tmp_path / "program").write_bytes(b"\x7fELF" + head + entry)
        assert kernels_of([tmp_path / "program"]) == {"late": text.decode().rstrip("\0")}
        with monkeypatch.context() as bare:
            bare.setattr("ctypes.util.find_library", lambda _: None)
            assert len(kernels_of([tmp_path / "program"])) == (not flags)
            assert lacking() == "libzstd and liblz4"
    assert not lacking()


def test_variables_of_a_module_that_its_code_names_are_known_by_kernel():
    head = ".version 8.0\n.target sm_75\n.address_size 64\n"
    declared = (
        ".visible .global .align 4 .u32 turns;\n.global .align 4 .b8 totals[1024];\n"
        ".const .align 4 .b8 weights[512];\n.global .align 1 .b8 $str[3] = {37, 102};\n"
        ".global .align 1 .b8 unused[1];\n"
    )
    used = "mov.u64 %rd1, totals; red.global.add.u32 [turns], 1; mov.u64 %rd2, $str;"
    module = f"{head}{declared}.visible .entry counts()\n{{ {used} ret; }}\n"
    plain = f"{head}.visible .entry plain()\n{{ ret; }}\n"
    known = global_variables({"counts": module, "plain": plain})
    assert known == {"counts": ("turns", "totals")}
