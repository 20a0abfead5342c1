"""PTX as text that can be taken apart and put together: one kernel's module, and its statements.

What is read follows the PTX ISA 9.0 (docs.nvidia.com/cuda/parallel-thread-execution), but for
debugging information, which is dropped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_ENTRY = re.compile(r"(?:\.(?:visible|weak)\s+)?\.entry\s+([\w$]+)")
_VARIABLE = re.compile(
    r"^(?:\.visible\s+)?(\.(?:const|global)\s[^;{=]*?([A-Za-z_][\w$]*)\s*[\[;=])", re.M
)
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)
_DEBUG = re.compile(r"^\s*\.(?:loc|file)\b[^\n]*$", re.M)
_SECTION = re.compile(r"^\s*\.section\b[^{]*\{.*?\}", re.M | re.S)
_STATEMENT = re.compile(
    r"\s*(?:(?P<label>[\w$%]+\s*:(?!:))|(?P<brace>[{}])"
    r"|(?P<text>[^;{}\s](?:[^;{}]|\{[^{};]*\})*;))"
)
_INSTRUCTION = re.compile(
    r"(?:@(?P<guard>!?%[\w$]+)\s+)?(?P<opcode>[a-z][\w.:]*)\s*(?P<rest>.*);", re.S
)
_OPERAND = re.compile(r"(?:[^,\[\]{}()]|\[[^\]]*\]|\{[^}]*\}|\([^)]*\))+")
_ADDRESS = re.compile(r"\[\s*([%\w$]+)\s*(?:\+\s*(-?\w+))?\s*\]")
REGISTER = re.compile(r"%[A-Za-z_$][\w$]*")


@dataclass(frozen=True)
class Address:
    """``[base+offset]``: a register or the name of a variable, and bytes behind it."""

    base: str
    offset: int


@dataclass(frozen=True)
class Statement:
    """A label, a brace, a declaration or an instruction."""

    text: str  # as it is written
    guard: str = ""  # the predicate of an instruction, such as ``!%p1``; empty without one
    opcode: str = ""  # such as ``ld.global.nc.f32``; empty where it is no instruction
    operands: tuple[str, ...] = ()  # the destination first, for those that have one

    @property
    def parts(self) -> list[str]:
        """The opcode at its dots."""
        return self.opcode.split(".")

    @property
    def type(self) -> str:
        """The last type of the opcode, such as ``f32``."""
        return self.parts[-1]

    @property
    def width(self) -> int:
        """Bytes that a thread reads or writes."""
        size = int(re.sub(r"\D", "", self.type.replace("x2", "")) or 0) // 8
        size *= 2 if self.type.endswith("x2") else 1
        return size * next((int(p[1:]) for p in self.parts if re.fullmatch(r"v[248]", p)), 1)

    @property
    def start(self) -> str:
        """What stands before the opcode: the guard, or nothing."""
        return f"@{self.guard} " if self.guard else ""

    @property
    def address(self) -> Address | None:
        """Where it reads or writes; None where it has no address of this form."""
        for operand in self.operands:
            if match := _ADDRESS.fullmatch(operand):
                return Address(match[1], int(match[2] or "0", 0))
        return None

    @property
    def written(self) -> tuple[str, ...]:
        """The registers that an instruction sets."""
        stores = ("st", "red", "bar", "barrier", "bra", "ret", "membar", "fence", "exit", "call")
        if not self.operands or self.parts[0] in stores:
            return ()
        return tuple(REGISTER.findall(self.operands[0]))

    @property
    def read(self) -> tuple[str, ...]:
        """The registers that an instruction takes, but for its guard."""
        from_ = 1 if self.written else 0
        return tuple(r for text in self.operands[from_:] for r in REGISTER.findall(text))

    def at(self, address: str, guard: str | None = None) -> str:
        """Return the instruction with another address."""
        operands = [f"[{address}]" if _ADDRESS.fullmatch(o) else o for o in self.operands]
        return self.with_operands(operands, guard)

    def with_operands(self, operands: list[str], guard: str | None = None) -> str:
        """Return the instruction with other operands, and another guard where one is given."""
        guard = self.guard if guard is None else guard
        return f"{f'@{guard} ' if guard else ''}{self.opcode} {', '.join(operands)};"


@dataclass(frozen=True)
class Kernel:
    """A module with one kernel."""

    # of the module: what stands before the kernel's first statement, and behind its last
    before: str
    statements: tuple[Statement, ...]  # between them
    after: str
    variables: tuple[str, ...]  # names of the module's variables in constant and global memory

    def with_body(self, lines: list[str], *, declared: str = "", before: str | None = None) -> str:
        """Return a module with another body; `declared` variables stand before the functions."""
        text = self.before if before is None else before
        head = re.search(r"\.address_size\s+64", text)
        if head and declared:
            text = f"{text[: head.end()]}\n{declared}{text[head.end() :]}"
        return f"{text}\n{chr(10).join(lines)}\n{self.after}"

    @property
    def text(self) -> str:
        """The module as it is."""
        return self.with_body([each.text for each in self.statements])

    def again(self, text: str) -> Kernel:
        """Return the kernel of a module that was made of this one."""
        return kernel(text, kernels_in(text)[0])


BLOCKS = "perfml_blocks"
"""The array in which a counting kernel counts: 8 bytes a basic block."""
_LEAVES = frozenset({"bra", "ret", "exit"})


def counting_blocks(kernel: Kernel) -> str | None:
    """Return a module whose kernel counts how often threads execute each basic block.

    A block begins at the first instruction, at a label, and behind a branch that only some threads
    take. None where the kernel calls functions, whose blocks are not its own, or jumps by a table.
    """
    opcodes = [each.parts[0] for each in kernel.statements]
    if not {"call", "brx"}.isdisjoint(opcodes):
        return None
    lines, blocks, begins = [], 0, True
    for statement in kernel.statements:
        if statement.opcode and begins:
            lines.append(f"red.global.add.u64 [{BLOCKS}+{8 * blocks}], 1;")
            blocks, begins = blocks + 1, False
        lines.append(statement.text)
        is_label = statement.text.endswith(":")
        leaves = statement.guard and statement.parts[0] in _LEAVES
        begins = begins or is_label or bool(leaves)
    declared = f".visible .global .align 8 .u64 {BLOCKS}[{blocks}];"
    return kernel.with_body(lines, declared=declared) if blocks else None


def kernels_in(ptx: str) -> list[str]:
    """Return the names of the kernels in a module."""
    return _ENTRY.findall(_COMMENT.sub("", ptx))


def kernel(ptx: str, name: str) -> Kernel:
    """Return the module with no other kernel than this one.

    The name is as the compiler mangled it. Raises `ValueError` if there is no such kernel.
    """
    text = _SECTION.sub("", _DEBUG.sub("", _COMMENT.sub("", ptx)))
    text = _VARIABLE.sub(r".visible \1", text)
    before, body, after, end = "", "", "", 0
    for match in _ENTRY.finditer(text):
        start = text.index("{", match.end())
        stop = _closing(text, start)
        if match[1] == name:
            before += text[end : start + 1]
            body, after = text[start + 1 : stop], text[stop : stop + 1]
        elif body:
            after += text[end : match.start()]
        else:
            before += text[end : match.start()]
        end = stop + 1
    if not body:
        msg = f"no kernel {name}"
        raise ValueError(msg)
    variables = tuple(dict.fromkeys(found[1] for found in _VARIABLE.findall(text)))
    return Kernel(before, tuple(_statements(body)), after + text[end:], variables)


def _closing(text: str, start: int) -> int:
    depth = 0
    for brace in re.finditer(r'"[^"]*"|[{}]', text[start:]):
        depth += {"{": 1, "}": -1}.get(brace[0], 0)
        if depth == 0:
            return start + brace.start()
    msg = "a brace is not closed"
    raise ValueError(msg)


def _statements(body: str) -> Iterator[Statement]:
    end = 0
    for match in _STATEMENT.finditer(body):
        if body[end : match.start()].strip():
            break
        end = match.end()
        text = match[0].strip()
        found = _INSTRUCTION.fullmatch(text) if match["text"] else None
        if found is None:
            yield Statement(text)
            continue
        operands = tuple(each.strip() for each in _OPERAND.findall(found["rest"]))
        yield Statement(
            text, found["guard"] or "", found["opcode"], tuple(o for o in operands if o)
        )
    if body[end:].strip():
        msg = f"a statement that cannot be read: {body[end:].strip()[:60]}"
        raise ValueError(msg)


IMMEDIATE = re.compile(r"-?(?:0x[0-9a-fA-F]+|\d+)")
_PASSES = 6
"""Over the kernel: facts of a register that loops change come round again."""
_SMALL = 64
"""A register that grows by no more than this in a loop walks from one element to the next."""


@dataclass(frozen=True)
class Value:
    """Facts of a register."""

    # by how much it grows from one ``tid.x`` to the next; None where that is not known
    lane: int | None = 0
    varies: bool = False  # whether it differs within a warp
    loaded: bool = False  # whether it comes from memory
    walks: bool = False  # whether a loop moves it on by a small constant
    # the register of the kernel's parameter to which an offset was added; empty without one
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
    return IMMEDIATE.fullmatch(step) is not None and abs(int(step, 0)) <= _SMALL


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
    number = IMMEDIATE.fullmatch(numbers[-1])
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
        shift = IMMEDIATE.fullmatch(numbers[1])
        return known[0] << int(shift[0], 0) if shift else None
    for factor, lane in ((numbers[1], known[0]), (numbers[0], known[1])):
        if IMMEDIATE.fullmatch(factor):
            return int(factor, 0) * lane
    return None
