"""The reader of nvprof's exported SQLite profiles."""

from __future__ import annotations

import sqlite3
import struct
from contextlib import closing

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfml.account.account import ACCOUNT, Account
from perfml.errors import InputError, PerfmlError
from perfml.ingest import ingest
from perfml.readers import read
from perfml.readers.demangle import demangle
from perfml.readers.launch_ranges import Launch, Range, locate
from perfml.readers.nvprof import sqlite_file as nvprof_sqlite
from perfml.readers.source import Source
from tests.support.examples import examples
from tests.support.nvprof_profile import EPOCH, Profile, fill
from tests.support.paths import ROOT

SHARED = ROOT.parent / "shared" / "data" / "public_profiles"


@pytest.fixture
def profile(tmp_path):
    found = Profile(tmp_path / "run.nvprof")
    yield found
    found.connection.close()


def test_kernels_have_times_sizes_device_and_readable_names(profile):
    fill(profile)
    found = profile.read()
    row = found.frame.iloc[0]
    assert len(found.frame) == 8
    assert row["time_us"] == 2.54
    assert row["grid"] == "(4, 2, 1)"
    assert row["block"] == "(256, 1, 1)"
    assert row["registers_per_thread"] == 32
    assert row["shared_memory_per_block"] == 1536
    assert row["threads"] == 2048
    assert row["device"] == "Tesla V100"
    assert row["compute_capability"] == "7.0"
    assert row["time_source"] == "nvprof"
    assert row["kernel"].startswith("void better_reduce_kernel<1024u>(float*, float*")
    assert found.frame["kernel"].iloc[1] == "volta_sgemm_128x64_nn"
    assert found.provenance["schema_version"] == 11
    assert found.provenance["serialised"] is False
    assert found.provenance["format"] == "nvprof-sqlite"


def test_launches_belong_to_the_ranges_open_when_they_were_called_not_when_they_ran(profile):
    fill(profile)
    frame = profile.read().frame
    layers = ["conv_01", "conv_01", "conv_02", "outside"]
    assert frame["layer"].fillna("outside").tolist() == layers * 2
    # The launches after the last range of their iteration are outside of it.
    assert frame["iteration"].tolist()[:3] == [0, 0, 0]
    assert frame["iteration"].tolist()[4:7] == [1, 1, 1]


def test_without_api_records_the_start_on_the_gpu_decides_and_a_warning_says_so(profile):
    profile.range(1, 6, 0, 100)
    profile.launch(1, 3, None, 50, 90)
    profile.launch(2, 3, None, 150, 190)
    found = profile.read()
    assert found.frame["layer"].fillna("-").tolist() == ["conv_01", "-"]
    assert any("2 kernels have no API call" in warning for warning in found.warnings)


def test_ranges_of_another_thread_are_not_a_launchs_layer(profile):
    profile.range(1, 6, 0, 100, thread=1)
    profile.range(2, 7, 0, 100, thread=2)
    profile.launch(1, 3, 50, 200, 210, thread=1)
    profile.launch(2, 3, 60, 220, 230, thread=2)
    assert profile.read().frame["layer"].tolist() == ["conv_01", "conv_02"]


def test_a_process_wide_range_holds_for_every_thread(profile):
    profile.range(1, 6, 0, 100, thread=1, kind=1)
    profile.range(2, 9, 0, 10, thread=2)
    profile.launch(1, 3, 50, 200, 210, thread=2)
    assert profile.read().frame["layer"].tolist() == ["conv_01"]


def test_threads_numbered_differently_are_matched_by_time_with_a_warning(profile):
    profile.range(1, 6, 0, 100, thread=1)
    profile.launch(1, 3, 50, 200, 210, thread=55)
    found = profile.read()
    assert found.frame["layer"].tolist() == ["conv_01"]
    assert any("numbered differently" in warning for warning in found.warnings)


def test_ranges_of_a_librarys_domain_are_no_layers(profile):
    profile.range(1, 6, 0, 100)
    profile.range(2, 9, 10, 90, domain=8)
    profile.launch(1, 3, 50, 200, 210)
    found = profile.read()
    assert found.frame["layer"].tolist() == ["conv_01"]
    assert any("1 NVTX ranges of libraries' own domains" in w for w in found.warnings)


def test_nested_ranges_make_a_path_and_an_open_one_is_reported(profile):
    profile.range(1, 6, 0, None)
    profile.range(2, 9, 10, 90)
    profile.launch(1, 3, 50, 200, 210)
    profile.launch(2, 3, 95, 300, 310)
    found = profile.read()
    assert found.frame["layer"].tolist() == ["conv_01/inner", "conv_01"]
    assert any("1 NVTX ranges have no end" in warning for warning in found.warnings)


def test_ranges_without_a_launch_are_reported(profile):
    profile.range(1, 6, 0, 10)
    profile.launch(1, 3, 50, 200, 210)
    assert any("no kernel was launched in one" in warning for warning in profile.read().warnings)


def test_unnamed_metrics_are_not_guessed(profile):
    fill(profile)
    rows = [(2048, struct.pack("<d", 0.5), 1, 0), (19136516, struct.pack("<d", 0.08), 1, 0)]
    profile.insert("CUPTI_ACTIVITY_KIND_METRIC", rows, "id, value, correlationId, flags")
    found = profile.read()
    assert found.provenance["metric_numbers"] == [2048, 19136516]
    warning = next(text for text in found.warnings if "without their names" in text)
    assert "2 metrics" in warning
    assert "--print-gpu-trace --csv" in warning
    assert "achieved_occupancy" not in found.frame


def test_memory_copies_and_sets_are_counted(profile):
    fill(profile)
    profile.insert("CUPTI_ACTIVITY_KIND_MEMCPY", [(4,), (8,)], "bytes")
    profile.insert("CUPTI_ACTIVITY_KIND_MEMSET", [(4,)], "bytes")
    found = profile.read()
    assert found.provenance["memory_operations"] == 3
    assert any(text.startswith("3 memory copies and sets") for text in found.warnings)


def test_a_profile_of_copies_alone_has_them_as_its_rows(profile):
    moved_at(profile)
    rows = [(EPOCH, EPOCH + 3000, 0, 4096, 1, 1, 3), (EPOCH + 9000, EPOCH + 10_000, 0, 1, 2, 3, 1)]
    columns = "start, end, deviceId, bytes, copyKind, srcKind, dstKind"
    profile.insert("CUPTI_ACTIVITY_KIND_MEMCPY", rows, columns)
    found = profile.read()
    assert found.frame["time_us"].tolist() == [3.0, 1.0]
    copies = Account.from_dict(found.provenance[ACCOUNT]).busiest.copies
    assert {each.kind: each.us for each in copies} == {"to_device": 3.0, "to_host": 1.0}


def test_invalid_timestamps_are_missing_times_with_a_warning(profile):
    profile.launch(1, 3, 10, 200, 200)
    profile.launch(2, 3, 20, 300, 310)
    found = profile.read()
    np.testing.assert_equal(found.frame["time_us"].to_numpy(), [np.nan, 0.01])
    assert any("1 kernel has invalid timestamps" in warning for warning in found.warnings)


def test_a_collected_run_has_each_layers_own_metrics(profile, tmp_path):
    fill(profile)
    profile.connection.commit()
    run = tmp_path / "run"
    run.mkdir()
    (run / "trace.nvvp").write_bytes(profile.path.read_bytes())
    (run / "run.json").write_text('{"run_id": "net-1"}')
    rows = [
        f'"Tesla V100 (0)","1","7","volta_sgemm_128x64_nn [{number}]",{occupancy}'
        for number, occupancy in enumerate((0.25, 0.75))
    ]
    head = "==5== Profiling result:\n"
    columns = '"Device","Context","Stream","Kernel","achieved_occupancy"\n,,,,\n'
    (run / "metrics.csv").write_text(head + columns + "\n".join(rows) + "\n")
    found = ingest([run])
    occupied = found.frame[found.frame["kernel"] == "volta_sgemm_128x64_nn"]
    assert occupied["layer"].tolist() == ["conv_01", "conv_02"] * 2
    assert occupied["achieved_occupancy"].tolist() == [0.25, 0.75] * 2
    assert occupied["time_us"].tolist() == [10, 1.5] * 2
    assert not any("number of invocations differs" in each for each in found.warnings)


def test_reading_leaves_the_profile_as_it_was(profile):
    fill(profile)
    profile.connection.commit()
    before = profile.path.read_bytes()
    profile.read()
    assert profile.path.read_bytes() == before
    assert [each.name for each in profile.path.parent.iterdir()] == [profile.path.name]


def test_a_profile_without_kernels_says_what_it_has(profile):
    profile.insert("CUPTI_ACTIVITY_KIND_MEMCPY", [(4,), (8,)], "bytes")
    with pytest.raises(InputError, match=r"holds no kernels .*1 row of DEVICE, 2 rows of MEMCPY"):
        profile.read()


def test_another_sqlite_file_is_named_as_such(tmp_path):
    path = tmp_path / "other.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE songs(id INTEGER)")
        connection.commit()
    with pytest.raises(InputError, match="an SQLite database of another tool") as error:
        read(path)
    assert "nvprof --" not in str(error.value)


def test_a_cell_that_is_no_number_is_an_error_with_its_column(profile):
    fill(profile)
    profile.connection.execute("UPDATE CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL SET gridX = 'x'")
    with pytest.raises(InputError, match=r"CONCURRENT_KERNEL\.gridX"):
        profile.read()


def test_names_that_are_not_cpp_stay_and_broken_ones_are_given_up():
    assert demangle("volta_sgemm_128x64_nn") == "volta_sgemm_128x64_nn"
    assert demangle("_Z3fooPKf") == "foo(float const*)"
    assert demangle("_Zbroken") is None
    assert demangle("_Z" + "1a" * 50_000) is None


@given(st.lists(st.integers(1, 50), min_size=1, max_size=12), st.data())
@examples(60)
def test_nested_ranges_are_found_as_by_looking_at_every_range(lengths, data):
    ranges = []
    for number, length in enumerate(lengths):
        start = data.draw(st.integers(0, 100))
        thread = data.draw(st.sampled_from([None, 1, 2]))
        ranges.append(Range(start, start + length, f"r{number}", thread, 0))
    ranges.sort(key=lambda each: (each.start, -each.end))
    launches = [
        Launch(time, thread)
        for time, thread in data.draw(
            st.lists(st.tuples(st.integers(0, 160), st.sampled_from([None, 1, 2])), max_size=20)
        )
    ]
    paths, instances = locate(launches, ranges)
    for launch, path, instance in zip(launches, paths, instances, strict=True):
        around = [
            each
            for each in ranges
            if each.start <= launch.time <= each.end
            and (each.thread is None or launch.thread is None or each.thread == launch.thread)
        ]
        assert path == tuple(each.name for each in around)
        assert instance == (ranges.index(around[-1]) if around else -1)


@given(st.data())
@examples(120)
def test_damage_gives_a_table_or_an_error_of_ours(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("sqlite")
    profile = Profile(folder / "run.nvprof")
    fill(profile)
    profile.connection.commit()
    profile.connection.close()
    content = bytearray(profile.path.read_bytes())
    # Pages are mostly empty: damage is sought where bytes are, or it would hit nothing.
    places = [place for place, byte in enumerate(content) if byte]
    if data.draw(st.booleans()):
        del content[data.draw(st.integers(16, len(content) - 1)) :]
    for _ in range(data.draw(st.integers(1, 8))):
        place = data.draw(st.sampled_from(places))
        if 16 <= place < len(content):
            content[place] = data.draw(st.integers(0, 255))
    profile.path.write_bytes(content)
    lines = 0
    try:
        rows = len(nvprof_sqlite.read(Source(profile.path)).frame)
    except PerfmlError as error:
        lines = len(str(error).splitlines())
    assert (rows > 0) if not lines else (lines <= 2)


if SHARED.is_dir():

    def test_public_gtx980_profile():
        source = Source(SHARED / "traffic_metrics_sqlite.nvprof.gz")
        assert nvprof_sqlite.recognises(source)
        found = nvprof_sqlite.read(source)
        frame = found.frame
        assert len(frame) == 62
        assert frame["kernel"].nunique() == 8
        assert frame["kernel"].iloc[0] == "simulation::aos_int_cuda::step_random_state()"
        assert frame["time_us"].iloc[0] == 2.54
        assert frame["time_us"].sum() == pytest.approx(62250.027)
        assert frame["grid"].iloc[1] == "(55, 1, 1)"
        assert frame["compute_capability"].unique().tolist() == ["5.2"]
        assert len(found.provenance["metric_numbers"]) == 85
        assert found.provenance["serialised"] is True
        assert any("85 metrics without their names" in warning for warning in found.warnings)


def moved_at(profile):
    """Give copies and fills the columns that say when and where they ran."""
    for table, columns in (("MEMCPY", ("copyKind", "srcKind", "dstKind")), ("MEMSET", ())):
        for name in ("start", "end", "deviceId", *columns):
            profile.connection.execute(
                f"ALTER TABLE CUPTI_ACTIVITY_KIND_{table} ADD COLUMN {name} INT"
            )


def test_kernels_and_copies_have_a_clock(profile):
    fill(profile)
    moved_at(profile)
    columns = "start, end, deviceId, bytes, copyKind, srcKind, dstKind"
    times = (EPOCH + 90_000, EPOCH + 95_000)
    profile.insert("CUPTI_ACTIVITY_KIND_MEMCPY", [(*times, 0, 4096, 1, 1, 3)], columns)
    times = (EPOCH + 102_000, EPOCH + 104_000)
    profile.insert("CUPTI_ACTIVITY_KIND_MEMSET", [(*times, 0, 64)], "start, end, deviceId, bytes")
    kernels = profile.read()
    account = Account.from_dict(kernels.provenance["step"])
    own = account.devices[0].recorded
    # 90 to 118 us; kernels run from 100 to 118, and beside the fill
    assert own.wall_us == pytest.approx(28.0)
    assert (own.copying_us, own.both_us) == pytest.approx((5.0, 2.0))
    assert (own.idle_us, own.computing_us) == pytest.approx((5.0, 16.0))
    assert {(each.kind, each.pageable, each.bytes) for each in account.devices[0].copies} == {
        ("to_device", True, 4096.0),
        ("filled", False, 64.0),
    }
    assert kernels.frame["start_us"].min() == 0.0
