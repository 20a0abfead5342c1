"""Counters by the program's own iterations: the real library over a stand-in for CUPTI.

The stand-in takes one pass for every two metrics; metric ``m__3`` of the launch at place 5 is 3.05.
"""

import subprocess
import sys

import pytest

from collectors.profilers import cupti, inject
from collectors.profilers.cupti_failures import GraphError
from collectors.profilers.process import ProfilerError
from perfml.readers import read
from tests.support.processes import PATIENCE_S

pytestmark = pytest.mark.process

SEVEN = tuple(f"m__{number}" for number in range(7))


@pytest.fixture
def measure(counters_on_cpu, tmp_path, monkeypatch):
    """Return a function that measures the program under words that say what it does."""
    library, program = counters_on_cpu
    monkeypatch.setattr(cupti, "library", lambda name: library)

    def measured(words, *, metrics=SEVEN, sets=1, timed=2, memory=2 << 30, launcher=()):
        options = cupti.CuptiOptions(metrics, sets=sets, timed=timed, memory=memory)
        command = [*launcher, str(program), *words.split()]
        log = tmp_path / "log.txt"
        return cupti.profile(options, command, folder=tmp_path, log=log, timeout_s=PATIENCE_S)

    return measured


RANGES = tuple(f"perfml_{n}" for n in ("bare", "begin", "counters_wanted", "end", "pop", "push"))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "others"), [(inject.COUNTERS, RANGES), (inject.EXPERIMENTS, ())])
def test_a_library_compiles_against_the_installed_cupti(name, others, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    made = inject.library(name)
    names = subprocess.run(["nm", "-D", made], capture_output=True, text=True, check=True).stdout
    assert [line.split()[-1] for line in names.splitlines() if " T " in line] == [
        "InitializeInjection",
        "InitializeInjectionNvtx2",
        *others,
    ]
    # it runs where the driver is, but is compiled where there is none
    assert not [line for line in names.splitlines() if " U cu" in line and "cupti" not in line]


def layers(profile):
    return read(profile.table).frame["layer"].fillna("-").tolist()


@pytest.mark.slow
def test_each_pass_is_taken_in_an_iteration_of_one_run(measure):
    profile = measure("iter:6")  # two that are timed, four passes
    assert (profile.measurement.replay, profile.measurement.passes, profile.measurement.runs) == (
        *("iterations", 4),
        1,
    )
    assert [row.kernel for row in profile.rows] == ["conv(float*)", "pool(float*)", "tail(float*)"]
    assert [row.values["m__3"] for row in profile.rows] == [3.0, 3.01, 3.02]
    assert profile.rows[0].values.keys() == set(SEVEN)
    assert profile.rows[0].ranges == ("iter_2", "conv")
    assert profile.warnings == ()


def test_the_table_reads_back_with_ranges_as_iterations_and_layers(measure):
    profile = measure("iter:6")
    frame = read(profile.table).frame
    assert frame["layer"].fillna("-").tolist() == ["conv", "a/b", "-"]
    assert set(frame["iteration"]) == {2}
    assert frame["grid"].tolist() == ["(10, 1, 1)", "(20, 1, 1)", "(30, 1, 1)"]
    provenance = read(profile.table).provenance
    assert provenance["caches"] == "as the program left them"
    assert provenance["replay"] == "iterations"


def test_several_measurements_follow_each_other_in_one_session(measure):
    profile = measure("iter:12", sets=2)
    assert [row.set_number for row in profile.rows] == [0, 0, 0, 1, 1, 1]
    assert [row.ranges[0] for row in profile.rows[::3]] == ["iter_2", "iter_6"]


WORK = ("m__1", "smsp__sass_a.sum", "m__2", "smsp__inst_executed.sum", "smsp__sass_b.sum")


def test_instrumented_code_is_run_once_where_every_measurement_executes_as_much(measure):
    profile = measure("iter:9", metrics=WORK, sets=3)  # two timed, thrice two passes, and one
    assert (profile.measurement.passes, profile.measurement.runs) == (3, 1)
    assert [row.set_number for row in profile.rows] == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert {row.values["smsp__sass_b.sum"] for row in profile.rows} == {1040.0}
    assert [row.values["m__2"] for row in profile.rows[:4]] == [2.0, 2.01, 2.02, 2.0]
    assert [row.ranges[0] for row in profile.rows[::3]] == ["iter_2", "iter_4", "iter_6"]
    assert read(profile.table).provenance["instrumented"].startswith("run once")


def test_instrumented_code_is_run_each_time_where_the_work_differs(measure, monkeypatch):
    monkeypatch.setenv("FAKE_CUPTI_OTHER_WORK", "1")
    profile = measure("iter:11", metrics=WORK, sets=3)
    counted = [row.values["smsp__sass_a.sum"] for row in profile.rows[::3]]
    assert counted == [1040.0, 1050.0, 1060.0]
    assert "instrumented" not in read(profile.table).provenance


def test_instrumented_code_counts_the_launches_that_were_measured(measure):
    other = measure("iter:8 odd iter:1", metrics=WORK, sets=3)
    assert (other.measurement.replay, other.measurement.runs) == ("iterations", 1)
    assert {row.values["smsp__sass_a.sum"] for row in other.rows} == {1040.0}
    # measurements of different launches: instrumented code runs beside the hardware's counters
    mixed = measure("iter:4 more:1 more:1 iter:9", metrics=WORK, sets=3)
    assert mixed.measurement.runs > 1
    assert {len(row.values) for row in mixed.rows} == {5}


def test_pairs_of_profiler_calls_are_iterations_too(measure):
    profile = measure("pairs:6")
    assert profile.measurement.replay == "iterations"
    assert {row.ranges[0] for row in profile.rows} == {"iter_2"}


def test_a_program_with_few_iterations_is_run_again_for_the_other_passes(measure):
    profile = measure("iter:3")  # of four passes, three fit into one run
    assert (profile.measurement.replay, profile.measurement.runs) == ("iterations", 3)
    assert "3 iterations, and 6 are needed" in profile.warnings[0]
    assert profile.rows[2].values == {name: int(name[3:]) + 0.02 for name in SEVEN}


def test_a_program_without_iterations_is_replayed_launch_by_launch(measure):
    profile = measure("bare:3")
    assert (profile.measurement.replay, profile.measurement.runs) == ("kernel", 2)
    assert len(profile.rows) == 10  # all launches, the one before included
    assert "the program has no iterations" in profile.warnings[0]
    assert read(profile.table).provenance["caches"].startswith("not flushed")


def test_one_other_iteration_is_told_and_not_used(measure):
    profile = measure("iter:3 odd iter:8")
    assert profile.measurement.replay == "iterations"
    assert {row.ranges[0] for row in profile.rows} == {"iter_4"}
    assert profile.rows[1].kernel == "pool(float*)"


def test_iterations_that_differ_again_and_again_are_replayed_launch_by_launch(measure):
    profile = measure("iter:3 odd iter:1 odd iter:1 odd iter:1 odd iter:1")
    assert profile.measurement.replay == "kernel"
    assert "differs from" in profile.warnings[0]
    assert "other(float*)" in profile.warnings[0] or "pool(float*)" in profile.warnings[0]


@pytest.mark.parametrize("repeats", [2, 3, 9], ids=["too few", "timed", "measured"])
def test_parts_that_count_their_iterations_anew_are_all_measured(measure, repeats):
    profile = measure(f"part:{repeats} part:{repeats} part:{repeats}", sets=2)
    of_parts = [(row.ranges, row.kernel) for row in profile.rows]
    assert of_parts == [
        ((f"iter_{number}", f"part_{part}"), f"part{part}(float*)")
        for part in (1, 2, 3)
        for number in (0, 1)
    ]
    assert profile.measurement.replay == "kernel"
    assert "begins its iterations anew with other kernels" in profile.warnings[0]


def test_pairs_with_other_kernels_each_are_counted_where_not_all_are_measured(measure):
    profile = measure("unlike:9", sets=2)
    assert len(profile.rows) == 2
    assert "in the first 2 of 9 pairs of cudaProfilerStart" in profile.warnings[0]


def test_epochs_that_count_their_steps_anew_are_the_same_work(measure):
    profile = measure("epoch:4 epoch:4")
    assert profile.measurement.replay == "iterations"
    assert profile.warnings == ()


def test_no_launch_is_lost_where_an_iteration_launches_more_than_was_reserved(measure):
    profile = measure("iter:1 more:30 iter:9")
    assert len(profile.rows) == 3
    more = measure("iter:1 more:30 more:30 more:30 more:30 more:30 more:30 more:30 more:30")
    assert len(more.rows) == 33
    assert more.rows[-1].values["m__0"] == 0.32


def test_counters_that_need_more_memory_are_measured_in_parts(measure):
    profile = measure("iter:10", memory=2500)  # two launches at a time: twice four passes
    assert [row.place for row in profile.rows] == [0, 1, 2]
    assert {row.ranges[0] for row in profile.rows} == {"iter_2"}
    assert layers(measure("bare:3", memory=1500)) == ["-", *(("conv", "a/b", "-") * 3)]


def test_contexts_are_measured_one_after_the_other(measure):
    profile = measure("contexts:10")
    assert [row.context for row in profile.rows] == [0, 1, 0]
    assert [row.values["m__0"] for row in profile.rows] == [0.0, 0.0, 0.01]
    replayed = measure("contexts:1")
    assert [row.context for row in replayed.rows] == [0, 1, 0]


def test_threads_that_launch_into_a_context_each_may_take_turns_and_wait_for_each_other(measure):
    profile = measure("meeting:12", sets=1)  # two timed, twice four passes
    assert (profile.measurement.replay, profile.measurement.runs) == ("iterations", 1)
    rows = sorted((row.context, row.kernel, row.values["m__0"]) for row in profile.rows)
    assert rows == [
        (0, "collect(float*)", 0.01),
        (0, "left(float*)", 0.0),
        (1, "collect(float*)", 0.01),
        (1, "right(float*)", 0.0),
    ]


def test_launches_that_become_part_of_a_graph_are_none(measure):
    profile = measure("captured:6")
    assert [row.kernel for row in profile.rows] == ["conv(float*)", "pool(float*)", "tail(float*)"]
    replayed = measure("captured:1")
    assert "captured(float*)" not in {row.kernel for row in replayed.rows}


@pytest.mark.parametrize("memory", [2 << 30, 2500])
def test_launches_that_the_driver_refuses_are_none(measure, memory):
    profile = measure("refused:12", memory=memory)
    assert profile.measurement.replay == "iterations"
    assert [row.kernel for row in profile.rows] == ["conv(float*)", "pool(float*)", "tail(float*)"]


def test_a_child_made_by_fork_leaves_the_record_alone(measure):
    profile = measure("iter:3 fork iter:6")  # two timed, one pass before
    assert (len(profile.rows), profile.measurement.replay) == (3, "iterations")
    assert [row.place for row in profile.rows] == [0, 1, 2]
    assert profile.warnings == ()


def test_launches_of_another_thread_belong_to_the_iteration(measure):
    profile = measure("threads:6")
    assert profile.rows[2].kernel == "backward(float*)"
    assert profile.rows[2].ranges == ("iter_2",)


def test_launches_of_another_thread_belong_to_the_range_that_waits_for_them(measure):
    profile = measure("backward:6")
    assert layers(profile) == ["conv", "a/b", "backward", "backward"]
    assert {row.ranges for row in profile.rows[2:]} == {("iter_2", "backward")}
    assert len({row.instance for row in profile.rows[2:]}) == 1


def test_a_range_of_another_thread_lies_in_the_iteration(measure):
    profile = measure("named:6")
    assert profile.rows[2].ranges == ("iter_2", "fc.backward")


def test_ranges_of_a_librarys_own_domain_are_no_layers(measure):
    profile = measure("library:6")
    assert layers(profile) == ["conv", "a/b", "-", "layer", "layer"]
    assert [row.kernel for row in profile.rows[2:]] == [
        "sort(float*)",
        "scan(float*)",
        "add(float*)",
    ]


def test_metrics_that_the_chip_lacks_are_named_and_the_others_measured(measure):
    profile = measure("iter:8", metrics=("m__1", "m__unknown", "m__2"))
    assert profile.missing == ("m__unknown",)
    assert profile.rows[0].values == {"m__1": 1.0, "m__2": 2.0}


def test_graphs_are_refused_with_the_cure(measure):
    with pytest.raises(GraphError, match="CUDA graph") as error:
        measure("graph:6")
    assert "--profiler ncu" in error.value.cure


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("iter:4 abort", r"exit status -6 \(SIGABRT\)"),
        ("iter:4 exit", "ended without finishing its record"),
        ("iter:4 fork exit", "ended without finishing its record"),
        ("", "launched no GPU kernel"),
    ],
)
def test_a_program_that_ends_badly_is_one_message(measure, words, says):
    with pytest.raises(ProfilerError, match=says):
        measure(words)


def test_what_was_measured_before_a_program_left_by_exit_counts(measure):
    profile = measure("iter:9 exit")
    assert len(profile.rows) == 3
    assert profile.iterations


PYTHON_CHILD = "import subprocess, sys; sys.exit(subprocess.call(sys.argv[1:]))"
FORKED = """
import multiprocessing, os, subprocess, sys
def work():
    subprocess.check_call(sys.argv[1:])
child = multiprocessing.get_context("fork").Process(target=work)
child.start()
child.join()
sys.exit(child.exitcode)
"""


@pytest.mark.parametrize(
    "launcher",
    [
        ("bash", "-c", 'cd / && "$0" "$@"'),
        ("bash", "-c", 'exec "$0" "$@"'),
        ("nice", "timeout", "20"),
        (sys.executable, "-c", PYTHON_CHILD),
        (sys.executable, "-c", FORKED),
    ],
)
def test_a_program_behind_a_launcher_is_measured(measure, launcher):
    profile = measure("iter:6", launcher=launcher)
    assert (len(profile.rows), profile.measurement.replay) == (3, "iterations")
    assert profile.warnings == ()


def test_of_several_processes_the_busiest_is_measured_and_said_to_be(measure):
    both = ("bash", "-c", '"$0" iter:9 more:4 & "$0" "$@"; wait')
    profile = measure("iter:6", launcher=both)
    assert len(profile.rows) == 3
    assert profile.warnings == ("2 processes launched kernels; the busiest one was measured",)


def test_a_process_that_launched_nothing_is_not_one_of_several(measure):
    both = ("bash", "-c", '"$0" exit; "$0" "$@"')
    assert measure("iter:6", launcher=both).warnings == ()


def test_a_launcher_that_drops_the_environment_is_told_of(measure):
    with pytest.raises(ProfilerError, match="launched no GPU kernel") as error:
        measure("iter:6", launcher=("env", "-i"))
    assert "mpirun" in error.value.cure


@pytest.mark.parametrize(
    ("variable", "says", "cure"),
    [
        ("FAKE_CUPTI_FORBIDDEN", "may not read the GPU's performance counters", "SYS_ADMIN"),
        ("FAKE_CUPTI_BUSY", "another tool is attached", "--profiler ncu"),
    ],
)
def test_refusals_of_cupti_name_the_cure(measure, monkeypatch, variable, says, cure):
    monkeypatch.setenv(variable, "1")
    with pytest.raises(ProfilerError, match=says) as error:
        measure("iter:8")
    assert cure in error.value.cure


def test_copies_are_timed_beside_the_launches_and_are_none(measure):
    profile = measure("copy:6")
    found = [(each.ranges, each.kernel, each.bytes) for each in profile.timed]
    name = "Memcpy HtoD (Pageable -> Device)"
    # of the two iterations that are timed alone
    assert found == [(("iter_0", "upload"), name, 4096), (("iter_1", "upload"), name, 4096)]
    assert [row.ranges[1:] for row in profile.rows] == [("conv",), ("a/b",), ()]


def test_the_library_says_at_once_how_many_launches_an_iteration_has(measure, monkeypatch):
    seen = []
    read = cupti.read_record

    def kept(path):
        seen.append(path.read_text())
        return read(path)

    monkeypatch.setattr(cupti, "read_record", kept)
    measure("iter:6")
    (record,) = seen
    assert "# expects 3\n" in record
    assert record.index("# expects 3\n") < record.index("# pass 3 0 ")
