"""Layers that launch the same: a stack of equal blocks is one thing to do, not one a block.

Layers of one condition are equal if they launch the same kernels with the same grids and blocks in
the same order, execute as many instructions as far as these were counted, and take about as long.
The last two tell a product or a copy of another size, which may have the same kernel and grid.

Here to change: what makes layers equal, in `_alike`; what their findings say together, in
`_together`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from perfml.explain.advice.persons import place_of
from perfml.explain.advice.table import condition_keys
from perfml.explain.confidence import IN_WORDS
from perfml.tables import PRODUCT_COLUMNS

Place = tuple[str, ...]
"""Layer, precision, batch and backend, as `perfml.explain.advice.persons.place_of` has them."""

_NEAR, _NEAR_US = 0.10, 0.5
"""Times are about as long within 10 %, or half a microsecond: launches of 2 us scatter by that."""

_SAME_WORK = 0.02  # instructions of one work differ by what branches on data do

_LEAST_SURE = tuple(IN_WORDS)


_Usual = tuple[Place, float, float]
"""A layer's place, what it usually takes, and the instructions that it executes."""


def _alike(one: _Usual, other: _Usual) -> bool:
    (_, time, done), (_, other_time, other_done) = one, other
    near = abs(time - other_time) <= max(_NEAR * other_time, _NEAR_US)
    # instructions that nobody counted tell nothing
    return near and not abs(done - other_done) > _SAME_WORK * other_done


def equal_layers(rows: pd.DataFrame) -> dict[Place, int]:
    """Return the number of the set of equal layers that a layer is in, by its place.

    `rows` are usual launches (`perfml.explain.advice.table.representative_launches`). Layers that
    no other equals are left out, and places that two workloads or devices have.
    """
    if "grid" not in rows.columns:
        return {}
    keys = [name for name in condition_keys(rows) if name != "layer"]
    sizes = [name for name in PRODUCT_COLUMNS if name in rows.columns]
    launched = rows[["kernel", "grid", "block", *sizes]].astype("string").fillna("")
    text = launched.agg("\n".join, axis=1).groupby(rows["group"], sort=False).agg("\n\n".join)
    firsts = rows.drop_duplicates("group").set_index("group").loc[text.index]
    work = _instructions(rows).reindex(text.index)
    alike: dict[tuple[str, ...], list[list[_Usual]]] = {}
    places: list[Place] = []
    for row, same, done in zip(firsts.to_dict("records"), text, work, strict=True):
        usual = (place_of(row), float(row["layer_us"]), float(done))
        places.append(usual[0])
        sets = alike.setdefault((same, *(str(row[name]) for name in keys)), [])
        mine = next((each for each in sets if _alike(usual, each[0])), None)
        if mine is None:
            sets.append([usual])
        else:
            mine.append(usual)
    twice = {place for place, times in Counter(places).items() if times > 1}
    several = [each for sets in alike.values() for each in sets if len(each) > 1]
    return {
        place: number
        for number, each in enumerate(several)
        for place, *_ in each
        if place not in twice
    }


def _instructions(rows: pd.DataFrame) -> pd.Series[float]:
    """Return the warp instructions of each layer; NaN where some launch's are not known."""
    if "inst_executed" not in rows.columns:
        return pd.Series(np.nan, index=rows["group"].unique())
    counted = rows["inst_executed"].astype(float).groupby(rows["group"])
    return counted.sum().where(counted.count() == counted.size())


def group_findings(table: pd.DataFrame, equal: Mapping[Place, int]) -> pd.DataFrame:
    """Return findings with those of equal layers as one, what saves most in all first."""
    # The column ``layers`` has their names. ``layer`` is the one of them that may save most, and
    # the evidence is its; ``time_us`` and ``saved_us`` are sums over all, the gains fractions of
    # the first, and ``confidence`` that of the least sure one.
    rows = [{str(name): value for name, value in row.items()} for row in table.to_dict("records")]
    sets = [equal.get(place_of(row), -1 - place) for place, row in enumerate(rows)]
    if len(set(sets)) == len(sets):
        return table.assign(layers=pd.Series([(row["layer"],) for row in rows], dtype=object))
    together: dict[Any, list[dict[str, Any]]] = {}
    seen: dict[Any, int] = {}
    for row, number in zip(rows, sets, strict=True):
        finding = (number, row["kernel"], row["mitigation"])
        nth = seen[(place_of(row), finding)] = seen.get((place_of(row), finding), -1) + 1
        together.setdefault((*finding, nth), []).append(row)
    # within a layer the order stays: causes stand before their symptoms
    found = [_together(same) for same in together.values()]
    layers = (key[0] if key[0] >= 0 else place_of(same[0]) for key, same in together.items())
    return pd.DataFrame(by_saving(found, layers), columns=[*table.columns, "layers"])


def by_saving(rows: Sequence[Mapping[str, Any]], layers: Iterable[Any]) -> list[Mapping[str, Any]]:
    """Return findings by the largest likely saving of their layer's; in a layer the order stays."""
    least: dict[Any, float] = {}
    order = []
    for at, (row, layer) in enumerate(zip(rows, layers, strict=True)):
        likely = float(row["gain"]) * float(row["time_us"])
        least[layer] = min(least.get(layer, likely), likely)
        order.append((-least[layer], at))
    return [rows[at] for _, at in sorted(order)]


def _together(same: list[dict[str, Any]]) -> dict[str, Any]:
    """Return one finding of equal layers."""
    most = max(same, key=lambda row: float(row["saved_us"]))
    one = {**most, "layers": tuple(dict.fromkeys([most["layer"], *(r["layer"] for r in same)]))}
    if len(same) > 1:
        times = np.array([row["time_us"] for row in same], dtype=float)
        one["time_us"] = float(times.sum())
        one["saved_us"] = float(sum(float(row["saved_us"]) for row in same))
        for name in ("gain", "gain_high"):
            gains = np.array([row[name] for row in same], dtype=float)
            one[name] = float(gains @ times / times.sum())
        least = max(same, key=lambda row: _LEAST_SURE.index(row["confidence"]))
        one |= {name: least[name] for name in ("confidence", "probability", "tells")}
    return one


def group_name(layers: Sequence[str]) -> str:
    """Return what several equal layers are called.

    Examples
    --------
    >>> group_name(["stem"]), group_name(["blocks.0.fc", "blocks.1.fc"])
    ('stem', 'blocks.0.fc and 1 equal')
    """
    return layers[0] if len(layers) == 1 else f"{layers[0]} and {len(layers) - 1} equal"


def listed_layers(layers: Sequence[str], most: int = 4) -> str:
    """Return names of layers, and how many more there are.

    Examples
    --------
    >>> listed_layers(["a", "b", "c"], 2)
    'a, b and 1 more'
    """
    names = list(dict.fromkeys(layers))
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")
