"""Kernels as their mutants: the real library over a stand-in for the driver.

There a kernel of PTX takes 10 us in blocks of 128 threads, and 4 us while its switch is on.
"""

import dataclasses

import pytest

from collectors.profilers.experiment_record import Settings
from perfml.experiments.repairs import repair_of, repairs
from perfml.experiments.responses import responses
from perfml.experiments.verdicts import Finding

pytestmark = pytest.mark.process

KERNEL = """
.version 8.0
.target sm_75
.address_size 64
.visible .entry _Z5unitsPf(
	.param .u64 units_param_0
)
{
	.reg .b32 	%r<4>;
	.reg .b64 	%rd<6>;
	ld.param.u64 	%rd1, [units_param_0];
	mov.u32 	%r1, %tid.x;
	mul.wide.u32 	%rd2, %r1, 64;
	add.s64 	%rd3, %rd1, %rd2;
	ld.global.u32 	%r2, [%rd3];
	MORE
	ret;
}
"""


@pytest.fixture
def repaired(examine):
    """Return a function that measures repairs of the program under words that say what it does."""

    def examined(words, more="", **settings):
        code = {"FAKE_PTX": KERNEL.replace("MORE", more)}
        return examine(words, env=code, repairs=True, **settings)[0]

    return examined


def test_a_repair_gains_what_its_mutant_takes_less_than_the_same_code_switched_off(repaired):
    (launch,) = responses(repaired("loads units"))
    gained = {each.mutation: each for each in repairs(launch)}
    assert gained["dense_loads"].factor == pytest.approx(0.4)
    assert gained["dense_loads"].gain_us == pytest.approx(0.6 * launch.time_us)
    assert gained["dense_loads"].overhead == 1
    assert repair_of(launch, "uncoalesced_loads") == gained["dense_loads"]
    assert repair_of(launch, "bank_conflicts") is None


def test_a_mutant_in_blocks_of_another_size_is_launched_so(repaired):
    (launch,) = responses(repaired("loads units", everything=True))
    gained = {each.mutation: each.factor for each in repairs(launch)}
    # of its 10 us launching adds 0
    assert gained["smaller_blocks"] == pytest.approx(0.25)
    assert gained["larger_blocks"] == pytest.approx(4)
    path = [launch.launch.condition(f"{each}_blocks").same_path for each in ("smaller", "larger")]
    assert path[1] is None  # it saves nothing


def test_a_kernel_without_ptx_is_left_alone_and_named(repaired):
    found = repaired("loads dram")
    assert repairs(*responses(found)) == []
    ((kernel, why),) = found.skipped
    assert kernel == "dram(float*)"
    assert "its PTX is not in the program" in why


def test_a_mutant_that_breaks_the_process_is_left_out_and_the_others_are_measured(repaired):
    found = repaired("loads units", "atom.global.add.u32 %r3, [%rd1], 1;", everything=True)
    (launch,) = responses(found)
    measured = {each.mutation for each in repairs(launch)}
    assert {"dense_loads", "smaller_blocks", "larger_blocks"} <= measured
    assert "no_global_atomics" not in measured
    assert ("_Z5unitsPf", "no_global_atomics does not end, or ends the process") in found.skipped


def test_ptx_that_the_driver_refuses_is_said_with_its_reason(repaired):
    found = repaired("loads units", "wgmma.fence.sync.aligned;")
    assert repairs(*responses(found)) == []
    assert any("recompiled: compiling it" in why for _, why in found.skipped)


def test_the_first_cause_of_the_answer_is_tried_first_and_what_it_decides_ends_the_experiments(
    repaired,
):
    asked = [Finding("units", "uncoalesced_loads", "", "low", claimed=0.8)]
    barrier = "bar.sync 0;\n\tdiv.u32 %r3, %r1, %r2;"
    (decided,) = repaired("loads units", barrier, findings=asked).launches
    # it saves 0.6 of the time, more than half of what is claimed
    assert decided.condition("dense_loads").times_us
    assert {"no_barriers", "cheap_division"} <= set(decided.not_tried)
    (all_,) = repaired("loads units", barrier, findings=asked, everything=True).launches
    assert not all_.not_tried
    # a cause that is said to make more than twice as much is not decided by it
    wrong = [Finding("units", "stall_sync", "", "low", claimed=0.8)]
    (first,) = repaired("loads units", barrier, findings=wrong).launches
    assert first.condition("no_barriers").times_us


def test_a_launch_without_part_of_the_clock_is_left_and_counted(tmp_path):
    times = [((us, us, us), (f"kernel {us}",)) for us in (990.0, 9.0, 1.0)]
    settings = Settings(("program",), tmp_path / "log", 1.0, 7, {}, times=times)
    seconds = [float(row[0].split()[2]) for row in settings._times()]
    # none is left while there is time for all
    assert seconds == [pytest.approx(0.2 + 0.4 * us / 1000) for us in (990, 9, 1)]
    few = dataclasses.replace(settings, seconds=0.5)
    assert [float(row[0].split()[2]) for row in few._times()][2] == 0
