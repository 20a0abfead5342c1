"""The answer of a report: times under each condition, and sentences as sure as their tables."""

from __future__ import annotations

import dataclasses

import pandas as pd
import pytest

from perfml.report import build_report
from perfml.report.conditions import conditions
from tests.support.report_data import LEAK, evaluation, layers, ranking
from tools import words

pytestmark = pytest.mark.long


def summary_lines(table, **given):
    """Return the answer of a report, a sentence a line."""
    return build_report(table, **given).lines


def sentences(table, **given):
    """Return the sentences of a report's answer."""
    return build_report(table, **given).answer.sentences


def test_conditions_keep_batches_apart_and_name_what_varies():
    found = conditions(layers(batches=(1, 8)))
    assert [each.label for each in found] == ["fp32, batch 1", "fp32, batch 8"]
    one, eight = (each.totals["total"].iloc[0] for each in found)
    assert eight == pytest.approx(8 * one)


def test_conditions_name_the_device_only_where_it_varies():
    two = pd.concat([layers(layers=2), layers(layers=2).assign(device="Other GPU")])
    assert [each.label for each in conditions(two)] == [
        "GPU, fp32, batch 1",
        "Other GPU, fp32, batch 1",
    ]


def test_spread_is_the_range_of_the_repeats_and_unknown_for_a_single_one():
    times = conditions(layers(layers=1, backends=("a",)))[0].times
    assert times[["median", "low", "high"]].iloc[0].tolist() == pytest.approx([5.05, 5.0, 5.1])
    alone = conditions(layers(layers=1, backends=("a",), repeats=1))[0].times
    assert alone[["low", "high"]].isna().all(axis=None)


def test_winner_is_clear_only_when_no_repeat_overlaps():
    table = pd.DataFrame(
        {
            "backend": ["a", "a", "b", "b", "a", "a", "b", "b"],
            "layer": ["x"] * 4 + ["y"] * 4,
            "iteration": [0, 1] * 4,
            "time_us": [1.0, 1.1, 2.0, 2.1, 1.0, 1.9, 1.5, 1.6],
        }
    )
    winners = conditions(table)[0].winners.set_index("layer")
    assert winners["fastest"].tolist() == ["a", "a"]
    assert winners["clear"].tolist() == [1.0, 0.0]


def test_totals_count_only_layers_that_every_backend_ran():
    table = layers(layers=3, backends=("a", "b"))
    table = table[~((table["backend"] == "b") & (table["layer"] == "conv_03"))]
    condition = conditions(table)[0]
    assert condition.common == 2
    assert condition.totals.set_index("backend")["total"]["a"] == pytest.approx(15 * 1.01)


def test_answer_is_open_when_the_repeats_overlap():
    table = pd.DataFrame(
        {
            "backend": ["a", "a", "b", "b"],
            "layer": "x",
            "iteration": [0, 1, 0, 1],
            "time_us": [1.0, 2.0, 1.4, 1.9],
        }
    )
    assert sentences(table)[0].sure == "low"
    table["time_us"] = [1.0, 1.1, 1.4, 1.9]
    assert sentences(table)[0].sure == "high"


def test_answer_says_so_when_only_one_backend_was_measured():
    (line,) = summary_lines(layers(layers=3, backends=("cudnn",)))
    assert line.startswith("At fp32, batch 1, cudnn takes 30.3 µs for 3 layers")
    assert line.endswith("Only one backend was measured.")


def test_metric_sentence_names_the_group_and_its_probability():
    lines = summary_lines(layers(), rankings=[ranking()])
    assert (
        "gld_efficiency explains the time best, interchangeable with shared_efficiency. "
        "It is in the top 3 of 97 % of the resamples, then dram_utilization (50 %)." in lines
    )


def test_a_metric_that_is_seldom_among_the_first_is_not_said_to_explain():
    lines = summary_lines(layers(), rankings=[ranking(p_top3=0.4)])
    assert any(
        "No metric explains the time reliably. The first is gld_eff" in each for each in lines
    )
    assert not any("explains the time best" in each for each in lines)


@pytest.mark.parametrize(("p_top3", "sure"), [(0.95, "high"), (0.7, "medium"), (0.4, "low")])
def test_metric_is_as_sure_as_its_probability(p_top3, sure):
    found = sentences(layers(), rankings=[ranking(p_top3=p_top3)])
    assert [each.sure for each in found if each.about == "metric"] == [sure]


def test_error_sentence_puts_both_protocols_side_by_side_for_one_model():
    lines = summary_lines(layers(), evaluations=[evaluation()])
    assert (
        "On unseen layers, the best model of the time (gradient boosting) is off by 25 % on "
        "average. On a random split it is off by 8.0 %. The best baseline (mean of the backend) "
        "reaches 60 %." in lines
    )
    assert lines[-1] == LEAK


@pytest.mark.parametrize(
    ("unseen", "sure"), [(0.25, "high"), (0.4, "medium"), (0.6, "low"), (0.7, "low")]
)
def test_model_is_as_sure_as_its_lead_over_the_baselines(unseen, sure):
    found = sentences(layers(), evaluations=[evaluation(unseen=unseen, leak=None)])
    assert [each.sure for each in found if each.about == "error"] == [sure]
    assert ("no model beats it" in found[-1].text) == (sure == "low")


def test_metric_is_never_surer_than_the_models_it_comes_from():
    def sure(**given):
        found = sentences(layers(), rankings=[ranking()], **given)
        return next(each for each in found if each.about == "metric")

    assert sure().sure == "high"
    assert sure(evaluations=[evaluation(unseen=0.4)]).sure == "medium"
    beaten = sure(evaluations=[evaluation(unseen=0.7)])
    assert beaten.sure == "low"
    assert beaten.text.endswith("The models that say so beat no baseline.")
    assert sure(evaluations=[evaluation("classification", unseen=0.7)]).sure == "high"


def test_few_resamples_are_never_firm():
    few = dataclasses.replace(ranking(), resamples=4)
    many = dataclasses.replace(ranking(), resamples=50)
    found = sentences(layers(), rankings=[few, many])
    assert [each.sure for each in found if each.about == "metric"] == ["medium", "high"]


def test_headline_is_the_hardest_protocol():
    given = evaluation(leak=None)
    stricter = given.scores[given.scores["protocol"] == "leave-one-layer-out"].copy()
    stricter["protocol"] = "leave-one-shape-out"
    stricter["mean"] += 0.1
    both = dataclasses.replace(given, scores=pd.concat([given.scores, stricter]))
    *_, line = summary_lines(layers(), evaluations=[both])
    assert line.startswith(
        "On unseen shapes, the best model of the time (gradient boosting) is off by 35 %"
    )


def test_random_splits_alone_leave_the_error_open():
    given = evaluation(leak=None)
    scores = given.scores[given.scores["protocol"] == "random"].replace("random", "random:0.2")
    found = sentences(layers(), evaluations=[dataclasses.replace(given, scores=scores)])
    assert found[-1].sure == "low"
    assert found[-1].text.endswith("Unseen layers were not tested.")


def test_classification_counts_what_is_right():
    lines = summary_lines(layers(), evaluations=[evaluation("classification", leak=None)])
    assert (
        "(gradient boosting) is right in 75 % on average. On a random split it is right in 92 %"
        in lines[-1]
    )


def test_sentences_put_together_have_at_most_twenty_words():
    tasks = ("regression", "classification")
    given = {
        "rankings": [ranking(task) for task in tasks] + [ranking(p_top3=0.4)],
        "evaluations": [evaluation(task) for task in tasks],
    }
    for table in (layers(), layers(repeats=1), layers(backends=("a",)), layers(batches=(1, 8))):
        document = build_report(table, **given)
        said = [each.text for each in document.answer.sentences]
        said += [*document.answer.rules.values(), *(each.lead for each in document.sections)]
        assert [words.too_long(each) for each in said] == [[]] * len(said)
