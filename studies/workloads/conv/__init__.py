"""Convolution, forward: unrolled, fused, on tensor cores, against cuDNN."""

from __future__ import annotations

from .workload import WORKLOAD

__all__ = ["WORKLOAD"]
