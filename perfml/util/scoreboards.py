"""Which instruction another one waits for, as machine code says itself.

An instruction of Volta and later has 16 bytes, and some of the bits are for the scheduler of warps.
One whose latency is not fixed raises one of six scoreboards until its result is written (bits 110
to 112), and one until its operands are read (113 to 115). An instruction is not issued before all
scoreboards of its mask (116 to 121) are at zero (Jia et al. 2018, "Dissecting the NVIDIA Volta GPU
Architecture via Microbenchmarking", section 2.1). So the code names what is waited for, also where
no register tells it: a store whose address is overwritten after it.

Here to change: the numbers of operations, which were read off what nvdisasm 13.0 prints for code of
nvcc for 7.5 to 12.0 (branches: all of 2,273 in eight architectures).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import cached_property

from perfml.util.machine_code import Function

SIZE = 16
"""Bytes of an instruction."""

_NONE = 7
"""Number in the place of a scoreboard, or of a condition, where there is none."""
_BRANCH, _UNIFORM_BRANCH, _CALL = 0x947, 0x547, 0x944
_LEAVES = (0x94D, 0x950, 0x949, 0x94A)
"""EXIT, RET, BRX and JMP: what follows in the code does not follow in time."""
_VOLTA = 70
_OF_90 = 90
"""From this architecture on a branch has the lowest byte of its distance apart."""

_BARRIER, _EXIT, _NANOSLEEP = 0x11D, 0x14D, 0x15D
_ATOMICS = frozenset({0x18A, 0x18E, 0x1A6, 0x1A8, 0x1A9})
"""ATOM, RED (0x1A6 of floating-point numbers on 9.0) and ATOMG, with and without compare: they take
longer than stores to end."""
_STORES = frozenset({0x185, 0x186, 0x187, 0x19D}) | _ATOMICS
"""ST, STG, STL and SUST too."""
_OF_L1TEX = frozenset(
    {*range(0x160, 0x170), 0x180, 0x181, 0x183, 0x18F, 0x199, 0x1AE, 0x1AF, *_STORES}
)
"""Textures, LD, LDG, LDL, ATOM, CCTL, SULD, ATOMG, LDGSTS: a long scoreboard is of these."""

LONG, SHORT = "long_scoreboard", "short_scoreboard"
AT_BARRIER, DRAIN, SLEEPING = "barrier", "drain", "sleeping"
"""Stall reasons for which something else than the sampled instruction is named."""


class Scoreboards:
    """The instructions of a function, by their places in it.

    Parameters
    ----------
    function
        Of older architectures than Volta nothing is known.
    """

    def __init__(self, function: Function) -> None:
        known = function.architecture >= _VOLTA
        whole = len(function.code) // SIZE * SIZE if known else 0
        self._words: list[tuple[int, int]] = list(struct.iter_unpack("<QQ", function.code[:whole]))
        self._architecture = function.architecture

    def awaited(self, offset: int, reason: str) -> tuple[int, ...]:
        """Return the offsets of the instructions that a sampled one waits for.

        Parameters
        ----------
        offset
            Of the sampled instruction, in bytes from the start of the function.
        reason
            Of its stall, as Nsight Compute calls it without a prefix.

        Returns
        -------
        tuple of int
            For a scoreboard all that raise one that it waits for. A warp that has come to a barrier
            or sleeps is sampled at what follows: the barrier, the sleep. So is one that has ended
            and waits for its stores: the last atomics, or the last stores where there is none.
            Empty where it waits for itself, or the code does not tell.
        """
        place = offset // SIZE
        if not 0 <= place < len(self._words):
            return ()
        if reason in (LONG, SHORT):
            return self._raising(place, of_l1tex=reason == LONG)
        if reason == AT_BARRIER and self._operation(place) != _BARRIER:
            return self._nearest(place, frozenset({_BARRIER}))
        if reason == SLEEPING:
            return self._nearest(place, frozenset({_NANOSLEEP}))
        if reason == DRAIN:
            end = place if self._operation(place) == _EXIT else place - 1
            if end >= 0 and self._operation(end) == _EXIT:
                return self._nearest(end, _ATOMICS) or self._nearest(end, _STORES)
        return ()

    def callers(self, subroutine: int) -> tuple[int, ...]:
        """Return the offsets of the instructions that call what stands at an offset."""
        return tuple(
            place * SIZE
            for place, (low, _) in enumerate(self._words)
            if low & 0xFFF == _CALL and place + 1 + self._distance(place) == subroutine // SIZE
        )

    def _raising(self, place: int, *, of_l1tex: bool) -> tuple[int, ...]:
        found: set[int] = set()
        for scoreboard in range(6):
            if self._waits(place) >> scoreboard & 1:
                found |= self._raises(place, scoreboard)
        slow = {at for at in found if (self._operation(at) in _OF_L1TEX) == of_l1tex}
        return tuple(at * SIZE for at in sorted(slow or found))

    def _raises(self, place: int, scoreboard: int) -> set[int]:
        """Return what raises a scoreboard on the ways to a place, since it was last waited for."""
        found = set()
        seen: set[int] = set()
        open_ = list(self._before[place])
        while open_:
            at = open_.pop()
            if at in seen:
                continue
            seen.add(at)
            if scoreboard in self._raised(at):
                found.add(at)
            if not self._waits(at) >> scoreboard & 1:
                open_ += self._before[at]
        return found

    def _nearest(self, place: int, operations: frozenset[int]) -> tuple[int, ...]:
        """Return the last instructions with one of these operations on the ways to a place."""
        found, seen, open_ = set(), {place}, list(self._before[place])
        while open_:
            at = open_.pop()
            if at in seen:
                continue
            seen.add(at)
            if self._operation(at) in operations:
                found.add(at)
            else:
                open_ += self._before[at]
        return tuple(at * SIZE for at in sorted(found))

    @cached_property
    def _before(self) -> list[list[int]]:
        """For each instruction those that may run just before it; a call is taken to return."""
        before: list[list[int]] = [[] for _ in self._words]
        for place in range(len(self._words)):
            for after in self._following(place):
                if 0 <= after < len(before):
                    before[after].append(place)
        return before

    def _following(self, place: int) -> Iterator[int]:
        low, high = self._words[place]
        code = low & 0xFFF
        condition = low >> 12 & 15 != _NONE or high >> 23 & 7 != _NONE
        if code in (_BRANCH, _UNIFORM_BRANCH):
            yield place + 1 + self._distance(place)
            if not condition and code == _BRANCH:
                return
        elif code in _LEAVES and low >> 12 & 15 == _NONE:
            return
        yield place + 1

    def _distance(self, place: int) -> int:
        """Return how many instructions a branch leaps over."""
        low, high = self._words[place]
        far = (low >> 34) | (high << 30)
        far &= (1 << 48) - 1
        far -= (far >> 47) << 48
        if self._architecture >= _OF_90:
            far = far << 8 | low >> 16 & 0xFF
        return far * 4 // SIZE

    def _operation(self, place: int) -> int:
        return self._words[place][0] & 0x1FF

    def _waits(self, place: int) -> int:
        return self._words[place][1] >> 52 & 63

    def _raised(self, place: int) -> tuple[int, int]:
        high = self._words[place][1]
        return high >> 46 & 7, high >> 49 & 7
