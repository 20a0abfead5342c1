"""A residual block, attention and a recurrent layer, small enough to count by hand.

``torch:tests/support/small_torch_net.py:net`` as a workload.
"""

import torch
from torch import nn


class Block(nn.Module):
    """Two convolutions and an addition; its activation is called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 3, 3, padding=1, bias=False)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(3, 3, 3, padding=1, bias=False)
        self.drop = nn.Dropout()

    def forward(self, images):
        values = self.conv2(self.relu(self.conv1(images)))
        values += images
        return self.drop(self.relu(values))


class Net(nn.Module):
    """Images of 3x8x8 to five values."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(Block())
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.lstm = nn.LSTM(8, 4, batch_first=True)
        self.fc = nn.Linear(4, 5)

    def forward(self, images):
        rows = self.body(images).mean(1)
        attended, _ = self.attention(rows, rows, rows)
        return {"values": self.fc(self.lstm(attended)[0])}


class Infinite(nn.Module):
    """Overflows."""

    def forward(self, images):
        return images * 1e30 * 1e30


def net(batch):
    return Net(), torch.randn(batch, 3, 8, 8)


def infinite():
    return Infinite()


def no_module():
    return 3


def embedding():
    return nn.Embedding(100, 4), torch.tensor([[1, 2, 3]])


def fading(batch):
    """Untrained, each layer shrinks what goes through it below what fp16 holds."""
    layers = []
    for _ in range(6):
        layers += [nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)]
        nn.init.normal_(layers[-2].weight, std=1e-3)
    return nn.Sequential(*layers), torch.randn(batch, 8, 16, 16)


class Grouped(nn.Module):
    """Four heads of queries share two of keys and values."""

    def forward(self, query, key):
        return nn.functional.scaled_dot_product_attention(query, key, key, enable_gqa=True)


def grouped(batch):
    return Grouped(), (torch.randn(batch, 4, 10, 8), torch.randn(batch, 2, 10, 8))
