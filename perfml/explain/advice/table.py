"""The layers of a table as advice reads them: their usual launches, and what was not measured."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from perfml.account.device_time import OFTEN
from perfml.chips import of_rows
from perfml.datasets.loading import DEVICE_FACTS
from perfml.errors import PerfmlError
from perfml.explain.advice.findings import Layer
from perfml.explain.advice.symptoms import COMPUTE_LEVEL, MEMORY_LEVEL, load_symptoms
from perfml.explain.launches import LABEL, Launch, kernel_label, with_limits, with_waves
from perfml.explain.roofs.peaks import Peaks, peaks_of
from perfml.explain.speed_of_light import fact_key
from perfml.explain.tree.causes import TERMS
from perfml.ingest.merge.groups import launch_shape
from perfml.kernel_names import kernel_traits
from perfml.metrics import load_catalogue
from perfml.readers.ncu.findings import LONGEST
from perfml.tables import PRODUCT_COLUMNS, metric_columns
from perfml.util.json_values import Document, is_missing

CONDITIONS = ("workload", "backend", "precision", "batch", "device", "compute_capability")
"""What repeats of a layer have in common; rows that share all of it are pooled."""


def condition_keys(frame: pd.DataFrame) -> list[str]:
    """Return the columns that tell layers and conditions apart."""
    return [*(name for name in CONDITIONS if name in frame.columns), "layer"]


def representative_launches(kernels: pd.DataFrame) -> pd.DataFrame:
    """Return the usual launches of every layer: means of times, medians of metrics."""
    frame = kernels.copy()
    keys = condition_keys(frame)
    repeat = [*keys, *(name for name in ("run_id", "iteration") if name in frame.columns)]
    frame = frame.sort_values("kernel_index", kind="stable")
    frame["place"] = frame.groupby(repeat, dropna=False, sort=False).cumcount()
    frame["group"] = frame.groupby(keys, dropna=False, sort=False).ngroup()
    repeats = (
        frame.drop_duplicates(["group", *repeat[len(keys) :]]).groupby("group")["place"].size()
    )
    medians = dict.fromkeys(metric_columns(frame), "median")
    sizes = [name for name in ("phase", "time_source", *PRODUCT_COLUMNS) if name in frame.columns]
    firsts = dict.fromkeys([*keys, "grid", "block", *sizes], "first")
    groups = frame.groupby(["group", "place", "kernel"], sort=True)
    plan: dict[Any, Any] = {**firsts, "time_us": "mean", **medians}
    usual = groups.agg(plan).copy().assign(count=groups.size()).reset_index().copy()
    # what fewer than half of the repeats launch is not the layer's usual work
    kept = usual["count"] * 2 > usual["group"].map(repeats)
    usual = usual[kept].sort_values(["group", "place"], kind="stable").reset_index(drop=True)
    total = usual.groupby("group")["time_us"].transform("sum")
    labels = {name: kernel_label(str(name), LABEL) for name in usual["kernel"].unique()}
    often = frame.groupby("group")[OFTEN].first() if OFTEN in frame.columns else None
    added = {
        # of a row that is one launch of a kernel the layer are all of them
        "layer_us": total if often is None else total * usual["group"].map(often),
        "share": usual["time_us"] / total,
        "label": usual["kernel"].map(labels),
    }
    return pd.concat([usual, pd.DataFrame(added)], axis=1)


def merged_rows(layers: pd.DataFrame) -> pd.DataFrame:
    """Return one row a layer, as if it were one launch."""
    frame = layers.copy()
    keys = condition_keys(frame)
    frame["group"] = frame.groupby(keys, dropna=False, sort=False).ngroup()
    numbers = [name for name in ("kernels", "time_us") if name in frame.columns]
    plan: dict[Any, Any] = {
        **dict.fromkeys(keys, "first"),
        **dict.fromkeys([*numbers, *metric_columns(frame)], "mean"),
    }
    usual = frame.groupby("group", sort=True).agg(plan).reset_index()
    usual["layer_us"] = usual["time_us"]
    usual["share"] = 1.0
    usual["label"] = ""
    return usual


Place = tuple[str, ...]
"""Layer, backend, precision and batch, as text."""

_NEAR, _NEAR_US = 0.10, 0.5
"""Times are about as long within 10 %, or half a microsecond: launches of 2 us scatter by that."""

_SAME_WORK = 0.02  # instructions of one work differ by what branches on data do

_Usual = tuple[Place, float, float]
"""A layer's place, what it usually takes, and the instructions that it executes."""


def place_of(row: Mapping[Any, Any]) -> Place:
    """Return the layer, backend, precision and batch of a row, as text."""
    parts = (row.get(name) for name in ("layer", "backend", "precision", "batch"))
    return tuple("" if is_missing(part) else str(part) for part in parts)


def _alike(one: _Usual, other: _Usual) -> bool:
    (_, time, done), (_, other_time, other_done) = one, other
    near = abs(time - other_time) <= max(_NEAR * other_time, _NEAR_US)
    # instructions that nobody counted tell nothing
    return near and not abs(done - other_done) > _SAME_WORK * other_done


def alike_layers(rows: pd.DataFrame) -> dict[Place, Hashable]:
    """Return the set of layers that a layer is in whose findings are one, by its place.

    A stack of equal blocks is one thing to do, not one a block: layers of one condition are equal
    if they launch the same kernels with the same grids and blocks in the same order, execute as
    many instructions as far as these were counted, and take about as long. The last two tell a
    product or a copy of another size, which may have the same kernel and grid. Without ranges a
    layer is a kernel in one shape: then all shapes of a kernel are one set.

    `rows` are usual launches (`representative_launches`). Layers that no other is like are left
    out, and places that two workloads or devices have.
    """
    if "grid" not in rows.columns:
        return {}
    keys = [name for name in condition_keys(rows) if name != "layer"]
    sizes = [name for name in PRODUCT_COLUMNS if name in rows.columns]
    launched = rows[["kernel", "grid", "block", *sizes]].astype("string").fillna("")
    text = launched.agg("\n".join, axis=1).groupby(rows["group"], sort=False).agg("\n\n".join)
    firsts = rows.drop_duplicates("group").set_index("group").loc[text.index]
    single = rows.groupby("group").size().eq(1).reindex(text.index)
    work = _instructions(rows).reindex(text.index)
    alike: dict[tuple[str, ...], list[list[_Usual]]] = {}
    places: list[Place] = []
    for row, same, done, alone in zip(firsts.to_dict("records"), text, work, single, strict=True):
        usual = (place_of(row), float(row["layer_us"]), float(done))
        places.append(usual[0])
        condition = tuple(str(row[name]) for name in keys)
        label = str(row["label"])
        if alone and usual[0][0].startswith(label):
            sets = alike.setdefault((label, "in any shape", *condition), [[]])
            sets[0].append(usual)
            continue
        sets = alike.setdefault((same, *condition), [])
        known_set = next((each for each in sets if _alike(usual, each[0])), None)
        if known_set is None:
            sets.append([usual])
        else:
            known_set.append(usual)
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


NOT_COLLECTED = "not collected"
_CONVOLVES = ("convolution", "layout")
"""What kernels do where a layout of images matters (`perfml.kernel_names`)."""


def with_totals(rows: pd.DataFrame, sources: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """Return usual launches with Nsight Compute's totals of compute and memory as counters."""
    facts = {fact_key(each): each for one in sources for each in one.get("speed_of_light", ())}
    if not facts or "grid" not in rows.columns:
        return rows
    shapes = zip(*(rows[name].astype(str) for name in ("kernel", "grid", "block")), strict=True)
    mine = [
        facts.get((name[:LONGEST], launch_shape(grid, block)), {}) for name, grid, block in shapes
    ]
    totals = {
        COMPUTE_LEVEL: [float(each.get("compute", math.nan)) for each in mine],
        MEMORY_LEVEL: [float(each.get("memory", math.nan)) for each in mine],
    }
    return rows.assign(**totals)


def layers_of(rows: pd.DataFrame, peaks: Peaks | None) -> list[Layer]:
    """Return the layers of usual launches, or of merged rows; peaks of each device by default."""
    told = rows.drop(columns=metric_columns(rows)).to_dict("records")
    launches = _launches(rows)
    found: dict[Any, list[int]] = {}
    for at, row in enumerate(told):
        found.setdefault(row["group"], []).append(at)
    convolving = {name for name in rows.get("kernel", ()) if _convolves(str(name))}
    facts = rows.attrs.get(DEVICE_FACTS, {})
    known: dict[str, Mapping[str, float]] = {}
    layers = []
    for places in found.values():
        first = {str(name): value for name, value in told[places[0]].items()}
        sizes = {name: float(first[name]) for name in PRODUCT_COLUMNS if pd.notna(first.get(name))}
        sizes = sizes if len(sizes) == len(PRODUCT_COLUMNS) else {}
        peak = math.nan
        if sizes:
            device, precision = str(first.get("device")), str(first.get("precision"))
            if peaks is None and device not in known:
                known[device] = _peaks(device, facts)
            values = known[device] if peaks is None else peaks.values
            peak = values.get(precision, math.nan)
        own = tuple(launches[at] for at in places)
        labels = tuple(str(told[at]["label"]) for at in places)
        convolves = any(one.kernel in convolving for one in own)
        layers.append(Layer(first, own, labels, convolves, sizes, peak))
    return layers


def _convolves(kernel: str) -> bool:
    return kernel_traits(kernel).does in _CONVOLVES


def _launches(rows: pd.DataFrame) -> list[Launch]:
    """Return the rows with their counters; taking one out of a table costs more than using it."""
    limited = with_waves(with_limits(rows)) if "block" in rows.columns else rows
    names = metric_columns(limited)
    more = ("kernels", "ncu_time_us", COMPUTE_LEVEL, MEMORY_LEVEL)
    names += [name for name in more if name in limited.columns]
    values = limited[names].to_numpy(dtype=float, na_value=np.nan).tolist()
    texts = [
        rows[name].astype("string").fillna("").tolist()
        if name in rows.columns
        else [""] * len(rows)
        for name in ("kernel", "grid")
    ]
    times = rows["time_us"].astype(float).tolist()
    columns = (*texts, times, values, of_rows(rows))
    return [
        Launch(kernel, time, dict(zip(names, row, strict=True)), grid, chip)
        for kernel, grid, time, row, chip in zip(*columns, strict=True)
    ]


def _peaks(device: str, facts: Mapping[str, Mapping[str, Any]]) -> Mapping[str, float]:
    try:
        return peaks_of([device], None, facts).values
    except PerfmlError:
        return {}


NotChecked = Document(
    "NotChecked",
    {
        "backend": str | None,
        "precision": str | None,
        "batch": int | None,
        "rule": str,
        "missing": str,
        "why": (str, "``not collected``, ``undefined: ...`` or ``not given``"),
    },
    words="A cause that could not be checked, and why.",
)


def not_checked_by(rows: pd.DataFrame, *, merged: bool) -> pd.DataFrame:
    """Return what could not be checked, and the metrics that would be needed, by condition."""
    shown = [name for name in ("backend", "precision", "batch") if name in rows.columns]
    found: list[dict[str, Any]] = []
    keys = [name for name in condition_keys(rows) if name != "layer"]
    symptoms, of_layers = load_symptoms()
    for _, part in rows.groupby(keys or "share", dropna=False, sort=False):
        same = {name: part[name].iloc[0] for name in shown}
        needs = {"missing": "launches (a Kernels table)", "why": "not given"}
        if merged:
            found += [{**same, "rule": name, **needs} for name in of_layers]
        for cause in (symptom.causes[0] for symptom in symptoms):
            absent = [name for name in TERMS[cause].evidence if not _is_present(part, name)]
            others = TERMS[cause].or_evidence
            if absent and not (others and all(_is_present(part, name) for name in others)):
                lacking = {"missing": ", ".join(absent), "why": _why_missing(part, absent)}
                found.append({**same, "rule": cause, **lacking})
        bare = part.groupby("layer", sort=False)[metric_columns(part)].count().sum(axis=1) == 0
        if bare.any():
            layers = ", ".join(map(str, bare[bare].index))
            lacking = {"missing": f"counters of {layers}", "why": NOT_COLLECTED}
            found.append({**same, "rule": "all of a launch", **lacking})
    return pd.DataFrame(found, columns=[*shown, "rule", "missing", "why"])


def _is_present(frame: pd.DataFrame, name: str) -> bool:
    """Return whether a column holds a number."""
    return name in frame.columns and bool(frame[name].notna().any())


def _why_missing(frame: pd.DataFrame, names: Sequence[str]) -> str:
    """Return why metrics have no value in any row: the words that follow their names."""
    catalogue = load_catalogue()
    undefined = [
        name
        for name in names
        if name in frame.columns
        and name in catalogue
        and (catalogue[name].zero_undefined or catalogue[name].guard is not None)
    ]
    if len(undefined) == len(names):
        return "undefined: no launch does what it measures"
    return NOT_COLLECTED
