"""One self-contained HTML page: answer first, then evidence, then provenance."""

from __future__ import annotations

import base64
import datetime
import hashlib
import json
from collections.abc import Mapping, Sequence
from importlib import resources
from typing import Any

import pandas as pd

from perfml._version import __version__
from perfml.report._canvas import PALETTE
from perfml.report._grids import (
    Grid,
    record_grid,
    source_grid,
)
from perfml.report._kernels import chooser
from perfml.report._labels import (
    clean,
    count,
    listed,
)
from perfml.report._sections import (
    clusters_picture,
    evaluation_section,
    filters_section,
    ranking_section,
    stalls_section,
    times_section,
    told_warnings,
)
from perfml.report._shapes import layer_shapes
from perfml.report._times import Condition, conditions
from perfml.report.summary import SURE_RULES, sentences

_SPOKEN = ("sources", "runs", "warnings", "unattributed")
"""Parts of the provenance that have a table of their own."""


def build_report(
    layers: pd.DataFrame,
    *,
    kernels: pd.DataFrame | None = None,
    evaluations: Sequence[Any] = (),
    rankings: Sequence[Any] = (),
    provenance: Mapping[str, Any] | None = None,
    title: str | None = None,
) -> str:
    """Return a report as one HTML page that needs nothing else: no network, no other file.

    Parameters
    ----------
    layers
        A Layers table.
    kernels
        The Kernels table it was merged from; without it the page has no kernels of a layer.
    evaluations, rankings
        Results of `perfml.modeling.evaluate` and `perfml.modeling.rank`.
    provenance
        The table's provenance document. Run manifests in it (``runs``, each with ``layers``)
        give the shapes of the layers.
    title
        Heading; made from workload and device without.

    Returns
    -------
    str
        The page. Every text from outside is escaped, and its Content-Security-Policy allows no
        connection and no script but its own.

    Raises
    ------
    TableError
        If there are no layers, or the table lacks what times need.
    """
    from jinja2 import Environment, StrictUndefined

    shown = conditions(layers)
    document = dict(provenance or {})
    series = {name: place % len(PALETTE) for place, name in enumerate(_backends(shown))}
    palette = {name: PALETTE[place] for name, place in series.items()}
    shapes = layer_shapes(document)
    script, style = _part("script.js"), _part("style.css")
    data = chooser(kernels, shown)
    if data is not None:
        data["series"] = [
            [series[name] for name in each["backends"]] for each in data["conditions"]
        ]
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    page = environment.from_string(_part("template.html.j2")).render(
        title=clean(title, 200) if title else default_title(layers),
        facts=_facts(layers, shown, document),
        answers=sentences(shown, evaluations=evaluations, rankings=rankings),
        sure_rules=SURE_RULES,
        times=[
            times_section(each, place, shapes, series, palette) for place, each in enumerate(shown)
        ],
        filters=filters_section(shown, shapes),
        described=bool(shapes),
        kernels=data,
        rankings=[ranking_section(each, place) for place, each in enumerate(rankings)],
        evaluations=[
            evaluation_section(each, place, palette) for place, each in enumerate(evaluations)
        ],
        stalls=stalls_section(shown, series),
        clusters=clusters_picture(layers),
        warnings=told_warnings(document.get("warnings")),
        provenance=_provenance(document),
        version=__version__,
        script=script,
        style=style,
        script_hash=_csp_hash(script),
    )
    # a lone surrogate that no cleaning saw must not keep the file from being written
    return page.encode("utf-8", "replace").decode("utf-8")


def _part(name: str) -> str:
    return (resources.files("perfml.report") / name).read_text(encoding="utf-8")


def _csp_hash(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _backends(shown: Sequence[Condition]) -> list[str]:
    return list(dict.fromkeys(name for each in shown for name in each.backends))


def _values(layers: pd.DataFrame, column: str) -> list[str]:
    if column not in layers.columns:
        return []
    found = [clean(value, 80) for value in layers[column].dropna().unique()]
    return [value for value in found if value != "unknown"]


def default_title(layers: pd.DataFrame) -> str:
    """Return a heading made of what was measured, and on what."""
    workload = listed(_values(layers, "workload"), 3) or "Layer times"
    device = listed(_values(layers, "device"), 2)
    return f"{workload} on {device}" if device else workload


def _facts(
    layers: pd.DataFrame, shown: Sequence[Condition], document: Mapping[str, Any]
) -> list[tuple[str, str]]:
    found = [
        ("device", listed(_values(layers, "device"), 3)),
        ("backends", listed(_backends(shown), 8)),
        ("conditions", _conditions(shown)),
        ("layers", f"{max(len(each.layers) for each in shown):,}"),
        ("repeats", _repeats(shown)),
        ("ingested", _moment(document.get("created"))),
    ]
    return [(name, value) for name, value in found if value]


def _conditions(shown: Sequence[Condition]) -> str:
    more = f"; {len(shown) - 4} more" if len(shown) > 4 else ""
    return "; ".join(each.label for each in shown[:4]) + more


def _moment(stamp: Any) -> str:
    try:
        moment = datetime.datetime.fromisoformat(str(stamp)).astimezone(datetime.UTC)
    except (ValueError, OverflowError):
        return clean(stamp, 40) if stamp else ""
    return f"{moment:%Y-%m-%d %H:%M} UTC"


def _repeats(shown: Sequence[Condition]) -> str:
    amounts = [int(value) for each in shown for value in each.times["repeats"]]
    low, high = min(amounts), max(amounts)
    return f"{low}" if low == high else f"{low} to {high}"


def _provenance(document: Mapping[str, Any]) -> dict[str, Any]:
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
