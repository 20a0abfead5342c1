"""Why a step takes long: the account divided by causes, with what to do about each.

Every microsecond of kernels, copies and idle time goes to one cause at most, the first of
``causes.toml`` that it fits, so that causes and the rest add up to the wall.
"""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, ClassVar

from perfml.account.account import Account, Copies, DeviceAccount, Part

LAUNCH_BOUND = "launch_bound"
_FEW = 0.05
"""Launches that make less of all do not explain why the host takes longer to launch."""


@dataclass(frozen=True)
class KernelMatch:
    """Which kernels have a cause: those that fit everything that it names."""

    zones: frozenset[str] = frozenset()
    does: frozenset[str] = frozenset()
    traits: frozenset[str] = frozenset()
    unless: frozenset[str] = frozenset()
    beside: str = ""
    only: str = ""
    saves: float | None = None

    def holds(self, part: Part, account: Account, traits: frozenset[str]) -> bool:
        """Return whether some kernels fit; `traits` are those of all kernels of the account."""
        own = frozenset(part.traits)
        return (
            (not self.zones or part.zone in self.zones)
            and (not self.does or part.does in self.does)
            and (not self.traits or bool(self.traits & own))
            and not self.unless & {part.does, *own}
            and (not self.beside or self.beside in traits)
            and (self.only != "inference" or not account.trains)
        )


@dataclass(frozen=True)
class Cause:
    """A cause: what it is seen in, and what to do.

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
    instead
        Other lines to type, by the operator at which the host waits most often.
    launches
        Whether it shows in more launches, each of which takes the host's time.
    saves
        Which part of its time the remedy takes away.
    remedy, also
        A line to type, and a sentence.
    """

    id: str
    words: str
    saves: float
    remedy: str
    also: str
    idle: frozenset[str] = frozenset()
    copies: Mapping[str, Any] | None = None
    kernels: tuple[KernelMatch, ...] = ()
    launches: bool = False
    instead: Mapping[str, str] = field(default_factory=dict)

    def line(self, account: Account) -> str:
        """Return the line to type for an account that has this cause."""
        waits = account.waits[0].operator if account.waits else ""
        return self.instead.get(waits, self.remedy)

    def has_copies(self, copies: Copies) -> bool:
        """Return whether some copies are this cause's."""
        return self.copies is not None and all(
            getattr(copies, name) == value for name, value in self.copies.items()
        )


@functools.cache
def causes() -> tuple[Cause, ...]:
    """Return the causes of ``causes.toml``, in its order."""
    text = (files(__package__) / "causes.toml").read_text(encoding="utf-8")
    return tuple(map(_cause, tomllib.loads(text)["cause"]))


def _cause(row: Mapping[str, Any]) -> Cause:
    kernels = tuple(map(_match, row.get("kernels", ())))
    return Cause(**{**row, "idle": frozenset(row.get("idle", ())), "kernels": kernels})


def _match(row: Mapping[str, Any]) -> KernelMatch:
    zones, does, traits, unless = (
        frozenset(row.get(name, ())) for name in ("zones", "does", "traits", "unless")
    )
    beside, only = (str(row.get(name, "")) for name in ("beside", "only"))
    return KernelMatch(zones, does, traits, unless, beside, only, row.get("saves"))


@dataclass
class Amount:
    """What a cause takes of a step, in microseconds, and how many launches it makes."""

    idle_us: float = 0.0
    copying_us: float = 0.0
    computing_us: float = 0.0
    saved_us: float = 0.0
    launches: float = 0.0
    where: dict[str, float] = field(default_factory=dict)
    operators: dict[str, float] = field(default_factory=dict)

    @property
    def us(self) -> float:
        """All of it."""
        return self.idle_us + self.copying_us + self.computing_us

    @property
    def place(self) -> str:
        """The range in which most of it lies; empty where no range holds it."""
        return max(self.where, key=self.where.__getitem__, default="")

    @property
    def operator(self) -> str:
        """The operator that most of its kernels were launched for."""
        return max(self.operators, key=self.operators.__getitem__, default="")

    def at(self, where: str, us: float) -> None:
        """Note in which range some of it lies."""
        if where:
            self.where[where] = self.where.get(where, 0.0) + us


def amounts(account: Account, device: DeviceAccount) -> dict[str, Amount]:
    """Return what each cause takes of a step on one device; ``""`` is what has no cause."""
    found: dict[str, Amount] = {"": Amount(), **{cause.id: Amount() for cause in causes()}}
    for idle in device.idle:
        cause = next((each for each in causes() if idle.state in each.idle), None)
        amount = found["" if cause is None else cause.id]
        amount.idle_us += idle.us
        amount.saved_us += idle.us * (0.0 if cause is None else cause.saves)
        amount.at(idle.where, idle.us)
    for copies in device.copies:
        cause = next((each for each in causes() if each.has_copies(copies)), None)
        amount = found["" if cause is None else cause.id]
        amount.copying_us += copies.us
        amount.saved_us += copies.us * (0.0 if cause is None else cause.saves)
    traits = frozenset(trait for part in device.parts for trait in part.traits)
    for part in device.parts:
        cause, saves = _of_part(part, account, traits)
        amount = found["" if cause is None else cause.id]
        amount.computing_us += part.us
        amount.saved_us += part.us * saves
        if cause is not None and saves == cause.saves:
            amount.launches += part.launches  # the remedy takes these away, not only their time
        amount.at(part.where, part.us)
        amount.operators[part.operator] = amount.operators.get(part.operator, 0.0) + part.us
    _share_launching(found, device)
    return found


def _of_part(part: Part, account: Account, traits: frozenset[str]) -> tuple[Cause | None, float]:
    for cause in causes():
        for match in cause.kernels:
            if match.holds(part, account, traits):
                return cause, cause.saves if match.saves is None else match.saves
    return None, 0.0


def _share_launching(found: Mapping[str, Amount], device: DeviceAccount) -> None:
    """Give causes that make launches their part of the time that launching takes."""
    bound = found[LAUNCH_BOUND]
    if not device.launches:
        return
    for cause in causes():
        # what is idle in a range of its own is its own already
        if cause.launches and found[cause.id].idle_us == 0.0:
            amount = found[cause.id]
            amount.saved_us += bound.idle_us * cause.saves * amount.launches / device.launches


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
        The step on the clock.
    device
        The number of the device.
    """

    cause: Cause
    amount: Amount
    step_us: float
    device: int

    @property
    def saved_us(self) -> float:
        """What the remedy is likely to save of a step."""
        return min(self.amount.saved_us, self.step_us)


def findings(account: Account) -> list[Finding]:
    """Return what could be saved of a step, the largest first.

    Of several devices it is the busiest one's: nothing saves more than that one leaves.
    """
    device = account.busiest
    found = [
        Finding(cause, amount, account.step_us, device.device)
        for cause in causes()
        if (amount := amounts(account, device)[cause.id]).saved_us > 0
    ]
    return sorted(found, key=lambda each: -each.saved_us)


@dataclass(frozen=True)
class Change:
    """What a cause makes of the difference between two accounts, in microseconds of a step.

    Attributes
    ----------
    id
        Of a cause of ``causes.toml``, or of `OTHERS`.
    us
        What the other side takes more.
    operators
        The operators it concerns, those that changed most first.
    where
        The range in which most of it lies; empty where no range holds it.
    """

    id: str
    us: float
    operators: tuple[str, ...] = ()
    where: str = ""

    JSON: ClassVar = (("cause", "id"), "us", "operators", "where")

    @property
    def cause(self) -> Cause | None:
        """The cause; None of `OTHERS`."""
        return next((each for each in causes() if each.id == self.id), None)

    @property
    def words(self) -> str:
        """What it is."""
        return OTHERS[self.id][0] if self.cause is None else self.cause.words

    def line(self, account: Account) -> str:
        """Return the line to type on the side of an account."""
        return OTHERS[self.id][1] if self.cause is None else self.cause.line(account)


_SHAPES = "torch.profiler.profile(record_shapes=True)  # and compare the shapes of these operators"
OTHERS = {
    "wider_type": (
        "kernels on a wider type of number",
        'with torch.autocast("cuda", torch.bfloat16): ...',
    ),
    "more_launches": (
        "more kernels are launched for the same operators",
        "torch.profiler.profile(with_stack=True)  # and look who calls these operators again",
    ),
    "other_kernels": ("other kernels for the same operators", _SHAPES),
    "same_kernels": ("the same kernels take longer: larger shapes, or other data", _SHAPES),
    "other_operators": (
        "operators that only one side has",
        "torch.profiler.profile(with_stack=True)  # and look who calls these operators",
    ),
    "copies": (
        "other copies and fills of memory",
        "torch.profiler.profile(with_stack=True)  # and look who copies",
    ),
    "profiling": (
        "the profiler itself",
        "torch.profiler.schedule(wait=1, warmup=3, active=3)  # more steps to warm up",
    ),
}
"""What differs without a cause of the table: in words, and a line that tells more."""
_BYTES = {"double": 8, "float": 4, "tf32": 4, "half": 2, "bf16": 2, "fp8": 1, "int8": 1}
"""Bytes of the types that names of kernels tell."""


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
    found: dict[str, Change] = {change.id: change for change in kernels[0]}

    def add(id_: str, us: float, where: str = "") -> None:
        known = found.get(id_, Change(id_, 0.0))
        found[id_] = Change(id_, known.us + us, known.operators, where or known.where)

    for cause in causes():
        before, after = (side[cause.id] for side in sums)
        more = after.idle_us + after.copying_us - before.idle_us - before.copying_us
        if cause.id == LAUNCH_BOUND:
            for id_, us in _by_launches(more, kernels[1], sides[0][1].launches):
                add(id_, us)
        elif more:
            add(cause.id, more, (after if more > 0 else before).place)
    rest = [side[""] for side in sums]
    add("copies", rest[1].copying_us - rest[0].copying_us)
    add("profiling", rest[1].idle_us - rest[0].idle_us)
    sign = 1.0 if other.step_us >= one.step_us else -1.0
    return sorted((each for each in found.values() if each.us), key=lambda each: -sign * each.us)


def _by_launches(
    more_us: float, launches: Mapping[str, float], before: float
) -> list[tuple[str, float]]:
    """Share what launching takes more among the causes that launch more."""
    added = {id_: n for id_, n in launches.items() if n * more_us > 0 and id_ in _with_launches()}
    whole = sum(abs(n) for n in launches.values() if n * more_us > 0)
    if abs(sum(added.values())) <= _FEW * max(before, 1.0):
        return [(LAUNCH_BOUND, more_us)]
    shares = [(id_, more_us * abs(n) / whole) for id_, n in added.items()]
    return [*shares, (LAUNCH_BOUND, more_us - sum(us for _, us in shares))]


@functools.cache
def _with_launches() -> frozenset[str]:
    return frozenset(cause.id for cause in causes() if cause.launches or cause.id == "elementwise")


_Side = tuple[Account, DeviceAccount]


def _kernel_changes(sides: Sequence[_Side]) -> tuple[list[Change], dict[str, float]]:
    """Return what kernels take more, by cause, and how many launches each cause adds."""
    groups: dict[tuple[object, ...], tuple[list[Part], list[Part]]] = {}
    for place, (_, device) in enumerate(sides):
        for part in device.parts:
            groups.setdefault(_group(part), ([], []))[place].append(part)
    us: dict[str, float] = {}
    launches: dict[str, float] = {}
    named: dict[str, dict[str, float]] = {}
    where: dict[str, dict[str, float]] = {}
    for before, after in groups.values():
        more = _sum(after) - _sum(before)
        id_ = _why(before, after, sides) if more else ""
        count = sum(p.launches for p in after) - sum(p.launches for p in before)
        launches[id_] = launches.get(id_, 0.0) + count
        if not more:
            continue
        us[id_] = us.get(id_, 0.0) + more
        longest = max(after if more > 0 else before, key=lambda part: part.us)
        for held, name in ((named, longest.operator), (where, longest.where)):
            mine = held.setdefault(id_, {})
            mine[name] = mine.get(name, 0.0) + abs(more)
    return [
        Change(
            id_,
            value,
            tuple(name for name in _largest(named[id_]) if name)[:3],
            _largest(where[id_])[0],
        )
        for id_, value in us.items()
    ], launches


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
    more = _sum(after) - _sum(before)
    slow, fast = (1, 0) if more > 0 else (0, 1)
    parts = (before, after)
    shares = []
    for side in (slow, fast):
        account, device = sides[side]
        traits = frozenset(trait for part in device.parts for trait in part.traits)
        mine: dict[str, float] = {}
        for part in parts[side]:
            for cause in causes():
                if any(match.holds(part, account, traits) for match in cause.kernels):
                    mine[cause.id] = mine.get(cause.id, 0.0) + part.us
                    break
        shares.append(mine)
    # of an operator that the other side has, more elementwise kernels are no cause
    gained = {
        id_: value - shares[1].get(id_, 0.0)
        for id_, value in shares[0].items()
        if id_ != "elementwise" or not parts[fast]
    }
    zoned = any(part.zone for part in parts[slow])
    if not zoned and _bytes(parts[slow]) == 2 * _bytes(parts[fast]) == 4:
        return "wider_type"
    best = max(gained, key=gained.__getitem__, default="")
    if best and gained[best] >= _MOST * abs(more):
        return best
    if not before or not after:
        return "other_operators"
    return _without_cause(before, after)


_MOST = 0.3
"""A cause explains an operator's difference if its kernels make at least this part of it."""


def _without_cause(before: Sequence[Part], after: Sequence[Part]) -> str:
    names = [{part.kernel for part in side} for side in (before, after)]
    counts = [sum(part.launches for part in side) for side in (before, after)]
    if counts[1] != counts[0] and names[0] == names[1]:
        return "more_launches"
    return "same_kernels" if names[0] == names[1] else "other_kernels"


def _bytes(parts: Sequence[Part]) -> int:
    """Return the bytes of an element that most of some kernels' time is spent on; 0 if unknown."""
    sums: dict[str, float] = {}
    for part in parts:
        for trait in part.traits:
            if trait.startswith("type:"):
                sums[trait] = sums.get(trait, 0.0) + part.us
    most = max(sums, key=sums.__getitem__, default="")
    return _BYTES.get(most.removeprefix("type:"), 0)


def _sum(parts: Sequence[Part]) -> float:
    return sum(part.us for part in parts)


def _largest(sums: Mapping[str, float]) -> list[str]:
    return sorted(sums, key=lambda name: -sums[name])
