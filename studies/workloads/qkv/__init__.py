"""The query, key and value product of a transformer layer, in four versions and with cuBLAS."""

from __future__ import annotations

from .workload import WORKLOAD

__all__ = ["WORKLOAD"]
