"""Other people's methods beside ours, on the same rows and splits of the atlas.

``python -m studies.atlas.beside [knockoffs] [mapie] [pystreed]`` writes
``benchmarks/results/atlas-beside.json``. perfml needs none of these packages but hidimstat; of the
two others: ``pip install mapie pystreed scikit-survival``.

- *knockoffs*: model-X knockoffs (Candes et al. 2018, as hidimstat has them) beside what shuffling a
  metric given all others costs.
- *mapie*: intervals of MAPIE's cross-conformal regressor beside ours.
- *pystreed*: the piecewise linear tree that is the best of all of its depth (van den Bos et al.
  2024) beside the linear model tree, which splits one node at a time.
"""

from __future__ import annotations

import argparse
import json
import sys
import time

import numpy as np
from sklearn.linear_model import LassoCV

from perfml.modeling.models.registry import get_model, make_imputer
from perfml.predict.intervals import CONFIDENCE
from perfml.predict.model import deal, log_ratio
from perfml.util.files import replacing
from perfml.util.json_values import json_value
from studies.atlas.data import (
    FOLDS,
    by_network,
    features,
    metric_columns_of,
    networks,
    rows,
    shape_columns,
)
from studies.atlas.measure import COVERAGE_FOLDS, RESULTS, TREE_METRICS, predicted
from studies.atlas.smallest import twins

FOUND = RESULTS.with_name("atlas-beside.json")
FDR = 0.05
DRAWS = 25
NULLS = 20
TREE_SECONDS = 120
FOLDS_INSIDE = 5


def knockoffs():
    """Return in how many draws each metric is named, beside shapes, and in how many none should be.

    What shapes cannot explain on networks held out is regressed on the metrics, one of each group
    of twins: with all of them, or with the shapes, the correlations are singular, so that a
    knockoff is its original and nothing can be named.
    """
    left = -predicted("shape", FOLDS)
    names = [group[0] for group in twins()]
    columns = [metric_columns_of(name)[0] for name in names]
    rng = np.random.default_rng(0)
    chosen = np.array([_named(columns, left, seed) for seed in range(DRAWS)])
    codes, nulls = networks(), []
    for seed in range(NULLS):
        mixed = left.copy()
        for code in np.unique(codes):
            here = np.flatnonzero(codes == code)
            mixed[here] = left[rng.permutation(here)]
        nulls.append(int(_named(columns, mixed, seed).sum()))
    every = [metric_columns_of(name)[0] for group in twins() for name in group]
    return {
        "fdr": FDR,
        "draws": DRAWS,
        "metrics": dict(zip(names, chosen.mean(axis=0).tolist(), strict=True)),
        "named": {"least": int(chosen.sum(axis=1).min()), "most": int(chosen.sum(axis=1).max())},
        "nulls": nulls,
        "least_eigenvalue": {
            "one of each group of twins": _least_eigenvalue(columns),
            "all metrics": _least_eigenvalue(every),
            "with shapes": _least_eigenvalue(
                [*columns, *(name for name in shape_columns() if name.startswith("log "))]
            ),
        },
    }


def _standardised(columns):
    values = make_imputer().set_params(add_indicator=False).fit_transform(features("counted"))
    place = {name: at for at, name in enumerate(features("counted").columns)}
    chosen = values[:, [place[name] for name in columns]]
    return (chosen - chosen.mean(axis=0)) / chosen.std(axis=0)


def _least_eigenvalue(columns):
    return max(0.0, float(np.linalg.eigvalsh(np.corrcoef(_standardised(columns).T))[0]))


def _named(columns, target, seed):
    from hidimstat import ModelXKnockoff

    lasso = LassoCV(alphas=15, eps=1e-3, cv=3, max_iter=500, tol=1e-3)
    tool = ModelXKnockoff(estimator=lasso, preconfigure_lasso_path=False, random_state=seed)
    tool.fit_importance(_standardised(columns), target)
    return np.ravel(tool.fdr_selection(fdr=FDR)).astype(bool)


def mapie():
    """Return coverage and width of MAPIE's intervals, networks held out as in `coverage`."""
    import mapie as package
    from mapie.regression import CrossConformalRegressor
    from sklearn.model_selection import PredefinedSplit

    codes, ratio, table = networks(), log_ratio(rows()), features("shape").to_numpy()
    folds = deal(codes, COVERAGE_FOLDS, 1)
    low, high = np.empty(len(ratio)), np.empty(len(ratio))
    for fold in range(COVERAGE_FOLDS):
        test = folds == fold
        inner = np.unique(folds[~test], return_inverse=True)[1]
        tool = CrossConformalRegressor(
            get_model("hgb", "regression").make(0),
            confidence_level=CONFIDENCE,
            cv=PredefinedSplit(inner),
        )
        tool.fit_conformalize(table[~test], ratio[~test])
        ends = tool.predict_interval(table[test])[1]
        low[test], high[test] = ends[:, 0, 0], ends[:, 1, 0]
    inside = (low <= ratio) & (ratio <= high)
    shares = np.bincount(codes, inside) / np.bincount(codes)
    one = rows()
    return {
        "version": package.__version__,
        "layers": float(inside.mean()),
        "networks": float(shares.mean()),
        "least": float(shares.min()),
        "networks_below_80": int((shares < 0.8).sum()),
        "median_factor": float(np.exp(np.median(high - low) / 2)),
        "families": {
            str(family): float(inside[part.index.to_numpy()].mean())
            for family, part in one.groupby("family")
        },
    }


def pystreed():
    """Return errors of the best and of the greedy tree by depth, networks out, and their time."""
    from perfml.modeling.linear_model_tree import LinearModelTreeRegressor

    ours = json.loads(RESULTS.read_text(encoding="utf-8"))
    chosen = [step["metric"] for step in ours["sets"]["path"][:TREE_METRICS]]
    few = ["log bound_us", "log flops", "log height", "log width", "log reduction"]
    columns = [*few, *(name for metric in chosen for name in metric_columns_of(metric))]
    x = make_imputer().set_params(add_indicator=False).fit_transform(features("counted")[columns])
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    ratio, folds = log_ratio(rows()), deal(networks(), FOLDS_INSIDE)
    found = []
    for depth in (1, 2, 3):
        best = _cross(lambda a, b, d=depth: _Optimal(columns, d).fit(a, b), x, ratio, folds)
        greedy = _cross(
            lambda a, b, d=depth: LinearModelTreeRegressor(max_depth=d).fit(a, b), x, ratio, folds
        )
        found.append({"depth": depth, "optimal": best, "greedy": greedy})
        if not best["finished"]:
            break
    return {"seconds": TREE_SECONDS, "thresholds": THRESHOLDS, "depths": found}


THRESHOLDS = 5


class _Optimal:
    """pystreed's piecewise linear tree; a leaf's coefficients are fitted anew, as ours are."""

    def __init__(self, columns, depth):
        self.names, self.depth = [f"c{number}" for number in range(len(columns))], depth

    def fit(self, x, y):
        import pandas as pd
        from pystreed import STreeDPiecewiseLinearRegressor

        self.tree = STreeDPiecewiseLinearRegressor(
            max_depth=self.depth,
            min_leaf_node_size=100,
            time_limit=TREE_SECONDS,
            cost_complexity=0.0,
            ridge_penalty=1e-3,
            n_thresholds=THRESHOLDS,
        )
        self.tree.fit(pd.DataFrame(x, columns=self.names), y, continuous_columns=self.names)
        self.finished = bool(self.tree.fit_result.is_optimal())
        return self

    def predict(self, x):
        import pandas as pd

        return np.asarray(self.tree.predict(pd.DataFrame(x, columns=self.names)))


def _cross(fit, x, ratio, folds):
    """Return the error over networks, the seconds of processor time and whether all finished."""
    off, began, finished = np.empty(len(ratio)), time.process_time(), True
    for fold in range(folds.max() + 1):
        test = folds == fold
        model = fit(x[~test], ratio[~test])
        off[test] = np.asarray(model.predict(x[test])) - ratio[test]
        finished &= getattr(model, "finished", True)
        if not finished:
            return {"finished": False, "seconds": time.process_time() - began}
    seconds = (time.process_time() - began) / (folds.max() + 1)
    return {"finished": True, "error": by_network(off), "seconds": seconds}


STEPS = {"knockoffs": knockoffs, "mapie": mapie, "pystreed": pystreed}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("steps", nargs="*", choices=[[], *STEPS], help="only these")
    found = json.loads(FOUND.read_text(encoding="utf-8")) if FOUND.is_file() else {}
    for name in parser.parse_args().steps or STEPS:
        began = time.process_time()
        found[name] = STEPS[name]()
        found[name]["processor_seconds"] = round(time.process_time() - began, 1)
        with replacing(FOUND) as temporary:
            text = json.dumps(json_value(found), indent=1, sort_keys=True)
            temporary.write_text(text + "\n", encoding="utf-8")
        sys.stderr.write(f"{name}: {found[name]['processor_seconds']} s of processor time\n")


if __name__ == "__main__":
    main()
