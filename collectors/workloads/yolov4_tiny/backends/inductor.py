"""Inductor: every convolution block (convolution, bias, activation) through torch.compile.

Blocks are compiled one by one, not the network as a whole, so that a kernel never spans two
layers and every kernel can be attributed. Compiled like that with its own choice of layout,
inductor turns activations and kernels around in every block of every inference: 147 kernels and
944 us in fp32 on an H200, of which 80 kernels and 170 us only reorder. So the layout is chosen
here once for the whole network, as it would be in a network compiled in one piece: channels last
for the tensor cores' precisions, channels first for fp32, where cuDNN turned them back itself.
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
    from torch._inductor import config as inductor_config

    # All blocks share one code object, so the compiler counts each as a recompilation of the
    # first and gives up at its limit; fullgraph below makes giving up an error.
    blocks = len(problem.network.convolutions)
    config = torch._dynamo.config
    config.recompile_limit = max(config.recompile_limit, 2 * blocks)
    # ncu follows a pool of compiler processes as well, and the start is slow enough without: with
    # the pool, a run under ncu had recorded 25 kernels after 60 s.
    inductor_config.compile_threads = 1

    def compile_block(step: Step) -> Step:
        options = {"layout_optimization": False}
        compiled: Step = torch.compile(step, fullgraph=True, dynamic=False, options=options)
        return compiled

    tensor_cores = problem.options.precision in ("tf32", "fp16")
    return TorchSession(problem, cudnn=True, wrap=compile_block, channels_last=tensor_cores)
