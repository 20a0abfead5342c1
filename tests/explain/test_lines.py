"""The instruction that carries a cause is named, with its part and its line."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfml.explain import explain, make_side, reports
from perfml.explain.advice.finding import Finding, Where
from perfml.explain.advice.hazards import Advice
from perfml.explain.lines import (
    _CARRIERS,
    advice_with_lines,
    carrying_line,
    with_lines_of,
)
from perfml.explain.reports import Code, Report
from perfml.explain.results import Line
from perfml.explain.tree.causes import TERMS
from perfml.readers import Source
from perfml.readers.ncu.instructions import STALLED
from perfml.readers.ncu.report import EXECUTED
from perfml.util.findings import Time
from perfml.util.machine_code import Place
from tests.support.command_line import run
from tests.support.others_files import STRANGERS
from tests.support.tables import make_kernels

SECTORS = "memory_l2_theoretical_sectors_global"
DIVERGENT = "smsp__branch_targets_threads_divergent"


def code(*sass, lines=None, **counters):
    """Return the instructions of one kernel."""
    table = pd.DataFrame({"offset": [16 * n for n in range(len(sass))], "sass": sass})
    table["file"] = None if lines is None else "/home/a/k.cu"
    table["line"] = np.nan if lines is None else lines
    table[EXECUTED] = 8.0
    return {"k": table.assign(**counters)}


def test_scattered_loads_are_told_from_scattered_stores_and_from_loads_in_order():
    kernel = code(
        *("@!P0 LDG.E R4, [R2.64]", "LDG.E R5, [R8.64]", "STG.E [R6.64], R4", "EXIT"),
        **{SECTORS: [256, 32, 96, 0], f"{SECTORS}_ideal": [32, 32, 32, 0]},
    )
    load = carrying_line("uncoalesced_loads", kernel)
    assert (load.offset, load.share, load.alike) == (0, 1.0, 1)
    assert carrying_line("uncoalesced_stores", kernel).sass == "STG.E [R6.64], R4"
    both = carrying_line("sectors_per_request", kernel)
    assert both.share == pytest.approx(224 / 288)


def test_copies_that_unrolling_made_count_as_one():
    kernel = code(
        *("LDG.E R4, [R2.64]", "LDG.E R5, [R2.64+0x4]", "LDG.E R6, [R9.64]", "LDG.E R7, [R2.64+8]"),
        **{SECTORS: [100, 100, 250, 100], f"{SECTORS}_ideal": 0},
    )
    line = carrying_line("uncoalesced_loads", kernel)
    assert (line.offset, line.alike) == (0, 3)
    assert line.share == pytest.approx(300 / 550)
    assert "LDG.E R4, [R2.64] at 0x0000 and 2 more like it have 55 % of the load" in line.sentence()


def test_instructions_of_one_line_count_as_one_and_no_folder_is_told():
    kernel = code(
        *("LDS R1, [R2]", "LDS R3, [R4]", "LDS R5, [R6]"),
        lines=[3, 3, 9],
        memory_l1_wavefronts_shared=[40, 30, 50],
        memory_l1_wavefronts_shared_ideal=[1, 1, 1],
    )
    line = carrying_line("wavefronts_per_shared_load", kernel)
    assert (line.file, line.line, line.offset) == ("/home/a/k.cu", 3, 0)
    assert line.sentence().startswith("k.cu:3, LDS R1, [R2] at 0x0000 and 1 more like it have 58 %")


def test_divergence_names_the_branch_and_without_one_the_idle_lanes():
    lanes = {"thread_inst_executed": [256, 128, 256]}
    sass = ("@P0 BRA 0x40", "FADD R1, R2, R3", "EXIT")
    branch = carrying_line(
        "active_threads_per_warp", code(*sass, **lanes, **{DIVERGENT: [5, 0, 0]})
    )
    assert branch.sass == "@P0 BRA 0x40"
    idle = carrying_line("active_threads_per_warp", code(*sass, **lanes))
    assert (idle.sass, idle.share) == ("FADD R1, R2, R3", 1.0)
    # blocks of two threads: no instruction made the other lanes idle
    assert carrying_line("active_threads_per_warp", code(*sass, thread_inst_executed=16)) is None


def test_stalls_count_samples_of_their_own_reason():
    samples = {f"{STALLED}sleeping": [0, 30, 10], f"{STALLED}long_scoreboard": [9, 0, 0]}
    line = carrying_line(
        "stall_sleeping", code("FADD R1, R2, R3", "NANOSLEEP", "LDS R1, [R2]", **samples)
    )
    assert (line.sass, line.share, line.waits_at) == ("NANOSLEEP", 0.75, None)


def test_samples_behind_a_barrier_are_the_barriers():
    # recorded so: the warps that wait are sampled at the next branch, two instructions on
    kernel = code(
        *("BRA 0x40", "@!P0 BAR.SYNC.DEFER_BLOCKING 0x0", "ISETP.LE.AND P0, PT, R4, UR4, PT"),
        *("@!P0 BRA 0x0", "FADD R1, R2, R3"),
        lines=[1, 2, 3, 3, 4],
        **{f"{STALLED}barrier": [0, 0, 0, 90, 10]},
    )
    line = carrying_line("stall_sync", kernel)
    assert (line.line, line.share) == (2, 0.9)
    assert line.waits_at == "@!P0 BRA 0x0 at 0x0030, line 3"


def test_where_warps_wait_the_load_that_they_wait_for_is_named():
    kernel = code(
        *("LDG.E.128 R40, [R2.64]", "LDG.E R8, [R4.64]", "@P1 MOV R41, RZ", "IADD3 R8, R8, 1, RZ"),
        *("FFMA R9, R8, R41, R9", "FADD R9, R9, R42", "EXIT"),
        lines=[3, 4, 5, 6, 7, 8, 9],
        **{f"{STALLED}long_scoreboard": [0, 0, 0, 0, 70, 20, 10]},
    )
    line = carrying_line("stall_memory_dependency", kernel)
    assert (line.line, line.sass) == (3, "LDG.E.128 R40, [R2.64]")
    assert line.share == pytest.approx(0.9)
    assert line.sentence().endswith(", most of them at FFMA R9, R8, R41, R9 at 0x0040, line 7")


def test_a_wait_for_a_bulk_copy_is_told_by_the_condition_it_sets():
    loop = ["SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [UR6], R2", "@!P0 BRA 0x0"]
    assert Code(loop).awaited(1, "long_scoreboard") == 0


def test_in_a_loop_the_load_may_stand_behind_what_waits_for_it():
    loop = Code(["FADD R1, R1, R6", "LDG.E R6, [R2.64]", "BRA 0x0"])
    assert loop.awaited(0, "long_scoreboard") == 1
    assert loop.awaited(0, "short_scoreboard") is None
    assert loop.awaited(2, "long_scoreboard") is None


HEADER = "/usr/local/cuda/bin/../targets/x86_64-linux/include/device_atomic_functions.hpp"


@pytest.mark.parametrize(
    ("inner", "line", "called_at"),
    [
        (Place(HEADER, 157), 23, None),
        (Place("C:\\NVIDIA\\CUDA\\v12.4\\include\\x.hpp", 9), 23, None),
        (Place("/home/a/include/mine.cuh", 5), 5, "k.cu:23"),
    ],
)
def test_inlined_code_has_the_line_that_is_ones_own_and_its_call(inner, line, called_at):
    kernel = code("REDG.E.MAX [R2.64], R7", "EXIT", lines=[inner.line, 24])
    kernel["k"]["file"] = [inner.file, "/home/a/k.cu"]
    kernel["k"]["callers"] = [(Place("/home/a/k.cu", 23),), ()]
    found = carrying_line("global_atomics", kernel)
    assert (found.line, found.called_at) == (line, called_at)
    assert ("(called at k.cu:23)" in found.sentence()) == (called_at is not None)


def test_a_kernel_that_ran_more_often_weighs_more():
    both = {**code("LDL R1, [R2]"), "other": code("STL [R3], R4")["k"]}
    assert carrying_line("local_memory", both, {"k": 1, "other": 4}).kernel == "other"


def test_where_nothing_is_counted_or_nothing_stands_out_no_line_is_named():
    many = code(*["FADD R1, R2, R3"] * 40, **{f"{STALLED}wait": 1.0})
    assert carrying_line("stall_exec_dependency", many) is None
    assert carrying_line("uncoalesced_loads", code("LDG.E R4, [R2.64]")) is None
    assert carrying_line("theoretical_occupancy", many) is None
    assert carrying_line("uncoalesced_loads", {}) is None


@given(st.lists(st.integers(0, 1 << 40), min_size=1, max_size=30), st.data())
def test_the_line_named_has_the_largest_part_and_never_more_than_the_whole(samples, data):
    lines = data.draw(st.lists(st.integers(1, 5), min_size=len(samples), max_size=len(samples)))
    kernel = code(*["NOP"] * len(samples), lines=lines, **{f"{STALLED}sleeping": samples})
    found = carrying_line("stall_sleeping", kernel)
    sums = dict.fromkeys(lines, 0)
    for sample, line in zip(samples, lines, strict=True):
        sums[line] += sample
    if found is None:
        assert not any(samples)
        return
    assert sums[found.line] == max(sums.values())
    assert found.share == pytest.approx(max(sums.values()) / sum(samples))


def test_every_cause_with_a_line_exists():
    assert set(_CARRIERS) <= set(TERMS)


def test_a_path_of_windows_shows_its_file_alone():
    line = Line("t", "k", 16, "NOP", 0.5, "it", file="C:\\Users\\a\\k.cu", line=4)
    assert line.sentence() == "k.cu:4, NOP at 0x0010 has 50 % of it"


@pytest.mark.skipif(not STRANGERS.is_dir(), reason="public profiles may be read, not committed")
@pytest.mark.slow
def test_explain_names_the_line_of_a_public_report():
    naive, better = (STRANGERS / "hpca" / f"{name}.ncu-rep" for name in ("naive", "variant1"))
    told = run("explain", str(better), str(naive))
    said = " ".join(told.stdout.split())
    assert "where: sectors per request: conv_kernels.cu:44, @!P6 LDG.E.CONSTANT" in said


def test_a_finding_of_advise_names_the_instruction_in_its_evidence(monkeypatch, tmp_path):
    path = tmp_path / "a.ncu-rep"
    path.write_bytes(b"NVR\x00")
    report = Report(Source(path), "a")
    kernel = code("BAR.SYNC", "LDS R1, [R2]", **{f"{STALLED}barrier": [30, 10]})
    found = {"void k<1>(int)": kernel["k"]}
    monkeypatch.setattr(reports, "instructions", lambda source, *wanted: [found])
    rules = [("stall_sync",), ("wave_quantization",)]
    texts = {"hazard": "", "evidence": "seen", "mitigation": ""}
    same = {"holds": Time(1.0), "gain": None, "probability": 0.5, **texts}
    table = tuple(Finding(rules=rule, where=Where(("a",), "k"), **same) for rule in rules)
    launches = pd.DataFrame({"kernel": ["void k<1>(int)", None]})
    advice = Advice(table, pd.DataFrame())
    told = advice_with_lines(advice, launches, [report])
    assert [one.evidence for one in told.of_layers] == [
        "seen; BAR.SYNC at 0x0000 has 100 % of the samples of warps waiting (barrier + membar)",
        "seen",
    ]
    assert advice_with_lines(advice, launches, []) is advice


@pytest.mark.parametrize("turned", [False, True])
def test_additional_instructions_are_told_apart_by_operation_on_either_side(turned):
    row = {"layer": "a", "kernel": "k", "sm_efficiency": 1.0}
    times = ((20.0, 1e7, 0.4), (55.0, 3e7, 0.9))
    names = ("time_us", "inst_executed", "issue_slot_utilization")
    sides = [
        make_side(str(time[0]), make_kernels([{**row, **dict(zip(names, time, strict=True))}]))
        for time in times
    ]
    loop = ("IMAD R1, R1, R2, R3", "ISETP.NE P0, R1, R2", "BRA 0x0", "FADD R4, R4, R1")
    few = code(*loop, **{EXECUTED: [10.0, 10.0, 10.0, 40.0]}, lines=[7, 7, 8, 9])
    many = code(*loop, **{EXECUTED: [90.0, 50.0, 10.0, 40.0]}, lines=[7, 7, 8, 9])
    code_of_sides = [many, few] if turned else [few, many]
    explanation = explain(*(sides[::-1] if turned else sides))
    (detail,) = with_lines_of(explanation, *code_of_sides).details
    split = [line for line in detail.lines if line.term == "instructions"]
    # what both sides execute as often is no part of it, however much it is
    assert [(line.sass[:4], line.line, line.share) for line in split] == [
        ("IMAD", 7, pytest.approx(80 / 120)),
        ("ISET", 7, pytest.approx(40 / 120)),
    ]
    assert detail.causes.confidence != "high"


@pytest.mark.parametrize(
    ("term", "sass"),
    [
        ("fp64_pipe_time", "DFMA R12, R12, R8, 0.5"),
        ("special_function_pipe_time", "F2I.TRUNC.NTZ R19, R0"),
        ("integer_arithmetic", "SHF.L.W.U32.HI R8, R8, UR5, R8"),
        ("lsu_pipe_time", "SHFL.BFLY PT, R8, R8, 0x1, 0x1f"),
        ("tensor_unused", "FFMA R16, R36, R40, R16"),
        ("constant_serialization", "LDC R6, c[0x3][R10]"),
    ],
)
def test_the_work_of_a_unit_is_carried_by_what_it_executes(term, sass):
    # as recorded of the planted families; the loop around it runs as often
    table = code("BRA 0x10", sass, "MOV R1, R2", inst_executed=[100, 100, 100])
    found = carrying_line(term, table)
    assert found is not None
    assert found.sass == sass
    assert found.share == 1.0
