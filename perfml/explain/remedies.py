"""What to do about a cause: the one table, and the one function that picks from it.

Here to change: a remedy is a row of ``remedies.toml``; what one can need is a function of `NEEDS`.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from perfml.account.account import Account
from perfml.errors import plain
from perfml.explain.advice.persons import Person
from perfml.kernel_names import function_name
from perfml.util.files import read_rows, record

LONGER = "longer than kernels"
"""Copies that no kernel is long enough to hide."""

_HIP = re.compile(r"\bcuda(?=[A-Z])")
"""What HIP's runtime calls ``hip``, with the same names behind it; RCCL has NCCL's names."""
_LONGEST = 80  # characters of a kernel's name in a line to type: a part of it is enough
_SAYS = frozenset({"against", "line", "say", "cost", "check", "measured", "none", "fuses"})


@dataclass(frozen=True)
class Situation:
    """Where a cause is met. What is not known (NaN, None, empty) rules no remedy out.

    Attributes
    ----------
    reader
        Who reads it.
    kernel, operations
        Full name of the kernel, and what it is part of: ``product``, ``convolution``.
    capability, amd
        Compute capability of the device, and whether it is AMD's.
    kind
        What the program is (`perfml.account.account.Account.kind`).
    waits, copies
        The operator at which the host waits most often; `LONGER` where copies are.
    limit
        What limits how many blocks fit.
    setting
        The setting that is asked for.
    numbers
        Numbers that a remedy needs, or names.
    """

    reader: Person = Person.AUTHOR
    kernel: str = ""
    operations: frozenset[str] = frozenset()
    capability: float = math.nan
    amd: bool = False
    kind: str = ""
    waits: str = ""
    copies: str = ""
    limit: str = ""
    setting: str = ""
    numbers: Mapping[str, float] = field(default_factory=dict)

    @property
    def vendor(self) -> str:
        """Whose device it is."""
        return "amd" if self.amd else "nvidia"


NEEDS: Mapping[str, Callable[[Any, Situation], bool]] = {
    "reader": lambda needed, here: here.reader.name.lower() in needed,
    "kernel": lambda needed, here: bool(here.kernel and re.search(needed, here.kernel)),
    "operation": lambda needed, here: needed in here.operations,
    "capability": lambda needed, here: here.amd or not here.capability < needed,
    "below": lambda needed, here: not here.amd and here.capability < needed,
    "vendor": lambda needed, here: here.vendor == needed,
    "kind": lambda needed, here: here.kind in ("", needed),
    "waits": lambda needed, here: here.waits == needed,
    "copies": lambda needed, here: here.copies == needed,
    "limit": lambda needed, here: here.limit == needed,
    "setting": lambda needed, here: here.setting == needed,
    "again": lambda needed, here: here.numbers.get("again", 0.0) >= needed,
    "asked": lambda needed, here: here.numbers.get("asked", 0.0) >= needed,
}
"""Whether what a row needs is there, by its key."""


@dataclass(frozen=True)
class Remedy:
    """What to do about some causes; ``remedies.toml`` says what its fields mean."""

    against: frozenset[str] = frozenset()
    needs: Mapping[str, Any] = field(default_factory=dict)
    line: str = ""
    say: str = ""
    cost: str = ""
    check: str = ""
    measured: str = ""
    none: str = ""
    fuses: bool = False

    @property
    def helps(self) -> bool:
        """Whether there is something to do."""
        return bool(self.line or self.say)

    @property
    def sentences(self) -> str:
        """What to do and what it costs, without the line to type."""
        cost = f"Cost: {self.cost}." if self.cost else ""
        return " ".join(filter(None, (self.say or self.none, cost)))

    @property
    def text(self) -> str:
        """All of it: the line to type and the sentences to it."""
        return ". ".join(filter(None, (self.line, self.sentences)))

    def applies(self, here: Situation) -> bool:
        """Return whether all that it needs is there."""
        return all(NEEDS[name](needed, here) for name, needed in self.needs.items())

    def filled(self, here: Situation) -> Remedy:
        """Return it with the numbers and the names of functions of a situation."""
        line = _HIP.sub("hip", self.line) if here.amd else self.line
        if name := function_name(here.kernel)[:_LONGEST]:
            # it is matched as a regular expression, and typed into a shell
            line = line.replace("--kernel NAME", f"--kernel {plain(shlex.quote(re.escape(name)))}")
        say = self.say.format(**here.numbers) if here.numbers else self.say
        return replace(self, line=line, say=_HIP.sub("hip", say) if here.amd else say)


@cache
def load_remedies() -> tuple[Remedy, ...]:
    """Return the rows of ``remedies.toml``, in their order."""
    table = read_rows("perfml.explain", "remedies.toml")
    return tuple(_remedy(row, table["lists"]) for row in table["rows"])


def _remedy(row: Mapping[str, Any], lists: Mapping[str, Iterable[str]]) -> Remedy:
    needs = {name: value for name, value in row.items() if name not in _SAYS}
    said = {name: value for name, value in row.items() if name in _SAYS}
    return record(Remedy, said, against=frozenset(_named(row["against"], lists)), needs=needs)


def _named(names: Iterable[str], lists: Mapping[str, Iterable[str]]) -> Iterable[str]:
    for name in names:
        yield from _named(lists[name], lists) if name in lists else (name,)


@cache
def _against(cause: str) -> tuple[Remedy, ...]:
    return tuple(each for each in load_remedies() if cause in each.against)


def remedy_for(cause: str, here: Situation) -> Remedy:
    """Return what to do about a cause, here; without anything to do where nothing applies.

    Of several remedies it is the one whose gain was measured, then what the kernel's name tells,
    then the one that needs most.

    Examples
    --------
    >>> remedy_for("bank_conflicts", Situation()).say[:22]
    'Remove bank conflicts:'
    >>> remedy_for("no_tensor_cores", Situation(capability=6.1)).helps
    False
    """
    fits = [each for each in _against(cause) if each.applies(here)]
    return max(fits, key=_known_best, default=Remedy()).filled(here)


def _known_best(row: Remedy) -> tuple[bool, bool, int]:
    return bool(row.measured), "kernel" in row.needs, len(row.needs)


def of_account(account: Account, capability: float = math.nan, amd: bool = False) -> Situation:
    """Return the situation of a step on the clock."""
    step = account.busiest.step
    return Situation(
        reader=Person.PYTORCH if account.pytorch else Person.AUTHOR,
        capability=capability,
        amd=account.amd or amd,
        kind=account.kind,
        waits=account.waits[0].operator if account.waits else "",
        copies=LONGER if step.computing_us < step.copying_us else "",
        operations=frozenset({"convolution", "product"} & set(account.launched)),
    )
