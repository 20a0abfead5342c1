"""Ranges that a test can look at."""

from collectors.workloads.ranges import Ranges


class ListedRanges(Ranges):
    """Keep the path of every range that was opened.

    Attributes
    ----------
    paths
        ``iter_0/conv_03`` and so on, in the order of opening.
    """

    def __init__(self) -> None:
        self.paths: list[str] = []
        self._stack: list[str] = []

    def push(self, name: str) -> None:
        """Open a range."""
        self._stack.append(name)
        self.paths.append("/".join(self._stack))

    def pop(self) -> None:
        """Close the innermost range."""
        self._stack.pop()
