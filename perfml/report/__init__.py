"""Reports: one self-contained HTML page, Markdown for pull requests, and the figures in them."""

from perfml.report.html import build_report
from perfml.report.markdown import build_markdown
from perfml.report.summary import summary_lines

__all__ = ["build_markdown", "build_report", "summary_lines"]
