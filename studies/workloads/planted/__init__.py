"""Families of kernels with one planted cause each: ground truth for rankings and explanations."""

from __future__ import annotations

from .workload import WORKLOAD

__all__ = ["WORKLOAD"]
