"""The reference: the network's forward pass in double precision, in numpy, on the CPU."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from .network import IMAGE, LEAKY_SLOPE, Layer, Network
from .weights import Folded

Array = NDArray[np.float64]
Observer = Callable[[Layer, Array], None]


def forward(
    network: Network, folded: Folded, images: NDArray[np.floating], observe: Observer | None = None
) -> dict[str, Array]:
    """Run the network.

    Parameters
    ----------
    network, folded
        The network and its weights without batch normalisation.
    images
        Shape (batch, channels, height, width).
    observe
        Called with every layer and its output, shape (batch, channels, height, width).

    Returns
    -------
    dict
        Name of a head to its output.
    """
    batches = [
        _forward_one(network, folded, images[i : i + 1], observe) for i in range(len(images))
    ]
    return {name: np.concatenate([one[name] for one in batches]) for name in batches[0]}


def _forward_one(
    network: Network, folded: Folded, image: NDArray[np.floating], observe: Observer | None
) -> dict[str, Array]:
    # Image by image: the columns of one batch-8 convolution in double precision are 400 MB.
    last = network.last_reader()
    heads = {layer.index for layer in network.outputs}
    values: dict[int, Array] = {IMAGE: image.astype(np.float64)}
    for layer in network.layers:
        inputs = [values[i] for i in layer.inputs]
        values[layer.index] = output = _RUN[layer.type](layer, folded, inputs)
        if observe is not None:
            observe(layer, output)
        for i in set(layer.inputs):
            if last[i] == layer.index:
                del values[i]
    return {layer.name: values[layer.index] for layer in network.layers if layer.index in heads}


def im2col(x: Array, layer: Layer) -> Array:
    """Lay the windows of a convolution out as columns.

    From shape (batch, channels, height, width) to (batch, channels, size * size, output pixels).
    """
    batch, channels, _, _ = x.shape
    pad = ((0, 0), (0, 0), (layer.pad, layer.pad_end), (layer.pad, layer.pad_end))
    windows = sliding_window_view(np.pad(x, pad), (layer.size, layer.size), axis=(2, 3))
    windows = windows[:, :, :: layer.stride, :: layer.stride]
    return windows.transpose(0, 1, 4, 5, 2, 3).reshape(batch, channels, layer.size**2, -1)


def _conv(layer: Layer, folded: Folded, inputs: list[Array]) -> Array:
    kernel, bias = folded[layer.name]
    columns = im2col(inputs[0], layer)
    batch, channels, _, pixels = columns.shape
    groups = layer.groups
    columns = columns.reshape(batch, groups, channels // groups * layer.size**2, pixels)
    product = kernel.reshape(groups, layer.filters // groups, -1) @ columns
    output = product.reshape(batch, *layer.out_shape) + bias[:, None, None]
    return activate(output, layer.activation)


def activate(x: Array, activation: str) -> Array:
    """Apply one of :data:`~collectors.workloads.yolov4_tiny.network.ACTIVATIONS`."""
    return np.where(x > 0, x, LEAKY_SLOPE * x) if activation == "leaky" else x


def sigmoid(x: Array) -> Array:
    """Return 1 / (1 + exp(-x)) without overflow."""
    return 0.5 * (1.0 + np.tanh(0.5 * x))


def _pool(layer: Layer, _: Folded, inputs: list[Array]) -> Array:
    pad = ((0, 0), (0, 0), (layer.pad, layer.pad_end), (layer.pad, layer.pad_end))
    padded = np.pad(inputs[0], pad, constant_values=-np.inf)
    windows = sliding_window_view(padded, (layer.size, layer.size), axis=(2, 3))
    height, width = layer.out_shape[1:]
    windows = windows[:, :, :: layer.stride, :: layer.stride][:, :, :height, :width]
    return np.asarray(windows.max(axis=(4, 5)))


def _route(layer: Layer, _: Folded, inputs: list[Array]) -> Array:
    parts = [np.array_split(x, layer.groups, axis=1)[layer.group_id] for x in inputs]
    return np.concatenate(parts, axis=1)


def _upsample(layer: Layer, _: Folded, inputs: list[Array]) -> Array:
    return inputs[0].repeat(layer.stride, axis=2).repeat(layer.stride, axis=3)


def _yolo(layer: Layer, _: Folded, inputs: list[Array]) -> Array:
    """Squash centre, objectness and class scores of every anchor; width and height stay raw."""
    x = inputs[0]
    batch, _, height, width = x.shape
    boxes = x.reshape(batch, layer.anchors, layer.classes + 5, height, width).copy()
    boxes[:, :, :2] = sigmoid(boxes[:, :, :2])
    boxes[:, :, 4:] = sigmoid(boxes[:, :, 4:])
    boxes[:, :, :2] = boxes[:, :, :2] * layer.scale_x_y - 0.5 * (layer.scale_x_y - 1.0)
    return boxes.reshape(x.shape)


_RUN: dict[str, Callable[[Layer, Folded, list[Array]], Array]] = {
    "conv": _conv,
    "pool": _pool,
    "route": _route,
    "upsample": _upsample,
    "yolo": _yolo,
}


def relative_error(output: NDArray[np.floating], reference: Array) -> float:
    """Return ‖output - reference‖ / ‖reference‖ in the 2-norm, NaN if any output is not finite.

    Raises `ValueError` if the shapes differ.
    """
    if output.shape != reference.shape:
        message = f"output has shape {output.shape}, the reference {reference.shape}"
        raise ValueError(message)
    difference = np.linalg.norm(output.astype(np.float64) - reference)
    return float(difference / np.linalg.norm(reference))
