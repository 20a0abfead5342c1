"""The tables of RESULTS.md, from the data; ``python -m studies.plan.page`` writes them anew."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd

from perfml.datasets import load
from perfml.ingest.merge.rule import merge
from perfml.metrics.passes import check_estimates, load_passes
from perfml.modeling import average_repeats, build_design, make_estimator, select_metrics
from perfml.tables import read_table
from studies.page_tables import markdown, write_tables

ROOT = Path(__file__).resolve().parents[2]
PAGE = Path(__file__).with_name("RESULTS.md")
DATA = ROOT / "tests/data/plan"
DATASET = ROOT / "datasets/h200-yolov4-tiny"
PLAN3 = ("stall_inst_fetch", "special_fu_utilization", "gld_efficiency")


def recorded(precision="fp32"):
    frame = load(DATASET).frame
    return frame[(frame["batch"] == 1) & (frame["precision"] == precision)]


def recorded_as_collected():
    """Recorded rows in which asynchronous copies stand in where there are no plain loads.

    The rows of ``collected.csv`` were merged when `gld_efficiency` meant that; their launches were
    not kept.
    """
    kernels = read_table(DATASET / "kernels.parquet", kind="kernels").frame
    chosen = kernels[(kernels["batch"] == 1) & (kernels["precision"] == "fp32")]
    loads = chosen["gld_efficiency"].fillna(chosen["ldgsts_efficiency"])
    return merge(chosen[chosen["layer"].str.match("conv_", na=False)].assign(gld_efficiency=loads))


def _interval(value, low, high, sign=""):
    return f"{value:{sign}.2f} [{low:{sign}.2f}, {high:{sign}.2f}]"


def curve():
    """The budgets of fp32: decision tree, log-time, whole layers held out."""
    made = select_metrics(recorded(), passes=3, n_jobs=1)
    rows, seen = [], set()
    for row in made.curve.itertuples():
        if row.metrics in seen:
            continue
        seen.add(row.metrics)
        names = ", ".join(row.metrics) if row.limit != "all" else f"all {len(row.metrics)}"
        rows.append(
            [
                row.limit,
                f"{row.passes}" + ("" if row.measured else " (estimated)"),
                f"{row.seconds_per_launch:.3f}",
                f"{row.chosen_on:.2f}",
                _interval(row.nested, row.nested_low, row.nested_high),
                _interval(row.worse_by, row.worse_low, row.worse_high, "+"),
                names,
            ]
        )
    header = ["budget", "passes", "s a launch", "chosen on", "new layers", "worse than all", "set"]
    return markdown(header, rows)


def precisions(names=("fp32", "tf32", "fp16")):
    """The same for other precisions, three budgets each."""
    rows = []
    for name in names:
        made = select_metrics(recorded(name), passes=3, n_jobs=1)
        table = made.curve.set_index("limit")
        cells = [
            _interval(row.nested, row.nested_low, row.nested_high)
            for row in (table.loc["1"], table.loc["3"], table.loc["all"])
        ]
        rows.append([name, *cells, f"{made.baseline:.2f}", ", ".join(table.loc["1", "metrics"])])
    header = ["data", "1 pass", "3 passes", "all", "mean of the backend", "set of 1 pass"]
    return markdown(header, rows)


def transfer(metrics, collected, model, seeds=10):
    """MAPE on collected rows of models trained on the recorded other layers; mean over layers."""
    trained_on = average_repeats(recorded_as_collected())
    names = list(metrics)
    errors = {}
    for layer, test in collected.groupby("layer"):
        train = trained_on[trained_on["layer"] != layer]
        each = []
        for seed in range(seeds):
            fitted = make_estimator(model, seed=seed).fit(
                train[names].to_numpy(float), np.log(train["time_us"])
            )
            guess = np.exp(fitted.predict(test[names].to_numpy(float)))
            each.append(np.mean(np.abs(guess - test["time_us"]) / test["time_us"]))
        errors[layer] = np.mean(each)
    values = np.array(list(errors.values()))
    drawn = np.random.default_rng(0).integers(len(values), size=(2000, len(values)))
    low, high = np.quantile(values[drawn].mean(axis=1), [0.025, 0.975])
    return float(values.mean()), float(low), float(high)


def collected(request, backends=("cublas", "cudnn", "inductor")):
    table = pd.read_csv(DATA / "collected.csv")
    return table[(table["request"] == request) & table["backend"].isin(backends)]


def proof(models=("dt", "gbr")):
    """Cost and error of the collected plan, beside the full set on the same machine."""
    cost = pd.read_csv(DATA / "cost.csv").set_index(["request", "backend"])
    everything = build_design(average_repeats(recorded()), "published").names
    rows = []
    for request, metrics, backends in (
        ("full", everything, ("cublas",)),
        ("plan3", PLAN3, ("cublas",)),
        ("plan3", PLAN3, ("cublas", "cudnn", "inductor")),
    ):
        part = cost.loc[request].loc[list(backends)]
        rows.append(
            [
                "published 19" if request == "full" else "plan of 3",
                ", ".join(backends),
                part["passes"].max(),
                " / ".join(f"{value:.3f}" for value in part["seconds_per_launch"]),
                *(
                    _interval(*transfer(metrics, collected(request, backends), model))
                    for model in models
                ),
            ]
        )
    header = ["request", "backends", "passes", "s a launch", *models]
    return markdown(header, rows)


def estimates():
    """How good the pass estimates are, on random sets left out of the fit."""
    errors = Counter(check_estimates())
    rows = [[f"{error:+d}", count] for error, count in sorted(errors.items())]
    return markdown(["estimate minus measured", "random sets"], rows)


def shares():
    """What each metric adds, in fifths of a pass."""
    counts = load_passes()
    names = [*counts.names, "instrumentation, once", "base"]
    by_share = {}
    for name, share in zip(names, counts.shares, strict=True):
        by_share.setdefault(f"{round(share, 2) + 0:.1f}", []).append(name)
    return markdown(
        ["share", "metrics"], [[key, ", ".join(by_share[key])] for key in sorted(by_share)]
    )


TABLES = {each.__name__: each for each in (estimates, shares, curve, precisions, proof)}


if __name__ == "__main__":
    write_tables(PAGE, TABLES)
