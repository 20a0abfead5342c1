"""PTX as text that can be taken apart and put together: one kernel's module, and its statements.

What is read follows the PTX ISA 9.0 (docs.nvidia.com/cuda/parallel-thread-execution), but for
debugging information, which is dropped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
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
