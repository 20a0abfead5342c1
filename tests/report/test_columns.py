"""Tables at any width: words and numbers whole, the first column kept, the rest said."""

from hypothesis import given
from hypothesis import strategies as st

from perfml.kernel_names import shortened
from perfml.report.document import Cell, Column, ReportTable, numbers, words
from perfml.report.render.text import table_grid, table_text
from perfml.util.shown import wrap


def test_spare_columns_go_first_then_the_last_and_it_is_said():
    row = [Cell("conv_01"), Cell("12345678901234567890"), Cell("1234567890"), Cell("123456789")]
    heads = (*words("layer"), *numbers("spare", "time", "last"))
    table = ReportTable("", heads, [row], spare=("spare",))
    assert table_grid(table, table.rows, 60)[-1].endswith("123456789")
    forty = table_grid(table, table.rows, 40)
    assert forty[1].split() == ["conv_01", "1234567890", "123456789"]
    assert "(40 columns: without spare; --json has it)" in " ".join(forty)
    assert table_grid(table, table.rows, 20)[1].split() == ["conv_01", "1234567890"]


def test_small_print_goes_before_a_column_does():
    row = [Cell("conv_01"), Cell("3.956×", note="3.939–3.973 of ten repeats")]
    table = ReportTable("", (*words("layer"), *numbers("ratio")), [row])
    assert "of ten repeats" in table_grid(table, table.rows, 60)[1]
    narrow = table_grid(table, table.rows, 30)
    assert narrow[1].split() == ["conv_01", "3.956×"]
    assert "small print of ratio" in " ".join(narrow)


def test_small_print_that_tells_rows_apart_stays_and_columns_go():
    rows = [
        [Cell("conv_02", note=f"{backend} fp32 b1"), Cell("conv"), Cell("48.4")]
        for backend in ("cudnn", "inductor")
    ]
    table = ReportTable("", (*words("layer", "kind"), *numbers("µs")), rows, spare=("kind",))
    lines = table_grid(table, rows, 34)
    assert [line.split("  ")[0] for line in lines[1:3]] == [
        "conv_02 (cudnn fp32 b1)",
        "conv_02 (inductor fp32 b1)",
    ]
    assert "small print" not in " ".join(lines)


def test_long_names_differ_where_they_are_cut():
    names = [f"sm80_xmma_gemm_f32f32_tilesize{size}x64x8_aligned_execute" for size in (32, 64, 128)]
    table = ReportTable("", words("kernel", "of"), [[Cell(each), Cell("a b")] for each in names])
    lines = table_grid(table, table.rows, 40)[1:4]
    assert len({line.split()[0] for line in lines}) == 3
    assert all("…" in line for line in lines)


@given(st.lists(st.text("ab", max_size=40), unique=True, max_size=5), st.integers(12, 30))
def test_shortened_names_fit_and_still_differ(names, limit):
    short = shortened(names, limit)
    assert all(len(each) <= limit for each in short)
    assert len(set(short)) == len(names)


def test_a_word_that_is_longer_than_a_line_stays_whole():
    assert wrap("see /a/very/long/path/of/a/file now", 10) == [
        "see",
        "/a/very/long/path/of/a/file",
        "now",
    ]


def test_a_table_without_heads_has_no_bold_row():
    rows = [[Cell("metric"), Cell("gld_efficiency")]]
    bare = ReportTable("", (Column("", False), Column("", False)), rows)
    assert "\x1b[1m" not in table_text(bare, width=80, styled=True)
    headed = ReportTable("", (Column("name", False), Column("", False)), rows)
    assert "\x1b[1m" in table_text(headed, width=80, styled=True)
