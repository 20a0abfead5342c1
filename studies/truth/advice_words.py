"""Are firm findings of advice right on kernels that nobody had read? Exams are left out one by one.

Run: ``python -m studies.truth.advice_words``; a minute, no GPU. Each frozen first answer to an exam
has a first finding, right or wrong, by the rules of that day. What today's words make of it is told
by today's gain and level of its rule, which may have changed since (where the rule does not hold
any more, it is open). The limits were chosen in sight of all of them, so they are chosen again for
each exam, on the others: of those under which `RIGHT` of the firm ones are right, the ones with
most of these. Of an exam whose half *aside* nobody has read, the half *dev* is asked.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from perfml.explain.advice.findings import of_launches, of_layers
from perfml.explain.advice.how_sure import LIMITS, Limits, certainty_of
from perfml.explain.advice.inputs import InputValues
from perfml.explain.advice.layer_inputs import layer_table
from perfml.explain.advice.representative import representative_launches
from perfml.explain.advice.rules import Rule, shipped_rules
from perfml.explain.certainty import IN_WORDS
from studies.page_tables import markdown
from studies.truth.strangers import ANSWERS, EXAMS, HALVES, READ, score

RIGHT = 0.95
LEVELS = (0.7, 0.8, 0.9, 0.95)
LARGE = (0.15, 0.2, 0.25, 0.3, 0.35, 0.4)
MOST = (0.3, 0.4, 0.5, 0.6)
"""What the limits are chosen from."""


@dataclass(frozen=True)
class First:
    """The first finding of a frozen answer.

    Attributes
    ----------
    right
        Whether it was what the label says.
    rule
        Its first rule.
    gain, level
        Of that rule today.
    """

    right: bool
    rule: Rule
    gain: float
    level: float

    def word(self, limits: Limits = LIMITS) -> str:
        """Return how sure it is."""
        return certainty_of(self.rule, self.gain, self.level, limits)


def first_findings(name: str) -> list[First]:
    """Return the first findings of the frozen first answer to what has been read of an exam."""
    exam, book = EXAMS[name], {rule.id: rule for rule in shipped_rules()}
    cases = exam.document("accepted.json")["cases"]
    left_out = exam.document("decision.json")["left_out"]
    answers = exam.document(ANSWERS["first"])[exam.recordings[0]]
    halves = HALVES if name in READ else HALVES[:1]
    asked = [case for half in halves for case in exam.document("halves.json")[half]]
    launches = {side.name: side.kernels for side in exam.sides(exam.recordings[0])}
    found = []
    for case in asked:
        if case in left_out or cases.get(case) is None or not answers[case]["advice"]:
            continue
        slow = _slower(launches, case)
        rule = book[answers[case]["advice"][0]["rules"][0]]
        right = score(answers[case], cases[case]).advised > 0
        found.append(First(right, rule, *_today(rule, slow)))
    return found


def _slower(launches: Mapping[str, pd.DataFrame | None], case: str) -> pd.DataFrame:
    sides = [each[each["layer"] == case] for each in launches.values() if each is not None]
    return max(
        (representative_launches(each) for each in sides), key=lambda each: each["time_us"].sum()
    )


def _today(rule: Rule, launches: pd.DataFrame) -> tuple[float, float]:
    """Return the largest gain of a rule, with its level; a gain of 0 where it does not hold."""
    if rule.scope == "layer":
        found = of_layers(rule, launches, layer_table(launches, shipped_rules()))
    else:
        found = of_launches(rule, InputValues(launches, None), merged=False)
    most = max(
        found, key=lambda each: float(each["gain"]), default={"gain": 0.0, "level": math.nan}
    )
    return float(most["gain"]), float(most["level"])


def chosen(others: Sequence[First]) -> Limits:
    """Return the limits with most right firm findings, `RIGHT` of all firm ones being right."""
    best, limits = -1, LIMITS
    for tried in itertools.starmap(Limits, itertools.product(LEVELS, LARGE, MOST)):
        right, wrong = counts(others, "firm", tried)
        if right > best and right >= RIGHT * (right + wrong):
            best, limits = right, tried
    return limits


def counts(findings: Sequence[First], word: str, limits: Limits = LIMITS) -> tuple[int, int]:
    """Return how many findings of a word are right, and wrong."""
    said = [each.right for each in findings if each.word(limits) == word]
    return sum(said), len(said) - sum(said)


def table(findings: Mapping[str, Sequence[First]]) -> str:
    """Return the counts of each exam, for the page."""
    rows, left_out = [], (0, 0)
    for name, mine in findings.items():
        others = [each for other, some in findings.items() if other != name for each in some]
        alone = counts(mine, "firm", chosen(others))
        left_out = (left_out[0] + alone[0], left_out[1] + alone[1])
        rows.append([name, *(_of(counts(mine, word)) for word in IN_WORDS), _of(alone)])
    every = [each for some in findings.values() for each in some]
    rows.append(["all", *(_of(counts(every, word)) for word in IN_WORDS), _of(left_out)])
    return markdown(["exam, first answer", *IN_WORDS, "firm by limits of the others"], rows)


def _of(each: tuple[int, int]) -> str:
    right, wrong = each
    return f"{right} of {right + wrong}" if right + wrong else "-"


def main() -> int:
    """Print the table."""
    print(table({name: first_findings(name) for name in EXAMS}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
