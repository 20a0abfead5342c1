"""Advice never contradicts an explanation: both are one engine."""

from __future__ import annotations

import pandas as pd
import pytest

from perfml.explain import advise, explain, load_tables, sides_of
from perfml.explain.advice.first_fix import is_about, with_cause
from perfml.explain.tree.causes import TERMS
from tests.support.sampled import sampled

EXAMS = (
    *("h200-strangers", "h200-strangers2", "h200-strangers3", "h200-strangers4"),
    *("h200-strangers5", "h100-strangers6"),
)


def findings(*rows):
    names = ["side", "rules", "confidence"]
    return pd.DataFrame([(side, (cause,), sure) for side, cause, sure in rows], columns=names)


def test_a_finding_about_the_first_cause_stands_first_and_alone_is_firm():
    told = findings(
        ("slow", "special_function_pipe_time", "high"),
        ("slow", "bank_conflicts", "high"),
        ("fast", "dram_bytes", "high"),
    )
    found = with_cause(told, "slow", "high", TERMS["wavefronts_per_shared_load"])
    assert [rules[0] for rules in found["rules"]] == [
        "bank_conflicts",
        "special_function_pipe_time",
        "dram_bytes",
    ]
    assert found["confidence"].tolist() == ["high", "medium", "high"]


@pytest.mark.parametrize(("cause", "sure"), [("high", "high"), ("medium", "medium")])
def test_where_nothing_is_about_the_cause_the_order_stays_and_nothing_is_surer(cause, sure):
    told = findings(("slow", "special_function_pipe_time", sure), ("slow", "bank_conflicts", sure))
    found = with_cause(told, "slow", cause, TERMS["stall_sync"])
    assert found["rules"].tolist() == told["rules"].tolist()
    assert set(found["confidence"]) == {"medium"}
    rest = with_cause(told, "slow", "medium")
    assert set(rest["confidence"]) == {"medium"}


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("name", sampled(EXAMS, 2))
def test_no_recorded_explanation_contradicts_the_advice_on_its_slower_side(name):
    layers, kernels = load_tables(name)
    sides = sides_of(layers, "before", "after", kernels=kernels)
    alone = {side.name: advise(side.layers, kernels=side.kernels).table for side in sides}
    details = explain(*sides, model=None, top=99).details
    assert len(details) >= 15
    against = []
    for detail in details:
        slower = {"slower": sides[1].name, "faster": sides[0].name}.get(detail.time.verdict)
        along = [one for one in detail.causes.totals if one.log_ratio * detail.time.log_ratio > 0]
        if slower is None or not along or along[0].term.residual:
            continue
        first = along[0].term
        own = detail.advice[detail.advice["side"] == slower]
        about = [is_about(rules, first) for rules in own["rules"]]
        assert not any(about) or about[0], detail.layer
        high = [sure == "high" for sure in own["confidence"]]
        assert not any(sure and not same for sure, same in zip(high, about, strict=True))
        table = alone[slower][alone[slower]["layer"] == detail.layer]
        if detail.causes.confidence == "high" and len(table):
            row = table.iloc[0]
            if row["confidence"] == "high" and not is_about(row["rules"], first):
                against.append((detail.layer, first.id, row["rules"]))
    assert against == []
