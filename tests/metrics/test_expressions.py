import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfml.errors import PerfmlError
from perfml.metrics import parse

VALUES = {"a__x.sum": 6.0, "b__y.pct": 3.0, "zero": 0.0}


def value(text: str) -> float:
    expression = parse(text)
    return float(np.ravel(expression(lambda name: np.array([VALUES[name]])))[0])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a__x.sum", 6.0),
        ("a__x.sum + b__y.pct", 9.0),
        ("2 * a__x.sum - b__y.pct", 9.0),
        ("a__x.sum - b__y.pct - 1", 2.0),
        ("a__x.sum / b__y.pct / 2", 1.0),
        ("-(a__x.sum + 1) * 2", -14.0),
        ("32 * (a__x.sum + b__y.pct) / 1e1", 28.8),
    ],
)
def test_arithmetic_follows_the_usual_precedence(text, expected):
    assert value(text) == pytest.approx(expected)


def test_division_by_zero_is_undefined_and_not_infinite():
    assert math.isnan(value("a__x.sum / zero"))


def test_names_are_listed_once_in_order():
    assert parse("b__y.pct / (b__y.pct + a__x.sum)").names == ("b__y.pct", "a__x.sum")


@pytest.mark.parametrize(
    "text",
    ["", "a +", "(a", "a)", "a b", "1 ** 2", "__import__('os')", "a; b", "a[0]", "(" * 200 + "a"],
)
def test_what_is_no_formula_is_refused_with_its_place(text):
    with pytest.raises(PerfmlError, match="not a metric formula") as error:
        parse(text)
    assert error.value.where.startswith("character")


@given(st.text(alphabet="ab_.+-*/() 0123456789e", max_size=40))
def test_any_text_is_a_formula_or_a_clear_error(text):
    try:
        expression = parse(text)
    except PerfmlError:
        return
    assert expression.names is not None
