"""What to do where the launch says what limits how many blocks fit."""

from perfml.explain.advice.remedies import action_here
from tests.support.launches import launch

FITS = {
    "time_us": 1.0,
    "resident_blocks_limit_registers": 8.0,
    "resident_blocks_limit_shared_memory": 2.0,
    "resident_blocks_limit_warps": 16.0,
    "resident_blocks_limit_slots": 32.0,
    "registers_per_thread": 32.0,
    "shared_memory_per_block": 102400.0,
}


def test_what_limits_the_blocks_that_fit_is_named_with_its_number():
    said = action_here("theoretical_occupancy", launch(FITS))
    assert said is not None
    assert "with 102,400 bytes a block 2 block(s) fit" in said
    of_registers = launch({**FITS, "resident_blocks_limit_registers": 1.0})
    said = action_here("theoretical_occupancy", of_registers)
    assert said is not None
    assert "with 32 of them 1 block(s) fit" in said


def test_where_blocks_are_limited_by_their_warps_or_it_is_not_known_the_row_says_all():
    of_warps = launch({**FITS, "resident_blocks_limit_warps": 1.0})
    assert action_here("theoretical_occupancy", of_warps) is None
    assert action_here("theoretical_occupancy", launch({"time_us": 1.0})) is None
    assert action_here("stall_sync", launch(FITS)) is None
