"""Inductor: every convolution block (convolution, bias, activation) through torch.compile.

Blocks are compiled one by one, not the network as a whole, so that a kernel never spans two
layers and every kernel can be attributed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from collectors.workloads.yolov4_tiny.torch_network import TorchSession, import_torch
from collectors.workloads.yolov4_tiny.workload import Problem

if TYPE_CHECKING:
    from collectors.workloads.yolov4_tiny.torch_network import Step


def session(problem: Problem) -> TorchSession:
    """Return a session whose convolution blocks are compiled when they first run."""
    torch = import_torch()
    # All blocks share one code object, so the compiler counts each as a recompilation of the
    # first and gives up at its limit; fullgraph below makes giving up an error.
    blocks = len(problem.network.convolutions)
    config = torch._dynamo.config
    config.recompile_limit = max(config.recompile_limit, 2 * blocks)

    def compile_block(step: Step) -> Step:
        compiled: Step = torch.compile(step, fullgraph=True, dynamic=False)
        return compiled

    return TorchSession(problem, cudnn=True, wrap=compile_block)
