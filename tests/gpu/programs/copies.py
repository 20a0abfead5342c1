"""A PyTorch program with copies in one of its layers: ``copies.py host`` or ``copies.py device``.

The layer ``centre`` takes the means of columns on the host (4 MiB there, 4 KiB back), or on the
device.
"""

import sys

import torch

on_host = sys.argv[1] == "host"
torch.manual_seed(0)
weight = torch.randn(1024, 1024, device="cuda")
batch = torch.randn(1024, 1024, device="cuda")


def means(value):
    """Return the means of columns; on the host the whole matrix has to go there."""
    return value.cpu().mean(dim=0).cuda() if on_host else value.mean(dim=0)


with torch.no_grad():
    for step in range(40):
        torch.cuda.nvtx.range_push(f"iter_{step}")
        torch.cuda.nvtx.range_push("product")
        value = batch @ weight
        torch.cuda.nvtx.range_pop()
        torch.cuda.nvtx.range_push("centre")
        value = value - means(value)
        torch.cuda.nvtx.range_pop()
        torch.cuda.nvtx.range_push("shift")
        value = value + 1.0
        torch.cuda.nvtx.range_pop()
        torch.cuda.nvtx.range_pop()
        torch.cuda.synchronize()
print("mean", float(value.mean()))
