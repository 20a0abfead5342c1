"""The problems: shapes of convolutions, their names, and the reference in double precision."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

from perfml.errors import InputError

LARGEST_BATCH = 65535
"""Images are blocks in the third direction of a grid, and a grid has no more of those."""


@dataclass(frozen=True)
class Problem:
    """A forward convolution with square filters, stride 1, fp32 data, layout NCHW.

    Attributes
    ----------
    name
        Of the layer, ``conv1_b100``.
    images, maps, channels, height, width
        Batch, output channels, and the input's extents.
    size, pad
        Width of the filters, and zeros added on each side.
    """

    name: str
    images: int
    maps: int
    channels: int
    height: int
    width: int
    size: int
    pad: int

    @property
    def out_height(self) -> int:
        """Rows of an output image."""
        return self.height + 2 * self.pad - self.size + 1

    @property
    def out_width(self) -> int:
        """Columns of an output image."""
        return self.width + 2 * self.pad - self.size + 1

    @property
    def pixels(self) -> int:
        """Pixels of one output map."""
        return self.out_height * self.out_width

    @property
    def depth(self) -> int:
        """Products in one output: rows of the unrolled input."""
        return self.channels * self.size * self.size

    @property
    def weights(self) -> int:
        """Number of weights."""
        return self.maps * self.depth

    def about(self) -> dict[str, Any]:
        """Return JSON values for ``run.json``; bytes are those of fp32, each counted once."""
        inputs = self.images * self.channels * self.height * self.width
        outputs = self.images * self.maps * self.pixels
        return {
            "input": [self.images, self.channels, self.height, self.width],
            "output": [self.images, self.maps, self.out_height, self.out_width],
            "size": self.size,
            "pad": self.pad,
            "flops": 2 * outputs * self.depth,
            "weight_bytes": 4 * self.weights,
            "input_bytes": 4 * inputs,
            "output_bytes": 4 * outputs,
            "unrolled_bytes": 4 * self.depth * self.images * self.pixels,
        }


_SHAPES = {
    # the network of the course project: 86 x 86 images, 7 x 7 filters, pooling by 2 in between
    "conv1": Problem("", 1, maps=4, channels=1, height=86, width=86, size=7, pad=0),
    "conv2": Problem("", 1, maps=16, channels=4, height=40, width=40, size=7, pad=0),
    # the two slowest convolutions of YOLOv4-Tiny in the published study
    "yolo03": Problem("", 1, maps=64, channels=64, height=104, width=104, size=3, pad=1),
    "yolo20": Problem("", 1, maps=256, channels=384, height=26, width=26, size=3, pad=1),
}
DEFAULT_SIZES = (
    "conv1_b100,conv2_b100,conv1_b1000,conv2_b1000,conv1_b10000,conv2_b10000,yolo03_b1,yolo20_b1"
)
_NAME = re.compile(r"(\w+)_b([1-9][0-9]*)")


def parse_sizes(text: str) -> tuple[Problem, ...]:
    """Read ``--set sizes=``: names like ``conv1_b100``, a shape and a batch, comma-separated.

    Raises
    ------
    InputError
        If a name is none, occurs twice, or asks for too many images.
    """
    problems = []
    for word in (each.strip() for each in text.split(",")):
        match = _NAME.fullmatch(word)
        if match is None or match[1] not in _SHAPES or int(match[2]) > LARGEST_BATCH:
            what = "there is no problem of this name"
            cure = f"A shape ({', '.join(_SHAPES)}) and a batch up to {LARGEST_BATCH}: conv1_b100."
            raise InputError(what, where="--set sizes", found=word, cure=cure)
        problems.append(replace(_SHAPES[match[1]], name=word, images=int(match[2])))
    if len({each.name for each in problems}) < len(problems):
        what = "a problem is named twice"
        raise InputError(what, where="--set sizes", found=text)
    return tuple(problems)


def parts_of(images: int, parts: int) -> list[tuple[int, int]]:
    """Divide images among streams: (first image, how many), none of them empty.

    Examples
    --------
    >>> parts_of(10, 4)
    [(0, 3), (3, 3), (6, 2), (8, 2)]
    >>> parts_of(1, 4)
    [(0, 1)]
    """
    parts = min(parts, images)
    small, larger = divmod(images, parts)
    counts = [small + (each < larger) for each in range(parts)]
    return [(sum(counts[:each]), count) for each, count in enumerate(counts)]


_CHUNK = 1 << 26
"""Elements of the unrolled input that the reference holds at once: half a gibibyte."""


def reference(problem: Problem, weights: Any, images: Any) -> Any:
    """Return the convolution in double precision, by its definition as a matrix product.

    Parameters
    ----------
    weights, images
        torch tensors of shape (maps, channels, size, size) and (images, channels, height, width).

    Returns
    -------
    tensor
        Double, shape (images, maps, out_height, out_width), on the inputs' device.
    """
    import torch
    from torch.nn.functional import unfold

    filters = weights.double().reshape(problem.maps, problem.depth)
    some = max(1, _CHUNK // (problem.depth * problem.pixels))
    found = []
    for chunk in images.split(some):
        columns = unfold(chunk.double(), problem.size, padding=problem.pad)
        found.append(filters @ columns)
    shape = (len(images), problem.maps, problem.out_height, problem.out_width)
    return torch.cat(found).reshape(shape)
