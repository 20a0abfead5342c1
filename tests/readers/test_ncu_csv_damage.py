"""Damaged and made-up exports of ``ncu --csv``: read right, or refused with a reason."""

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfml.errors import InputError
from perfml.readers import Source
from perfml.readers.ncu import csv_page as ncu_csv
from tests.support.examples import SHARED_FIXTURE, examples
from tests.support.ncu_pages import (
    BYTES,
    DURATION,
    IDENTITY,
    OCCUPANCY,
    THREADS,
    launch,
    raw_page,
    table,
)

# Damage


def test_rows_of_another_length_are_an_error_that_names_the_line(cudnn, failing):
    lines = cudnn.split(b"\n")
    fewer = [*lines[:6], lines[6].rsplit(b",", 1)[0], *lines[7:]]
    assert failing(b"\n".join(fewer)).where.endswith(":7")
    more = [*lines[:6], lines[6] + b',"1"', *lines[7:]]
    assert failing(b"\n".join(more)).where.endswith(":7")
    after = [*lines[:6], lines[6] + b" done", *lines[7:]]
    assert failing(b"\n".join(after)).where.endswith(":7")


@pytest.mark.parametrize("cell", ["", "n/a", "7.5", "seven"])
def test_a_process_that_is_no_whole_number_is_an_error_that_names_the_line(failing, cell):
    good, bad = (
        raw_page({DURATION: ("ns", ["12.5", "13"])}, process=process).splitlines(keepends=True)
        for process in ("7", cell)
    )
    error = failing("".join([*good[:3], bad[3]]).encode())
    assert error.where.endswith(":4")
    assert (error.what, error.found) == ("column Process ID needs a whole number", repr(cell))


def test_missing_launches_are_warned_of(cudnn, reading):
    lines = cudnn.split(b"\n")
    del lines[10:12]
    kernels = reading(b"\n".join(lines))
    assert len(kernels.frame) == 70
    assert any(warning.startswith("2 launch ids are missing") for warning in kernels.warnings)


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ("==PROF== Connected to process 3 (a)\nhello\n", "no table"),
        ("hello\n==WARNING== No kernels were profiled.\n", "No kernels were profiled"),
        ("==ERROR== The application returned an error code (11).\n", "error code (11)"),
        ("==WARNING== Takes more time than expected.\n==ERROR== LaunchFailed\n", "LaunchFailed"),
        ('==PROF== Profiling "gemm"\n  gemm (8, 1, 1)\n    Section: Occupancy\n', "sections"),
        (",".join(f'"{name}"' for name in IDENTITY) + "\n" + '"",' * 9 + '""\n', "without rows"),
        ('"Process ID","Kernel Name","Invocations","Minimum","Maximum","Average"\n', "Minimum"),
    ],
)
def test_an_input_without_kernels_says_what_was_found(failing, content, found):
    assert found in failing(content).found


def test_an_error_in_a_log_of_windows_is_shown_before_its_warnings(failing):
    """PowerShell writes UTF-16."""
    lines = ["==WARNING== Takes more time than expected.", "==ERROR== LaunchFailed", ""]
    error = failing("\r\n".join(lines).encode("utf-16"))
    assert "ended with an error" in error.what
    assert error.found == "LaunchFailed"


def test_output_of_other_tools_is_not_claimed(tmp_path):
    path = tmp_path / "other.csv"
    for text in ('"Type","Time(%)","Time"\n', "==123== NVPROF is profiling\n", "a,b\n1,2\n"):
        path.write_text(text)
        assert not ncu_csv.recognises(Source(path))


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
            texts.append(text)
        columns[name], truth[name] = (unit, texts), values
    lines = raw_page(columns).splitlines()
    body = []
    for line in lines[2:]:
        body += [*draw(st.lists(JUNK, max_size=2)), line]
    head = draw(st.lists(st.sampled_from(["==PROF== Connected", "noise", '"']), max_size=2))
    return "\n".join([*head, *lines[:2], *body, ""]), truth


def attempt(path):
    try:
        return ncu_csv.read(Source(path)).frame, None
    except InputError as error:
        return None, error


@given(export=exports())
@examples(80, suppress=SHARED_FIXTURE)
def test_what_is_written_is_read_back_or_asked_about(tmp_path, export):
    text, truth = export
    path = tmp_path / "round.csv"
    path.write_text(text, encoding="utf-8")
    frame, error = attempt(path)
    if frame is None:
        assert "two ways" in error.what
        return
    assert len(frame) == len(truth[DURATION])
    for name, column, scale in (
        (DURATION, "time_us", 1e-3),
        (BYTES, "dram_read_bytes", 1),
        (THREADS, "threads", 1),
    ):
        expected = np.array(truth[name]) * scale
        if name in (DURATION, THREADS):  # a launch of 0 ns has no time; 0 threads are not known
            expected = np.where(expected == 0, np.nan, expected)
        np.testing.assert_allclose(frame[column].to_numpy(), expected, rtol=1e-12)


def test_a_stray_quote_does_not_make_a_large_file_slow(reading):
    rows = [launch(number, ["10.5"]) for number in range(3000)]
    lines = table([*IDENTITY, DURATION], [""] * len(IDENTITY) + ["ns"], rows).splitlines()
    noise = [f"line {number} of the program" for number in range(60_000)]
    broken = lines[2].replace('"gemm"', '"gemm')
    started = time.process_time()
    with pytest.raises(InputError, match=r":\d+: the row"):
        reading("\n".join([*lines[:2], broken, *noise, *lines[3:], ""]))
    assert time.process_time() - started < 30
