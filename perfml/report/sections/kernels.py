"""Which kernels a layer launched, for the layer that the reader chooses."""

from __future__ import annotations

from perfml.report.document import KernelChooser, Section
from perfml.report.kernels import PackedKernels


def kernels_section(kernels: PackedKernels) -> Section:
    """Return the page's chooser of a condition, a layer and a backend."""
    packed = {"names": kernels.names, "conditions": kernels.conditions}
    return Section(
        "Kernels of a layer",
        (KernelChooser(packed, kernels.cut),),
        lead="Mean time of one iteration, and share of the layer's time. Open a name to read all "
        "of it.",
        anchor="kernels",
        link="Kernels",
        page_only=True,
    )
