"""What to do first: the three sentences at the top of a report that a person can act on.

Which backend to take, what the fastest backend of every layer would give, and the largest loss
that can be avoided, with its cause and its cure. Each says what it gains and how sure that is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from perfml.explain.advice.answer import Finding, in_order
from perfml.explain.advice.settings import choice, setting
from perfml.explain.confidence import probability
from perfml.report.conditions import EVERY_RUN, Condition, mixed, sure_of_totals, wins
from perfml.report.document import Sentence, Sure
from perfml.report.labels import capital, listed, percent
from perfml.report.pairs import losses
from perfml.report.results import Pair, Results
from perfml.report.sections.advice import finding_steps
from perfml.report.sections.clock import rank_steps
from perfml.report.sections.explanation import all_else, why_sentence
from perfml.util.words import count, ended, factor_text, micros, multiple

if TYPE_CHECKING:
    from perfml.explain.results import Explanation, LayerDiff

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
        first = each.findings[:_STEPS]
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
    sure: Sure = "high" if measured else "low"
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
        title = f"Use {listed(parts)}" if len(shown) == 2 else f"{title} in most cases"
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
    sure: Sure = "high" if clear >= saved.sum() else "medium" if clear >= saved.sum() / 2 else "low"
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
    """Say where a backend loses most against the fastest, why, and what helps."""
    found = losses(pairs)
    if not found:
        return None
    lost, pair, detail = found[0]
    why = why_sentence(pair)
    names = pair.explanation
    at = "" if alone or pair.label == EVERY_RUN else f"at {pair.label}, "
    instead = f"Where the kernel cannot be changed, run this layer with {names.baseline}."
    also = [
        f"{each.explanation.target} {micros(other.time.target_us)}"
        for _, each, other in found
        if each is not pair and each.label == pair.label and other.layer == detail.layer
    ]
    cause, cure = cause_and_cure(detail, names, instead)
    text = (
        f"Why: {at}{names.target} takes {micros(detail.time.target_us)} for {detail.layer}, "
        f"{names.baseline} {micros(detail.time.baseline_us)}"
        + (f" (and {listed(also)})" if also else "")
        + f". {cause}"
    )
    text = " ".join(filter(None, (cure, text)))
    gain = f"up to {micros(lost)} of {micros(names.total.target_us)}: as fast as {names.baseline}"
    sure: Sure = "low" if why is None else why.sure
    # the first step says to take the baseline, so this one is for who cannot
    title = f"If you stay with {names.target}, change {detail.layer}"
    causes = tuple(total.term.id for total in detail.causes.totals[:1])
    place = choice(causes, names.total.target_us, lost, lost, detail.causes.probability)
    return place, Sentence("do", sure, text, title, gain)


def cause_and_cure(detail: LayerDiff, names: Explanation, instead: str = "") -> tuple[str, str]:
    """Say what made a layer differ, in plain words, and what helps if it became slower.

    `instead` is what can be done where the kernel cannot be changed.
    """
    from perfml.explain.tree.sentences import levels_in_words, sided_causes

    causes, _ = sided_causes(detail.time, detail.causes)
    found = [total for total in causes if not total.term.residual]
    if not found:
        known = "Counters of its work were not collected, so why cannot be said."
        if any(pair.resource is not None for pair in detail.causes.pairs):
            known = "No counter says why."
        return known, instead
    first = found[0]
    label, words = first.term.label, levels_in_words(first, detail.causes, names.baseline)
    named = f"{words}: {label}, " if words else f"{label}, "
    if words and first.term.compares:
        named = f"{label}, {words} from {names.baseline} to {names.target}, "
    named += f"{factor_text(first.factor)} in time"
    cause = f"Cause: {named}{all_else(detail, found[:1])}."
    if detail.fix is not None:
        side = f"in {names.baseline}: " if detail.time.verdict == "faster" else ""
        return cause, ended(capital(side + detail.fix.action))
    cure = detail.action(first.term) if detail.time.verdict == "slower" else ""
    return cause, " ".join(filter(None, (cure, instead)))
