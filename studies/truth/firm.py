"""Is a firm answer right, and how many right answers are not firm? See `perfml.explain...doubts`.

Run: ``python -m studies.truth.firm --out tests/data/truth/firm.json``; 2 minutes, no GPU.

The answers that count are the frozen first ones to the exams: nobody who wrote causes had seen
those kernels. Of exams whose half *aside* nobody has read, the half *dev* is asked. The rules were
written after these answers had been read, so three more things are asked: the rules and their
limits, chosen on all exams but one and tried on that; today's answers to every recorded set (how
many right ones are hedged); and answers in which one cause has no word, its formula being taken
out, so that something else has to stand first.
"""

from __future__ import annotations

import argparse
import itertools
import math
import operator
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from perfml.explain.counters import refine, resources
from perfml.explain.tree.layer import Match, kernel_causes, layer_matches
from perfml.explain.counters.claims import INSTEAD, Claim
from perfml.explain.counters.doubts import LIMITS, RULES, Limits, doubt_of
from perfml.explain.counters.evidence import Reason, Told
from perfml.explain.counters.factors import Decomposition, Pair
from perfml.explain.counters.rivals import find_rival
from perfml.explain.tree.causes import TERMS, Contribution, Kind, Term
from perfml.explain.launches import changes_between
from perfml.explain.results import Causes
from perfml.kernel_names import kernel_purpose
from studies.truth.fixes import exam_questions
from studies.truth.questions import Question, stranger_questions
from studies.truth.scores import hand_over
from studies.truth.sets import CONFIDENT, SETS
from studies.truth.strangers import ANSWERS, EXAMS, HALVES, READ

ROOMS = (0.5, 0.6, 0.7, 0.8, 0.9)
RIVALS = (0.2, 0.25, 1 / 3, 0.4, 0.5, 0.67)
OTHERS = (0.1, 0.2, 0.3, 0.5)
"""What the limits are chosen from."""
CURVE = (2.0, 0.5, 0.4, 1 / 3, 0.25, 0.2, 0.1)
"""Limits of a rival, from none on: the curve of risk and coverage."""
LEAST_FIRM = 0.85
"""Of the right answers that were confident, so many have to stay firm where limits are chosen."""
MOST_RIGHT = 2
"""A rule is chosen where it hedges at most so many right answers for a wrong one."""
DEV = HALVES[0]

Refinement = Callable[[Decomposition, Pair], None]

_OLD = (Reason.COUNTERS, Reason.READING)
"""What could be told without the rules."""


@dataclass(frozen=True)
class Answered:
    """An answer that is confident without the rules: the first cause is half of the ratio.

    Attributes
    ----------
    case
        The pair.
    right
        Whether the cause stands first.
    claim
        What the rules look at.
    reading
        Whether counting in another unit names another cause (`perfml.explain.counters.rivals`).
    """

    case: str
    right: bool
    claim: Claim
    reading: bool = False

    def firm(self, limits: Limits = LIMITS, rules: Collection[Reason] | None = None) -> bool:
        """Return whether no rule speaks."""
        return not self.reading and doubt_of(self.claim, limits, rules) is None


def asked_of() -> dict[str, str]:
    """Return the exams by what is asked of them: all that has been read."""
    return {name if name in READ else f"{name}, {DEV}": name for name in EXAMS}


def _pairs(exam: str) -> list[Question]:
    """Return the pairs of an exam that somebody has read."""
    left_out = EXAMS[exam].document("decision.json")["left_out"]
    halves = EXAMS[exam].document("halves.json")
    read = {name for half in (HALVES if exam in READ else (DEV,)) for name in halves[half]}
    return [
        each
        for each in exam_questions(EXAMS[exam].dataset)
        if each.case not in left_out and each.case in read
    ]


def first_answers(exam: str) -> list[Answered]:
    """Return the frozen first answers of an exam that were confident, with the launches of it."""
    recording = EXAMS[exam].recordings[0]
    frozen = EXAMS[exam].document(ANSWERS["first"])[recording]
    found = []
    for question in _pairs(exam):
        answer = frozen.get(question.case)
        if answer is None or answer.get("doubt") is not None or not answer["terms"]:
            continue
        along = [(TERMS[each["term"]], float(each["part"])) for each in answer["terms"]]
        if along[0][0].residual or along[0][1] < CONFIDENT:
            continue
        right = along[0][0].id in question.accepted.terms
        found.append(_answered(question, along, right))
    return found


def _answered(question: Question, along: Sequence[tuple[Term, float]], right: bool) -> Answered:
    """Return frozen terms as a claim: of a layer's kernels the largest difference has the first.

    A pair of kernels contributes the difference of its times.
    """
    changes = changes_between(question.before.names, question.after.names)
    matches = layer_matches(changes, question.before, question.after)
    times = [
        [0.0 if side is None else side.time_us for side in (match.before, match.after)]
        for match in matches
    ]
    steps = [after - before for before, after in times]
    before, after = (sum(side) for side in zip(*times, strict=True))
    claim = Claim(along, abs(math.log(after / before)))
    if along[0][0].id in INSTEAD:
        claim = _of_one_side(claim, matches)
    paired = [at for at, match in enumerate(matches) if match.before and match.after]
    if along[0][0].kind is Kind.LAUNCH or not paired:
        return Answered(question.case, right, claim)
    place = max(paired, key=lambda at: steps[at] * math.copysign(1.0, after - before))
    main = matches[place]
    assert main.before is not None
    assert main.after is not None
    sides = sorted((main.before, main.after), key=lambda side: side.time_us)
    everything = sum(map(abs, steps))
    claim = replace(
        claim,
        slower=sides[1],
        faster=sides[0],
        taken=1 - (sides[0].time_us / sides[1].time_us) ** min(along[0][1], 1.0),
        others=1 - abs(steps[place]) / everything if everything > 0 else 0.0,
        guessed=len(matches) > 1
        and kernel_purpose(main.before.kernel) != kernel_purpose(main.after.kernel),
    )
    ratio = math.log(after / before)
    terms = tuple(Contribution(term, math.nan, math.nan, part * ratio) for term, part in along)
    told = Told(main.before, main.after, terms)
    return Answered(question.case, right, claim, find_rival([told], ratio, single=True) is not None)


def _of_one_side(claim: Claim, matches: Sequence[Match]) -> Claim:
    """Return a claim of kernels that one side lacks, with how many more that side launches."""
    sides = (
        [match.before for match in matches if match.before is not None],
        [match.after for match in matches if match.after is not None],
    )
    fewer, more = sorted(sides, key=lambda side: sum(one.time_us for one in side))
    longest = max(more, key=lambda one: one.time_us)
    return replace(claim, lone=longest, more=len(more) - len(fewer))


def counts(
    answers: Sequence[Answered],
    limits: Limits | None = LIMITS,
    rules: Collection[Reason] | None = None,
) -> dict[str, int]:
    """Return how many answers are firm, right and wrong; without limits all are firm."""
    firm = [each for each in answers if limits is None or each.firm(limits, rules)]
    right = sum(each.right for each in firm)
    return {"right": right, "wrong": len(firm) - right}


def chosen_rules(answers: Sequence[Answered]) -> tuple[Reason, ...]:
    """Return the rules that hedge a wrong answer for every `MOST_RIGHT` right ones or fewer."""
    found = []
    for rule in RULES:
        spoken = [each.right for each in answers if doubt_of(each.claim, rules=(rule,)) is not None]
        wrong = len(spoken) - sum(spoken)
        if wrong > 0 and sum(spoken) <= MOST_RIGHT * wrong:
            found.append(rule)
    return tuple(found)


Tally = dict[Limits | None, dict[str, int]]
"""Answers that are firm, right and wrong, under every choice of limits, and without limits."""


def tally(answers: Sequence[Answered]) -> Tally:
    """Count the firm answers under every choice of limits."""
    tried = [
        replace(LIMITS, room=room, rival=rival, others=others)
        for room, rival, others in itertools.product(ROOMS, RIVALS, OTHERS)
    ]
    return {limits: counts(answers, limits) for limits in (None, *tried)}


def chosen(tallies: Sequence[Tally]) -> Limits:
    """Return the limits with the fewest wrong firm answers, then the most right ones."""
    before = sum(each[None]["right"] for each in tallies)
    best, chosen_limits = (math.inf, math.inf, math.inf), LIMITS
    for limits in filter(None, tallies[0]):
        right, wrong = (sum(each[limits][how] for each in tallies) for how in ("right", "wrong"))
        if right < LEAST_FIRM * before:
            continue
        near = sum(
            abs(math.log(value / getattr(LIMITS, name))) for name, value in asdict(limits).items()
        )
        if (wrong, -right, near) < best:
            best, chosen_limits = (wrong, -right, near), limits
    return chosen_limits


def reasons_of(answers: Sequence[Answered]) -> dict[str, dict[str, int]]:
    """Return how many wrong and right answers each rule, the first that speaks, makes hedged."""
    found: dict[str, dict[str, int]] = {}
    for each in answers:
        doubt = doubt_of(each.claim)
        if each.reading or doubt is not None:
            reason = Reason.READING if doubt is None or each.reading else doubt.reason
            mine = found.setdefault(str(reason), {"wrong": 0, "right": 0})
            mine["right" if each.right else "wrong"] += 1
    return found


def today(questions: Sequence[Question]) -> dict[str, int]:
    """Return how today's answers are, firm and not."""
    found = dict.fromkeys(("cases", "first", "wrong", "hedged"), 0)
    for question in questions:
        causes = _causes(question)
        place = _place(question, causes)
        firm = causes.untold is None
        found["cases"] += 1
        found["first"] += place == "right"
        found["wrong"] += place == "wrong" and firm
        found["hedged"] += place == "right" and not firm
    return found


def _causes(question: Question) -> Causes:
    changes = changes_between(question.before.names, question.after.names)
    return kernel_causes(changes, question.before, question.after, same_device=question.comparable)


def _place(question: Question, causes: Causes) -> str:
    """Return whether the first cause is ``right``, ``wrong`` and confident, or neither."""
    towards = [each for each in causes.totals if each.log_ratio * causes.log_ratio > 0]
    first = towards[0] if towards else None
    if first is not None and first.term.id in question.accepted.terms:
        return "right"
    if first is None or first.term.residual or first.term.id in question.accepted.symptoms:
        return "open"
    return "wrong" if first.log_ratio / causes.log_ratio >= CONFIDENT else "open"


@contextmanager
def _without(refinement: Any, work: str | None) -> Iterator[None]:
    """Take out one formula, or the units of one work."""
    kept = refine.REFINEMENTS, resources.RESOURCES
    refine.REFINEMENTS = tuple(each for each in kept[0] if each is not refinement)
    resources.RESOURCES = tuple(each for each in kept[1] if each.work.id != work)
    try:
        yield
    finally:
        refine.REFINEMENTS, resources.RESOURCES = kept


def without_words(questions: Sequence[Question]) -> dict[str, int]:
    """Return how many answers become wrong and confident without one cause, and are hedged.

    Counted where the first cause is another one than with all formulas. What did nothing to an
    answer is not taken out of it: that answer stays.
    """
    found = {"wrong": 0, "told before": 0, "hedged": 0}
    for question in questions:
        usual, acted = _traced(question)
        first = _first(usual)
        outs = [(each, None) for each in refine.REFINEMENTS if each in acted]
        outs += [(None, work) for work in _works(question)]
        for refinement, work in outs:
            with _without(refinement, work):
                causes = _causes(question)
            if _first(causes) == first or _place(question, causes) != "wrong":
                continue
            found["wrong"] += 1
            found["told before"] += causes.untold is not None and causes.untold.reason in _OLD
            found["hedged"] += causes.untold is not None
    return found


def _traced(question: Question) -> tuple[Causes, set[Refinement]]:
    """Return the answer, and the formulas that moved or named anything on the way to it."""
    acted: set[Refinement] = set()

    def watched(refinement: Refinement) -> Refinement:
        def run(decomposition: Decomposition, pair: Pair) -> None:
            before = decomposition.contributions()
            refinement(decomposition, pair)
            after = decomposition.contributions()
            # whatever is named or moved, be it by nothing, is an object of its own
            if len(before) != len(after) or any(map(operator.is_not, before, after)):
                acted.add(refinement)

        return run

    kept = refine.REFINEMENTS
    refine.REFINEMENTS = tuple(map(watched, kept))
    try:
        return _causes(question), acted
    finally:
        refine.REFINEMENTS = kept


def _works(question: Question) -> list[str]:
    """Return the works that a launch of a question could be counted in."""
    changes = changes_between(question.before.names, question.after.names)
    units = [
        unit
        for match in layer_matches(changes, question.before, question.after)
        if match.before is not None and match.after is not None
        for unit in resources.candidate_resources(
            match.before, match.after, same_device=question.comparable
        )
    ]
    return list(dict.fromkeys(unit.work.id for unit in units))


def _first(causes: Causes) -> str:
    towards = [each for each in causes.totals if each.log_ratio * causes.log_ratio > 0]
    return towards[0].term.id if towards else ""


def measure(strangers: Path | None) -> dict[str, Any]:
    """Return what the page shows."""
    answers = {title: first_answers(name) for title, name in asked_of().items()}
    questions = {title: _pairs(name) for title, name in asked_of().items()}
    tallies = {name: tally(mine) for name, mine in answers.items()}
    left_out = {}
    for name in answers:
        others = [each for other in answers if other != name for each in answers[other]]
        limits = chosen([tallies[other] for other in answers if other != name])
        rules = chosen_rules(others)
        left_out[name] = {
            "limits": asdict(limits),
            "rules": list(rules),
            **counts(answers[name], limits, rules),
        }
    sets = {name: questions_of() for name, questions_of in SETS.items()}
    if strangers is not None:
        sets["public reports of strangers"] = stranger_questions(strangers)[0]
    everything = [*questions.values(), *sets.values()]
    return {
        "authors": {
            name: {
                "pairs": len(questions[name]),
                "before": counts(answers[name], None),
                "firm": counts(answers[name]),
                "left out": left_out[name],
            }
            for name in answers
        },
        "curve": [
            {
                "rival": rival,
                **{name: counts(answers[name], replace(LIMITS, rival=rival)) for name in answers},
            }
            for rival in CURVE
        ],
        "reasons": reasons_of([each for mine in answers.values() for each in mine]),
        "still wrong": [
            f"{name}: {each.case}, {each.claim.first.id}"
            for name in answers
            for each in answers[name]
            if not each.right and each.firm()
        ],
        "today": {name: today(mine) for name, mine in {**questions, **sets}.items()},
        "without words": without_words([each for mine in everything for each in mine]),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and write or print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--strangers", type=Path, help="folder with labels.json and the reports")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args(arguments)
    hand_over(measure(given.strangers), given.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
