"""Kernel names as people read them: without namespaces, template arguments and parameters."""

from __future__ import annotations

import re


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
