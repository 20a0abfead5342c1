"""Which instruction another one waits for, as machine code says itself.

An instruction of Volta and later has 16 bytes, and some of the bits are for the scheduler of warps.
One whose latency is not fixed raises one of six scoreboards until its result is written (bits 110
to 112), and one until its operands are read (113 to 115). An instruction is not issued before all
scoreboards of its mask (116 to 121) are at zero (Jia et al. 2018, "Dissecting the NVIDIA Volta GPU
Architecture via Microbenchmarking", section 2.1). So the code names what is waited for, also where
no register tells it: a store whose address is overwritten after it.

So a sample, which lies at the instruction that cannot be issued, counts for the one that has begun
the result, barrier or store that is waited for, in equal parts where there are several. A line has
the samples of warps that wait for it, wherever they stand.

Here to change: the numbers of operations, which were read off what nvdisasm 13.0 prints for code of
nvcc for 7.5 to 12.0 (branches: all of 2,273 in eight architectures).
"""

from __future__ import annotations

import bisect
import struct
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from perfml.util.machine_code import Calls, Function, Place, own

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
_STORES = frozenset({0x185, 0x186, 0x187, 0x18E, 0x19D})
"""ST, STG, STL, RED and SUST."""
_OF_L1TEX = frozenset(
    {*range(0x160, 0x170), 0x180, 0x181, 0x183, 0x18A, 0x18F, 0x199, *_STORES}
    | {0x1A8, 0x1A9, 0x1AE, 0x1AF}
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
            or sleeps is sampled at what follows: the barrier, the sleep. One that has ended and
            waits for its stores: the last ones. Empty where it waits for itself, or the code does
            not tell.
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
        if reason == DRAIN and self._operation(place) == _EXIT:
            return self._nearest(place, _STORES)
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


Samples = defaultdict[str, float]
"""Samples by a name, 0 where there are none."""
_ISSUES = ("selected", "not_selected")
"""States of a sampled warp that could issue."""


@dataclass(frozen=True)
class SampledInstruction:
    """Samples at one instruction of a kernel.

    Attributes
    ----------
    kernel
        Demangled name.
    offset
        In bytes from the start of the code.
    reasons
        Samples by the reason for which the warp was not issued, without a prefix.
    """

    kernel: str
    offset: int
    reasons: Mapping[str, float]


@dataclass
class StallLine:
    """A source line of a kernel, and the samples of warps that wait for it.

    Attributes
    ----------
    kernel
        Demangled name.
    file, line
        Innermost line outside CUDA's own headers; empty and None without ``-lineinfo``.
    called_at
        Where most of it is code that was inlined: the line that calls it; else empty.
    waiting
        Samples of warps that wait for an instruction of this line, by reason.
    sampled
        Samples of warps that stand at this line, waiting or not.
    waits_at
        Samples of ``waiting`` by the line at which the warp stands.
    """

    kernel: str
    file: str
    line: int | None
    called_at: str = ""
    waiting: Samples = field(default_factory=lambda: defaultdict(float))
    sampled: float = 0.0
    waits_at: Samples = field(default_factory=lambda: defaultdict(float))

    @property
    def stalled(self) -> float:
        """All samples of warps that wait for it."""
        return sum(self.waiting.values())

    @property
    def reason(self) -> str:
        """What they wait for most; empty if none waits."""
        return _most(self.waiting)

    @property
    def elsewhere(self) -> str:
        """The line at which most of them stand, where it is another one; else empty."""
        at = _most(self.waits_at)
        return "" if at == place_name(self.file, self.line) else at


class Code:
    """What is known of a kernel's machine code: its lines, and what its instructions wait for.

    Parameters
    ----------
    function
        The code.
    calls
        Its lines; none without ``-lineinfo``.
    """

    def __init__(self, function: Function, calls: Calls) -> None:
        self._calls, self._lined = calls, sorted(calls)
        self._scoreboards = Scoreboards(function)
        self._subroutines = [
            each for each in function.subroutines if not any(at in each for at in self._lined)
        ]

    def stack(self, offset: int) -> list[Place]:
        """Return the line of an instruction and those that called it; empty where none is known."""
        at = bisect.bisect(self._lined, offset) - 1
        return own(self._calls[self._lined[at]]) if at >= 0 else []

    def awaited(self, offset: int, reason: str) -> tuple[int, ...]:
        """Return the instructions that one waits for; itself where nothing else is known.

        Of a subroutine of the compiler's, which has no lines, those that call it.
        """
        found = self._scoreboards.awaited(offset, reason) or (offset,)
        return tuple(dict.fromkeys(each for at in found for each in self.lined(at)))

    def lined(self, offset: int, deepest: int = 4) -> tuple[int, ...]:
        """Return an instruction, or those that call it if it is of a subroutine without lines."""
        inside = next((each for each in self._subroutines if offset in each), None)
        if inside is None or not deepest:
            return (offset,)
        callers = self._scoreboards.callers(inside.start)
        return tuple(each for at in callers for each in self.lined(at, deepest - 1)) or (offset,)


def place_name(file: str, line: int | None) -> str:
    """Return a line as people write it; empty where it is not known."""
    return f"{file.replace(chr(92), '/').rpartition('/')[2]}:{line}" if file else ""


def stall_lines(sampled: Iterable[SampledInstruction], code: Mapping[str, Code]) -> list[StallLine]:
    """Return lines with the samples that wait for them, most first.

    Parameters
    ----------
    sampled
        Instructions; one may come more than once.
    code
        By kernel; a kernel without is one line.
    """
    lines: dict[tuple[str, str, int | None], StallLine] = {}
    calls: dict[tuple[str, str, int | None], Samples] = {}

    def line_of(kernel: str, offset: int, weight: float) -> StallLine:
        stack = code[kernel].stack(offset) if kernel in code else []
        key = (kernel, stack[0].file, stack[0].line) if stack else (kernel, "", None)
        if len(stack) > 1:
            calls.setdefault(key, defaultdict(float))[_name_of(stack[1])] += weight
        return lines.setdefault(key, StallLine(*key))

    for each in sampled:
        known = code.get(each.kernel)
        stands = known.lined(each.offset) if known else (each.offset,)
        here = [line_of(each.kernel, offset, 0.0) for offset in stands]
        for reason, count in each.reasons.items():
            for line in here:
                line.sampled += count / len(here)
            if reason in _ISSUES:
                continue
            awaited = known.awaited(each.offset, reason) if known else (each.offset,)
            for offset in awaited:
                part = count / len(awaited)
                line = line_of(each.kernel, offset, part)
                line.waiting[reason] += part
                line.waits_at[place_name(here[0].file, here[0].line)] += part
    for key, sites in calls.items():
        lines[key].called_at = _most(sites)
    return sorted(lines.values(), key=lambda each: (-each.stalled, each.kernel, each.line or 0))


def _name_of(place: Place) -> str:
    return place_name(place.file, place.line)


def _most(counts: Samples) -> str:
    return max(counts, key=lambda name: (counts[name], name)) if counts else ""
