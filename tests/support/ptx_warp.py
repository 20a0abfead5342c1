"""A warp of 32 lanes that runs PTX step by step and notes where it reads and writes.

It knows the instructions of ``tests/data/ptx``, and nothing of how mutants are made. Memory is a
function of the address; branches are taken if the first lane takes them.
"""

import re
import struct
from collections import Counter

LANES = range(32)
ALL = (1 << 32) - 1
_SIZES = {"8": 0xFF, "16": 0xFFFF, "32": ALL, "64": (1 << 64) - 1}


def _bits(type_):
    return int(re.sub(r"\D", "", type_))


def _signed(value, bits):
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


class Warp:
    """Runs one kernel; `accesses` then has (opcode, space, addresses of the lanes that made it)."""

    def __init__(
        self, ptx, parameters, *, switch=0, loads=lambda address: 0, block=0, special=None
    ):
        self.registers, self.accesses, self.barriers = {}, [], 0
        self.steps = Counter()
        self.switch, self.loads = switch, loads
        head, body = ptx.split("{", 1) if ".entry" in ptx.split("{", 1)[0] else self._entry(ptx)
        names = re.findall(r"\.param\s+\.\w+\s+(\w+)", head)
        self.parameters = dict(zip(names, parameters, strict=True))
        self.symbols = {}
        for number, name in enumerate(re.findall(r"\.(?:shared|const|local)[^;]*?(\w+)\[", ptx)):
            self.symbols[name] = 4096 * (number + 1)
        self.symbols["perfml_switch"] = "switch"
        numbers = {"%ctaid.x": block, "%ntid.x": 256, "%ctaid.y": 0, "%nctaid.x": 1}
        self.special = {name: [value] * 32 for name, value in numbers.items()}
        self.special |= {"%tid.x": list(LANES), "%laneid": list(LANES), "%tid.y": [0] * 32}
        self.special |= special or {}
        self._run(body)

    @staticmethod
    def _entry(ptx):
        start = re.search(r"\.entry", ptx).start()
        brace = ptx.index("{", start)
        return ptx[start:brace], ptx[brace + 1 :]

    def _run(self, body):
        text = re.sub(r"//[^\n]*|^\s*\.(?:loc|pragma)[^\n]*$", "", body, flags=re.M)
        steps, labels = [], {}
        for part in re.findall(r"\s*[$\w]+:|(?:[^;{}]|\{[^{};]*\})+;", text):
            part = part.strip()
            if part.endswith(":"):
                labels[part[:-1]] = len(steps)
            elif not part.startswith("."):
                steps.append(part[:-1].strip())
        at = 0
        for _ in range(20_000):
            if at >= len(steps):
                return
            guard, opcode, rest = re.fullmatch(
                r"(?:@(!?%\w+)\s+)?([a-z][\w.:]*)\s*(.*)", steps[at], re.S
            ).groups()
            active = self._active(guard)
            self.steps[opcode.split(".")[0]] += 1
            at += 1
            if opcode.startswith("bra") and active[0]:
                at = labels[rest.strip()]
            elif opcode in ("ret", "exit") and active[0]:
                return
            elif any(active) and not opcode.startswith("bra"):
                operands = re.findall(r"(?:[^,\[\]{}]|\[[^\]]*\]|\{[^}]*\})+", rest)
                self._step(opcode.split("."), [each.strip() for each in operands], active)
        raise AssertionError("the kernel does not end")

    def _active(self, guard):
        if not guard:
            return [True] * 32
        values = self.registers[guard.lstrip("!")]
        return [bool(value) != guard.startswith("!") for value in values]

    def get(self, text):
        """Return the lanes' values of an operand."""
        if text in self.special:
            return self.special[text]
        if text.startswith("!"):
            return [not value for value in self.get(text[1:])]
        if text.startswith("%"):
            return self.registers.get(text, [0] * 32)
        if text in self.symbols:
            return [self.symbols[text]] * 32
        if text[:2] in ("0f", "0d"):
            code = ">f" if text[1] == "f" else ">d"
            return [struct.unpack(code, bytes.fromhex(text[2:]))[0]] * 32
        return [int(text, 0)] * 32

    def _set(self, name, values, active):
        if name == "_":
            return
        before = self.registers.get(name, [0] * 32)
        pairs = zip(values, before, active, strict=True)
        self.registers[name] = [new if use else old for new, old, use in pairs]

    def _addresses(self, text):
        base, offset = re.fullmatch(r"\[\s*([%\w$]+)\s*(?:\+\s*(-?\w+))?\s*\]", text).groups()
        return base, [value + int(offset or "0", 0) for value in self.get(base)]

    def _step(self, parts, operands, active):
        kind, type_ = parts[0], parts[-1]
        if kind in ("ld", "st", "atom", "red"):
            self._access(parts, operands, active)
        elif kind == "bar" or kind == "barrier":
            self.barriers += 1
        elif kind in ("membar", "fence"):
            self.accesses.append((".".join(parts), "fence", []))
        elif kind == "mov" and operands[0].startswith("{"):
            low, high = operands[0].strip("{} ").split(",")
            values = self.get(operands[1])
            self._set(low.strip(), [value & ALL for value in values], active)
            self._set(high.strip(), [value >> 32 for value in values], active)
        elif kind == "mov" and operands[1].startswith("{"):
            low, high = (self.get(each.strip()) for each in operands[1].strip("{} ").split(","))
            self._set(operands[0], [a | b << 32 for a, b in zip(low, high, strict=True)], active)
        elif kind == "activemask":
            self._set(operands[0], [ALL] * 32, active)
        elif kind == "vote":
            votes = self.get(operands[1])
            mask = sum(bool(vote) << lane for lane, vote in enumerate(votes))
            self._set(operands[0], [mask & each for each in self.get(operands[2])], active)
        elif kind == "shfl":
            values, lanes = self.get(operands[1]), self.get(operands[2])
            self._set(operands[0], [values[lane & 31] for lane in lanes], active)
        else:
            taken = [self.get(each) for each in operands[1:]]
            values = [self._lane(parts, [each[lane] for each in taken]) for lane in LANES]
            if type_[0] in "usb" and type_[1:] in _SIZES and kind not in ("setp",):
                bits = 64 if "wide" in parts else _bits(parts[1] if kind == "cvt" else type_)
                values = [int(value) & ((1 << bits) - 1) for value in values]
            self._set(operands[0], values, active)

    def _access(self, parts, operands, active):
        kind, space = parts[0], next(p for p in parts[1:] if p not in ("volatile", "nc", "relaxed"))
        place = next(each for each in operands if each.startswith("["))
        base = place.strip("[] ").split("+")[0].strip()
        if space == "param":
            self._set(operands[0], [self.parameters[base]] * 32, active)
            return
        if base == "perfml_switch":
            self._set(operands[0], [self.switch] * 32, active)
            return
        _, addresses = self._addresses(place)
        made = [address for address, use in zip(addresses, active, strict=True) if use]
        self.accesses.append((".".join(parts), space, made))
        if kind in ("ld", "atom"):
            names = operands[0].strip("{} ").split(",")
            for number, name in enumerate(names):
                values = [self.loads(address + 4 * number) for address in addresses]
                self._set(name.strip(), values, active)

    def _lane(self, parts, taken):
        kind, type_ = parts[0], parts[-1]
        floats = type_[0] == "f"
        bits = _bits(type_) if type_ != "pred" else 32
        if type_[0] == "s":
            taken = [_signed(int(each), bits) for each in taken]
        first = taken[0]
        second = taken[1] if len(taken) > 1 else 0
        simple = {
            "add": lambda: first + second, "sub": lambda: first - second,
            "mul": lambda: first * second, "mad": lambda: first * second + taken[2],
            "fma": lambda: first * second + taken[2], "shl": lambda: first << second,
            "shr": lambda: first >> second, "and": lambda: first & second,
            "or": lambda: first | second, "xor": lambda: first ^ second,
            "not": lambda: not first if type_ == "pred" else ~first,
            "max": lambda: max(first, second), "min": lambda: min(first, second),
            "selp": lambda: first if taken[2] else second,
        }  # fmt: skip
        if kind in simple:
            return simple[kind]()
        if kind == "setp":
            by = {"eq": 0, "ne": 0, "lt": -1, "le": -1, "gt": 1, "ge": 1}[parts[1]]
            order = (first > second) - (first < second)
            return (
                order != 0 if parts[1] == "ne" else order in ({by, 0} if "e" in parts[1] else {by})
            )
        if kind == "bfind":
            return first.bit_length() - 1
        if kind in ("div", "rem") and not floats:
            return first // second if kind == "div" else first % second
        return first  # mov, cvt, cvta and functions of floats: their values decide nothing here
