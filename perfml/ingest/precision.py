"""The precision of a program that nobody stated, from the names of its kernels.

Products, convolutions and attention decide, since a program in fp16 has its norms and its optimizer
in fp32; where there are none, all kernels do. A kernel counts by its time. Fused pointwise kernels,
which Triton names after what they prepare, do not say whether they are of tensor cores.
"""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from perfml.kernel_names import KernelTraits, kernel_traits

MIXED = "mixed"
_ARITHMETIC = ("product", "convolution", "attention")
_PRECISIONS: Mapping[str, str] = {
    "double": "fp64",
    "float": "fp32",
    "tf32": "tf32",
    "half": "fp16",
    "bf16": "bf16",
    "fp8": "fp8",
    "int8": "int8",
}
"""By the types of `perfml.kernel_names.KernelTraits`."""
_TOLD = 0.5
"""Of the time that decides, of at least so much a name has to tell the type."""
_ONE = 0.9
"""A type with so much of what is told is the program's; with less it is mixed."""


def precision_of(kernels: pd.DataFrame) -> str | None:
    """Return the precision of a program, ``mixed``, or None where names do not tell it.

    Parameters
    ----------
    kernels
        Launches with ``kernel`` and ``time_us``, all of one program.

    Examples
    --------
    >>> precision_of(pd.DataFrame({"kernel": ["ampere_sgemm_128x64_nn"], "time_us": [7.0]}))
    'fp32'
    """
    named = kernels[kernels["kernel"].notna()]
    times = named.groupby(named["kernel"].astype(str))["time_us"].sum()
    traits = {name: kernel_traits(name) for name in times.index}
    decides = times[[_decides(traits[name]) for name in times.index]]
    decides = decides if decides.sum() > 0 else times
    told = decides.groupby([_PRECISIONS.get(traits[name].type, "") for name in decides.index]).sum()
    known = told.drop("", errors="ignore")
    if not known.sum() >= _TOLD * decides.sum() > 0:
        return None
    return str(known.idxmax()) if known.max() >= _ONE * known.sum() else MIXED


def _decides(traits: KernelTraits) -> bool:
    return traits.does in _ARITHMETIC and traits.tensor_cores is not None
