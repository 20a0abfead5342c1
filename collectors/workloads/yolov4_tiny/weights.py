"""Random weights that keep activations finite, and the images: noise, or a file."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from perfml.errors import InputError

from .network import LEAKY_SLOPE, Layer, Network

# Darknet adds this to the variance when it folds the normalisation into a convolution.
EPSILON = 1e-5
# Independent random streams of one seed, so that another number of layers or another batch leaves
# the other stream unchanged.
_WEIGHT_STREAM, _IMAGE_STREAM = 0, 1
_RGB = 3


Folded = dict[str, tuple[NDArray[np.float64], NDArray[np.float64]]]
"""Kernel and bias of every convolution, by its name, without batch normalisation."""


def random_weights(network: Network, seed: int) -> Folded:
    """Draw He-initialised weights, and fold the batch normalisation into them.

    The variance of a kernel is 2 / (fan-in x (1 + slope²)), which keeps the variance of leaky
    activations level from layer to layer (He, Zhang, Ren, Sun: Delving Deep into Rectifiers,
    2015, equation 15). The normalisation's statistics are drawn near identity.

    The same seed, an integer from 0, gives the same weights on every machine.
    """
    rng = np.random.default_rng([seed, _WEIGHT_STREAM])
    return {layer.name: _random_conv(layer, rng) for layer in network.convolutions}


def _random_conv(
    layer: Layer, rng: np.random.Generator
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    shape = layer.weight_shape
    slope = LEAKY_SLOPE if layer.activation == "leaky" else 0.0
    deviation = math.sqrt(2.0 / (math.prod(shape[1:]) * (1.0 + slope * slope)))
    kernel = (rng.standard_normal(shape) * deviation).astype(np.float32)
    bias = rng.normal(0.0, 0.1, layer.filters).astype(np.float32)
    if not layer.batch_normalize:
        return kernel.astype(np.float64), bias.astype(np.float64)
    scale = rng.uniform(0.8, 1.2, layer.filters).astype(np.float32)
    mean = rng.normal(0.0, 0.1, layer.filters).astype(np.float32)
    variance = rng.uniform(0.8, 1.2, layer.filters).astype(np.float32)
    return folded(kernel, bias, scale, mean, variance)


def folded(
    kernel: NDArray[np.float32],
    bias: NDArray[np.float32],
    scale: NDArray[np.float32],
    mean: NDArray[np.float32],
    variance: NDArray[np.float32],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return kernel and bias of the same convolution without batch normalisation.

    Computed in double precision: ``scale / sqrt(variance + 1e-5)`` multiplies the kernel, and the
    shifted mean moves into the bias.
    """
    factor = scale / np.sqrt(variance.astype(np.float64) + EPSILON)
    return kernel.astype(np.float64) * factor[:, None, None, None], bias - mean * factor


def random_images(network: Network, batch: int, seed: int) -> NDArray[np.float32]:
    """Draw ``batch`` images with values in [0, 1): shape (batch, channels, height, width)."""
    rng = np.random.default_rng([seed, _IMAGE_STREAM])
    return rng.random((batch, *network.input_shape), dtype=np.float32)


PADDING = 0.5
"""Grey beside an image that has another shape than the network's input, as Darknet has it."""


def read_image(path: str | Path, network: Network, batch: int) -> NDArray[np.float32]:
    """Read one image as the input of every inference, ``batch`` times.

    It keeps its proportions: scaled to fit, in the middle, grey beside it. Returns float32
    in [0, 1], shape (batch, channels, height, width), channels red, green, blue. Raises an
    `InputError` if it is no image, or the network does not take three channels.
    """
    from PIL import Image

    channels, height, width = network.input_shape
    if channels != _RGB:
        what = "an image has three channels, and this network takes another number"
        raise InputError(what, where="--set image", found=str(channels))
    try:
        with Image.open(path) as file:
            image = file.convert("RGB")
    except (OSError, ValueError) as error:
        what, cure = "this is no image that can be read", "Give a JPEG, PNG or PPM file."
        raise InputError(what, where=f"--set image={path}", found=str(error), cure=cure) from error
    scale = min(width / image.width, height / image.height)
    size = max(1, round(image.width * scale)), max(1, round(image.height * scale))
    pixels = np.asarray(image.resize(size, Image.Resampling.BILINEAR), dtype=np.float32) / 255
    made = np.full((height, width, channels), PADDING, dtype=np.float32)
    top, left = (height - size[1]) // 2, (width - size[0]) // 2
    made[top : top + size[1], left : left + size[0]] = pixels
    return np.repeat(made.transpose(2, 0, 1)[None], batch, axis=0)
