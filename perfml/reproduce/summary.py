"""From fits to the numbers of ``results.json``: distributions, percentiles, top-3 lists."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from perfml.modeling.results import Leakage
from perfml.modeling.scoring.leakage import detect_leakage
from perfml.reproduce import published
from perfml.reproduce.published import KEY_METRIC, Published, Source
from perfml.reproduce.splits import OWN, Runs
from perfml.util.typing import Floats

TITLES = {
    "dt": "Decision Tree",
    "gbr": "Gradient Boosting",
    "lmt": "Linear Model Tree (linear-tree)",
    OWN: "Linear Model Tree (perfml)",
    "lr": "Logistic Regression, C = 1",
    "lr:0.1": "Logistic Regression, C = 0.1",
    "lr:standardized": "Logistic Regression, standardised",
    "rf": "Random Forest",
}


def data_facts(source: Source, leakage: Leakage, runs: Runs) -> dict[str, Any]:
    """Return what ``results.json`` says of the data."""
    problem = runs.problem
    conditions = int(problem.condition.max()) + 1
    spread = [
        {
            "backend": str(problem.backend[rows[0]]),
            "layer": problem.layer_names[rows[0]],
            "rows": len(rows),
            "mean_us": float(problem.time_us[rows].mean()),
            "sd_us": float(problem.time_us[rows].std(ddof=1)) if len(rows) > 1 else None,
            "min_us": float(problem.time_us[rows].min()),
            "max_us": float(problem.time_us[rows].max()),
        }
        for rows in (np.flatnonzero(problem.condition == code) for code in range(conditions))
    ]
    backends, counts = np.unique(problem.backend.astype(str), return_counts=True)
    return {
        "name": source.name,
        "original": source.original,
        "rows": problem.rows,
        "rows_per_backend": dict(zip(backends.tolist(), counts.tolist(), strict=True)),
        "layers": list(runs.layers),
        "conditions": conditions,
        "distinct_feature_rows": leakage.distinct_feature_rows,
        "variance_explained_by_conditions": leakage.variance_explained,
        "twin_share": leakage.twin_share,
        "identifying_metrics": list(leakage.identifying_metrics),
        "dropped": dict(problem.design.dropped),
        "features": list(problem.design.names),
        "sha256": source.sha256,
        "spread": spread,
    }


def find_leakage(runs: Runs) -> Leakage:
    """Return the leakage facts, judged by the models' medians over all random splits."""
    medians = {
        name: float(np.median(each.score))
        for name, each in runs.random.items()
        if each.importance is not None and name != OWN
    }
    beside: dict[str, float] = {
        name: float(np.median(runs.random[name].score))
        for name in ("lookup", "condition-mean")
        if name in runs.random
    }
    return detect_leakage(runs.problem, model_scores=medians, baseline_scores=beside)


def range_rows(source: Source) -> list[dict[str, Any]]:
    """Return table 2.2 cell by cell; empty where the data has another schema."""
    if not source.published:
        return []
    rows = []
    for name, (low, high) in published.RANGES.items():
        if name == "type":
            codes = source.layers["backend"].map(published.CLASS_CODES)
            values = codes.to_numpy(dtype=float)
        else:
            column = "time_us" if name == "time" else name
            values = source.layers[column].to_numpy(dtype=float)
        known = values[~np.isnan(values)]
        # the file has two decimals, and so has the table
        found = [round(float(known.min()), 2), round(float(known.max()), 2)] if len(known) else None
        match = found == [low, high] and len(known) == len(values)
        rows.append({"metric": name, "published": [low, high], "file": found, "match": match})
    return rows


def regression(runs: Runs, *, comparable: bool) -> dict[str, Any]:
    """Return table 2.5 as distributions, a model each.

    Where numbers of this kind of data are not `comparable` with the published ones, those get no
    percentile.
    """
    found = {}
    for name in _models(runs):
        told = published.REGRESSION.get(name)
        scores = runs.random[name].score
        low, q05, middle, q95, high = np.quantile(scores, [0.025, 0.05, 0.5, 0.95, 0.975])
        entry: dict[str, Any] = {
            "title": TITLES[name],
            "published_mape": told.score if told else None,
            "random": {
                "median": float(middle),
                "mean": float(scores.mean()),
                "q025": float(low),
                "q05": float(q05),
                "q95": float(q95),
                "q975": float(high),
                "min": float(scores.min()),
                "max": float(scores.max()),
                "share_below_0.01": float(np.mean(scores < published.MAPE_BELOW)),
                "splits": len(scores),
                "test_size": runs.test_size,
            },
            "percentile_of_published": (
                _percentile(scores, told.score) if told and comparable else None
            ),
            "leave_one_layer_out": unseen_scores(runs, name),
        }
        found[name] = entry | top_lists(runs, name, told)
    return found


def classification(runs: Runs) -> dict[str, Any]:
    """Return table 2.6 as distributions, a model each."""
    found = {}
    for name in _models(runs):
        told = published.CLASSIFICATION.get(name.partition(":")[0])
        scores = runs.random[name].score
        entry: dict[str, Any] = {
            "title": TITLES[name],
            "published_accuracy": told.score if told else None,
            "random": {
                "median": float(np.median(scores)),
                "mean": float(scores.mean()),
                "share_perfect": float(np.mean(scores == 1.0)),
                "min": float(scores.min()),
                "splits": len(scores),
                "test_size": runs.test_size,
            },
            "leave_one_layer_out": unseen_scores(runs, name),
        }
        found[name] = entry | top_lists(runs, name, told) | _class_rows(runs, name, told)
    return found


def _models(runs: Runs) -> list[str]:
    return [name for name, each in runs.random.items() if each.importance is not None]


def _percentile(scores: Floats, value: float) -> float:
    return float(100 * (np.mean(scores < value) + 0.5 * np.mean(scores == value)))


def unseen_scores(runs: Runs, name: str) -> dict[str, Any] | None:
    """Return the scores with each layer held out, with their spread over model seeds."""
    each = runs.unseen.get(name)
    if each is None:
        return None
    folds = []
    for code, layer in enumerate(runs.layers):
        mine = each.score[each.group == code]
        folds.append(
            {
                "layer": layer,
                "mean": float(mine.mean()),
                "min": float(mine.min()),
                "max": float(mine.max()),
                "fits": len(mine),
            }
        )
    return {
        "mean": float(np.mean([fold["mean"] for fold in folds])),
        "min": float(each.score.min()),
        "max": float(each.score.max()),
        "folds": folds,
    }


def ordered_top(importance: Floats) -> npt.NDArray[np.int64]:
    """Return the three most important columns of each fit, -1 where no metric has any importance.

    Among equals the first column comes first, as when a table is sorted.
    """
    order = np.argsort(-importance, axis=1, kind="stable")[:, :3]
    strength = np.take_along_axis(importance, order, axis=1)
    return np.where(strength > 0, order, -1)


def top_lists(runs: Runs, name: str, told: Published | None) -> dict[str, Any]:
    """Return how often each metric, and how often the published list, is the first three."""
    importance = runs.random[name].importance
    if importance is None:
        return {}
    names = runs.problem.design.names
    top = ordered_top(importance)
    share = np.array([(top == column).any(axis=1).mean() for column in range(len(names))])
    first = np.array([(top[:, 0] == column).mean() for column in range(len(names))])
    order = np.argsort(-share, kind="stable")
    found: dict[str, Any] = {
        "top3": [
            {
                "metric": names[column],
                "probability": float(share[column]),
                "first": float(first[column]),
            }
            for column in order
            if share[column] > 0
        ]
    }
    if told is not None:
        in_order, as_set = _list_shares(top, names, told.top)
        found |= {
            "published_top3": list(told.top),
            "published_top3_share": in_order,
            "published_top3_set_share": as_set,
        }
    return found


def _list_shares(
    top: npt.NDArray[np.int64], names: tuple[str, ...], wanted: tuple[str, ...]
) -> tuple[float, float]:
    if any(name not in names for name in wanted):
        return 0.0, 0.0
    columns = np.array([names.index(name) for name in wanted])
    head = top[:, : len(columns)]
    in_order = (head == columns).all(axis=1)
    as_set = (np.sort(head, axis=1) == np.sort(columns)).all(axis=1)
    return float(in_order.mean()), float(as_set.mean())


def _class_rows(runs: Runs, name: str, told: Published | None) -> dict[str, Any]:
    rows = runs.random[name].coefficients
    if rows is None or told is None or rows.shape[1] != len(runs.problem.classes):
        return {}
    found = {}
    for code, label in enumerate(runs.problem.classes):
        top = ordered_top(rows[:, code, :])
        in_order, as_set = _list_shares(top, runs.problem.design.names, told.top)
        found[label] = {"published_top3_share": in_order, "published_top3_set_share": as_set}
    return {"by_class_row": found}


def key_metric(runs: Runs, name: str) -> dict[str, float] | None:
    """Return how often `KEY_METRIC` is the first, and among the first three, of a model.

    None if it is no feature, or the model was not fitted.
    """
    each, names = runs.random.get(name), runs.problem.design.names
    if each is None or each.importance is None or KEY_METRIC not in names:
        return None
    top = ordered_top(each.importance) == names.index(KEY_METRIC)
    return {"first": float(top[:, 0].mean()), "top3": float(top.any(axis=1).mean())}


def baselines(runs: Runs) -> dict[str, dict[str, Any]]:
    """Return the median scores of what needs no model."""
    found: dict[str, dict[str, Any]] = {}
    for name, each in runs.random.items():
        if each.importance is None:
            found[name] = {
                "random_median": float(np.median(each.score)),
                "leave_one_layer_out": unseen_scores(runs, name),
            }
    return found


def order_shares(runs: Runs) -> dict[str, float]:
    """Return how often each order of the three regressors, lowest MAPE first, comes up."""
    names = ("dt", "gbr", "lmt")
    # fits are in the order of the splits, so the first ones of all models share their splits
    common = min(len(runs.random[name].score) for name in names)
    scores = np.stack([runs.random[name].score[:common] for name in names], axis=1)
    orders = np.argsort(scores, axis=1, kind="stable")
    keys = [" < ".join(names[place] for place in row) for row in orders]
    found, counts = np.unique(keys, return_counts=True)
    return {
        str(key): float(count / len(keys))
        for key, count in sorted(zip(found, counts, strict=True), key=lambda pair: -pair[1])
    }
