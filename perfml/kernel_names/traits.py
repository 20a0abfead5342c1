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

_ARGUMENTS = re.compile(r"[<(](?!anonymous|unnamed)")
"""Where the template arguments or parameters of a kernel begin."""

_RANGE = re.compile(r"^(?!Reformatting )[^<(]*/")
"""The range that some reports put before a kernel: ``conv_10/void gemm<...>``. TensorRT's
``Reformatting CopyNode for ... to NAME`` names a neighbour, whose paths are no range."""


WORD, LONGEST = 1024, 16384
"""Characters of a word, and of a name, that are looked at: more lose their middle, since libraries
tell tile and purpose at the end. Patterns look from every place of a word to its end, so that
without a bound a word of 100,000 letters takes a minute. CUTLASS's longest names have 30,000
characters, most of them arguments of arguments, and words of less than 300."""

_LONG_WORD = re.compile(rf"\w{{{WORD},}}")


def bounded(name: str) -> str:
    """Return what patterns look at of a name.

    Examples
    --------
    >>> len(bounded("k" * 100_000)), bounded("gemm<float>")
    (1024, 'gemm<float>')
    """
    if len(name) <= WORD:
        return name
    half = WORD // 2
    words = _LONG_WORD.sub(lambda word: f"{word[0][:half]}{word[0][-half:]}", name)
    half = LONGEST // 2
    return words if len(words) <= LONGEST else f"{words[:half]}{words[-half:]}"


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
    grammar, name = _grammar("traits.toml"), bounded(name)
    alignments = [int(number) for number in _ALIGNMENT.findall(name)]
    cores = _first(grammar["tensor_cores"], name)
    return KernelTraits(
        kernel_class(name).id,
        _first(grammar["type"], name),
        {"yes": True, "no": False}.get(cores),
        min(alignments, default=None),
        frozenset(id_ for id_, pattern in grammar["trait"] if pattern.search(name)),
    )


@dataclass(frozen=True)
class KernelClass:
    """What a kernel does.

    Attributes
    ----------
    id
        Such as ``product``; empty where the name does not tell.
    layer
        What a layer of such kernels is called, where nothing else names layers: ``gemm``.
    """

    id: str
    layer: str


_UNKNOWN = KernelClass("", "other")


@functools.lru_cache(maxsize=1 << 14)
def kernel_class(name: str) -> KernelClass:
    """Return what a kernel does, by its own name, else by its template arguments.

    Examples
    --------
    >>> kernel_class("void cutlass::device_kernel<flash::FlashAttnFwdSm90<float>>(Params)").layer
    'attention'
    >>> kernel_class("void at::native::vectorized_elementwise_kernel<4, FillFunctor<int>>()").layer
    'copy'
    >>> kernel_class("step_one")
    KernelClass(id='', layer='other')
    """
    rows, name = _classes(), _RANGE.sub("", bounded(name))
    own = _ARGUMENTS.split(name.removeprefix("void "), maxsplit=1)[0]
    specific = (made for made, pattern, generic in rows if not generic and pattern.search(own))
    whole = (made for made, pattern, _ in rows if pattern.search(name))
    return next(specific, None) or next(whole, _UNKNOWN)


@functools.lru_cache(maxsize=1 << 14)
def kernel_phase(name: str) -> str:
    """Return whether a kernel is made for ``prefill`` or ``decode``; empty where for both.

    Examples
    --------
    >>> kernel_phase("void vllm::paged_attention_v1_kernel<c10::Half, 128>()")
    'decode'
    """
    if kernel_class(name).id != "attention":
        return ""
    return _first(_grammar("classes.toml")["phase"], bounded(name))


@functools.cache
def _classes() -> list[tuple[KernelClass, re.Pattern[str], bool]]:
    rows = tomllib.loads((files(__package__) / "classes.toml").read_text(encoding="utf-8"))["class"]
    return [
        (
            KernelClass(row["id"], row.get("layer", row["id"])),
            re.compile(row["pattern"], re.IGNORECASE),
            row.get("generic", False),
        )
        for row in rows
    ]


def _first(patterns: Sequence[tuple[str, re.Pattern[str]]], name: str) -> str:
    return next((id_ for id_, pattern in patterns if pattern.search(name)), "")


@functools.cache
def _grammar(file: str) -> Mapping[str, Sequence[tuple[str, re.Pattern[str]]]]:
    document = tomllib.loads((files(__package__) / file).read_text(encoding="utf-8"))
    return {
        kind: [(row["id"], re.compile(row["pattern"], re.IGNORECASE)) for row in rows]
        for kind, rows in document.items()
    }
