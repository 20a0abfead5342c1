"""What is known of the registers of a kernel before it runs: where its accesses go."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from perfml.experiments.mutation.ptx import REGISTER, Statement

_IMMEDIATE = re.compile(r"-?(?:0x[0-9a-fA-F]+|\d+)")
_PASSES = 6
"""Over the kernel: facts of a register that loops change come round again."""
_SMALL = 64
"""A register that grows by no more than this in a loop walks from one element to the next."""


@dataclass(frozen=True)
class Value:
    """Facts of a register.

    Attributes
    ----------
    lane
        By how much it grows from one ``tid.x`` to the next; None where that is not known.
    varies
        Whether it differs within a warp.
    loaded
        Whether it comes from memory.
    walks
        Whether a loop moves it on by a small constant.
    pointer
        The register of the kernel's parameter to which an offset was added; empty without one.
    """

    lane: int | None = 0
    varies: bool = False
    loaded: bool = False
    walks: bool = False
    pointer: str = ""

    def joined(self, other: Value) -> Value:
        """Return what holds of both."""
        return Value(
            self.lane if self.lane == other.lane else None,
            self.varies or other.varies,
            self.loaded or other.loaded,
            self.walks or other.walks,
            self.pointer if self.pointer == other.pointer else "",
        )


_UNIFORM = Value()
_LANE = Value(lane=1, varies=True)
_SPECIAL = {"%tid.x": _LANE, "%laneid": _LANE}


def values(statements: Sequence[Statement]) -> dict[str, Value]:
    """Return the facts of every register of a kernel."""
    known: dict[str, Value] = {}
    for _ in range(_PASSES):
        before = dict(known)
        made: dict[str, Value] = {}
        for statement in statements:
            for register in statement.written:
                fact = _result(statement, register, known)
                if fact is not None:
                    made[register] = made[register].joined(fact) if register in made else fact
                    known[register] = made[register]
        known.update(made)
        if known == before:
            break
    return known


def _operand(text: str, known: dict[str, Value]) -> Value | None:
    text = text.strip()
    if text in _SPECIAL:
        return _SPECIAL[text]
    if not text.startswith("%") or "." in text:
        return _UNIFORM
    return known.get(text)


def _result(statement: Statement, register: str, known: dict[str, Value]) -> Value | None:
    kind = statement.parts[0]
    if kind == "ld":
        space = statement.parts[1]
        if space == "param":
            return Value(pointer=register if statement.width == 8 else "")
        address = statement.address
        varies = address is None or known.get(address.base, _UNIFORM).varies
        return Value(None if varies else 0, varies, loaded=True)
    if kind in ("atom", "shfl"):
        return Value(None, varies=True, loaded=True)
    taken = [_operand(text, known) for text in statement.operands[1:]]
    facts = [each for each in taken if each is not None]
    if not facts:
        return None
    together = facts[0]
    for each in facts[1:]:
        together = together.joined(each)
    lane = _lane(statement, [each or _UNIFORM for each in taken])
    moved = _moves_itself(statement, register)
    # what is one number for a warp, as the number of the warp is
    varies = together.varies and (lane != 0 or together.loaded)
    pointers = [each.pointer for each in facts if each.pointer]
    follows = kind in ("add", "sub", "mov", "cvta", "cvt")
    pointer = pointers[0] if follows and len(pointers) == 1 else ""
    return Value(lane, varies, together.loaded, together.walks or moved, pointer)


def _moves_itself(statement: Statement, register: str) -> bool:
    kind, operands = statement.parts[0], statement.operands
    if kind not in ("add", "sub") or len(operands) != 3 or register not in operands[1:]:
        return False
    step = operands[2] if operands[1] == register else operands[1]
    return _IMMEDIATE.fullmatch(step) is not None and abs(int(step, 0)) <= _SMALL


def _lane(statement: Statement, taken: Sequence[Value]) -> int | None:
    """Return by how much the result grows from lane to lane, where the operation is linear."""
    kind, numbers = statement.parts[0], statement.operands[1:]
    lanes = [each.lane for each in taken]
    if all(each == 0 for each in lanes):
        return 0
    if any(each is None for each in lanes):
        return None
    known = [each or 0 for each in lanes]
    if kind in ("mov", "cvta", "cvt"):
        return known[0]
    if kind == "add":
        return known[0] + known[1]
    if kind == "sub":
        return known[0] - known[1]
    if kind == "or":
        # bits that do not meet: an index that was shifted, and the lane
        return known[0] + known[1] if 0 in known else None
    number = _IMMEDIATE.fullmatch(numbers[-1])
    if kind in ("and", "shr") and number and known[0] == 1:
        bits = int(number[0], 0)
        return _of_lane_bits(kind, bits)
    if kind in ("mul", "mad", "shl"):
        product = _product(kind, numbers, known)
        return None if product is None else product + (known[2] if kind == "mad" else 0)
    return None


def _of_lane_bits(kind: str, number: int) -> int | None:
    """Return the growth of ``tid.x & number`` or ``tid.x >> number`` within a warp of 32."""
    if kind == "shr":
        return 0 if number >= 5 else None
    return {31: 1, 0: 0}.get(number & 31)


def _product(kind: str, numbers: Sequence[str], known: Sequence[int]) -> int | None:
    if known[0] == known[1] == 0:
        return 0
    if kind == "shl":
        shift = _IMMEDIATE.fullmatch(numbers[1])
        return known[0] << int(shift[0], 0) if shift else None
    for factor, lane in ((numbers[1], known[0]), (numbers[0], known[1])):
        if _IMMEDIATE.fullmatch(factor):
            return int(factor, 0) * lane
    return None


def steering(statements: Sequence[Statement]) -> frozenset[str]:
    """Return the registers on which an address or a branch depends."""
    chosen: set[str] = set()
    for each in statements:
        if each.address is not None:
            chosen.add(each.address.base)
        if each.guard:
            chosen.add(each.guard.lstrip("!"))
    size = -1
    while size != len(chosen):
        size = len(chosen)
        for each in statements:
            if chosen.intersection(each.written):
                chosen.update(r for r in each.read if REGISTER.fullmatch(r))
    return frozenset(chosen)
