"""Names of kernels: as people read them (`labels`), and what they tell (`traits`).

Here to change: what a name means, in ``traits.toml``.
"""

from perfml.kernel_names.labels import (
    function_name,
    kernel_label,
    kernel_purpose,
    setup_note,
    short_kernel,
    shortened,
)
from perfml.kernel_names.traits import KernelTraits, kernel_traits

__all__ = [
    "KernelTraits",
    "function_name",
    "kernel_label",
    "kernel_purpose",
    "kernel_traits",
    "setup_note",
    "short_kernel",
    "shortened",
]
