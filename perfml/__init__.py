"""Which hardware metrics explain a GPU latency, and can the answer be trusted?"""

from perfml._version import __version__

__all__ = ["__version__"]
