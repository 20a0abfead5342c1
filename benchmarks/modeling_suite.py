"""The whole suite with stability, side by side: perfml against the same in plain scikit-learn.

Random splits x six models, permutation importance on the test rows of each split (5 shuffles a
metric), and leave-one-layer-out scores with ten model seeds; a row of `benchmarks.run`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd
from sklearn.ensemble import GradientBoostingRegressor, RandomForestClassifier
from sklearn.inspection import permutation_importance
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import LeaveOneGroupOut, cross_val_score, train_test_split
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from perfml.modeling import LinearModelTreeRegressor, build_problem, evaluate

PLAIN = {
    "regression": {
        "dt": lambda seed: DecisionTreeRegressor(random_state=seed),
        "gbr": lambda seed: GradientBoostingRegressor(random_state=seed),
        # the rival gets perfml's tree: linear-tree alone would take longer than all the rest
        "lmt": lambda seed: LinearModelTreeRegressor(),
    },
    "classification": {
        "dt": lambda seed: DecisionTreeClassifier(random_state=seed),
        "lr": lambda seed: LogisticRegression(max_iter=10_000),
        "rf": lambda seed: RandomForestClassifier(random_state=seed),
    },
}


Score = tuple[str, str, float]


def plain(layers: pd.DataFrame, splits: int) -> Iterator[Score]:
    for task, models in PLAIN.items():
        problem = build_problem(layers, task)
        X, y = problem.design.values, problem.truth
        regression = task == "regression"
        scoring = "neg_mean_absolute_percentage_error" if regression else "accuracy"
        for name, make in models.items():
            medians = []
            for seed in range(splits):
                a, b, c, d = train_test_split(X, y, test_size=0.3, random_state=seed)
                model = make(seed).fit(a, c)
                guess = model.predict(b)
                medians.append(
                    np.mean(np.abs(d - guess) / d) if regression else np.mean(d == guess)
                )
                permutation_importance(model, b, d, scoring=scoring, n_repeats=5, random_state=seed)
            for seed in range(10):
                cross_val_score(
                    make(seed), X, y, groups=problem.layer, cv=LeaveOneGroupOut(), scoring=scoring
                )
            yield name, task, float(np.median(medians))


def ours(layers: pd.DataFrame, splits: int, jobs: int | None) -> Iterator[Score]:
    for task in PLAIN:
        found = evaluate(layers, task=task, splits=splits, n_jobs=jobs)
        scores = found.scores[(found.scores["protocol"] == "random") & ~found.scores["baseline"]]
        for row in scores.itertuples():
            yield row.model, task, row.median
