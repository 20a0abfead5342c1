"""Rules of advice: data in ``rules.toml`` or a user's file, read and checked here.

Nothing in a rule is executed: comparisons and gains are formulas of `perfml.metrics.expressions`,
sentences hold names in braces with a number format.
"""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from perfml.errors import InputError, PerfmlError
from perfml.explain.advice.cures import CURES
from perfml.explain.advice.persons import Person
from perfml.explain.tree.causes import TERMS, Kind
from perfml.metrics.expressions import Array, Expression, parse
from perfml.tables import require_file
from perfml.util.typing import Flags
from perfml.util.words import Readable

SCOPES = ("kernel", "layer")
_COMPARISON = re.compile(r"^(.*?)(<=|>=|<|>)(.*)$", re.DOTALL)
_FIELD = re.compile(r"\{([A-Za-z_]\w*)(?::([,.\d%a-z]*))?\}")
_COMPARE: dict[str, Callable[[Array, Array], Any]] = {
    "<": np.less,
    ">": np.greater,
    "<=": np.less_equal,
    ">=": np.greater_equal,
}
_TEXTS = ("id", "hazard", "evidence", "mitigation", "gain_low", "gain_high", "source")


@dataclass(frozen=True)
class Condition:
    """A comparison of two formulas."""

    text: str
    left: Expression
    operator: str
    right: Expression

    @property
    def names(self) -> tuple[str, ...]:
        """The inputs it reads."""
        return tuple(dict.fromkeys((*self.left.names, *self.right.names)))


@dataclass(frozen=True)
class NcuRule:
    """A rule of Nsight Compute that means the same: its name, and a pattern of its message."""

    rule: str
    message: re.Pattern[str] | None


@dataclass(frozen=True)
class OfUsers:
    """What a user of a library's kernel, or of PyTorch's, can do: its author's text is none.

    Attributes
    ----------
    library, pytorch
        The texts.
    convolutions
        What is said besides where convolutions run.
    fuses
        Whether PyTorch's users fuse the kernel with its neighbours, so that the hazards of all that
        are fused have one cure.
    """

    library: str
    pytorch: str
    fuses: bool = False
    convolutions: str = ""

    def of(self, person: Person) -> str | None:
        """Return what a person can do; None for the author of the kernel."""
        return {Person.LIBRARY: self.library, Person.PYTORCH: self.pytorch}.get(person)


@dataclass(frozen=True)
class Rule:
    """One rule; `perfml/explain/advice/rules.toml` says what its fields mean."""

    id: str
    scope: str
    hazard: str
    when: tuple[Condition, ...]
    evidence: str
    mitigation: str
    gain_low: Expression
    gain_high: Expression
    relieves: tuple[str, ...]
    source: str
    precisions: tuple[str, ...]
    single: bool
    ncu: tuple[NcuRule, ...]
    term: str | None = None
    cure: str | None = None
    symptom_of: tuple[str, ...] = ()
    potential: bool = False
    users: OfUsers | None = None
    limit: tuple[str, ...] = ()
    exact: bool = False
    beside: tuple[str, ...] = ()

    def advice_for(self, person: Person, *, convolves: bool = True) -> str:
        """Return what a person can do about it; `convolves` where convolutions run."""
        said = None if self.users is None else self.users.of(person)
        if self.users is None or said is None:
            return self.mitigation
        more = f" {self.users.convolutions}" if convolves and self.users.convolutions else ""
        return f"The kernel is {person.whose}. {said}{more}"

    @property
    def inferred(self) -> bool:
        """Whether it says where time goes, or that nothing hides it, and not what takes it.

        What a unit did, what a request moved and which multiprocessors were idle is counted. That
        warps wait, or are few, is counted too, but not what for.
        """
        return self.term is not None and TERMS[self.term].kind in (Kind.STALL, Kind.OCCUPANCY)

    @property
    def counted(self) -> bool:
        """Whether it says what was done, which a fix need not do."""
        return not (self.inferred or self.potential)

    @property
    def compared(self) -> tuple[str, ...]:
        """Every input that the comparisons read."""
        return tuple(dict.fromkeys(name for condition in self.when for name in condition.names))

    @property
    def needed(self) -> tuple[str, ...]:
        """Every input that the comparisons and the gains read."""
        gains = (*self.gain_low.names, *self.gain_high.names)
        return tuple(dict.fromkeys((*self.compared, *gains)))

    @property
    def said(self) -> tuple[str, ...]:
        """Every input that the evidence shows."""
        return tuple(dict.fromkeys(match.group(1) for match in _FIELD.finditer(self.evidence)))

    def holds(self, lookup: Callable[[str], Array], count: int) -> tuple[Flags, Flags]:
        """Evaluate the comparisons.

        Returns
        -------
        tuple of ndarray
            Whether each row meets all of them, and whether it could be told: a comparison with an
            undefined input can only be told where another one fails.
        """
        met: Flags = np.ones(count, dtype=bool)
        failed: Flags = np.zeros(count, dtype=bool)
        for condition in self.when:
            left = np.broadcast_to(condition.left(lookup), count)
            right = np.broadcast_to(condition.right(lookup), count)
            known = ~(np.isnan(left) | np.isnan(right))
            true = known & _COMPARE[condition.operator](left, right)
            met &= true
            failed |= known & ~true
        return met, met | failed


@dataclass(frozen=True)
class Rules:
    """All rules of a file, and what the inputs need to know."""

    rules: tuple[Rule, ...]
    short_us: float
    transforms: re.Pattern[str]

    def __iter__(self) -> Any:
        return iter(self.rules)


def filled(text: str, values: Mapping[str, float]) -> str:
    """Return a sentence with its numbers; a number that is not known is a dash.

    A merged layer has no grid of its own: there "the blocks" stand for how many of what size. Of a
    product whose sizes nobody recorded, the kernel's name tells how its rows are aligned.

    Examples
    --------
    >>> filled("{a:.0%} of {b}", {"a": 0.25})
    '25 % of -'
    >>> filled("{blocks:.0f} blocks of {block_threads:.0f} threads are few", {})
    'the blocks are few'
    """

    def one(match: re.Match[str]) -> str:
        value = values.get(match.group(1), float("nan"))
        return "-" if np.isnan(value) else format(Readable(value), match.group(2) or "g")

    said = _FIELD.sub(one, text).replace("- blocks of - threads", "the blocks")
    return said.replace("n -, k -: rows", "the kernel's name says that rows")


@functools.cache
def shipped_rules() -> Rules:
    """Return the rules that come with perfml."""
    text = resources.files(__package__).joinpath("rules.toml").read_text(encoding="utf-8")
    return read_rules(text, "rules.toml")


def load_rules(path: str | Path | None) -> Rules:
    """Return the rules of a file, or perfml's own.

    Raises
    ------
    InputError
        If it is no file of rules; the message names the rule and what is wrong with it.
    """
    if path is None:
        return shipped_rules()
    path = Path(path)
    require_file(path)
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise _broken(str(path), "no UTF-8 text") from error
    return read_rules(text, str(path))


def read_rules(text: str, where: str) -> Rules:
    """Parse and check rules in TOML; see `load_rules`."""
    try:
        document = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise _broken(where, str(error)[:200]) from error
    tables = document.get("rule")
    if not isinstance(tables, list) or not tables:
        raise _broken(where, "no [[rule]]")
    users = _users(document.get("users", {}), where)
    rules = tuple(_rule(table, where, place, users) for place, table in enumerate(tables))
    names = [rule.id for rule in rules]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise _broken(where, f"two rules called {twice[0]}")
    inputs = document.get("inputs", {})
    try:
        short = float(inputs.get("short_us", 5.0))
        transforms = re.compile(str(inputs.get("transforms", "im2col")), re.IGNORECASE)
    except (AttributeError, TypeError, ValueError, re.error) as error:
        raise _broken(where, f"[inputs]: {error}"[:200]) from error
    return Rules(rules, short, transforms)


def _users(tables: Any, where: str) -> dict[str, OfUsers]:
    try:
        return {
            str(name): OfUsers(
                str(texts["library"]),
                str(texts["pytorch"]),
                bool(texts.get("fuses", False)),
                str(texts.get("convolutions", "")),
            )
            for name, texts in tables.items()
        }
    except (AttributeError, KeyError, TypeError) as error:
        msg = f"[users]: a table of `library` and `pytorch` each ({error})"
        raise _broken(where, msg[:200]) from error


def _rule(table: Any, where: str, place: int, users: Mapping[str, OfUsers]) -> Rule:
    if not isinstance(table, dict):
        raise _broken(where, f"rule {place + 1} is no table")
    name = str(table.get("id", f"rule {place + 1}"))
    place_in = f"{where}, rule {name}"
    missing = [key for key in (*_TEXTS, "when") if key not in table]
    if missing:
        raise _broken(place_in, f"lacks {', '.join(missing)}")
    scope = str(table.get("scope", "kernel"))
    if scope not in SCOPES:
        raise _broken(place_in, f"scope {scope!r}")
    try:
        return Rule(
            id=name,
            scope=scope,
            hazard=str(table["hazard"]),
            when=tuple(_condition(str(text)) for text in table["when"]),
            evidence=str(table["evidence"]),
            mitigation=str(table["mitigation"]),
            gain_low=parse(str(table["gain_low"])),
            gain_high=parse(str(table["gain_high"])),
            relieves=tuple(map(str, table.get("relieves", ()))),
            source=str(table["source"]),
            precisions=tuple(map(str, table.get("precisions", ()))),
            single=bool(table.get("single", False)),
            ncu=tuple(_ncu(each) for each in table.get("ncu", ())),
            term=_term(table.get("term")),
            cure=None if table.get("cure") is None else str(table["cure"]),
            symptom_of=tuple(map(str, table.get("symptom_of", ()))),
            potential=bool(table.get("potential", False)),
            users=None if table.get("users") is None else users[str(table["users"])],
            limit=tuple(map(str, table.get("limit", ()))),
            exact=bool(table.get("exact", False)),
            beside=tuple(map(str, table.get("beside", ()))),
        )
    except PerfmlError as error:
        raise _broken(place_in, f"{error.what}: {error.where}, {error.found}") from error
    except (TypeError, AttributeError, KeyError, ValueError, re.error) as error:
        raise _broken(place_in, str(error)[:200]) from error


def _term(name: Any) -> str | None:
    if name is None:
        return None
    if name not in CURES:
        msg = f"no cause with an estimate: {str(name)[:80]!r}"
        raise ValueError(msg)
    return str(name)


def _condition(text: str) -> Condition:
    match = _COMPARISON.match(text)
    if match is None:
        msg = f"no comparison: {text[:80]!r}"
        raise ValueError(msg)
    return Condition(text.strip(), parse(match.group(1)), match.group(2), parse(match.group(3)))


def _ncu(table: Mapping[str, Any]) -> NcuRule:
    message = table.get("message")
    pattern = None if message is None else re.compile(str(message), re.IGNORECASE)
    return NcuRule(str(table["rule"]), pattern)


def _broken(where: str, found: str) -> InputError:
    msg = "not a file of advice rules"
    cure = "perfml/explain/advice/rules.toml is an example, and says what a rule holds."
    return InputError(msg, where=where, found=found, cure=cure)
