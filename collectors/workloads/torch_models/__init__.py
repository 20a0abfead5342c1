"""Any PyTorch model as a workload: ``torch:LIBRARY/NAME`` or ``torch:FILE.py:FUNCTION``."""

from __future__ import annotations

from .names import PREFIX
from .workload import TorchModel

__all__ = ["PREFIX", "TorchModel"]
