"""Arithmetic over metric columns: parsed by hand, because the text may come from a user's file.

Grammar: ``sum := product (("+" | "-") product)*``, ``product := atom (("*" | "/") atom)*``,
``atom := number | metric | "(" sum ")" | "-" atom``. A metric name may hold letters, digits,
``_``, ``.`` and ``:`` as Nsight Compute's do.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from perfml.errors import PerfmlError

_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)|(?P<name>[A-Za-z_][\w.:]*)|(?P<op>[-+*/()]))"
)
_DEEPEST = 50
"""Nested parentheses allowed: more is no formula, and would exhaust Python's stack."""

Array = npt.NDArray[np.float64]
Lookup = Callable[[str], Array]


@dataclass(frozen=True)
class Expression:
    """A parsed formula over metric names; `names` are the metrics it reads, each once."""

    text: str
    names: tuple[str, ...]
    _program: tuple[tuple[str, str | float], ...]

    def __call__(self, lookup: Lookup) -> Array:
        """Evaluate over columns (n,) by name; a division by zero gives NaN, never infinity."""
        stack: list[Array] = []
        for kind, value in self._program:
            if kind == "number":
                stack.append(np.asarray(value, dtype=float))
            elif kind == "name":
                stack.append(np.asarray(lookup(str(value)), dtype=float))
            elif kind == "negate":
                stack.append(-stack.pop())
            else:
                right, left = stack.pop(), stack.pop()
                stack.append(_apply(kind, left, right))
        return stack[0]

    def number(self, lookup: Callable[[str], float]) -> float:
        """Evaluate for single numbers, without arrays; a division by zero gives NaN."""
        stack: list[float] = []
        for kind, value in self._program:
            if kind == "number":
                stack.append(float(value))
            elif kind == "name":
                stack.append(lookup(str(value)))
            elif kind == "negate":
                stack.append(-stack.pop())
            else:
                right, left = stack.pop(), stack.pop()
                if kind == "+":
                    stack.append(left + right)
                elif kind == "-":
                    stack.append(left - right)
                elif kind == "*":
                    stack.append(left * right)
                else:
                    stack.append(left / right if right != 0 else math.nan)
        return stack[0]


def parse(text: str) -> Expression:
    """Parse a formula.

    Raises `PerfmlError` if `text` is not a formula of the grammar above; the message holds the
    position.
    """
    tokens = _tokens(text)
    program: list[tuple[str, str | float]] = []
    position = 0

    def peek() -> str | None:
        return tokens[position][1] if position < len(tokens) else None

    def advance() -> tuple[str, str]:
        nonlocal position
        if position >= len(tokens):
            raise _syntax(text, len(text), "the end")
        position += 1
        kind, value, _ = tokens[position - 1]
        return kind, value

    def total(depth: int) -> None:
        product(depth)
        while peek() in {"+", "-"}:
            _, operator = advance()
            product(depth)
            program.append((operator, ""))

    def product(depth: int) -> None:
        atom(depth)
        while peek() in {"*", "/"}:
            _, operator = advance()
            atom(depth)
            program.append((operator, ""))

    def atom(depth: int) -> None:
        if depth > _DEEPEST:
            raise _syntax(text, tokens[position - 1][2], f"more than {_DEEPEST} nested parentheses")
        kind, value = advance()
        if kind == "number":
            program.append(("number", float(value)))
        elif kind == "name":
            program.append(("name", value))
        elif value == "-":
            atom(depth + 1)
            program.append(("negate", ""))
        elif value == "(":
            total(depth + 1)
            if peek() != ")":
                at = tokens[position][2] if position < len(tokens) else len(text)
                raise _syntax(text, at, peek() or "the end")
            advance()
        else:
            raise _syntax(text, tokens[position - 1][2], value)

    total(0)
    if position < len(tokens):
        raise _syntax(text, tokens[position][2], tokens[position][1])
    names = tuple(dict.fromkeys(str(value) for kind, value in program if kind == "name"))
    return Expression(text, names, tuple(program))


def _tokens(text: str) -> list[tuple[str, str, int]]:
    found: list[tuple[str, str, int]] = []
    position = 0
    while position < len(text.rstrip()):
        match = _TOKEN.match(text, position)
        if match is None or match.lastgroup is None:
            raise _syntax(text, position, text[position : position + 10])
        found.append((match.lastgroup, match.group(match.lastgroup), match.start(match.lastgroup)))
        position = match.end()
    return found


def _syntax(text: str, position: int, found: str) -> PerfmlError:
    return PerfmlError(
        "not a metric formula",
        where=f"character {position + 1} of {text[:120]!r}",
        found=found,
        cure="Allowed are metric names, numbers, + - * / and parentheses.",
    )


def _apply(operator: str, left: Array, right: Array) -> Array:
    if operator == "+":
        return left + right
    if operator == "-":
        return left - right
    if operator == "*":
        return left * right
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(right == 0, np.nan, np.divide(left, right))


if TYPE_CHECKING:
    import pandas as pd


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
