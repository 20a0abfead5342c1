"""cuDNN: torch's convolutions, with cuDNN's own choice of algorithm or the fastest it measures.

The choice of benchmark mode may differ from one process to the next; ``run.json`` says whether the
mode was on, and the timing pass writes down which kernels ran.
"""

from __future__ import annotations

from collectors.workloads.yolov4_tiny.torch_network import TorchSession
from collectors.workloads.yolov4_tiny.workload import Problem


def session(problem: Problem) -> TorchSession:
    """Return a session whose convolutions are cuDNN's."""
    return TorchSession(problem, cudnn=True)
