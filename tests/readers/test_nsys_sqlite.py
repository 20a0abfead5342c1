"""The reader of SQLite files that ``nsys export`` makes of Nsight Systems' reports."""

from __future__ import annotations

import lzma

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfml.account.account import ACCOUNT, Account
from perfml.account.device_time import Spans, busy_share, idle_before
from perfml.errors import InputError
from perfml.readers import Source, read, recognise
from perfml.readers.nsys import sqlite_file
from perfml.tables import metric_columns
from tests.support.examples import examples
from tests.support.nsys_export import GENERATIONS, PID, START_END, Export, fill
from tests.support.paths import PUBLIC


@pytest.fixture
def export(tmp_path):
    return Export(tmp_path / "run.sqlite")


def layers(kernels):
    return kernels.frame["layer"].fillna("-").tolist()


@pytest.mark.parametrize("generation", GENERATIONS)
def test_every_generation_of_the_export_gives_the_same_launches(generation, tmp_path):
    export = Export(tmp_path / "run.sqlite", generation)
    fill(export)
    kernels = export.read()
    frame = kernels.frame
    assert layers(kernels) == ["conv_01", "conv_01", "conv_02", "-"] * 2
    assert frame["iteration"].tolist() == [0, 0, 0, 0, 1, 1, 1, 0]
    assert frame["time_us"].tolist() == [2.54, 10.0, 1.5, 1.0] * 2
    assert frame["kernel"].iloc[1] == "void gemm<float, 128>(const float *, float *, int)"
    assert frame["grid"].iloc[0] == "(4, 2, 1)"
    assert frame["block"].iloc[0] == "(256, 1, 1)"
    assert frame["threads"].iloc[0] == 2048
    assert frame["shared_memory_per_block"].iloc[0] == 1536
    assert frame["time_source"].unique().tolist() == ["nsys"]
    assert kernels.provenance["format"] == "nsys-sqlite"
    versions = {"2020": None, "2022": "2022.2.1.31", "2026": "2026.1.1.204"}
    assert kernels.provenance["tool_version"] == versions[generation]
    devices = {"2020": ("Tesla T4", None)}.get(generation, ("GPU 0", "8.0"))
    assert (kernels.provenance["device"], kernels.provenance["compute_capability"]) == devices


def test_an_export_has_launch_facts_and_no_counter(export):
    fill(export)
    facts = {"registers_per_thread", "shared_memory_per_block", "threads"}
    assert set(metric_columns(export.read().frame)) == facts


def test_it_is_recognised_by_its_tables_and_not_by_its_name(export, tmp_path):
    fill(export)
    packed = tmp_path / "profile.bin.xz"
    packed.write_bytes(lzma.compress(export.close().read_bytes()))
    assert recognise(Source(packed)) is sqlite_file
    assert len(read(packed).frame) == 8


def test_tables_that_begin_after_the_first_pages_are_found_too(export, tmp_path, monkeypatch):
    fill(export)
    path = export.close()
    monkeypatch.setattr("perfml.readers.source.HEAD", 200)
    assert b"StringIds" not in Source(path).head
    assert sqlite_file.recognises(Source(path))


def test_rows_in_any_order_give_launches_in_the_order_of_their_calls(export):
    export.launch("second()", 20, 500, 600)
    export.launch("first()", 10, 700, 800)
    assert export.read().frame["kernel"].tolist() == ["first()", "second()"]


def test_kernels_of_a_graph_share_one_call_and_keep_the_order_they_ran_in(export):
    export.range("graph", 5, 15)
    for start in (300, 100, 200):
        export.launch(f"k{start}()", None, start, start + 50, correlation=9)
    export.launch("k50()", 10, 50, 60, correlation=9)
    kernels = export.read()
    assert kernels.frame["kernel"].tolist() == ["k50()", "k100()", "k200()", "k300()"]
    assert layers(kernels) == ["graph"] * 4


def test_kernels_of_a_replay_say_which_one_they_are_of(export):
    kernels = "CUPTI_ACTIVITY_KIND_KERNEL"
    export.connection.execute(f"ALTER TABLE {kernels} ADD COLUMN graphNodeId INTEGER")
    export.launch("alone()", 10, 50, 60, correlation=8)
    export.launch("node()", 70, 100, 150, correlation=9)
    export.launch("node()", 170, 200, 250, correlation=11)
    export.connection.execute(f"UPDATE {kernels} SET graphNodeId = 41 WHERE correlationId > 8")
    replays = export.read().frame["replay"]
    assert replays.isna().tolist() == [True, False, False]
    assert replays.tolist()[1:] == [9, 11]


def test_a_launch_belongs_to_the_ranges_of_its_own_thread_and_process(export):
    export.range("a", 0, 100, thread=1)
    export.range("b", 0, 100, thread=2)
    export.range("c", 0, 100, thread=1, pid=PID + 1)
    export.launch("k()", 50, 200, 210, thread=1, correlation=5)
    export.launch("k()", 51, 220, 230, thread=2, correlation=6)
    # Correlation ids count within a process: this one is another call.
    export.launch("k()", 52, 240, 250, thread=1, pid=PID + 1, correlation=5)
    kernels = export.read()
    assert layers(kernels) == ["a", "b", "c"]
    assert "Launches of 2 processes are read as one run." in kernels.warnings


def test_a_start_end_range_holds_for_every_thread_of_its_process(export):
    export.range("whole", 0, 100, kind=START_END, thread=1)
    export.launch("k()", 50, 200, 210, thread=2)
    export.launch("k()", 60, 220, 230, thread=2, pid=PID + 1)
    assert layers(export.read()) == ["whole", "-"]


def test_ranges_of_libraries_marks_and_open_ranges(export):
    export.range("mine", 0, None)
    export.range("cublasSgemm", 10, 90, domain=3)
    export.range("a mark", 20, None, kind=34)
    export.launch("k()", 50, 200, 210)
    kernels = export.read()
    assert layers(kernels) == ["mine"]
    assert any("1 NVTX ranges of libraries' own domains" in text for text in kernels.warnings)
    assert any("1 NVTX ranges have no end" in text for text in kernels.warnings)


def test_without_api_calls_the_start_on_the_gpu_decides_and_a_warning_says_so(export):
    export.range("conv_01", 0, 100)
    export.launch("k()", None, 50, 90)
    export.launch("k()", None, 150, 190)
    kernels = export.read()
    assert layers(kernels) == ["conv_01", "-"]
    assert any("2 kernels have no API call" in text for text in kernels.warnings)


def test_gaps_are_the_time_a_device_had_nothing_to_do(export):
    export.launch("a()", 10, 1000, 2000, stream=7)
    export.launch("b()", 20, 1500, 3000, stream=8)  # beside a
    export.copy(3000, 3600)
    export.launch("c()", 30, 4000, 5000, stream=7)  # idle since the copy ended
    export.launch("d()", 40, 9000, 9500, device=1)
    kernels = export.read()
    frame = kernels.frame
    np.testing.assert_allclose(frame["gap_us"], [np.nan, 0.0, 0.4, np.nan])
    assert frame["start_us"].tolist() == [0.0, 0.5, 3.0, 8.0]
    assert frame["stream"].tolist() == [7, 8, 7, 7]
    assert kernels.provenance["streams"] == 2
    # device 0: 3 of 4 us, device 1: 0.5 of 0.5 us
    assert kernels.provenance["kernels_busy"] == pytest.approx(3.5 / 4.5)


@given(
    st.lists(
        st.tuples(st.integers(0, 1), st.integers(0, 60), st.integers(0, 20)),
        min_size=1,
        max_size=12,
    )
)
@examples(60)
def test_idle_times_are_those_of_counting_every_nanosecond(spans):
    device, start, length = (
        np.array(column, dtype=np.int64) for column in zip(*spans, strict=True)
    )
    end = start + length
    idle = idle_before(Spans(device, start, end))
    for number in (0, 1):
        rows = np.flatnonzero(device == number)
        if not len(rows):
            continue
        busy = {t for row in rows for t in range(start[row], end[row])}
        free = [t for t in range(start[rows].min(), end[rows].max()) if t not in busy]
        assert np.nansum(idle[rows]) * 1e3 == pytest.approx(len(free))
        assert np.isnan(idle[rows]).sum() == 1
    share = busy_share(Spans(device, start, end))
    assert share is None or 0 <= share <= 1


def test_what_nsight_systems_warned_of_is_passed_on(tmp_path):
    export = Export(tmp_path / "run.sqlite", "2026")
    fill(export)
    export.insert("DIAGNOSTIC_EVENT", timestamp=1, severity=1, text="Profiling has started.")
    export.insert("DIAGNOSTIC_EVENT", timestamp=2, severity=2, text="Not all CUDA events\x1b[2J")
    warnings = export.read().warnings
    assert any("Not all CUDA events\\x1b[2J" in each for each in warnings)
    assert not any("has started" in text for text in warnings)


def test_an_export_without_kernels_says_what_it_has_and_how_to_record(export):
    export.range("conv_01", 0, 100)
    with pytest.raises(
        InputError, match=r"holds no kernels .*1 row of NVTX_EVENTS(?s:.*)--trace=cuda"
    ) as no:
        export.read()
    assert len(str(no.value).splitlines()) == 2


def test_an_export_of_copies_alone_has_them_as_its_rows_and_on_the_clock(export):
    export.copy(1_000, 11_000, copyKind=1)
    export.copy(15_000, 20_000, copyKind=2)
    found = export.read()
    assert found.frame["time_us"].tolist() == [10.0, 5.0]
    assert found.frame["device"].tolist() == ["GPU 0"] * 2
    account = Account.from_dict(found.provenance[ACCOUNT])
    assert account.busiest.step.copying_us == 15.0
    assert {each.kind: each.us for each in account.busiest.copies} == {
        "to_device": 10.0,
        "to_host": 5.0,
    }


def test_copies_without_times_are_none(export):
    export.copy(1_000, 1_000, copyKind=1)
    with pytest.raises(InputError, match=r"holds no kernels .*1 row of MEMCPY"):
        export.read()


def test_copies_that_were_called_and_not_recorded_are_named(export):
    export.call("cudaMemcpy_v3020", 0, 10, 1)
    with pytest.raises(InputError, match="1 call that copies memory") as no:
        export.read()
    assert "launches kernels" not in str(no.value.cure)


def test_graphs_traced_as_a_whole_are_rows_and_name_the_option_that_shows_their_kernels(export):
    columns = "start INTEGER, end INTEGER, deviceId INTEGER, graphExecId INTEGER"
    export.connection.execute(f"CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE({columns})")
    for start in (1_000, 10_000):
        cells = {"start": start, "end": start + 5_000, "deviceId": 0, "graphExecId": 2}
        export.insert("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", **cells)
    kernels = export.read()
    assert kernels.frame["kernel"].tolist() == ["CUDA_graph_2"] * 2
    assert kernels.frame["time_us"].tolist() == [5.0, 5.0]
    assert kernels.frame["gap_us"].tolist()[1] == 4.0
    assert kernels.frame[["grid", "block", "threads"]].isna().all(axis=None)
    assert any("--cuda-graph-trace=node" in each for each in kernels.warnings)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET gridX = 'x'", r"KERNEL\.gridX is no integer"),
        ("UPDATE NVTX_EVENTS SET start = 1.5", r"NVTX_EVENTS\.start is no integer"),
        ("DELETE FROM StringIds", "names that are not in StringIds"),
        ("ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL DROP COLUMN end", "lacks the columns end"),
        ("DROP TABLE StringIds", "no such table: StringIds"),
    ],
)
def test_damage_is_an_error_that_names_the_table(change, says, export):
    fill(export)
    export.connection.execute(change)
    with pytest.raises(InputError, match=says):
        export.read()


@pytest.mark.parametrize(
    ("table", "column"),
    [
        ("TARGET_INFO_GPU", "id"),
        ("CUPTI_ACTIVITY_KIND_RUNTIME", "start"),
        ("NVTX_EVENTS", "eventType"),
    ],
)
def test_side_table_that_lacks_a_column_costs_what_it_tells_and_not_the_file(table, column, export):
    fill(export)
    times = [2.54, 10.0, 1.5, 1.0] * 2
    export.connection.execute(f"ALTER TABLE {table} RENAME COLUMN {column} TO other")
    kernels = export.read()
    assert sorted(kernels.frame["time_us"]) == sorted(times)
    assert column == "id" or any(f"{table} lacks" in text for text in kernels.warnings)


def test_devices_of_exports_of_2020_are_numbered_by_another_column(export):
    fill(export)
    export.connection.execute("ALTER TABLE TARGET_INFO_GPU RENAME COLUMN id TO deviceId")
    assert export.read().frame["device"].unique().tolist() == ["GPU 0"]


def test_file_without_kernels_says_what_the_profiler_said(export):
    said = "Installed CUDA driver version (13.1) is not supported by this build"
    export.connection.execute("CREATE TABLE DIAGNOSTIC_EVENT(severity INTEGER, text TEXT)")
    export.connection.execute("INSERT INTO DIAGNOSTIC_EVENT VALUES (2, ?), (1, 'started')", [said])
    with pytest.raises(InputError) as error:
        export.read()
    assert error.value.found == said
    assert "nsys profile --trace" not in str(error.value.cure)


def test_invalid_timestamps_are_missing_times_with_a_warning(export):
    export.launch("k()", 10, 200, 200)
    export.launch("k()", 20, 300, 310)
    kernels = export.read()
    np.testing.assert_equal(kernels.frame["time_us"].to_numpy(), [np.nan, 0.01])
    assert any("1 kernel has invalid timestamps" in text for text in kernels.warnings)


@pytest.mark.filterwarnings("error")
def test_times_that_no_clock_reaches_are_missing_and_leave_the_others_as_they_are(export):
    export.launch("k()", 10, -(2**63), 2**63 - 1)
    export.launch("k()", 20, 2**63 - 2, 2**63 - 1)
    export.launch("k()", 30, 300, 310)
    kernels = export.read()
    np.testing.assert_equal(kernels.frame["time_us"].to_numpy(), [np.nan, np.nan, 0.01])
    assert any("2 kernels have invalid timestamps" in text for text in kernels.warnings)
    assert kernels.frame["start_us"].iloc[2] == 0.0


def test_a_report_that_was_not_exported_names_the_command(tmp_path):
    for name in ("my run.nsys-rep", "old.qdrep"):
        path = tmp_path / name
        path.write_bytes(b"NVIDIA Tegra Profiler Report 1.\n\x0bLocal (CLI)\x12\x04")
        with pytest.raises(InputError, match="a report of Nsight Systems") as error:
            read(path)
        assert "nsys export --type sqlite" in str(error.value)
        assert len(str(error.value).splitlines()) == 2
    assert "'my run.nsys-rep'" in str(read_error(tmp_path / "my run.nsys-rep"))


def read_error(path):
    with pytest.raises(InputError) as error:
        read(path)
    return error.value


if PUBLIC.is_dir():

    def test_a_public_export_of_2022_with_one_kernel_and_unified_memory():
        kernels = read(PUBLIC / "csc746_nsys_report1.sqlite.xz")
        frame = kernels.frame
        assert frame["kernel"].tolist() == ["add(int, float *, float *)"]
        assert frame["time_us"].tolist() == [25786230.349]
        assert frame["device"].tolist() == ["NVIDIA A100-SXM4-40GB"]
        assert frame["compute_capability"].tolist() == ["8.0"]
        assert kernels.provenance["tool_version"] == "2022.2.1.31"
        assert kernels.provenance["memory_operations"] == 18432
