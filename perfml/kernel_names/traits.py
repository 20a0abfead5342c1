"""What the name of a kernel tells: what it does, of which type, how it is built."""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files

_ALIGNMENT = re.compile(r"align(?:a|_?)?(\d+)(?:\b|_)")
"""Elements that loads are aligned to: ``align1``, ``aligna4``."""


@dataclass(frozen=True)
class KernelTraits:
    """What a name tells.

    Attributes
    ----------
    does
        Id of what the kernel does, such as ``product``; empty where the name does not tell.
    type
        Id of the type of its elements, such as ``half``; empty where the name does not tell.
    tensor_cores
        Whether its products are those of tensor cores; None where the name does not tell.
    alignment
        Elements that its loads are aligned to; None where the name does not tell.
    traits
        Ids of the rest, such as ``split_k``.
    """

    does: str
    type: str
    tensor_cores: bool | None
    alignment: int | None
    traits: frozenset[str]

    @property
    def unaligned(self) -> bool:
        """Whether it loads fewer than 16 bytes at once for the alignment of its rows."""
        least = {"half": 8, "bf16": 8, "tf32": 4, "float": 4, "int8": 16, "fp8": 16, "double": 2}
        if self.alignment is None or self.tensor_cores is False:
            return False
        return self.alignment < least.get(self.type, 4)

    def ids(self) -> frozenset[str]:
        """Return everything that it tells as ids: for rules and tables."""
        arithmetic = self.does in ("product", "convolution", "attention")
        known = {
            f"type:{self.type}": bool(self.type),
            "unaligned": self.unaligned,
            "no_tensor_cores": arithmetic and self.tensor_cores is False,
        }
        return self.traits | {name for name, holds in known.items() if holds}


@functools.lru_cache(maxsize=1 << 14)
def kernel_traits(name: str) -> KernelTraits:
    """Return what the name of a kernel tells.

    Examples
    --------
    >>> odd = kernel_traits("cutlass_75_tensorop_bf16_s1688gemm_bf16_128x128_tn_align1")
    >>> odd.does, odd.type, odd.tensor_cores, odd.unaligned
    ('product', 'bf16', True, True)
    >>> kernel_traits("void at::native::reduce_kernel<512, 1, at::native::ReduceOp<double>>()").type
    'double'
    """
    grammar = _grammar()
    alignments = [int(number) for number in _ALIGNMENT.findall(name)]
    cores = _first(grammar["tensor_cores"], name)
    return KernelTraits(
        _first(grammar["class"], name),
        _first(grammar["type"], name),
        {"yes": True, "no": False}.get(cores),
        min(alignments, default=None),
        frozenset(id_ for id_, pattern in grammar["trait"] if pattern.search(name)),
    )


def _first(patterns: Sequence[tuple[str, re.Pattern[str]]], name: str) -> str:
    return next((id_ for id_, pattern in patterns if pattern.search(name)), "")


@functools.cache
def _grammar() -> Mapping[str, Sequence[tuple[str, re.Pattern[str]]]]:
    document = tomllib.loads((files(__package__) / "traits.toml").read_text(encoding="utf-8"))
    return {
        kind: [(row["id"], re.compile(row["pattern"], re.IGNORECASE)) for row in rows]
        for kind, rows in document.items()
    }
