"""What to do first: the three sentences at the top of a report that a person can act on.

Which backend to take, what the fastest backend of every layer would give, and the largest loss
that can be avoided, with its cause and its cure. Each says what it gains and how sure that is.
"""

from __future__ import annotations

import math
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
from perfml.explain.results import points_of
from perfml.report.conditions import EVERY_RUN, UNNAMED, Condition, mixed, sure_of_totals, wins
from perfml.report.document import Answer, Sentence, Sure
from perfml.report.labels import TASKS, is_random, members, model, protocol
from perfml.report.pairs import explained, losses
from perfml.report.results import (
    Pair,
    Results,
    best_scores,
    higher_is_better,
)
from perfml.report.sections.advice import finding_steps
from perfml.report.sections.clock import phase_sentence, rank_steps, step_sentences
from perfml.report.sections.explanation import difference, why_sentence
from perfml.util.words import count, percent, say

if TYPE_CHECKING:
    import pandas as pd

    from perfml.modeling.results import Evaluation, Ranking

Step = tuple[Finding, Sentence]
"""What is known of a thing to do, and how the page says it."""

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
        key = several[0].key["precision"]
        title = say("report.first.stay_use", key=key, name=use[0].rules[-1])
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
    costs = ". ".join(say("report.first.cost", one=one) for one in (first, *others))
    bound = say(f"report.first.{'measured' if measured else 'bound'}")
    batches = [gain for gain in gains if gain.rules[0] == "batch"]
    batch = "".join(say("report.first.batch", one=one) for one in batches[:1])
    text = say("report.first.accuracy", costs=costs, bound=bound, batch=batch)
    least = "" if measured else say("report.first.least")
    also = "".join(say("report.first.also", one=one, least=least) for one in others)
    gain = say("report.first.instead", one=first, least=least, also=also)
    title = say("report.first.compute", one=first)
    asked = ((one, setting("precision", one.rules[1]).line) for one in others)
    other = (say("report.first.or", one=one, line=line) for one, line in asked)
    command = "\n".join((first.command, *other))
    sure = of_measured(enough=measured)
    return first, Sentence("do", sure, text, title, gain, command)


def where(condition: Condition) -> str:
    """Name a condition at the beginning of a sentence."""
    everywhere = condition.label == EVERY_RUN
    return say(f"report.first.{'everywhere' if everywhere else 'at'}", label=condition.label)


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
        gain = say("report.first.less", us=found.likely_us, than=second["backend"])
        line, title = setting("backend", name).line, say("report.first.use", name=name)
        said = Sentence("do", sure_of_totals(shown[0]), text, title, gain, line)
        return found, replace(said, at=where(shown[0]), named=True)
    by_wins = wins(shown)
    parts = [say("report.first.wins", name=one, labels=labels) for one, labels in by_wins]
    leads = [float(each.totals["total"].iloc[1] / each.totals["total"].iloc[0]) for each in shown]
    text = say("report.first.fastest_at", parts="; ".join(parts))
    gain = say("report.first.leads", low=min(leads), high=max(leads))
    sure = sure_of_totals(*shown)
    # of two conditions all parts fit into a title
    row = "use" if len(by_wins) == 1 else "use_parts" if len(shown) == 2 else "use_most"
    title = say(f"report.first.{row}", name=by_wins[0][0], parts=parts)
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
    return say(
        "report.first.fastest",
        first=first,
        second=second,
        ratio=second["total"] / first["total"],
        common=count(condition.common, condition.noun),
        won=len(won),
        layers=count(len(winners), condition.noun),
        doubtful=doubtful or None,
    )


def _mix(shown: Sequence[Condition]) -> Step | None:
    """Say what the fastest backend of every layer would give, where that gives most."""
    gains = mixed(shown)
    if not gains:
        return None
    share, condition, saved = gains[0]
    fastest, total = str(condition.totals["backend"].iloc[0]), condition.fastest_us
    if not share:
        several = len(gains) > 1
        row = "none_of" if several else "none"
        text = say(f"report.first.{row}", conditions=len(gains))
        at, title = "" if several else where(condition), say(f"report.first.{row}_title")
        none = choice(("mix",), total, 0.0, 0.0, _chance("high"))
        gain = say("report.first.nothing")
        return none, Sentence("do", "high", text, title, gain, look="none", at=at)
    changed = saved[saved > 0]
    winners = condition.winners.set_index("layer")
    clear = float(saved[winners["clear"].reindex(saved.index) == 1].sum())
    sure = of_share(clear, float(saved.sum()))
    medians = condition.times.set_index(["layer", "backend"])["median"]
    layer, best = changed.index[0], winners.loc[changed.index[0], "fastest"]
    us = float(saved.sum())
    text = say(
        "report.first.mix",
        left=total - us,
        total=total,
        changed=len(changed),
        common=count(condition.common, condition.noun),
        layer=layer,
        times=(medians[layer, best], medians[layer, fastest]),
        best=best,
    )
    gain = say("report.first.mix_gain", us=us, share=percent(share))
    found = choice(("mix",), total, us, us, _chance(sure))
    title = say("report.first.mix_title")
    return found, Sentence("do", sure, text, title, gain, at=where(condition))


def _loss(pairs: Sequence[Pair], *, alone: bool) -> Step | None:
    """Say where a backend loses most, why, and what helps, as `explain` does."""
    found = losses(pairs)
    if not found:
        return None
    _, pair, detail = found[0]
    fix, names = detail.fix, pair.explanation
    do = points_of(detail).get("do", "") if fix is None else fix.remedy.text
    at = "" if alone or pair.label == EVERY_RUN else pair.label
    text = say("report.first.loss", do=do, names=names, at=at, why=difference(detail))
    # the first step says to take the baseline, so this one is for who cannot
    title = say("report.first.stay", target=names.target, change=detail.layer)
    rules = tuple(total.term.id for total in detail.causes.totals[:1])
    chance = detail.causes.probability
    if fix is None:
        place = choice(rules, detail.time.target_us, 0.0, 0.0, chance)
        return place, Sentence(
            "do", detail.causes.confidence, text, title, say("report.first.unknown")
        )
    place = choice((fix.term.id,), fix.now.us, fix.likely_us, fix.most_us, chance)
    return place, Sentence("do", detail.causes.confidence, text, title, fix.saving())


SURE_RULES = {
    name: say(f"report.sure.{name}", resamples=ENOUGH_RESAMPLES)
    for name in ("high", "medium", "low", "caution")
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
        ranks = results.ranks
        name = "" if ranks is None else say("report.first.rank", rank=ranks.last.rank)
        said = step_sentences(results.account, name)
    if results.phases:
        said = [phase_sentence(results.phases)]
    # of one condition the first step says it already
    said = [*steps, *(each for each in said if each.text not in {step.text for step in steps})]
    if len(shown) > _MOST_CONDITIONS:
        more = count(len(shown) - _MOST_CONDITIONS, "further condition")
        said.append(Sentence("time", "low", say("report.first.below", more=more)))
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
    heading = say(f"report.first.{'heading' if steps else 'answer'}")
    return Answer(heading, tuple(said), SURE_RULES)


def _reasons(pairs: Sequence[Pair], *, alone: bool) -> list[Sentence]:
    """Say the cause of the largest differences, at most `_MOST_REASONS` of them."""
    kept = explained(pairs, _MOST_REASONS)
    reasons = (why_sentence(pair, "" if alone else None) for pair in kept)
    return [reason for reason in reasons if reason is not None]


def _fastest(condition: Condition) -> Sentence:
    """Say who is fastest under one condition, or why that cannot be said."""
    totals = condition.totals[condition.totals["total"].notna()]
    if totals.empty or condition.common == 0:
        text = say(f"report.first.{'no_time' if totals.empty else 'no_common'}")
        return Sentence("time", "low", text, at=where(condition))
    if len(totals) > 1:
        text = fastest_text(condition)
        least = sure_of_totals(condition)
        return Sentence("time", least, text, at=where(condition), named=True)
    first, slowest = totals.iloc[0], condition.slowest
    name, unnamed = str(first["backend"]), first["backend"] in UNNAMED.values()
    named = slowest if condition.common > 1 and slowest is not None else {}
    share = named.get("median", math.nan) / condition.times["median"].sum()
    text = say(
        "report.first.one_backend",
        name=name,
        us=first["total"],
        common=count(condition.common, condition.noun),
        slowest=named.get("layer"),
        share=percent(share),
        alone="" if unnamed else say("report.first.alone"),
    )
    sure = of_measured(enough=int(condition.times["repeats"].max()) > 1)
    return Sentence("time", sure, text, at=where(condition), named=not unnamed)


def _metrics(ranking: Ranking, limit: Confidence) -> list[Sentence]:
    summary = ranking.summary
    what = ranking.words.target if ranking.words.own else TASKS[ranking.task]
    if not len(summary):
        return []
    best = summary.iloc[0]
    top3 = float(best["p_top3"])
    names = members(best["members"])
    chance = ranking.null is not None and names[0] not in ranking.beyond_chance
    sure = of_metric(top3, ranking.resamples, limit, chance=chance)
    also = [
        say("report.metric.share", name=members(row["members"])[0], share=percent(row["p_top3"]))
        for _, row in summary.iloc[1:3].iterrows()
        if is_named(float(row["p_top3"]))
    ]
    row = "best" if is_reliable(top3) else "first"
    text = say(
        "report.metric.explains",
        best=say(f"report.metric.{row}", what=what, name=names[0]),
        same=names[1:],
        tied=[group[0] for group in ranking.tied if group[0] != names[0]],
        share=percent(top3),
        also=also,
        limit=say("report.metric.beaten") if limit == "low" else "",
    )
    if chance and ranking.null is not None:
        known = ranking.null.reason or ranking.beyond_chance
        row = "by_chance" if known else "no_more"
        text = say(f"report.metric.{row}", what=what, name=names[0], chance=ranking.chance)
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
    verb = say(f"report.error.{'right' if up else 'off'}")
    sure: Sure = "low"
    if simple is not None:
        sure = of_model(float(mine["mean"]), float(simple["mean"]), higher_is_better=up)
    text = say(
        "report.error.model",
        protocol=protocol(mine["protocol"]),
        what=what,
        model=model(mine["model"]),
        verb=verb,
        mean=percent(mine["mean"]),
        random=percent(random["mean"]) if random is not None and hard else "",
        baseline=_baseline(simple, beaten=sure != "low"),
        seen="" if hard else say("report.error.seen"),
    )
    sure = sure if hard else "low"
    return Sentence("error", sure, text)


def _baseline(simple: pd.Series | None, *, beaten: bool) -> str:
    if simple is None:
        return say("report.error.unscored")
    row = "beaten" if beaten else "unbeaten"
    return say(f"report.error.{row}", model=model(simple["model"]), mean=percent(simple["mean"]))
