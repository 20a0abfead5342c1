"""What a backward pass launches is in ranges named after the modules of the forward pass."""

import pytest
import torch

from collectors.workloads.module_ranges import ModuleRanges
from tests.support.ranges import ListedRanges

pytestmark = pytest.mark.extras


class Residual(torch.nn.Module):
    """Adds what it was given to what its layer makes of it, and changes the sum in place."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.relu = torch.nn.ReLU(inplace=True)

    def forward(self, x):
        return self.relu(self.linear(x) + x)


def trained(model, x, around=lambda run: run()):
    """Return the ranges of a training step, and its gradients."""
    ranges = ListedRanges()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with ModuleRanges(model, ranges):
        loss = around(lambda: model(x)).square().mean()
        ranges.paths.clear()
        loss.backward()
        gradients = [parameter.grad.clone() for parameter in model.parameters()]
        optimizer.step()
    assert ranges._stack == []
    return ranges.paths, gradients


@pytest.fixture
def model():
    torch.manual_seed(0)
    return torch.nn.Sequential(Residual(), torch.nn.Linear(4, 3))


@pytest.fixture
def batch():
    return torch.ones(2, 4)


def test_backward_goes_through_the_ranges_of_forward_from_last_to_first(model, batch):
    paths, _ = trained(model, batch)
    assert paths == [
        "1.backward",
        "0.relu.backward",
        "0.after_linear.backward",
        "0.linear.backward",
        "optimizer",
    ]


def test_gradients_are_those_of_a_step_without_ranges(model, batch):
    model(batch).square().mean().backward()
    alone = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    _, named = trained(model, batch)
    assert all(map(torch.equal, alone, named))


def test_nodes_from_before_the_model_are_nobodys(model, batch):
    weight = torch.ones(4, 4, requires_grad=True)
    paths, _ = trained(model, batch @ weight)
    assert paths[:-1] == trained(model, batch)[0][:-1]


def test_a_forward_pass_that_runs_again_in_backward_has_its_names_and_no_iteration(batch):
    from torch.utils.checkpoint import checkpoint

    inner = Residual()

    class Outer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = inner

        def forward(self, x):
            return checkpoint(self.inner, x, use_reentrant=False)

    paths, _ = trained(Outer(), batch.requires_grad_())
    assert "inner.linear" in paths
    assert paths[-2:] == ["inner.linear.backward", "optimizer"]
    assert not [path for path in paths if "/" in path]


def test_a_module_without_gradients_opens_no_range_in_backward(model, batch):
    model[0].requires_grad_(False)
    ranges = ListedRanges()
    with ModuleRanges(model, ranges):
        loss = model(batch).sum()
        ranges.paths.clear()
        loss.backward()
    assert ranges.paths == ["1.backward"]


def test_compiled_code_goes_on_in_the_modules_inside_the_one_that_was_compiled(batch):
    ranges = ListedRanges()

    class Compiled(torch.autograd.Function):
        @staticmethod
        def forward(_, x):
            return x * 2

        @staticmethod
        def backward(_, gradient):
            named._inside("up.backward", "mm")
            named._inside("", "")
            return gradient * 2

    class Block(torch.nn.Module):
        def forward(self, x):
            return Compiled.apply(x)

    model = torch.nn.Sequential(torch.nn.Linear(4, 4), Block())
    with ModuleRanges(model, ranges) as named:
        loss = model(batch).sum()
        ranges.paths.clear()
        loss.backward()
    assert ranges.paths == ["1.backward", "1.up.backward", "1.backward", "0.backward"]


def test_after_the_block_nodes_that_still_live_open_no_range(model, batch):
    ranges = ListedRanges()
    with ModuleRanges(model, ranges):
        loss = model(batch).sum()
    ranges.paths.clear()
    loss.backward()
    assert ranges.paths == []
