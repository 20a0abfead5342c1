"""Attribution by a fitted model: exact Shapley values, and how far they can be believed."""

from __future__ import annotations

from collections.abc import Callable
from math import factorial
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfml.errors import PerfmlError
from perfml.explain.changed_metrics import ModelAttribution, ModelValue
from perfml.metrics import PUBLISHED, load_catalogue
from perfml.modeling.features import build_design, has_counters
from perfml.modeling.layer_shapes import AMOUNTS
from perfml.modeling.models.registry import make_estimator
from perfml.tables import RUN_COLUMNS
from perfml.util.typing import Floats

MAX_PLAYERS = 19  # more than the published metrics; 2**19 predictions take seconds

_CHUNK = 1 << 16


def exact_shapley(predict: Callable[[Floats], Floats], baseline: Floats, target: Floats) -> Floats:
    """Return each feature's exact Shapley value of going from `baseline` to `target`.

    The value of a coalition is the prediction with its features from the target and the others
    from the baseline (interventional, one background point). Features that are equal in both
    points are dummies and get 0; all subsets of the others are evaluated.

    Parameters
    ----------
    predict
        Maps shape (rows, features) to shape (rows,).
    baseline, target
        Shape (features,); NaN is a value like others.

    Returns
    -------
    array
        Shape (features,); adds up to ``predict(target) - predict(baseline)``.

    Raises
    ------
    PerfmlError
        If more than `MAX_PLAYERS` features differ.

    References
    ----------
    L. S. Shapley, "A value for n-person games" (1953).

    Examples
    --------
    >>> import numpy as np
    >>> exact_shapley(lambda X: X[:, 0] * X[:, 1], np.array([1.0, 1.0]), np.array([2.0, 3.0]))
    array([2., 3.])
    """
    differs = ~((baseline == target) | (np.isnan(baseline) & np.isnan(target)))
    players = np.flatnonzero(differs)
    count = len(players)
    values = np.zeros(len(baseline))
    if count == 0:
        return values
    if count > MAX_PLAYERS:
        msg = f"exact Shapley values of {count} features would take {2.0**count:.0e} predictions"
        raise PerfmlError(msg, cure=f"Choose {MAX_PLAYERS} features or fewer.")
    worth = _worth(predict, baseline, target, players)
    # players in each coalition; the coalitions with a player follow those without it
    size = np.zeros(1, dtype=np.intp)
    for _ in range(count):
        size = np.concatenate([size, size + 1])
    # weight of a coalition of s others: s! (n - s - 1)! / n!
    weight = np.array(
        [factorial(s) * factorial(count - s - 1) / factorial(count) for s in range(count)]
    )
    weights = np.append(weight, 0.0)[size]
    for place, player in enumerate(players):
        # coalitions without the player and with it, side by side
        without, joined = worth.reshape(-1, 2, 1 << place).transpose(1, 0, 2)
        share = weights.reshape(-1, 2, 1 << place)[:, 0]
        values[player] = float(np.dot(share.ravel(), (joined - without).ravel()))
    return values


def _worth(
    predict: Callable[[Floats], Floats], baseline: Floats, target: Floats, players: npt.NDArray[Any]
) -> Floats:
    total = 1 << len(players)
    worth = np.empty(total)
    places = np.arange(len(players))
    for start in range(0, total, _CHUNK):
        subsets = np.arange(start, min(start + _CHUNK, total))
        taken = ((subsets[:, None] >> places) & 1).astype(bool)
        rows = np.empty((len(subsets), len(baseline)))
        rows[:] = baseline
        rows[:, players] = np.where(taken, target[players], baseline[players])
        worth[subsets] = predict(rows)
    return worth


MIN_LAYERS = 4  # fewer layers than this teach a model the layers, not what makes them slow


MOST_ROWS = 4096  # rows that a model learns from as they are; of more, `_THINNED` are taken

_THINNED = 512

_FEATURES = (*PUBLISHED, "waves_per_sm")
"""The published metrics say nothing of the last wave, which the counters blame; each feature more
doubles the predictions of exact Shapley values."""


class Explainer:
    """A model of log time, fitted once, asked about many layers.

    It learns from a Layers table of all sides and layers. Of more than `MOST_ROWS` rows, those that
    repeat a layer of a run are thinned evenly: they differ by noise, and a report of 50 MB has
    10,000 of them. Raises `PerfmlError` if there are fewer than `MIN_LAYERS` layers.
    """

    def __init__(self, training: pd.DataFrame, *, model: str = "gbr", seed: int = 0) -> None:
        layers = training["layer"].nunique()
        if layers < MIN_LAYERS:
            msg = f"a model needs {MIN_LAYERS} layers or more to learn from"
            raise PerfmlError(msg, found=f"{layers}", cure="Compare tables with more layers.")
        design = build_design(training, _FEATURES)
        self.model = model
        self.seed = seed
        self.names = design.names[:MAX_PLAYERS]
        kept = _spread(training)
        self._training = training[kept].reset_index(drop=True)
        self._X = design.values[kept][:, :MAX_PLAYERS]
        self._y = np.log(self._training["time_us"].to_numpy(dtype=float))
        self._fitted = make_estimator(model, "regression", seed=seed).fit(self._X, self._y)
        self._without: dict[bytes, Any] = {}

    @classmethod
    def of_counters(cls, training: pd.DataFrame, *, model: str, seed: int) -> Explainer | None:
        """Return one that has learned; None where the table has no counters to learn from."""
        return cls(training, model=model, seed=seed) if has_counters(training) else None

    def attribute(self, baseline: pd.DataFrame, target: pd.DataFrame) -> ModelAttribution:
        """Attribute the predicted log time ratio of one layer to its metrics."""
        # Rows are of that layer on either side; a metric's value is its mean over the repeats.
        before, after = self._point(baseline), self._point(target)
        values = exact_shapley(self._predict, before, after)
        predicted = self._predict(np.vstack([before, after]))
        held_out, errors = self._held_out(baseline, target, before, after)
        catalogue = load_catalogue()
        families = [catalogue[name].family if name in catalogue else "shape" for name in self.names]
        rows = zip(self.names, families, before, after, values, strict=True)
        frame = pd.DataFrame(rows, columns=list(ModelValue.keys))
        order = frame["log_ratio"].abs().sort_values(ascending=False, kind="stable").index
        return ModelAttribution(
            model=self.model,
            values=frame.loc[order].reset_index(drop=True),
            predicted_log_ratio=float(predicted[1] - predicted[0]),
            held_out_log_ratio=held_out,
            held_out_errors=errors,
            training_rows=len(self._y),
        )

    def _predict(self, X: Floats) -> Floats:
        return np.asarray(self._fitted.predict(X), dtype=np.float64)

    def _point(self, rows: pd.DataFrame) -> Floats:
        known = rows.reindex(columns=list(self.names)).apply(pd.to_numeric, errors="coerce")
        return np.asarray(known.astype(float).mean(), dtype=np.float64)

    def _held_out(
        self, baseline: pd.DataFrame, target: pd.DataFrame, before: Floats, after: Floats
    ) -> tuple[float | None, tuple[float, float] | None]:
        """Predict both sides with a model that never saw this layer, nor one of its shape."""
        layers = self._training["layer"]
        seen = layers.isin([*baseline["layer"].unique(), *target["layer"].unique()]).to_numpy()
        if all(name in self._training.columns for name in AMOUNTS):
            shape = pd.MultiIndex.from_frame(self._training[list(AMOUNTS)])
            seen = seen | shape.isin(shape[seen])
        if layers[~seen].nunique() < MIN_LAYERS - 1:
            return None, None
        fitted = self._fitted_without(seen)
        predicted = np.asarray(fitted.predict(np.vstack([before, after])), dtype=np.float64)
        measured = [
            np.log(rows["time_us"].to_numpy(dtype=float)).mean() for rows in (baseline, target)
        ]
        errors = np.expm1(predicted - np.asarray(measured))
        return float(predicted[1] - predicted[0]), (float(errors[0]), float(errors[1]))

    def _fitted_without(self, seen: npt.NDArray[np.bool_]) -> Any:
        """Return the model fitted without some rows; pairs that share a layer share it."""
        key = seen.tobytes()
        if key not in self._without:
            estimator = make_estimator(self.model, "regression", seed=self.seed)
            self._without[key] = estimator.fit(self._X[~seen], self._y[~seen])
        return self._without[key]


def _spread(training: pd.DataFrame) -> npt.NDArray[np.bool_]:
    """Tell which rows are learned from: every n-th repeat of each layer of each run."""
    if len(training) <= MOST_ROWS:
        return np.ones(len(training), dtype=bool)
    every = -(-len(training) // _THINNED)
    keys = [name for name in (*RUN_COLUMNS, "layer") if name in training.columns]
    repeat = training.groupby(keys, dropna=False, sort=False, observed=True).cumcount()
    return np.asarray(repeat % every == 0)
