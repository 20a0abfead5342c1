"""What causes look like in words and numbers, where launches are looked at on one side.

Here to change: the symptom of a cause stands in its section of ``explain/tree/causes.toml``, that
of layers in ``symptoms.toml``.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from perfml.chips.lookup import vendor
from perfml.explain.launches import Launch
from perfml.explain.remedies import Person, Situation, person_of
from perfml.explain.speed_of_light import LOW
from perfml.explain.tree.causes import ROWS
from perfml.explain.tree.library_kernels import does_arithmetic
from perfml.explain.tree.limits import load_limits
from perfml.metrics import load_catalogue
from perfml.util.files import read_rows, record
from perfml.util.findings import Evidence
from perfml.util.words import Readable

COMPUTE_LEVEL, MEMORY_LEVEL = "compute_level", "memory_level"
"""Nsight Compute's own totals as counters of a launch: how busy the busiest unit of a kind is."""

_FIELD = re.compile(r"\{([A-Za-z_][\w.]*)(?::([,.\d%a-z]*))?\}")
_UNKNOWN = re.compile(r"[^,:;()]*\{-\}[^,:;()]*")  # a part of a sentence whose number is not known


@dataclass(frozen=True)
class Symptom:
    """What some causes look like; ``causes.toml`` says what its fields mean."""

    id: str
    causes: tuple[str, ...]
    hazard: str
    below: str
    evidence: str
    source: str
    ncu: tuple[tuple[str, re.Pattern[str]], ...]  # names of rules, patterns of messages
    laws: str = ""  # the cause whose laws bound what a rule estimates; its own by default

    def hazard_at(self, nearness: float) -> str:
        """Return the hazard in words; that a unit is the limit, from `LOW` of its ceiling on."""
        return self.hazard if nearness >= LOW else self.below

    def says(self, rule: str, message: str) -> bool:
        """Return whether a result of Nsight Compute means this."""
        return any(rule == name and said.search(message) for name, said in self.ncu)


@functools.cache
def load_symptoms() -> tuple[tuple[Symptom, ...], Mapping[str, Symptom]]:
    """Return the symptoms of causes, and those of layers by id."""
    rows = read_rows("perfml.explain.advice", "symptoms.toml")["layer"]
    layers = {row["id"]: _symptom(row, (row["id"],)) for row in rows}
    return tuple(
        _symptom(
            row["symptom"], (cause, *(name for name in ROWS if ROWS[name].get("symptom") == cause))
        )
        for cause, row in ROWS.items()
        if isinstance(row.get("symptom"), dict)
    ), layers


@functools.cache
def symptom_of(cause: str) -> Symptom | None:
    """Return the symptom of a cause, or of a hazard of layers; None where there is none."""
    symptoms, layers = load_symptoms()
    return next((each for each in symptoms if cause in each.causes), layers.get(cause))


@functools.cache
def load_results() -> tuple[tuple[Symptom, ...], tuple[tuple[str, re.Pattern[str]], ...]]:
    """Return what rules of Nsight Compute can mean, and which of them say nothing to do."""
    rows = read_rows("perfml.explain.advice", "symptoms.toml")
    nothing = (
        (row.get("rule", ""), re.compile(row.get("message", ""), re.I)) for row in rows["nothing"]
    )
    words = (_symptom({"evidence": "", **row}, (row["id"],)) for row in rows["said"])
    return (*words, *load_symptoms()[0]), tuple(nothing)


def said_by(rule: str, message: str) -> tuple[Symptom, ...] | None:
    """Return what a result of Nsight Compute means; None where it says nothing to do."""
    means, nothing = load_results()
    if any(name in ("", rule) and text.search(message) for name, text in nothing):
        return None
    return tuple(one for one in means if one.says(rule, message))


def rule_of(message: str) -> str:
    """Return the rule of Nsight Compute that words a message so; empty where none is known to."""
    rules = read_rows("perfml.explain.advice", "symptoms.toml")["rules"].items()
    return next((name for name, says in rules if re.search(says, message, re.I)), "")


def _symptom(row: Mapping[str, Any], causes: tuple[str, ...]) -> Symptom:
    ncu = tuple(
        (each["rule"], re.compile(each.get("message", ""), re.I)) for each in row.get("ncu", ())
    )
    return record(Symptom, {"below": row["hazard"], **row}, causes=causes, ncu=ncu)


@functools.cache
def unit_of(quantity: str) -> str:
    """Return the unit of a counter or quantity; empty for a part of something, or a ratio."""
    catalogue = load_catalogue()
    if quantity in catalogue:
        unit = catalogue[quantity].unit
        return "" if unit == "fraction" else unit
    return str(read_rows("perfml.explain.limits", "quantities.toml")["units"].get(quantity, ""))


@functools.cache
def _ceilings() -> Mapping[str, float]:
    units = load_limits()[0]
    found = {name: unit.ceiling for unit in units for name in unit.time.names}
    return {name: most for name, most in found.items() if not name.startswith("share.")}


def ceiling_of(quantity: str) -> float:
    """Return the largest part of the time that a unit sustains; NaN of what is no unit's use."""
    return _ceilings().get(quantity, math.nan)


def numbers_of(
    text: str,
    slow: Callable[[str], float],
    fast: Callable[[str], float] = lambda _: math.nan,
    unit: str = "",
) -> tuple[Evidence, ...]:
    """Return the numbers of a sentence that are known, by the values on both sides.

    `unit` is that of numbers which have none of their own.
    """
    names = dict.fromkeys(match.group(1) for match in _FIELD.finditer(text))
    return tuple(
        Evidence(name, value, fast(name), unit_of(name) or unit, ceiling_of(name))
        for name in names
        if not math.isnan(value := slow(name))
    )


def filled(text: str, value: Callable[[str], float], most: int | None = None) -> str:
    """Return a sentence with its numbers, without the parts whose numbers are not known.

    `most` are the clauses that are kept; all by default.

    Examples
    --------
    >>> filled("{a:.0%} of {b:.0f}, and {c:.0f} more", {"a": 0.25, "b": 4, "c": float("nan")}.get)
    '25 % of 4'
    """

    def one(match: re.Match[str]) -> str:
        number = value(match.group(1))
        return "{-}" if number != number else format(Readable(number), match.group(2) or "g")

    said = _UNKNOWN.sub("", _FIELD.sub(one, text)).replace("()", "")
    parts = (part.strip(" ,:") for part in said.split(";")[:most])
    return "; ".join(re.sub(r"\s+", " ", part).replace(" ,", ",") for part in parts if part)


_ROOM = {"registers": "registers_per_thread", "shared_memory": "shared_memory_per_block"}
"""What limits how many blocks fit, and the counter of what one needs of it."""


def situation_of(
    launch: Launch, person: Person | None = None, *, convolves: bool = False, **numbers: float
) -> Situation:
    """Return where the causes of a launch are met, for the `person` whose kernel it is."""
    chip, limit = launch.chip, _limit_of_blocks(launch)
    if limit:
        needed, blocks = launch[_ROOM[limit]], launch[f"resident_blocks_limit_{limit}"]
        numbers = {**numbers, "needed": needed, "blocks": blocks}
    done = {"convolution": convolves, "product": does_arithmetic(launch.kernel)}
    return Situation(
        reader=person_of(launch.kernel) if person is None else person,
        kernel=launch.kernel,
        operations=frozenset(name for name, does in done.items() if does),
        capability=math.nan if chip.capability is None else float(chip.capability),
        amd=vendor(chip.name) == "amd",
        limit=limit,
        numbers=numbers,
    )


def _limit_of_blocks(launch: Launch) -> str:
    """Return what keeps a further block out; empty where that is not known, or several things."""
    fit = {
        name: launch[f"resident_blocks_limit_{name}"]
        for name in ("registers", "shared_memory", "warps", "slots")
    }
    known = {name: blocks for name, blocks in fit.items() if not math.isnan(blocks)}
    least = min(known, key=lambda name: known[name], default="")
    # one that allows as many blocks as another one does is not what keeps a further block out
    if least not in _ROOM or sorted(known.values())[:2].count(known[least]) > 1:
        return ""
    return "" if math.isnan(launch[_ROOM[least]]) else least
