"""Named ranges around iterations and layers, in the form that each profiler reads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

ITERATION_PREFIX = "iter_"


class Ranges:
    """Ranges that nobody records: the base class, and what a warm-up uses."""

    def push(self, name: str) -> None:
        """Open a range."""

    def pop(self) -> None:
        """Close the range opened last."""

    @contextmanager
    def range(self, name: str) -> Iterator[None]:
        """Keep a range open for a ``with`` block, also if the block raises."""
        self.push(name)
        try:
            yield
        finally:
            self.pop()

    def iteration(self, number: int) -> AbstractContextManager[None]:
        """Return the range of one measured inference, ``iter_0``, ``iter_1``, ..."""
        return self.range(f"{ITERATION_PREFIX}{number}")


class NvtxRanges(Ranges):
    """NVTX push and pop ranges of torch: ncu, nsys and nvprof read them."""

    def __init__(self) -> None:
        from torch.cuda import nvtx

        self._nvtx = nvtx

    def push(self, name: str) -> None:
        """Open a range in NVTX's default domain."""
        self._nvtx.range_push(name)

    def pop(self) -> None:
        """Close the innermost range."""
        self._nvtx.range_pop()
