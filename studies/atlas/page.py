"""The tables and sentences of RESULTS.md, from ``benchmarks/results/atlas.json``.

``python -m studies.atlas.page`` writes them anew; `studies.atlas.measure` makes the results.
"""

from __future__ import annotations

import argparse
import json
from functools import cache
from pathlib import Path

import numpy as np

from studies.atlas import checked
from studies.atlas.measure import FIVE, RESULTS, TEN
from studies.page_tables import markdown, write_tables

MANY = 10
"""Networks that a family needs to be spoken of."""

PAGE = Path(__file__).with_name("RESULTS.md")
HEADS = {
    "random": "random rows",
    "leave-one-layer-out:5": "layers out",
    "leave-one-shape-out:5": "shapes out",
    TEN: "networks out",
    "leave-one-kind-out:5": "kinds out",
}
TITLES = {
    "training-mean": "baseline: mean of the training rows",
    "backend-mean": "baseline: mean of the configuration",
    "lookup": "baseline: lookup on one feature",
    "roofline": "baseline: roofline bound and a launch",
    "roofline-scaled": "baseline: the same, scaled by configuration",
    "dt": "decision tree",
    "gbr": "gradient boosting (five parts)",
    "power-law": "ridge regression of logarithms (power law)",
    "gp": "Gaussian process (1,000 rows, five parts)",
    "lgbm": "LightGBM",
}
TIER = {
    "shape": "shapes alone",
    "launched": "shapes and launches",
    "counted": "shapes and counts",
    "clocked": "shares of cycles too",
}


@cache
def results():
    return json.loads(RESULTS.read_text(encoding="utf-8"))


def _percent(value):
    return f"{100 * value:.0f} %"


def contents():
    held = results()["contents"]
    lines = [
        ("networks", held["networks"]),
        ("layers measured, each in every configuration of its network", f"{held['layers']:,}"),
        ("rows here: distinct layers of a network and configuration", f"{held['rows']:,}"),
        ("distinct by kind, shapes and precision, over all networks", f"{held['distinct']:,}"),
        ("kinds of layers", held["kinds"]),
        ("GPUs", ", ".join(held["devices"])),
    ]
    lines += [
        (f"networks under {backend}, {precision}, batch {batch}", count)
        for (backend, precision, batch), count in (
            (key.split("/"), count) for key, count in held["runs"].items()
        )
    ]
    return markdown(("what", "how many"), lines, numbers=True)


def goals():
    lines = []
    for goal in results()["goals"]:
        verdict = "met" if goal["met"] else "**missed**"
        lines.append((goal["goal"], f"{goal['found']:.3f}", verdict))
    spent = sum(results()["seconds"].values())
    verdict = "met" if spent < 600 else "**missed**"
    lines.append(("the whole analysis within 600 s", f"{spent:.0f} s of processor time", verdict))
    lines.append(("H200 to H100: MAPE at most 0.10", "–", "not measured: no H100 was to be had"))
    return markdown(("goal", "found", ""), lines)


def protocols():
    lines = []
    scores = results()["protocols"]
    for name in ("training-mean", "backend-mean", "lookup", "roofline", "roofline-scaled"):
        lines.append(_errors(TITLES[name], scores["counted"][name]))
    for tier in ("shape", "counted"):
        for model in TITLES:
            if model in scores[tier] and not TITLES[model].startswith("baseline"):
                lines.append(_errors(f"{TITLES[model]}: {TIER[tier]}", scores[tier][model]))
    return markdown(("", *HEADS.values()), lines, numbers=True)


def _errors(title, scores):
    scores = {TEN: scores[FIVE], **scores} if FIVE in scores else scores
    return (title, *(f"{scores[name]:.2f}" if name in scores else "–" for name in HEADS))


def alone():
    lines = [
        (TIER[tier], f"{results()['alone'][tier]:.3f}") for tier in ("shape", "counted", "clocked")
    ]
    return markdown(("LightGBM learns from", "MAPE"), lines, numbers=True)


def targets():
    lines = [(name, f"{error:.3f}") for name, error in results()["targets"].items()]
    return markdown(("target", "MAPE, networks out"), lines, numbers=True)


def families():
    lines = [
        (
            line["family"],
            line["rows"],
            line["networks"],
            f"{line['shape']:.2f}",
            f"{line['counted']:.2f}",
        )
        for line in results()["families"]
    ]
    head = ("family", "rows", "networks", "shapes alone", "shapes and counts")
    return markdown(head, lines, numbers=True)


def coverage():
    lines = []
    for tier, found in results()["coverage"].items():
        shares = (found[name] for name in ("layers", "networks", "least"))
        cells = (f"{100 * share:.1f} %" for share in shares)
        lines.append(
            (TIER[tier], *cells, found["networks_below_80"], f"{found['median_factor']:.2f}")
        )
    head = ("", "layers inside", "mean over networks", "worst network", "networks below 80 %")
    return markdown((*head, "usual half width, as a factor"), lines, numbers=True)


def long_layers():
    lines = []
    for tier, whole in results()["coverage"].items():
        found = whole["long"]
        lines.append(
            (
                TIER[tier],
                *(f"{found[name]:.3f}" for name in ("random", "error", "by_network", "log")),
                f"{found['within_a_fifth']} of {found['networks']}",
                f"{100 * found['layers']:.1f} %",
                f"{found['median_times_wide']:.2f}",
            )
        )
    errors = ("random rows", "networks out", "mean over networks", "the same, logarithms")
    head = ("", *errors, "networks off by 0.20 at most", "in the 90 % interval", "times wide")
    return markdown(head, lines, numbers=True)


def covered():
    by_tier = {
        tier: {line["family"]: line for line in found["families"]}
        for tier, found in results()["coverage"].items()
    }
    lines = []
    for family, line in by_tier["shape"].items():
        if line["networks"] >= MANY:
            cells = (
                f"{each['error']:.2f}; {100 * each['inside']:.0f} %, {each['times_wide']:.2f}"
                for each in (line, by_tier["launched"][family])
            )
            lines.append((family, line["rows"], line["networks"], *cells))
    head = ("family", "rows", "networks", *(TIER[tier] for tier in ("shape", "launched")))
    return markdown(head, lines, numbers=True)


def ranking():
    beside = results()["conditional"]
    lines = [
        (
            f"`{line['metric']}`",
            f"{line['importance']:.4f} [{line['low']:.4f}, {line['high']:.4f}]",
            f"{line['rank']:.1f}",
            f"{line['p_top3']:.2f}",
            _q(line["q"]),
            f"{beside[line['metric']]['importance']:.4f}",
            _q(beside[line["metric"]]["q"]),
        )
        for line in results()["ranking"]["metrics"][:15]
    ]
    head = ("metric", "shuffled", "mean rank", "P(top 3)", "q", "shuffled given all others", "q ")
    return markdown(head, lines, numbers=True)


def _q(value):
    return "<0.001" if value < 0.001 else f"{value:.3f}"


def within():
    lines = [
        (
            line["family"],
            line["rows"],
            ", ".join(f"`{each['metric']}` {each['importance']:.3f}" for each in line["leaders"]),
        )
        for line in results()["within"]
    ]
    return markdown(("family", "rows", "first three, with what shuffling each costs"), lines)


def sets():
    found = results()["sets"]
    size = len(found["metrics"])
    path = [
        (number + 1, f"`{step['metric']}`", f"{step['error']:.3f}", _percent(step["same"]))
        for number, step in enumerate(found["path"])
    ]
    often = ", ".join(
        f"`{name}` {_percent(share)}" for name, share in list(found["shares"].items())[:10]
    )
    enough = found["tolerance"] * found["all"]
    near = [step["error"] <= enough for step in found["path"]]
    within = (
        f"{near.index(True) + 1} of these metrics are within a tenth of it"
        if any(near)
        else f"none of these sets is within a tenth of it ({enough:.3f})"
    )
    said = (
        f"From {size} metrics on the next one is no gain beyond one standard error. All counted "
        f"metrics reach {found['all']:.3f}: {within}. In {found['repetitions']} repetitions with "
        f"four fifths of the networks the set of {size} was the same in {_percent(found['same'])}; "
        f"its members were chosen in: {often}."
    )
    head = ("size", "metric added to the shapes", "MAPE, networks out", "same set")
    table = markdown(head, path)
    groups = "; ".join(", ".join(f"`{name}`" for name in group) for group in found["twins"])
    alike = f"Twins, of which the first is offered: {groups}."
    tried = [
        (line["rules"], ", ".join(f"`{name}`" for name in line["metrics"]), _percent(line["same"]))
        for line in found["tried"]
    ]
    rivals = markdown(
        ("other rules of choice", "the set", f"same in {found['tried_repetitions']} repetitions"),
        tried,
    )
    return f"{table}\n\n{said}\n\n{alike}\n\n{rivals}"


def tree():
    found = results()["trees"]
    lines = [
        (
            f"linear model tree on {line['features']} features: {TIER[name.split()[1]]}",
            f"{line['leaves']:.1f}",
            f"{line['error']:.3f}",
        )
        for name, line in found["scores"].items()
    ]
    table = markdown(("", "leaves", "MAPE, networks out"), lines, numbers=True)
    fence = '```text title="the tree of all networks"'
    return f"{table}\n\n{fence}\n{found['text'].rstrip()}\n```"


def claims():
    found = results()["claims"]
    gld, rank = found["gld"], results()["ranking"]
    chance = float(np.quantile(rank["null_p_top3"], 0.95))
    first = gld["place"] == 1
    said = (
        f"it is number {gld['place']} of {gld['of']} counted metrics, P(top 3) "
        f"{gld['p_top3']:.2f} (chance leads up to {chance:.2f}); number "
        f"{gld['among_published']} of the {gld['published']} published ones that only count"
    )
    verdict = "holds" if first else "does not hold"
    lines = [("`gld_efficiency` is the metric that explains time best", said, verdict)]
    told = found["backends"]
    if told is None:
        lines.append(("backends can be told apart by metrics", "one backend was recorded", "open"))
    else:
        score = {(each["model"], each["protocol"]): each["mean"] for each in told["scores"]}
        seen, unseen = score["rf", "random"], score["rf", TEN]
        verdict = "holds" if unseen >= 0.9 else "does not hold for layers of all kinds"
        claim = "backends can be told apart by metrics (random forest, the published 19)"
        said = (
            f"accuracy {seen:.2f} on random rows, {unseen:.2f} on networks left out; always "
            f"naming the usual one has {told['usual']:.2f} ({told['rows']} rows, "
            f"{told['networks']} networks under several backends). "
            f"{_percent(told['same_kernels'])} of these layers run the same kernels under both"
        )
        lines.append((claim, said, verdict))
    return markdown(("claim", "on this data", "verdict"), lines)


def leaks():
    found, alone_ = results()["claims"], results()["alone"]
    lines = [
        ("`sm_active_cycles_max`, times one number", f"{found['cycles']:.2f}"),
        ("`inst_executed / ipc`, times one number", f"{found['inst_over_ipc']:.2f}"),
        (
            "LightGBM with shares of cycles and of peaks",
            f"{alone_['clocked']:.2f}",
        ),
        ("LightGBM with counts", f"{alone_['counted']:.2f}"),
    ]
    return markdown(("", "MAPE"), lines, numbers=True)


def answer():
    """Return the answer in sentences, each with its numbers."""
    one = results()
    alone_ = one["alone"]
    roof = one["protocols"]["counted"]["roofline"][TEN]
    metrics = one["ranking"]["metrics"]
    real = [line for line in metrics if line["q"] < 0.05]
    both = [line for line in real if one["conditional"][line["metric"]]["q"] < 0.05]
    common = [line for line in one["families"] if line["networks"] >= MANY]
    leader, cover = metrics[0], one["coverage"]["launched"]
    least, most = (pick(common, key=lambda e: e["shape"] - e["counted"]) for pick in (min, max))
    chosen = ", ".join(f"`{name}`" for name in one["sets"]["metrics"])
    kept = one["sets"]["path"][len(one["sets"]["metrics"]) - 1]
    sentences = (
        (
            f"On a network that nobody learned from, shapes alone predict a layer's time within "
            f"{_percent(alone_['shape'])} in the mean, and what counters count brings that to "
            f"{_percent(alone_['counted'])}. The roofline's bound and a launch are off by "
            f"{_percent(roof)}."
        ),
        (
            f"Over all kinds `{leader['metric']}` matters most: shuffled between layers it costs "
            f"{leader['importance']:.3f} of the logarithm of the time, P(top 3) "
            f"{leader['p_top3']:.2f}. {len(real)} of {len(metrics)} counted metrics matter beyond "
            f"chance (false discoveries below 5 %), {len(both)} of them also given all the others."
        ),
        (
            f"Of families in {MANY} networks and more counters add most for {most['family']} "
            f"({_percent(most['shape'])} to {_percent(most['counted'])}) and least for "
            f"{least['family']} ({_percent(least['shape'])} to {_percent(least['counted'])})."
        ),
        (
            f"{len(one['sets']['metrics'])} metrics beside the shapes are a certain choice, "
            f"the same in {_percent(one['sets']['same'])} of the repetitions: {chosen}. They bring "
            f"errors to {_percent(kept['error'])}; which others bring it further is not certain."
        ),
        (
            f"`perfml predict` compares layers by shape and by what they launch. On networks left "
            f"out it is off by {_percent(cover['long']['by_network'])} in the mean on layers of "
            f"10 µs and more ({_percent(one['coverage']['shape']['long']['by_network'])} from "
            f"shapes alone). {100 * cover['long']['layers']:.1f} % of these lie in the 90 % "
            f"interval, which is usually {cover['long']['median_times_wide']:.2f} times wide."
        ),
    )
    return "\n".join(f"- {sentence}" for sentence in sentences)


TABLES = {
    "contents": contents,
    "answer": answer,
    "goals": goals,
    "alone": alone,
    "protocols": protocols,
    "targets": targets,
    "families": families,
    "coverage": coverage,
    "long": long_layers,
    "covered": covered,
    "ranking": ranking,
    "within": within,
    "sets": sets,
    "tree": tree,
    "leaks": leaks,
    "claims": claims,
    **checked.TABLES,
}


def main():
    argparse.ArgumentParser(description=__doc__).parse_args()
    write_tables(PAGE, TABLES)


if __name__ == "__main__":
    main()
