"""What a user may tell the readers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ReadOptions:
    """Options of every reader; a reader ignores what does not concern it.

    Attributes
    ----------
    locale
        Number convention of a text export: ``"en"`` (1,234.5), ``"de"`` (1.234,5), or None to
        decide it from the columns.
    raw
        Keep the profiler's own metric columns beside the canonical ones.
    """

    locale: str | None = None
    raw: bool = False
