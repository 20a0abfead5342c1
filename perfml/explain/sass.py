"""What the text of a machine instruction tells: its operation, and which value it waits for."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import chain

_PREDICATE = re.compile(r"@!?\w+ ")
_REGISTER = re.compile(r"\bR(\d+)\b")
_WIDE = {"64": 2, "128": 4}
_NO_RESULT = ("ST", "RED", "BAR", "BRA", "EXIT", "MEMBAR")

SLOW = {
    "long_scoreboard": ("LDG", "LD", "LDL", "ATOM", "ATOMG", "TEX", "TLD4", "TLD"),
    "short_scoreboard": ("LDS", "LDSM", "MUFU", "ATOMS", "SHFL", "S2R"),
}
"""Operations whose results a warp waits for under that name of a stall."""


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


def written(sass: str) -> range:
    """Return the numbers of the registers that an instruction writes.

    Examples
    --------
    >>> written("LDG.E.128 R4, [R2.64]")
    range(4, 8)
    >>> written("STG.E [R2.64], R4")
    range(0, 0)
    """
    operation, _, operands = without_predicate(sass).partition(" ")
    first = _REGISTER.match(operands)
    if first is None or operation.startswith(_NO_RESULT):
        return range(0)
    size = next((_WIDE[part] for part in operation.split(".") if part in _WIDE), 1)
    return range(int(first.group(1)), int(first.group(1)) + size)


def read(sass: str) -> set[int]:
    """Return the numbers of the registers that an instruction reads.

    Examples
    --------
    >>> sorted(read("FFMA R8, R8, R41, R25")), sorted(read("STS [R6.X4], R17"))
    ([8, 25, 41], [6, 17])
    """
    operands = without_predicate(sass).partition(" ")[2]
    if written(sass):
        operands = operands.partition(",")[2]
    return {int(number) for number in _REGISTER.findall(operands)}


def awaited(code: Sequence[str], place: int, reason: str) -> int | None:
    """Return the place of the instruction for whose result another one waits.

    For each register that it reads the nearest one before it that writes it counts; behind it, in
    a loop, if none lies before. None where none of them is slow in the way that the stall is named
    for.

    Parameters
    ----------
    code
        A kernel's instructions, in order.
    place
        Of the one that waits.
    reason
        Nsight Compute's name of the stall: a key of `SLOW`.
    """
    needed = read(code[place])
    for at in chain(range(place - 1, -1, -1), range(len(code) - 1, place, -1)):
        given = needed.intersection(written(code[at]))
        if given and opcode(code[at]) in SLOW.get(reason, ()):
            return at
        if not code[at].startswith("@"):  # else the value may come from further above
            needed -= given
    return None
