"""In a script of the user's own: ``perfml.layers(model)`` names layers, `iteration` the repeats.

`time_step` times a step without a profiler. It runs where the program runs; torch is imported when
it is used.
"""

from __future__ import annotations

import itertools
import json
import operator
import os
import statistics
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from collectors.profilers.inject import BARE
from collectors.workloads.module_ranges import ModuleRanges, refuses_hooks
from collectors.workloads.ranges import NvtxRanges, Ranges
from perfml.account.account import BESIDE
from perfml.errors import InputError
from perfml.util.files import write_text

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
    # a run without a profiler has iterations, and no hooks that make it longer
    with followed(model, iterations=iterations, bare=sys.maxsize if BARE in os.environ else 0):
        yield


@contextmanager
def followed(model: torch.nn.Module, *, iterations: bool = True, bare: int = 0) -> Iterator[None]:
    """Do what `layers` does, from the call after the first `bare` ones on, which have no layers."""
    ranges = _nvtx()

    @contextmanager
    def call() -> Iterator[None]:
        if _here.open_iterations or not iterations:
            yield
        else:
            with ranges.iteration(next(_CALLS)):
                yield

    named = ModuleRanges(model, ranges, around=call)
    # the first call of a compiled model compiles it, and has to know of the layers
    late = bare == sys.maxsize or (bare > 0 and not named.inductor)
    with ExitStack() as stack:
        if late and not refuses_hooks(model):
            stack.enter_context(_calls(model, call, bare, lambda: stack.enter_context(named)))
        else:
            stack.enter_context(named)
        yield
    if closed := named.closed:
        msg = f"compiled, so one layer each: {', '.join(closed[:5])}"
        warnings.warn(msg, stacklevel=3)


@contextmanager
def _calls(
    model: torch.nn.Module,
    around: Callable[[], AbstractContextManager[None]],
    most: int,
    then: Callable[[], object],
) -> Iterator[None]:
    """Enter `around` for each call of a model, for the first `most` of them; then call `then`."""
    here, seen = threading.local(), itertools.count(1)

    def before(*_: object) -> None:
        here.open = ExitStack()
        here.open.enter_context(around())

    def after(*_: object) -> None:
        here.open.close()
        if next(seen) == most:
            hooks.close()
            then()

    with ExitStack() as hooks:
        hooks.callback(model.register_forward_pre_hook(before).remove)
        hooks.callback(model.register_forward_hook(after, always_call=True).remove)
        yield


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
    try:
        whole = operator.index(number)
    except TypeError as error:
        msg = "an iteration has a number"
        cure = "Say perfml.iteration(0), then 1 and so on; perfml.layers names the layers."
        raise InputError(msg, found=repr(number)[:40], cure=cure) from error
    with _nvtx().iteration(whole):
        _here.open_iterations += 1
        try:
            yield
        finally:
            _here.open_iterations -= 1


def time_step(
    step: Callable[[], object], trace: str | Path, *, steps: int = 20, warmup: int = 3
) -> float:
    """Time a step without a profiler, and write it beside a trace of the same step.

    A profiler makes a step longer where the host is the limit. `perfml.report` of the trace reads
    what was written, scales idle time to it, and promises no saving beyond it.

    Parameters
    ----------
    step
        Runs one step. It may leave work on the GPU: the time is taken there, by CUDA events.
        Without a GPU it is that of the processor's clock.
    trace
        The trace; it need not exist yet. Written is ``TRACE.step.json``.
    steps, warmup
        How many steps are timed, and how many run before.

    Returns
    -------
    float
        The median step, microseconds.

    Examples
    --------
    >>> import perfml
    >>> perfml.time_step(lambda: model(batch), "trace.json.gz")  # doctest: +SKIP
    """
    if steps < 1:
        msg = "at least one step is timed"
        raise InputError(msg, where="steps", found=str(steps), cure="Say steps=20.")
    for _ in range(warmup):
        step()
    times = _by_events(step, steps) or _by_the_clock(step, steps)
    document = {"step_us": times, "by": "perfml.time_step"}
    write_text(Path(f"{trace}{BESIDE}"), json.dumps(document) + "\n")
    return statistics.median(times)


def _by_events(step: Callable[[], object], steps: int) -> list[float]:
    """Return what each step takes on the GPU; nothing where torch has none."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available():
        return []
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(steps + 1)]
    torch.cuda.synchronize()
    marks[0].record()
    for mark in marks[1:]:
        step()
        mark.record()
    torch.cuda.synchronize()
    return [1e3 * one.elapsed_time(other) for one, other in itertools.pairwise(marks)]


def _by_the_clock(step: Callable[[], object], steps: int) -> list[float]:
    times = [time.perf_counter_ns()]
    for _ in range(steps):
        step()
        times.append(time.perf_counter_ns())
    return [(other - one) / 1e3 for one, other in itertools.pairwise(times)]


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
    """Return NVTX's ranges, or none without torch or CUDA: the script then runs as it is."""
    if _recorder is not None:
        return _recorder
    torch = sys.modules.get("torch")  # a script without it launches nothing through it
    return NvtxRanges() if torch and torch.cuda.is_available() else Ranges()
