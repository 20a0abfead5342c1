"""perfml beside other ways to choose features: power at equal false alarms, and processor time.

A method gives each column a score. It shows the effect of a table where the first column's score
(of an interaction either's) is the largest, and above the largest score of any column in as many
tables without an effect. So every method has the same false alarms: one in (tables + 1).
perfml's score is its p-value, smaller first; Spearman's correlation is there for scale.

Four real tables follow: recorded layers of an H200, of one network of the atlas, the published
table of two layers, and diabetes (scikit-learn's copy), where body mass and s5 are known to be the
strongest (Efron et al. 2004, Least Angle Regression). Five columns of noise stand beside theirs.
"Above noise" are the columns that a method scores above all five, "noise" how many of the five it
selects by its own rule.

The rivals are no dependencies: pip install boruta hidimstat shap

Run: python -m studies.ranking.field [--tables 8] [--write]
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.stats import rankdata
from sklearn.datasets import load_diabetes
from sklearn.ensemble import RandomForestRegressor
from sklearn.inspection import permutation_importance

from perfml import load_dataset
from perfml.errors import PerfmlError
from perfml.modeling import average_repeats, build_problem
from perfml.modeling.layer_shapes import ENOUGH_LAYERS, distinct_layers
from perfml.modeling.ranking.association import against_chance
from perfml.modeling.results import LEVEL
from studies.ranking.grid import Case, table

RESULTS = Path(__file__).with_name("field.json")

NOISE = 5
"""Columns of noise beside those of a real table: permuted copies of its first ones."""

CASES = (Case("linear", 60, 6, 0.25), Case("U-shape", 60, 6, 0.35), Case("interaction", 60, 6, 0.3))

Array = npt.NDArray[Any]


def perfml(X: Array, y: Array, pieces: Array | None = None) -> Array:
    """Return minus the p-values; where they are equal the larger rank correlation is first."""
    rows = np.arange(len(y)) if pieces is None else pieces
    frame, _ = against_chance(X, y, rows, np.zeros_like(rows))
    return np.asarray(1e-6 * frame["rho"].abs() - frame["p_value"])


def spearman(X: Array, y: Array) -> Array:
    """Return absolute rank correlations."""
    both = np.corrcoef(rankdata(X, axis=0), rankdata(y), rowvar=False)
    return np.abs(both[-1, :-1])


def _forest() -> Any:
    return RandomForestRegressor(50, random_state=0)


def scikit_learn(X: Array, y: Array) -> Array:
    """Return permutation importances of a forest on the half that it did not learn from."""
    half = len(y) // 2
    fitted = _forest().fit(X[:half], y[:half])
    found = permutation_importance(fitted, X[half:], y[half:], n_repeats=5, random_state=0)
    return np.asarray(found.importances_mean)


def shap(X: Array, y: Array) -> Array:
    """Return mean absolute Shapley values of a forest."""
    from shap import TreeExplainer

    values = TreeExplainer(_forest().fit(X, y)).shap_values(X, check_additivity=False)
    return np.abs(values).mean(axis=0)


def boruta(X: Array, y: Array) -> Array:
    """Return the number of rounds in which a column beats the best of its shadows, by rank."""
    from boruta import BorutaPy

    found = BorutaPy(_forest(), n_estimators=50, max_iter=12, random_state=0).fit(X, y)
    median = np.nan_to_num(np.nanmedian(found.importance_history_, axis=0))
    return np.asarray(10.0 * found.support_ + 5.0 * found.support_weak_ + median)


def knockoffs(X: Array, y: Array) -> Array:
    """Return the statistics of Gaussian knockoffs with the lasso."""
    from hidimstat import ModelXKnockoff

    return np.ravel(ModelXKnockoff(random_state=0).fit_importance(X, y))


def conditional(X: Array, y: Array) -> Array:
    """Return conditional feature importances of a forest."""
    from hidimstat import CFI

    half = len(y) // 2
    found = CFI(
        _forest().fit(X[:half], y[:half]),
        n_permutations=10,
        feature_types="continuous",
        random_state=0,
    )
    found.fit(X[:half], y[:half])
    return np.asarray(found.importance(X[half:], y[half:]))


METHODS: dict[str, Callable[[Array, Array], Array]] = {
    "perfml": perfml,
    "Spearman": spearman,
    "permutation importance (scikit-learn)": scikit_learn,
    "SHAP": shap,
    "Boruta": boruta,
    "knockoffs (hidimstat)": knockoffs,
    "conditional importance (hidimstat)": conditional,
}


def measure(method: str, tables: int) -> dict[str, Any]:
    """Return in how many tables of each case a method shows the effect, and seconds a table."""
    start = time.process_time()
    scored = METHODS[method]

    def scores(case: Case, seed: int) -> Array:
        X, y, _ = table(case, seed)
        return scored(X, np.log(y))

    plain = Case("linear", CASES[0].rows, CASES[0].columns, 0.0)
    limit = max(float(scores(plain, 10_000 + seed).max()) for seed in range(tables))
    shown = {}
    for case in CASES:
        found = [scores(case, seed) for seed in range(tables)]
        # of an interaction either of its two columns is right
        true = 2 if case.kind == "interaction" else 1
        shown[case.kind] = sum(bool(one.argmax() < true and one.max() > limit) for one in found)
    seconds = (time.process_time() - start) / (tables * (1 + len(CASES)))
    return {"method": method, "tables": tables, "shown": shown, "seconds": seconds}


def real_tables() -> dict[str, tuple[pd.DataFrame, Array, Array]]:
    """Return features, logarithm of the target and the independent pieces of four tables."""
    tables = {}
    network = {"batch": 1, "precision": "fp32"}
    for name, only in (
        ("h200-yolov4-tiny", network),
        ("atlas", {**network, "workload": "torch:torchvision/resnet18"}),
        ("nazir2024", {}),
    ):
        try:
            layers = load_dataset(name)
        except PerfmlError as error:
            print(f"{name} is left out: {error}")
            continue
        kept = np.all([layers[column] == value for column, value in only.items()], axis=0)
        rows = average_repeats(layers[kept] if only else layers)
        problem = build_problem(rows, features="published")
        X = pd.DataFrame(problem.design.values, columns=problem.design.names)
        pieces = distinct_layers(rows)
        few = pieces.max() + 1 < ENOUGH_LAYERS
        tables[name] = (X, np.log(problem.time_us), np.arange(len(X)) if few else pieces)
    X, y = load_diabetes(return_X_y=True, as_frame=True)
    tables["diabetes"] = (X, np.log(y.to_numpy()), np.arange(len(X)))
    return tables


def beside(method: str, X: pd.DataFrame, y: Array, pieces: Array) -> dict[str, Any]:
    """Return the first two columns of a real table, how many are above noise, and seconds."""
    rng = np.random.default_rng(0)
    values = X.fillna(X.median()).to_numpy()
    noise = np.column_stack([rng.permutation(column) for column in values.T[:NOISE]])
    both, start = np.column_stack([values, noise]), time.process_time()
    try:
        scored = perfml(both, y, pieces) if method == "perfml" else METHODS[method](both, y)
    except ValueError as error:
        return {"refused": str(error).split("\n")[0], "rows": len(y)}
    seconds = time.process_time() - start
    own, limit = scored[: X.shape[1]], scored[X.shape[1] :].max()
    first = [str(X.columns[at]) for at in np.argsort(-own)[:2]]
    shown = {"first": first, "above noise": int((own > limit).sum()), "columns": X.shape[1]}
    if method == "perfml":
        shown["noise shown"] = int((scored[X.shape[1] :] >= -LEVEL).sum())
        shown["shown"] = int((own >= -LEVEL).sum())
    return {**shown, "rows": len(y), "pieces": int(pieces.max()) + 1, "seconds": seconds}


def main() -> None:
    """Run it; see the module."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", type=int, default=8)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    real, rows = real_tables(), []
    for method in METHODS:
        try:
            found = measure(method, given.tables)
            found["real"] = {name: beside(method, *table) for name, table in real.items()}
        except ImportError as error:
            found = {"method": method, "missing": str(error)}
        rows.append(found)
        print(rows[-1], flush=True)
        if given.write:
            RESULTS.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
