"""Mutants whose accesses go elsewhere: dense, free of conflicts, or alike for a warp.

They carry a switch: a word in constant memory that the host sets. Where it is 0 every access goes
where the program wants it, by the same machine code; that is the mutant's control.

Dense accesses follow a transposition. Lanes that are far apart read one word each of 32 lines; over
32 such accesses they read the lines whole. The mutant reads one whole line an access: that of the
lane with the number of the word in its line. Over the 32 accesses the lines are the same ones.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from perfml.experiments.mutation.ptx import Kernel, Statement, Value, values

SWITCH = "perfml_switch"
"""The word in constant memory: 0 or all bits."""
DECLARED = f".visible .const .align 4 .u32 {SWITCH} = 0;"
_PLAIN = re.compile(r"ld\.global\.(?:v[24]\.)?[busf]\d+$")
_LINES = (0, 16, 8, 24, 4, 20, 12, 28)
"""Lanes whose lines the fields of a record take, so that no two share one."""


@dataclass
class Scratch:
    """Registers of a mutant, and what is computed once at its start."""

    declared: list[str] = field(default_factory=list)
    start: list[str] = field(default_factory=list)
    count: int = 0

    def register(self, type_: str = "b32") -> str:
        """Return a register that nobody else has."""
        self.count += 1
        name = f"%perfml{self.count}"
        self.declared.append(f".reg .{type_} {name};")
        return name

    def once(self, type_: str, text: str) -> str:
        """Return a register that is set at the start; ``{}`` in the text stands for it."""
        name = self.register(type_)
        self.start.append(text.format(name))
        return name

    def switch(self) -> str:
        """Return the register that holds the switch."""
        return self.once("b32", f"ld.const.u32 {{}}, [{SWITCH}];")

    def off(self) -> str:
        """Return the predicate that the switch is 0."""
        return self.once("pred", f"setp.eq.u32 {{}}, {self.switch()}, 0;")

    def body(self, lines: Sequence[str]) -> list[str]:
        """Return the lines of a body behind the declarations and the start."""
        return [*self.declared, *self.start, *lines]


Site = Callable[[Statement, Value, Scratch], list[str] | None]
"""Returns the lines in place of an access, or None where it stays."""


def _redirected(kernel: Kernel, site: Site) -> str | None:
    facts = values(kernel.statements)
    scratch = Scratch()
    lines, count = [], 0
    for statement in kernel.statements:
        address = statement.address
        made = None
        if address is not None and address.base.startswith("%"):
            made = site(statement, facts.get(address.base, Value(None, True, True)), scratch)
        lines += [statement.text] if made is None else made
        count += made is not None
    return kernel.with_body(scratch.body(lines), declared=DECLARED) if count else None


def _accesses(statement: Statement, kinds: Sequence[str], space: str) -> bool:
    parts = statement.parts
    # a vector of bytes has a width, too; matrices, and 256-bit accesses, do not
    return parts[0] in kinds and space in parts[1:] and statement.width in (1, 2, 4, 8, 16)


def _scattered(fact: Value, width: int) -> bool:
    """Whether lanes lie apart without the data deciding where."""
    return fact.varies and fact.lane != width and (not fact.loaded or fact.walks)


class _Dense:
    def __init__(self, *kinds: str) -> None:
        self.kinds = kinds
        self.fields: dict[str, int] = {}
        self.start: tuple[str, str] | None = None

    def __call__(self, statement: Statement, fact: Value, scratch: Scratch) -> list[str] | None:
        address, width = statement.address, statement.width
        if not _accesses(statement, self.kinds, "global") or not _scattered(fact, width):
            return None
        assert address is not None
        if self.start is None:
            self.start = (scratch.switch(), scratch.once("b32", "mov.u32 {}, %laneid;"))
        switch, lane = self.start
        turn = 0 if fact.walks else _LINES[self.fields.setdefault(address.base, 0) % len(_LINES)]
        if not fact.walks:
            self.fields[address.base] += 1
        at, low, high, mask, there, low_there, high_there = (
            scratch.register(t) for t in ("b64", *["b32"] * 6)
        )
        known = scratch.register("pred")
        block, shift = 32 * width, width.bit_length() - 1
        mine = scratch.once("b32", f"mul.lo.u32 {{}}, {lane}, {width};")
        return [
            f"add.s64 {at}, {address.base}, {address.offset};",
            f"mov.b64 {{{low}, {high}}}, {at};",
            *_active(statement, mask),
            f"shfl.sync.idx.b32 {there}, {low}, 0, 31, {mask};",
            f"shr.u32 {there}, {there}, {shift};",
            f"add.u32 {there}, {there}, {turn};",
            *_where_active(there, mask, lane, low_there, known),
            f"shfl.sync.idx.b32 {low_there}, {low}, {there}, 31, {mask};",
            f"shfl.sync.idx.b32 {high_there}, {high}, {there}, 31, {mask};",
            f"and.b32 {low_there}, {low_there}, {-block};",
            f"or.b32 {low_there}, {low_there}, {mine};",
            *_chosen(low, low_there, switch, there),
            *_chosen(high, high_there, switch, there),
            f"mov.b64 {at}, {{{low}, {high}}};",
            statement.at(at),
        ]


def _active(statement: Statement, mask: str) -> list[str]:
    """Set the lanes that make the access."""
    made = [f"activemask.b32 {mask};"]
    if statement.guard:
        made.append(f"vote.sync.ballot.b32 {mask}, {statement.guard}, {mask};")
    return made


def _where_active(there: str, mask: str, lane: str, spare: str, known: str) -> list[str]:
    """Set `there` to its lower five bits, or to the own lane where that lane makes no access."""
    return [
        f"and.b32 {there}, {there}, 31;",
        f"shr.u32 {spare}, {mask}, {there};",
        f"and.b32 {spare}, {spare}, 1;",
        f"setp.ne.u32 {known}, {spare}, 0;",
        f"selp.b32 {there}, {there}, {lane}, {known};",
    ]


def _chosen(own: str, other: str, switch: str, spare: str) -> list[str]:
    """Set `own` to the other address where the switch is on: one instruction of the machine."""
    return [
        f"xor.b32 {spare}, {own}, {other};",
        f"and.b32 {spare}, {spare}, {switch};",
        f"xor.b32 {own}, {own}, {spare};",
    ]


def dense_loads(kernel: Kernel) -> str | None:
    """Return the kernel whose lanes load neighbours; None where they do, or data decides."""
    return _redirected(kernel, _Dense("ld"))


def dense_stores(kernel: Kernel) -> str | None:
    """Return the kernel whose lanes store to neighbours; None where they do, or data decides."""
    return _redirected(kernel, _Dense("st"))


def dense_accesses(kernel: Kernel) -> str | None:
    """Return the kernel whose lanes load and store neighbours; None where one of them is alone."""
    alone = None in (dense_loads(kernel), dense_stores(kernel))
    return None if alone else _redirected(kernel, _Dense("ld", "st"))


class _OwnBank:
    """A lane stays in its row of 128 bytes and takes its own bank there."""

    def __init__(self) -> None:
        self.start: tuple[str, dict[int, str]] | None = None

    def __call__(self, statement: Statement, fact: Value, scratch: Scratch) -> list[str] | None:
        address, width = statement.address, statement.width
        kinds = ("ld", "st", "atom", "red")
        if not _accesses(statement, kinds, "shared") or not fact.varies:
            return None
        # neighbours, or an odd number of words apart: no two lanes meet in a bank
        words, rest = divmod(fact.lane or 0, 4)
        if fact.lane == max(width, 4) or (width == 4 and rest == 0 and words % 2 == 1):
            return None
        assert address is not None
        if self.start is None:
            switch = scratch.switch()
            keep = scratch.once("b32", f"and.b32 {{}}, {switch}, 127;")
            scratch.start.append(f"not.b32 {keep}, {keep};")
            self.start = (keep, {w: _bank(scratch, switch, w) for w in (4, 8, 16)})
        keep, banks = self.start
        at = scratch.register()
        wide = address.base.startswith("%rd")
        take = f"cvt.u32.u64 {at}, {address.base};" if wide else f"mov.b32 {at}, {address.base};"
        return [
            take,
            f"add.s32 {at}, {at}, {address.offset};",
            f"and.b32 {at}, {at}, {keep};",
            f"or.b32 {at}, {at}, {banks[max(width, 4)]};",
            statement.at(at),
        ]


def _bank(scratch: Scratch, switch: str, width: int) -> str:
    name = scratch.once("b32", "mov.u32 {}, %laneid;")
    scratch.start += [
        f"mul.lo.u32 {name}, {name}, {width};",
        f"and.b32 {name}, {name}, 127;",
        f"and.b32 {name}, {name}, {switch};",
    ]
    return name


def no_conflicts(kernel: Kernel) -> str | None:
    """Return the kernel without conflicts of banks, or of atomics, in shared memory."""
    return _redirected(kernel, _OwnBank())


class _Alike:
    """All lanes take the address of the first."""

    def __call__(self, statement: Statement, fact: Value, scratch: Scratch) -> list[str] | None:
        address = statement.address
        if not _accesses(statement, ("ld",), "const") or not fact.varies:
            return None
        assert address is not None
        switch, lane = scratch.switch(), scratch.once("b32", "mov.u32 {}, %laneid;")
        own, other, mask, there = (scratch.register() for _ in range(4))
        known = scratch.register("pred")
        wide = address.base.startswith("%rd")
        at = scratch.register("b64") if wide else own
        take = f"cvt.u32.u64 {own}, {address.base};" if wide else f"mov.b32 {own}, {address.base};"
        return [
            take,
            f"add.s32 {own}, {own}, {address.offset};",
            *_active(statement, mask),
            f"mov.b32 {there}, 0;",
            *_where_active(there, mask, lane, other, known),
            f"shfl.sync.idx.b32 {other}, {own}, {there}, 31, {mask};",
            *_chosen(own, other, switch, there),
            *([f"cvt.u64.u32 {at}, {own};"] if wide else []),
            statement.at(at),
        ]


def alike_constants(kernel: Kernel) -> str | None:
    """Return the kernel whose warps read one address of constant memory at a time."""
    return _redirected(kernel, _Alike())


def read_only_loads(kernel: Kernel) -> str | None:
    """Return the kernel whose loads pass by no store: from arrays to which it does not write.

    It is what ``const`` and ``__restrict__`` tell the compiler. None where a store's array is not
    known, or every load's array is written to.
    """
    facts = values(kernel.statements)

    def array(statement: Statement) -> str:
        address = statement.address
        return "" if address is None else facts.get(address.base, Value()).pointer

    writes = {
        array(each) for each in kernel.statements
        if each.parts[0] in ("st", "atom", "red") and not {"shared", "local"} & {*each.parts}
    }  # fmt: skip
    lines = [
        each.text.replace("ld.global.", "ld.global.nc.", 1)
        if _PLAIN.match(each.opcode) and array(each) not in {"", *writes}
        else each.text
        for each in kernel.statements
    ]
    changed = lines != [each.text for each in kernel.statements]
    return kernel.with_body(lines) if changed and "" not in writes else None
