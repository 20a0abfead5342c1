"""A PyTorch program that knows nothing of perfml: a small MLP with NVTX ranges a user would set."""

import torch

torch.manual_seed(0)
device = torch.device("cuda")
model = torch.nn.Sequential(
    torch.nn.Linear(512, 1024), torch.nn.GELU(), torch.nn.Linear(1024, 256)
).to(device)
batch = torch.randn(64, 512, device=device)
with torch.no_grad():
    for step in range(3):
        torch.cuda.nvtx.range_push(f"step_{step}")
        value = batch
        for name, module in model.named_children():
            torch.cuda.nvtx.range_push(f"layer_{name}")
            value = module(value)
            torch.cuda.nvtx.range_pop()
        torch.cuda.nvtx.range_pop()
torch.cuda.synchronize()
print("mean", float(value.mean()))
