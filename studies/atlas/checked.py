"""Tables of RESULTS.md on what was asked afterwards and on other people's methods."""

from __future__ import annotations

import json
from functools import cache

from studies.atlas.measure import RESULTS
from studies.page_tables import markdown

NAMES = {
    "confirm": "atlas-confirm",
    "unseen": "predict-unseen-2-h200",
    "rest": "predict-rest-h200",
    "beside": "atlas-beside",
}
"""Asked once: the programs are ``git show 498a952:studies/atlas/asked.py``, ``confirm.py`` and
``beside.py``, which needs the packages mapie and pystreed."""
OWN = {"optimal": "pystreed, the best of its depth", "greedy": "the linear model tree of perfml"}


@cache
def found(name):
    path = RESULTS.with_name(f"{NAMES[name]}.json")
    return json.loads(path.read_text(encoding="utf-8"))


def _percent(value):
    return f"{100 * value:.0f} %"


def _named(metrics):
    return ", ".join(f"`{name}`" for name in sorted(metrics))


def confirm():
    one = found("confirm")
    enlarged, new = one["enlarged"], one["new"]
    told = {True: "success", False: "**failed**"}
    lines = [
        (
            f"all {enlarged['networks']} networks, {one['rows']:,} rows, the end included",
            _named(enlarged["metrics"]),
            _percent(enlarged["same"]),
            told[enlarged["success"]],
        ),
        (
            f"the {len(new['networks'])} new networks alone",
            _named(new["metrics"]),
            _percent(new["same"]),
            told[new["success"]],
        ),
    ]
    heads = ("test", "the set", f"same in {one['repetitions']} repetitions", "")
    errors = one["errors"]
    said = (
        f"Of repetitions of the first that also decide where they end, "
        f"{_percent(enlarged['same_with_own_ends'])} of {len(enlarged['own_ends'])} find the set. "
        f"LightGBM fitted on the first 221 runs is off on the new networks by "
        f"{errors['shape']:.3f} with shapes, {errors['claimed']:.3f} with the claimed three "
        f"beside them, and {errors['counted']:.3f} with all counted metrics."
    )
    return f"{markdown(heads, lines)}\n\n{said}"


def unseen():
    lines = []
    for each in found("unseen")["networks"]:
        name = each["workload"].removeprefix("torch:")
        lines.append(
            (
                f"{name}, {each['precision']}, batch {each['batch']}",
                each["layers"],
                _percent(each["inside"] / each["layers"]),
                _percent(each["mean_error"]),
                _percent(each["median_error"]),
                f"{each['total']:.2f}",
                each["slower"],
            )
        )
    heads = ("network", "layers", "in the 90 % interval", "mean error", "median error")
    return markdown((*heads, "expected total / measured", "called slower"), lines, numbers=True)


def knockoffs():
    one, ours = found("beside")["knockoffs"], json.loads(RESULTS.read_text(encoding="utf-8"))
    ranked = {line["metric"]: line for line in ours["ranking"]["metrics"]}
    names = sorted(one["metrics"], key=lambda name: -ranked[name]["importance"])[:15]
    lines = [
        (
            f"`{name}`",
            f"{one['metrics'][name] * one['draws']:.0f}",
            _q(ours["conditional"][name]["q"]),
            _q(ranked[name]["q"]),
        )
        for name in names
    ]
    heads = (
        "metric",
        f"named in so many of {one['draws']} draws of knockoffs",
        "q, shuffled given all others",
        "q, shuffled",
    )
    return markdown(heads, lines, numbers=True)


def _q(value):
    return "<0.001" if value < 0.001 else f"{value:.3f}"


def optimal():
    one, lines = found("beside")["pystreed"], []
    for each in one["depths"]:
        for name, title in OWN.items():
            tree = each[name]
            cells = (
                (f"{tree['error']:.3f}", f"{tree['seconds']:.2f}")
                if tree["finished"]
                else ("–", f"not finished in {one['seconds']}")
            )
            lines.append((each["depth"], title, *cells))
    heads = ("depth", "tree", "MAPE, networks out", "processor seconds a fit")
    return markdown(heads, lines)


TABLES = {
    "confirm": confirm,
    "unseen": unseen,
    "knockoffs": knockoffs,
    "optimal": optimal,
}
