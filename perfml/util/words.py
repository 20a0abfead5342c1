"""Sentences for people: the tables that hold them, times with their unit, amounts with their noun.

Here to change: a sentence is a row of a package's ``words.toml``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from string import Formatter
from typing import Any

from perfml.util.files import read_rows

_LARGE = ((1e12, "trillion"), (1e9, "billion"), (1e6, "million"))


def number(value: float, digits: int = 3) -> str:
    """Return a number with `digits` significant digits and thousands separators.

    Examples
    --------
    >>> number(3797.0015), number(47.952), number(0.012345), number(float("nan"))
    ('3,797', '48.0', '0.0123', '–')
    """
    if not math.isfinite(value):
        return "–"
    if value == 0:
        return "0"
    places = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    return f"{value:,.{places}f}"


def plain_number(value: float) -> str:
    """Return a number for a cell: four significant digits, none behind the point of a whole one.

    Examples
    --------
    >>> plain_number(23284.36), plain_number(0.98765), plain_number(8.0)
    ('23,284', '0.9877', '8')
    """
    whole = math.isfinite(value) and value == round(value)
    return f"{value:,.0f}" if whole else number(value, 4)


def time_unit(value: float) -> tuple[float, str]:
    """Return in which unit a time is read, and its microseconds: from ten of it on ms and s."""
    return next((size, unit) for size, unit in _UNITS if value >= 10 * size or unit == "µs")


_UNITS = ((1e6, "s"), (1e3, "ms"), (1.0, "µs"))


def micros(value: float) -> str:
    """Return a time given in microseconds, with its unit (`time_unit`).

    Examples
    --------
    >>> micros(0.96), micros(3221.4), micros(1_288_368.2), micros(67_059_000.0)
    ('0.960 µs', '3,221 µs', '1,288 ms', '67.1 s')
    """
    if not math.isfinite(value):
        return "–"
    size, unit = time_unit(value)
    return f"{number(value / size)} {unit}"


def about(value: float) -> str:
    """Return a time given in microseconds that is no more than a guess, with two digits.

    Examples
    --------
    >>> about(1189.7), about(206.4), about(8.752), about(48_130.0), about(0.0)
    ('about 1,200 µs', 'about 210 µs', 'about 8.8 µs', 'about 48 ms', 'about 0 µs')
    """
    if not math.isfinite(value) or value == 0:
        return f"about {value:.0f} µs" if value == 0 else micros(value)
    value = round(value, 1 - math.floor(math.log10(abs(value))))
    size, unit = time_unit(value)
    return f"about {number(value / size, 2)} {unit}"


def micros_alike(*values: float) -> list[str]:
    """Return times that are read together, in the unit of the largest.

    Examples
    --------
    >>> micros_alike(5600.0, 65_300.0), micros_alike(18.3, 111.0)
    (['5.60 ms', '65.3 ms'], ['18.3 µs', '111 µs'])
    """
    size, unit = time_unit(max(values, default=0.0))
    return [f"{number(value / size)} {unit}" if math.isfinite(value) else "–" for value in values]


def multiple(ratio: float) -> str:
    """Return a ratio with three digits; a small one as a part of 1.

    Examples
    --------
    >>> multiple(3.9561), multiple(77.761), multiple(0.01287), multiple(1 / 5300)
    ('3.96×', '77.8×', '0.0129×', '1/5,300×')
    """
    return f"{_part(ratio) or number(ratio)}×"


_PART = 0.01
"""A ratio below it is said as a part of 1, as decimals show nothing but zeros."""


def _part(ratio: float, digits: int = 3) -> str:
    return f"1/{number(1 / ratio, digits)}" if 0 < ratio < _PART else ""


def ratio_text(ratio: float) -> str:
    """Return a ratio so that its interval differs from it: three decimals, four digits from ten.

    Examples
    --------
    >>> ratio_text(0.8983), ratio_text(3.9561), ratio_text(293.624), ratio_text(1 / 12146)
    ('0.898', '3.956', '293.6', '1/12,146')
    """
    if part := _part(ratio, 4):
        return part
    return f"{ratio:.3f}" if ratio < 10 else number(ratio, 4)


def factor_text(factor: float) -> str:
    """Return what multiplies a time, with two decimals; from a hundred without.

    Examples
    --------
    >>> factor_text(6.022), factor_text(0.866), factor_text(128.0), factor_text(1 / 558)
    ('×6.02', '×0.87', '×128', '×1/558')
    """
    if part := _part(factor):
        return f"×{part}"
    return f"×{factor:.2f}" if factor < 100 else f"×{factor:,.0f}"


def percent(value: float, digits: int | None = None) -> str:
    """Return a fraction in percent, with as many significant digits; nearly all is not all.

    By default in whole percent, and below ten with a decimal.

    Examples
    --------
    >>> percent(0.253), percent(0.0071), percent(0.0), percent(0.0001), percent(0.9996)
    ('25 %', '0.7 %', '0 %', '<0.1 %', '>99.9 %')
    >>> percent(0.19661, 3), percent(0.00646, 3), percent(0.01, 3), percent(1.004, 3)
    ('19.7 %', '0.646 %', '1.00 %', '100 %')
    """
    if not math.isfinite(value):
        return "–"
    if 0.9995 <= value < 1:
        return ">99.9 %"
    if digits is not None:
        return f"{number(100 * value, digits)} %"
    places = 1 if 0 < abs(value) < 0.0995 else 0
    return "<0.1 %" if 0 < value < 0.0005 else f"{100 * value:.{places}f} %"


def listed(parts: Sequence[str], limit: int | None = None) -> str:
    """Return parts of a sentence joined with commas and an "and"; beyond `limit` they are counted.

    Examples
    --------
    >>> listed(["a"]), listed(["a", "b"]), listed(["a", "b", "c"])
    ('a', 'a and b', 'a, b and c')
    >>> listed(["a", "b", "c", "d", "e", "f"], 4)
    'a, b, c and 3 more'
    """
    if limit is not None and len(parts) > limit:
        parts = [*parts[: limit - 1], f"{len(parts) - limit + 1} more"]
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)


def first_few(names: Sequence[str], most: int = 4) -> str:
    """Return the first names joined with commas, and how many more there are.

    Examples
    --------
    >>> first_few(["a", "b"]), first_few(["a", "b", "c"], 2)
    ('a, b', 'a, b and 1 more')
    """
    rest = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + rest


def ended(text: str) -> str:
    """Return text with one period at its end; nothing of nothing.

    Examples
    --------
    >>> ended("Fuse them. "), ended("Fuse them"), ended("")
    ('Fuse them.', 'Fuse them.', '')
    """
    return f"{text.rstrip('. ')}." if text else ""


def capital(text: str) -> str:
    """Return a sentence with a capital at its beginning."""
    return f"{text[:1].upper()}{text[1:]}"


def count(amount: int, noun: str, plural: str | None = None) -> str:
    """Return an amount with its noun: ``1 layer``, ``21 layers``."""
    return f"{amount:,} {noun if amount == 1 else plural or noun + 's'}"


class Readable(float):
    """A number that a sentence's format shows as people read it: never an exponent.

    A percentage has a blank before its sign, as every unit has.

    Examples
    --------
    >>> f"{Readable(1.65e10):.3g}, {Readable(4.0):.3g}, {Readable(208896):.0f}"
    '16.5 billion, 4, 208,896'
    >>> f"{Readable(208896):,.0f}"
    '208,896'
    >>> f"{Readable(0.07):.0%}, {Readable(0.002):.0%}, {Readable(0.0):.0%}"
    '7 %, under 1 %, 0 %'
    """

    def __format__(self, spec: str) -> str:
        """Return the number: large ones in words (``.3g``) or with thousands separators."""
        if spec.endswith("g"):
            for size, word in _LARGE:
                if abs(self) >= 0.9995 * size:
                    return f"{self / size:.3g} {word}"
            return f"{float(self):,.0f}" if abs(self) >= 999.5 else format(float(self), spec)
        if spec.endswith("%"):
            if spec == ".0%" and 0 < self < 0.005:
                return "under 1 %"
            return f"{float(self):{spec[:-1]}%}".replace("%", " %")
        if spec.endswith("f") and "," not in spec and abs(self) >= 10_000:
            return format(float(self), f",{spec}")
        return format(float(self), spec)


_NUMBERS: Mapping[str, Callable[..., str]] = {
    "us": micros,
    "number": number,
    "about": about,
    "x": multiple,
    "factor": factor_text,
    "percent": percent,
    "ratio": ratio_text,
    "and": listed,
    "first": first_few,
    "upper": str.upper,
}
"""What a sentence asks of a number or of names, by its word; a digit behind it is the second
argument."""
_CLAUSES = re.compile(r"\[\[(.*?)\]\]")


class _Sentence(Formatter):
    def format_field(self, value: Any, spec: str) -> str:
        """Return a number as people read it, by `_NUMBERS`, ``count NOUN|NOUNS``, or a format."""
        word, _, more = spec.partition(" ")
        if word == "count":
            return count(value, *more.split("|"))
        if word in _NUMBERS:
            return _NUMBERS[word](value, *map(int, more.split()))
        return format(Readable(value) if isinstance(value, float) else value, spec)


_FILLS = _Sentence()


@cache
def _table(package: str) -> Mapping[str, Mapping[str, str]]:
    return read_rows(f"perfml.{package}", "words.toml")


def say(sentence: str, /, **values: Any) -> str:
    """Return a row of a package's ``words.toml`` (``package.table.row``), filled.

    A clause in ``[[double brackets]]`` goes where one of its values is None, NaN or empty.
    """
    package, table, row = sentence.split(".")
    # text and clauses take turns
    parts = enumerate(_CLAUSES.split(_table(package)[table][row]))
    said = (text for place, text in parts if place % 2 == 0 or _known(text, values))
    return "".join(_FILLS.vformat(text, (), values) for text in said)


def _known(clause: str, values: Mapping[str, Any]) -> bool:
    names = [name for _, name, _, _ in _FILLS.parse(clause) if name]
    held = [_FILLS.get_field(name, (), values)[0] for name in names]
    return all(value == value and value not in (None, "", (), []) for value in held)
