"""Attention: a ladder of fp32 kernels, three tensor-core kernels, and PyTorch's as yardsticks."""

from __future__ import annotations

from .workload import WORKLOAD

__all__ = ["WORKLOAD"]
