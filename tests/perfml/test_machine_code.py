"""Where inlined code was called from, out of the machine code that a report holds."""

import lzma

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfml.util.machine_code import inlined_calls, own
from tests.support.paths import DATA

CUBIN = DATA / "ncu" / "inlined.cubin.xz"
TRITON = DATA / "deployed" / "triton_sums.cubin.xz"


@pytest.fixture(scope="module")
def program():
    """Return the machine code of ``inlined.cu``."""
    return lzma.decompress(CUBIN.read_bytes())


def lines(places):
    return [(place.file.rsplit("/", 1)[-1], place.line) for place in places]


def test_code_that_is_inlined_twice_deep_is_called_from_both_lines(program):
    # as nvdisasm -g has them: the first load, the second one, and a store of the kernel itself
    calls = inlined_calls(b"before" + program + b"behind", {"sums"})["sums"]
    assert lines(calls[0x60]) == [("inlined.cu", 4), ("inlined.cu", 7), ("inlined.cu", 10)]
    assert lines(calls[0x70]) == [("inlined.cu", 4), ("inlined.cu", 11)]
    assert lines(calls[0xC0]) == [("inlined.cu", 12)]


def test_a_function_of_a_header_of_cuda_has_the_line_that_calls_it(program):
    found = inlined_calls(program, {"counts", "no such"})
    assert list(found) == ["counts"]
    assert lines(found["counts"][0x10])[1:] == [("inlined.cu", 15)]


def test_a_function_of_tritons_is_of_the_own_line_before_it_in_the_program(program):
    (calls,) = inlined_calls(lzma.decompress(TRITON.read_bytes()), {"strided_sums"}).values()
    inside = {lines(own(stack))[0] for stack in calls.values() if len(stack) > 1}
    assert inside == {("sums.py", 12)}  # its operand is loaded there, and so is it called
    # an instruction of another line that the compiler puts between is none of it
    assert lines(calls[0x4D0]) == [("sums.py", 18)]
    assert lines(calls[0x4E0]) == [("standard.py", 263), ("sums.py", 12)]


def test_a_function_of_which_there_are_two_versions_is_left_out(program):
    other = program.replace(b"inlined.cu\0", b"inlinex.cu\0", 1)
    assert other != program
    assert "sums" in inlined_calls(program + program, {"sums"})
    assert inlined_calls(program + other, {"sums"}) == {}


@given(data=st.data())
def test_damage_never_raises(program, data):
    at = data.draw(st.integers(0, len(program) - 1))
    cut = data.draw(st.integers(at, len(program)))
    found = inlined_calls(
        program[:at] + data.draw(st.binary(max_size=9)) + program[cut:], {"sums", "counts"}
    )
    assert set(found) <= {"sums", "counts"}
