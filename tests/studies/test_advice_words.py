"""Whether firm advice is right where the exam is left out that its limits were chosen on."""

from __future__ import annotations

from perfml.explain.advice.how_sure import Limits
from perfml.explain.advice.rules import shipped_rules
from studies.truth.advice_words import First, chosen, counts, table

FULL = {rule.id: rule for rule in shipped_rules()}["dram_bound"]


def some(right, wrong, *, gain, level):
    return [First(each < right, FULL, gain, level) for each in range(right + wrong)]


def test_the_limits_keep_most_right_findings_and_hardly_a_wrong_one():
    shown = some(10, 0, gain=0.22, level=0.92) + some(3, 9, gain=0.22, level=0.75)
    limits = chosen(shown)
    assert counts(shown, "firm", limits) == (10, 0)
    assert limits.level > 0.75
    assert limits.large <= 0.22


def test_an_exam_is_judged_by_the_limits_of_the_others():
    loose, strict = some(20, 0, gain=0.16, level=0.72), some(0, 4, gain=0.16, level=0.72)
    assert counts(strict, "firm", Limits()) == (0, 0)
    said = table({"one": loose, "other": strict}).splitlines()
    assert said[3].startswith("| other | - | 0 of 4 | - | 0 of 4 |")
    assert "| one | - | 20 of 20 | - | - |" in said[2]
