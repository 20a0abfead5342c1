"""What to do about a cause: the one table, and the one function that picks from it.

Here to change: a remedy is a row of ``remedies.toml``; what one can need is a function of `NEEDS`;
what the kernels of a library and of PyTorch are called is in the patterns of `person_of`.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cache
from typing import Any

from perfml.account.account import Account
from perfml.account.steps import SERVED
from perfml.errors import plain
from perfml.kernel_names import function_name
from perfml.util.files import read_rows, record

LONGER = "longer than kernels"
"""Copies that no kernel is long enough to hide."""

_HIP = re.compile(r"\bcuda(?=[A-Z])")
"""What HIP's runtime calls ``hip``, with the same names behind it; RCCL has NCCL's names."""
_LONGEST = 80  # characters of a kernel's name in a line to type: a part of it is enough
_SAYS = frozenset({"against", "line", "say", "cost", "check", "measured", "none", "fuses"})


_PYTORCH = re.compile(
    r"\bat::|at_cuda_detail|pytorch|triton_|elementwise_kernel|reduce_kernel|softmax_warp_|cunn_"
)
_LIBRARY = re.compile(
    r"cublas|cudnn|cutlass|xmma|nvjet_|winograd|implicit_convolve|engines_precompiled|gemmSN_|"
    r"gemv2T|splitKreduce|convolve_common_engine|precomputed_convolve|conv2d_c1_k1|fft2d_r2c|"
    r"flash_fwd|flash_bwd|fmha_|"
    # Those take no pointers: ampere_sgemm_64x64_nn, ampere_lstm_tile16<32, 1>(params_t); an
    # author's hopper_gemm(float*) does.
    r"^(void )?(sm\d\d|ampere|volta|turing|maxwell|hopper)_[^*]*$|"
    # cuBLAS: sgemm_128x128x8_NN_vec, sgemm_largek_lds64; an author's sgemm_naive is another's.
    r"^(void )?[cdhsz]gemm_(largek_|sm_heavy_|sm\d\d_|\d+x\d+x\d+_[ntc]{2}(_|\b))",
    re.IGNORECASE,
)


class Person(StrEnum):
    """Who reads advice about a kernel, and whose the kernel is."""

    AUTHOR = "kernel author"
    LIBRARY = "library user"
    PYTORCH = "PyTorch user"

    @property
    def whose(self) -> str:
        """Whose the kernel is, for a sentence."""
        return {"library user": "a library's", "PyTorch user": "PyTorch's"}.get(self.value, "yours")


def person_of(kernel: str) -> Person:
    """Return who can do something about a kernel, from its name.

    Examples
    --------
    >>> person_of("void at::native::vectorized_elementwise_kernel<4>(int)").value
    'PyTorch user'
    >>> person_of("nvjet_sm90_hsh_64x8_64x16_4x1_v_bz_TNT").value
    'library user'
    >>> person_of("my_kernel(float*)").value
    'kernel author'
    """
    if _PYTORCH.search(kernel):
        return Person.PYTORCH
    return Person.LIBRARY if _LIBRARY.search(kernel) else Person.AUTHOR


def person_of_all(kernels: Iterable[str]) -> Person:
    """Return who can do something about several kernels: their author, if one of them is own."""
    persons = {person_of(name) for name in kernels}
    for person in (Person.AUTHOR, Person.PYTORCH, Person.LIBRARY):
        if person in persons:
            return person
    return Person.AUTHOR


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
    shows
        What the program's ranges show of it (`perfml.account.account.shown_by`).
    serves
        Whether a server of language models marks its batches.
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
    shows: tuple[str, ...] = ()
    serves: bool = False
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
    "shows": lambda needed, here: needed in here.shows,
    "serves": lambda needed, here: here.serves == needed,
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

    Of several remedies it is the one for how the program is written, then the one whose gain was
    measured, then what the kernel's name tells, then the one that needs most.

    Examples
    --------
    >>> remedy_for("bank_conflicts", Situation()).say[:22]
    'Remove bank conflicts:'
    >>> remedy_for("no_tensor_cores", Situation(capability=6.1)).helps
    False
    """
    fits = [each for each in _against(cause) if each.applies(here)]
    return max(fits, key=_known_best, default=Remedy()).filled(here)


def _known_best(row: Remedy) -> tuple[bool, bool, bool, int]:
    return "shows" in row.needs, bool(row.measured), "kernel" in row.needs, len(row.needs)


def of_account(account: Account, capability: float = math.nan, amd: bool = False) -> Situation:
    """Return the situation of a step on the clock."""
    step = account.busiest.step
    return Situation(
        reader=Person.PYTORCH if account.pytorch else Person.AUTHOR,
        capability=capability,
        amd=account.amd or amd,
        kind=account.kind,
        waits=account.waits[0].operator if account.waits else "",
        serves=account.marked_by == SERVED,
        shows=account.shows,
        copies=LONGER if step.computing_us < step.copying_us else "",
        operations=frozenset({"convolution", "product"} & set(account.launched)),
    )
