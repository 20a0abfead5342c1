"""A PyTorch program that repeats itself: ITERATIONS forwards of ResNet-34, one range each."""

import sys

import torch
import torchvision

torch.manual_seed(0)
torch.backends.cudnn.allow_tf32 = False
torch.backends.cuda.matmul.allow_tf32 = False
network = torchvision.models.resnet34(weights=None).cuda().eval()
image = torch.randn(1, 3, 224, 224, device="cuda")
with torch.inference_mode():
    for _ in range(3):
        network(image)
    for number in range(int(sys.argv[1])):
        torch.cuda.nvtx.range_push(f"iter_{number}")
        output = network(image)
        torch.cuda.nvtx.range_pop()
torch.cuda.synchronize()
print("sum", float(output.sum()))
