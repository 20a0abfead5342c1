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


class RecordedRanges(Ranges):
    """Ranges of torch.profiler, for the timing pass without counters."""

    def __init__(self) -> None:
        from torch.profiler import record_function

        self._record = record_function
        self._open: list[record_function] = []

    def push(self, name: str) -> None:
        """Open a range."""
        opened = self._record(name)
        opened.__enter__()
        self._open.append(opened)

    def pop(self) -> None:
        """Close the innermost range."""
        self._open.pop().__exit__(None, None, None)
