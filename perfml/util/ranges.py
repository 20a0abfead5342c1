"""What the names of NVTX ranges mean, for who reads them without a table."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence

ITERATION = re.compile(r"(?:iter|iteration|step)[_\- ]?(\d{1,15})", re.IGNORECASE)
"""A range of this name counts repeats of the workload; it is no layer.

A longer number is no count: it is more than fits into 64 bits, and than anybody repeats.
"""

LIBRARIES = ("CCCL", "NCCL", "NVSHMEM", "cuBLAS", "cuDNN", "cuFFT", "cuSOLVER", "cuSPARSE")
"""NVTX domains in which libraries mark their own work, which is no layer of the program.

CCCL is CUB and Thrust, which PyTorch calls. The same as in
``collectors/profilers/injected/nvtx_ranges.h``.
"""

Path = tuple[str, ...]
"""Range names, outermost first."""


def split_range(path: Sequence[str]) -> tuple[int | None, Path]:
    """Split nested range names, outermost first, into an iteration and a layer name.

    The iteration is from the first range called like ``iter_3``, None without one; the layer is the
    other names.

    Examples
    --------
    >>> split_range(["iter_3", "conv_01"])
    (3, ('conv_01',))
    >>> split_range(["model", "block", "conv"])
    (None, ('model', 'block', 'conv'))
    """
    for place, name in enumerate(path):
        number = _iteration(name)
        if number is not None:
            return number, (*path[:place], *path[place + 1 :])
    return None, tuple(path)


@functools.lru_cache(maxsize=1 << 16)
def _iteration(name: str) -> int | None:
    """Return the number of an iteration's range; names recur in every launch."""
    match = ITERATION.fullmatch(name.strip())
    return int(match.group(1)) if match is not None else None
