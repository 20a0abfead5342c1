"""Figures of layers, kernels, rankings, models and comparisons.

Every function takes a table, draws on ``ax`` or on a new figure, and returns the matplotlib Axes
(``axes.figure.savefig(...)`` writes it). Colours differ in every kind of colour vision
and labels carry units. matplotlib is imported when a figure is drawn, and never pyplot.
"""

from __future__ import annotations

from perfml.report.figures.all_models import model_importances
from perfml.report.figures.comparisons import attribution, layer_roofline, time_ratios
from perfml.report.figures.metrics import roofline, stall_breakdown
from perfml.report.figures.models import (
    STRONG,
    RankingDisplay,
    decision_tree,
    importances,
    predicted_vs_measured,
    ranks,
)
from perfml.report.figures.style import PALETTE, svg
from perfml.report.figures.times import kernel_shares, layer_times

__all__ = [
    "PALETTE",
    "STRONG",
    "RankingDisplay",
    "attribution",
    "decision_tree",
    "importances",
    "kernel_shares",
    "layer_roofline",
    "layer_times",
    "model_importances",
    "predicted_vs_measured",
    "ranks",
    "roofline",
    "stall_breakdown",
    "svg",
    "time_ratios",
]
