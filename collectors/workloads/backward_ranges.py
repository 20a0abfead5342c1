"""Ranges around what a backward pass launches: those of the modules that made its nodes.

When a module begins or ends, the nodes that autograd has recorded since then belong to the range
that was open meanwhile, ``layer1.0.conv1``. A hook before each of them opens the range
``layer1.0.conv1.backward`` on the thread that runs it. It stays open until the next node's, since
gradients of one tensor are added between two nodes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

from .ranges import Ranges

_NAMED = "perfml"
"""Key in a node's metadata: it has its hook."""


class BackwardRanges:
    """Ranges of the backward passes of a model.

    Parameters
    ----------
    ranges
        Returns what records the ranges at the moment.
    """

    def __init__(self, ranges: Callable[[], Ranges]) -> None:
        self._ranges = ranges
        self._active = True
        self._here = threading.local()
        self._task = -1

    def made(self, values: Any, name: str, module: str) -> None:
        """Give the nodes that computed `values`, any nest of tensors, to the range `name`.

        Nodes that have a range keep it, and so do those before them. `module` is the path of the
        module that ran; paths in compiled code are within it.
        """
        path, _, turn = name.partition("#")
        label = f"{path}.backward" + (f"#{turn}" if turn else "")
        waiting = list(_nodes_of(values))
        while waiting:
            node = waiting.pop()
            if _NAMED in node.metadata:
                continue
            node.metadata[_NAMED] = label
            node.register_prehook(self._opener(module, label))
            waiting += [before for before, _ in node.next_functions if before is not None]

    def known(self, values: Any) -> None:
        """Leave the nodes that computed `values`, and all before them, to whoever ran them."""
        for node in _nodes_of(values):
            node.metadata.setdefault(_NAMED, "")

    def inside(self, path: str) -> None:
        """Go on in a module of the compiled one whose backward runs; empty: outside all of them."""
        if getattr(self._here, "open", ""):
            inner = ".".join(filter(None, (self._here.module, path)))
            self._open(inner if path else self._here.whole)

    def leave(self) -> None:
        """Close the range that is open on this thread."""
        if getattr(self._here, "open", ""):
            self._ranges().pop()
            self._here.open = ""

    def stop(self) -> None:
        """Open no range from now on; nodes that still live keep their hooks."""
        self._active = False

    def _opener(self, module: str, label: str) -> Callable[..., None]:
        def before(*_: Any) -> None:
            if self._active:
                self._close_afterwards()
                self._here.module, self._here.whole = module, label
                self._open(label)

        return before

    def _open(self, label: str) -> None:
        if getattr(self._here, "open", "") != label:
            self.leave()
            self._ranges().push(label)
            self._here.open = label

    def _close_afterwards(self) -> None:
        """Have the last range of this pass closed: the thread that ends the pass calls back."""
        import torch

        task = torch._C._current_graph_task_id()
        if task != self._task:
            self._task = task
            torch.autograd.Variable._execution_engine.queue_callback(self.leave)


def in_backward() -> bool:
    """Return whether this thread runs a backward pass: a checkpoint's forward pass comes again."""
    import torch

    return bool(torch._C._current_graph_task_id() != -1)


def _nodes_of(values: Any) -> Iterator[Any]:
    import torch
    from torch.utils._pytree import tree_leaves

    for leaf in tree_leaves(values):
        if isinstance(leaf, torch.Tensor) and leaf.grad_fn is not None:
            yield leaf.grad_fn
