"""The reader of ``ncu --csv``: recorded exports with pinned numbers, and what users hand in."""

import csv
import io
import lzma
import time

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from perfml.errors import InputError, PerfmlError
from perfml.readers import ReadOptions, Source, ncu_csv, read, recognise

NVTX = "thread Domain:Push/Pop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg"
IDENTITY = (
    "ID",
    "Process ID",
    "Process Name",
    "Host Name",
    NVTX,
    "Kernel Name",
    "Block Size",
    "Grid Size",
    "Device",
    "CC",
)
DURATION = "gpu__time_duration.sum"
OCCUPANCY = "sm__warps_active.avg.pct_of_peak_sustained_active"
THREADS = "launch__thread_count"
BYTES = "dram__bytes_read.sum"
STALL = "smsp__warp_issue_stalled_wait_per_warp_active.pct"


def table(header, units, rows, *, newline="\n"):
    out = io.StringIO()
    writer = csv.writer(out, quoting=csv.QUOTE_ALL, lineterminator=newline)
    writer.writerows([header, units, *rows])
    return out.getvalue()


def launch(number, values, *, kernel="gemm", ranges=("iter_0", "conv_01"), process="7"):
    entries = "  ".join(f'"<default domain>:{name}' + ":none" * 6 + '"' for name in ranges)
    cell = f"{process}  {entries} " if ranges else ""
    return [
        str(number),
        process,
        "python3",
        "127.0.0.1",
        cell,
        kernel,
        "(64, 1, 1)",
        "(8, 2, 1)",
        "0",
        "9.0",
        *values,
    ]


def raw_page(columns, *, newline="\n", **launches):
    """Return a raw page of columns {metric: (unit, cells)}."""
    header = [*IDENTITY, *columns]
    units = [""] * len(IDENTITY) + [unit for unit, _ in columns.values()]
    cells = zip(*(cells for _, cells in columns.values()), strict=True)
    rows = [launch(number, values, **launches) for number, values in enumerate(cells)]
    return table(header, units, rows, newline=newline)


@pytest.fixture
def reading(tmp_path):
    def run(content, **options):
        path = tmp_path / "export.csv"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return read(path, ReadOptions(**options))

    return run


@pytest.fixture
def failing(reading):
    def run(content, **options):
        with pytest.raises(InputError) as caught:
            reading(content, **options)
        assert 1 <= len(str(caught.value).splitlines()) <= 2
        return caught.value

    return run


@pytest.fixture(scope="session")
def cudnn(recorded):
    return lzma.open(recorded / "ncu" / "yolov4tiny_cudnn_b1_fp32.csv.xz").read()


@pytest.fixture(scope="session")
def cudnn_frame(recorded):
    return read(recorded / "ncu" / "yolov4tiny_cudnn_b1_fp32.csv.xz").frame


# Recorded exports


def test_the_two_recorded_exports_hold_172_kernels_in_21_layers_each(recorded):
    cublas = read(recorded / "ncu" / "yolov4tiny_cublas_b1_fp32.csv.xz").frame
    cudnn = read(recorded / "ncu" / "yolov4tiny_cudnn_b1_fp32.csv.xz").frame
    assert (len(cublas), len(cudnn)) == (100, 72)
    names = [f"conv_{number:02}" for number in range(1, 22)]
    assert list(cublas["layer"].dropna().unique()) == names
    assert list(cudnn["layer"].dropna().unique()) == names
    assert cublas["layer"].isna().sum() == 11
    assert cudnn["layer"].isna().sum() == 11


def test_the_first_recorded_launch_has_the_printed_numbers(recorded):
    kernels = read(recorded / "ncu" / "yolov4tiny_cublas_b1_fp32.csv.xz")
    first = kernels.frame.iloc[0]
    assert first["kernel"].startswith("void at::native::elementwise_kernel<(int)128, (int)2, ")
    assert (first["iteration"], first["layer"]) == (0, "conv_01")
    assert (first["grid"], first["block"]) == ("(5408, 1, 1)", "(128, 1, 1)")
    assert (first["device"], first["compute_capability"]) == ("NVIDIA H200", "9.0")
    assert first["time_us"] == first["ncu_time_us"] == 5.824
    assert first["time_source"] == "ncu"
    assert first["achieved_occupancy"] == pytest.approx(0.48024642, abs=1e-12)
    assert first["stall_exec_dependency"] == pytest.approx((8.160010 + 16.530146) / 100, abs=1e-12)
    assert np.isnan(first["shared_efficiency"])
    assert kernels.frame["time_us"].sum() == pytest.approx(725.984, abs=1e-9)
    assert kernels.provenance["format"] == "ncu-csv"
    assert kernels.provenance["process"] == "python3.12"


def test_scaled_and_base_units_of_one_report_give_one_table(recorded, reading):
    base = (recorded / "ncu" / "vectors.csv").read_text()
    rows = list(csv.reader(io.StringIO(base)))
    column = rows[0].index(DURATION)
    micro = rows[1][column] == "us"
    rows[1][column] = "ns" if micro else "us"
    for row in rows[2:]:
        row[column] = repr(float(row[column]) * (1000 if micro else 0.001))
    changed = reading(table(rows[0], rows[1], rows[2:])).frame
    expected = read(recorded / "ncu" / "vectors.csv").frame
    assert changed["time_us"].to_numpy() == pytest.approx(expected["time_us"].to_numpy(), rel=1e-12)


def test_nested_ranges_and_iterations_of_a_recorded_program(recorded):
    frame = read(recorded / "ncu" / "vectors.csv").frame
    assert frame["layer"].fillna("").tolist() == ["", *["update/scale", "update", "reduce"] * 2]
    assert frame["iteration"].tolist() == [0, 0, 0, 0, 1, 1, 1]
    assert frame["kernel"].iloc[3] == "void reduce<256>(const float *, float *, int)"


def test_a_range_measured_as_one_is_read_with_a_warning(recorded):
    kernels = read(recorded / "ncu" / "conv_03_range.csv")
    assert kernels.frame["kernel"].tolist() == ["range"]
    assert kernels.frame["time_us"].tolist() == [617.92]
    assert any("whole ranges" in warning for warning in kernels.warnings)


def test_every_recorded_export_of_the_sweep_is_read(sweep):
    found = {
        path.name.removesuffix(".csv.xz"): len(read(path).frame)
        for path in sorted(sweep.glob("*_b[18].csv.xz"))
    }
    assert found == {
        "yolov4tiny_cublas_fp32_b1": 200,
        "yolov4tiny_cublas_fp32_b8": 892,
        "yolov4tiny_cudnn_fp32_b1": 144,
        "yolov4tiny_cudnn_fp32_b8": 150,
        "yolov4tiny_inductor_fp32_b1": 110,
        "yolov4tiny_inductor_fp32_b8": 116,
    }


def test_raw_columns_are_kept_on_request(recorded):
    path = recorded / "ncu" / "yolov4tiny_cudnn_b1_fp32.csv.xz"
    frame = read(path, ReadOptions(raw=True)).frame
    assert frame[DURATION].iloc[0] == 12992
    assert frame["launch__thread_count"].iloc[0] == 86528
    assert frame["launch__func_cache_config"].iloc[0] == "CachePreferNone"
    assert frame["device__attribute_clock_rate"].iloc[0] == 1_980_000
    assert DURATION not in read(path).frame.columns


# The same export as other people's machines would have written it


def test_byte_order_mark_and_windows_line_ends_change_nothing(cudnn, cudnn_frame, reading):
    changed = b"\xef\xbb\xbf" + cudnn.replace(b"\n", b"\r\n")
    pd.testing.assert_frame_equal(reading(changed).frame, cudnn_frame)


def test_utf_16_is_read(cudnn, cudnn_frame, reading):
    changed = cudnn.decode().encode("utf-16")
    pd.testing.assert_frame_equal(reading(changed).frame, cudnn_frame)


def test_a_german_export_gives_the_same_table(cudnn, cudnn_frame, reading):
    rows = list(csv.reader(io.StringIO(cudnn.decode())))
    swap = str.maketrans(",.", ".,")
    german = [[*row[:13], *(cell.translate(swap) for cell in row[13:])] for row in rows[2:]]
    pd.testing.assert_frame_equal(reading(table(rows[0], rows[1], german)).frame, cudnn_frame)


def test_an_export_that_a_spreadsheet_unquoted_is_read(cudnn, cudnn_frame, reading):
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(csv.reader(io.StringIO(cudnn.decode())))
    pd.testing.assert_frame_equal(reading(out.getvalue()).frame, cudnn_frame)


def test_output_of_the_program_around_and_between_the_rows_is_left_out(cudnn, cudnn_frame, reading):
    lines = cudnn.split(b"\n")
    lines[40:40] = [b"==WARNING== Half way.", b"", '🔥 loss 1,234 said "hi, 5","6'.encode()]
    lines[9] = b"step 3... " + lines[9]
    head = [b"==PROF== Connected to process 3 (/opt/app)", b'warming "up', b"12,13"]
    tail = [b"==PROF== Disconnected from process 3"]
    kernels = reading(b"\n".join([*head, *lines[:-1], *tail, b""]))
    pd.testing.assert_frame_equal(kernels.frame, cudnn_frame)
    assert kernels.provenance["process"] == "/opt/app"
    assert "Nsight Compute said: Half way." in kernels.warnings
    assert any(warning.startswith("1 lines among the rows") for warning in kernels.warnings)


def test_a_newline_within_a_name_is_kept(cudnn, cudnn_frame, reading):
    lines = cudnn.split(b"\n")
    lines[5] = lines[5].replace(b"conv_02/", b"conv_02/a\nb", 1)
    frame = reading(b"\n".join(lines)).frame
    assert frame["kernel"].iloc[3].startswith("a\nb")
    unchanged = frame.drop(index=3).drop(columns="kernel")
    pd.testing.assert_frame_equal(unchanged, cudnn_frame.drop(index=3).drop(columns="kernel"))


# Cells


def test_missing_values_stay_missing(reading):
    cells = ["12.5", "", "n/a", "no data", "nan"]
    frame = reading(raw_page({DURATION: ("ns", ["10"] * 5), OCCUPANCY: ("%", cells)})).frame
    assert frame["achieved_occupancy"].isna().tolist() == [False, True, True, True, True]
    assert frame["achieved_occupancy"].iloc[0] == 0.125


def test_infinite_values_are_missing_with_a_warning(reading):
    columns = {DURATION: ("ns", ["10", "10"]), OCCUPANCY: ("%", ["inf", "50.0"])}
    kernels = reading(raw_page(columns))
    assert np.isnan(kernels.frame["achieved_occupancy"].iloc[0])
    assert any("infinite in 1 launches" in warning for warning in kernels.warnings)


def test_units_are_scaled_column_by_column(reading):
    columns = {
        DURATION: ("ms", ["1.500000"]),
        BYTES: ("Gbyte", ["2.250000"]),
        THREADS: ("thread", ["1,234,567"]),
    }
    frame = reading(raw_page(columns)).frame
    assert frame["time_us"].iloc[0] == 1500
    assert frame["dram_read_bytes"].iloc[0] == 2.25e9
    assert frame["threads"].iloc[0] == 1_234_567


def test_a_two_way_number_is_an_error_that_asks_for_the_locale(failing, reading):
    page = raw_page({DURATION: ("ns", ["1,234"]), THREADS: ("thread", ["64"])})
    error = failing(page)
    assert "two ways" in error.what
    assert "--locale" in error.cure
    assert reading(page, locale="en").frame["time_us"].iloc[0] == 1.234
    assert reading(page, locale="de").frame["time_us"].iloc[0] == 0.001234


def test_a_column_that_nobody_needs_can_decide_the_locale(reading):
    other = "device__attribute_clock_rate"
    page = raw_page({DURATION: ("ns", ["1.234"]), other: ("", ["1.980.000"])})
    assert reading(page).frame["time_us"].iloc[0] == 1.234


def test_mixed_conventions_are_an_error_that_names_the_line(failing):
    page = raw_page({DURATION: ("ns", ["10", "20"]), OCCUPANCY: ("%", ["46.63", "46,63"])})
    error = failing(page)
    assert error.where.endswith("export.csv:4")
    assert error.found == "'46,63'"


def test_the_wrong_locale_is_an_error(failing):
    page = raw_page({DURATION: ("us", ["10.500000"])})
    assert "--locale en" in failing(page, locale="de").cure


def test_a_negative_duration_is_an_error_that_names_the_kernel(failing):
    error = failing(raw_page({DURATION: ("ns", ["-5"])}, kernel="gemm_x"))
    assert "gemm_x" in error.found


def test_an_export_without_durations_says_so(reading):
    kernels = reading(raw_page({OCCUPANCY: ("%", ["50.0"])}))
    assert kernels.frame["time_us"].isna().all()
    assert any(DURATION in warning for warning in kernels.warnings)


def test_the_range_that_ncu_put_before_a_kernel_is_taken_off(reading):
    page = raw_page({DURATION: ("ns", ["10"])}, kernel="conv_01/void gemm<a/b>(int)")
    assert reading(page).frame["kernel"].iloc[0] == "void gemm<a/b>(int)"
    page = raw_page({DURATION: ("ns", ["10"])}, kernel="conv_01/gemm", ranges=())
    assert reading(page).frame["kernel"].iloc[0] == "conv_01/gemm"


def test_long_names_and_thousands_of_columns_are_read(reading):
    name = "void " + "very_long::" * 3000 + "k<\"quoted\", 'a'>()"
    columns = {f"smsp__made_up_{number}.sum": ("inst", ["1,234"]) for number in range(2500)}
    frame = reading(raw_page({DURATION: ("ns", ["10.5"]), **columns}, kernel=name)).frame
    assert frame["kernel"].iloc[0] == name


def test_older_pages_without_shapes_take_them_from_the_metrics(recorded, reading):
    rows = list(csv.reader(io.StringIO((recorded / "ncu" / "vectors.csv").read_text())))
    kept = [i for i, name in enumerate(rows[0]) if name not in {"Block Size", "Grid Size"}]
    header, units, *cells = [[row[i] for i in kept] for row in rows]
    frame = reading(table(header, units, cells)).frame
    expected = read(recorded / "ncu" / "vectors.csv").frame
    pd.testing.assert_frame_equal(frame, expected)


def test_ratio_and_largest_rate_stand_in_for_a_per_cent_metric(reading):
    base = STALL.removesuffix(".pct")
    columns = {
        DURATION: ("ns", ["10"]),
        f"{base}.ratio": ("", ["0.25"]),
        f"{base}.max_rate": ("", ["0.5"]),
        "smsp__warp_issue_stalled_short_scoreboard_per_warp_active.pct": ("%", ["10.0"]),
    }
    frame = reading(raw_page(columns)).frame
    assert frame["stall_exec_dependency"].iloc[0] == pytest.approx(0.6)


# Damage


@pytest.mark.parametrize("cut", [1, 2, 3, 10, 100])
def test_a_cut_file_is_an_error_that_names_the_last_line(cudnn, failing, cut):
    error = failing(cudnn[:-cut])
    assert error.where.endswith("export.csv:74")
    assert "cut" in error.what


@given(place=st.integers(0, 10**6))
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_a_file_cut_anywhere_is_an_error_or_ends_at_a_row(cudnn, tmp_path, place):
    place %= len(cudnn)
    path = tmp_path / "cut.csv"
    path.write_bytes(b"==PROF== x\n" + cudnn[:place])
    lines = cudnn.count(b"\n", 0, place)
    if cudnn[place - 1 : place] == b"\n" and lines > 2:
        assert len(read(path).frame) == lines - 2
    else:
        with pytest.raises(PerfmlError):
            read(path)


def test_rows_of_another_length_are_an_error_that_names_the_line(cudnn, failing):
    lines = cudnn.split(b"\n")
    fewer = [*lines[:6], lines[6].rsplit(b",", 1)[0], *lines[7:]]
    assert failing(b"\n".join(fewer)).where.endswith(":7")
    more = [*lines[:6], lines[6] + b',"1"', *lines[7:]]
    assert failing(b"\n".join(more)).where.endswith(":7")
    after = [*lines[:6], lines[6] + b" done", *lines[7:]]
    assert failing(b"\n".join(after)).where.endswith(":7")


def test_two_exports_in_one_file_are_an_error_that_names_the_seam(cudnn, failing):
    error = failing(cudnn + cudnn)
    assert error.where.endswith(":75")
    assert "second time" in error.what
    rows = cudnn.split(b"\n", 2)[2]
    assert failing(cudnn + rows).where.endswith(":75")


def test_missing_launches_are_warned_of(cudnn, reading):
    lines = cudnn.split(b"\n")
    del lines[10:12]
    kernels = reading(b"\n".join(lines))
    assert len(kernels.frame) == 70
    assert any(warning.startswith("2 launch ids are missing") for warning in kernels.warnings)


def test_a_page_without_its_units_is_an_error(cudnn, failing):
    lines = cudnn.split(b"\n")
    error = failing(b"\n".join([lines[0], *lines[2:]]))
    assert "row of units" in error.what
    assert error.where.endswith(":2")


def test_bytes_that_are_no_utf_8_are_an_error_that_names_the_line(cudnn, failing):
    error = failing(cudnn.replace(b"leaky_relu", b"leaky_rel\xfc", 1))
    assert "UTF-8" in error.what
    assert error.where.endswith(":5")


def test_a_doubled_column_is_an_error(failing):
    header = [*IDENTITY, DURATION, DURATION]
    units = [*[""] * len(IDENTITY), "ns", "us"]
    assert "twice" in failing(table(header, units, [launch(0, ["1", "2"])])).what


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ("==PROF== Connected to process 3 (a)\nhello\n", "no table"),
        ("hello\n==WARNING== No kernels were profiled.\n", "No kernels were profiled"),
        ("==ERROR== The application returned an error code (11).\n", "error code (11)"),
        (",".join(f'"{name}"' for name in IDENTITY) + "\n" + '"",' * 9 + '""\n', "without rows"),
        ('"Process ID","Kernel Name","Invocations","Minimum","Maximum","Average"\n', "Minimum"),
    ],
)
def test_an_input_without_kernels_says_what_was_found(failing, content, found):
    assert found in failing(content).found


def test_output_of_other_tools_is_not_claimed(tmp_path):
    path = tmp_path / "other.csv"
    for text in ('"Type","Time(%)","Time"\n', "==123== NVPROF is profiling\n", "a,b\n1,2\n"):
        path.write_text(text)
        assert not ncu_csv.recognises(Source(path))


# Details page


def test_the_details_page_gives_a_row_a_launch(recorded):
    path = recorded / "ncu" / "details_with_output.csv"
    assert recognise(Source(path)) is ncu_csv
    kernels = read(path)
    frame = kernels.frame
    assert frame["kernel"].tolist() == ["scale(float *, float)", "add(float *, float *)"]
    assert frame["grid"].tolist() == ["(4096, 1, 1)", "(16, 1, 1)"]
    assert frame["time_us"].tolist() == [10.59, 1500.0]
    assert frame["achieved_occupancy"].tolist() == pytest.approx([0.815, 0.1225])
    assert frame["threads"].tolist() == [1048576, 4096]
    assert frame["shared_memory_per_block"].iloc[0] == 1036
    assert frame["warp_execution_efficiency"].iloc[0] == 0.75
    assert frame["dram_utilization"].iloc[0] == pytest.approx(0.7425)
    assert np.isnan(frame["dram_utilization"].iloc[1])
    assert np.isnan(frame["l2_utilization"].iloc[0])
    assert frame["l2_utilization"].iloc[1] == pytest.approx(0.335)


def test_the_details_page_keeps_what_ncu_and_its_rules_said(recorded):
    kernels = read(recorded / "ncu" / "details_with_output.csv")
    assert kernels.provenance["process"] == "/usr/bin/python3.12"
    assert kernels.provenance["passes"] == 9
    assert "Nsight Compute said: Note: Running with unmodified GPU clocks." in kernels.warnings
    first, second = kernels.provenance["rules"]
    assert (first["rule"], first["launch"], first["kind"]) == (
        "LaunchConfiguration",
        0,
        "optimization",
    )
    assert (first["speedup"], first["scope"]) == (50.0, "global")
    assert second["message"].startswith('Memory is used more than compute: "look" at')
    assert second["speedup"] is None


def test_a_cut_details_page_is_an_error(recorded, failing):
    whole = (recorded / "ncu" / "details_with_output.csv").read_bytes()
    for cut in (1, 2, 5, 40):
        assert failing(whole[:-cut]).where.endswith(":24")


# Round trips, fuzzing, speed

SCALES = {
    DURATION: {"ns": 1, "us": 1e3, "ms": 1e6},
    BYTES: {"byte": 1, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9},
    OCCUPANCY: {"%": 1},
    THREADS: {"thread": 1, "": 1},
}
JUNK = st.sampled_from(
    ["", "hello", '"quoted" word', '"open', "🔥 1,234", "==PROF== x", "12,13,14", '"5","x","y"']
)


@st.composite
def exports(draw):
    count = draw(st.integers(1, 6))
    german = draw(st.booleans())
    columns, truth = {}, {}
    for name, scales in SCALES.items():
        unit = draw(st.sampled_from(sorted(scales)))
        numbers = draw(
            st.lists(
                st.none() | st.integers(0, 10**12).map(lambda n: n / 1e6),
                min_size=count,
                max_size=count,
            )
        )
        digits = draw(st.sampled_from([0, 2, 6]))
        texts, values = [], []
        for number in numbers:
            if number is None:
                texts.append(draw(st.sampled_from(["", "n/a", "nan", "no data"])))
                values.append(np.nan)
                continue
            text = f"{number:,.{digits}f}" if not unit else f"{number:.{digits}f}"
            values.append(float(text.replace(",", "")) * scales[unit])
            texts.append(text.translate(str.maketrans(",.", ".,")) if german else text)
        columns[name], truth[name] = (unit, texts), values
    lines = raw_page(columns).splitlines()
    body = []
    for line in lines[2:]:
        body += [*draw(st.lists(JUNK, max_size=2)), line]
    head = draw(st.lists(st.sampled_from(["==PROF== Connected", "noise", '"']), max_size=2))
    return "\n".join([*head, *lines[:2], *body, ""]), truth, "de" if german else "en"


def attempt(path, locale):
    try:
        return ncu_csv.read(Source(path), ReadOptions(locale=locale)).frame, None
    except InputError as error:
        return None, error


@given(export=exports(), told=st.booleans())
@settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_what_is_written_is_read_back_or_asked_about(tmp_path, export, told):
    text, truth, locale = export
    path = tmp_path / "round.csv"
    path.write_text(text, encoding="utf-8")
    frame, error = attempt(path, locale if told else None)
    if frame is None:
        assert not told
        assert "two ways" in error.what
        return
    assert len(frame) == len(truth[DURATION])
    for name, column, scale in (
        (DURATION, "time_us", 1e-3),
        (BYTES, "dram_read_bytes", 1),
        (THREADS, "threads", 1),
    ):
        expected = np.array(truth[name]) * scale
        np.testing.assert_allclose(frame[column].to_numpy(), expected, rtol=1e-12)


@given(
    flips=st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=6)
)
@settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_changed_bytes_never_escape_as_anything_but_a_perfml_error(recorded, tmp_path, flips):
    path = tmp_path / "fuzz.csv"
    for name in ("vectors.csv", "details_with_output.csv"):
        data = bytearray((recorded / "ncu" / name).read_bytes())
        for place, value in flips:
            data[place % len(data)] = value
        path.write_bytes(data)
        for raw in (False, True):
            try:
                kernels = ncu_csv.read(Source(path), ReadOptions(raw=raw))
            except PerfmlError:
                continue
            assert 1 <= len(kernels.frame) <= 7


def test_a_stray_quote_does_not_make_a_large_file_slow(reading):
    rows = [launch(number, ["10.5"]) for number in range(3000)]
    lines = table([*IDENTITY, DURATION], [""] * len(IDENTITY) + ["ns"], rows).splitlines()
    noise = [f"line {number} of the program" for number in range(60_000)]
    broken = lines[2].replace('"gemm"', '"gemm')
    started = time.perf_counter()
    with pytest.raises(InputError, match=r":\d+: the row"):
        reading("\n".join([*lines[:2], broken, *noise, *lines[3:], ""]))
    assert time.perf_counter() - started < 5
