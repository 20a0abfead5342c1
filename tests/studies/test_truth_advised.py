"""Advice on the newer planted families: how a case is counted, and what the page says."""

from __future__ import annotations

import pytest

from studies.truth import advised
from studies.truth.labels import retired_rules
from studies.truth.page import PAGE, measured_advice, part
from studies.workloads.planted.families import BY_NAME

ANEW = "python -m studies.truth.advised --out tests/data/truth/advised.json"


def row(**other):
    plain = {"family": "spills", "level": "level_1", "slow": True, "first": True, "named": True}
    plain["confidence"] = "high"
    return {**plain, **other}


def test_only_slow_cases_count_and_a_finding_at_the_base_is_an_alarm():
    found = advised.summary(
        [
            row(),
            row(first=False, family="tiny_blocks"),
            row(slow=False),
            row(level="base", slow=False),
            row(level="base", slow=False, named=False),
        ]
    )
    assert (found["cases"], found["first"], found["named"]) == (2, 1, 2)
    assert (found["bases"], found["alarms"], found["missed"]) == (2, 1, ["tiny_blocks"])
    assert found["confidence"] == {"high": [1, 1], "medium": [0, 0], "low": [0, 0]}


def test_every_family_that_is_slow_somewhere_has_a_rule_that_exists():
    assert set().union(*advised.RULES.values()) <= set(retired_rules())
    assert set(advised.RULES) <= set(BY_NAME)


def test_the_page_has_what_was_measured_and_the_goal_is_met():
    for name, each in measured_advice().items():
        assert each["first"] >= 0.7 * each["cases"], name
        assert part(each["first"], each["cases"]) in PAGE.read_text(encoding="utf-8")


@pytest.mark.slow
def test_advice_on_the_recorded_families_is_as_the_page_says():
    rows = advised.cases(advised.SETS["H200"])
    kept = measured_advice()
    for name, aside in (
        ("18 newer families, H200", False),
        ("six families kept aside, H200", True),
    ):
        found = advised.summary([each for each in rows if each["held_out"] == aside])
        assert found == kept[name], ANEW
