"""Source lines for which warps wait."""

import pandas as pd
import pytest

from collectors.profilers.stall_lines import Code, SampledInstruction, stall_lines
from perfml.explain.lines import carrying_line
from perfml.readers.ncu.instructions import SCOREBOARDS, STALLED
from perfml.util.machine_code import Function, Place
from perfml.util.scoreboards import Scoreboards
from tests.perfml.test_scoreboards import ADD, CALL, EXIT, LDG, instruction

HEADER = "/usr/local/cuda/include/device_atomic_functions.hpp"
PROGRAM = "/home/a/sum.cu"


@pytest.fixture
def code():
    """Line 3 loads, in a function of CUDA's that line 7 calls; line 5 needs it, line 9 calls."""
    instructions = (
        instruction(LDG, raises=0),
        instruction(LDG, raises=0),
        instruction(ADD, waits=1),
        instruction(CALL, leap=1),
        instruction(EXIT),
        instruction(ADD),
    )
    lines = {
        0: (Place(PROGRAM, 3),),
        16: (Place(HEADER, 107), Place(PROGRAM, 7)),
        32: (Place(PROGRAM, 5),),
        48: (Place(PROGRAM, 9),),
    }
    function = Function(b"".join(instructions), 75, (range(80, 96),))
    return {"sum": Code(function, lines)}


def named(lines):
    return {each.line: each for each in lines}


def test_samples_count_for_the_line_that_is_waited_for(code):
    sampled = [SampledInstruction("sum", 32, {"long_scoreboard": 10, "selected": 4})]
    found = stall_lines(sampled, code)
    lines = named(found)
    # both loads raise the scoreboard: half of the samples each, also through the header
    assert {line: each.stalled for line, each in lines.items()} == {3: 5, 7: 5, 5: 0}
    assert lines[3].reason == "long_scoreboard"
    assert lines[3].elsewhere == "sum.cu:5"
    assert (lines[5].sampled, lines[3].sampled) == (14, 0)
    assert sum(each.stalled for each in found) == 10


def test_a_wait_that_names_nothing_else_counts_where_it_is(code):
    (line,) = stall_lines([SampledInstruction("sum", 32, {"wait": 3})], code)
    assert (line.line, line.stalled, line.elsewhere) == (5, 3, "")


def test_a_subroutine_without_lines_counts_for_the_line_that_calls_it(code):
    (line,) = stall_lines([SampledInstruction("sum", 80, {"wait": 3})], code)
    assert (line.line, line.stalled, line.sampled) == (9, 3, 3)


def test_a_kernel_without_lines_is_one_line():
    sampled = [SampledInstruction("other", at, {"wait": 2}) for at in (0, 16)]
    (line,) = stall_lines(sampled, {})
    assert (line.file, line.line, line.stalled) == ("", None, 4)


def test_inlined_code_names_the_line_that_calls_it_most(code):
    inlined = Place(PROGRAM, 2)
    lines = {0: (inlined, Place(PROGRAM, 20)), 16: (inlined, Place(PROGRAM, 30))}
    function = Function(instruction(ADD) * 2, 75)
    sampled = [SampledInstruction("k", 0, {"wait": 1}), SampledInstruction("k", 16, {"wait": 5})]
    (line,) = stall_lines(sampled, {"k": Code(function, lines)})
    assert (line.line, line.called_at, line.stalled) == (2, "sum.cu:30", 6)


def test_a_function_of_tritons_own_has_the_line_that_calls_it():
    stack = (
        Place("/site-packages/triton/language/standard.py", 293),
        Place("/home/a/softmax.py", 12),
        Place("/home/a/softmax.py", 30),
    )
    sampled = [SampledInstruction("k", 0, {"wait": 3})]
    (line,) = stall_lines(sampled, {"k": Code(Function(instruction(ADD), 75), {0: stack})})
    assert (line.file, line.line, line.called_at) == ("/home/a/softmax.py", 12, "softmax.py:30")


def test_a_report_of_nsight_compute_is_told_by_the_same_code():
    function = Function(
        instruction(LDG, reads=0) + instruction(LDG, raises=1) + instruction(ADD, waits=0b11), 75
    )
    table = pd.DataFrame(
        {
            "offset": [0, 16, 32],
            # no register tells of the first: its address is overwritten
            "sass": ["STG.E [R2.64], R4", "LDG.E R5, [R6.64]", "IADD3 R2, R5, 1, RZ"],
            "file": PROGRAM,
            "line": [3, 7, 5],
            f"{STALLED}long_scoreboard": [0.0, 0.0, 10.0],
        }
    )
    by_registers = carrying_line("stall_memory_dependency", {"k": table})
    assert (by_registers.line, by_registers.share) == (7, 1.0)
    table.attrs[SCOREBOARDS] = Scoreboards(function)
    by_code = carrying_line("stall_memory_dependency", {"k": table})
    assert (by_code.line, by_code.share) == (3, 0.5)
    assert by_code.waits_at == "IADD3 R2, R5, 1, RZ at 0x0020, line 5"
