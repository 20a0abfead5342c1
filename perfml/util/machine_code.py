"""Machine code for GPUs: the instructions of functions, their lines, and what called inlined ones.

ELF files with it are given to the driver, and Nsight Compute's reports hold them. For each
instruction the package ``ncu_report`` tells the innermost line, which for `atomicAdd` is one of
CUDA's own headers. The section ``.debug_line`` has the calls too: DWARF 2 with NVIDIA's operation
0x90, whose first number is the row (from 1, of this function's rows) that called, and whose second
is the callee's name.
"""

from __future__ import annotations

import bisect
import re
import struct
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

_ELF = b"\x7fELF\x02\x01"
_ABI_OF_CUDA_13 = 8
"""From this version of the ABI the architecture is the second byte of the flags, not the first."""
_FUNCTION = 2
"""Type of a symbol."""
_CUDA = 190
"""The machine of an ELF file with code for a GPU."""
_END, _SET_ADDRESS, _INLINED = 1, 2, 0x90
_SYMBOL, _SECTION = struct.Struct("<IBBHQQ"), 64
_DEEPEST = 32
BROKEN = (struct.error, ArithmeticError, LookupError, ValueError)
"""Errors of bytes that are no such file."""


@dataclass(frozen=True)
class Place:
    """A line of a source."""

    file: str
    line: int


_Told = TypeVar("_Told")
Calls = dict[int, tuple[Place, ...]]
"""Offset of an instruction to its line and those that called it, the innermost first.

They hold up to the next offset.
"""

_TOOLKIT = re.compile(
    r"/(targets/[^/]+|cuda[^/]*|v\d+\.\d+|nvidia/cu\d+)/include/|/triton/language/", re.IGNORECASE
)
"""Folders of CUDA's own headers, and of Triton's own functions (`tl.sum`, `tl.softmax`)."""


def of_toolkit(file: str) -> bool:
    """Tell whether a source is one of CUDA's own headers, or of Triton's own functions."""
    return _TOOLKIT.search(file.replace("\\", "/")) is not None


def own(stack: Sequence[Place]) -> list[Place]:
    """Return a stack of calls without the innermost that are CUDA's own or Triton's."""
    inner = next((at for at, place in enumerate(stack) if not of_toolkit(place.file)), 0)
    return list(dict.fromkeys(stack[inner:]))


@dataclass(frozen=True)
class Function:
    """Machine code of a function.

    Attributes
    ----------
    code
        Its instructions, 16 bytes each, and those of its subroutines.
    architecture
        Compute capability times ten, such as 90.
    subroutines
        Where subroutines stand in the code, such as the division of long integers.
    """

    code: bytes
    architecture: int
    subroutines: tuple[range, ...] = ()


@dataclass(frozen=True)
class _Row:
    """From here on instructions are of this line; `caller` is a row's number, 0 without one."""

    address: int = 0
    file: int = 1
    line: int = 1
    caller: int = 0


def inlined_calls(data: bytes, functions: Collection[str]) -> dict[str, Calls]:
    """Return the lines of functions and what called them, for code that was inlined.

    `data` is a report; functions have the names that the linker knows. Those of which the report
    has no lines, or two versions, are left out; programs that cannot be read are passed over.
    """
    return _of_all(data, lambda program: program.calls(functions))


def functions_in(data: bytes, functions: Collection[str]) -> dict[str, Function]:
    """Return the machine code of functions in the same way, also without lines."""
    return _of_all(
        data,
        lambda program: (
            function for function in program.functions.items() if function[0] in functions
        ),
    )


def _of_all(
    data: bytes, told: Callable[[Program], Iterable[tuple[str, _Told]]]
) -> dict[str, _Told]:
    """Return what all programs tell of functions, but for those of which they tell two things."""
    found: dict[str, _Told] = {}
    differing: set[str] = set()
    view, at = memoryview(data), data.find(_ELF)
    while at >= 0:
        try:
            for name, of_function in told(Program(view[at:])):
                if found.setdefault(name, of_function) != of_function:
                    differing.add(name)
        except BROKEN:
            pass
        at = data.find(_ELF, at + len(_ELF))
    return {name: each for name, each in found.items() if name not in differing}


class Program:
    """An ELF file at the start of some bytes; what follows it does not matter.

    Where it is damaged, its methods raise one of `BROKEN`.
    """

    def __init__(self, data: memoryview) -> None:
        self.data = data
        if struct.unpack_from("<H", data, 18)[0] != _CUDA:
            msg = "no code for a GPU"
            raise ValueError(msg)

    @property
    def architecture(self) -> int:
        """Return the compute capability times ten."""
        (flags,) = struct.unpack_from("<I", self.data, 48)
        return int(flags >> 8 if self.data[8] >= _ABI_OF_CUDA_13 else flags) & 0xFF

    @cached_property
    def sections(self) -> dict[str, memoryview]:
        """Return the sections by name, in their order."""
        (first,) = struct.unpack_from("<Q", self.data, 40)
        _, count, names = struct.unpack_from("<HHH", self.data, 58)
        heads = [
            struct.unpack_from("<IIQQQQ", self.data, first + _SECTION * place)
            for place in range(count)
        ]
        texts = heads[names][4]
        return {
            _text(self.data, texts + head[0]): self.data[head[4] : head[4] + head[5]]
            for head in heads
        }

    @cached_property
    def functions(self) -> dict[str, Function]:
        """Return the functions by the name that the linker knows."""
        sections, symbols = list(self.sections.values()), self.sections[".symtab"]
        inside: dict[int, dict[str, range]] = {}
        for at in range(0, len(symbols), _SYMBOL.size):
            name, kind, _, section, start, size = _SYMBOL.unpack_from(symbols, at)
            if kind & 15 == _FUNCTION and 0 < section < len(sections):
                text = _text(self.sections[".strtab"], name)
                inside.setdefault(section, {})[text] = range(start, start + size)
        return {
            name: Function(
                bytes(sections[section]),
                self.architecture,
                tuple(each for other, each in names.items() if other != name),
            )
            for section, names in inside.items()
            for name, place in names.items()
            if place.start == 0
        }

    def calls(self, functions: Collection[str]) -> Iterator[tuple[str, Calls]]:
        """Yield functions and the lines of their instructions."""
        for name, files, rows in self._lines(".debug_line"):
            if name in functions:
                calls = _called(files, rows)
                if any(len(stack) == 1 and of_toolkit(stack[0].file) for stack in calls.values()):
                    _add_callers(calls, self._ptx_lines.get(name, []))
                yield name, calls

    @cached_property
    def _ptx_lines(self) -> dict[str, list[_Row]]:
        """Return for each function the lines of its PTX, which are in the program's order."""
        return {name: rows for name, _, rows in self._lines(".nv_debug_line_sass")}

    def _lines(self, section: str) -> Iterator[tuple[str, list[str], list[_Row]]]:
        """Yield the functions of a section of lines, its files and their rows."""
        lines = self.sections.get(section)
        symbols = self.sections.get(".symtab")
        if lines is None or symbols is None:
            return
        names = {
            place: _text(self.sections[".strtab"], _SYMBOL.unpack_from(symbols, number)[0])
            for place, number in self._relocated(section)
        }
        start = 0
        while start < len(lines):
            (length,) = struct.unpack_from("<I", lines, start)
            end = start + 4 + length
            for place, files, rows in _Unit(lines, start, end).sequences():
                yield names.get(place, ""), files, rows
            start = end

    def _relocated(self, section: str) -> Iterator[tuple[int, int]]:
        """Yield where a section of lines has a function's address, and the symbol's place.

        Before 9.0 relocations have no addend.
        """
        for name, size in ((f".rela{section}", 24), (f".rel{section}", 16)):
            table = self.sections.get(name, self.data[:0])
            for at in range(0, len(table), size):
                place, what = struct.unpack_from("<QQ", table, at)
                yield place, (what >> 32) * _SYMBOL.size


class _Unit:
    """The lines of one compilation, from `start` to `end` of a section."""

    def __init__(self, data: memoryview, start: int, end: int) -> None:
        self.data, self.end = data, end
        (header,) = struct.unpack_from("<I", data, start + 6)
        self.at = start + 10
        self.step, _, self.base, self.range, self.first = struct.unpack_from(
            "<BBbBB", data, self.at
        )
        self.operands = list(data[self.at + 5 : self.at + 4 + self.first])
        self.at += 4 + self.first
        self.folders = list(self._texts())
        self.files = []
        for name in self._texts():
            folder, _, _ = self._number(), self._number(), self._number()
            inside = self.folders[folder - 1] + "/" if folder else ""
            self.files.append(inside + name)
        self.at = start + 10 + header

    def _texts(self) -> Iterator[str]:
        while self.data[self.at]:
            text = _text(self.data, self.at)
            self.at += len(text.encode()) + 1
            yield text
        self.at += 1

    def _number(self, *, signed: bool = False) -> int:
        value = shift = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value - (1 << shift) if signed and byte & 64 else value

    def sequences(self) -> Iterator[tuple[int, list[str], list[_Row]]]:
        """Yield each function's place in the relocations, the files, and its rows."""
        row, rows, place = _Row(), list[_Row](), -1
        while self.at < self.end:
            code = self.data[self.at]
            self.at += 1
            if code >= self.first:
                further, lines = divmod(code - self.first, self.range)
                row = replace(
                    row,
                    address=row.address + further * self.step,
                    line=row.line + self.base + lines,
                )
                rows.append(row)
            elif code == 0:
                after = self._number() + self.at
                code = self.data[self.at]
                self.at += 1
                if code == _END:
                    yield place, self.files, rows
                    row, rows, place = _Row(), [], -1
                elif code == _SET_ADDRESS:
                    place = self.at
                    row = replace(row, address=0)
                elif code == _INLINED:
                    row = replace(row, caller=self._number())
                self.at = after
            elif code == 1:
                rows.append(row)
            else:
                row = self._standard(code, row)

    def _standard(self, code: int, row: _Row) -> _Row:
        """Return the row after one of DWARF's own operations with operands."""
        if code == 2:
            return replace(row, address=row.address + self._number() * self.step)
        if code == 3:
            return replace(row, line=row.line + self._number(signed=True))
        if code == 4:
            return replace(row, file=self._number())
        if code == 8:
            return replace(row, address=row.address + (255 - self.first) // self.range * self.step)
        if code == 9:
            (further,) = struct.unpack_from("<H", self.data, self.at)
            self.at += 2
            return replace(row, address=row.address + further)
        for _ in range(self.operands[code - 1]):
            self._number()
        return row


def _called(files: list[str], rows: list[_Row]) -> Calls:
    """Return the lines at each address at which they change; of several rows the last counts."""

    def place(row: _Row) -> Place:
        return Place(files[row.file - 1], row.line)

    found: Calls = {}
    for row in rows:
        stack = [place(row)]
        caller = row.caller
        while 0 < caller <= len(rows) and len(stack) < _DEEPEST:
            stack.append(place(rows[caller - 1]))
            caller = rows[caller - 1].caller
        found[row.address] = tuple(stack)
    return found


def _add_callers(calls: Calls, ptx: list[_Row]) -> None:
    """Add to lines of a toolkit, of which no call is recorded, the last own one before them in PTX.

    Triton 3.6 records no calls, 3.9 does. What it inlines follows the operands of the call.
    """
    starts, last = sorted(calls), tuple[Place, ...]()
    for row in sorted(ptx, key=lambda row: row.line):
        start = starts[bisect.bisect(starts, row.address, lo=1) - 1]
        if not of_toolkit(calls[start][0].file):
            last = calls[start]
        elif len(calls[start]) == 1:
            calls[start] += last


def _text(data: memoryview, start: int) -> str:
    end = start
    while data[end]:
        end += 1
    return bytes(data[start:end]).decode()
