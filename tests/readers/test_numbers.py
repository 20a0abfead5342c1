"""Numbers, units and NVTX cells as Nsight Compute prints them."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from perfml.readers.ncu.launches import to_base
from perfml.readers.numbers import BadNumberError, english, to_numbers
from tests.support.ncu_pages import push_pop


def cells(*texts):
    return pa.chunked_array([pa.array(texts, pa.string())])


@pytest.mark.parametrize(
    "cell", ["46.635196", "1,980,000", "7,823.72", "0.123", "1234.567", "1.2e+06", "-1,234.567"]
)
def test_a_cell_of_one_reading_shows_that_numbers_are_english(cell):
    assert english([("a", cells("12", cell), "")]) == (True, None)


@pytest.mark.parametrize(
    "cell", ["46,635196", "1.980.000", "7.823,72", "1.234.567,8", "1234,567", "1,234", "1.234"]
)
def test_a_cell_of_another_or_of_two_readings_shows_nothing(cell):
    assert english([("a", cells("12", cell), "")]) == (False, ("a", cell))


def test_cells_without_marks_are_no_doubt():
    assert english([("a", cells("12", "n/a", None, "CachePreferNone"), "")]) == (False, None)


def test_a_percentage_has_no_thousands():
    assert english([("a", cells("46.635"), "%")]) == (True, None)
    assert english([("a", cells("46,635"), "%")]) == (False, ("a", "46,635"))


def test_a_deciding_cell_far_down_is_found():
    assert english([("a", cells(*["1,234"] * 600, "1.5"), "")]) == (True, None)


def test_missing_values_are_nan_and_never_zero():
    forms = ["", " ", "n/a", "N/A", "nan", "-nan", "no data", "(!) n/a", "-nan(ind)", "0"]
    found = to_numbers(cells(*forms))
    assert np.isnan(found[:-1]).all()
    assert found[-1] == 0


def test_groups_exponents_and_instances_are_numbers():
    found = to_numbers(cells("1,234.5", "-7", "1980000", "2e3", "12.5 (3; 4)"))
    assert found.tolist() == [1234.5, -7, 1980000, 2000, 12.5]


@pytest.mark.parametrize(
    "cell", ["46,63", "1,23,456", "1.234,5", "1'234.5", "fast", "1_000", "0x10"]
)
def test_a_cell_of_another_language_is_an_error_and_never_a_number(cell):
    with pytest.raises(BadNumberError) as caught:
        to_numbers(cells("12", cell))
    assert (caught.value.row, caught.value.text) == (1, cell)


@given(st.lists(st.integers(-(10**15), 10**15).map(lambda n: n / 1e6), min_size=1, max_size=20))
def test_what_is_written_is_read_back(values):
    texts = [f"{value:,.6f}" for value in values]
    assert english([("a", cells(*texts), "")])[0]
    assert to_numbers(cells(*texts)) == pytest.approx(values, rel=1e-12)


@given(st.lists(st.integers(-(10**15), 10**15).map(lambda n: n / 1e6), min_size=1, max_size=20))
def test_what_a_german_locale_writes_is_never_english(values):
    texts = [f"{value:,.6f}".translate(str.maketrans(",.", ".,")) for value in values]
    assert not english([("a", cells(*texts), "")])[0]


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
