"""What instructions wait for: in code of nvcc for an H100, and in instructions made by hand."""

import lzma
import struct

import pytest

from perfml.util.machine_code import Function, Program
from perfml.util.scoreboards import Scoreboards
from tests.support.paths import DATA

CUBIN = DATA / "deployed" / "3989636605.cubin.xz"
SAMPLES = DATA / "deployed" / "planted_lines.tsv.xz"


@pytest.fixture(scope="module")
def functions():
    return Program(memoryview(lzma.decompress(CUBIN.read_bytes()))).functions


def test_a_product_of_a_load_waits_for_it_and_a_store_that_is_overwritten_is_waited_for(functions):
    # offsets as nvdisasm -hex shows them: F2I of LDG's result
    counted = Scoreboards(functions["_Z7countedPiPKfi"])
    assert counted.awaited(0x110, "long_scoreboard") == (0xE0,)
    # the branch waits until STG has read the address that the next turn overwrites
    stored = Scoreboards(functions["_Z6storedPfi"])
    assert stored.awaited(0x330, "long_scoreboard") == (0x2F0,)


def test_what_is_waited_for_may_be_of_the_turn_before(functions):
    # the constant for REDG at the end of the loop, in the next turn
    counted = Scoreboards(functions["_Z7countedPiPKfi"])
    assert counted.awaited(0x100, "long_scoreboard") == (0x170,)


def test_of_several_scoreboards_the_reason_says_which_is_slow(functions):
    counted = Scoreboards(functions["_Z7countedPiPKfi"])
    assert counted.awaited(0x50, "short_scoreboard") == (0x10, 0x40)
    assert counted.awaited(0x120, "short_scoreboard") == (0x110,)


def test_barriers_and_the_end_name_what_came_before(functions):
    alone = Scoreboards(functions["_Z5alonePff"])
    assert alone.awaited(0x1C0, "barrier") == (0x1B0,)
    assert alone.awaited(0x1B0, "barrier") == ()  # it stands at the barrier itself
    counted = Scoreboards(functions["_Z7countedPiPKfi"])
    assert counted.awaited(0x190, "drain") == (0x170,)


def test_a_warp_that_has_ended_is_sampled_behind_its_exit(functions):
    awaited = {}
    for line in lzma.decompress(SAMPLES.read_bytes()).decode().splitlines():
        if "stalled_drain=" in line:
            _, _, name, _, offset, *_ = line.split("\t")
            (awaited[name],) = Scoreboards(functions[name]).awaited(int(offset), "drain")
            # all recorded ones are sampled there
            (code,) = struct.unpack_from("<H", functions[name].code, int(offset) - 16)
            assert code & 0xFFF == EXIT
    assert len(awaited) == 10
    assert awaited["_Z7countedPiPKfi"] == 0x170


def test_other_reasons_and_places_that_are_none_name_nothing(functions):
    counted = Scoreboards(functions["_Z7countedPiPKfi"])
    assert counted.awaited(0x110, "math_pipe_throttle") == ()
    assert counted.awaited(1 << 20, "long_scoreboard") == ()
    assert counted.awaited(0x60, "long_scoreboard") == ()  # it waits for no scoreboard


LDG, ADD, LDS, BRANCH, CALL, EXIT, NANOSLEEP = 0x981, 0x824, 0x984, 0x947, 0x944, 0x94D, 0x95D
STG, REDG, REDG_F32 = 0x986, 0x98E, 0x9A6


def instruction(code, *, waits=0, raises=7, reads=7, leap=0, condition=7, architecture=75):
    """Encode an instruction; a branch leaps over so many."""
    distance = leap * 4
    low = code | condition << 12
    if architecture >= 90:
        low |= (distance & 0xFF) << 16
        distance >>= 8
    whole = low | (distance & (1 << 48) - 1) << 34
    whole |= 7 << 87 | raises << 110 | reads << 113 | waits << 116
    return struct.pack("<QQ", whole & (1 << 64) - 1, whole >> 64)


def made(*instructions, architecture=75):
    return Scoreboards(Function(b"".join(instructions), architecture))


@pytest.mark.parametrize("architecture", [75, 90])
def test_both_ways_to_a_place_are_followed(architecture):
    code = made(
        instruction(BRANCH, leap=2, condition=0, architecture=architecture),
        instruction(LDG, raises=1),
        instruction(BRANCH, leap=1, architecture=architecture),
        instruction(LDG, raises=1),
        instruction(ADD, waits=0b10),
        architecture=architecture,
    )
    assert code.awaited(4 * 16, "long_scoreboard") == (16, 48)


def test_a_warp_that_sleeps_stands_at_what_follows():
    code = made(instruction(NANOSLEEP), instruction(NANOSLEEP), instruction(ADD))
    assert [code.awaited(at, "sleeping") for at in (0, 16, 32)] == [(), (0,), (16,)]


def test_what_was_waited_for_before_is_not_waited_for_again():
    code = made(
        instruction(LDG, raises=1),
        instruction(ADD, waits=0b10),
        instruction(LDG, raises=1),
        instruction(ADD, waits=0b10),
    )
    assert code.awaited(3 * 16, "long_scoreboard") == (32,)


def test_code_behind_the_end_is_not_on_the_way():
    code = made(
        instruction(LDG, raises=0),
        instruction(EXIT),
        instruction(LDS, raises=0),
        instruction(ADD, waits=1),
    )
    assert code.awaited(3 * 16, "long_scoreboard") == (32,)


def test_of_code_before_volta_nothing_is_told():
    code = made(instruction(LDG, raises=1), instruction(ADD, waits=0b10), architecture=61)
    assert code.awaited(16, "long_scoreboard") == ()


@pytest.mark.parametrize(
    ("before", "awaited"),
    [
        ((REDG, STG, ADD), 0),
        ((STG, REDG, ADD), 16),
        ((STG, STG, ADD), 16),
        ((REDG_F32, STG, STG), 0),
    ],
)
def test_the_end_waits_for_the_last_atomic_before_it_waits_for_a_store(before, awaited):
    code = made(*map(instruction, before), instruction(EXIT), instruction(BRANCH, leap=-1))
    assert code.awaited(3 * 16, "drain") == (awaited,)
    assert code.awaited(4 * 16, "drain") == (awaited,)


def test_who_calls_a_subroutine_is_known():
    code = made(
        instruction(CALL, leap=2),
        instruction(CALL, leap=1),
        instruction(EXIT),
        instruction(ADD),
    )
    assert code.callers(3 * 16) == (0, 16)
