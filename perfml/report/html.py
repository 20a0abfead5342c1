"""One self-contained HTML page: answer first, then evidence, then provenance."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from perfml.report._canvas import PALETTE
from perfml.report._kernels import chooser
from perfml.report._labels import clean, listed
from perfml.report._machine import advice_section, roofline_section
from perfml.report._page import provenance_section, render
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
from perfml.report._trees import tree_section
from perfml.report._why import Pair, why_section
from perfml.report.summary import SURE_RULES, sentences

if TYPE_CHECKING:
    from perfml.explain.peaks import Peaks


def build_report(
    layers: pd.DataFrame,
    *,
    kernels: pd.DataFrame | None = None,
    evaluations: Sequence[Any] = (),
    rankings: Sequence[Any] = (),
    pairs: Sequence[Pair] = (),
    advice: Sequence[tuple[str, Any]] = (),
    peaks: Mapping[str, float] | Peaks | None = None,
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
        Results of `perfml.modeling.evaluate` and `perfml.modeling.rank`. Each evaluation adds a
        tree of three levels that can be read.
    pairs
        Why backends are slower than the fastest one, from `perfml.report.explain_pairs`.
    advice
        What could be done, from `perfml.report.advise_conditions`.
    peaks
        Of the device, for its roofline; what perfml knows of the device without. The section is
        left out where nothing is known.
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
    shown = conditions(layers)
    document = dict(provenance or {})
    series = {name: place % len(PALETTE) for place, name in enumerate(_backends(shown))}
    palette = {name: PALETTE[place] for name, place in series.items()}
    shapes = layer_shapes(document)
    data = chooser(kernels, shown)
    if data is not None:
        data["series"] = [
            [series[name] for name in each["backends"]] for each in data["conditions"]
        ]
    several = len(shown) > 1
    trees = [tree_section(layers, each, place, palette) for place, each in enumerate(evaluations)]
    return render(
        "report.html.j2",
        title=clean(title, 200) if title else default_title(layers),
        facts=_facts(layers, shown, document),
        answers=sentences(shown, evaluations=evaluations, rankings=rankings, pairs=pairs),
        sure_rules=SURE_RULES,
        times=[
            times_section(each, place, shapes, series, palette) for place, each in enumerate(shown)
        ],
        filters=filters_section(shown, shapes),
        described=bool(shapes),
        kernels=data,
        rankings=[ranking_section(each, place) for place, each in enumerate(rankings)],
        trees=[each for each in trees if each is not None],
        evaluations=[
            evaluation_section(each, place, palette) for place, each in enumerate(evaluations)
        ],
        why_pairs=[
            why_section(each, place, palette, several=several) for place, each in enumerate(pairs)
        ],
        advice=advice_section(advice),
        roofs=roofline_section(shown, palette, series, peaks),
        stalls=stalls_section(shown, series),
        clusters=clusters_picture(layers),
        warnings=told_warnings(document.get("warnings")),
        provenance=provenance_section(document),
    )


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
        ("ingested", moment(document.get("created"))),
    ]
    return [(name, value) for name, value in found if value]


def _conditions(shown: Sequence[Condition]) -> str:
    more = f"; {len(shown) - 4} more" if len(shown) > 4 else ""
    return "; ".join(each.label for each in shown[:4]) + more


def moment(stamp: Any) -> str:
    """Return a time stamp as a reader likes it, or as it is."""
    try:
        moment = datetime.datetime.fromisoformat(str(stamp)).astimezone(datetime.UTC)
    except (ValueError, OverflowError):
        return clean(stamp, 40) if stamp else ""
    return f"{moment:%Y-%m-%d %H:%M} UTC"


def _repeats(shown: Sequence[Condition]) -> str:
    amounts = [int(value) for each in shown for value in each.times["repeats"]]
    low, high = min(amounts), max(amounts)
    return f"{low}" if low == high else f"{low} to {high}"
