"""The instructions behind an answer: the reports that hold them, and what their text tells."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import pandas as pd

from perfml.datasets import Input
from perfml.datasets.selection import split_place
from perfml.errors import InputError, MissingExtraError
from perfml.readers import Source, recognise
from perfml.readers.ncu import report
from perfml.readers.ncu.instructions import Wanted, instructions
from perfml.util.files import sha256_of_file

_PREDICATE = re.compile(r"@!?(\w+) ")
_REGISTER = re.compile(r"\b(U?[RP]\d+)\b")
_WIDE = {"64": 2, "128": 4}
_NO_RESULT = ("ST", "RED", "BAR", "BRA", "EXIT", "MEMBAR")
_BARRIER = "BAR"
_BRANCHES = ("BRA", "BRX", "JMP", "CALL", "RET", "EXIT", "BSYNC", "BREAK")

SLOW = {
    "long_scoreboard": ("LDG", "LD", "LDL", "ATOM", "ATOMG", "TEX", "TLD4", "TLD", "SYNCS"),
    "short_scoreboard": ("LDS", "LDSM", "MUFU", "ATOMS", "SHFL", "S2R"),
}
"""Operations whose results a warp waits for under that name of a stall. SYNCS asks whether a
barrier in shared memory, such as that of a bulk copy, is complete."""


def without_predicate(sass: str) -> str:
    """Return an instruction without the condition before it.

    Examples
    --------
    >>> without_predicate("@!P0 LDG.E R4, [R2.64]")
    'LDG.E R4, [R2.64]'
    """
    return _PREDICATE.sub("", sass, count=1) if sass.startswith("@") else sass


def opcode(sass: str) -> str:
    """Return the operation without its modifiers.

    Examples
    --------
    >>> opcode("@!P0 LDG.E.128 R4, [R2.64]")
    'LDG'
    """
    return re.split(r"[. ]", without_predicate(sass), maxsplit=1)[0]


def written(sass: str) -> frozenset[str]:
    """Return the registers that an instruction writes.

    Examples
    --------
    >>> sorted(written("LDG.E.128 R4, [R2.64]")), sorted(written("ISETP.NE.AND P0, PT, R3, R2, PT"))
    (['R4', 'R5', 'R6', 'R7'], ['P0'])
    >>> sorted(written("STG.E [R2.64], R4"))
    []
    """
    operation, _, operands = without_predicate(sass).partition(" ")
    first = _REGISTER.match(operands)
    if first is None or operation.startswith(_NO_RESULT):
        return frozenset()
    name = first.group(1)
    if not name.startswith("R"):
        return frozenset({name})
    size = next((_WIDE[part] for part in operation.split(".") if part in _WIDE), 1)
    return frozenset(f"R{number}" for number in range(int(name[1:]), int(name[1:]) + size))


def read(sass: str) -> set[str]:
    """Return the registers that an instruction reads; its condition is one.

    Examples
    --------
    >>> sorted(read("FFMA R8, R8, R41, R25")), sorted(read("@!P0 STS [R6.X4], R17"))
    (['R25', 'R41', 'R8'], ['P0', 'R17', 'R6'])
    """
    condition = _PREDICATE.match(sass)
    operands = without_predicate(sass).partition(" ")[2]
    if written(sass):
        operands = operands.partition(",")[2]
    found = set(_REGISTER.findall(operands))
    return found | set(_REGISTER.findall(condition.group(1))) if condition else found


@dataclass(frozen=True)
class Code:
    """A kernel's instructions, in order."""

    sass: Sequence[str]

    @cached_property
    def operations(self) -> list[str]:
        """The operation of each instruction."""
        return [opcode(each) for each in self.sass]

    @cached_property
    def written(self) -> list[frozenset[str]]:
        """The registers that each instruction writes."""
        return [written(each) for each in self.sass]

    def awaited(self, place: int, reason: str) -> int | None:
        """Return the place of the instruction that another one waits for."""
        # A warp that has come to a barrier is sampled at what follows. Else, for each register that
        # it reads, the nearest one before it that writes it counts; behind it, in a loop, if none
        # lies before. None where none of them is slow in the way that the stall is named for.
        if reason == "barrier":
            return self._barrier_before(place)
        slow = SLOW.get(reason, ())
        needed = read(self.sass[place])
        for at in chain(range(place - 1, -1, -1), range(len(self.sass) - 1, place, -1)):
            if not slow or not needed:
                return None
            given = self.written[at]
            if not needed.isdisjoint(given):
                if self.operations[at] in slow:
                    return at
                if not self.sass[at].startswith("@"):  # else the value may come from further above
                    needed -= given
        return None

    def _barrier_before(self, place: int) -> int | None:
        """Return the barrier that every warp passed just before it came here."""
        if self.operations[place] == _BARRIER:
            return None
        for at in range(place - 1, -1, -1):
            if self.operations[at] == _BARRIER:
                return at
            if self.operations[at] in _BRANCHES:
                return None
        return None


_ENDING = ".ncu-rep"
_COLLECTED = f"metrics{_ENDING}"
"""What `perfml collect` leaves in a run's folder beside the table that is read."""


@dataclass(frozen=True)
class Report:
    """A report, and the launches of it that are meant."""

    source: Source
    run_id: str  # what was read from it
    launches: frozenset[int] | None = None  # their places in it, from 0; None for all
    has_instructions: bool = True  # whether it may have counters of single instructions


def reports_behind(given: Input, kernels: pd.DataFrame | None = None) -> list[Report]:
    """Return the reports that a table was read from; none where it was read from other files.

    `kernels` are launches of the runs that are asked for; all runs by default.
    """
    path = Path(split_place(given.name)[0])
    runs = None if kernels is None else set(kernels["run_id"].dropna().astype(str))
    files = Counter(each.get("run_id") for each in given.sources)
    found = []
    for each in given.sources:
        if runs is not None and each.get("run_id") not in runs:
            continue
        source = next(_reports_of(each, path), None)
        if source is not None:
            run_id = str(each.get("run_id"))
            # with times of another pass a launch has a row for each of that one's iterations
            alone = files[each.get("run_id")] == 1
            places = given.places.get(run_id, frozenset()) if given.places and alone else None
            found.append(Report(source, run_id, places, each.get("instructions", True)))
    return found


def _reports_of(known: Mapping[str, Any], path: Path) -> Iterator[Source]:
    """Yield the reports that one source of a table is, or has beside it."""
    inside = [path] if path.is_file() else sorted(path.rglob(f"*{_ENDING}*"))
    for each in inside:
        read = each if known.get("format") == report.NAME else each.parent / str(known.get("path"))
        same = read.name == known.get("path") and (read == each or each.name == _COLLECTED)
        with suppress(InputError, OSError):
            if same and read.is_file() and sha256_of_file(read) == known.get("sha256"):
                source = Source(each)
                if recognise(source).NAME == report.NAME:
                    yield source


def code_of(*sides: tuple[Sequence[Report], set[str]]) -> list[dict[str, pd.DataFrame]]:
    """Return the instructions of the kernels of each side, each of the first launch meant."""
    # A report that is behind both sides is opened once: it may take a gigabyte of memory.
    found: list[dict[str, pd.DataFrame]] = [{} for _ in sides]
    sources = {each.source.path: each.source for reports, _ in sides for each in reports}
    for path, source in sources.items():
        asked = [
            (tables, Wanted(kernels - tables.keys(), each.launches))
            for tables, (reports, kernels) in zip(found, sides, strict=True)
            for each in reports
            if each.source.path == path and each.has_instructions and kernels - tables.keys()
        ]
        # a table that was read without the package tells what it tells without it
        with suppress(MissingExtraError):
            told = instructions(source, *(wanted for _, wanted in asked)) if asked else []
            for (tables, _), code in zip(asked, told, strict=True):
                tables |= code
    return found
