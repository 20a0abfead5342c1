"""The whole suite with stability, side by side: perfml against the same in plain scikit-learn.

100 random splits x six models, permutation importance on the test rows of each split (5 shuffles
a metric), and leave-one-layer-out scores with ten model seeds.
Run: ``python -m benchmarks.modeling_suite DATASET.csv`` (the published file, or any table that
``perfml train`` takes).
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator

import numpy as np
import pandas as pd
from sklearn.ensemble import GradientBoostingRegressor, RandomForestClassifier
from sklearn.inspection import permutation_importance
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import LeaveOneGroupOut, cross_val_score, train_test_split
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from perfml.datasets import load
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
        found = evaluate(
            layers, task=task, splits=splits, importances=("builtin", "permutation"), n_jobs=jobs
        )
        scores = found.scores[(found.scores["protocol"] == "random") & ~found.scores["baseline"]]
        for row in scores.itertuples():
            yield row.model, task, row.median


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dataset")
    parser.add_argument("--splits", type=int, default=100)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--jobs", type=int, help="processes of perfml; plain has one")
    options = parser.parse_args()
    layers = load(options.dataset).frame
    ratios, used = [], []
    for _ in range(options.repeats):
        start, begun = time.perf_counter(), time.process_time()
        mine = list(ours(layers, options.splits, options.jobs))
        middle, between = time.perf_counter(), time.process_time()
        theirs = list(plain(layers, options.splits))
        end, ended = time.perf_counter(), time.process_time()
        ratios.append((end - middle) / (middle - start))
        print(f"perfml {middle - start:.1f} s, plain {end - middle:.1f} s, {ratios[-1]:.1f} x")
        if options.jobs == 1:  # the processor time of other processes is not counted here
            used.append((ended - between) / (between - begun))
            print(f"processor time {between - begun:.1f} s and {ended - between:.1f} s", flush=True)
    found = {"ratios": ratios, "processor_ratios": used, "perfml": mine, "plain": theirs}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
