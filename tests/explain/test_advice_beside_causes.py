"""Advice beside an explanation never contradicts it: what is about the first cause stands first."""

from __future__ import annotations

import pandas as pd
import pytest

from perfml.explain import explain, load_tables, sides_of
from perfml.explain.advice.how_sure import with_cause
from perfml.explain.advice.rules import shipped_rules
from perfml.explain.tree.causes import TERMS
from perfml.explain.tree.limits import limits_of

RULES = {rule.id: rule for rule in shipped_rules()}


def findings(*rows):
    names = ["side", "rules", "certainty"]
    return pd.DataFrame([(side, (rule,), sure) for side, rule, sure in rows], columns=names)


def test_a_finding_about_the_first_cause_stands_first_and_alone_is_firm():
    told = findings(
        ("slow", "special_functions", "firm"),
        ("slow", "bank_conflicts", "firm"),
        ("fast", "dram_bound", "firm"),
    )
    found = with_cause(told, "slow", "firm", TERMS["wavefronts_per_shared_load"])
    assert found["rules"].tolist() == [("bank_conflicts",), ("special_functions",), ("dram_bound",)]
    assert found["certainty"].tolist() == ["firm", "likely", "firm"]


def test_where_no_finding_is_about_the_cause_the_order_stays_and_none_is_firm():
    told = findings(("slow", "special_functions", "firm"), ("slow", "bank_conflicts", "firm"))
    found = with_cause(told, "slow", "firm", TERMS["stall_sync"])
    assert found["rules"].tolist() == told["rules"].tolist()
    assert set(found["certainty"]) == {"likely"}


def test_a_rest_orders_nothing():
    told = findings(("slow", "special_functions", "firm"), ("slow", "bank_conflicts", "likely"))
    found = with_cause(told, "slow", "likely")
    assert found["rules"].tolist() == told["rules"].tolist()
    assert set(found["certainty"]) == {"likely"}


@pytest.mark.long
@pytest.mark.parametrize("name", ["h200-strangers5", "h100-strangers6"])
def test_no_recorded_explanation_is_contradicted_by_the_advice_beside_it(name):
    layers, kernels = load_tables(name)
    sides = sides_of(layers, "before", "after", kernels=kernels)
    details = explain(*sides, model=None, top=99).details
    assert len(details) >= 20
    for detail in details:
        slower = {"slower": sides[1].name, "faster": sides[0].name}.get(detail.time.verdict)
        along = [one for one in detail.causes.totals if one.log_ratio * detail.time.log_ratio > 0]
        own = detail.advice[detail.advice["side"] == slower]
        if slower is None or not along or along[0].term.residual or own.empty:
            continue
        about = [
            RULES[rules[0]].term == along[0].term.id
            or bool(limits_of(RULES[rules[0]].term or "") & limits_of(along[0].term.id))
            for rules in own["rules"]
        ]
        assert about[0] or not any(about), detail.layer
        firm = [sure == "firm" for sure in own["certainty"]]
        assert not any(sure and not same for sure, same in zip(firm, about, strict=True))
