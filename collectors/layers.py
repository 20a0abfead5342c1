"""Name the layers of a PyTorch model in a script of the user's own: ``perfml.layers(model)``.

Runs in the profiled program; torch is imported when it is used, and nothing is measured here.
"""

from __future__ import annotations

import itertools
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from collectors.workloads.module_ranges import ModuleRanges
from collectors.workloads.ranges import NvtxRanges, Ranges

if TYPE_CHECKING:
    import torch

_CALLS = itertools.count()
"""Numbers the calls of all models of this process, so that no iteration has another's number."""


class _Here(threading.local):
    """What is open on this thread."""

    open_iterations = 0


_here = _Here()
_recorder: Ranges | None = None
"""Takes the ranges in the place of NVTX, while this process measures itself."""


@contextmanager
def layers(model: torch.nn.Module, *, iterations: bool = True) -> Iterator[None]:
    """Put NVTX ranges around the modules of a model while a ``with`` block runs.

    Every kernel of a forward pass is then in the range of the module that launched it, by the
    module's path: ``layer1.0.conv1``. What a module does itself after a submodule, such as the
    addition of a residual block, is in ``layer1.0.after_bn2``. The backward pass of both is in
    ``layer1.0.conv1.backward`` and so on, an optimizer's step in ``optimizer``.

    A model of ``torch.compile`` has its modules' names where its first call, which compiles it, is
    in the block. Compiled otherwise or before, a module is one layer, and a warning names it.

    Parameters
    ----------
    model
        The model. Its hooks are removed after the block.
    iterations
        Make each call of the model an iteration (``iter_0``, ``iter_1``, ...), which profilers
        that measure a pass an iteration need. Inside `iteration`, that one counts. Say False where
        the script names iterations in another way.

    Examples
    --------
    Warm up first, then run the model thirty times, as the default counters need::

        model(batch)
        with perfml.layers(model):
            for _ in range(30):
                model(batch)
    """
    ranges = _nvtx()

    @contextmanager
    def call() -> Iterator[None]:
        if _here.open_iterations or not iterations:
            yield
        else:
            with ranges.iteration(next(_CALLS)):
                yield

    with ModuleRanges(model, ranges, around=call) as named:
        yield
    if closed := named.closed:
        msg = f"compiled, so one layer each: {', '.join(closed[:5])}"
        warnings.warn(msg, stacklevel=3)


@contextmanager
def iteration(number: int) -> Iterator[None]:
    """Make a ``with`` block one repeat of the work: the range ``iter_NUMBER``.

    For a repeat that is more than one call of the model, such as a training step.

    `number` counts from 0, another one each time.

    Examples
    --------
    One step of training is one repeat::

        with perfml.layers(model):
            for number, batch in enumerate(loader):
                with perfml.iteration(number):
                    train(batch)
    """
    with _nvtx().iteration(number):
        _here.open_iterations += 1
        try:
            yield
        finally:
            _here.open_iterations -= 1


@contextmanager
def recorded_by(ranges: Ranges) -> Iterator[None]:
    """Give the ranges of this process to somebody else than NVTX."""
    global _recorder
    _recorder = ranges
    try:
        yield
    finally:
        _recorder = None


def _nvtx() -> Ranges:
    """Return NVTX's ranges, or none where torch has no CUDA: the script then runs as it is."""
    if _recorder is not None:
        return _recorder
    import torch

    return NvtxRanges() if torch.cuda.is_available() else Ranges()
