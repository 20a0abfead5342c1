"""Arithmetic that the references share: chains, walks and rows, in double precision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .definition import Call

HOP = 32 * 7919
MASK32 = (1 << 32) - 1

Reference = Callable[[Call, dict[str, int], dict[str, Any]], Any]
"""From a launch, the macros of the build and the tensors: the output as a float64 tensor."""


def strided(j: Any, log_count: int, shift: int) -> Any:
    """Return where element `j` of a walk lies (integers, or arrays and tensors of them)."""
    high = log_count - shift
    return ((j & ((1 << high) - 1)) << shift) | (j >> high)


def integer(call: Call, place: int) -> int:
    """Return an argument of a launch that is an integer."""
    value = call.arguments[place]
    assert isinstance(value, int)
    return value


def f32(value: float) -> float:
    """Return the float32 nearest to a constant, which is what the kernel has."""
    return float(np.float32(value))


def chain(start: Any, steps: int, factor: float, addend: Any) -> Any:
    """Return ``x`` after `steps` times ``x = factor x + addend``."""
    power = factor**steps
    return start * power + addend * ((1.0 - power) / (1.0 - factor))


def threads(call: Call, tensors: dict[str, Any]) -> Any:
    """Return the numbers of a launch's threads, on the device of its tensors."""
    import torch

    return torch.arange(call.grid * call.block, device=tensors["in"].device)


def follow(start: Any, steps: int, tensors: dict[str, Any]) -> Any:
    """Return the rows at which walks of so many steps end, as doubles."""
    row = start
    for _ in range(steps):
        row = tensors["rows"][row]
    return row.double()


def advanced(value: Any, rounds: int) -> Any:
    """Return the mean of four chains of two steps a round."""
    parts = [chain(value + c, 2 * rounds, f32(0.9999), f32(0.01)) for c in range(4)]
    return sum(parts) * 0.25
