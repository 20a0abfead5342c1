"""Reports: one self-contained HTML page, Markdown for pull requests, and the figures in them."""

from perfml.report._machine import advise_conditions
from perfml.report._why import Pair, explain_pairs
from perfml.report.comparison import build_comparison
from perfml.report.html import build_report
from perfml.report.markdown import build_markdown
from perfml.report.summary import summary_lines

__all__ = [
    "Pair",
    "advise_conditions",
    "build_comparison",
    "build_markdown",
    "build_report",
    "explain_pairs",
    "summary_lines",
]
