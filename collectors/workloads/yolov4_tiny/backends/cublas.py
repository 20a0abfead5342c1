"""cuBLAS: torch with cuDNN switched off lays windows out as columns and calls GEMM, image by image.

This is the classic Darknet way. Bias and activation are kernels of their own.
"""

from __future__ import annotations

from collectors.workloads.yolov4_tiny.torch_network import TorchSession
from collectors.workloads.yolov4_tiny.workload import Problem


def session(problem: Problem) -> TorchSession:
    """Return a session whose convolutions are im2col and cuBLAS GEMM."""
    return TorchSession(problem, cudnn=False)
