"""Arithmetic over metric columns, which Python parses and never runs: a user may have written it.

Allowed are numbers, names of metrics, ``+ - * /`` and parentheses. A metric name may hold letters,
digits, ``_``, ``.`` and ``:`` as Nsight Compute's do.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from perfml.errors import PerfmlError

_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)|(?P<name>[A-Za-z_][\w.:]*)|(?P<op>[-+*/()]))"
)
_OPERATORS: dict[type[ast.operator], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
}
_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
}

Array = npt.NDArray[np.float64]
Lookup = Callable[[str], Array]
Step = tuple[str, str | float]
"""What to do with a stack: push a ``number`` or what a ``name`` stands for, ``negate``, combine."""


if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Expression:
    """A parsed formula over metric names; `names` are the metrics it reads, each once."""

    text: str
    names: tuple[str, ...]
    _program: tuple[Step, ...]

    def __call__(self, lookup: Lookup) -> Array:
        """Evaluate over columns (n,) by name; a division by zero gives NaN, never infinity."""

        def column(value: Any) -> Array:
            return np.asarray(value, dtype=float)

        return column(self._evaluated(lambda name: column(lookup(name)), column, _divided))

    def number(self, lookup: Callable[[str], float]) -> float:
        """Evaluate for single numbers, without arrays; a division by zero gives NaN."""

        def divided(left: float, right: float) -> float:
            return left / right if right != 0 else math.nan

        return float(self._evaluated(lookup, float, divided))

    def _evaluated(
        self,
        lookup: Callable[[str], Any],
        made: Callable[[Any], Any],
        divided: Callable[[Any, Any], Any],
    ) -> Any:
        """Run the program; `made` turns its numbers into what `lookup` gives."""
        stack: list[Any] = []
        for kind, value in self._program:
            if kind == "number":
                stack.append(made(value))
            elif kind == "name":
                stack.append(lookup(str(value)))
            elif kind == "negate":
                stack.append(-stack.pop())
            else:
                right, left = stack.pop(), stack.pop()
                stack.append(_ARITHMETIC.get(kind, divided)(left, right))
        return stack[0]


def parse(text: str) -> Expression:
    """Parse a formula.

    Raises `PerfmlError` if `text` is not a formula; the message holds the position.
    """
    text = text.strip()
    code = _plain(text)
    try:
        program = tuple(_steps(ast.parse(code, mode="eval").body, text))
    except SyntaxError as error:
        place = min(max((error.offset or 1) - 1, 0), len(text))
        raise _syntax(text, place, text[place : place + 10] or "the end") from error
    except (RecursionError, MemoryError) as error:
        raise _syntax(text, 0, "too many nested parentheses") from error
    names = tuple(dict.fromkeys(str(value) for kind, value in program if kind == "name"))
    return Expression(text, names, program)


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


def _steps(node: ast.expr, text: str) -> Iterator[Step]:
    """Yield the steps of a formula, operands before what combines them."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        yield "number", float(node.value)
    elif isinstance(node, ast.Name):
        yield "name", text[node.col_offset : node.end_col_offset]
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        yield from _steps(node.operand, text)
        yield "negate", ""
    elif isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        yield from _steps(node.left, text)
        yield from _steps(node.right, text)
        yield _OPERATORS[type(node.op)], ""
    else:
        raise _syntax(text, node.col_offset, ast.unparse(node)[:10])


def _syntax(text: str, position: int, found: str) -> PerfmlError:
    return PerfmlError(
        "not a metric formula",
        where=f"character {position + 1} of {text[:120]!r}",
        found=found,
        cure="Allowed are metric names, numbers, + - * / and parentheses.",
    )


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
