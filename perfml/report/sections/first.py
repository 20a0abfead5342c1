"""What to do first: the three sentences at the top of a report that a person can act on.

Which backend to take, what the fastest backend of every layer would give, and the largest loss
that can be avoided, with its cause and its cure. Each says what it gains and how sure that is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from perfml.explain.advice.finding import Finding, in_order
from perfml.explain.advice.settings import choice, setting
from perfml.explain.confidence import (
    ENOUGH_RESAMPLES,
    Confidence,
    is_named,
    is_reliable,
    of_measured,
    of_metric,
    of_model,
    of_share,
    probability,
)
from perfml.report.conditions import EVERY_RUN, UNNAMED, Condition, mixed, sure_of_totals, wins
from perfml.report.document import Answer, Sentence, Sure
from perfml.report.labels import TASKS, is_random, members, model, percent, protocol
from perfml.report.pairs import explained, losses
from perfml.report.results import (
    Pair,
    Results,
    best_scores,
    higher_is_better,
)
from perfml.report.sections.advice import finding_steps
from perfml.report.sections.clock import phase_sentence, rank_steps, step_sentences
from perfml.report.sections.explanation import why_sentence
from perfml.util.words import count, listed, micros, multiple

if TYPE_CHECKING:
    from perfml.modeling.results import Evaluation, Ranking

Step = tuple[Finding, Sentence]
"""What is known of a thing to do, and how the page says it."""

_UNKNOWN = "what can be saved is not known"
_STEPS = 4
"""Things to do on the first screen."""


def first_steps(results: Results) -> list[Sentence]:
    """Return what to do, in the order of the answer; none without anything to do."""
    several = [
        each for each in results.conditions if each.totals["total"].count() > 1 and each.common
    ]
    found: list[list[Step]] = []
    for label, each in results.advice.items():
        first = each.worth[:_STEPS]
        name = label if len(results.advice) > 1 else ""
        found.append(list(zip(first, finding_steps(first, results.levels, name), strict=True)))
    alone = len(results.conditions) == 1  # whose name stands in the head of the page
    lost = _loss(results.pairs, alone=alone)
    runs = [each for each in results.provenance.get("runs", ()) if isinstance(each, Mapping)]
    if lost and any((each.get("settings") or {}).get("cudnn_benchmark") is False for each in runs):
        lost = lost[0], replace(lost[1], command=setting("backend", "benchmark").line)
    narrower, use = _settings(results.gains), _use(several)
    if narrower and use and len(several) == 1:
        title = f"If you stay with {several[0].key['precision']}, use {use[0].rules[-1]}"
        use = use[0], replace(use[1], title=title)
    steps = [*rank_steps(results.ranks), narrower, use, _mix(several), lost]
    return in_order([*([step] for step in steps if step is not None), *found])[:_STEPS]


def _settings(gains: Sequence[Finding]) -> Step | None:
    """Say what a narrower type gives and costs, and a larger batch; None where neither is known."""
    types = [gain for gain in gains if gain.rules[0] == "precision"]
    if not types:
        return None
    first, others = types[0], types[1:2]
    measured = first.where.backend is not None
    costs = ". ".join(f"{each.rules[1].upper()}: {each.cost}" for each in (first, *others))
    bound = "Measured in this table, over the same layers and batch."
    if not measured:
        bound = "Not measured: no layer is faster than its chip's tensor cores or its memory."
    text = f"Check the accuracy of your own model. {costs}. {bound}"
    batches = [gain for gain in gains if gain.rules[0] == "batch"]
    for each in batches[:1]:
        text += f" With a batch of {each.rules[1]} an item takes {micros(each.left_us)}"
        text += f" ({each.where.backend}, no narrower type)."
    least = "" if measured else "no less than "
    gain = f"{least}{micros(first.left_us)} instead of {micros(first.holds.us)}"
    gain += "".join(
        f", in {each.rules[1].upper()} {least}{micros(each.left_us)}" for each in others
    )
    title = f"Compute in {first.rules[1].upper()}"
    title += f" with {first.where.backend}" if measured else ""
    asked = ((each.rules[1], setting("precision", each.rules[1]).line) for each in others)
    other = (f"# or {name.upper()}: {line}" for name, line in asked)
    command = "\n".join((first.command, *other))
    sure = of_measured(enough=measured)
    return first, Sentence("do", sure, text, title, gain, command)


def where(condition: Condition) -> str:
    """Name a condition at the beginning of a sentence."""
    return "Over all runs" if condition.label == EVERY_RUN else f"At {condition.label}"


def _use(shown: Sequence[Condition]) -> Step | None:
    """Say which backend is fastest in all, where more than one was measured."""
    if not shown:
        return None
    first, second = (shown[0].totals.iloc[place] for place in (0, 1))
    name, now, slowest = str(first["backend"]), second["total"], shown[0].totals["total"].max()
    likely, high = (float(each - first["total"]) for each in (now, slowest))
    chance = _chance(sure_of_totals(shown[0]))
    found = choice(("backend", name), float(now), likely, high, chance)
    if len(shown) == 1:
        text = fastest_text(shown[0])
        gain = f"{micros(found.likely_us)} less than {second['backend']}"
        line = setting("backend", name).line
        said = Sentence("do", sure_of_totals(shown[0]), text, f"Use {name}", gain, line)
        return found, replace(said, at=where(shown[0]), named=True)
    by_wins = wins(shown)
    parts = [f"{name} at {listed(labels, 6)}" for name, labels in by_wins]
    leads = [float(each.totals["total"].iloc[1] / each.totals["total"].iloc[0]) for each in shown]
    text = f"Fastest over all layers: {'; '.join(parts)}."
    gain = f"{min(leads):.2f} to {max(leads):.2f} times as fast as the second"
    sure = sure_of_totals(*shown)
    title = f"Use {by_wins[0][0]}"
    if len(by_wins) > 1:
        title = f"Use {listed(parts, 4)}" if len(shown) == 2 else f"{title} in most cases"
    return found, Sentence("do", sure, text, title, gain)


def _chance(sure: Sure) -> float:
    """Return how probable a choice is that was measured: repeats that lie apart decide."""
    return probability("measured" if sure == "high" else "bound")


def fastest_text(condition: Condition) -> str:
    """Say which backend is fastest over all layers, by how much, and on how many of them."""
    totals = condition.totals[condition.totals["total"].notna()]
    first, second = totals.iloc[0], totals.iloc[1]
    winners = condition.winners
    won = winners[winners["fastest"] == first["backend"]]
    doubtful = int((won["clear"] == 0).sum())
    text = (
        f"{first['backend']} is fastest: {micros(first['total'])} for "
        f"{count(condition.common, condition.noun)} against {micros(second['total'])} for "
        f"{second['backend']} ({multiple(second['total'] / first['total'])}). It is fastest on "
        f"{len(won)} of {count(len(winners), condition.noun)}"
    )
    if doubtful:
        text += f", on {doubtful} of them within the spread of the repeats"
    return text + "."


def _mix(shown: Sequence[Condition]) -> Step | None:
    """Say what the fastest backend of every layer would give, where that gives most."""
    gains = mixed(shown)
    if not gains:
        return None
    share, condition, saved = gains[0]
    fastest, total = str(condition.totals["backend"].iloc[0]), condition.fastest_us
    if not share:
        text = "no other backend gains 1 % on any choice of layers."
        at, title = where(condition), "Keep to one backend"
        if len(gains) > 1:
            at, title = "", "Keep to one backend in each case"
            text = f"Under none of {len(gains)} conditions does another backend gain 1 % on any "
            text += "choice of layers."
        none = choice(("mix",), total, 0.0, 0.0, _chance("high"))
        return none, Sentence(
            "do", "high", text, title, "nothing to gain by mixing", look="none", at=at
        )
    changed = saved[saved > 0]
    winners = condition.winners.set_index("layer")
    clear = float(saved[winners["clear"].reindex(saved.index) == 1].sum())
    sure = of_share(clear, float(saved.sum()))
    medians = condition.times.set_index(["layer", "backend"])["median"]
    layer, best = changed.index[0], winners.loc[changed.index[0], "fastest"]
    times = f"{micros(medians[layer, best])} under {best} instead of "
    times += micros(medians[layer, fastest])
    text = (
        f"the fastest backend of every layer gives "
        f"{micros(total - float(saved.sum()))} instead of {micros(total)}. {len(changed)} of "
        f"{count(condition.common, condition.noun)} change their backend. {layer} saves most: "
        f"{times}. The cost of a change of layout between backends is not counted."
    )
    gain = f"{micros(float(saved.sum()))} less ({percent(share)})"
    found = choice(("mix",), total, float(saved.sum()), float(saved.sum()), _chance(sure))
    title = "Choose the backend layer by layer"
    return found, Sentence("do", sure, text, title, gain, at=where(condition))


def _loss(pairs: Sequence[Pair], *, alone: bool) -> Step | None:
    """Say where a backend loses most, why, and what helps, as `explain` does."""
    found = losses(pairs)
    if not found:
        return None
    _, pair, detail = found[0]
    fix, names = detail.fix, pair.explanation
    do = detail.points.get("do", "") if fix is None else fix.remedy.text
    at = "" if alone or pair.label == EVERY_RUN else f"at {pair.label}, "
    instead = f"Where the kernel cannot be changed, run this layer with {names.baseline}."
    text = " ".join(filter(None, (do, instead, f"Why: {at}{detail.difference}")))
    # the first step says to take the baseline, so this one is for who cannot
    title = f"If you stay with {names.target}, change {detail.layer}"
    rules = tuple(total.term.id for total in detail.causes.totals[:1])
    chance = detail.causes.probability
    if fix is None:
        place = choice(rules, detail.time.target_us, 0.0, 0.0, chance)
        return place, Sentence("do", detail.causes.confidence, text, title, _UNKNOWN)
    place = choice((fix.term.id,), fix.now.us, fix.likely_us, fix.most_us, chance)
    return place, Sentence("do", detail.causes.confidence, text, title, fix.saving())


SURE_RULES = {
    "high": "Time: the repeats of the two do not overlap. Metric: in the top 3 of at least 90 % of "
    f"at least {ENOUGH_RESAMPLES} resamples, and beyond chance. "
    "Model: at most half the error of every baseline.",
    "medium": "Time: a smaller lead. Metric: in the top 3 of at least 60 %, and beyond chance. "
    "Model: better than every baseline. "
    "Cause: another one may come first.",
    "low": "Time: the spread is as large as the difference, or unknown. "
    "Metric: rarely in the top 3, or a p-value above 5 %. Model: no better than a baseline. "
    "A metric has at most the confidence of its models.",
    "caution": "Know this of the data or the models before you use the rest.",
}
"""What the words of confidence mean; printed on the report."""

_MOST_CONDITIONS = 4
_MOST_REASONS = 2


def answer(results: Results) -> Answer:
    """Return the statements of a report, in the order in which a reader wants them."""
    steps = first_steps(results)
    shown = results.conditions
    alone = len(shown) == 1  # whose name stands in the head of the page
    said = [_fastest(condition) for condition in shown[:_MOST_CONDITIONS]]
    if results.account is not None:  # people wait for the clock, not for the sum of kernels
        name = "" if results.ranks is None else f"Rank {results.ranks.last.rank}"
        said = step_sentences(results.account, name)
    if results.phases:
        said = [phase_sentence(results.phases)]
    # of one condition the first step says it already
    said = [*steps, *(each for each in said if each.text not in {step.text for step in steps})]
    if len(shown) > _MOST_CONDITIONS:
        more = count(len(shown) - _MOST_CONDITIONS, "further condition")
        said.append(Sentence("time", "low", f"{more}: see the times below."))
    said += _reasons(results.pairs, alone=alone)
    errors = {each.task: error_sentence(each) for each in results.evaluations}
    scored = {name: each.sure for name, each in errors.items() if each is not None}
    sures = {name: sure for name, sure in scored.items() if sure != "caution"}
    for ranking in results.rankings:
        said += _metrics(ranking, sures.get(ranking.task, "high"))
    said += [error for error in errors.values() if error is not None]
    leaks = dict.fromkeys(each.leakage.warning for each in results.evaluations)
    said += [Sentence("caution", "caution", warning) for warning in leaks if warning]
    # the only condition is named once
    named = 0 if shown[0].label == EVERY_RUN else 1
    said = [each.placed(alone=alone and place >= named) for place, each in enumerate(said)]
    heading = "Do this first" if steps else "The answer, and how sure it is"
    return Answer(heading, tuple(said), SURE_RULES)


def _reasons(pairs: Sequence[Pair], *, alone: bool) -> list[Sentence]:
    """Say the cause of the largest differences, at most `_MOST_REASONS` of them."""
    kept = explained(pairs, _MOST_REASONS)
    reasons = (why_sentence(pair, "" if alone else None) for pair in kept)
    return [reason for reason in reasons if reason is not None]


def _fastest(condition: Condition) -> Sentence:
    """Say who is fastest under one condition, or why that cannot be said."""
    totals = condition.totals[condition.totals["total"].notna()]
    if totals.empty:
        return Sentence("time", "low", "no layer has a time.", at=where(condition))
    if condition.common == 0:
        text = "the backends have no layer in common, so their totals do not compare."
        return Sentence("time", "low", text, at=where(condition))
    if len(totals) > 1:
        text = fastest_text(condition)
        least = sure_of_totals(condition)
        return Sentence("time", least, text, at=where(condition), named=True)
    first, slowest = totals.iloc[0], condition.slowest
    name, unnamed = str(first["backend"]), first["backend"] in UNNAMED.values()
    text = f"{name} takes {micros(first['total'])} for {count(condition.common, condition.noun)}"
    if condition.common > 1 and slowest is not None:
        share = slowest["median"] / condition.times["median"].sum()
        text += f". The slowest, {slowest['layer']}, is {percent(share)} of it"
    sure = of_measured(enough=int(condition.times["repeats"].max()) > 1)
    if unnamed:
        return Sentence("time", sure, f"{text}.", at=where(condition))
    text = f"{text}. Only one backend was measured."
    return Sentence("time", sure, text, at=where(condition), named=True)


def _metrics(ranking: Ranking, limit: Confidence) -> list[Sentence]:
    summary = ranking.summary
    what = ranking.words.target if ranking.words.own else TASKS[ranking.task]
    if not len(summary):
        return []
    best = summary.iloc[0]
    top3 = float(best["p_top3"])
    names = members(best["members"])
    text = f"{names[0]} explains the {what} best"
    chance = ranking.null is not None and names[0] not in ranking.beyond_chance
    sure = of_metric(top3, ranking.resamples, limit, chance=chance)
    if not is_reliable(top3):
        text = f"No metric explains the {what} reliably. The first is {names[0]}"
    if len(names) > 1:
        text += f", interchangeable with {listed(names[1:], 3)}"
    others = [group[0] for group in ranking.tied if group[0] != names[0]]
    if others:
        text += f" (tied with {listed(others, 3)})"
    text += f". It is in the top 3 of {percent(top3)} of the resamples"
    also = [
        f"{members(row['members'])[0]} ({percent(row['p_top3'])})"
        for _, row in summary.iloc[1:3].iterrows()
        if is_named(float(row["p_top3"]))
    ]
    text += f", then {listed(also, 4)}." if also else "."
    if limit == "low":
        text += " The models that say so beat no baseline."
    if chance and ranking.null is not None:
        text = f"No metric is shown to explain the {what} more than chance does."
        if ranking.null.reason or ranking.beyond_chance:
            text = f"The first metric for the {what} is {names[0]}. {ranking.chance}"
    return [Sentence("metric", sure, text)]


def error_sentence(evaluation: Evaluation) -> Sentence | None:
    """Say how far the best model is off on the hardest protocol; None where nothing was scored."""
    scores = best_scores(evaluation)
    if not scores:
        return None
    mine, simple = next(iter(scores.values()))
    hard = not is_random(mine["protocol"])
    random = next((row for name, (row, _) in scores.items() if is_random(name)), None)
    what = evaluation.words.target if evaluation.words.own else TASKS[evaluation.task]
    up = higher_is_better(mine["score"])
    verb = "is right in" if up else "is off by"
    text = f"On {protocol(mine['protocol'])}, the best model of the {what} ({model(mine['model'])})"
    text += f" {verb} {percent(mine['mean'])} on average"
    if random is not None and hard:
        text += f". On a random split it {verb} {percent(random['mean'])}"
    sure: Sure = "low"
    if simple is None:
        text += ". No baseline was scored."
    else:
        sure = of_model(float(mine["mean"]), float(simple["mean"]), higher_is_better=up)
        text += (
            f". The best baseline ({model(simple['model'])}) reaches {percent(simple['mean'])}"
            + (", so no model beats it." if sure == "low" else ".")
        )
    if not hard:
        text += " Unseen layers were not tested."
        sure = "low"
    return Sentence("error", sure, text)
