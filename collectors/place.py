"""Where runs are measured, and under what limits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from collectors.profilers import ncu
from collectors.profilers.gpu import Gpu


@dataclass(frozen=True)
class Place:
    """Where and under what limits runs are measured.

    Attributes
    ----------
    gpu
        The GPU of this machine; None if the launcher goes to another one.
    launcher
        Goes in front of every command.
    timeout_s
        Limit of each command.
    ncu_version
        Tells Nsight Compute's version; who measures many runs need not ask it each time.
    """

    gpu: Gpu | None
    launcher: tuple[str, ...] = ()
    timeout_s: float = 1800.0
    ncu_version: Callable[[], str] = ncu.version
