"""What the names of NVTX ranges mean, for who reads them without a table."""

from __future__ import annotations

import re

ITERATION = re.compile(r"(?:iter|iteration|step)[_\- ]?(\d{1,15})", re.IGNORECASE)
"""A range of this name counts repeats of the workload; it is no layer.

A longer number is no count: it is more than fits into 64 bits, and than anybody repeats.
"""

LIBRARIES = ("CCCL", "NCCL", "NVSHMEM", "cuBLAS", "cuDNN", "cuFFT", "cuSOLVER", "cuSPARSE")
"""NVTX domains in which libraries mark their own work, which is no layer of the program.

CCCL is CUB and Thrust, which PyTorch calls. The same as in
``collectors/profilers/injected/nvtx_ranges.h``.
"""
