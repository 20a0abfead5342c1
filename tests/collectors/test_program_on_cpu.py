"""`collect` of a program from its command to its tables: the real library over a stand-in."""

import json
import statistics

import pytest

from collectors import measure, measure_cupti, timing_passes
from collectors.collect import collect
from collectors.measure_cupti import chosen_kernels
from collectors.profilers import cupti
from collectors.profilers.gpu import Gpu
from collectors.profilers.process import ProfilerError
from collectors.settings import Settings
from perfml.account.account import ACCOUNT, Account
from perfml.errors import InputError
from perfml.ingest.profiles import ingest

pytestmark = pytest.mark.process

GPU = Gpu("NVIDIA H200", "580.159.04", "9.0")
METRICS = ("smsp__cycles_active.avg", "sm__warps_active.avg.pct_of_peak_sustained_active")


@pytest.fixture
def measured(counters_on_cpu, tmp_path, monkeypatch):
    """Return a function that collects the program under words that say what it does."""
    library, program = counters_on_cpu
    for module in (cupti, measure_cupti, timing_passes, measure):
        monkeypatch.setattr(module, "library", lambda name: library)
    monkeypatch.setenv("FAKE_CUPTI_TIMES", "1")
    monkeypatch.setattr("collectors.collect.gpus", lambda: [GPU])
    monkeypatch.setattr(cupti, "require", lambda gpu: None)
    monkeypatch.setattr(timing_passes.sm_clock, "measured", lambda env: None)

    def run(words, **options):
        command = [str(program), *words.split()]
        (result,) = collect(command=command, metrics=METRICS, out=tmp_path, **options)
        return result

    return run


def test_launches_of_a_kernel_are_counted_and_nothing_else_is_repeated(measured, tmp_path):
    result = measured("bare:200", kernel="pool", launches="3:5")
    assert result.status == "done", result.message
    frame = ingest([result.folder]).frame
    assert frame["kernel"].tolist() == ["pool(float*)"] * 2
    assert frame["time_us"].notna().all()
    assert frame["time_source"].eq("timing").all()
    # places among the 601 launches of the program
    table = (result.folder / "metrics.csv").read_text().splitlines()
    rows = [line.split(",") for line in table if not line.startswith("#")]
    assert [row[rows[0].index("launch")] for row in rows[1:]] == ["11", "14"]
    assert (result.record["launches_profiled"], result.record["runs"]) == (2, 1)
    assert "gap_us" not in frame


def test_launches_within_iterations_keep_their_ranges(measured):
    result = measured("iter:9", kernel="^conv$", launches="2:4")
    frame = ingest([result.folder]).frame
    assert frame["iteration"].tolist() == [2, 3]
    assert frame["layer"].tolist() == ["conv", "conv"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"kernel": "gemm"}, "no kernel that is called gemm"),
        ({"kernel": "pool", "launches": "200:"}, "no such launch"),
        ({"kernel": "pool", "profiler": "ncu"}, "--launch-skip 3 --launch-count 2"),
    ],
)
def test_launches_that_there_are_not_are_one_message(measured, options, says):
    result = measured("bare:20", **{"launches": "3:5", **options})
    assert (result.status, says in result.message) == ("failed", True), result.message


@pytest.mark.parametrize(
    ("launches", "chosen"), [("3", (3, 4)), ("3:5", (3, 5)), (":5", (0, 5)), ("0:1", (0, 1))]
)
def test_numbers_of_launches_are_read_as_slices(launches, chosen):
    assert Settings(kernel="k", launches=launches).chosen == chosen


@pytest.mark.parametrize(
    "options",
    [
        {"launches": "3:5"},
        {"kernel": "k", "launches": "5:3"},
        {"kernel": "k", "launches": "a"},
        {"kernel": "k", "launches": "-1:"},
        {"kernel": "(", "launches": ":3"},
    ],
)
def test_launches_that_mean_nothing_are_refused(options):
    with pytest.raises(InputError):
        Settings(**options)


def test_a_kernel_is_called_by_its_name_before_a_part_of_it():
    names = ["void gemm<4>(float*)", "gemm_reduce(float*)"]
    assert chosen_kernels(names, "gemm") == names[:1]
    assert chosen_kernels(names, "reduce") == names[1:]
    with pytest.raises(ProfilerError):
        chosen_kernels(names, "softmax")


def test_a_program_is_timed_without_a_profiler_and_the_account_keeps_to_it(measured):
    result = measured("iter:20")
    steps = result.record["timing"]["step_us"]
    assert len(steps) == 17  # without the first three
    (source,) = (s for s in ingest([result.folder]).provenance["sources"] if ACCOUNT in s)
    account = Account.from_dict(source[ACCOUNT])
    assert account.bare_us == pytest.approx(statistics.median(steps))
    assert account.bare.step_us == account.bare_us


def test_a_program_without_iterations_is_not_run_once_more(measured):
    result = measured("bare:3")
    assert "step_us" not in json.loads((result.folder / "run.json").read_text())["timing"]
    assert len(result.commands) == 1
