"""Arithmetic over metric columns, which Python parses and never runs: a user may have written it.

Allowed are numbers, names of metrics, ``+ - * /`` and parentheses. A metric name may hold letters,
digits, ``_``, ``.`` and ``:`` as Nsight Compute's do.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from perfml.errors import PerfmlError

_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)|(?P<name>[A-Za-z_][\w.:]*)|(?P<op>[-+*/()]))"
)
_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
}
_DEEPEST = 300
"""Operations within each other; Python stops at some 900, less where it is called deeply."""

Array = npt.NDArray[np.float64]
Lookup = Callable[[str], Array]
Value = Callable[[Callable[[str], Any], Callable[[Any, Any], Any]], Any]
"""The value of a part of a formula, from what looks a name up and what divides."""


if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Expression:
    """A parsed formula over metric names; `names` are the metrics it reads, each once."""

    text: str
    names: tuple[str, ...]
    _value: Value = field(compare=False, repr=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return parse, (self.text,)

    def __call__(self, lookup: Lookup) -> Array:
        """Evaluate over columns (n,) by name; a division by zero gives NaN, never infinity."""

        def column(value: Any) -> Array:
            return np.asarray(value, dtype=float)

        return column(self._value(lambda name: column(lookup(name)), _divided))

    def number(self, lookup: Callable[[str], float]) -> float:
        """Evaluate for single numbers, without arrays; a division by zero gives NaN."""
        return float(self._value(lookup, _divided_number))


def parse(text: str) -> Expression:
    """Parse a formula.

    Raises `PerfmlError` if `text` is not a formula; the message holds the position.
    """
    text = text.strip()
    code = _plain(text)
    try:
        names: dict[str, None] = {}
        value = _value_of(ast.parse(code, mode="eval").body, text, names, _DEEPEST)
    except SyntaxError as error:
        place = min(max((error.offset or 1) - 1, 0), len(text))
        raise _syntax(text, place, text[place : place + 10] or "the end") from error
    except (RecursionError, MemoryError) as error:
        raise _syntax(text, 0, "more than 300 operations within each other") from error
    return Expression(text, tuple(names), value)


def _plain(text: str) -> str:
    """Return a formula with an identifier of the same length in place of each name."""
    code = ""
    while len(code) < len(text.rstrip()):
        match = _TOKEN.match(text, len(code))
        if match is None or match.lastgroup is None:
            raise _syntax(text, len(code), text[len(code) : len(code) + 10])
        token = match.group(match.lastgroup)
        shown = "_" * len(token) if match.lastgroup == "name" else token
        code += shown.rjust(len(match.group()))
    return code


def _value_of(node: ast.expr, text: str, names: dict[str, None], deepest: int) -> Value:
    """Return the value of a node of a formula; `names` gets the metrics that it reads."""
    if not deepest:
        raise RecursionError
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        number = float(node.value)
        return lambda lookup, divided: number
    if isinstance(node, ast.Name):
        name = text[node.col_offset : node.end_col_offset]
        names[name] = None
        return lambda lookup, divided: lookup(name)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        operand = _value_of(node.operand, text, names, deepest - 1)
        return lambda lookup, divided: -operand(lookup, divided)
    if not isinstance(node, ast.BinOp) or type(node.op) not in {*_ARITHMETIC, ast.Div}:
        raise _syntax(text, node.col_offset, ast.unparse(node)[:10])
    left, right = (_value_of(side, text, names, deepest - 1) for side in (node.left, node.right))
    combine = _ARITHMETIC.get(type(node.op))
    if combine is None:
        return lambda lookup, divided: divided(left(lookup, divided), right(lookup, divided))
    return lambda lookup, divided: combine(left(lookup, divided), right(lookup, divided))


def _syntax(text: str, position: int, found: str) -> PerfmlError:
    return PerfmlError(
        "not a metric formula",
        where=f"character {position + 1} of {text[:120]!r}",
        found=found,
        cure="Allowed are metric names, numbers, + - * / and parentheses.",
    )


def _divided_number(left: float, right: float) -> float:
    return left / right if right != 0 else math.nan


def _divided(left: Array, right: Array) -> Array:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(right == 0, np.nan, np.divide(left, right))


class RawCounters:
    """Counters by name, each taken out of its table once, however many formulas read it."""

    def __init__(self, raw: pd.DataFrame | Mapping[str, Array]) -> None:
        import pandas as pd  # not above: a sweep's workers read names only

        self._raw = raw
        self._names = frozenset(map(str, raw.keys()))
        self._taken: dict[str, Array] = {}
        if isinstance(raw, pd.DataFrame):
            self.index = raw.index
        else:
            self.index = pd.RangeIndex(len(next(iter(raw.values()), ())))

    def __len__(self) -> int:
        return len(self.index)

    def __call__(self, name: str) -> Array:
        """Return a counter, or a ``.pct`` from older reports' ``.ratio`` and ``.max_rate``."""
        found = self._taken.get(name)
        if found is None:
            if name in self._names:
                found = np.asarray(self._raw[name], dtype=float)
            else:
                base = name.removesuffix(".pct")
                with np.errstate(divide="ignore", invalid="ignore"):
                    found = 100.0 * self(f"{base}.ratio") / self(f"{base}.max_rate")
            self._taken[name] = found
        return found

    def held(self, name: str) -> bool:
        """Tell whether there is such a counter, or what it can be computed from."""
        if name in self._names:
            return True
        base = name.removesuffix(".pct")
        return base != name and {f"{base}.ratio", f"{base}.max_rate"} <= self._names

    def cover(self, expression: Expression) -> bool:
        """Tell whether every counter of a formula is there."""
        return all(map(self.held, expression.names))
