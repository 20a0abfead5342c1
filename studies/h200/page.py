"""The tables of RESULTS.md, from the data.

``python -m studies.h200.page "fp32,tf32 b8" [TABLES]`` writes the rows of these data anew, in all
tables or those named (with commas); `prose` prints numbers that only the text holds. `goals` reads
the tables `logtime` and `perflop` of the page.
"""

from __future__ import annotations

import argparse
import functools
import re
import sys
from pathlib import Path

import numpy as np
import pandas as pd

from perfml.datasets import load
from perfml.ingest.merge import under_both_weights
from perfml.ingest.profiles import ingest
from perfml.modeling import average_repeats, evaluate, rank_both_weights, smallest_sufficient_set
from perfml.tables import read_table, replacing
from studies import yardsticks

ROOT = Path(__file__).resolve().parents[2]
PAGE = Path(__file__).with_name("RESULTS.md")
RECORDED, SWEEP = ROOT / "datasets/h200-yolov4-tiny", ROOT / "studies/data/h200-sweep"
DATA = {
    "fp32": (RECORDED, 1, "fp32"),
    "tf32": (RECORDED, 1, "tf32"),
    "fp16": (RECORDED, 1, "fp16"),
    "sweep b1": (SWEEP, 1, "fp32"),
    "fp32 b8": (RECORDED, 8, "fp32"),
    "sweep b8": (SWEEP, 8, "fp32"),
    "tf32 b8": (RECORDED, 8, "tf32"),
    "fp16 b8": (RECORDED, 8, "fp16"),
}
LAYER, SHAPE = PROTOCOLS = ("leave-one-layer-out", "leave-one-shape-out")
MODELS = ("dt", "gbr", "lmt", "lmt:log", "power-law", "gp")
PLAIN = ("dt", "lmt", "power-law", "gp")
SETTINGS = {"log-time": "logtime", "time-per-flop": "perflop"}
TREES = ("dt", "lmt", "lmt:log")
_TABLE = re.compile(r"<!-- (\w+) -->\n(.*?)\n<!-- end -->", re.DOTALL)


def frame_of(data):
    folder, batch, precision = DATA[data]
    frame = load(folder).frame
    kept = frame[(frame["batch"] == batch) & (frame["precision"] == precision)]
    return kept.reset_index(drop=True)


@functools.cache
def _kernels(folder):
    stored = folder / "kernels.parquet"
    return read_table(stored, kind="kernels").frame if stored.is_file() else ingest([folder]).frame


@functools.cache
def evaluated(data, features, target, models=MODELS):
    """Return the scores of models, repeats averaged."""
    return evaluate(
        average_repeats(frame_of(data)),
        models=yardsticks.named(models),
        protocols=PROTOCOLS,
        features=features,
        target=target,
    )


@functools.cache
def published(data):
    return evaluate(frame_of(data), protocols=PROTOCOLS, splits=63)


@functools.cache
def ranked(data):
    both = rank_both_weights(*under_both_weights(frame_of(data), _kernels(DATA[data][0])))
    return {**both.own.to_dict(), "weights": both.to_dict()}


def _mean(scores, model, protocol):
    row = scores[(scores["model"] == model) & (scores["protocol"] == protocol)].iloc[0]
    return row["mean"], row["q025"], row["q975"]


def _scored_row(found, protocol):
    means = [_mean(found.scores, model, protocol) for model in ("dt", "gbr", "lmt")]
    cells = [f"{mean:.2f} [{low:.2f}, {high:.2f}]" for mean, low, high in means]
    rivals = ("backend-mean", "lookup")
    return [*cells, *(f"{_mean(found.scores, rival, protocol)[0]:.2f}" for rival in rivals)]


def _both(found, model):
    return " / ".join(f"{_mean(found.scores, model, each)[0]:.2f}" for each in PROTOCOLS)


def ranks(data):
    groups = ranked(data)["summary"]
    first = "; ".join(
        f"{each['members']} {_place(each)}, {each['p_top3']:.2f}" for each in groups[:3]
    )
    place = next(k for k, each in enumerate(groups) if "gld_efficiency" in each["members"])
    gld = groups[place]
    alone = "" if gld["members"] == "gld_efficiency" else f" ({gld['members']})"
    mine = f"{place + 1} of {len(groups)}{alone}, {_place(gld)}, {gld['p_top3']:.2f}"
    return [first, f"{groups[0]['p_value']:.3f}", mine]


def _place(group):
    low, high = group["rank_low"], group["rank_high"]
    return f"{group['mean_rank']:.1f} [{low:.0f}, {high:.0f}]"


def weights(data):
    found = ranked(data)["weights"]
    moves = [
        (each["layer_mean_p_top3"] - each["own_p_top3"], each["members"].split(", ")[0])
        for each in found["groups"]
    ]
    move, name = max(moves, key=lambda each: abs(each[0]))
    first = [each for each in found["groups"] if each["own_place"] <= 3]
    same = all(each["layer_mean_place"] <= 3 for each in first)
    share = f"{found['largest_feature_change']:.1%}".replace("%", " %")
    return ["the same" if same else "others", f"{move:+.2f} {name}", share]


def layers(data):
    return _scored_row(published(data), LAYER)


def shapes(data):
    return _scored_row(published(data), SHAPE)


def logtime(data):
    found = evaluated(data, "published+before-run", "log-time")
    return [_both(found, each) for each in (*MODELS, "backend-mean", "lookup")]


def perflop(data):
    found = evaluated(data, "published+before-run", "time-per-flop")
    return [_both(found, each) for each in MODELS]


def plain(data, models=PLAIN):
    """Return the scores without any profiler metric."""
    found = evaluated(data, "before-run", "time-per-flop", models)
    return [_both(found, each) for each in models]


def difference(data, model="gp"):
    """Return MAPE with the metrics minus without, over shapes held out; shapes are resampled."""
    sides = [
        evaluated(data, features, "time-per-flop", models).folds
        for features, models in (("published+before-run", MODELS), ("before-run", PLAIN))
    ]
    with_, without = (
        side[(side["model"] == model) & (side["protocol"] == SHAPE)]
        .groupby("split")["score"]
        .mean()
        for side in sides
    )
    values = (with_ - without).to_numpy()
    drawn = np.random.default_rng(0).integers(len(values), size=(2000, len(values)))
    low, high = np.quantile(values[drawn].mean(axis=1), [0.025, 0.975])
    return f"{values.mean():+.3f} [{low:+.3f}, {high:+.3f}]"


def control(data):
    return [*plain(data), *(difference(data, model) for model in ("gp", "power-law"))]


def _set(found):
    numbers = (found.score, found.held_out, found.held_out_all, found.held_out_baseline)
    return [", ".join(found.metrics), *(f"{each:.2f}" for each in numbers)]


@functools.cache
def _sufficient(data, task):
    options = {"target": "log-time"} if task == "regression" else {"task": task}
    return smallest_sufficient_set(frame_of(data), **options)


def timeset(data):
    return _set(_sufficient(data, "regression"))


def backendset(data):
    return _set(_sufficient(data, "classification"))


def best(data, path=PAGE):
    """Return the best setting, and the best of a tree, of the printed tables: the first of equals.

    Each with its mean, and the mean of the setting that is the best one in fp32.
    """
    means, first = _means(data, path), _means("fp32", path)
    cells = []
    for models in (MODELS, TREES):
        chosen, carried = (
            min((each for each in found if each[0] in models), key=found.get)
            for found in (means, first)
        )
        kept = "chosen here" if data == "fp32" else f"{means[carried]:.2f}"
        cells.append((f"{means[chosen]:.2f} {', '.join(chosen)}", kept))
    return cells


def _means(data, path):
    """Return the printed mean of each setting, layers held out."""
    return {
        (model, target): float(cell.split(" / ")[0])
        for target, table in SETTINGS.items()
        for model, cell in zip(MODELS, rows_of(table, path)[data], strict=False)
    }


def picked(folds):
    """Return the mean score where each layer's setting is the best of the other layers.

    Parameters
    ----------
    folds
        Scores, a row a layer and a column a setting.
    """
    others = (folds.sum() - folds) / (len(folds) - 1)
    choice = others.to_numpy().argmin(axis=1)
    return float(folds.to_numpy()[range(len(folds)), choice].mean())


def goals(data):
    parts = []
    for target in SETTINGS:
        folds = evaluated(data, "published+before-run", target).folds
        folds = folds[(folds["protocol"] == LAYER) & folds["model"].isin(MODELS)]
        wide = folds.groupby(["split", "model"])["score"].mean().unstack()
        parts.append(wide.set_axis([(name, target) for name in wide], axis=1))
    folds = pd.concat(parts, axis=1)
    trees = [each for each in folds if each[0] in TREES]
    cells = []
    for (first, kept), settings in zip(best(data), (list(folds), trees), strict=True):
        cells += [first, f"{picked(folds[settings]):.2f}", kept]
    return cells


TABLES = {
    each.__name__: each
    for each in (
        control,
        perflop,
        logtime,
        goals,
        layers,
        shapes,
        timeset,
        backendset,
        ranks,
        weights,
    )
}


def rows_of(name, path=PAGE):
    """Return the cells of each row of a table of the page, by data."""
    found = dict(_TABLE.findall(path.read_text(encoding="utf-8")))[name]
    rows = {}
    for line in found.splitlines()[2:]:
        first, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        rows[first.partition(" (")[0]] = cells
    return rows


def put(name, data, cells, path=PAGE):
    """Write one row, in the place that `DATA` gives it."""
    text = path.read_text(encoding="utf-8")
    match = next(each for each in _TABLE.finditer(text) if each.group(1) == name)
    head, rule, *lines = match.group(2).splitlines()
    rows = {line.strip("| ").split(" |")[0].partition(" (")[0]: line for line in lines}
    label = rows[data].strip("| ").split(" |")[0] if data in rows else data
    rows[data] = "| " + " | ".join([label, *cells]) + " |"
    made = "\n".join([head, rule, *(rows[each] for each in DATA if each in rows)])
    with replacing(path) as temporary:
        temporary.write_text(text[: match.start(2)] + made + text[match.end(2) :], encoding="utf-8")


def prose(data):
    """Return the numbers that the text quotes and no table holds."""
    log = evaluated(data, "published+before-run", "log-time")
    _, low, high = _mean(log.scores, "gp", LAYER)
    return f"{data}: gp on log-time, 95 % of layer folds {low:.2f} to {high:.2f}"


def main(words=None):
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data")
    parser.add_argument("tables", nargs="?", default=",".join(TABLES))
    given = parser.parse_args(words)
    for data in given.data.split(","):
        for name in given.tables.split(","):
            if name == "prose":
                sys.stdout.write(prose(data) + "\n")
            else:
                put(name, data, TABLES[name](data))


if __name__ == "__main__":
    sys.exit(main())
