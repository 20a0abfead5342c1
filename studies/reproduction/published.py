"""What chapter 2 says of its device and network (Nazir 2024), as data."""

from __future__ import annotations

from dataclasses import dataclass

DEVICE = {
    "device": "GeForce GTX 1050 Ti",
    "multiprocessors": "6",
    "CUDA cores": "128 per SM",
    "clock rate": "1.39 GHz",
    "shared memory": "48 Kb",
    "registers": "65k per block",
    "CUDA": "11",
    "cuDNN": "8.4",
}
"""Table 2.1, and the versions of section 2.4.1."""

MANY_CHANNELS = 128

FILTER_CELLS: dict[tuple[int, bool], frozenset[int]] = {
    (3, False): frozenset({1, 2, 3, 4, 5, 8, 9}),
    (3, True): frozenset({7, 11, 12, 13, 15, 17, 20}),
    (1, False): frozenset({6}),
    (1, True): frozenset({10, 14, 16, 18, 19, 21}),
}
"""Table 2.3: (filter size, at least 128 input channels) to layer numbers. Which of them are fast or
slow was told by type face and colour, which the stored text of the study does not keep."""


@dataclass(frozen=True)
class Shape:
    """One convolution of YOLOv4-Tiny; extents are height, width, channels."""

    filters: int
    size: int
    stride: int
    input: tuple[int, int, int]
    output: tuple[int, int, int]

    @property
    def pad(self) -> int:
        """Zeros on each side: Darknet's ``pad=1`` means half the filter size."""
        return self.size // 2

    @property
    def filter_text(self) -> str:
        """Size, stride and padding as table 2.4 writes them."""
        return f"{self.size}x{self.size}/{self.stride}/{self.pad}"


def _square(filters: int, size: int, stride: int, into: tuple[int, int]) -> Shape:
    edge, channels = into
    out = edge // stride
    return Shape(filters, size, stride, (edge, edge, channels), (out, out, filters))


SHAPES: dict[int, Shape] = {
    1: _square(32, 3, 2, (416, 3)),
    2: _square(64, 3, 2, (208, 32)),
    3: _square(64, 3, 1, (104, 64)),
    4: _square(32, 3, 1, (104, 32)),
    5: _square(32, 3, 1, (104, 32)),
    6: _square(64, 1, 1, (104, 64)),
    7: _square(128, 3, 1, (52, 128)),
    8: _square(64, 3, 1, (52, 64)),
    9: _square(64, 3, 1, (52, 64)),
    10: _square(128, 1, 1, (52, 128)),
    11: _square(256, 3, 1, (26, 256)),
    12: _square(128, 3, 1, (26, 128)),
    13: _square(128, 3, 1, (26, 128)),
    14: _square(256, 1, 1, (26, 256)),
    15: _square(512, 3, 1, (13, 512)),
    16: _square(256, 1, 1, (13, 512)),
    17: _square(512, 3, 1, (13, 256)),
    18: _square(21, 1, 1, (13, 512)),
    19: _square(128, 1, 1, (13, 256)),
    20: _square(256, 3, 1, (26, 384)),
    21: _square(21, 1, 1, (26, 256)),
}
"""The 21 convolutions of figure A-1, numbered as in the study."""

STRUCTURES = {
    3: (64, "3x3/1/1", "104x104x64", "104x104x64"),
    20: (256, "3x3/1/1", "26x26x384", "26x26x256"),
}
"""Table 2.4: filters, size/stride/padding, input, output."""


def layer_number(name: object) -> int | None:
    """Return the study's number of a layer called ``conv_03``; None for any other name."""
    text = str(name)
    digits = text.removeprefix("conv_")
    return int(digits) if text.startswith("conv_") and digits.isdigit() else None
