"""How well perfml's linear model tree predicts data that it was not made for, beside linear-tree.

Mean R2 of five folds on scikit-learn's diabetes data and on three draws of each of Friedman's
functions (400 rows), and the MAPE on 20 random splits of the published file, a quarter held out.

Run: python -m benchmarks.linear_model_tree_quality [--data FILE] [--quick] prints a table.
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from typing import Any

import numpy as np
from sklearn.datasets import load_diabetes, make_friedman1, make_friedman2, make_friedman3
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import KFold, ShuffleSplit, cross_val_score
from threadpoolctl import threadpool_limits

from perfml.datasets.published import from_published
from perfml.modeling import build_problem
from perfml.modeling.linear_model_tree.regressor import LinearModelTreeRegressor
from perfml.modeling.models.sklearn_compat import linear_tree_regressor

DRAWS = 3
FRIEDMAN = {
    "friedman1": (make_friedman1, 1.0),
    "friedman2": (make_friedman2, 50.0),
    "friedman3": (make_friedman3, 0.1),
}
MODELS = {
    "perfml": LinearModelTreeRegressor(),
    "perfml, smoothing=0": LinearModelTreeRegressor(smoothing=0.0),
    "linear-tree": linear_tree_regressor(),
    "one linear regression": LinearRegression(),
}


def data_sets(draws: int = DRAWS) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return features and target by name."""
    sets = {"diabetes": load_diabetes(return_X_y=True)}
    for name, (make, noise) in FRIEDMAN.items():
        for draw in range(draws):
            sets[f"{name}, draw {draw + 1}"] = make(400, noise=noise, random_state=draw)
    return sets


def mape(model: Any, features: np.ndarray, target: np.ndarray) -> float:
    """Return the mean absolute error as a share of the target."""
    return float(np.mean(np.abs(model.predict(features) - target) / target))


def rows(published: str | None, draws: int = DRAWS) -> list[list[str]]:
    """Return the table, a row a data set and a column a model."""
    folds = KFold(5, shuffle=True, random_state=0)
    lines = [
        [name]
        + [f"{cross_val_score(model, *data, cv=folds).mean():.3f}" for model in MODELS.values()]
        for name, data in data_sets(draws).items()
    ]
    if published:
        problem = build_problem(from_published(published))
        splits = ShuffleSplit(20, test_size=0.25, random_state=0)
        scores = [
            cross_val_score(
                model, problem.design.values, problem.time_us / 1000, cv=splits, scoring=mape
            )
            for model in MODELS.values()
        ]
        cells = [f"{np.median(each):.4f}, {each.max():.4f}" for each in scores]
        lines.append(["published file, MAPE: median, worst", *cells])
    return lines


def main(words: list[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", default=os.environ.get("PERFML_DATA"), help="published file")
    parser.add_argument("--quick", action="store_true", help="one draw of each function")
    given = parser.parse_args(words)
    warnings.filterwarnings("ignore", message="X does not have valid feature names")
    head = ["data", *MODELS]
    with threadpool_limits(1):
        lines = [
            head,
            ["---", *["---:"] * len(MODELS)],
            *rows(given.data, 1 if given.quick else DRAWS),
        ]
    sys.stdout.write("".join("| " + " | ".join(line) + " |\n" for line in lines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
