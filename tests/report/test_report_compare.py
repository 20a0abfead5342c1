"""Two datasets compared: verdicts with intervals, what changed, what has no counterpart."""

from __future__ import annotations

import json

import pytest

from perfml.errors import PerfmlError
from perfml.ingest.merge.rule import merge
from perfml.report import build_comparison, to_html, to_markdown
from perfml.report.document import Panels
from perfml.report.pairs import compare_tables
from perfml.report.sections.comparison import comparison_document
from perfml.report.sections.explanation import layers_table, undecided_note
from perfml.tables import write_table
from tests.support.command_line import run
from tests.support.report_data import kernels, without_links

pytestmark = pytest.mark.long

NASTY = "<img src=x onerror=alert(1)>"


def table(factor=1.0, backends=("cublas",), **given):
    """Return a Kernels table whose times are a multiple of the usual ones."""
    frame = kernels(layers=6, repeats=4, backends=backends, **given)
    frame["time_us"] = frame["time_us"] * factor
    return frame


def sentences(comparison):
    """Return the answer of a document of one comparison."""
    return comparison_document([comparison], [], ({}, {})).answer.sentences


def page_of(left, right, **given):
    """Return the page of two datasets called before and after."""
    document = build_comparison(("before", left, None), ("after", right, None), **given)
    return without_links(to_html(document))


def compared(left, right, **given):
    return compare_tables(("before", left, None), ("after", right, None), model=None, **given)


def test_identical_datasets_differ_in_nothing():
    ((found,), left_out) = compared(table(), table())
    assert found.pair.explanation.total.verdict == "no difference"
    assert set(found.pair.explanation.layers["verdict"]) == {"no difference"}
    assert found.changed.empty
    assert found.tested == 4
    assert left_out == []
    said = [each.text for each in sentences(found)]
    assert said[0].startswith("cublas: no difference between after and before over 6 layers of")
    assert said[1] == "cublas: no metric changed beyond its noise on any layer."


def test_profiles_without_labels_are_compared_without_a_word_for_them():
    unnamed = {"backend": "unknown", "precision": "unknown", "workload": "unknown"}
    ((found,), _) = compared(table().assign(**unnamed), table(1.5).assign(**unnamed))
    said = [each.text for each in sentences(found)]
    assert "Why: after takes " in said[0]
    assert not any("unknown" in text or "all runs" in text for text in said)
    names = [name for name, _ in comparison_document([found], [], ({}, {})).facts]
    assert names == ["baseline", "target"]


def test_layers_that_are_undecided_in_spite_of_their_intervals_are_explained():
    before, after = table(), table(1.045)
    # two repeats that scatter: each interval lies clear of 1, but not so surely six times
    before, after = (frame[frame["iteration"] < 2] for frame in (before, after))
    ((found,), _) = compared(before, after)
    layers_ = found.pair.explanation.layers
    clear = (layers_["verdict"] == "undecided") & (layers_["low"] > 1.01)
    note = undecided_note(found.pair.explanation)
    assert clear.any()
    assert f" {int(clear.sum())} of the " in note
    assert "2 repeats" in note


def test_a_slower_dataset_is_slower_by_its_factor_with_an_interval():
    ((found,), _) = compared(table(), table(1.5))
    total = found.pair.explanation.total
    assert total.verdict == "slower"
    assert total.ratio == pytest.approx(1.5)
    assert total.interval[0] - 1e-9 <= 1.5 <= total.interval[1] + 1e-9
    first = next(each for each in sentences(found) if each.about == "time")
    assert first.sure == "high"
    assert "Layer by layer: 6 slower." in first.text
    assert [row[4].text for row in layers_table(found.pair.explanation).rows] == ["slower"] * 6


def test_the_largest_confirmed_change_comes_first_and_opens_the_page():
    left, right = (table(backends=("cublas", "cudnn")) for _ in range(2))
    right.loc[(right["backend"] == "cudnn") & (right["layer"] == "conv_03"), "time_us"] *= 1.78
    found, _ = compared(left, right)
    document = comparison_document(found, [], ({}, {}))
    first = document.answer.first[0]
    assert (first.title, first.sure) == ("conv_03 is slower", "high")
    assert "(1.78×)" in first.text
    (panels,) = (each for each in document.sections[0].blocks if isinstance(each, Panels))
    assert panels.sections[0].title == "cudnn"


def test_gains_and_losses_that_cancel_are_never_called_no_difference():
    after = table()
    after.loc[after["layer"] == "conv_03", "time_us"] *= 1.5
    after.loc[after["layer"] == "conv_06", "time_us"] *= 0.75
    ((found,), _) = compared(table(), after)
    total = found.pair.explanation.total
    assert total.verdict == "no difference"
    said = [each.line for each in sentences(found)]
    assert not any("no difference between" in each for each in said)
    assert any("1 slower layer costs" in each and "1 faster layer saves" in each for each in said)


def test_one_repeat_a_side_leaves_the_answer_open():
    one = kernels(layers=3, repeats=1, backends=("cublas",))
    ((found,), _) = compared(one, one)
    first = sentences(found)[0]
    assert first.sure == "low"
    assert "without an interval" in first.text


def test_of_single_launches_that_differ_much_step_and_sentence_are_equally_sure():
    one = kernels(layers=3, repeats=1, backends=("cublas",))
    slow = one.assign(time_us=2 * one["time_us"])
    document = build_comparison(("before", one, None), ("after", slow, None), model=None)
    step, said = (
        document.answer.first[0],
        next(each for each in document.answer.sentences if "without an interval" in each.text),
    )
    assert step.title.endswith(" is slower")
    assert (step.sure, said.sure) == ("medium", "medium")


def test_a_metric_that_changed_is_named_with_its_layers():
    after = table()
    after.loc[after["layer"] == "conv_02", "gld_efficiency"] = 5.0
    ((found,), _) = compared(table(), after)
    assert list(zip(found.changed["layer"], found.changed["metric"], strict=True)) == [
        ("conv_02", "gld_efficiency")
    ]
    assert "gld_efficiency (1 of 6 layers)" in sentences(found)[-1].text


def test_metrics_of_one_side_alone_are_named_not_compared():
    after = table().drop(columns="stall_sync")
    ((found,), _) = compared(table(), after)
    assert found.alone == {"before": ("stall_sync",)}
    assert found.changed.empty
    page = page_of(table(), after, model=None)
    assert "Measured in before alone, so not compared: stall_sync." in page


def test_measurements_answer_to_each_other_and_the_rest_is_said():
    left = table(backends=("cublas", "cudnn"), batches=(1, 8))
    right = table(backends=("cudnn",), batches=(8, 16))
    found, left_out = compared(left, right)
    assert [each.pair.label for each in found] == ["cudnn"]
    assert left_out == [
        "Only in before: cublas, batch 1, cudnn, batch 1 and cublas, batch 8.",
        "Only in after: cudnn, batch 16.",
    ]


def test_single_measurements_of_different_backends_are_compared():
    ((found,), _) = compared(table(), table(2.0, backends=("cudnn",)))
    assert found.pair.explanation.total.verdict == "slower"
    assert found.pair.label == "all runs", "neither backend names what differs in it"


def test_datasets_with_nothing_in_common_are_an_error_with_a_cure():
    with pytest.raises(PerfmlError, match=r"(?s)no measurement.*cublas/fp32.*--where"):
        compared(table(batches=(1, 8)), table(backends=("cudnn",), batches=(1, 8)))


def test_layers_without_a_partner_are_listed():
    after = table()
    after["layer"] = after["layer"].replace("conv_06", "conv_99")
    page = page_of(table(), after, model=None)
    assert "Only in before: conv_06." in page
    assert "Only in after: conv_99." in page


def test_names_that_are_equal_are_told_apart():
    (found, _) = compare_tables(("run", table(), None), ("run", table(), None), model=None)
    explanation = found[0].pair.explanation
    assert (explanation.baseline, explanation.target) == ("run (first)", "run (second)")


def test_foreign_text_is_escaped_in_page_and_markdown():
    after = table(1.5)
    for frame in (before := table(), after):
        frame["layer"] = frame["layer"] + NASTY
        frame["kernel"] = NASTY
        frame["backend"] = NASTY
    given = ((NASTY, before, None), (NASTY + "2", after, None))
    document = {"warnings": [NASTY], "sources": [{"path": NASTY}], NASTY: NASTY}
    built = build_comparison(*given, provenance=(document, document), model=None)
    page = to_html(built)
    assert "<img" not in page
    assert page.count("</script") == 1
    assert "<img" not in to_markdown(built)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Write a dataset before and after a change: a Kernels and a Layers table."""
    folder = tmp_path_factory.mktemp("compare")
    before, after = folder / "before.parquet", folder / "after.parquet"
    document = {"created": "2026-11-21T10:00:00+00:00"}
    write_table(table(), before, kind="kernels", provenance=document)
    write_table(merge(table(1.2)), after, kind="layers", provenance=document)
    return before, after


def test_report_of_two_tables_is_a_comparison(files, tmp_path):
    out = tmp_path / "page.html"
    result = run("report", *files, "--out", out, "--json", "-q")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["out"] == str(out)
    assert document["summary"][0].startswith("conv_06 is slower: ")
    assert any(line.startswith("cublas: after is slower than") for line in document["summary"])
    assert "perfml comparison" in out.read_text(encoding="utf-8")


@pytest.mark.parametrize(("words", "name"), [(["--format", "md"], "x.txt"), ([], "x.md")])
def test_comparison_is_markdown_by_option_or_by_name(files, tmp_path, words, name):
    out = tmp_path / name
    result = run("report", *files, "--out", out, "-q", *words)
    assert result.exit_code == 0, result.output
    text = out.read_text(encoding="utf-8")
    assert text.startswith("# after against before\n\n1. **conv_06 is slower: ")
    assert "- cublas: after is slower" in text


def test_format_chooses_the_name_of_the_file(files, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run("report", *files, "--format", "md", "-q").exit_code == 0
    assert (tmp_path / "report.md").exists()
