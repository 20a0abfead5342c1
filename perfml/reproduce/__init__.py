"""Repeat the published analysis (Nazir 2024, chapter 2) and judge its claims about the file.

The network, kernels, engines and public runs of the chapter are judged by ``studies/reproduction``.

Here to change: a published claim and its verdict in ``claims.py``, the published numbers in
``published.py``, what is written in ``files.py``.
"""

from __future__ import annotations

from perfml.util.lazy import lazily

_HOMES = {
    "VERDICTS": "claims",
    "Claim": "claims",
    "Plan": "splits",
    "Reproduction": "run",
    "reproduce": "run",
    "write": "files",
}

__all__ = sorted(_HOMES)

# on first use: scikit-learn takes a second to import
__getattr__, __dir__ = lazily(__name__, globals(), _HOMES)
