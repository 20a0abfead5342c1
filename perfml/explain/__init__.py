"""Explain: why is this side slower: causes from counters and a model's view, never mixed.

`explain` compares two sides (two tables, or two backends of one dataset) layer by layer: the time
ratio with its interval, the kernels and metrics that changed, the causes that counters prove, and
what a fitted model attributes to each metric. Both add up exactly to what they attribute.

Here to change: causes in ``tree/``, what is known of a launch in ``limits/``, the view of a model
in ``model.py``, hazards in ``advice/``, peaks in ``roofs/``; what two sides are and how their
layers meet, in ``compared.py``.
"""

from __future__ import annotations

from perfml.util.lazy import callable_package, lazily

_HOMES = {
    "explain": "compare",
    "sides_of": "compared",
    "make_side": "compared",
    "load_tables": "load",
    "Explanation": "results",
    "LayerDiff": "results",
    "Causes": "tree.layer_causes",
    "PairCauses": "tree.layer_causes",
    "Term": "tree.causes",
    "TERMS": "tree.causes",
    "Contribution": "tree.causes",
    "ModelAttribution": "changed_metrics",
    "Ratio": "times",
    "align_layers": "compared",
    "compare_times": "times",
    "exact_shapley": "model",
    "roofline": "roofs.by_layer",
    "Peaks": "roofs.peaks",
    "known_peaks": "roofs.peaks",
    "load_peaks": "roofs.peaks",
    "Advice": "advice.hazards",
    "advise": "advice.hazards",
}

__all__ = sorted(_HOMES)

callable_package(__name__, "compare", "explain")

# on first use: pandas and scikit-learn take a second
__getattr__, __dir__ = lazily(__name__, globals(), _HOMES)
