"""Which metrics explain time on the atlas, with what error on networks nobody learned from.

``python -m studies.atlas.measure`` writes ``benchmarks/results/atlas.json``, from which
`studies.atlas.page` writes ``RESULTS.md`` beside this file. Rows are distinct layers of a network
and configuration (`perfml.predict.prepare_layers`): equal blocks count once. Every score is the
mean over networks of the mean relative error of their layers, so large networks do not decide.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd

from perfml.metrics import PUBLISHED
from perfml.modeling import evaluate
from perfml.modeling.features import BOUND
from perfml.modeling.models.registry import make_imputer
from perfml.predict.learned import KEPT, NETWORK
from perfml.predict.model import (
    CONFIDENCE,
    LAUNCH_US,
    LONG_US,
    Intervals,
    codes_of,
    deal,
    held_out_residuals,
    log_base,
    log_ratio,
)
from perfml.predict.python import kept as kept_of_atlas
from perfml.predict.python import reference
from perfml.util.files import replacing
from perfml.util.json_values import json_value
from studies import yardsticks
from studies.atlas.data import (
    FOLDS,
    TIERS,
    by_network,
    features,
    fit_predict,
    metric_columns_of,
    networks,
    rows,
)
from studies.atlas.importances import given_all_others, ranking, within_families
from studies.atlas.smallest import sets

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results" / "atlas.json"
NETWORKS_OUT = "leave-one-network-out"
TEN = f"{NETWORKS_OUT}:10"
PROTOCOLS = (
    "random",
    "leave-one-layer-out:5",
    "leave-one-shape-out:5",
    TEN,
    "leave-one-kind-out:5",
)
FIVE = f"{NETWORKS_OUT}:5"
SLOW = ("gbr", "gp")
"""Models that are left five parts of the networks instead of ten: a fit takes seconds."""
FAST = ("dt", "power-law", "lgbm")
TREE_METRICS = 5
"""Metrics that a tree may use, the first of the search: few enough to be read."""

TARGET_FOLDS, COVERAGE_FOLDS = 5, 6
IDENTITY = ("run_id", "iteration", "workload", "device", "backend", "variant", "precision", "batch")
WORK = ("flops", "weight_bytes", "input_bytes", "output_bytes")


def table_of(tier):
    """Return a table for `evaluate`: identity, work and the features of a tier."""
    one = rows()
    kept = one[["layer", "time_us", *IDENTITY, *WORK]].copy()
    # a module and its operator are one kind, so they are left out together
    kept["kind"] = one["usual_kind"]
    # a launch belongs to the bound: nothing that is launched takes no time
    kept[BOUND] = one[BOUND] + LAUNCH_US
    return pd.concat([kept, features(tier).add_prefix("f ")], axis=1)


def scored(tier, models, protocols, target="time-per-bound", only=None):
    table = table_of(tier)
    columns = [name for name in table.columns if name.startswith("f ")]
    if only is not None:
        table = table[only].reset_index(drop=True)
    found = evaluate(
        table,
        models=yardsticks.named(models),
        protocols=protocols,
        features=columns,
        target=target,
        splits=5,
        n_jobs=1,
    )
    predictions = found.predictions
    codes = codes_of(table, "workload")
    result = {}
    for (model, protocol), part in predictions.groupby(["model", "protocol"], sort=False):
        off = np.log(part["predicted"].clip(lower=1e-9) / part["truth"]).to_numpy()
        result.setdefault(model, {})[protocol] = by_network(
            off, np.unique(codes[part["row"]], return_inverse=True)[1]
        )
    return result


def protocols():
    """Return errors by tier, model and protocol; the slow models with networks left out only."""
    found = {tier: scored(tier, FAST, PROTOCOLS) for tier in ("shape", "counted")}
    for model in SLOW:
        found["counted"][model] = scored("counted", (model,), (FIVE,))[model]
    return found


def alone():
    """Return errors with one network left out at a time, for the goals.

    Shares of cycles, which must not predict, stand beside them with ten parts.
    """
    each = int(networks().max()) + 1
    folds = {"shape": each, "counted": each, "clocked": FOLDS}
    return {tier: by_network(predicted(tier, folds[tier])) for tier in TIERS}


def targets():
    """Return LightGBM's errors by what it fits; time a FLOP on the layers that have operations."""
    one = rows()
    time_us = one["time_us"].to_numpy()
    moved = one[["weight_bytes", "input_bytes", "output_bytes"]].sum(axis=1).to_numpy()
    scales = {
        "time": None,
        "log time": np.ones(len(one)),
        "log time a byte": np.maximum(moved, 1.0),
        "log time over the bound and a launch": np.exp(log_base(one)),
    }
    with_work = (one["flops"] > 0).to_numpy()
    found = {name: _error_of(scale, time_us, slice(None)) for name, scale in scales.items()}
    flops = one["flops"].to_numpy()
    for name, scale in (*list(scales.items())[1:2], ("log time a FLOP", flops)):
        found[f"{name}, layers with operations"] = _error_of(scale, time_us, with_work)
    return found


def _error_of(scale, time_us, kept):
    table, codes = features("counted")[kept], np.unique(networks()[kept], return_inverse=True)[1]
    truth = time_us[kept]
    fitted_to = truth if scale is None else np.log(truth / scale[kept])
    folds, guess = deal(codes, TARGET_FOLDS), np.empty(len(truth))
    for fold in range(TARGET_FOLDS):
        test = folds == fold
        guess[test] = fit_predict("lgbm", table[~test], fitted_to[~test], table[test])
    # a time below a hundredth of a microsecond is none
    plain = np.maximum(guess, 0.01) if scale is None else scale[kept] * np.exp(guess)
    return by_network(np.log(plain / truth), codes)


@cache
def predicted(tier, folds):
    """Return log(predicted / measured) of every row by LightGBM, folds of networks held out."""
    found, ratio = features(tier), log_ratio(rows())
    off = np.empty(len(ratio))
    dealt = deal(networks(), folds)
    for fold in range(folds):
        test = dealt == fold
        off[test] = fit_predict("lgbm", found[~test], ratio[~test], found[test]) - ratio[test]
    return off


def by_family():
    """Return errors of shapes and of counters by family, one network out, rows counted alike."""
    one, each = rows(), int(networks().max()) + 1
    error = {tier: np.abs(np.exp(predicted(tier, each)) - 1) for tier in ("shape", "counted")}
    found = []
    for family, part in one.groupby("family"):
        places = part.index.to_numpy()
        line = {"family": family, "rows": len(part), "networks": part["workload"].nunique()}
        found.append(line | {tier: float(error[tier][places].mean()) for tier in error})
    return sorted(found, key=lambda line: -line["rows"])


def coverage():
    """Return how far `perfml predict` is off in networks that it did not learn from, by tier.

    Residuals are those that it keeps, of all networks of the atlas, the later ones too. Intervals
    of each part of the networks are calibrated on the others.
    """
    one, kept = reference(), kept_of_atlas()
    one = one[one[BOUND].notna()].reset_index(drop=True)
    codes, measured = codes_of(one, "workload"), np.log(one["time_us"].to_numpy(float))
    long = (one["time_us"] >= LONG_US).to_numpy()
    found = {}
    for tier in KEPT:
        residuals = kept.held_out[tier, NETWORK]
        at_random = held_out_residuals(one, kept.words, tier, np.arange(len(one)))
        inside, width = _intervals(one, measured - residuals, residuals)
        shares = np.bincount(codes, inside) / np.bincount(codes)
        found[tier] = {
            "confidence": CONFIDENCE,
            "rows": len(one),
            "layers": float(inside.mean()),
            "networks": float(shares.mean()),
            "least": float(shares.min()),
            "networks_below_80": int((shares < 0.8).sum()),
            "median_factor": float(np.exp(np.median(width) / 2)),
            "long": {
                **_off(residuals[long], codes[long]),
                "random": _off(at_random[long], codes[long])["error"],
                "rows": int(long.sum()),
                "layers": float(inside[long].mean()),
                "median_times_wide": float(np.exp(np.median(width[long]))),
            },
            "families": _by_family(one[long], residuals[long], inside[long], width[long]),
        }
    return found


def _intervals(one, expected, residuals):
    """Return whether each row lies in its interval, and the interval's width."""
    folds = deal(codes_of(one, "workload"), COVERAGE_FOLDS, 1)
    inside, width = np.empty(len(one), dtype=bool), np.empty(len(one))
    for fold in range(COVERAGE_FOLDS):
        test = folds == fold
        names = (one[name][~test] for name in ("family", "workload"))
        family, networks = names
        intervals = Intervals.calibrate(residuals[~test], family, expected[~test], networks)
        low, high = (
            end - expected[test] for end in intervals.around(expected[test], one["family"][test])
        )
        inside[test] = (low <= residuals[test]) & (residuals[test] <= high)
        width[test] = high - low
    return inside, width


def _off(residuals, codes):
    """Return mean errors over layers and over networks, and of how many these are a fifth."""
    error, counts = np.abs(np.exp(-residuals) - 1), np.bincount(codes)
    means = np.bincount(codes, error)[counts > 0] / counts[counts > 0]
    return {
        "error": float(error.mean()),
        "log": float(np.abs(residuals).mean()),
        "by_network": float(means.mean()),
        "within_a_fifth": int((means <= 0.2).sum()),
        "networks": len(means),
    }


def _by_family(one, residuals, inside, width):
    """Return error, share inside and usual width of each family's long layers."""
    table = one[["family", "workload"]].assign(
        error=np.abs(np.exp(-residuals) - 1), inside=inside, times_wide=np.exp(width)
    )
    found = table.groupby("family").agg(
        rows=("error", "size"),
        networks=("workload", "nunique"),
        error=("error", "mean"),
        inside=("inside", "mean"),
        times_wide=("times_wide", "median"),
    )
    return found.sort_values("rows", ascending=False).reset_index().to_dict("records")


def trees(chosen):
    """Return errors of small trees on the chosen metrics, and on shapes alone."""
    from perfml.modeling.linear_model_tree import LinearModelTreeRegressor

    few = ["log bound_us", "log flops", "log height", "log width", "log reduction"]
    mine = [name for metric in chosen for name in metric_columns_of(metric)]
    sets_of = {"shape": [name for name in few if name in features("shape")]}
    sets_of["counted"] = [*sets_of["shape"], *mine]
    folds, ratio = deal(networks(), FOLDS, 0), log_ratio(rows())
    found, text = {}, ""
    for tier, columns in sets_of.items():
        values = make_imputer().set_params(add_indicator=False)
        x = values.fit_transform(features("counted")[columns])
        off = np.empty(len(ratio))
        leaves = []
        for fold in range(FOLDS):
            test = folds == fold
            tree = LinearModelTreeRegressor(max_depth=3).fit(x[~test], ratio[~test])
            off[test] = tree.predict(x[test]) - ratio[test]
            leaves.append(tree.get_n_leaves())
        found[f"lmt {tier}"] = {
            "error": by_network(off),
            "leaves": float(np.mean(leaves)),
            "features": len(columns),
        }
        if tier == "counted":
            whole = LinearModelTreeRegressor(max_depth=3).fit(x, ratio)
            text = whole.export_text(
                columns, target="log(time / (bound + 1 us))", max_terms=3, digits=3
            )
    return {"scores": found, "text": text, "features": sets_of["counted"]}


def claims(ranked):
    """Return what this data say of two of the study's claims, and of what holds the time."""
    one = rows()
    time_us = one["time_us"].to_numpy()
    order = [line["metric"] for line in ranked["metrics"]]
    published = [name for name in order if name in PUBLISHED]
    gld = next(line for line in ranked["metrics"] if line["metric"] == "gld_efficiency")
    found = {
        "gld": {
            "place": order.index("gld_efficiency") + 1,
            "of": len(order),
            "among_published": published.index("gld_efficiency") + 1,
            "published": len(published),
            **{name: gld[name] for name in ("p_top3", "q", "importance")},
        }
    }
    cycles = one["sm_active_cycles_max"].to_numpy(dtype=float)
    good = np.isfinite(cycles) & (cycles > 0)
    factor = np.median(np.log(time_us[good] / cycles[good]))
    off = np.log(cycles[good]) + factor - np.log(time_us[good])
    found["cycles"] = float(np.mean(np.abs(np.exp(off) - 1)))
    rate = (one["inst_executed"] / one["ipc"]).to_numpy(dtype=float)
    good = np.isfinite(rate) & (rate > 0)
    factor = np.median(np.log(time_us[good] / rate[good]))
    off = np.log(rate[good]) + factor - np.log(time_us[good])
    found["inst_over_ipc"] = float(np.mean(np.abs(np.exp(off) - 1)))
    found["backends"] = backends()
    return found


def backends():
    """Return how well counters tell backends apart, in networks nobody learned from."""
    one = rows()
    pairs = one.groupby(["workload", "precision", "batch"])["backend"].nunique()
    several = pairs[pairs > 1].index
    key = pd.MultiIndex.from_frame(one[["workload", "precision", "batch"]])
    both = one[key.isin(several)].reset_index(drop=True)
    if both["backend"].nunique() < 2 or both["workload"].nunique() < 4:
        return None
    found = evaluate(
        both,
        task="classification",
        models=("dt", "lr", "rf"),
        protocols=("random", f"{NETWORKS_OUT}:10"),
        features="published",
        splits=5,
    ).scores
    lines = found[["model", "protocol", "mean"]].to_dict("records")
    shares = both["backend"].value_counts(normalize=True)
    pairs = both.groupby(["workload", "precision", "batch", "layer"])["kernel_names"]
    alike = pairs.nunique()[pairs.size() > 1] == 1
    return {
        "rows": len(both),
        "networks": int(both["workload"].nunique()),
        "usual": float(shares.iloc[0]),
        "same_kernels": float(alike.mean()),
        "scores": lines,
    }


def contents():
    """Return what the atlas holds."""
    one = rows()
    shape = ["kind", "input", "output", "size", "stride", "groups", "precision"]
    return {
        "networks": int(one["workload"].nunique()),
        "rows": len(one),
        "layers": int(one["copies"].sum()),
        "distinct": len(one[shape].drop_duplicates()),
        "kinds": int(one["kind"].nunique()),
        "devices": sorted(map(str, one["device"].unique())),
        "runs": {
            "/".join(map(str, key)): int(part["workload"].nunique())
            for key, part in one.groupby(["backend", "precision", "batch"])
        },
        "fastest_us": float(one["time_us"].min()),
        "columns": {tier: int(features(tier).shape[1]) for tier in TIERS},
    }


def goals(result):
    """Return each goal with what was reached."""
    ranked, null = result["ranking"], result["ranking"]["null_p_top3"]
    leader = ranked["metrics"][0]["p_top3"]
    best = result["alone"]["counted"]
    tree = result["trees"]["scores"]["lmt counted"]["error"]
    held = result["coverage"]["launched"]["layers"]
    chance, same = float(np.quantile(null, 0.95)), result["sets"]["same"]
    return [
        {
            "goal": "best model, one network left out: MAPE at most 0.15",
            "found": best,
            "met": best <= 0.15,
        },
        {
            "goal": "readable tree, networks left out: MAPE at most 0.25",
            "found": tree,
            "met": tree <= 0.25,
        },
        {
            "goal": "90 % intervals hold 87 to 93 % of the layers of networks left out",
            "found": held,
            "met": 0.87 <= held <= 0.93,
        },
        {
            "goal": "leader's P(top 3) at least 0.95 and above chance",
            "found": leader,
            "met": leader >= 0.95 and leader > chance,
        },
        {
            "goal": "smallest set (no further metric is a gain) the same in 80 % of repetitions",
            "found": same,
            "met": same >= 0.8,
        },
    ]


STEPS = {
    "contents": lambda _: contents(),
    "protocols": lambda _: protocols(),
    "alone": lambda _: alone(),
    "targets": lambda _: targets(),
    "families": lambda _: by_family(),
    "coverage": lambda _: coverage(),
    "ranking": lambda _: ranking(),
    "conditional": lambda _: given_all_others(),
    "within": lambda _: within_families(),
    "sets": lambda _: sets(),
    "trees": lambda found: trees([step["metric"] for step in found["sets"]["path"][:TREE_METRICS]]),
    "claims": lambda found: claims(found["ranking"]),
    "goals": goals,
}
"""What is measured, in this order; later steps take what earlier ones found."""


def measure(steps, path=RESULTS):
    """Measure some steps anew, all by default, and write each into the file when it is done."""
    result = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    for name in steps or STEPS:
        began = time.process_time()
        result[name] = STEPS[name](result)
        spent = round(time.process_time() - began, 1)
        result["seconds"] = result.get("seconds", {}) | {name: spent}
        with replacing(path) as temporary:
            text = json.dumps(json_value(result), indent=1, sort_keys=True)
            temporary.write_text(text + "\n", encoding="utf-8")
        sys.stderr.write(f"{name}: {spent} s of processor time\n")
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("steps", nargs="*", choices=[[], *STEPS], help="only these")
    result = measure(parser.parse_args().steps)
    for goal in result["goals"]:
        verdict = "met" if goal["met"] else "missed"
        sys.stdout.write(f"{verdict}: {goal['goal']} ({goal['found']:.3f})\n")


if __name__ == "__main__":
    main()
