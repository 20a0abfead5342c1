"""The top of a report: what to do first, what it gains, and the words that it uses."""

import dataclasses
import html
import re

import pandas as pd
import pytest

from perfml.explain.results import points_of
from perfml.report import build_report, to_html, to_markdown
from perfml.report.build import build_comparison
from perfml.report.labels import CAUSES, WORDS, entries
from perfml.report.pairs import advise_conditions, explain_pairs
from perfml.report.sections.explanation import difference
from tests.support.report_data import kernels, layers

pytestmark = pytest.mark.long


def table_of(times, repeats=3, scatter=0.001):
    """Return layers whose times are given by backend; the repeats lie close together."""
    rows = [
        {
            "backend": backend,
            "layer": layer,
            "iteration": iteration,
            "run_id": backend,
            "time_us": time * (1 + scatter * iteration),
        }
        for backend, by_layer in times.items()
        for layer, time in by_layer.items()
        for iteration in range(repeats)
    ]
    return pd.DataFrame(rows)


@pytest.fixture(scope="module")
def pairs():
    """Explain the test table without a model."""
    return explain_pairs(layers(), kernels(), model=None)


TWO = {"a": {"x": 10.0, "y": 30.0}, "b": {"x": 60.0, "y": 20.0}}


def test_the_fastest_backend_comes_first_then_the_choice_by_layer():
    use, mix = build_report(table_of(TWO)).answer.first
    assert (use.title, use.sure, use.gain) == ("Use a", "high", "40.0 µs less than b")
    assert mix.title == "Choose the backend layer by layer"
    assert (mix.sure, mix.gain) == ("high", "10.0 µs less (25 %)")
    assert "gives 30.0 µs instead of 40.0 µs. 1 of 2 layers" in mix.text
    assert "y saves most: 20.0 µs under b instead of 30.0 µs." in mix.text


def test_one_repeat_is_enough_to_name_the_fastest_and_too_few_to_be_sure():
    use, mix = build_report(table_of(TWO, repeats=1)).answer.first
    assert (use.title, use.sure, use.gain) == ("Use a", "low", "40.0 µs less than b")
    assert (mix.title, mix.sure) == ("Choose the backend layer by layer", "low")


def test_of_one_layer_there_is_no_choice_by_layer():
    (use,) = build_report(table_of({"a": {"x": 10.0}, "b": {"x": 60.0}})).answer.first
    assert use.title == "Use a"


def test_a_choice_within_the_scatter_is_open():
    _, mix = build_report(table_of(TWO, scatter=0.4)).answer.first
    assert mix.sure == "low"


def test_the_only_condition_is_named_once():
    table = table_of(TWO).assign(precision="fp32", batch=1)
    texts = [each.text for each in build_report(table).answer.sentences]
    assert texts[0].startswith("At fp32, batch 1, a is fastest")
    assert texts[1].startswith("The fastest backend of every layer gives 30.0 µs")
    assert not any("fp32" in text for text in texts[1:])
    both = pd.concat([table, table.assign(batch=8)])
    texts = [each.text for each in build_report(both).answer.sentences]
    assert sum("batch 8" in text for text in texts) > 1


def test_where_no_mix_helps_that_is_said():
    same = {"a": {"x": 10.0, "y": 30.0}, "b": {"x": 60.0, "y": 40.0}}
    _, mix = build_report(table_of(same)).answer.first
    assert mix.title == "Keep to one backend"


def test_the_largest_loss_has_its_cause_and_its_cure(pairs):
    document = build_report(layers(), pairs=pairs)
    (loss,) = (each for each in document.answer.first if each.title.startswith("If you stay"))
    assert loss.title == "If you stay with inductor, change conv_12"
    detail = pairs[0].explanation.details[0]
    assert points_of(detail)["do"] in loss.text
    assert f"run this layer with cublas. Why: {difference(detail)}" in loss.text
    # counters that were not collected tell no saving, and the whole difference is none
    assert detail.fix is None
    assert "60.6" not in loss.gain


def test_a_page_is_as_sure_of_a_cause_as_the_explanation_is(pairs):
    steps = build_report(layers(), pairs=pairs).answer.first
    (step,) = (each for each in steps if each.title.startswith("If you stay with inductor"))
    sure = {pair.explanation.details[0].causes.confidence for pair in pairs}
    assert step.sure in sure


def test_without_findings_the_layer_that_takes_most_comes_first():
    table = layers(backends=("cudnn",)).assign(dram_utilization=0.4, l2_utilization=0.1)
    advice = {
        label: dataclasses.replace(each, of_layers=(), network=(), said=())
        for label, each in advise_conditions(table).items()
    }
    (step,) = build_report(table, advice=advice).answer.first
    slowest = table.groupby("layer")["time_us"].median().idxmax()
    assert step.title == f"Profile {slowest}"
    assert f"--nvtx-include {slowest}/" in step.command


def test_several_conditions_are_three_steps_too():
    table = layers(batches=(1, 8))
    steps = build_report(table).answer.first
    titles = ["Use cublas", "Keep to one backend in each case"]
    assert [step.title for step in steps] == titles
    assert "cublas at fp32, batch 1 and fp32, batch 8" in steps[0].text


def test_page_markdown_and_terminal_show_the_steps_first():
    document = build_report(table_of(TWO))
    page, text = to_html(document), to_markdown(document)
    assert page.index("Do this first") < page.index("Use a") < page.index("10.0 µs less (25 %)")
    assert "1. **Use a: 40.0 µs less than b.** a is fastest" in text
    assert document.lines[0].startswith("Use a: ")
    assert document.lines[0].endswith("[40.0 µs less than b; high confidence]")


def test_every_word_that_is_linked_is_explained_on_the_page():
    page = to_html(build_report(layers(), kernels=kernels()))
    linked = set(re.findall(r'class="word" href="#([^"]+)"', page))
    explained = set(re.findall(r'<div id="(g-[^"]+)"', page))
    assert linked
    assert linked == explained
    ids = re.findall(r'\sid="([^"]+)"', page)
    assert len(ids) == len(set(ids))


def test_a_comparison_explains_its_words_too():
    page = to_html(build_comparison(("a", layers(), None), ("b", layers(), None), model=None))
    assert set(re.findall(r'class="word" href="#([^"]+)"', page)) == set(
        re.findall(r'<div id="(g-[^"]+)"', page)
    )


def test_every_cause_has_a_sentence_and_no_entry_is_left_over():
    from perfml.explain import TERMS

    names = {text for entry in entries() for text in entry.texts}
    for term in TERMS.values():
        assert term.label in names or term.label.split(" (")[0] in names, term.id
    assert set(CAUSES) <= set(TERMS)
    assert all(entry.sentence.endswith(".") for entry in WORDS)
    anchors = [entry.anchor for entry in entries()]
    assert len(anchors) == len(set(anchors))


def test_names_from_outside_are_escaped_between_the_links():
    table = table_of({"<b>wave</b>": {"x": 10.0}, "b": {"x": 20.0}})
    page = to_html(build_report(table))
    assert "<b>wave" not in page
    assert html.escape("<b>") in page


def test_the_page_says_the_findings_of_the_answer_in_its_order():
    frame = kernels(backends=("cudnn",)).assign(device="NVIDIA H200")
    advice = advise_conditions(layers(backends=("cudnn",)).assign(device="NVIDIA H200"), frame)
    found = next(iter(advice.values())).findings
    steps = build_report(layers(backends=("cudnn",)), advice=advice).answer.first
    assert len(steps) == min(4, len(found))
    for step, one in zip(steps, found, strict=False):
        assert step.title.lower().startswith(one.hazard.lower())
        assert one.evidence.rstrip(".")[1:] in step.text
