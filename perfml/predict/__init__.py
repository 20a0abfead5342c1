"""Predict: which layers are slower than layers like them usually are, by how much, and why.

`predict` learns from a Layers table of many networks (the atlas that comes with perfml) what layers
of some kind, shape and precision take, and compares a profile's layers with that. What was fitted
on the atlas is kept beside it as arrays; on other tables a model is fitted on first use.

Here to change: what a layer is described by, in ``describe.py`` and ``families.py``; the model, in
``model.py``; what is kept of it, in ``learned.py``; intervals and what is refused, in
``intervals.py`` and ``compare.py``; the reasons, in ``reasons.py``.
"""

from __future__ import annotations

from typing import Any

from perfml.util.lazy import resolve

_HOMES = {
    "predict": "compare",
    "Prediction": "results",
    "LayerVerdict": "results",
    "with_bounds": "bounds",
    "prepared": "describe",
    "family_of": "families",
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: scikit-learn takes a second to import."""
    return resolve(__name__, globals(), _HOMES, name)


def __dir__() -> list[str]:
    return __all__
