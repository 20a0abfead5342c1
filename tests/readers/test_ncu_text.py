"""The reader of text that Nsight Compute prints."""

from __future__ import annotations

import re

import pytest

from perfml.errors import InputError
from perfml.readers import read
from tests.support.ncu_text import HEAD, RULE, launch, summary
from tests.support.paths import PUBLIC

GEMM = "gemm(const float *, float *, int)"


@pytest.fixture
def readable(tmp_path):
    def reads(text, encoding="utf-8"):
        path = tmp_path / "log.txt"
        path.write_bytes(text if isinstance(text, bytes) else text.encode(encoding))
        return read(path)

    return reads


@pytest.mark.parametrize("header", [True, False], ids=["newer", "older"])
def test_every_launch_of_a_pasted_text_is_a_row(header, readable):
    text = HEAD + launch(GEMM, header=header) + launch("add(float *)", header=header)
    kernels = readable(text)
    frame = kernels.frame
    assert kernels.provenance["format"] == "ncu-text"
    assert frame["kernel"].tolist() == [GEMM, "add(float *)"]
    assert frame["time_us"].tolist() == [41.18, 41.18]
    assert frame["achieved_occupancy"].tolist() == [0.355, 0.355]
    assert frame["registers_per_thread"].tolist() == [40, 40]
    assert frame["threads"].tolist() == [1048576, 1048576]
    if header:
        assert frame["grid"].iloc[0] == "(8, 16, 1)"
        assert frame["block"].iloc[0] == "(256, 1, 1)"
        assert frame["compute_capability"].iloc[0] == "8.9"
    else:
        assert frame["grid"].isna().all()
    assert any("--page raw" in text for text in kernels.warnings)


def test_what_rules_say_travels_with_the_table(readable):
    (advice,) = readable(HEAD + launch(GEMM)).provenance["rules"]
    assert advice["speedup"] == 85.38
    assert advice["scope"] == "local"
    assert advice["section"] == "GPU Speed Of Light Throughput"
    assert advice["message"].startswith("All compute pipelines are under-utilized. Either")
    assert advice["message"].endswith("or it waits for memory.")


def test_a_table_that_follows_a_rule_is_read(readable):
    assert readable(launch(GEMM, rule=RULE * 2)).frame["registers_per_thread"].tolist() == [40]


def test_indentation_that_was_lost_does_not_matter(readable):
    text = "\n".join(line.strip() for line in launch(GEMM).split("\n"))
    assert readable(text).frame["time_us"].tolist() == [41.18]


def test_german_numbers_are_an_error_with_the_locale_to_print_with(readable):
    text = launch(GEMM).translate(str.maketrans(",.", ".,")).replace(". ", ", ")
    text = text.replace("CC 8,9", "CC 8.9")
    with pytest.raises(InputError, match="LC_ALL=C"):
        readable(text)


def test_a_printed_summary_has_means_and_the_number_of_launches(readable):
    kernels = readable(HEAD + summary())
    frame = kernels.frame
    assert frame["kernel"].tolist() == ["add(float *)", "color(float *)"]
    assert frame["launches"].tolist() == [4, 10]
    assert frame["time_us"].tolist() == [2.07, 3060.0]
    assert frame["dram_utilization"].tolist() == [0.11, 0.85]
    assert any("means over 14 launches" in text for text in kernels.warnings)


def test_a_program_that_talks_long_before_its_sections_is_recognised(readable):
    talk = "".join(f"step {n}: loss 0.5\n" for n in range(9000))
    assert len(talk) > 1 << 16
    assert readable(HEAD + talk + launch(GEMM)).provenance["format"] == "ncu-text"


def test_a_failed_run_says_so_and_gives_no_table(readable):
    rows = (("DRAM Throughput", "%", "(!) nan"), ("Duration", "nsecond", "(!) nan"))
    text = (
        "==ERROR== LaunchFailed\n"
        + launch("render(int)", rows=rows).split("    Section: Launch")[0]
    )
    with pytest.raises(
        InputError, match=r"ended with an error, and measured nothing.*LaunchFailed"
    ):
        readable(text)


def test_a_text_cut_within_a_table_is_told(readable):
    text = launch(GEMM) + launch("add(int)")
    cut = text[: text.rindex("Registers Per Thread") - 4]
    kernels = readable(cut)
    assert "The text ends within a table: is it cut?" in kernels.warnings
    assert kernels.frame["registers_per_thread"].isna().tolist() == [False, True]


def test_rows_whose_blanks_were_lost_are_counted(readable):
    squeezed = re.sub(r"(?<=\S) +", " ", launch(GEMM))
    kernels = readable(squeezed + launch("add(int)"))
    assert any("have no name, unit and value" in text for text in kernels.warnings)
    assert kernels.frame["time_us"].iloc[-1] == 41.18


def test_a_duration_in_a_unit_that_is_no_time_is_refused(readable):
    with pytest.raises(InputError, match="unit that is no time"):
        readable(launch(GEMM, rows=(("Duration", "Mbyte", "41.18"),)))


def test_a_value_that_is_no_number_names_the_kernels_line(readable):
    with pytest.raises(InputError, match=r"log.txt:1: gpu__time_duration.sum is no number"):
        readable(launch(GEMM, rows=(("Duration", "us", "4x.18"),)))


if PUBLIC.is_dir():

    def test_a_public_text_in_utf_16_of_an_older_layout():
        frame = read(PUBLIC / "gpu_notebook_ncu_log.txt").frame
        assert frame["time_us"].iloc[:2].tolist() == [13.18, 13.31]
        assert frame["kernel"].iloc[2:].unique().tolist() == ["extreme_reg_pressure_matmul"]


def test_metrics_that_are_all_not_available_are_named(tmp_path):
    line = "    --------------- ----------- ------------\n"
    path = tmp_path / "log.txt"
    path.write_text(
        "==PROF== Connected to process 7\n"
        "  add(int) (4, 1, 1)x(64, 1, 1), Context 1, Stream 7, Device 0, CC 8.9\n"
        f"    Section: Command line profiler metrics\n{line}"
        f"    Metric Name     Metric Unit Metric Value\n{line}"
        f"    sm_cycles.avg                    (!) n/a\n{line}"
    )
    with pytest.raises(InputError, match=r"found: n/a for sm_cycles\.avg"):
        read(path)


def test_the_total_of_memory_is_no_lower_than_its_largest_part(readable):
    (total,) = readable(HEAD + launch(GEMM)).provenance["speed_of_light"]
    assert total["memory"] == pytest.approx(0.4663)


def test_bytes_a_second_are_no_total_of_memory(readable):
    text = HEAD + launch(GEMM)
    row = next(line for line in text.splitlines() if "DRAM Throughput" in line)
    bytes_ = (
        row.replace("DRAM Throughput  ", "Memory Throughput")
        .replace(" % ", "KB/")
        .replace("46.63", "99.63")
    )
    (total,) = readable(text.replace(row, f"{bytes_}\n{row}", 1)).provenance["speed_of_light"]
    assert total["memory"] == pytest.approx(0.4663)
