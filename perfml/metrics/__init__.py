"""The metric catalogue: what each metric means, how Nsight Compute spells it, how it merges."""

from perfml.metrics.catalogue import (
    PUBLISHED,
    STALLS,
    Catalogue,
    Evaluation,
    Metric,
    load_catalogue,
)
from perfml.metrics.expressions import Expression, parse

__all__ = [
    "PUBLISHED",
    "STALLS",
    "Catalogue",
    "Evaluation",
    "Expression",
    "Metric",
    "load_catalogue",
    "parse",
]
