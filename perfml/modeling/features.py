"""From a Layers table to what a model learns from: features, target, and who belongs together."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfml.errors import PerfmlError, TableError, did_you_mean
from perfml.metrics import PUBLISHED, load_catalogue
from perfml.modeling.disguise import A_TIME, TIME_COLUMNS
from perfml.tables import BY_KERNEL, metric_columns
from perfml.util.typing import Floats, Ints

CONDITION_COLUMNS: tuple[str, ...] = (
    "workload",
    "device",
    "backend",
    "variant",
    "precision",
    "batch",
    "layer",
)
"""Rows that agree in these are repeats of one measurement; ``variant`` are further settings."""

CONFIGURATION_COLUMNS = CONDITION_COLUMNS[:-1]
"""A condition without its layer: what is known of a layer nobody has measured yet."""

LAUNCH_METRICS = (
    "threads",
    "registers_per_thread",
    "shared_memory_per_block",
    "theoretical_occupancy",
    "waves_per_sm",
)
"""Fixed by the launch, so known before the kernel runs."""

LAUNCH_LIMITS = tuple(
    f"resident_blocks_limit_{what}" for what in ("slots", "registers", "shared_memory", "warps")
)
"""Blocks that fit on a multiprocessor, by what runs out first: the limits of occupancy."""

SHAPE_COLUMNS = (
    "flops",
    "weight_bytes",
    "input_bytes",
    "output_bytes",
    "arithmetic_intensity",
    "kernels",
)
"""Facts of a layer that need no profiler; `with_shapes` in ``shapes.py`` adds them."""

SHAPE_AMOUNTS: tuple[str, ...] = SHAPE_COLUMNS[:4]
"""Layers that agree in these compute the same."""

BOUND = "bound_us"
"""Column with the least time, in microseconds, that the machine's peaks allow a row's work."""

FEATURE_SETS = ("default", "published", "collected", "before-run", "published+before-run")
"""``published``: the 19 of the study. ``collected``: every metric of the table that does not
contain the time. ``before-run``: shapes and launch facts. ``published+before-run``: both.

``default``: the published ones, and the facts of the launch that `perfml.explain` finds causes in
(`LAUNCH_METRICS`, `LAUNCH_LIMITS`), so that a model can name those causes too; or the collected
ones, where the table has less than half of the published."""

KNOWN_BACKENDS = ("trt", "tensorrt", "cublas", "cudnn")
"""Class order of the study (TensorRT 0, cuBLAS 1, cuDNN 2); other backends follow by name."""


@dataclass(frozen=True)
class Design:
    """The features of a Layers table, shape (rows, features), NaN where a metric is undefined.

    A feature that is left out is `dropped` for a reason.
    """

    values: Floats
    names: tuple[str, ...]
    dropped: dict[str, str]

    @property
    def has_missing(self) -> bool:
        """Whether any cell is undefined."""
        return bool(np.isnan(self.values).any())


def has_counters(layers: pd.DataFrame) -> bool:
    """Return whether a table has more than times and what is known before the kernel runs.

    A trace of times has no counters: there is nothing to rank, and nothing that a model may learn.
    """
    known = {*LAUNCH_METRICS, *LAUNCH_LIMITS, *TIME_COLUMNS}
    return any(layers[name].notna().any() for name in metric_columns(layers) if name not in known)


def build_design(layers: pd.DataFrame, features: str | Sequence[str] = "default") -> Design:
    """Return the features of a Layers table.

    `features` is one of `FEATURE_SETS`, or column names. Raises `PerfmlError` if the set has no
    such name, or no feature is left; `TableError` if a feature holds text or an infinite value.
    """
    wanted, dropped = _wanted(layers, features)
    names: list[str] = []
    columns: list[Floats] = []
    for name in wanted:
        if name not in layers.columns:
            dropped[name] = "not in the table"
            continue
        values = _numeric(layers, name)
        reason = _useless(values)
        if reason is None:
            names.append(name)
            columns.append(values)
        else:
            dropped[name] = reason
    if not names:
        msg = "no feature is left to learn from"
        found = "; ".join(f"{name}: {reason}" for name, reason in list(dropped.items())[:4])
        raise PerfmlError(
            msg,
            where=f"feature set {features if isinstance(features, str) else list(features)}",
            found=found or "an empty set",
            cure="Collect the metrics of the set, or choose other features.",
        )
    return Design(np.column_stack(columns), tuple(names), dropped)


def _wanted(
    layers: pd.DataFrame, features: str | Sequence[str]
) -> tuple[Sequence[str], dict[str, str]]:
    if not isinstance(features, str):
        for name in features:
            _check_known(layers, name)
        times = {name: A_TIME for name in features if name in TIME_COLUMNS}
        return [name for name in dict.fromkeys(features) if name not in times], times
    before_run = (*SHAPE_COLUMNS, *LAUNCH_METRICS)
    present = tuple(name for name in before_run if name in layers.columns)
    if features == "default":
        measured = sum(name in layers.columns for name in PUBLISHED)
        features = "published" if 2 * measured >= len(PUBLISHED) else "collected"
        if features == "published":
            facts = (*LAUNCH_METRICS, *LAUNCH_LIMITS)
            return (*PUBLISHED, *(name for name in facts if name in layers.columns)), {}
    if features == "published":
        return PUBLISHED, {}
    if features == "before-run":
        return present, {}
    if features == "published+before-run":
        return (*PUBLISHED, *present), {}
    if features == "collected":
        collected, timed = metric_columns(layers), timed_metrics()
        dropped = {name: timed[name] for name in collected if name in timed}
        return [name for name in collected if name not in timed], dropped
    msg = f"no feature set is called {features!r}"
    known = f"There are: {', '.join(FEATURE_SETS)}; or give column names."
    raise PerfmlError(msg, cure=did_you_mean(features, [*FEATURE_SETS, *layers.columns], known))


@functools.cache
def timed_metrics() -> dict[str, str]:
    """Return the metrics of the catalogue that contain the time that is predicted, and why."""
    catalogue = load_catalogue()
    rates = [name for name in catalogue.names if catalogue[name].kind == "rate"]
    cycles = [name for name in catalogue.names if catalogue[name].unit == "cycle"]
    return dict.fromkeys(rates, "a rate: it contains the time that is predicted") | dict.fromkeys(
        cycles, "cycles: the time by another clock"
    )


def _check_known(layers: pd.DataFrame, name: str) -> None:
    """Raise `PerfmlError` for a name that is neither a column nor a metric: it is misspelt."""
    catalogue = load_catalogue()
    if name in layers.columns or name in catalogue or name in SHAPE_COLUMNS or name == BOUND:
        return
    msg = f"no column and no metric is called {name!r}"
    known = [*map(str, layers.columns), *catalogue.names]
    raise PerfmlError(msg, cure=did_you_mean(name, known, "perfml inspect lists those collected."))


def _numeric(layers: pd.DataFrame, name: str) -> Floats:
    column = layers[name]
    if not pd.api.types.is_numeric_dtype(column):
        msg = "a feature must hold numbers"
        raise TableError(
            msg,
            where=f"column {name}",
            found=str(column.dtype),
            cure="Choose other features, or merge the table again.",
        )
    values = column.to_numpy(dtype=float, na_value=np.nan)
    infinite = np.flatnonzero(np.isinf(values))
    if len(infinite):
        msg = "a feature is infinite"
        raise TableError(
            msg,
            where=f"column {name}, row {int(infinite[0])}",
            cure="What is undefined must be missing: replace infinities by NaN, or ingest again.",
        )
    return np.asarray(values, dtype=np.float64)


def _useless(values: Floats) -> str | None:
    """Return why a column cannot explain anything, or None."""
    defined = values[~np.isnan(values)]
    if not len(defined):
        return "undefined in every row"
    # where it is constant but sometimes undefined, being undefined still tells layers apart
    if len(defined) == len(values) and np.all(defined == defined[0]):
        return f"constant: always {defined[0]:g}"
    return None


@dataclass(frozen=True)
class Words:
    """What sentences call the target and what is held out together, as the user named them.

    Features and target may be the user's `own` instead of a Layers table's, and then `grouped` if
    the user told which rows belong together.
    """

    target: str = "time"
    group: str = "layer"
    own: bool = False
    grouped: bool = True

    @property
    def groups(self) -> str:
        """Several of them."""
        plain = self.group in ("layer", "group", "condition")
        return f"{self.group}s" if plain else f"values of {self.group}"


OWN_TARGET = "target"
"""Key of ``DataFrame.attrs`` of predictions: what the user's own target is called."""

OF_LAYERS: Words = Words()
"""Those of a Layers table."""


@dataclass(frozen=True)
class Problem:
    """A Layers table as arrays: everything a fit, a split or a baseline needs."""

    task: str  # ``"regression"`` (of time) or ``"classification"`` (of the backend)
    design: Design  # the features
    time_us: Floats  # measured time of each row, microseconds
    truth: npt.NDArray[Any]  # what is scored against: milliseconds, or class codes
    classes: tuple[str, ...]  # names of the class codes; empty for regression
    # Group codes of each row; -1 in `layer` and `shape` where the table does not say. Layers with
    # the same amounts of work have the same shape.
    condition: Ints
    configuration: Ints
    layer: Ints
    shape: Ints
    run: Ints
    # group codes of workload, kind of layer and GPU; all 0 where the table has no such column
    network: Ints
    kind: Ints
    device: Ints
    layer_names: npt.NDArray[np.object_]  # for people, one a row
    backend: npt.NDArray[np.object_]
    # what the machine's peaks alone would take (column `BOUND`); None where no row has it
    bound_ms: Floats | None = None
    words: Words = OF_LAYERS  # what sentences call its parts
    # sentences on what was left out or taken otherwise than the user may expect
    notes: tuple[str, ...] = ()

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.time_us)

    @property
    def group(self) -> Ints:
        """What must not be on both sides of a split: layers, or the groups that the user told."""
        return self.layer

    @property
    def n_layers(self) -> int:
        """Number of layers that have a name."""
        return int(self.layer.max() + 1)

    @property
    def has_layers(self) -> bool:
        """Whether every row names its layer."""
        return bool((self.layer >= 0).all())


def build_problem(
    layers: pd.DataFrame, task: str = "regression", features: str | Sequence[str] = "default"
) -> Problem:
    """Turn a Layers table into the arrays that models use.

    Raises `PerfmlError` if the task is unknown, there are fewer than four rows, or (classification)
    fewer than two backends; `TableError` if a time is not positive, or a backend is missing where
    it is predicted.
    """
    if task not in ("regression", "classification"):
        msg = f"no task is called {task!r}"
        raise PerfmlError(msg, cure="Tasks are: regression, classification.")
    if not isinstance(layers, pd.DataFrame):
        msg = "without y a Layers table is needed"
        cure = "perfml.load_dataset(NAME) gives one; with a table of your own, name y."
        raise PerfmlError(msg, found=f"a {type(layers).__name__}", cure=cure)
    if len(layers) < 4:
        msg = "too few rows to learn from"
        raise PerfmlError(msg, found=f"{len(layers)} rows", cure="Profile more layers.")
    time_us = _times(layers)
    backend = _text(layers, "backend")
    classes: tuple[str, ...] = ()
    truth: npt.NDArray[Any] = time_us / 1000.0
    if task == "classification":
        classes, truth = _classes(backend)
    layer_names = _text(layers, "layer")
    named = np.array([name is not None for name in layer_names])
    layer = np.where(named, group_codes(layers, ("layer",)), -1)
    if named.any() and not named.all():
        # the codes of named layers must be 0..n-1 whatever code the missing ones took
        layer[named] = pd.factorize(layer[named])[0]
    return Problem(
        task=task,
        design=build_design(layers, features),
        time_us=time_us,
        truth=truth,
        classes=classes,
        condition=group_codes(layers, CONDITION_COLUMNS),
        configuration=group_codes(layers, CONFIGURATION_COLUMNS),
        layer=np.asarray(layer, dtype=np.int64),
        shape=_shape_codes(layers, np.asarray(layer, dtype=np.int64)),
        run=group_codes(layers, ("run_id", "iteration")),
        network=group_codes(layers, ("workload",)),
        kind=group_codes(layers, ("kind",)),
        device=group_codes(layers, ("device",)),
        layer_names=layer_names,
        backend=backend,
        bound_ms=_numeric(layers, BOUND) / 1000.0 if BOUND in layers.columns else None,
        notes=tuple(note for note in layers.attrs.get("warnings", ()) if note == BY_KERNEL),
    )


def _shape_codes(layers: pd.DataFrame, layer: Ints) -> Ints:
    """Number layers by what they compute: a layer measured at two batch sizes is one shape.

    Layers of several networks that compute the same anywhere are one shape.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    amounts = [name for name in SHAPE_AMOUNTS if name in layers.columns]
    if (
        len(amounts) < len(SHAPE_AMOUNTS)
        or (layer < 0).any()
        or layers[amounts].isna().any(axis=None)
    ):
        return np.full(len(layers), -1, dtype=np.int64)
    amount = group_codes(layers, amounts)
    named = group_codes(layers, ("workload", "layer"))
    count = int(named.max()) + 1
    # scipy before 1.12 reads links of 32 bits only
    links = (named.astype(np.int32), (count + amount).astype(np.int32))
    ties = coo_array((np.ones(len(layers)), links), shape=(count + int(amount.max()) + 1,) * 2)
    piece = connected_components(ties, directed=False)[1][named]
    return np.asarray(pd.factorize(piece)[0], dtype=np.int64)


def group_codes(layers: pd.DataFrame, columns: Sequence[str]) -> Ints:
    """Number the distinct rows of some columns from 0, in order of appearance.

    A missing value is a value of its own; a missing column counts for nothing.
    """
    codes = np.zeros(len(layers), dtype=np.int64)
    for name in columns:
        if name not in layers.columns:
            continue
        part, values = pd.factorize(layers[name], use_na_sentinel=False)
        codes = np.asarray(pd.factorize(codes * (len(values) + 1) + part)[0], dtype=np.int64)
    return codes


def _times(layers: pd.DataFrame) -> Floats:
    if "time_us" not in layers.columns:
        msg = "the table has no times"
        raise TableError(
            msg,
            where="column time_us",
            cure="Such a table is made with: perfml merge; in Python, name another target with y.",
        )
    values = layers["time_us"].to_numpy(dtype=float, na_value=np.nan)
    cure = "Merge again from kernels that have times."
    require_positive(values, "a time must be positive", where="column time_us", cure=cure)
    return np.asarray(values, dtype=np.float64)


def require_positive(values: Floats, msg: str, *, where: str, cure: str) -> None:
    """Raise `TableError` with these words at the first value that is no positive number."""
    bad = np.flatnonzero(~((values > 0) & np.isfinite(values)))
    if len(bad):
        found = str(values[bad[0]])
        raise TableError(msg, where=f"{where}, row {bad[0]}", found=found, cure=cure)


def _text(layers: pd.DataFrame, name: str) -> npt.NDArray[np.object_]:
    if name not in layers.columns:
        return np.full(len(layers), None, dtype=object)
    column = layers[name].astype("string").astype(object)
    return np.asarray(column.where(column.notna(), None), dtype=object)


def _classes(backend: npt.NDArray[np.object_]) -> tuple[tuple[str, ...], Ints]:
    absent = [row for row, name in enumerate(backend) if name is None]
    if absent:
        msg = "a row names no backend, which classification predicts"
        raise TableError(
            msg, where=f"column backend, row {absent[0]}", cure="Ingest with --backend NAME."
        )
    found = set(backend)
    if len(found) < 2:
        msg = "classification needs at least two backends"
        raise PerfmlError(
            msg, found=", ".join(sorted(found)), cure="Merge runs of several backends."
        )
    known = [name for name in KNOWN_BACKENDS if name in found]
    classes = (*known, *sorted(found.difference(known)))
    place = {name: code for code, name in enumerate(classes)}
    return classes, np.array([place[name] for name in backend], dtype=np.int64)
