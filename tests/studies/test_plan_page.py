"""The page about plans holds what the data give, and a collection that kept its plan."""

from __future__ import annotations

import pandas as pd
import pytest

from collectors.run_spec import metric_names
from perfml.metrics.passes import load_passes
from studies.page_tables import table_on
from studies.plan.page import DATA, PAGE, PLAN3, collected, precisions, proof, transfer

pytestmark = pytest.mark.page

ANEW = "write it anew: python -m studies.plan.page"


@pytest.mark.slow
def test_the_page_tells_what_the_proof_gives_for_one_model():
    made, told = (_cells(each) for each in (proof(models=("dt",)), table_on(PAGE, "proof")))
    assert [row[:5] for row in told if row[0] != "---"] == [row for row in made if row[0] != "---"]


@pytest.mark.slow
def test_the_page_tells_what_a_plan_for_another_precision_gives():
    made, told = (_cells(each) for each in (precisions(["fp16"]), table_on(PAGE, "precisions")))
    assert made[-1] in told, ANEW


def test_the_collection_took_the_passes_that_were_planned():
    known, raw = metric_names([str(DATA / "plan3.txt")])
    assert (known, raw) == (PLAN3, ())
    cost = pd.read_csv(DATA / "cost.csv").groupby("request")
    assert cost["passes"].max().to_dict() == {
        "full": load_passes().estimate(["tex_fu_utilization", *_published()]).passes,
        "plan3": load_passes().estimate(PLAN3).passes,
    }
    seconds = cost["seconds_per_launch"].mean()
    assert 1.4 < seconds["full"] / seconds["plan3"] < 1.6


@pytest.mark.slow
def test_few_metrics_of_a_new_collection_predict_its_times_from_other_layers():
    plan3, _, high = transfer(PLAN3, collected("plan3"), "gbr", seeds=3)
    assert plan3 < high < 0.3
    # metrics of other layers say nothing
    shuffled = collected("plan3")
    shuffled[list(PLAN3)] = shuffled[list(PLAN3)].sample(frac=1, random_state=0).to_numpy()
    assert transfer(PLAN3, shuffled, "gbr", seeds=1)[0] > 2 * plan3


def _cells(table):
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]


def _published():
    from perfml.metrics import PUBLISHED

    return PUBLISHED
