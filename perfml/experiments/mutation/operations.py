"""Mutants that leave operations out, do cheaper ones in their place, or the same ones elsewhere."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence

from perfml.experiments.mutation.addresses import DECLARED, Scratch, read_only_loads
from perfml.experiments.mutation.ptx import IMMEDIATE, Kernel, Statement

_HEX = re.compile(r"0[dD][0-9a-fA-F]{16}")
_SLOW = frozenset({"div", "rcp", "sqrt", "rsqrt", "sin", "cos", "ex2", "lg2", "tanh"})
_FLUSHED = _SLOW - {"tanh"} | {
    *("add", "sub", "mul", "fma", "mad", "abs", "neg", "min", "max", "setp")
}
"""Operations in single precision that may take denormals for 0."""
_WHOLE = re.compile(r"[us](?:32|64)")

Rewrite = Callable[[Statement, Scratch], list[str] | None]
"""Returns the lines in place of a statement, or None where it stays."""


def _rewritten(kernel: Kernel, rewrite: Rewrite, *, switched: bool) -> str | None:
    scratch = Scratch()
    lines, count = [], 0
    for statement in kernel.statements:
        made = rewrite(statement, scratch) if statement.opcode else None
        lines += [statement.text] if made is None else made
        count += made is not None
    if not count:
        return None
    return kernel.with_body(scratch.body(lines), declared=DECLARED if switched else "")


class _Skipped:
    """Operations that happen only while the switch is off."""

    def __init__(self, chosen: Callable[[Statement], bool]) -> None:
        self.chosen = chosen
        self.off: str | None = None

    def __call__(self, statement: Statement, scratch: Scratch) -> list[str] | None:
        if not self.chosen(statement):
            return None
        self.off = self.off or scratch.off()
        if not statement.guard:
            made = [statement.with_operands(list(statement.operands), self.off)]
        else:
            guard = scratch.register("pred")
            negated, name = statement.guard.startswith("!"), statement.guard.lstrip("!")
            made = [f"not.pred {guard}, {name};"] if negated else []
            made.append(f"and.pred {guard}, {guard if negated else name}, {self.off};")
            made.append(statement.with_operands(list(statement.operands), guard))
        return made + self._in_place(statement)

    def _in_place(self, statement: Statement) -> list[str]:
        """Give the destination a value, too: what is expected of a swap, else what is added."""
        kind = statement.parts[0]
        if kind == "ld":
            names = statement.operands[0].strip("{} ").split(",")
            return [f"@!{self.off} mov.{statement.type} {name.strip()}, 0;" for name in names
                    if not statement.type.startswith("f")]  # fmt: skip
        if kind != "atom" or statement.operands[0].startswith("{"):
            return []
        value = statement.operands[2]
        type_ = {"f16x2": "b32", "bf16x2": "b32", "f16": "b16", "bf16": "b16"}.get(
            statement.type, statement.type
        )
        return [f"@!{self.off} mov.{type_} {statement.operands[0]}, {value};"]


def _left_out(chosen: Callable[[Statement], bool]) -> Callable[[Kernel], str | None]:
    """Return what makes a kernel without the chosen operations."""
    return lambda kernel: _rewritten(kernel, _Skipped(chosen), switched=True)


no_global_atomics = _left_out(
    lambda each: (
        each.parts[0] in ("atom", "red") and "shared" not in each.parts and each.address is not None
    )
)
no_fences = _left_out(lambda each: each.parts[0] in ("membar", "fence"))
no_local_arrays = _left_out(lambda each: each.parts[0] in ("ld", "st") and "local" in each.parts)
"""Accesses to local memory that the source makes; spilled registers stay."""


def no_barriers(kernel: Kernel) -> str | None:
    """Return the kernel whose warps do not wait for those of their block.

    It has no switch: a barrier that may come keeps the compiler from moving loads past it, which
    is a part of what barriers cost.
    """

    def rewrite(statement: Statement, _: Scratch) -> list[str] | None:
        parts = statement.parts
        waits = parts[0] in ("bar", "barrier") and "sync" in parts and "warp" not in parts
        return [] if waits else None

    return _rewritten(kernel, rewrite, switched=False)


def more_registers(kernel: Kernel) -> str | None:
    """Return the kernel without the bounds that make the compiler spill registers."""
    before = re.sub(r"\.(?:minnctapersm|maxnreg)\s+\d+", "", kernel.before)
    if before == kernel.before:
        return None
    return kernel.with_body([each.text for each in kernel.statements], before=before)


def registers_64(kernel: Kernel) -> str | None:
    """Return the kernel with a bound of 64 registers a thread; None where it has one.

    A multiprocessor has 65,536 registers and room for 2,048 threads (Volta to Blackwell). Half of
    these fit with 64. Without a bound ptxas 13.0 keeps some kernels at 32, where loads wait.
    """
    if re.search(r"\.(?:minnctapersm|maxnreg)\b", kernel.before):
        return None
    before = f"{kernel.before.removesuffix('{')}.maxnreg 64\n{{"
    return kernel.with_body([each.text for each in kernel.statements], before=before)


def single_precision(kernel: Kernel) -> str | None:
    """Return the kernel whose arithmetic in double precision is done in single.

    A register of a double holds the single in its lower half, so that neither copies nor
    conversions cost anything. Memory still holds doubles.
    """
    return _rewritten(kernel, _single, switched=False)


def _single(statement: Statement, scratch: Scratch) -> list[str] | None:
    parts = statement.parts
    if "f64" not in parts or parts[0] in ("ld", "st", "atom", "red", "selp", "call", "mma", "wmma"):
        return None
    operands, lines = list(statement.operands), list[str]()
    types = [part for part in parts if re.fullmatch(r"[usbf]f?\d+", part)]
    result_is_double = types[0] == "f64" and parts[0] not in ("setp", "testp", "set")
    input_is_double = types[-1] == "f64"
    for i in range(1, len(operands)):
        if input_is_double:
            operands[i] = _half(operands[i], scratch, lines)
    destination = operands[0]
    if result_is_double:
        operands[0] = scratch.register("f32")
    opcode = ".".join("f32" if part == "f64" else part for part in parts)
    if parts[0] == "cvt":
        opcode = _conversion(parts, types)
    lines.append(f"{statement.start}{opcode} {', '.join(operands)};")
    if result_is_double:
        zero = scratch.once("f32", "mov.f32 {}, 0f00000000;")
        lines.append(f"{statement.start}mov.b64 {destination}, {{{operands[0]}, {zero}}};")
    return lines


def _half(operand: str, scratch: Scratch, lines: list[str]) -> str:
    """Return the single in an operand that is a double."""
    if _HEX.fullmatch(operand):
        value = struct.unpack(">d", bytes.fromhex(operand[2:]))[0]
        try:
            return f"0f{struct.pack('>f', value).hex().upper()}"
        except OverflowError:
            return "0f7F800000" if value > 0 else "0fFF800000"
    if not operand.startswith("%"):
        return operand
    low, high = scratch.register("f32"), scratch.register("f32")
    lines.append(f"mov.b64 {{{low}, {high}}}, {operand};")
    return low


def _conversion(parts: list[str], types: list[str]) -> str:
    """Return the conversion with singles; between two of them a copy."""
    to, from_ = ("f32" if each == "f64" else each for each in types)
    how = [part for part in parts[1:] if part not in types]
    if to == from_ == "f32":
        return "mov.f32" if not {"rni", "rzi", "rmi", "rpi"} & set(how) else f"cvt.{how[0]}.f32.f32"
    if to == "f32" and from_[0] in "us" and not how:
        how = ["rn"]
    if to == "f32" and from_ in ("f16", "bf16"):
        how = []
    return ".".join(["cvt", *how, to, from_])


def cheap_functions(kernel: Kernel) -> str | None:
    """Return the kernel with a product for each division, root, sine and exponential."""

    def rewrite(statement: Statement, _: Scratch) -> list[str] | None:
        if statement.parts[0] not in _SLOW or statement.type not in ("f32", "f64"):
            return None
        taken = list(statement.operands[1:])
        numbers = ", ".join([statement.operands[0], taken[0], taken[-1]])
        rounded = ".rn" if statement.type == "f64" else ""
        return [f"{statement.start}mul{rounded}.{statement.type} {numbers};"]

    return _rewritten(kernel, rewrite, switched=False)


def fast_math(kernel: Kernel) -> str | None:
    """Return the kernel as with ``-use_fast_math``, but for calls that the compiler has inlined.

    None where it has no division, root, sine or exponential in single precision.
    """
    slow = any(each.parts[0] in _SLOW and each.type == "f32" for each in kernel.statements)

    def rewrite(statement: Statement, _: Scratch) -> list[str] | None:
        parts = statement.parts
        if parts[0] not in _FLUSHED or statement.type != "f32" or "ftz" in parts:
            return None
        exact = parts[0] in ("div", "rcp", "sqrt") and parts[1] != "approx"
        start = [parts[0], "approx"] if exact else parts[:1]
        rest = parts[2:] if exact else parts[1:]
        place = next(i for i, part in enumerate(rest) if part in ("sat", "NaN", "xorsign", "f32"))
        opcode = ".".join([*start, *rest[:place], "ftz", *rest[place:]])
        text = statement.with_operands(list(statement.operands))
        return [text.replace(statement.opcode, opcode, 1)]

    return _rewritten(kernel, rewrite, switched=False) if slow else None


def cheap_division(kernel: Kernel) -> str | None:
    """Return the kernel that divides whole numbers as if by the next power of two.

    Quotients are not larger and remainders stay below the divisor, so indices stay in their arrays.
    """
    quotients: dict[str, tuple[str, str]] = {}  # or products of one with its divisor

    def rewrite(statement: Statement, scratch: Scratch) -> list[str] | None:
        kind, operands = statement.parts[0], statement.operands
        if kind == "mul" and quotients.get(operands[1], ("", ""))[1] == operands[2]:
            quotients[operands[0]] = quotients[operands[1]]
        remains = kind == "sub" and quotients.get(operands[2], ("",))[0] == operands[1]
        if not remains and (kind not in ("div", "rem") or not _WHOLE.fullmatch(statement.type)):
            return None
        destination, number, divisor = operands
        if remains:
            divisor = quotients[operands[2]][1]
        elif kind == "div":
            quotients[destination] = (number, divisor)
        size = statement.type[1:]
        less = scratch.register(f"b{size}")
        lines = [f"mov.b{size} {less}, {divisor};", f"add.s{size} {less}, {less}, -1;"]
        if kind != "div":
            return [*lines, f"{statement.start}and.b{size} {destination}, {number}, {less};"]
        bits = scratch.register()
        return [
            *lines,
            f"bfind.u{size} {bits}, {less};",
            f"add.s32 {bits}, {bits}, 1;",
            f"{statement.start}shr.{statement.type} {destination}, {number}, {bits};",
        ]

    return _rewritten(kernel, rewrite, switched=False)


BLOCKS = 4
"""Blocks that become one, or parts of one: 512 threads become 128, and 16 become 64."""
_TOGETHER = re.compile(
    r"\.shared|%(?:n?warpid|lane|smid|cluster)"
    r"|\b(?:bar|barrier|shfl|vote|activemask|match|redux|elect|call|w?g?mma)\b"
)
"""What ties the threads of a block to each other."""
_PLACE = re.compile(r"%(n?(?:ctaid|tid))\.([xyz])")
_SMALLER = """
mov.u32 %perfml_block, %ctaid.x; and.b32 %perfml_part, %perfml_block, 3;
shr.u32 %perfml_ctaid_x, %perfml_block, 2;
mov.u32 %perfml_blocks, %nctaid.x; shr.u32 %perfml_nctaid_x, %perfml_blocks, 2;
mov.u32 %perfml_threads, %ntid.x; shl.b32 %perfml_ntid_x, %perfml_threads, 2;
mov.u32 %perfml_thread, %tid.x;
mad.lo.u32 %perfml_tid_x, %perfml_part, %perfml_threads, %perfml_thread;
"""
_LARGER = """
mov.u32 %perfml_block, %ctaid.x; mov.u32 %perfml_part, %tid.z;
mad.lo.u32 %perfml_ctaid_x, %perfml_block, 4, %perfml_part;
mov.u32 %perfml_blocks, %nctaid.x; shl.b32 %perfml_nctaid_x, %perfml_blocks, 2;
mov.u32 %perfml_tid_z, 0; mov.u32 %perfml_ntid_z, 1;
"""


def smaller_blocks(kernel: Kernel) -> str | None:
    """Return the kernel for a quarter of the threads in a block, and four times the blocks.

    The launch is changed with it, along x; every thread does what it did. None where threads of a
    block work together.
    """
    return _moved(kernel, _SMALLER)


def larger_blocks(kernel: Kernel) -> str | None:
    """Return the kernel for four times the threads in a block, and a quarter of the blocks.

    Blocks that were neighbours along x lie above each other along z. None where threads of a block
    work together.
    """
    return _moved(kernel, _LARGER)


def _moved(kernel: Kernel, start: str) -> str | None:
    """Return the kernel whose threads take themselves for others."""
    texts = [each.text for each in kernel.statements]
    if any(map(_TOGETHER.search, texts)):
        return None
    names = sorted({*re.findall(r"%perfml_\w+", start)})

    def other(place: re.Match[str]) -> str:
        name = f"%perfml_{place[1]}_{place[2]}"
        return name if name in names else place[0]

    lines = [f".reg .b32 {', '.join(names)};", start, *(_PLACE.sub(other, text) for text in texts)]
    before = re.sub(r"\.(?:maxntid|reqntid)\s+\d+(?:,\s*\d+)*", "", kernel.before)
    return kernel.with_body(lines, before=before)


TURNS = 4
"""Of a loop, that one turn of an unrolled one makes: what compilers and authors write most."""
_MOST = 100
"""Instructions in a loop: four times as many still fit into the cache of instructions."""
_UNTIL = re.compile(r"setp\.(lt|le|gt|ge|ne)\.[su](?:16|32|64)")


def unrolled_loops(kernel: Kernel) -> str | None:
    """Return the kernel whose innermost counted loops test for their end once in four turns.

    While fewer turns are left, single ones are made.
    """
    scratch, ends = Scratch(), dict[int, str]()
    lines: list[str] = []
    for at, statement in enumerate(kernel.statements):
        lines.append(statement.text)
        if at in ends:
            lines.append(ends[at])
        size, step = _counted(kernel.statements[at:])
        if not step:
            continue
        turn = [each.text for each in kernel.statements[at + 1 : at + size]]
        _, counter, last = kernel.statements[at + size - 1].operands
        bits = kernel.statements[at + size - 1].type[1:]
        left, few = scratch.register(f"b{bits}"), scratch.register("pred")
        one, end = (f"$perfml_{name}_{few[1:]}:" for name in ("one", "end"))
        ends[at + size] = end
        lines += [
            f"sub.s{bits} {left}, {last}, {counter};",
            f"setp.{'le' if step > 0 else 'ge'}.s{bits} {few}, {left}, {(TURNS - 1) * step};",
            f"@{few} bra {one[:-1]};",
            *(turn * TURNS),
            *(kernel.statements[at + size].text, f"bra {end[:-1]};", one),
        ]
    return kernel.with_body(scratch.body(lines)) if ends else None


def _counted(statements: Sequence[Statement]) -> tuple[int, int]:
    """Return the place of the branch that ends a counted loop, and its step; 0 and 0 for none.

    The loop begins at the first statement, has no other branch, and tests a register to which it
    adds a number against one that it leaves as it is.
    """
    turns = (n for n, each in enumerate(statements[:_MOST]) if each.parts[0] in ("bra", "call"))
    size = next(turns, 0)
    leave, test, inside = statements[size], statements[size - 1], statements[1 : size - 1]
    label = f"{''.join(leave.operands)}:" == statements[0].text and leave.guard == test.operands[0]
    if not label or not _UNTIL.fullmatch(test.opcode) or any(e.text[-1] in ":{}" for e in inside):
        return 0, 0
    _, counter, last = test.operands
    steps = [each for each in inside if counter in each.written]
    if len(steps) != 1 or any(last in each.written for each in inside):
        return 0, 0
    moves = steps[0].parts[0] == "add" and steps[0].operands[1] == counter and not steps[0].guard
    if not moves or not IMMEDIATE.fullmatch(steps[0].operands[2]):
        return 0, 0
    step = int(steps[0].operands[2], 0)
    ends = ("lt", "le", "ne") if step > 0 else ("gt", "ge", "ne")
    return size, step if test.parts[1] in ends else 0


def batched_loads(kernel: Kernel) -> str | None:
    """Return the kernel whose loops are unrolled and whose loads pass by stores.

    So that the loads of four turns are under way at once. None where one of both changes nothing.
    """
    text, alone = unrolled_loops(kernel), read_only_loads(kernel)
    return None if text is None or alone is None else read_only_loads(kernel.again(text))
