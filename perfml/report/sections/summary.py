"""The sentences at the top of a report: the answer, and how sure it is.

Every sentence is made from the tables that the report shows further down, and carries a word
for its confidence that follows from a stated rule, never from taste.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from perfml.report.conditions import EVERY_RUN, UNNAMED, Condition, sure_of_totals
from perfml.report.document import Answer, Sentence, Sure
from perfml.report.labels import (
    TASKS,
    is_random,
    listed,
    members,
    model,
    percent,
    protocol,
)
from perfml.report.pairs import explained
from perfml.report.results import (
    ENOUGH_RESAMPLES,
    Pair,
    Results,
    best_scores,
    higher_is_better,
    is_named,
    is_reliable,
    sure_of_metric,
    sure_of_model,
)
from perfml.report.sections.clock import phase_sentence, step_sentences
from perfml.report.sections.explanation import why_sentence
from perfml.report.sections.first import fastest_text, first_steps, where
from perfml.util.words import count, micros

if TYPE_CHECKING:
    from perfml.modeling.results import Evaluation, Ranking

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
    for ranking in results.rankings:
        error = errors.get(ranking.task)
        said += _metrics(ranking, "high" if error is None else error.sure)
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
    sure: Sure = "high" if int(condition.times["repeats"].max()) > 1 else "low"
    if unnamed:
        return Sentence("time", sure, f"{text}.", at=where(condition))
    text = f"{text}. Only one backend was measured."
    return Sentence("time", sure, text, at=where(condition), named=True)


def _metrics(ranking: Ranking, limit: Sure) -> list[Sentence]:
    summary = ranking.summary
    what = ranking.words.target if ranking.words.own else TASKS[ranking.task]
    if not len(summary):
        return []
    best = summary.iloc[0]
    top3 = float(best["p_top3"])
    names = members(best["members"])
    text = f"{names[0]} explains the {what} best"
    sure = sure_of_metric(ranking, limit)
    if not is_reliable(best):
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
        if is_named(row)
    ]
    text += f", then {listed(also)}." if also else "."
    if limit == "low":
        text += " The models that say so beat no baseline."
    if ranking.null is not None and names[0] not in ranking.beyond_chance:
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
        sure = sure_of_model(float(mine["mean"]), float(simple["mean"]), up)
        text += (
            f". The best baseline ({model(simple['model'])}) reaches {percent(simple['mean'])}"
            + (", so no model beats it." if sure == "low" else ".")
        )
    if not hard:
        text += " Unseen layers were not tested."
        sure = "low"
    return Sentence("error", sure, text)
