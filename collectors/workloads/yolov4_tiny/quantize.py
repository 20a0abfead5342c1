"""Calibration for int8: how large the values at every convolution's input become.

TensorRT deprecated its own calibrators with version 10.1 and TensorRT for RTX never had them: both
want the scales written into the network as quantize and dequantize pairs. perfml measures the
scales itself, so that every library quantizes the same network in the same way.
"""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import NDArray

from .network import IMAGE, Layer, Network
from .reference import Array, forward
from .weights import Folded

LARGEST = 127


@dataclasses.dataclass
class MaxCalibrator:
    """Record the largest magnitude of every tensor over the images it is shown."""

    network: Network
    folded: Folded
    # Layer index (:data:`~collectors.workloads.yolov4_tiny.network.IMAGE` for the input) to the
    # largest magnitude seen
    largest: dict[int, float] = dataclasses.field(default_factory=dict)

    def observe(self, images: NDArray[np.floating]) -> None:
        """Run the reference on images of shape (batch, channels, height, width)."""
        self._record(IMAGE, images)
        forward(self.network, self.folded, images, self._record_layer)

    def _record_layer(self, layer: Layer, output: Array) -> None:
        self._record(layer.index, output)

    def _record(self, index: int, values: NDArray[np.floating]) -> None:
        self.largest[index] = max(self.largest.get(index, 0.0), float(np.abs(values).max()))

    def scale(self, index: int) -> float:
        """Return the real value of one int8 step for a tensor (symmetric, 127 steps each way)."""
        return (self.largest[index] or 1.0) / LARGEST


def quantize_kernel(kernel: Array) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Quantize a kernel symmetrically to int8; the scales, one a filter, have shape (filters,)."""
    largest = np.abs(kernel).max(axis=(1, 2, 3))
    scales = np.where(largest > 0, largest, 1.0) / LARGEST
    steps = np.rint(kernel / scales[:, None, None, None])
    return np.clip(steps, -LARGEST, LARGEST).astype(np.int8), scales.astype(np.float32)
