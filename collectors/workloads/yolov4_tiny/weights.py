"""Weights: random ones that keep activations finite, or those of a Darknet ``.weights`` file."""

from __future__ import annotations

import dataclasses
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


@dataclasses.dataclass(frozen=True)
class BatchNorm:
    """Statistics of a normalised convolution, each of shape (filters,)."""

    scale: NDArray[np.float32]
    mean: NDArray[np.float32]
    variance: NDArray[np.float32]


@dataclasses.dataclass(frozen=True)
class ConvWeights:
    """Weights of one convolution as a weights file holds them.

    The kernel has the shape (filters, channels of a group, size, size), the bias (filters,).
    """

    kernel: NDArray[np.float32]
    bias: NDArray[np.float32]
    norm: BatchNorm | None = None

    def folded(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return kernel and bias of the same convolution without batch normalisation.

        Computed in double precision: ``scale / sqrt(variance + 1e-5)`` multiplies the kernel, and
        the shifted mean moves into the bias.
        """
        kernel, bias = self.kernel.astype(np.float64), self.bias.astype(np.float64)
        if self.norm is None:
            return kernel, bias
        factor = self.norm.scale / np.sqrt(self.norm.variance.astype(np.float64) + EPSILON)
        return kernel * factor[:, None, None, None], bias - self.norm.mean * factor


Weights = dict[str, ConvWeights]
Folded = dict[str, tuple[NDArray[np.float64], NDArray[np.float64]]]


def fold(weights: Weights) -> Folded:
    """Fold the batch normalisation of every convolution; keys are layer names."""
    return {name: one.folded() for name, one in weights.items()}


def random_weights(network: Network, seed: int) -> Weights:
    """Draw He-initialised weights.

    The variance of a kernel is 2 / (fan-in x (1 + slope²)), which keeps the variance of leaky
    activations level from layer to layer (He, Zhang, Ren, Sun: Delving Deep into Rectifiers,
    2015, equation 15). The normalisation's statistics are drawn near identity, so that folding
    them is exercised too.

    The same seed, an integer from 0, gives the same weights on every machine.
    """
    rng = np.random.default_rng([seed, _WEIGHT_STREAM])
    return {layer.name: _random_conv(layer, rng) for layer in network.convolutions}


def _random_conv(layer: Layer, rng: np.random.Generator) -> ConvWeights:
    shape = layer.weight_shape
    slope = LEAKY_SLOPE if layer.activation == "leaky" else 0.0
    deviation = math.sqrt(2.0 / (math.prod(shape[1:]) * (1.0 + slope * slope)))
    kernel = (rng.standard_normal(shape) * deviation).astype(np.float32)
    bias = rng.normal(0.0, 0.1, layer.filters).astype(np.float32)
    if not layer.batch_normalize:
        return ConvWeights(kernel, bias)
    norm = BatchNorm(
        scale=rng.uniform(0.8, 1.2, layer.filters).astype(np.float32),
        mean=rng.normal(0.0, 0.1, layer.filters).astype(np.float32),
        variance=rng.uniform(0.8, 1.2, layer.filters).astype(np.float32),
    )
    return ConvWeights(kernel, bias, norm)


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


def read_weights(path: str | Path, network: Network) -> Weights:
    """Read a Darknet weights file.

    The file is a header (three int32: major, minor, revision; then the number of images seen, an
    int64 from version 0.2 on, an int32 before) and little-endian float32 values: for each
    convolution the biases, the normalisation's scales, means and variances if it has them, and the
    kernel.

    Raises `InputError` if the file cannot be read, ends inside a layer, holds more values than the
    network (usually another number of classes), or holds a value that is not finite.
    """
    path = Path(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        what = "the weights file cannot be read"
        raise InputError(what, where=str(path), found=error.strerror) from error
    start = _header_bytes(data, path)
    values = np.frombuffer(data, dtype="<f4", offset=start, count=(len(data) - start) // 4)
    reader = _Values(values, path, start)
    weights = {layer.name: _read_conv(layer, reader) for layer in network.convolutions}
    rest = len(data) - reader.position
    if rest:
        what = "the weights file holds more than the network needs"
        found = f"{rest} bytes after the last convolution, {network.convolutions[-1].name}"
        cure = "Give the cfg that these weights were trained with (the classes must be the same)."
        raise InputError(what, where=str(path), found=found, cure=cure)
    return weights


def _header_bytes(data: bytes, path: Path) -> int:
    if len(data) < 16:
        what = "a Darknet weights file starts with a header of 16 or 20 bytes"
        raise InputError(what, where=str(path), found=f"{len(data)} bytes in all")
    major, minor, _ = np.frombuffer(data, dtype="<i4", count=3)
    if not (0 <= major < 1000 and 0 <= minor < 1000):
        what = "this is no Darknet weights file"
        raise InputError(what, where=str(path), found=f"version {major}.{minor} in its header")
    return 20 if major * 10 + minor >= 2 else 16


class _Values:
    """The float32 values of a file, taken in order."""

    def __init__(self, values: NDArray[np.float32], path: Path, start: int) -> None:
        self._values, self._path, self._start, self._next = values, path, start, 0

    @property
    def position(self) -> int:
        """Offset in bytes of the next value."""
        return self._start + 4 * self._next

    def take(self, layer: Layer, part: str, shape: tuple[int, ...]) -> NDArray[np.float32]:
        count = math.prod(shape)
        taken = self._values[self._next : self._next + count]
        where = f"{self._path}: byte {self.position}"
        if taken.size < count:
            what = f"the weights file ends inside the {part} of {layer.name} ({layer.where})"
            found = f"{taken.size} of {count} values"
            cure = "Give the whole file, and the cfg that these weights were trained with."
            raise InputError(what, where=where, found=found, cure=cure)
        if not np.isfinite(taken).all():
            what = f"the {part} of {layer.name} ({layer.where}) hold values that are not finite"
            raise InputError(what, where=where, cure="The file is damaged or not a weights file.")
        self._next += count
        return taken.reshape(shape).astype(np.float32)


def _read_conv(layer: Layer, values: _Values) -> ConvWeights:
    filters = (layer.filters,)
    bias = values.take(layer, "biases", filters)
    norm = None
    if layer.batch_normalize:
        parts = [values.take(layer, part, filters) for part in ("scales", "means", "variances")]
        norm = BatchNorm(*parts)
    return ConvWeights(values.take(layer, "weights", layer.weight_shape), bias, norm)
