"""Experiments on launches: the real library over stand-ins for the driver and for CUPTI.

The stand-in's kernels have known limits: ``units`` takes 1320 us on one multiprocessor of 132, and
``dram`` half as long again while other multiprocessors use DRAM.
"""

import pytest

from collectors.profilers import experiment_record, experiments
from collectors.profilers.process import ProfilerError
from perfml.experiments.limits import breakdown
from perfml.experiments.responses import responses
from perfml.experiments.verdicts import OPEN, verdict

pytestmark = pytest.mark.process


@pytest.mark.slow
def test_fewer_multiprocessors_and_traffic_answer_as_the_kernels_were_made(examine):
    found, _ = examine("units dram")
    units, dram = responses(found)
    assert units.ratio("sm_half") == pytest.approx(132 / 72, rel=1e-4)
    assert units.by_condition["sm_half"].elasticity == pytest.approx(1, rel=1e-4)
    assert units.ratio("dram_traffic") == 1
    assert dram.ratio("sm_half") == 1
    assert dram.ratio("dram_traffic") == 1.5
    assert units.ratio("warps_half") == 1
    # of 10 us an empty kernel takes 2; multiprocessors make the rest
    assert breakdown(units).shares["launch"] == pytest.approx(0.2)
    assert breakdown(units).largest == "multiprocessor"
    assert all(len(each.times_us) == 7 for each in found.launches[0].conditions)


@pytest.mark.parametrize("memory", ["", "pinned "])
def test_what_experiments_write_is_put_back(examine, memory):
    found, output = examine(f"{memory}adds adds units")
    assert [each.kernel for each in found.launches] == ["adds(int*)", "units(float*)"]
    assert output.splitlines()[-1] == "word 2"


def test_variables_of_a_module_are_put_back(examine, monkeypatch):
    stored = {"_Z5turnsPi": ("turns", "away")}
    monkeypatch.setattr(experiments, "global_variables", lambda modules: stored)
    found, output = examine("turns units turns")
    assert [each.kernel for each in found.launches] == ["turns(int*)", "units(float*)"]
    assert output.splitlines()[-2:] == ["turns 2", "word 0"]


def test_a_different_launch_is_examined_once_and_of_iterations_only_the_second(examine):
    found, _ = examine("units units iterations", iterations=True)
    assert [each.ranges for each in found.launches] == [("iter_1", "layer")]
    found, _ = examine("units units")
    assert len(found.launches) == 1


def test_a_launch_that_fewer_multiprocessors_hang_is_left_alone_and_named(examine):
    found, output = examine("adds waits units")
    assert [each.kernel for each in found.launches] == ["adds(int*)", "units(float*)"]
    ((kernel, why),) = found.skipped
    assert kernel.startswith("waits(int*)")
    assert "waits for blocks" in why
    assert output.splitlines()[-1] == "word 1"


def test_a_program_that_fails_at_its_end_keeps_its_experiments_and_says_why(examine):
    found, _ = examine("adds units checked")
    assert [each.kernel for each in found.launches] == ["adds(int*)", "units(float*)"]
    ((_, why),) = found.skipped
    assert "exit status 1" in why
    assert "cudaDeviceReset() failed" in why


def test_of_several_processes_the_busiest_is_examined_and_the_others_are_named(examine):
    both = ("bash", "-c", '"$1" units dram; "$1" adds', "bash")
    found, _ = examine("adds", launcher=both)
    assert [each.kernel for each in found.launches] == ["units(float*)", "dram(float*)"]
    ((_, why),) = found.skipped
    assert "one of 2 processes" in why


def test_a_program_that_resets_its_device_may_and_keeps_its_experiments(examine):
    found, output = examine("units reset adds")
    assert [each.kernel for each in found.launches] == ["units(float*)"]
    assert output.splitlines()[-1].startswith("word")


def test_a_program_that_fails_without_a_launch_is_an_error_with_its_last_line(examine):
    with pytest.raises(ProfilerError, match=r"cudaDeviceReset\(\) failed"):
        examine("checked")


def test_conditions_under_which_a_launch_is_refused_are_left_out(examine):
    found, _ = examine("cluster units")
    (cluster, _) = responses(found)
    assert {"l1_small", "warps_half"} <= set(cluster.by_condition)
    assert not {"sm_half", "dram_traffic"} & set(cluster.by_condition)
    # what was not measured is not a limit
    assert breakdown(cluster).limit is None
    assert "Not known" in breakdown(cluster).sentence()
    assert verdict(cluster, "dram_bytes").verdict == OPEN


@pytest.mark.parametrize(
    ("word", "why"),
    [
        ("cooperative", "cooperative launch"),
        ("capture units captured dram", "captured"),
        ("away", "another context"),
    ],
)
def test_what_cannot_be_run_under_other_conditions_says_why(examine, word, why):
    found, _ = examine(f"adds {word}")
    assert why in found.skipped[0][1]


def test_launches_after_a_capture_are_examined_again(examine):
    found, _ = examine("capture units captured dram")
    assert [each.kernel for each in found.launches] == ["dram(float*)"]


def test_a_program_whose_memory_does_not_fit_twice_says_so(examine):
    with pytest.raises(ProfilerError, match="no kernel launch") as caught:
        examine("units", env={"FAKE_GPU_FULL": "1"})
    assert "do not fit twice" in str(caught.value)


def test_a_launch_of_seconds_is_skipped_and_one_without_time_left_is_counted(examine):
    found, _ = examine("long units")
    assert [each.kernel for each in found.launches] == ["units(float*)"]
    assert "5000 ms a launch" in found.skipped[0][1]
    with pytest.raises(ProfilerError) as caught:
        examine("units dram", seconds=0)
    assert "2 launches left open" in str(caught.value)


def test_of_a_program_that_is_stopped_what_was_examined_stays(examine, monkeypatch):
    monkeypatch.setattr(experiments, "_own_times", lambda *_, **settings: ())
    found, _ = examine("adds units rests", timeout_s=6, repairs=True)
    assert [each.kernel for each in found.launches] == ["adds(int*)", "units(float*)"]
    why = " ".join(why for _, why in found.skipped)
    assert "did not end within 6 s" in why
    assert "no repair is measured" in why
    with pytest.raises(ProfilerError, match="did not end within 6 s"):
        examine("rests", timeout_s=6)


def test_only_launches_in_the_layers_that_are_asked_for_are_examined(examine):
    found, _ = examine("units iterations", layers=["layer"])
    assert [each.ranges for each in found.launches] == [("iter_1", "layer")]
    with pytest.raises(ProfilerError, match="no kernel launch"):
        examine("units iterations", layers=["conv_1"])


def test_a_record_without_its_end_is_an_error(tmp_path):
    path = tmp_path / "1.tsv"
    path.write_text("# perfml-experiments 1\nD\t132\t52428800\t3.4\n")
    with pytest.raises(ProfilerError, match="without finishing"):
        experiment_record.read_record(path)
    assert experiment_record.read_record(path, stopped=True).launches == ()
    path.write_text("# perfml-experiments 1\n# error no green contexts\n# end\n")
    with pytest.raises(ProfilerError, match="cannot be run"):
        experiment_record.read_record(path)
