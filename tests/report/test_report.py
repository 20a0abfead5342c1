"""The report: its sentences, its page, its Markdown, on small tables and on the recorded sweep."""

from __future__ import annotations

import html
import json
import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from perfml.datasets import read_input
from perfml.errors import InputError, TableError
from perfml.explain import advise, explain
from perfml.ingest.merge.rule import merge
from perfml.ingest.profiles import ingest
from perfml.kernel_names import short_kernel
from perfml.report import (
    advise_conditions,
    build_report,
    explain_pairs,
    to_html,
    to_markdown,
    write,
)
from perfml.report.conditions import conditions
from perfml.report.kernels import EVERYTHING, kernel_times
from perfml.report.labels import clean
from perfml.report.render.markdown import escape
from perfml.report.render.text import to_text
from perfml.report.results import layer_shapes
from perfml.report.sections.provenance import of_runs
from perfml.report.verbs import advice_document
from perfml.report.write import analysed, report
from perfml.util.words import number
from tests.support.examples import examples
from tests.support.paths import ROOT
from tests.support.report_data import (
    LEAK,
    build_markdown,
    build_page,
    evaluation,
    kernels,
    layers,
    page_data,
    ranking,
    shapes,
)

pytestmark = pytest.mark.long

NASTY = '<img src=x onerror="alert(1)">'


def summary_lines(table, **given):
    """Return the answer of a report, a sentence a line."""
    return build_report(table, **given).lines


@pytest.fixture(scope="module")
def recorded_sweep(sweep):
    """Return kernels and layers of the recorded sweep at batch 1."""
    files = sorted(sweep.glob("*_b1*.csv.xz"))
    found = ingest(files)
    return found.frame, merge(found.frame), found.provenance


def test_recorded_sweep_names_cublas_the_fastest_at_batch_1(recorded_sweep, sweep):
    frame, merged, _ = recorded_sweep
    (condition,) = conditions(merged)
    totals = condition.totals.set_index("backend")["total"]
    for backend, total in totals.items():
        timing = pd.read_csv(sweep / f"yolov4tiny_{backend}_fp32_b1_timing.csv.xz").dropna()
        by_iteration = timing.groupby("iteration").agg({"time_us": "sum", "layer": "nunique"})
        whole = by_iteration[by_iteration["layer"] == 21]
        assert total == pytest.approx(whole["time_us"].median())
    assert list(totals.index) == ["cublas", "inductor", "cudnn"]
    lines = summary_lines(merged)
    assert lines[0].startswith(
        "Use cublas: At fp32, batch 1, cublas is fastest: 519 µs for 21 layers against"
    )
    assert "fastest on 12 of 21 layers" in lines[0]
    everything = kernel_times(condition.select(frame).assign(layer=EVERYTHING))
    # the timing runs of the data card: all kernels of an inference, 550 us under cuBLAS
    assert everything.groupby("backend")["time_us"].sum()["cublas"] == pytest.approx(550, abs=1)


def test_recorded_sweep_gives_a_page_under_3_mb_without_addresses(recorded_sweep):
    frame, merged, provenance = recorded_sweep
    page = build_page(merged, kernels=frame, provenance=provenance)
    assert len(page.encode()) < 3_000_000
    addresses = set(re.findall(r"https?://[^\s\"'<>]+", page))
    assert addresses <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}
    assert not re.search(r"(?:src|href)=[\"'](?!#|data:)", page)
    assert "Content-Security-Policy" in page
    assert "conv_21" in page


def test_shapes_are_read_in_both_spellings_and_nonsense_is_ignored():
    document = {
        "runs": [
            "no manifest",
            {"layers": [None, {"name": "a", "size": "3x3", "filters": 64, "input": [52, 52, 3]}]},
            {"layers": [{"layer": "b", "size": None, "filters": True, "flops": "many"}]},
        ]
    }
    found = layer_shapes(document)
    assert found["a"] == (3.0, "3×3, 64 filters")
    assert found["b"][1] == "–"
    assert layer_shapes({}) == {}


def test_an_unnamed_profile_is_no_backend_called_unknown():
    unnamed = {"backend": "unknown", "precision": "unknown", "batch": pd.NA}
    table = layers(backends=("a",), layers=3).assign(**unnamed)
    document = build_report(table, kernels=kernels(backends=("a",), layers=3).assign(**unnamed))
    assert document.lines[-1].startswith("This profile takes ")
    assert not any("unknown" in line for line in document.lines)
    assert not {"backends", "conditions"} & {name for name, _ in document.facts}
    assert "unknown" not in to_html(document).partition('id="times"')[2].partition("<script")[0]


def test_few_layers_are_not_learned_from():
    document, warnings = analysed(layers(layers=4), None, models=True)
    assert len(warnings) == 2
    assert "needs 5 distinct layers" in warnings[0]
    assert "metrics" not in {part.anchor for part in document.sections}


def test_no_model_learns_from_a_trace_which_has_no_counters():
    trace = str(ROOT / "tests/data/servers/decoder_ranges.json.gz")
    given = read_input(trace)
    assert given.reported_layers["layer"].nunique() >= 5
    document, warnings = analysed(given.reported_layers, given.in_layers.kernels, models=True)
    assert not [each for each in warnings if "analysis" in each]
    assert "metrics" not in {part.anchor for part in document.sections}
    sides = explain(trace, trace, top=1, model="gbr")
    assert all(detail.model is None for detail in sides.details)


@pytest.mark.slow
def test_of_very_many_rows_whole_layers_are_learned_from_and_it_is_said(monkeypatch):
    table = layers()
    some = len(table) // 3
    monkeypatch.setattr(write, "MOST_ROWS", some)
    learnt = write._learnt(table, 0)
    kept = table[table["layer"].isin(learnt["layer"].unique())]
    pd.testing.assert_frame_equal(learnt, kept)
    assert 0 < len(learnt) <= some
    assert not learnt.equals(write._learnt(table, 1))
    monkeypatch.setattr(write, "MOST_LAYERS", 2)
    assert write._learnt(table, 0)["layer"].nunique() == 2
    monkeypatch.setattr(write, "MOST_LAYERS", 100)
    _, warnings = analysed(table, None, models=True)
    assert (
        f"fitted to {learnt['layer'].nunique()} of {table['layer'].nunique()} layers" in warnings[0]
    )


def test_runs_without_launches_outside_of_layers_are_not_listed():
    outside = [{"run_id": name, "launches": n, "time_us": n} for name, n in (("a", 0), ("b", 2))]
    pages = [build_page(layers(), provenance={"unattributed": outside[:n]}) for n in (1, 2)]
    assert ["Launches outside every layer" in page for page in pages] == [False, True]


def test_provenance_is_that_of_the_runs_that_are_shown():
    runs = [{"run_id": "here"}, {"run_id": "elsewhere"}]
    document = {
        "runs": runs,
        "sources": [{**each, "path": "metrics.csv"} for each in runs],
        "warnings": ["here: clipped.", "elsewhere: clipped.", "of all"],
    }
    found = of_runs(document, ["here"])
    assert [each["run_id"] for each in (*found["runs"], *found["sources"])] == ["here", "here"]
    assert found["warnings"] == ["here: clipped.", "of all"]
    assert found["runs of the table"] == "2, here 1"
    assert of_runs(document, []) == of_runs(document, ["unknown"]) == document


def test_a_report_says_what_is_wrong_before_the_work(tmp_path):
    with pytest.raises(TableError, match="columns are missing: backend, time_us"):
        report(pd.DataFrame({"a": [1.0]}), out=None)
    with pytest.raises(InputError, match="cannot write here"):
        report(pd.DataFrame(), out=tmp_path / "nowhere" / "report.html")


def test_a_profile_that_lacks_most_counters_is_told_so_in_one_line():
    table = layers(layers=2)
    table = table.drop(columns=["gld_efficiency", "dram_utilization", "stall_memory_dependency"])
    document = advice_document(advise(table), 3)
    lines = to_text(document, width=80).splitlines()
    (head,) = (place for place, line in enumerate(lines) if line.startswith("For more, profile"))
    assert len(lines) - head <= 6
    assert "perfml metrics default" in " ".join(lines[head:])
    assert "not collected" not in " ".join(lines[head:])


def test_foreign_text_is_escaped_everywhere():
    frame = kernels(layers=3, backends=(NASTY, "cudnn"))
    frame["layer"] = frame["layer"] + NASTY
    frame["kernel"] = NASTY
    frame["workload"] = NASTY
    provenance = {
        "note": NASTY,
        "sources": [{"path": NASTY, "sha256": NASTY * 3, "tool": NASTY}],
        "warnings": [NASTY],
        "runs": [{NASTY: NASTY, "layers": [{"layer": NASTY, "size": 3, "filters": 1}]}],
        "other": {NASTY: [NASTY]},
    }
    page = build_page(
        merge(frame),
        kernels=frame,
        provenance=provenance,
        rankings=[ranking()],
        evaluations=[evaluation(leak=NASTY)],
    )
    assert "<img" not in page
    assert page.count("&lt;img") > 10
    # two scripts: the data and the page's own
    assert len(re.findall("</script", page)) == 2


def test_script_cannot_be_closed_from_a_kernel_name():
    frame = kernels(layers=1, repeats=1)
    frame["kernel"] = "</script><script>alert(1)</script>"
    page = build_page(merge(frame), kernels=frame)
    assert "<script>alert" not in page
    assert page_data(page)["names"][0][1] == "</script><script>alert(1)</script>"


@pytest.mark.slow
@examples(12)
@given(st.text(st.characters(codec=None), min_size=1, max_size=60))
def test_any_name_is_written_as_utf_8_and_reads_as_text(name):
    held = name.encode("utf-8", "replace").decode()  # columns of pandas hold no lone surrogates
    table = pd.DataFrame({"backend": [held, "b"], "layer": [held, held], "time_us": [1.0, 2.0]})
    page = build_page(table)
    page.encode("utf-8")
    shown = html.escape(clean(name, 200), quote=False)
    assert "<title>" in page
    assert clean(name, 200) in html.unescape(page) or shown in page


def test_unprintable_and_reordering_characters_are_made_visible():
    assert clean("a\x00b\u202ec") == "a\ufffdb\ufffdc"
    assert clean("x" * 10, 4) == "xxxx… (10 characters)"
    assert clean(None) == clean(np.nan) == clean(pd.NA) == "–"


def test_short_kernel_keeps_the_function_and_never_nothing():
    assert short_kernel("void cub::scan<int>(int*)") == "scan"
    assert short_kernel("(") == "("
    assert len(short_kernel("k" * 500)) == 64


@pytest.mark.parametrize(
    ("value", "text"), [(0.0, "0"), (1234.5, "1,234"), (0.0004567, "0.000457"), (-2.5, "-2.50")]
)
def test_numbers_have_three_significant_digits(value, text):
    assert number(value) == text


def test_page_is_made_from_a_table_of_backend_and_time_alone():
    page = build_page(pd.DataFrame({"backend": ["a"], "time_us": [3.0]}))
    # a number is not parted from its unit
    assert "a takes 3.00\xa0µs for 1 layer" in page
    assert "The table carries no provenance." in page


def test_missing_metrics_leave_their_sections_out():
    table = layers().drop(
        columns=["stall_sync", "stall_memory_dependency", "gld_efficiency", "dram_utilization"]
    )
    page = build_page(table, rankings=[ranking()])
    assert 'id="stalls"' not in page
    assert "Which metrics move together" not in page
    assert 'id="metrics"' in page
    assert 'id="kernels"' not in page


def test_missing_times_are_shown_as_missing():
    table = layers(layers=3, backends=("a", "b"))
    table.loc[(table["backend"] == "b") & (table["layer"] == "conv_02"), "time_us"] = np.nan
    table.loc[0, ["stall_sync", "gld_efficiency"]] = np.nan
    page = build_page(table)
    assert "for 2 layers" in page
    every = table.assign(time_us=np.nan)
    assert "no layer has a time" in build_page(every)


@pytest.mark.slow
def test_500_layers_stay_under_3_mb_and_the_figure_says_what_it_shows():
    frame = kernels(layers=500, repeats=2)
    page = build_page(merge(frame), kernels=frame, rankings=[ranking()])
    assert len(page.encode()) < 3_000_000
    assert "The 40 slowest of 500 layers" in page
    assert page.count('<th scope="row">conv_') == 500


def test_long_names_are_cut_to_keep_the_page_small_and_the_page_says_so():
    frame = kernels(layers=2, repeats=1, backends=("a",))
    frame["kernel"] = [f"{place}{'k' * 10_000}" for place in range(len(frame))]
    page = build_page(merge(frame), kernels=frame)
    assert "Kernel names are cut at 2,000 characters." in page
    assert max(len(full) for _, full in page_data(page)["names"]) < 2_100


def test_empty_and_foreign_tables_are_errors_with_a_cure():
    with pytest.raises(TableError, match="no layers to report"):
        build_page(layers().iloc[:0])
    with pytest.raises(TableError, match="columns are missing: backend"):
        build_page(pd.DataFrame({"time_us": [1.0]}))


def test_building_changes_nothing_that_was_given():
    table, frame, document = layers(), kernels(), shapes()
    before = (table.copy(), frame.copy(), json.dumps(document))
    build_page(table, kernels=frame, provenance=document)
    pd.testing.assert_frame_equal(table, before[0])
    pd.testing.assert_frame_equal(frame, before[1])
    assert json.dumps(document) == before[2]


def test_same_input_gives_the_same_page():
    given = {"provenance": shapes(), "rankings": [ranking()]}
    assert build_page(layers(layers=2), **given) == build_page(layers(layers=2), **given)


def test_markdown_has_the_answer_the_tables_and_the_warning():
    text = build_markdown(
        layers(batches=(1, 8)),
        kernels=kernels(),
        rankings=[ranking()],
        evaluations=[evaluation()],
        provenance={"warnings": ["A launch has no layer."]},
    )
    assert "- At fp32, batch 1, cublas is fastest" in text
    assert f"> [!WARNING]\n> {LEAK}" in text
    assert "| conv_01 | **5.05** <sub>5.00–5.10</sub> |" in text
    assert "| gradient boosting | 8.0 % <sub>4.0 % to 16 %</sub> | **25 %**" in text
    assert "- A launch has no layer." in text


def test_percentages_are_written_one_way(recorded_sweep):
    frame, merged, provenance = recorded_sweep
    document = build_report(
        merged,
        kernels=frame,
        provenance=provenance,
        pairs=explain_pairs(merged, frame, model=None),
        advice=advise_conditions(merged, frame),
    )
    for text in (to_markdown(document), to_text(document)):
        assert len(re.findall(r"\d %", text)) > 10
        assert re.findall(r".{,40}\d%.{,20}", text) == []


def test_markdown_shows_foreign_text_as_text():
    text = build_markdown(layers(backends=(NASTY, "a|b `c` @someone [x](y)")))
    assert "<img" not in text
    assert escape("a|b `c` @someone [x](y)") == ("a\\|b \\`c\\` @\u2060someone \\[x\\](y)")
    assert escape("__init__ conv_01") == "\\_\\_init\\_\\_ conv_01"
    widths = {line.count(" | ") for line in text.splitlines() if line.startswith("| ---")}
    assert widths == {2, 4}


@pytest.mark.parametrize(("layer", "noun"), [("gemm", "kernel"), ("dense", "layer")])
def test_what_has_no_ranges_is_counted_in_kernels(layer, noun):
    rows = {"backend": "cublas", "layer": [layer], "kernel_names": "gemm(float*)", "time_us": 2.0}
    document, _ = analysed(pd.DataFrame(rows))
    assert f"for 1 {noun}" in to_text(document)
