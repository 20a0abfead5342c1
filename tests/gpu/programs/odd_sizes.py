"""A network whose linear layers have sizes that fit tensor cores, or that miss them by a little.

``perfml collect torch:odd_sizes.py:odd`` and ``...:even``: the same work but for two sizes.
"""

import torch


class Sizes(torch.nn.Module):
    """Two products: the inner size of the first and the width of the second are what differs."""

    def __init__(self, inner, width):
        super().__init__()
        self.deep = torch.nn.Linear(inner, 4096, bias=False)
        self.wide = torch.nn.Linear(4096, width, bias=False)
        self.register_buffer("given", torch.randn(4096, inner))

    def forward(self, scale):
        return self.wide(self.deep(self.given * scale))


def odd():
    """4093 is no multiple of 8."""
    torch.manual_seed(0)
    return Sizes(4093, 4093), torch.ones(1)


def even():
    """4096 is."""
    torch.manual_seed(0)
    return Sizes(4096, 4096), torch.ones(1)
