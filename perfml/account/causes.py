"""Why a step takes long: the account divided by causes.

Every microsecond of kernels, copies and idle time goes to one cause at most, the first of
``causes.toml`` that it fits, so that causes and the rest add up to the wall.
"""

from __future__ import annotations

import functools
import math
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from typing import Any, ClassVar

from perfml.account.account import AMOUNTS, FEW_BLOCKS, Account, DeviceAccount, Part

LAUNCH_BOUND = "launch_bound"
_REPEATED = 3
"""Launches of kernels that ran before, below which no loop is seen that a graph could hold: as
many as make something a repeat (steps.py)."""
_FEW = 0.05
"""Launches that make less of all do not explain why the host takes longer to launch."""


@dataclass(frozen=True)
class KernelMatch:
    """Which kernels have a cause: those that fit everything that it names."""

    zones: frozenset[str] = frozenset()
    does: frozenset[str] = frozenset()
    traits: frozenset[str] = frozenset()
    unless: frozenset[str] = frozenset()
    only: str = ""

    def holds(self, part: Part, account: Account) -> bool:
        """Return whether some kernels fit."""
        own = frozenset(part.traits)
        return (
            (not self.zones or part.zone in self.zones)
            and (not self.does or part.does in self.does)
            and (not self.traits or bool(self.traits & own))
            and not self.unless & {part.does, *own}
            and (self.only != "inference" or account.kind not in ("training", "unknown"))
        )


@dataclass(frozen=True)
class Cause:
    """A cause: what it is seen in.

    Attributes
    ----------
    id, words
        Its id, and what it is.
    idle
        States of the host that are its idle time.
    copies
        Attributes of its copies; None where it has none.
    kernels
        Which kernels are its.
    launches
        Whether it shows in more launches, each of which takes the host's time.
    saves
        Which part of its time the remedy takes away.
    fills
        Whether the remedy fills a device that is nearly empty: it saves between nothing and what
        lanes without a thread leave. The middle by factors is likely.
    tells
        Metrics that tell what the remedy saves of an author's kernels, and of those whose names do
        not say what they do; empty where their time is enough.
    named
        Whether it says why sides differ, not only where.
    """

    id: str
    words: str
    saves: float = 0.0
    fills: bool = False
    tells: str = ""
    idle: frozenset[str] = frozenset()
    copies: Mapping[str, Any] | None = None
    kernels: tuple[KernelMatch, ...] = ()
    launches: bool = False
    named: bool = False


NONE = Cause("", "")
"""Of what fits no cause."""


@functools.cache
def _table() -> dict[str, dict[str, Cause]]:
    text = (files(__package__) / "causes.toml").read_text(encoding="utf-8")
    return {
        kind: {row["id"]: _cause(row) for row in rows} for kind, rows in tomllib.loads(text).items()
    }


@functools.cache
def causes() -> tuple[Cause, ...]:
    """Return the causes of ``causes.toml``, in its order."""
    return tuple(_table()["cause"].values())


def _cause(row: Mapping[str, Any]) -> Cause:
    kernels = tuple(KernelMatch(**_sets(each)) for each in row.get("kernels", ()))
    return Cause(**{**_sets(row), "kernels": kernels})


def _sets(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of the table with its lists as sets."""
    return {
        k: frozenset(v) if isinstance(v, list) and k != "kernels" else v for k, v in row.items()
    }


TIMES = ("idle_us", "copying_us", "computing_us")
"""What an `Amount` is made of."""


@dataclass
class Amount:
    """What a cause takes of a step, in microseconds, and how many launches it makes."""

    idle_us: float = 0.0
    copying_us: float = 0.0
    computing_us: float = 0.0
    saved_us: float = 0.0
    most_us: float = 0.0
    launches: float = 0.0
    where: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    operators: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))

    @property
    def us(self) -> float:
        """All of it."""
        return self.idle_us + self.copying_us + self.computing_us

    @property
    def place(self) -> str:
        """The range in which most of it lies; empty where no range holds it."""
        return _most(self.where)

    @property
    def operator(self) -> str:
        """The operator that most of its kernels were launched for."""
        return _most(self.operators)

    def at(self, where: str, us: float) -> None:
        """Note in which range some of it lies."""
        if where:
            self.where[where] += us


def amounts(account: Account, device: DeviceAccount) -> dict[str, Amount]:
    """Return what each cause takes of a step on one device; ``""`` is what has no cause."""
    found = {id_: Amount() for id_ in ("", *(cause.id for cause in causes()))}
    for idle in device.idle:
        cause = next((each for each in causes() if idle.state in each.idle), NONE)
        amount = found[cause.id]
        amount.idle_us += idle.us
        amount.saved_us += idle.us * cause.saves
        amount.at(idle.where, idle.us)
    for copies in device.copies:
        known = {name: getattr(copies, name) for name in ("kind", "pageable")}.items()
        cause = next((e for e in causes() if e.copies and e.copies.items() <= known), NONE)
        found[cause.id].copying_us += copies.us
        found[cause.id].saved_us += copies.us * cause.saves
    for part in device.parts:
        cause = _of_part(part, account)
        amount = found[cause.id]
        amount.computing_us += part.us
        # operators of PyTorch move, or compute, all elements of the type in their names
        if not cause.tells or (account.pytorch and part.does):
            amount.saved_us += part.us * cause.saves
        if cause.fills:
            amount.saved_us += part.us - math.sqrt(part.us * part.filled_us)
            amount.most_us += part.us - part.filled_us
        if cause is not NONE:
            amount.launches += part.launches  # the remedy takes these away, not only their time
        amount.at(part.where, part.us)
        amount.operators[part.operator] += part.us
    return found


def _of_part(part: Part, account: Account) -> Cause:
    matches = ((cause, match) for cause in causes() for match in cause.kernels)
    return next((cause for cause, match in matches if match.holds(part, account)), NONE)


def _share_launching(found: Mapping[str, Amount], device: DeviceAccount) -> None:
    """Give causes that make launches their part of the time that launching takes."""
    bound, row = found[LAUNCH_BOUND], _table()["cause"][LAUNCH_BOUND]
    whole = bound.idle_us
    for cause in causes():
        amount = found[cause.id]
        # what is idle in a range of its own is its own already
        if not cause.launches or amount.idle_us or not amount.launches or not device.launches:
            continue
        part = whole * amount.launches / device.launches
        for holder, us in ((amount, part), (bound, -part)):
            holder.idle_us += us
            holder.saved_us += us * row.saves


@dataclass(frozen=True)
class Finding:
    """A cause in one recording: what it takes of a step, and what its remedy saves.

    Attributes
    ----------
    cause
        The cause.
    amount
        What it takes.
    step_us
        What a person waits for a step: on the clock, without a profiler where that was timed.
    """

    cause: Cause
    amount: Amount
    step_us: float

    @property
    def saved_us(self) -> float:
        """What the remedy is likely to save of a step."""
        return min(self.amount.saved_us, self.step_us)

    @property
    def tells(self) -> str:
        """What would tell what it saves; empty where that is known."""
        return "" if self.amount.saved_us else self.cause.tells

    @property
    def most_us(self) -> float:
        """What it saves at most of a step."""
        return min(max(self.amount.saved_us, self.amount.most_us), self.step_us)


def findings(account: Account) -> list[Finding]:
    """Return what could be saved of a step, the largest first; then what no counter tells of.

    Of several devices it is the busiest one's: nothing saves more than that one leaves.
    """
    account = account.bare
    device = account.busiest
    taken = amounts(account, device)
    _share_launching(taken, device)
    unknown = {*account.unknown, *([] if _repeats(account, device) else [LAUNCH_BOUND])}
    found = [
        Finding(cause, taken[cause.id], account.step_us)
        for cause in causes()
        if taken[cause.id].us > 0 and (cause.saves or cause.fills)
        if cause.id not in unknown
    ]
    return sorted(found, key=lambda finding: (-finding.saved_us, -finding.amount.us))


def _repeats(account: Account, device: DeviceAccount) -> bool:
    """Return whether kernels are launched again and again, which a graph can do at once."""
    launches = device.launches * len(account.kept_us)
    return launches - len({part.kernel for part in device.parts}) >= _REPEATED


@dataclass(frozen=True)
class Change:
    """What a cause makes of the difference between two accounts, in microseconds of a step.

    Attributes
    ----------
    id
        Of a row of ``causes.toml``.
    us
        What the other side takes more.
    operators
        The operators it concerns, those that changed most first.
    where
        The range in which most of it lies; empty where no range holds it.
    kernel
        Label of the kernel that most of it is of; empty where it is of none.
    sides
        Of the longest operator that it concerns, what its kernels and their operands are made of,
        on either side; empty where it is of none.
    """

    id: str
    us: float
    operators: tuple[str, ...] = ()
    where: str = ""
    kernel: str = ""
    sides: tuple[Part, ...] = ()

    JSON: ClassVar = (("cause", "id"), "us", "operators", "where")

    @property
    def cause(self) -> Cause | None:
        """The cause; None of what is no cause of its own."""
        return _table()["cause"].get(self.id)

    @property
    def named(self) -> bool:
        """Whether it says why, and not only where."""
        return self.cause is not None or _table()["other"][self.id].named

    @property
    def words(self) -> str:
        """What it is."""
        return (self.cause or _table()["other"][self.id]).words


_BYTES = {"double": 8, "float": 4, "tf32": 4, "half": 2, "bf16": 2, "fp8": 1, "int8": 1}
"""Bytes of the types that names of kernels tell."""
_TYPES = frozenset(f"type:{name}" for name in _BYTES)
_LAYOUTS = ("nchw", "nhwc")
"""Layouts of convolutions and what stands beside them, the one first that tensor cores convert."""


def changes(one: Account, other: Account) -> list[Change]:
    """Return what the difference of two steps is made of, in microseconds that add up.

    The largest in the direction of the difference comes first. Kernels are compared operator by
    operator: what one operator takes more is the cause that most of its kernels have there and
    not here. Time in which the host launches grows with the launches, and goes to the causes that
    add them.
    """
    sides = [(each, each.busiest) for each in (one, other)]
    sums = [amounts(*side) for side in sides]
    kernels = _kernel_changes(sides)
    us = _sums((each.id, each.us) for each in kernels)
    where = {
        id_: _most(_sums((k.longest.where, abs(k.us)) for k in kernels if k.id == id_))
        for id_ in us
    }
    for cause in causes():
        before, after = (side[cause.id] for side in sums)
        more = after.idle_us + after.copying_us - before.idle_us - before.copying_us
        if cause.id == LAUNCH_BOUND:
            launches = _sums((each.id, each.launches) for each in kernels)
            for id_, part in _by_launches(more, launches, sides[0][1].launches):
                us[id_] += part
        elif more:
            us[cause.id] += more
            where[cause.id] = (after if more > 0 else before).place or where.get(cause.id, "")
    rest = [side[""] for side in sums]
    us["copies"] += rest[1].copying_us - rest[0].copying_us
    for state in ("profiling", "blocked", "unrecorded"):
        idle = [sum(i.us for i in device.idle if i.state == state) for _, device in sides]
        us[state] += idle[1] - idle[0]
    sign = 1.0 if other.step_us >= one.step_us else -1.0
    found = []
    for id_, more in us.items():
        operators = _sums((k.longest.operator, abs(k.us)) for k in kernels if k.id == id_)
        names = tuple(name for name in sorted(operators, key=lambda n: -operators[n]) if name)
        own = [each for each in kernels if each.id == id_]
        kernel = _most(_sums((k.longest.kernel, abs(k.us)) for k in own))
        held = max(own, key=lambda each: abs(each.us)).sides if own else ()
        found += [Change(id_, more, names[:3], where.get(id_, ""), kernel, held)] if more else []
    return sorted(found, key=lambda each: -sign * each.us)


def _by_launches(
    more_us: float, launches: Mapping[str, float], before: float
) -> list[tuple[str, float]]:
    """Share what launching takes more among the causes that launch more."""
    along = {id_: n for id_, n in launches.items() if n * more_us > 0}
    added = {id_: n for id_, n in along.items() if id_ in _with_launches()}
    if abs(sum(added.values())) <= _FEW * max(before, 1.0):
        return [(LAUNCH_BOUND, more_us)]
    whole = sum(map(abs, along.values()))
    shares = [(id_, more_us * abs(n) / whole) for id_, n in added.items()]
    return [*shares, (LAUNCH_BOUND, more_us - sum(us for _, us in shares))]


@functools.cache
def _with_launches() -> frozenset[str]:
    return frozenset(cause.id for cause in causes() if cause.launches or cause.id == "elementwise")


_Side = tuple[Account, DeviceAccount]


@dataclass(frozen=True)
class _Difference:
    """What the kernels of one operator take more, and why; the longest is of the slower side."""

    id: str
    us: float
    launches: float
    longest: Part
    sides: tuple[Part, ...]


def _kernel_changes(sides: Sequence[_Side]) -> list[_Difference]:
    groups: dict[tuple[object, ...], tuple[list[Part], list[Part]]] = {}
    for place, (_, device) in enumerate(sides):
        for part in device.parts:
            groups.setdefault(_group(part), ([], []))[place].append(part)
    found = []
    for before, after in groups.values():
        more = _us(after) - _us(before)
        id_ = _why(before, after, sides) if more else ""
        launches = sum(p.launches for p in after) - sum(p.launches for p in before)
        slower = after if more > 0 else before
        longest = max(slower or after, key=lambda part: part.us)
        held = tuple(map(_whole, (before, after))) if before and after else ()
        found.append(_Difference(id_, more, launches, longest, held))
    return found


def _group(part: Part) -> tuple[object, ...]:
    if part.zone in ("recomputed", "communication"):
        return (part.zone,)
    if part.zone == "optimizer":
        return ("optimizer",)
    if not part.backward and (part.zone == "attention" or part.does == "attention"):
        return ("attention",)
    return (part.operator, part.backward)


def _why(before: Sequence[Part], after: Sequence[Part], sides: Sequence[_Side]) -> str:
    """Return the id of why an operator's kernels take another time."""
    more = _us(after) - _us(before)
    slow, fast = (1, 0) if more > 0 else (0, 1)
    parts = (before, after)
    if all(any(FEW_BLOCKS in part.traits for part in side) for side in parts):
        parts = (_filling(before), _filling(after))
    zoned = any(part.zone for part in parts[slow])
    often = [sum(part.launches for part in side) for side in parts]
    if not zoned and _kinds(parts[slow]) == _kinds(parts[fast]) and _close(*often):
        # what both sides have in equal number is no difference
        return _of_operands(parts[slow], parts[fast]) or "same_kernels"
    shares = []
    for side in (slow, fast):
        account, _ = sides[side]
        shares.append(_sums((_of_part(p, account).id, p.us) for p in parts[side]))
    # of an operator that the other side has, more elementwise kernels are no cause
    gained = {
        id_: value - shares[1][id_]
        for id_, value in shares[0].items()
        if id_ and (id_ != "elementwise" or not parts[fast])
        if zoned or not parts[fast] or shares[1][id_] < _MOST * _us(parts[fast])
    }
    if not zoned and _bytes(parts[slow]) == 2 * _bytes(parts[fast]) == 4:
        return "wider_type"
    if (_most_told(parts[slow], _LAYOUTS), _most_told(parts[fast], _LAYOUTS)) == _LAYOUTS:
        return "layout"
    best = _most(gained)
    if best and gained[best] >= _MOST * abs(more):
        return best
    if not before or not after:
        return "other_operators"
    names = [{part.kernel for part in side} for side in parts]
    again = names[0] == names[1] and not _close(*often)
    if again and _as_large(_whole(before), _whole(after)):
        return "more_launches"
    known = "more_launches" if again else "other_kernels"
    return _of_operands(parts[slow], parts[fast]) or known


def _as_large(one: Part, other: Part) -> bool:
    """Return whether launches of both sides are as large, however many there are."""
    names = ("threads", "elements")
    sizes = ([getattr(part, n) / part.launches for part in (one, other)] for n in names)
    return all(_close(*size) for size in sizes)


_MOST = 0.3
"""A cause explains an operator's difference if its kernels make at least this part of it."""


_GROWS = 2
"""Time grows with the elements of operands at most to this power: attention with the square of its
length, a product of matrices to the power 1.5."""
_OTHER = 0.02
"""Amounts that differ by less are equal; a step may launch a small kernel more."""


def _of_operands(slow: Sequence[Part], fast: Sequence[Part]) -> str:
    """Return what an operator's operands and launches tell of why it takes longer; or nothing.

    An amount explains a difference of which it makes at least `_MOST`.
    """
    long, short = _whole(slow), _whole(fast)
    shaped = bool(long.elements and short.elements)
    longer = _MOST * (long.us / max(short.us, 1e-12) - 1)
    size = long.elements / short.elements if shaped else 1.0
    alike = _kinds(slow) == _kinds(fast)
    if not shaped and alike and long.threads and short.threads:
        size = max(long.threads / short.threads, 1.0)
    if size > 1 + _OTHER and size**_GROWS - 1 >= longer:
        return "shapes"
    if shaped and _close(long.elements, short.elements):
        if long.bytes > (1 + _OTHER) * short.bytes > 0:
            return "wider_type"
        if long.off_rows - short.off_rows > _MOST * long.elements:
            return "strides"
        if not _close(long.extents, short.extents):
            return "shapes"
    if alike and 0 < (1 + _OTHER) * long.threads < short.threads:
        return "fewer_threads"
    return "same_operands" if alike and shaped and size <= 1 + _OTHER else ""


def _filling(parts: Sequence[Part]) -> list[Part]:
    """Return kernels without what their launches have to do with how full the device is."""
    return [
        replace(part, traits=tuple(trait for trait in part.traits if trait != FEW_BLOCKS))
        for part in parts
    ]


def _kinds(parts: Sequence[Part]) -> set[tuple[str, tuple[str, ...]]]:
    return {(part.kernel, part.traits) for part in _filling(parts)}


def _whole(parts: Sequence[Part]) -> Part:
    """Return parts of an operator as one, with all that they hold."""
    longest = max(parts, key=lambda part: part.us)
    sums: dict[str, Any] = {n: math.fsum(getattr(part, n) for part in parts) for n in AMOUNTS}
    return replace(longest, **sums)


def _close(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=_OTHER)


def _bytes(parts: Sequence[Part]) -> int:
    """Return the bytes of an element that most of some kernels' time is spent on; 0 if unknown."""
    return _BYTES.get(_most_told(parts, _TYPES).removeprefix("type:"), 0)


def _most_told(parts: Sequence[Part], among: Iterable[str]) -> str:
    """Return which of some traits the names of most kernels tell, by time; empty without one."""
    told = ((trait, part.us) for part in parts for trait in part.traits if trait in among)
    return _most(_sums(told))


def _us(parts: Sequence[Part]) -> float:
    return sum(part.us for part in parts)


def _sums(pairs: Iterable[tuple[str, float]]) -> defaultdict[str, float]:
    """Return the sum of the values of each name, in order of the first."""
    found: defaultdict[str, float] = defaultdict(float)
    for name, value in pairs:
        found[name] += value
    return found


def _most(sums: Mapping[str, float]) -> str:
    """Return the name of the largest of some sums; empty without one."""
    return max(sums, key=sums.__getitem__, default="")
