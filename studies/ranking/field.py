"""perfml beside other ways to choose features: power at equal false alarms, and processor time.

A method gives each column a score. It shows the effect of a table where the first column's score
(of an interaction either's) is the largest, and above the largest score of any column in as many
tables without an effect. So every method has the same false alarms: one in (tables + 1).
perfml's score is its p-value, smaller first; Spearman's correlation is there for scale.

The rivals are no dependencies: pip install boruta hidimstat knockpy shap

Run: python -m studies.ranking.field [--tables 20] [--write]
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
from scipy.stats import rankdata
from sklearn.ensemble import RandomForestRegressor
from sklearn.inspection import permutation_importance

from perfml.modeling.ranking.association import against_chance
from studies.ranking.grid import Case, table

RESULTS = Path(__file__).with_name("field.json")

CASES = (Case("linear", 60, 6, 0.25), Case("U-shape", 60, 6, 0.35), Case("interaction", 60, 6, 0.3))

Array = npt.NDArray[Any]


def perfml(X: Array, y: Array) -> Array:
    """Return minus the p-values; where they are equal the larger rank correlation is first."""
    rows = np.arange(len(y))
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

    found = BorutaPy(_forest(), n_estimators=50, max_iter=15, random_state=0).fit(X, y)
    median = np.nan_to_num(np.nanmedian(found.importance_history_, axis=0))
    return np.asarray(10.0 * found.support_ + 5.0 * found.support_weak_ + median)


def knockoffs(X: Array, y: Array) -> Array:
    """Return the statistics of Gaussian knockoffs with the lasso."""
    from knockpy import KnockoffFilter

    found = KnockoffFilter(ksampler="gaussian", fstat="lasso")
    np.random.seed(0)  # noqa: NPY002, the package draws from this one
    found.forward(X=X, y=y, fdr=0.2, shrinkage="ledoitwolf")
    return np.asarray(found.W)


def conditional(X: Array, y: Array) -> Array:
    """Return conditional feature importances of a forest."""
    from hidimstat import CFI

    half = len(y) // 2
    found = CFI(_forest().fit(X[:half], y[:half]), n_permutations=10, random_state=0)
    found.fit(X[:half], y[:half])
    return np.asarray(found.importance(X[half:], y[half:]))


METHODS: dict[str, Callable[[Array, Array], Array]] = {
    "perfml": perfml,
    "Spearman": spearman,
    "permutation importance (scikit-learn)": scikit_learn,
    "SHAP": shap,
    "Boruta": boruta,
    "knockoffs (knockpy)": knockoffs,
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


def main() -> None:
    """Run it; see the module."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", type=int, default=20)
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = []
    for method in METHODS:
        try:
            rows.append(measure(method, given.tables))
        except ImportError as error:
            rows.append({"method": method, "missing": str(error)})
        print(rows[-1], flush=True)
        if given.write:
            RESULTS.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
