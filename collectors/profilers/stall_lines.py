"""Source lines with the samples of warps that wait for them.

A sample, which lies at the instruction that cannot be issued, counts for the one that has begun
the result, barrier or store that is waited for, in equal parts where there are several. A line has
the samples of warps that wait for it, wherever they stand.
"""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from perfml.util.machine_code import Calls, Function, Place, own
from perfml.util.scoreboards import Scoreboards

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
            code for code in function.subroutines if not any(at in code for at in self._lined)
        ]

    def stack(self, offset: int) -> list[Place]:
        """Return the line of an instruction and those that called it; empty where none is known."""
        at = bisect.bisect(self._lined, offset) - 1
        return own(self._calls[self._lined[at]]) if at >= 0 else []

    def awaited(self, offset: int, reason: str) -> tuple[int, ...]:
        """Return the instructions that one waits for; itself where nothing else is known.

        Of a subroutine of the compiler's, which has no lines, those that call it.
        """
        producers = self._scoreboards.awaited(offset, reason) or (offset,)
        return tuple(dict.fromkeys(lined for at in producers for lined in self.lined(at)))

    def lined(self, offset: int, deepest: int = 4) -> tuple[int, ...]:
        """Return an instruction, or those that call it if it is of a subroutine without lines."""
        subroutine = next((code for code in self._subroutines if offset in code), None)
        if subroutine is None or not deepest:
            return (offset,)
        callers = self._scoreboards.callers(subroutine.start)
        return tuple(call for at in callers for call in self.lined(at, deepest - 1)) or (offset,)


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

    for instruction in sampled:
        kernel, at = instruction.kernel, instruction.offset
        known = code.get(kernel)
        stands = known.lined(at) if known else (at,)
        here = [line_of(kernel, offset, 0.0) for offset in stands]
        for reason, count in instruction.reasons.items():
            for line in here:
                line.sampled += count / len(here)
            if reason in _ISSUES:
                continue
            awaited = known.awaited(at, reason) if known else (at,)
            for offset in awaited:
                part = count / len(awaited)
                line = line_of(kernel, offset, part)
                line.waiting[reason] += part
                line.waits_at[place_name(here[0].file, here[0].line)] += part
    for key, sites in calls.items():
        lines[key].called_at = _most(sites)
    return sorted(lines.values(), key=lambda line: (-line.stalled, line.kernel, line.line or 0))


def _name_of(place: Place) -> str:
    return place_name(place.file, place.line)


def _most(counts: Samples) -> str:
    return max(counts, key=lambda name: (counts[name], name)) if counts else ""
