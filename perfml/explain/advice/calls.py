"""What the code that calls PyTorch or a library can do about a cause in a kernel, by its name.

Here to change: a call that PyTorch has a better one for is a row of ``calls.toml``.
"""

from __future__ import annotations

import re
import tomllib
from functools import cache
from importlib import resources
from typing import Any

from perfml.explain.tree.causes import ONE_SIDED, Kind, Term


def in_pytorch(term: Term, kernel: str) -> str | None:
    """Return what the code that calls PyTorch can do about a cause in one of its kernels.

    Examples
    --------
    >>> from perfml.explain.tree.causes import TERMS
    >>> in_pytorch(TERMS["kernels_appeared"], "at::native::CatArrayBatchedCopy<float>")[:30]
    'write into a tensor that is ma'
    """
    return _first("pytorch", term, kernel)


def of_library(term: Term, kernel: str) -> str | None:
    """Return what the code that calls a library can do about a cause in one of its kernels.

    Examples
    --------
    >>> from perfml.explain.tree.causes import TERMS
    >>> of_library(TERMS["instructions"], "cutlass_75_tensorop_bf16_nn_align1")[:8]
    'pad rows'
    """
    return _first("library", term, kernel)


@cache
def _calls() -> dict[str, Any]:
    path = resources.files("perfml.explain.advice").joinpath("calls.toml")
    return tomllib.loads(path.read_text(encoding="utf-8"))


def _first(users: str, term: Term, kernel: str) -> str | None:
    rows = (row for row in _calls()[users] if re.search(row.get("kernel", ""), kernel))
    return next((str(row["say"]) for row in rows if _applies(row["cause"], term)), None)


def _applies(cause: str | list[str], term: Term) -> bool:
    if cause == "launches":
        return term.id in ONE_SIDED
    if cause == "others":
        return term.id not in ONE_SIDED
    return term.kind in (Kind.WAVES, Kind.OCCUPANCY) if cause == "size" else term.id in cause
