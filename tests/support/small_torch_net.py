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
