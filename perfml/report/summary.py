"""The sentences at the top of a report: the answer, and how sure it is.

Every sentence is made from the tables that the report shows further down, and carries a word
for its certainty that follows from a stated rule, never from taste.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import pandas as pd

from perfml.report._labels import (
    TASKS,
    clean,
    count,
    is_random,
    listed,
    members,
    micros,
    model,
    percent,
    protocol,
)
from perfml.report._times import EVERY_RUN, Condition, conditions

if TYPE_CHECKING:
    from perfml.report._why import Pair

Sure = Literal["firm", "likely", "open", "caution"]

ENOUGH_RESAMPLES = 20
"""Resamples below which a probability of 90 % cannot be told from one of 75 %."""

SURE_RULES = {
    "firm": "no repeat overlaps another backend's; or top 3 in at least 90 % of the resamples; "
    "or a model at least twice as good as every baseline",
    "likely": "a smaller lead than that; or top 3 in at least 60 %; or a cause of which counters "
    "split at least half, with nothing that contradicts it",
    "open": "the spread is as large as the difference, or unknown; or top 3 in less than 60 %; "
    "or no model beats the baselines. A metric is never surer than the models it comes from, and "
    f"never firm on fewer than {ENOUGH_RESAMPLES} resamples",
}
"""What the words of certainty mean; printed on the report."""

_MOST_CONDITIONS = 4
_MOST_REASONS = 2
_ORDER: tuple[Sure, ...] = ("firm", "likely", "open", "caution")


@dataclass(frozen=True)
class Sentence:
    """One statement of the summary.

    Attributes
    ----------
    about
        ``time``, ``why``, ``metric``, ``error`` or ``caution``.
    sure
        How sure it is (`SURE_RULES`).
    text
        The statement.
    """

    about: Literal["time", "why", "metric", "error", "caution"]
    sure: Sure
    text: str


def summary_lines(
    layers: pd.DataFrame,
    *,
    evaluations: Sequence[Any] = (),
    rankings: Sequence[Any] = (),
    pairs: Sequence[Pair] = (),
) -> list[str]:
    """Return the answer in sentences: the fastest backend, the metrics, the error, the cautions.

    Parameters
    ----------
    layers
        A Layers table.
    evaluations, rankings
        Results of `perfml.modeling.evaluate` and `perfml.modeling.rank`.
    pairs
        From `perfml.report.explain_pairs`.

    Raises
    ------
    TableError
        If there are no layers.
    """
    shown = conditions(layers)
    said = sentences(shown, evaluations=evaluations, rankings=rankings, pairs=pairs)
    return [each.text for each in said]


def sentences(
    shown: Sequence[Condition],
    *,
    evaluations: Sequence[Any] = (),
    rankings: Sequence[Any] = (),
    pairs: Sequence[Pair] = (),
) -> list[Sentence]:
    """Return the statements of a report, in the order in which a reader wants them."""
    found = [_fastest(condition) for condition in shown[:_MOST_CONDITIONS]]
    if len(shown) > _MOST_CONDITIONS:
        more = count(len(shown) - _MOST_CONDITIONS, "further condition")
        found.append(Sentence("time", "open", f"{more}: see the times below."))
    found += _reasons(pairs)
    errors = [(str(each.task), _errors(each)) for each in evaluations]
    limits = {task: said[0].sure for task, said in errors if said}
    for ranking in rankings:
        found += _metrics(ranking, limits.get(str(ranking.task), "firm"))
    found += [each for _, said in errors for each in said]
    cautions = dict.fromkeys(
        clean(warning, 600) for evaluation in evaluations for warning in _leaks(evaluation)
    )
    return found + [Sentence("caution", "caution", text) for text in cautions]


def _reasons(pairs: Sequence[Pair]) -> list[Sentence]:
    """Say the cause of the largest differences, at most `_MOST_REASONS` of them."""
    from perfml.report._why import why_sentence

    said = [why_sentence(each) for each in pairs]
    largest = sorted(
        (place for place, each in enumerate(said) if each is not None),
        key=lambda place: -_difference(pairs[place]),
    )
    found = []
    for place in sorted(largest[:_MOST_REASONS]):
        text, likely = said[place] or ("", False)
        found.append(Sentence("why", "likely" if likely else "open", text))
    return found


def _difference(pair: Pair) -> float:
    time = pair.explanation.details[0].time
    return abs(float(time.target_us - time.baseline_us))


def _fastest(condition: Condition) -> Sentence:
    where = "Over all runs" if condition.label == EVERY_RUN else f"At {condition.label}"
    totals = condition.totals[condition.totals["total"].notna()]
    if totals.empty:
        return Sentence("time", "open", f"{where}, no layer has a time.")
    first = totals.iloc[0]
    repeats = int(condition.times["repeats"].max())
    if condition.common == 0:
        text = f"{where}, the backends have no layer in common, so their totals do not compare."
        return Sentence("time", "open", text)
    if len(totals) == 1:
        only = condition.times[condition.times["median"].notna()]
        slowest = only.nlargest(1, "median").iloc[0]
        text = (
            f"{where}, {first['backend']} takes {micros(first['total'])} for "
            f"{count(condition.common, 'layer')}"
        )
        if condition.common > 1:
            share = slowest["median"] / only["median"].sum()
            text += f"; the slowest, {slowest['layer']}, is {percent(share)} of it"
        sure: Sure = "firm" if repeats > 1 else "open"
        return Sentence("time", sure, f"{text}. Only one backend was measured.")
    second = totals.iloc[1]
    ratio = second["total"] / first["total"]
    winners = condition.winners
    won = winners[winners["fastest"] == first["backend"]]
    doubtful = int((won["clear"] == 0).sum())
    text = (
        f"{where}, {first['backend']} is fastest: {micros(first['total'])} for "
        f"{count(condition.common, 'layer')} against {micros(second['total'])} for "
        f"{second['backend']} ({ratio:.2f}×), and fastest on {len(won)} of "
        f"{count(len(winners), 'layer')}"
    )
    if doubtful:
        text += f", {doubtful} of them within the spread of the repeats"
    return Sentence("time", _sure_of_totals(first, totals), text + ".")


def _sure_of_totals(first: pd.Series, totals: pd.DataFrame) -> Sure:
    lows = totals["low"].iloc[1:]
    if math.isnan(first["high"]) or bool(lows.isna().any()):
        return "open"
    if first["high"] < lows.min():
        return "firm"
    return "likely" if first["total"] < lows.min() else "open"


def _metrics(ranking: Any, limit: Sure) -> list[Sentence]:
    summary: pd.DataFrame = ranking.summary
    what = TASKS.get(str(ranking.task), clean(ranking.task, 40))
    if not len(summary):
        return []
    best = summary.iloc[0]
    top3 = float(best["p_top3"])
    names = members(best["members"])
    text = f"The {what} is explained best by {names[0]}"
    if len(names) > 1:
        text += f", interchangeable with {listed(names[1:], 3)}"
    text += f": among the first three in {percent(top3)} of the resamples"
    also = [
        f"{members(row['members'])[0]} ({percent(row['p_top3'])})"
        for _, row in summary.iloc[1:3].iterrows()
        if row["p_top3"] >= 0.3
    ]
    text += f"; then {listed(also)}." if also else "."
    if top3 < 0.6:
        text += " No metric is among the first three reliably."
    if limit == "open":
        text += " The models that say so beat no baseline."
    sure: Sure = "firm" if top3 >= 0.9 else "likely" if top3 >= 0.6 else "open"
    resamples = getattr(ranking, "resamples", 0)
    if sure == "firm" and 0 < resamples < ENOUGH_RESAMPLES:
        sure = "likely"
    return [Sentence("metric", max(sure, limit, key=_ORDER.index), text)]


def best_scores(evaluation: Any) -> dict[str, tuple[pd.Series, pd.Series | None]]:
    """Return each protocol's row of the best model, and of the best baseline (or None).

    The best model is chosen once, on the hardest protocol there is: of those that hold out whole
    layers (or more) the one on which even the best model is worst. The same model is shown under
    every protocol, the hardest first.
    """
    scores: pd.DataFrame = evaluation.scores
    if scores.empty:
        return {}
    scores = scores[scores["mean"].notna()]
    baseline = scores["baseline"].astype(bool)
    models, baselines = scores[~baseline], scores[baseline]
    names = list(dict.fromkeys(scores["protocol"]))
    best = {name: _best(part) for name, part in models.groupby("protocol", sort=False)}
    if not best:
        return {}
    up = higher_is_better(scores["score"].iloc[0])
    # of those that are not random, the worst score of a best model
    names.sort(key=lambda name: (is_random(name), _hardness(best.get(name), up)))
    chosen = best[next(name for name in names if name in best)]["model"]
    found: dict[str, tuple[pd.Series, pd.Series | None]] = {}
    for name in names:
        mine = models[(models["protocol"] == name) & (models["model"] == chosen)]
        simple = baselines[baselines["protocol"] == name]
        if len(mine):
            found[str(name)] = (mine.iloc[0], _best(simple) if len(simple) else None)
    return found


def higher_is_better(score: object) -> bool:
    """Return whether a larger score is the better one (accuracy), or a smaller one (an error)."""
    return str(score) == "accuracy"


def _hardness(best: pd.Series | None, up: bool) -> float:
    if best is None:
        return math.inf
    return float(best["mean"]) if up else -float(best["mean"])


def _best(rows: pd.DataFrame) -> pd.Series:
    up = higher_is_better(rows["score"].iloc[0])
    return rows.sort_values("mean", ascending=not up, kind="stable").iloc[0]


def _errors(evaluation: Any) -> list[Sentence]:
    scores = best_scores(evaluation)
    if not scores:
        return []
    mine, simple = next(iter(scores.values()))
    hard = not is_random(mine["protocol"])
    random = next((row for name, (row, _) in scores.items() if is_random(name)), None)
    what = TASKS.get(str(evaluation.task), clean(evaluation.task, 40))
    up = higher_is_better(mine["score"])
    verb = "is right in" if up else "is off by"
    text = f"On {protocol(mine['protocol'])}, the best model of the {what} ({model(mine['model'])})"
    text += f" {verb} {percent(mine['mean'])} on average"
    if random is not None and hard:
        text += f"; on a random split {'in' if up else 'by'} {percent(random['mean'])}"
    sure: Sure = "open"
    if simple is None:
        text += ". No baseline was scored."
    else:
        sure = _sure_of_model(float(mine["mean"]), float(simple["mean"]), up)
        text += (
            f". The best baseline ({model(simple['model'])}) reaches {percent(simple['mean'])}"
            + (", so no model beats it." if sure == "open" else ".")
        )
    if not hard:
        text += " Unseen layers were not tested."
        sure = "open"
    return [Sentence("error", sure, text)]


def _sure_of_model(mine: float, simple: float, up: bool) -> Sure:
    wrong, baseline = (1 - mine, 1 - simple) if up else (mine, simple)
    if not wrong < baseline:
        return "open"
    return "firm" if wrong <= baseline / 2 else "likely"


def _leaks(evaluation: Any) -> list[str]:
    leakage = getattr(evaluation, "leakage", None)
    warning = getattr(leakage, "warning", None)
    return [str(warning)] if warning else []
