"""Predict: which layers are slower than layers like them usually are, by how much, and why.

`predict` learns from a Layers table of many networks (the atlas that comes with perfml) what layers
of some kind, shape and precision take, and compares a profile's layers with that. What was fitted
on the atlas is kept beside it as arrays; on other tables a model is fitted on first use.

Here to change: what a layer is described by, in ``describe.py``; the model
and its intervals, in ``model.py``; what is kept of it, in ``learned.py``; what is refused, in
``comparable.py``, and so the reasons.
"""

from __future__ import annotations

from perfml.util.lazy import callable_package, lazily

_HOMES = {
    "predict": "compare",
    "Prediction": "results",
    "PredictedLayer": "results",
    "with_bounds": "describe",
    "prepare_layers": "describe",
    "family_of": "describe",
}

__all__ = sorted(_HOMES)

callable_package(__name__, "python", "predict")

# on first use: scikit-learn takes a second to import
__getattr__, __dir__ = lazily(__name__, globals(), _HOMES)
