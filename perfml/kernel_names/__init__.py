"""Names of kernels: as people read them (`labels`), and what they tell (`traits`).

Here to change: what a name means, in ``classes.toml`` and ``traits.toml``.
"""

from perfml.kernel_names.labels import (
    function_name,
    kernel_label,
    kernel_purpose,
    kernels_called,
    setup_note,
    short_kernel,
    shortened,
)
from perfml.kernel_names.traits import (
    KernelClass,
    KernelTraits,
    kernel_class,
    kernel_phase,
    kernel_traits,
)

__all__ = [
    "KernelClass",
    "KernelTraits",
    "function_name",
    "kernel_class",
    "kernel_label",
    "kernel_phase",
    "kernel_purpose",
    "kernel_traits",
    "kernels_called",
    "setup_note",
    "short_kernel",
    "shortened",
]
