"""Tell which hardware metrics explain a GPU latency, and whether to trust the answer."""

from perfml._version import __version__

__all__ = ["__version__"]
