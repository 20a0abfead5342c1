"""Kernel names as people read them: without namespaces, template arguments and parameters."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence


def function_name(kernel: str) -> str:
    """Return a kernel's bare function name: tools spell template arguments differently.

    Examples
    --------
    >>> function_name("void ns::gemm<float, (bool)1>(float const*)")
    'gemm'
    >>> function_name("void at::<unnamed>::CatArray<T1, (int)4>(T1 *)")
    'CatArray'
    """
    name = kernel.removeprefix("void ")
    name = name.replace("(anonymous namespace)::", "").replace("<unnamed>::", "")
    return re.split(r"[<(]", name, maxsplit=1)[0].rsplit("::", 1)[-1].strip()


def short_kernel(name: str, limit: int = 64) -> str:
    """Return a kernel's bare function name, or the start of what it is called.

    Examples
    --------
    >>> short_kernel("void at::native::elementwise_kernel<128, 2>(int)")
    'elementwise_kernel'
    >>> short_kernel("<img src=x>")
    '<img src=x>'
    """
    short = function_name(name) or name
    return short if len(short) <= limit else f"{short[: limit - 1]}…"


def shortened(names: Sequence[str], limit: int) -> list[str]:
    """Return names of a limited length that still differ where the names do.

    A long name loses its middle, since libraries tell tile and purpose at its end. Names that
    would then look alike lose what they share instead.

    Examples
    --------
    >>> shortened(["sm80_xmma_gemm_f32_tilesize64x64x8_execute_split_k_kernel"], 32)
    ['sm80_xmma_gemm_f…_split_k_kernel']
    >>> shortened(["gemm_relu_tile64x64_stage3_aligned", "gemm_relu_tile32x64_stage3_aligned"], 16)
    ['gem…e64x64_stag…', 'gem…e32x64_stag…']
    """
    short = {name: _middle_out(name, limit) for name in names}
    alike: dict[str, list[str]] = {}
    for name, cut in short.items():
        alike.setdefault(cut, []).append(name)
    for group in alike.values():
        if len(group) > 1:
            short |= zip(group, _apart(group, limit), strict=True)
    return [short[name] for name in names]


def _middle_out(name: str, limit: int) -> str:
    if len(name) <= limit:
        return name
    tail = (limit - 1) // 2
    return f"{name[: limit - 1 - tail]}…{name[len(name) - tail :]}"


def _apart(names: Sequence[str], limit: int) -> list[str]:
    """Return names around the place where they begin to differ; numbered where that is too far."""
    alike = (len(set(signs)) == 1 for signs in zip(*names, strict=False))
    start = sum(itertools.takewhile(bool, alike))
    head = max(limit // 5, 1)
    room = limit - head - 2
    first = max(start - 1, head)
    cut = [f"{name[:head]}…{name[first : first + room]}…" for name in names]
    if len(set(cut)) == len(cut):
        return cut
    numbers = [f"#{place}" for place in range(1, len(names) + 1)]
    return [
        _middle_out(name, limit - len(number)) + number
        for name, number in zip(names, numbers, strict=True)
    ]
