"""The timing pass of any program: what the injected library wrote becomes the timing CSV."""

import csv
import ctypes
import io
import os

import pandas as pd
import pytest

from collectors.profilers import inject, timing
from collectors.profilers.process import ProfilerError
from perfml.ingest.profiles import ingest
from perfml.readers.frame import kernels_frame
from tests.support.paths import ROOT
from tests.support.processes import PATIENCE_S

pytestmark = pytest.mark.process

RECORDED = ROOT / "tests" / "data/fake_tools/recorded"
VECTORS = RECORDED / "activity_vectors.tsv"


def test_ranges_become_iterations_and_layers(tmp_path):
    timing.write_timing(timing.read_activity(VECTORS).timed, tmp_path / "timing.csv")
    frame = ingest([tmp_path / "timing.csv"]).frame
    assert frame["layer"].fillna("-").tolist() == [
        "-",
        *("update/scale", "update", "reduce"),
        *("update/scale", "update", "reduce"),
    ]
    assert frame["iteration"].tolist() == [0, 0, 0, 0, 1, 1, 1]
    assert frame["time_us"].iloc[3] == pytest.approx(4.608)
    assert frame["grid"].iloc[3] == "(264, 1, 1)"


def test_a_program_of_several_kernels_a_range_keeps_their_order():
    launches = timing.read_activity(RECORDED / "activity_torch.tsv").timed
    assert len(launches) == 20
    assert [each.start_ns for each in launches] == sorted(each.start_ns for each in launches)
    assert {each.ranges[-1] for each in launches if each.ranges} == {
        "layer_0",
        "layer_1",
        "layer_2",
    }


def test_copies_stand_below_the_kernels_in_the_layer_whose_range_made_them(tmp_path):
    """A copy in the range of a kernel, one in a range of its own, and one before all ranges."""
    lines = VECTORS.read_text().splitlines()
    cells = next(line.split("\t")[1:] for line in lines if "\x1freduce\t" in line)
    begin = int(cells[2])

    def copy(instance, ranges, size, start):
        moved = ["99", "0", str(start), str(start + 2500), *cells[4:6], "", "", instance, ranges]
        return "\t".join(["T", *moved, "Memcpy HtoD (Pageable -> Device)", str(size)])

    alone = "\x1f".join([cells[9].split("\x1f")[0], "alone"])
    more = [
        copy(cells[8], cells[9], 100, begin - 3000),
        copy("98", alone, 200, begin + 1),
        copy("0", "", 300, begin - 10**6),
    ]
    (tmp_path / "1.tsv").write_text("\n".join([*more, *lines]) + "\n")
    text = timing.timing_csv(timing.read_activity(tmp_path / "1.tsv").timed)
    rows = [line.split(",") for line in text.splitlines()]
    assert [row[-1] for row in rows[1:8]] == [""] * 7
    found = [(row[0], row[1], float(row[3]), row[-1]) for row in rows[8:]]
    step = rows[4][0]
    assert sorted(found, key=lambda row: row[3]) == [
        (step, "reduce", 2.5, "100"),
        (step, "alone", 2.5, "200"),
        ("0", "", 2.5, "300"),
    ]
    # what was copied is no launch of a layer
    timing.write_timing(timing.read_activity(tmp_path / "1.tsv").timed, tmp_path / "timing.csv")
    assert timing.unattributed_share(tmp_path / "timing.csv")[1] == 7
    frame = ingest([tmp_path / "timing.csv"]).frame
    assert frame["to_device_bytes"].sum() == 600


def test_share_of_time_outside_ranges_is_counted(tmp_path):
    timing.write_timing(timing.read_activity(VECTORS).timed, tmp_path / "t.csv")
    share, launches = timing.unattributed_share(tmp_path / "t.csv")
    assert launches == 7
    assert share == pytest.approx(3.585 / 27.201, abs=1e-3)


@pytest.mark.parametrize(
    ("edit", "says"),
    [
        (lambda text: text.replace("# end\n", ""), "ended without finishing"),
        (lambda text: text.replace("# dropped 0", "# dropped 12"), "lost records"),
        (lambda text: "# error subscribe: CUPTI_ERROR_UNKNOWN\n" + text, "cannot trace"),
        (lambda text: text.replace("\t0\t", "\t", 1), "damaged"),
        (lambda text: text.replace("1795257837295943200", "soon"), "damaged"),
    ],
)
def test_an_incomplete_record_is_refused(tmp_path, edit, says):
    path = tmp_path / "1.tsv"
    path.write_text(edit(VECTORS.read_text()))
    with pytest.raises(ProfilerError, match=says):
        timing.read_activity(path)


@pytest.fixture
def recorder(tmp_path):
    """Stand in for a GPU program under the library: a shell script that leaves a record."""

    def program(*, profiled=0, code=0):
        record = VECTORS.read_text().splitlines()
        lines = [line.split("\t") for line in record]
        for number, cells in enumerate(lines):
            if len(cells) > 1 and number < profiled:
                cells[2] = "1"
        (tmp_path / "record.tsv").write_text("\n".join("\t".join(each) for each in lines) + "\n")
        script = f'cp {tmp_path}/record.tsv "$PERFML_COUNTERS_DIR/$$.tsv"; echo said; exit {code}'
        return ["sh", "-c", script]

    return program


def trace(program, tmp_path, timeout_s=PATIENCE_S):
    log, library = tmp_path / "log.txt", tmp_path / "library.so"
    return timing.trace(program, library, log=log, timeout_s=timeout_s)


def test_without_profiler_calls_every_launch_counts(recorder, tmp_path):
    found = trace(recorder(), tmp_path)
    assert (len(found.launches), found.region) == (7, False)


def test_with_profiler_calls_only_launches_between_them_count(recorder, tmp_path):
    found = trace(recorder(profiled=3), tmp_path)
    assert (len(found.launches), found.region) == (3, True)


def test_a_failing_program_is_reported_with_its_status_and_last_words(recorder, tmp_path):
    with pytest.raises(ProfilerError) as error:
        trace(recorder(code=4), tmp_path)
    assert "exit status 4" in str(error.value)
    assert "said" in str(error.value)


def test_a_program_without_kernels_or_that_hangs_is_reported(recorder, tmp_path):
    recorder()
    with pytest.raises(ProfilerError, match="no GPU kernel"):
        trace(["true"], tmp_path)
    with pytest.raises(ProfilerError, match="within 1 s"):
        trace(["sleep", "60"], tmp_path, timeout_s=1)
    with pytest.raises(ProfilerError, match="cannot be started"):
        trace([str(tmp_path / "nothing")], tmp_path)


def test_a_library_that_does_not_compile_says_why(tmp_path, monkeypatch):
    cupti = inject.Toolkit((tmp_path,), tmp_path / "libcupti.so")
    monkeypatch.setattr(inject, "toolkit", lambda: cupti)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("CXX", "false")
    with pytest.raises(ProfilerError, match="does not compile"):
        inject.library(inject.COUNTERS)
    monkeypatch.setenv("CXX", "")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ProfilerError, match="no C\\+\\+ compiler"):
        inject.library(inject.COUNTERS)


@pytest.mark.slow
def test_the_library_compiles_once(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    made = inject.library(inject.COUNTERS)
    assert ctypes.CDLL(str(made)).InitializeInjection
    before = made.stat().st_mtime_ns
    assert inject.library(inject.COUNTERS).stat().st_mtime_ns == before
    assert os.listdir(tmp_path / "perfml") == [made.name]


@pytest.mark.parametrize("recorded", [VECTORS, VECTORS.with_name("activity_torch.tsv")])
def test_layers_are_those_that_a_profile_of_the_same_launches_has(recorded):
    launches = [each for each in timing.read_activity(recorded).timed if each.bytes is None]
    frame = kernels_frame(
        pd.DataFrame({"kernel": [each.kernel for each in launches], "time_us": 1.0}),
        [each.ranges for each in launches],
        instances=[each.instance for each in launches],
    )
    rows = list(csv.DictReader(io.StringIO(timing.timing_csv(launches))))
    assert [row["layer"] for row in rows] == frame["layer"].fillna("").tolist()
    assert [int(row["iteration"]) for row in rows] == frame["iteration"].tolist()
