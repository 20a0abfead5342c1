"""Whose GPU a device is, from what it is called."""

from __future__ import annotations

_AMD = ("amd", "radeon", "instinct", "gfx")


def is_amd(name: str | None) -> bool:
    """Return whether a GPU is one of AMD's, of which NVIDIA's tools count nothing.

    Examples
    --------
    >>> is_amd("AMD Instinct MI210"), is_amd("NVIDIA H100 80GB HBM3"), is_amd(None)
    (True, False, False)
    """
    return (name or "").lower().startswith(_AMD)


def is_mtia(name: str | None) -> bool:
    """Return whether a device is one of Meta's MTIA, within whose kernels no public tool counts."""
    return (name or "").lower().startswith("mtia")
