"""What the names of NVTX ranges mean, for who reads them without a table."""

from __future__ import annotations

import functools
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence

from perfml.util.words import first_few

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


SERIALS = (
    # torch.autograd.profiler.emit_nvtx and nsys --pytorch=autograd-nvtx
    (re.compile(r",? ?\binput_op_ids ?= ?[\d, \[\]()]*"), "", 1),
    (re.compile(r",? ?\b(?:seq|op_id) ?= ?-?\d+"), "", 1),
    (re.compile(r"\b0x[0-9a-f]{6,16}\b", re.IGNORECASE), "0x*", 2),
    (re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", re.IGNORECASE), "*", 2),
    (
        re.compile(
            r"\b(iter(?:ation)?|step|frame|epoch|(?:micro)?batch|request|req|token)"
            r"((?: |_|-|#|: ?| ?= ?)\d{1,15})(?=$|[^\w.])",
            re.IGNORECASE,
        ),
        r"\1",
        3,
    ),
)
"""Parts of a range's name that count how often, and are no identity: a pattern, what stands for it,
and from how many names on. One that says itself that it is a serial number never stays; an address
stays where it tells nothing apart; a counter where fewer than three numbers follow each other, as
in ``batch_1`` beside ``batch_32``."""


def joined_names(names: Iterable[str]) -> tuple[dict[str, str], list[str]]:
    """Return what each name of a range is called without serial numbers, and what was joined.

    Names that are an iteration themselves (`ITERATION`) stay, and so do all that have none. The
    second value is a sentence for the reader's warnings, or nothing.

    Examples
    --------
    >>> joined_names(["mm, op_id = 7", "mm, op_id = 9", "batch_1", "batch_32"])[0]
    {'mm, op_id = 7': 'mm', 'mm, op_id = 9': 'mm'}
    """
    common: dict[str, str] = {}
    every = [name for name in set(names) if not ITERATION.fullmatch(name.strip())]
    for pattern, instead, least in SERIALS:
        groups: defaultdict[str, list[str]] = defaultdict(list)
        for name in every:
            groups[pattern.sub(instead, common.get(name, name)).strip()].append(name)
        for short, held in groups.items():
            if short and len(held) >= least and (least < 3 or _follow(pattern, common, held)):
                common |= {name: short for name in held if common.get(name, name) != short}
    if not common:
        return {}, []
    kept = sorted(set(common.values()))
    shown = first_few([name[:60] for name in kept], 3)
    return common, [
        f"{len(common)} names of ranges with serial numbers stand as {len(kept)}: {shown}."
    ]


def _follow(pattern: re.Pattern[str], common: dict[str, str], names: Sequence[str]) -> bool:
    """Return whether the numbers in some names follow each other."""
    found = (pattern.search(common.get(name, name)) for name in names)
    numbers = {int(re.sub(r"\D", "", match[2])) for match in found if match is not None}
    return len(numbers) >= 3 and max(numbers) - min(numbers) < len(numbers)
