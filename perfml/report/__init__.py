"""Reports: documents of sentences, tables and pictures, as an HTML page, Markdown or text."""

from __future__ import annotations

from perfml.util.lazy import callable_package, lazily

_HOMES = {
    "build_report": "build",
    "build_comparison": "build",
    "explain_pairs": "pairs",
    "advise_conditions": "pairs",
    "Pair": "results",
    "Document": "document",
    "to_html": "render.html",
    "to_markdown": "render.markdown",
    "to_text": "render.text",
}

__all__ = sorted(_HOMES)

callable_package(__name__, "write", "report")

__getattr__, __dir__ = lazily(__name__, globals(), _HOMES)
