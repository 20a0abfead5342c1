"""Figures of layers, kernels, rankings and models.

Every function takes a table, draws on ``ax`` or on a new figure, and returns the matplotlib Axes
(``axes.figure.savefig(...)`` writes it). Colours are told apart in every kind of colour vision
and labels carry units. matplotlib is imported when a figure is drawn, and never pyplot.
"""

from __future__ import annotations

from perfml.report._canvas import PALETTE, svg
from perfml.report._figures_metrics import correlation_clusters, roofline, stall_breakdown
from perfml.report._figures_models import (
    decision_tree,
    importances,
    predicted_vs_measured,
    ranks,
)
from perfml.report._figures_times import filter_table, kernel_shares, layer_times

__all__ = [
    "PALETTE",
    "correlation_clusters",
    "decision_tree",
    "filter_table",
    "importances",
    "kernel_shares",
    "layer_times",
    "predicted_vs_measured",
    "ranks",
    "roofline",
    "stall_breakdown",
    "svg",
]
