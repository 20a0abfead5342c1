"""The published numbers (Nazir 2024, chapter 2), as data. Nothing here was measured by perfml."""

from __future__ import annotations

from dataclasses import dataclass

ROWS = 262
CONSTANT = ("warp_execution_efficiency", "cf_fu_utilization", "double_precision_fu_utilization")
MAPE_BELOW = 0.01
KEY_METRIC = "gld_efficiency"

RANGES: dict[str, tuple[float, float]] = {
    "warp_execution_efficiency": (1.0, 1.0),
    "gld_efficiency": (0.54, 0.94),
    "gst_efficiency": (0.57, 1.0),
    "stall_inst_fetch": (0.03, 0.12),
    "stall_exec_dependency": (0.08, 0.32),
    "stall_memory_dependency": (0.1, 0.5),
    "stall_sync": (0.08, 0.22),
    "stall_pipe_busy": (0.01, 0.06),
    "shared_efficiency": (0.37, 0.77),
    "achieved_occupancy": (0.25, 0.4),
    "l2_utilization": (0.13, 0.29),
    "shared_utilization": (0.3, 0.63),
    "ldst_fu_utilization": (0.16, 0.27),
    "cf_fu_utilization": (0.1, 0.1),
    "special_fu_utilization": (0.02, 0.16),
    "tex_fu_utilization": (0.18, 0.22),
    "single_precision_fu_utilization": (0.21, 0.86),
    "double_precision_fu_utilization": (0.0, 0.0),
    "dram_utilization": (0.37, 0.89),
    "type": (0.0, 2.0),
    "time": (259.53, 986.71),
}
"""Table 2.2: lowest and highest value; type is a class code, time is in microseconds."""

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

CLASS_CODES = {"trt": 0, "cublas": 1, "cudnn": 2}


@dataclass(frozen=True)
class Published:
    """What tables 2.5 and 2.6 say of one model.

    Attributes
    ----------
    title
        The model's name there.
    score
        Test MAPE (a fraction), or test accuracy.
    top
        Important features in the published order.
    """

    title: str
    score: float
    top: tuple[str, ...]


REGRESSION = {
    "dt": Published(
        "Decision Tree", 0.0094, ("gld_efficiency", "shared_utilization", "shared_efficiency")
    ),
    "gbr": Published(
        "Gradient Boosting",
        0.0088,
        ("gld_efficiency", "stall_memory_dependency", "achieved_occupancy"),
    ),
    "lmt": Published(
        "Linear Model Tree", 0.0079, ("stall_exec_dependency", "stall_sync", "gld_efficiency")
    ),
}
"""Table 2.5."""

CLASSIFICATION = {
    "dt": Published("Decision Tree", 1.0, ("gld_efficiency", "achieved_occupancy")),
    "lr": Published(
        "Logistic Regression", 1.0, ("gld_efficiency", "shared_efficiency", "shared_utilization")
    ),
    "rf": Published(
        "Random Forest", 1.0, ("ldst_fu_utilization", "stall_exec_dependency", "gld_efficiency")
    ),
}
"""Table 2.6."""

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
