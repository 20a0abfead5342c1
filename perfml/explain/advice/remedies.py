"""What to do about causes, for each person: ``remedies.toml``, read here.

Here to change: a remedy is a row of ``remedies.toml``; a cause has one at most.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from perfml.explain.advice.persons import Person
from perfml.explain.launches import Launch
from perfml.explain.speed_of_light import LOW
from perfml.explain.tree.causes import TERMS
from perfml.util.files import read_rows, record
from perfml.util.words import Readable

COMPUTE_LEVEL, MEMORY_LEVEL = "compute_level", "memory_level"
"""Nsight Compute's own totals as counters of a launch: how busy the busiest unit of a kind is."""

_FIELD = re.compile(r"\{([A-Za-z_][\w.]*)(?::([,.\d%a-z]*))?\}")
_UNKNOWN = re.compile(r"[^,:;()]*\{-\}[^,:;()]*")  # a part of a sentence whose number is not known


@dataclass(frozen=True)
class NcuRule:
    """A rule of Nsight Compute that means the same: its name, and a pattern of its message."""

    rule: str
    message: re.Pattern[str] = re.compile("")

    def says(self, rule: str, message: str) -> bool:
        """Return whether a result of Nsight Compute is of this rule."""
        return self.rule == rule and self.message.search(message) is not None


@dataclass(frozen=True)
class ForUsers:
    """What a user of a library's kernel, or of PyTorch's, can do."""

    id: str  # remedies of one table are one thing to do
    library: str
    pytorch: str
    convolutions: str = ""  # what is said besides where convolutions run
    fuses: bool = False  # whether PyTorch's users fuse it with its neighbours: one thing to do


@dataclass(frozen=True)
class Remedy:
    """What helps against some causes; `remedies.toml` says what its fields mean."""

    id: str
    causes: tuple[str, ...]
    hazard: str
    below: str
    evidence: str
    author: str
    users: ForUsers
    source: str
    ncu: tuple[NcuRule, ...]

    def advice_for(self, person: Person, *, convolves: bool = True) -> str:
        """Return what a person can do about it; `convolves` where convolutions run."""
        if person is Person.AUTHOR:
            return self.author
        said = self.users.library if person is Person.LIBRARY else self.users.pytorch
        more = f" {self.users.convolutions}" if convolves and self.users.convolutions else ""
        return f"The kernel is {person.whose}. {said}{more}"

    def hazard_at(self, nearness: float) -> str:
        """Return the hazard in words; that a unit is the limit, from `LOW` of its ceiling on."""
        return self.hazard if nearness >= LOW else self.below

    def says(self, rule: str, message: str) -> bool:
        """Return whether a result of Nsight Compute means this."""
        return any(each.says(rule, message) for each in self.ncu)


@functools.cache
def load_remedies() -> tuple[tuple[Remedy, ...], Mapping[str, Remedy]]:
    """Return the remedies of causes, and those of layers by id."""
    rows = read_rows("perfml.explain.advice", "remedies.toml")
    users = {name: ForUsers(name, **texts) for name, texts in rows["users"].items()}
    layers = {row["id"]: _remedy(row, users) for row in rows["layer"]}
    return tuple(_remedy(row, users) for row in rows["remedy"]), layers


@functools.cache
def remedy_of(cause: str) -> Remedy | None:
    """Return the remedy of a cause, or of a hazard of layers; None where there is none."""
    remedies, layers = load_remedies()
    return next((each for each in remedies if cause in each.causes), layers.get(cause))


def _remedy(row: Mapping[str, Any], users: Mapping[str, ForUsers]) -> Remedy:
    ncu = tuple(
        NcuRule(each["rule"], re.compile(each.get("message", ""), re.I))
        for each in row.get("ncu", ())
    )
    usual = {"causes": (row["id"],), "below": row["hazard"]}
    if "causes" in row:
        usual["author"] = TERMS[row["causes"][0]].action
    return record(Remedy, {**usual, **row}, users=users[row["users"]], ncu=ncu)


def filled(text: str, value: Callable[[str], float]) -> str:
    """Return a sentence with its numbers, without the parts whose numbers are not known.

    Examples
    --------
    >>> filled("{a:.0%} of {b:.0f}, and {c:.0f} more", {"a": 0.25, "b": 4, "c": float("nan")}.get)
    '25 % of 4'
    """

    def one(match: re.Match[str]) -> str:
        number = value(match.group(1))
        return "{-}" if number != number else format(Readable(number), match.group(2) or "g")

    said = _UNKNOWN.sub("", _FIELD.sub(one, text)).replace("()", "")
    parts = (part.strip(" ,:") for part in said.split(";"))
    return "; ".join(re.sub(r"\s+", " ", part).replace(" ,", ",") for part in parts if part)


_ROOM = {"registers": "registers_per_thread", "shared_memory": "shared_memory_per_block"}
"""What limits how many blocks fit, and the counter of what one needs of it."""

_ACTIONS = {
    "registers": "Use fewer registers a thread (launch bounds, smaller tiles): with {needed:,.0f} "
    "of them {blocks:.0f} block(s) fit on a multiprocessor.",
    "shared_memory": "Ask for less shared memory: with {needed:,.0f} bytes a block {blocks:.0f} "
    "block(s) fit on a multiprocessor.",
}


def action_here(cause: str, launch: Launch) -> str | None:
    """Return what to do about a cause of a slow launch; None where the cause's row says all."""
    if cause != "theoretical_occupancy":
        return None
    fit = {
        name: launch[f"resident_blocks_limit_{name}"]
        for name in ("registers", "shared_memory", "warps", "slots")
    }
    known = {name: blocks for name, blocks in fit.items() if not math.isnan(blocks)}
    least = min(known, key=lambda name: known[name], default="")
    # one that allows as many blocks as another one does is not what keeps a further block out
    if least not in _ROOM or sorted(known.values())[:2].count(known[least]) > 1:
        return None
    needed = launch[_ROOM[least]]
    if math.isnan(needed):
        return None
    return _ACTIONS[least].format(needed=needed, blocks=known[least])
