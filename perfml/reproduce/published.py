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

CLASS_CODES = {"trt": 0, "cublas": 1, "cudnn": 2}


@dataclass(frozen=True)
class Published:
    """What tables 2.5 and 2.6 say of one model."""

    title: str  # the model's name there
    score: float  # test MAPE (a fraction), or test accuracy
    top: tuple[str, ...]  # important features in the published order


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
