"""What every page shares: its frame, its policy, and the section on where the data came from."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping
from importlib import resources
from typing import Any

from perfml._version import __version__
from perfml.report._grids import Grid, record_grid, source_grid
from perfml.report._labels import clean, count

_SPOKEN = ("sources", "runs", "warnings", "unattributed")
"""Parts of the provenance that have a table of their own."""


def render(template: str, **context: Any) -> str:
    """Return a page made of a template of this package.

    Every text is escaped; the Content-Security-Policy allows no connection, and no script but
    the page's own.
    """
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    environment = Environment(
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        loader=FunctionLoader(_part),
    )
    script = _part("script.js")
    page = environment.get_template(template).render(
        **context,
        version=__version__,
        script=script,
        style=_part("style.css"),
        script_hash=_csp_hash(script),
    )
    # a lone surrogate that no cleaning saw must not keep the file from being written
    return page.encode("utf-8", "replace").decode("utf-8")


def _part(name: str) -> str:
    return (resources.files("perfml.report") / name).read_text(encoding="utf-8")


def _csp_hash(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def provenance_section(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return where a table came from: facts, files, runs, and the rest as text."""
    scalars = [
        (clean(key, 80).replace("_", " "), clean(value, 2000))
        for key, value in document.items()
        if not isinstance(value, (list, tuple, Mapping)) and value is not None
    ]
    rest = {
        str(key): value
        for key, value in document.items()
        if isinstance(value, (list, tuple, Mapping)) and key not in _SPOKEN and key != "layers"
    }
    grids: list[Grid | None] = [
        source_grid(_records(document.get("sources"))),
        record_grid("Runs", _records(document.get("runs"))),
        record_grid("Launches outside every layer", _records(document.get("unattributed"))),
    ]
    return {
        "facts": scalars,
        "grids": [grid for grid in grids if grid is not None],
        "rest": clean(json.dumps(rest, indent=2, default=str), 20_000) if rest else "",
        "count": count(len(_records(document.get("sources"))), "file"),
    }


def _records(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else []
