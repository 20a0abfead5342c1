"""Repeat the published analysis (Nazir 2024, chapter 2) and judge its claims about the file.

The network, kernels, engines and public runs of the chapter are judged by ``studies/reproduction``.

Here to change: a published claim and its verdict in ``claims.py``, the published numbers in
``published.py``, what is written in ``files.py``.
"""

from __future__ import annotations

from perfml.reproduce.claims import VERDICTS, Claim
from perfml.reproduce.files import write
from perfml.reproduce.run import Reproduction, reproduce
from perfml.reproduce.splits import Plan

__all__ = ["VERDICTS", "Claim", "Plan", "Reproduction", "reproduce", "write"]
