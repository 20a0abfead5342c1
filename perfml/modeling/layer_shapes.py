"""Prepare a Layers table: add what is known of a layer before it runs, average what repeats."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfml.errors import PerfmlError, TableError
from perfml.modeling.features import (
    CONDITION_COLUMNS,
    CONFIGURATION_COLUMNS,
    SHAPE_AMOUNTS,
    group_codes,
)
from perfml.tables import metric_columns
from perfml.util.typing import Ints

AMOUNTS = SHAPE_AMOUNTS
"""What a layer computes, reads and writes, for the whole batch."""

_WINDOW = ("size", "stride", "groups", "filters")

FACTS = ("kind", "input", "output", "parameters", *AMOUNTS, *_WINDOW)
"""What a run of a PyTorch model says of each layer: its class or first operator, shapes,
parameters, amounts of work, and the window of a convolution or pooling. Shapes are text as
``8x64x56x56``, sizes as ``3x3``."""

_TEXTS = ("kind", "input", "output", "size", "stride")

_DEFAULTS = {"attention": "default", "compile": "model"}
"""Settings that are no variant of a run."""

_KEYS = ("run_id", "workload", "precision", "batch", "layer")


def with_shapes(
    layers: pd.DataFrame, shapes: pd.DataFrame | Iterable[Mapping[str, Any]]
) -> pd.DataFrame:
    """Add `AMOUNTS`, and ``arithmetic_intensity`` (operations a byte moved), to a Layers table.

    `shapes` has one row a layer (named ``layer`` or ``name``) with `AMOUNTS`; where amounts differ
    by run, workload, precision or batch, with those columns too, as `shapes_of_runs` gives them. A
    layer without a shape has NaN. Raises `TableError` if a column is missing, a layer has two rows
    or an amount is negative; `PerfmlError` if no layer has a shape.
    """
    table = pd.DataFrame(shapes if isinstance(shapes, pd.DataFrame) else list(shapes))
    if "layer" not in table.columns and "name" in table.columns:
        table = table.rename(columns={"name": "layer"})
    missing = [name for name in ("layer", *AMOUNTS) if name not in table.columns]
    if missing:
        msg = f"the shapes lack {', '.join(missing)}"
        raise TableError(msg, cure="A run's shapes are in its run.json, under layers.")
    keys = [name for name in _KEYS if name in table.columns and name in layers.columns]
    table = table[[*keys, *AMOUNTS]].copy()
    for name in AMOUNTS:
        table[name] = pd.to_numeric(table[name], errors="coerce").astype(float)
    if (table[list(AMOUNTS)] < 0).any(axis=None):
        msg = "an amount of work is negative"
        raise TableError(msg, cure="Correct the shapes.")
    key = _joined(table, keys)
    if key.duplicated().any():
        msg = f"two shapes for one layer: {key[key.duplicated()].iloc[0]}"
        raise TableError(msg, cure="Say by batch or run_id which shape is meant.")
    table.index = pd.Index(key)
    found = table.reindex(_joined(layers, keys).to_numpy())
    if found["flops"].isna().all():
        msg = "no layer of the table has a shape"
        raise PerfmlError(
            msg,
            found=f"layers such as {layers['layer'].iloc[0]}, shapes such as {key.iloc[0]}",
            cure="Use the shapes of the same workload, batch and run.",
        )
    joined = layers.copy()
    for name in AMOUNTS:
        joined[name] = found[name].to_numpy()
    moved = joined["weight_bytes"] + joined["input_bytes"] + joined["output_bytes"]
    joined["arithmetic_intensity"] = joined["flops"] / moved.where(moved > 0)
    return joined


def shapes_of_runs(provenance: Mapping[str, Any]) -> pd.DataFrame | None:
    """Return the shapes that ingest kept, or None if there are none.

    They come from the runs' ``run.json``, or from ``layers.json`` beside loose profiles.
    """
    rows = [row for row in described_layers(provenance) if all(name in row for name in AMOUNTS)]
    of_runs = [row for row in rows if "run_id" in row]
    return pd.DataFrame(of_runs or rows) if rows else None


def described_layers(provenance: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return what the manifests in a provenance document say of layers, a row a layer.

    ``runs`` in a table's provenance is a list of manifests with ``layers``; layers of loose
    profiles stand in the document itself. Anything else there is ignored. A row has its ``layer``
    (a manifest may call it ``name``) and, inside a run, its ``run_id``.
    """
    runs = provenance.get("runs")
    sources = [(run, {"run_id": run.get("run_id")}) for run in _mappings(runs)]
    rows = []
    for source, run_id in (*sources, (provenance, {})):
        for row in _mappings(source.get("layers")):
            name = row.get("layer", row.get("name"))
            if isinstance(name, str) and name:
                rows.append({**run_id, **row, "layer": name})
    return rows


def _mappings(value: object) -> list[Mapping[str, Any]]:
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []


def _joined(table: pd.DataFrame, keys: list[str]) -> pd.Series[str]:
    """Return the keys of each row as one text, so that 1, 1.0 and a nullable 1 are the same."""
    parts = []
    for name in keys:
        column = table[name]
        if pd.api.types.is_numeric_dtype(column):
            column = column.astype("Float64").astype("Int64")
        parts.append(column.astype("string").fillna("").to_numpy(dtype=object))
    text = np.array(["/".join(map(str, row)) for row in zip(*parts, strict=True)], dtype=object)
    return pd.Series(text, dtype=object)


def with_layer_facts(layers: pd.DataFrame, provenance: Mapping[str, Any]) -> pd.DataFrame:
    """Add what the runs say of each layer, and the settings that tell runs apart.

    These are `FACTS`, ``arithmetic_intensity`` and ``variant`` (such as ``attention=flash``; empty
    where all is as usual). The manifests of the runs stand in the provenance; a layer that no run
    describes has missing ones. Columns that the table has already stay as they are.
    """
    told = {(row.get("run_id"), row["layer"]): row for row in described_layers(provenance)}
    runs = layers["run_id"].astype(object).where(layers["run_id"].notna(), None)
    keys = list(zip(runs, layers["layer"].astype(object), strict=True))
    known = {key: told.get(key, told.get((None, key[1]), {})) for key in set(keys)}
    rows = [known[key] for key in keys]
    added = {}
    for name in FACTS:
        if name not in layers.columns:
            # YOLOv4-Tiny's own description has the layer's type in place of its class
            key = "type" if name == "kind" else name
            values = [_fact(row.get(name, row.get(key)), name in _TEXTS) for row in rows]
            added[name] = pd.Series(values, dtype="string" if name in _TEXTS else "float64")
    joined = pd.concat([layers.reset_index(drop=True), pd.DataFrame(added)], axis=1)
    joined.index = layers.index
    moved = joined["weight_bytes"] + joined["input_bytes"] + joined["output_bytes"]
    joined["arithmetic_intensity"] = joined["flops"] / moved.where(moved > 0)
    if "variant" not in layers.columns:
        variants = {run.get("run_id"): _variant(run) for run in _mappings(provenance.get("runs"))}
        joined["variant"] = pd.array([variants.get(run, "") for run in runs], dtype="string")
    return joined


def _fact(value: object, is_text: bool) -> str | float | None:
    """Return a fact in the type of its column; what is malformed is missing."""
    if is_text:
        if isinstance(value, (list, tuple)):
            return "x".join(map(str, value))
        return None if value is None else str(value)
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if number else np.nan  # type: ignore[arg-type]


def _variant(run: Mapping[str, Any]) -> str:
    settings = run.get("settings")
    if not isinstance(settings, Mapping):
        return ""
    return ", ".join(
        f"{name}={settings[name]}"
        for name, usual in _DEFAULTS.items()
        if settings.get(name) not in (None, usual)
    )


def average_repeats(layers: pd.DataFrame) -> pd.DataFrame:
    """Return one row a condition: the mean of its repeats.

    Repeats of a condition differ by the noise of the clock and by metrics that were weighted with
    that same clock. Their means keep what distinguishes conditions, and cross-validation inside a
    model (such as the choice of a ridge penalty) no longer tests on copies. Undefined cells are
    left out of means; text and ``iteration`` are the first repeat's.
    """
    return _means(layers, group_codes(layers, CONDITION_COLUMNS))


def average_copies(layers: pd.DataFrame) -> pd.DataFrame:
    """Return one row for all layers of a run that compute the same: a stack of equal blocks is one.

    So a network of 200 equal blocks weighs no more than its distinct layers do. Layers are copies
    of each other if their configuration and all `FACTS` agree; one without facts has no copies. The
    mean has the first copy's name and the number of ``copies``. `layers` are as `average_repeats`
    returns them, with `FACTS`.
    """
    codes = group_codes(layers, (*CONFIGURATION_COLUMNS, *FACTS))
    unknown = layers["kind"].isna().to_numpy()
    codes[unknown] = codes.max() + 1 + np.arange(int(unknown.sum()))
    codes = np.asarray(pd.factorize(codes)[0], dtype=np.int64)
    averaged = _means(layers, codes)
    averaged["copies"] = np.bincount(codes)
    return averaged


def _means(layers: pd.DataFrame, codes: Ints) -> pd.DataFrame:
    """Return one row a code: means of numbers, the first of everything else."""
    first = np.unique(codes, return_index=True)[1]
    means = layers.iloc[first].reset_index(drop=True)
    kept = {*CONDITION_COLUMNS, "run_id", "iteration"}
    numeric = [
        name
        for name in layers.columns
        if name not in kept and pd.api.types.is_numeric_dtype(layers[name])
    ]
    averages = layers[numeric].astype("Float64").groupby(codes).mean().reset_index(drop=True)
    averages = averages.astype("float64")
    # put together at once: a column at a time leaves a frame in a hundred pieces
    whole = pd.concat([means.drop(columns=numeric), averages], axis=1)
    return whole[list(layers.columns)].copy()


ENOUGH_LAYERS = 5
"""Distinct layers that a ranking needs: fewer can be resampled in too few ways to say anything.

Of 4 layers drawn with replacement, one draw in four leaves two or fewer to learn from."""

SAME_METRIC = 0.05
"""Copies differ by at most this in each metric, as a share of the metric's range in the table."""

SAME_TIME = 0.05
"""Copies differ by at most this in time, as a share of it."""


def distinct_layers(layers: pd.DataFrame) -> Ints:
    """Number the distinct layers of a table from 0, in order of appearance; a number a row.

    `layers` has one row a condition, as `average_repeats` returns it. Two layers are copies of each
    other, and get one number, if

    - they compute the same: the same operations and the same bytes of weights, input and output
      at the same batch and precision (where the table says so, see `with_shapes`); or
    - nothing measured tells them apart: in every configuration (workload, device, backend,
      precision, batch) that has both, they launch the same kernels, every metric agrees within
      `SAME_METRIC` of its range and the time within `SAME_TIME`.

    What is a copy of a copy is a copy.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    layer = group_codes(layers, ("workload", "layer"))
    count = int(layer.max()) + 1
    pairs = np.vstack([_same_shape(layers, layer), _same_measurements(layers, layer)])
    joined = coo_array((np.ones(len(pairs)), (pairs[:, 0], pairs[:, 1])), shape=(count, count))
    piece = connected_components(joined, directed=False)[1][layer]
    return np.asarray(pd.factorize(piece)[0], dtype=np.int64)


def _same_shape(layers: pd.DataFrame, layer: Ints) -> Ints:
    """Return pairs of layers with the same amounts of work, shape (pairs, 2)."""
    amounts = [name for name in SHAPE_AMOUNTS if name in layers.columns]
    if len(amounts) < len(SHAPE_AMOUNTS):
        return np.empty((0, 2), dtype=np.int64)
    known = layers[amounts].notna().all(axis=1).to_numpy()
    shape = group_codes(layers, ("batch", "precision", *amounts))
    # every layer is paired with the first layer of its shape
    first = pd.Series(layer[known]).groupby(shape[known]).transform("first").to_numpy()
    return np.column_stack([first, layer[known]]).astype(np.int64)


def _same_measurements(layers: pd.DataFrame, layer: Ints) -> Ints:
    """Return pairs of layers that no measurement tells apart, shape (pairs, 2)."""
    metrics = metric_columns(layers)
    if not metrics:
        # the time alone is too little to call two layers the same
        return np.empty((0, 2), dtype=np.int64)
    values = layers[metrics].to_numpy(dtype=float, na_value=np.nan)
    configuration = group_codes(layers, CONFIGURATION_COLUMNS)
    kernels = group_codes(layers, ("kernel_names",))
    log_time = np.log(layers["time_us"].to_numpy(dtype=float))
    limits = SAME_METRIC * _ranges(values)
    agreeing: Counter[tuple[int, int]] = Counter()
    for code in range(int(configuration.max()) + 1):
        rows = np.flatnonzero(configuration == code)
        rows = rows[np.argsort(log_time[rows], kind="stable")]
        # only rows that follow within the allowed difference of time need to be looked at
        ends = np.searchsorted(log_time[rows], log_time[rows] + np.log1p(SAME_TIME), side="right")
        for start, end in enumerate(ends):
            one, others = rows[start], rows[start + 1 : end]
            alike = others[
                (kernels[others] == kernels[one]) & _close(values[others], values[one], limits)
            ]
            agreeing.update(
                (min(a, b), max(a, b))
                for a, b in ((int(layer[one]), int(layer[other])) for other in alike)
            )
    has = np.zeros((int(layer.max()) + 1, int(configuration.max()) + 1), dtype=bool)
    has[layer, configuration] = True
    pairs = [
        pair for pair, times in agreeing.items() if times == (has[pair[0]] & has[pair[1]]).sum()
    ]
    return np.array(pairs, dtype=np.int64).reshape(-1, 2)


def _ranges(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the range of each column; 0 for one without a defined cell."""
    lowest = np.where(np.isnan(values), np.inf, values).min(axis=0)
    highest = np.where(np.isnan(values), -np.inf, values).max(axis=0)
    return np.where(np.isfinite(lowest), highest - lowest, 0.0)


def _close(
    others: npt.NDArray[np.float64], one: npt.NDArray[np.float64], limits: npt.NDArray[np.float64]
) -> npt.NDArray[np.bool_]:
    """Return which rows agree with one row in every column; undefined agrees with undefined."""
    undefined = np.isnan(others) & np.isnan(one)
    with np.errstate(invalid="ignore"):
        near = np.abs(others - one) <= limits
    return np.asarray((near | undefined).all(axis=1))
