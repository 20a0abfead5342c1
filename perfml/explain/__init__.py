"""Explain: why is this side slower: its causes, and two attributions that are never mixed.

`explain` compares two sides (two tables, or two backends of one dataset) layer by layer: the time
ratio with its interval, the kernels and metrics that changed, a physical attribution from counters
and one from a fitted model. The causes are the physical one with its residual named. All of them
add up exactly to what they attribute.
"""

from __future__ import annotations

from typing import Any

from perfml._lazy import resolve

_HOMES = {
    "explain": "_explain",
    "sides_of": "sides",
    "make_side": "sides",
    "load_tables": "load",
    "Explanation": "results",
    "LayerDiff": "results",
    "Causes": "results",
    "Physical": "results",
    "ModelAttribution": "results",
    "Ratio": "results",
    "align_layers": "align",
    "compare_times": "times",
    "exact_shapley": "shapley",
    "roofline": "_roofline",
    "Peaks": "peaks",
    "known_peaks": "peaks",
    "load_peaks": "peaks",
    "Advice": "advice",
    "advise": "advice",
    "load_ncu_rules": "load",
    "pool_agreement": "ncu_agreement",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: pandas and scikit-learn take a second."""
    return resolve(__name__, globals(), _HOMES, name)


def __dir__() -> list[str]:
    return __all__
