"""The report's evidence on causes: pairs, the readable tree, roofs, advice."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pandas as pd
import pytest

from perfml.datasets.loading import DEVICE_FACTS
from perfml.errors import PerfmlError
from perfml.explain import Advice
from perfml.explain.advice.finding import Finding, Gain, Where
from perfml.explain.results import points_of
from perfml.ingest.merge.rule import merge
from perfml.report import advise_conditions, build_report, explain_pairs, to_text
from perfml.report.conditions import conditions
from perfml.report.document import Fold, Picture, ReportTable
from perfml.report.figures.comparisons import layer_roofs
from perfml.report.figures.models import readable_tree
from perfml.report.sections.advice import advice_section
from perfml.report.sections.explanation import (
    difference,
    explanation_summary,
    why_section,
    why_sentence,
)
from perfml.tables import metric_columns
from perfml.util.findings import Time
from tests.support.report_data import (
    build_markdown,
    build_page,
    evaluation,
    kernels,
    layers,
    on_h200,
)

pytestmark = pytest.mark.long

NASTY = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def pairs():
    """Explain the test table, its two batches, without a model."""
    frame = kernels(batches=(1, 8))
    return explain_pairs(merge(frame), frame, model=None)


def test_every_other_backend_is_explained_against_the_fastest_the_largest_first(pairs):
    told = [(each.label, each.explanation.target, each.explanation.baseline) for each in pairs]
    assert told == [
        ("fp32, batch 1", "inductor", "cublas"),
        ("fp32, batch 1", "cudnn", "cublas"),
        ("fp32, batch 8", "inductor", "cublas"),
        ("fp32, batch 8", "cudnn", "cublas"),
    ]
    assert [each.explanation.details[0].layer for each in pairs] == ["conv_12"] * 4


def test_of_many_pairs_those_with_the_largest_difference_are_kept():
    frame = kernels(batches=(1, 8))
    found = explain_pairs(merge(frame), frame, model=None, most=2)
    assert [(each.label, each.explanation.target) for each in found] == [
        ("fp32, batch 8", "inductor"),
        ("fp32, batch 8", "cudnn"),
    ]


def test_sentence_names_layer_times_and_the_cause_as_every_surface_does(pairs):
    detail = pairs[0].explanation.details[0]
    assert why_sentence(pairs[0]).text == f"At fp32, batch 1, {difference(detail)}"
    assert points_of(detail)["why"] in difference(detail)
    assert {"121 µs", "60.6 µs", "(2.00×)."} <= set(
        re.findall(r"[\d.]+ µs|\(.*?\)\.", difference(detail))
    )


def test_a_cause_that_is_mostly_the_rest_is_open(pairs):
    detail = pairs[0].explanation.details[0]
    size = detail.causes.terms["log_ratio"].abs()
    split = size[~detail.causes.terms["residual"].astype(bool)].sum() / size.sum()
    assert (why_sentence(pairs[0]).sure == "medium") is bool(split >= 0.5)


def test_tables_that_cannot_be_explained_have_no_pairs():
    bare = pd.DataFrame(
        {"backend": ["a", "b"], "layer": ["x", "x"], "time_us": [1.0, 2.0], "iteration": [0, 0]}
    )
    assert explain_pairs(bare) == []
    assert explain_pairs(layers(backends=("only",))) == []


def test_section_shows_launches_as_a_diff_and_metrics_that_changed(pairs):
    (panels,) = why_section(pairs[:1], "Why", "", several=True).blocks
    (panel,) = panels.sections
    assert panel.title == "fp32, batch 1: inductor against cublas"
    (detail,) = panel.blocks
    launches = next(
        block
        for block in detail.blocks
        if isinstance(block, ReportTable) and block.title.startswith("Kernels in launch order")
    )
    assert [row[0].text for row in launches.rows] == [
        "=\u00a0variant" if row[1].text == "gemm" else "=\u00a0same" for row in launches.rows
    ]
    assert launches.rows[0][2].value == pytest.approx(48.48, rel=1e-3)
    captions = [
        block.caption
        for fold in detail.blocks
        if isinstance(fold, Fold)
        for block in fold.blocks
        if isinstance(block, Picture)
    ]
    assert (
        captions[-1] == "Why the warps of conv_12 waited, under cublas and inductor, fp32, batch 1."
    )


@pytest.mark.slow
def test_page_and_markdown_show_the_same_causes(pairs):
    table, first = merge(kernels()), pairs[:1]
    page, text = build_page(table, pairs=first), build_markdown(table, pairs=first)
    assert 'id="why"' in page
    assert "inductor takes 121 µs for conv_12" in page.replace("\xa0", " ")
    assert "inductor takes 121 µs for conv_12" in text
    assert "| all together | ×2.000 |" in text
    for line in first[0].explanation.details[0].reasons:
        assert line.partition(": ")[2][:30] in text
    assert 'id="why"' not in build_page(table)


@pytest.mark.slow
def test_foreign_text_is_escaped_in_every_new_section():
    frame, _ = on_h200(layers=5, backends=(NASTY, "cudnn"))
    frame["layer"] = frame["layer"] + NASTY
    frame["kernel"] = NASTY
    table = merge(frame).assign(flops=1e9, arithmetic_intensity=50.0)
    found = explain_pairs(table, frame, model=None)
    advice = advise_conditions(table, frame)
    (first, *_) = advice.values()
    words = dict.fromkeys(("hazard", "evidence", "mitigation", "source"), NASTY)
    nasty = tuple(dataclasses.replace(one, **words) for one in first.of_layers)
    advice = {NASTY: dataclasses.replace(first, of_layers=nasty)}
    given = {"pairs": found, "advice": advice, "evaluations": [evaluation(leak=None)]}
    page = build_page(table, kernels=frame, **given)
    assert found
    for part in ('id="why"', 'id="advice"', 'id="roofline"'):
        assert part in page
    assert "<img" not in page
    assert page.count("</script") == 2
    assert "<img" not in build_markdown(table, **given)


def test_readable_tree_finds_the_planted_rule():
    table = layers(layers=12, repeats=4)
    table["gld_efficiency"] = np.where(table["backend"] == "cublas", 0.2, 0.8)
    tree, names, classes = readable_tree(table, "classification", ("gld_efficiency",))
    assert names == ("gld_efficiency",)
    assert tree.tree_.threshold[0] == pytest.approx(0.5)
    assert classes[int(tree.predict([[0.2]])[0])] == "cublas"


def test_tree_of_rows_that_do_not_differ_is_refused():
    table = layers(layers=3, repeats=1).assign(time_us=1.0)
    with pytest.raises(PerfmlError, match="rows that differ"):
        readable_tree(table, "regression", ("gld_efficiency",))


def test_roofs_use_shapes_where_bytes_were_not_counted_and_say_so():
    _, table = on_h200()
    roofs = layer_roofs(table)
    assert not roofs.counted
    row = roofs.points.iloc[0]
    assert row["flops"] / row["bytes"] == pytest.approx(50.0)
    assert row["flop_rate"] == pytest.approx(1e9 / (row["time_us"] * 1e-6))
    page = build_page(table)
    assert "bytes of device memory were not counted" in page
    assert "of the arithmetic peak" in page
    assert ">unknown<" not in page[page.index('id="roofline"') : page.index('id="provenance"')]


def test_roofs_use_counted_bytes_where_there_are_any():
    _, table = on_h200()
    table["dram_read_bytes"], table["dram_write_bytes"] = 3e6, 1e6
    roofs = layer_roofs(table, {"fp32": 50e12, "dram": 4e12})
    assert roofs.counted
    assert roofs.points["bytes"].to_numpy() == pytest.approx(4e6)
    assert roofs.flops == {"fp32": 50e12}


def test_device_without_known_peaks_has_no_roofline():
    with pytest.raises(PerfmlError, match="not known"):
        layer_roofs(layers().assign(flops=1e9, arithmetic_intensity=1.0))
    assert 'id="roofline"' not in build_page(layers())


LAPTOP = {
    "multiprocessors": 24.0,
    "clock_khz": 2.37e6,
    "memory_clock_khz": 8.001e6,
    "memory_bus_bits": 128.0,
    "compute_capability": "8.9",
}


def test_a_device_that_nobody_tabulated_has_the_roofs_that_its_profile_tells():
    table = layers().assign(flops=1e9, arithmetic_intensity=1.0, device="GPU of tomorrow")
    table.attrs[DEVICE_FACTS] = {"GPU of tomorrow": LAPTOP}
    for part in (conditions(table)[0].rows, table):
        roofs = layer_roofs(part[part["precision"] == part["precision"].iloc[0]])
        assert roofs.bandwidth["device memory"] == pytest.approx(2 * 8.001e9 * 128 / 8)
    assert 'id="roofline"' in build_page(table)


def test_advice_is_sorted_by_what_it_saves_and_cut_to_a_readable_length():
    findings = tuple(
        Finding(
            rules=("r",),
            where=Where((f"l{place}",), "", "a"),
            holds=Time(place / 0.2),
            gain=Gain(Time(float(place)), Time(float(place)), "counters"),
            probability=0.3,
            hazard="h",
            evidence="e",
            mitigation="m",
            tells="run it twice",
        )
        for place in range(150)
    )
    unchecked = pd.DataFrame({"rule": []})
    (panels,) = advice_section({"all": Advice(findings, unchecked)}).blocks
    table, further, note = panels.sections[0].blocks
    assert [row[0].text for row in table.rows] == [f"l{place}" for place in range(149, 141, -1)]
    assert table.rows[0][1].note == "20 % of 745 µs"
    assert table.rows[0][2].text == "H"
    assert "m" in table.rows[0][3].text
    assert further.summary == "40 further findings"
    assert note.text.startswith("150 findings")
    assert advice_section({"none": Advice((), unchecked)}) is None
    many = {f"condition {place}": Advice(findings, unchecked) for place in range(100)}
    (panels,) = advice_section(many).blocks
    assert {len(each.blocks[1].blocks[0].rows) for each in panels.sections} == {20}


def test_networks_are_called_by_their_own_names_where_these_tell_them_apart():
    table = layers()
    names = ("torch:torchvision/resnet18", "torch:models.py:block", "torch:torchvision/vgg", "mine")
    shown = pd.concat([table.assign(workload=name) for name in names])
    told = {each.label.partition(",")[0] for each in conditions(shown)}
    assert told == {"resnet18", "block", "vgg", "mine"}
    same = [table.assign(workload=name) for name in ("torch:timm/vgg", "torch:torchvision/vgg")]
    told = {each.label.partition(",")[0] for each in conditions(pd.concat(same))}
    assert told == {"torch:timm/vgg", "torch:torchvision/vgg"}
    assert build_report(table.assign(workload=names[0])).title.startswith("resnet18 on ")


def test_advice_of_every_condition_reaches_the_page_and_markdown():
    frame = kernels(layers=3, batches=(1, 8))
    advice = advise_conditions(merge(frame), frame)
    assert list(advice) == ["fp32, batch 1", "fp32, batch 8"]
    assert 'id="advice"' in build_page(merge(frame), advice=advice)
    assert "### fp32, batch 8" in build_markdown(merge(frame), advice=advice)


def test_a_difference_without_counters_names_those_to_collect():
    frame = kernels(layers=2, repeats=3, backends=("a", "b"))
    bare = frame.drop(columns=metric_columns(frame))
    (pair,) = explain_pairs(merge(bare), bare, model=None)
    said = " ".join(to_text(explanation_summary(pair.explanation)).split())
    assert "perfml metrics default --request)), or the rest has no name: " in said
    assert "inst_executed" in said.partition("no name: ")[2]
