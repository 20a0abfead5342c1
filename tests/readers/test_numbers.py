"""Numbers, units and NVTX cells as Nsight Compute prints them."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from perfml.errors import PerfmlError
from perfml.readers.ncu.units import to_base
from perfml.readers.numbers import (
    ENGLISH,
    GERMAN,
    BadNumberError,
    convention_of,
    decide,
    reading,
    to_numbers,
)
from tests.support.ncu_pages import push_pop


def cells(*texts):
    return pa.chunked_array([pa.array(texts, pa.string())])


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        ("46.635196", ENGLISH),
        ("46,635196", GERMAN),
        ("1,980,000", ENGLISH),
        ("1.980.000", GERMAN),
        ("7,823.72", ENGLISH),
        ("7.823,72", GERMAN),
        ("0.123", ENGLISH),
        ("1234,567", GERMAN),
        ("1.2e+06", ENGLISH),
        ("1,234", None),
        ("1.234", None),
        ("12", None),
        ("n/a", None),
    ],
)
def test_a_cell_gives_its_convention_only_if_it_has_one_reading(cell, expected):
    assert reading(cell) is expected


def test_a_percentage_has_no_thousands():
    assert reading("46.635", percent=True) is ENGLISH
    assert reading("46,635", percent=True) is GERMAN


def test_the_first_cell_with_one_reading_decides_for_the_file():
    assert decide([("a", cells("1,234", "5"), ""), ("b", cells("46,63"), "")]) == (GERMAN, None)


def test_a_file_with_only_two_way_cells_gives_an_example_and_no_convention():
    assert decide([("a", cells("12"), ""), ("b", cells("1,234"), "")]) == (None, ("b", "1,234"))
    assert decide([("a", cells("12", "n/a"), "")]) == (None, None)


def test_a_deciding_cell_far_down_is_found():
    assert decide([("a", cells(*["1,234"] * 600, "1,5"), "")]) == (GERMAN, None)


def test_missing_values_are_nan_and_never_zero():
    forms = ["", " ", "n/a", "N/A", "nan", "-nan", "no data", "(!) n/a", "-nan(ind)", "0"]
    for convention in (ENGLISH, GERMAN):
        found = to_numbers(cells(*forms), convention)
        assert np.isnan(found[:-1]).all()
        assert found[-1] == 0


def test_numbers_are_read_under_either_convention():
    english = to_numbers(cells("1,234.5", "-7", "1980000", "2e3", "12.5 (3; 4)"), ENGLISH)
    german = to_numbers(cells("1.234,5", "-7", "1980000", "2e3", "12,5 (3; 4)"), GERMAN)
    assert english.tolist() == german.tolist() == [1234.5, -7, 1980000, 2000, 12.5]


def test_group_marks_of_further_locales_are_taken_out():
    assert to_numbers(cells("1\u202f234,5", "12\u00a0345,0"), GERMAN).tolist() == [1234.5, 12345]
    assert to_numbers(cells("1'234.5"), ENGLISH).tolist() == [1234.5]


@pytest.mark.parametrize(
    ("cell", "convention"),
    [
        ("46,63", ENGLISH),
        ("1,23,456", ENGLISH),
        ("1.234,5", ENGLISH),
        ("46.63", GERMAN),
        ("1,234.5", GERMAN),
        ("fast", ENGLISH),
        ("fast", GERMAN),
        ("1_000", ENGLISH),
        ("0x10", ENGLISH),
    ],
)
def test_a_cell_of_the_other_convention_is_an_error_and_never_a_number(cell, convention):
    with pytest.raises(BadNumberError) as caught:
        to_numbers(cells("12", cell), convention)
    assert (caught.value.row, caught.value.text) == (1, cell)


def test_a_locale_is_named_in_any_usual_form():
    assert convention_of("en") is convention_of("en_US.UTF-8") is ENGLISH
    assert convention_of("DE") is convention_of("de_DE.UTF-8") is GERMAN
    with pytest.raises(PerfmlError, match="--locale"):
        convention_of("klingon")


def written(value, convention):
    text = f"{value:,.6f}"
    if convention is GERMAN:
        text = text.translate(str.maketrans(",.", ".,"))
    return text


@given(
    st.lists(st.integers(-(10**15), 10**15).map(lambda n: n / 1e6), min_size=1, max_size=20),
    st.sampled_from([ENGLISH, GERMAN]),
)
def test_what_a_locale_writes_is_read_back(values, convention):
    texts = [written(value, convention) for value in values]
    assert decide([("a", cells(*texts), "")])[0] is convention
    assert to_numbers(cells(*texts), convention) == pytest.approx(values, rel=1e-12)


@pytest.mark.parametrize(
    ("unit", "expected"),
    [
        ("", (1.0, "")),
        ("%", (1.0, "%")),
        ("us", (1e3, "ns")),
        ("msecond", (1e6, "ns")),
        ("Mbyte", (1e6, "byte")),
        ("Tbyte/s", (1e12, "byte/s")),
        ("Gbyte/second", (1e9, "byte/s")),
        ("byte/ns", (1e9, "byte/s")),
        ("Kbyte/block", (1e3, "byte/block")),
        ("sector/ns", (1e9, "sector/s")),
        ("hz", (1.0, "hz")),
        ("Ghz", (1e9, "hz")),
        ("cycle/nsecond", (1e9, "hz")),
        ("inst/cycle", (1.0, "inst/cycle")),
        ("thread", (1.0, "thread")),
    ],
)
def test_a_unit_is_brought_to_its_base(unit, expected):
    factor, name = to_base(unit)
    assert factor == pytest.approx(expected[0], rel=1e-12)
    assert name == expected[1]


def test_ranges_of_several_domains_keep_names_with_colons_and_quotes():
    cell = (
        '7  "nets:block:a::b:none:none:none:none:none:none"  '
        '"<default domain>:say "hi", you:none:none:none:none:none:none" '
    )
    assert push_pop(cell) == ("block:a::b", 'say "hi", you')


def test_ranges_of_libraries_divide_no_layer():
    plain = ":none" * 6
    step, sort = f'"<default domain>:step_1{plain}"', f'"<default domain>:sort{plain}"'
    cub = '"CCCL:cub::DeviceReduce::Sum:none:none:none:none:REGISTERED:cub::DeviceReduce::Sum"'
    assert push_pop(f"7  {step}  {sort}  {cub} ") == ("step_1", "sort")
    assert push_pop(f"7  {step}  {cub}  {sort} ") == ("step_1", "sort")
    assert push_pop(f"7  {cub}  {sort} ") == ("sort",)
    assert push_pop(f"7  {step}  {cub} ") == ("step_1",)
    assert push_pop(f"7  {cub} ") == ("cub::DeviceReduce::Sum",)


def test_a_registered_message_does_not_hide_the_name():
    # As ncu 2025.3.1 printed the ranges of XLA.
    cell = (
        '4280  "TSL:XlaModule:#hlo_module=jit_f,program_id=662#:none:none:none:none:REGISTERED:'
        'XlaModule:#hlo_module=jit_f,program_id=662#"  "TSL:Thunk:#hlo_op=add#:none:none:none:none:'
        'REGISTERED:Thunk:#hlo_op=add#" '
    )
    assert push_pop(cell) == ("XlaModule:#hlo_module=jit_f,program_id=662#", "Thunk:#hlo_op=add#")


@example([("<default domain>", ":", True)])
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["<default domain>", "nets", "TSL"]),
            st.text(st.characters(codec="utf-8", exclude_characters='"'), min_size=1, max_size=30),
            st.booleans(),
        ),
        max_size=4,
    )
)
def test_range_names_survive_the_way_into_a_cell(ranges):
    entries = [
        f'"{domain}:{name}:none:none:none:none:'
        + (f'REGISTERED:{name}"' if registered else 'none:none"')
        for domain, name, registered in ranges
    ]
    assert push_pop("12  " + "  ".join(entries) + " ") == tuple(name for _, name, _ in ranges)
