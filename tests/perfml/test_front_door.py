"""``import perfml``: few names, loaded when they are used, and results that fit a terminal."""

from __future__ import annotations

import doctest
import importlib
import inspect
import json
import re

import pandas as pd
import pytest

import perfml
from perfml.predict import PredictedLayer, Prediction
from perfml.tables import write_table
from perfml.util.shown import folded, screen, shorter
from tests.support.paths import ROOT

pytestmark = pytest.mark.long

PAGE = ROOT / "docs" / "reference" / "python.md"
DATA = ROOT / "tests" / "data" / "ncu"


def test_the_names_are_few_and_each_can_be_called():
    assert 8 <= len(perfml.__all__) <= 17
    assert set(dir(perfml)) == {*perfml.__all__, "__version__"}
    for name in perfml.__all__:
        assert callable(getattr(perfml, name)), name
        assert inspect.signature(getattr(perfml, name)).parameters, name
    with pytest.raises(AttributeError, match="has no attribute 'ranks'"):
        perfml.ranks  # noqa: B018


def test_the_stub_the_names_and_the_page_agree():
    stub = (ROOT / "perfml" / "__init__.pyi").read_text("utf-8")
    homes = {name: home for home, name in re.findall(r"^from (\S+) import (\w+) as", stub, re.M)}
    assert set(homes) == {*perfml.__all__, "__version__"}
    for name in perfml.__all__:
        here = getattr(importlib.import_module(homes[name]), name)
        found = getattr(perfml, name)
        assert found is here or inspect.signature(found) == inspect.signature(here), name
    page = PAGE.read_text("utf-8")
    assert [name for name in perfml.__all__ if f"`perfml.{name}" not in page] == []


def test_a_package_is_its_function_and_still_a_package():
    from perfml.gate.python import gate

    kernels = perfml.read(DATA / "conv_03_cublas.csv")
    assert perfml.gate(kernels, kernels).to_dict() == gate(kernels, kernels).to_dict()
    assert perfml.gate.python.gate is gate
    assert kernels.attrs["warnings"][0].startswith("conv_03_cublas.csv")


def test_explain_and_advise_take_files_as_the_verbs_do():
    before, after = DATA / "conv_03_cublas.csv", DATA / "conv_03_range.csv"
    found = perfml.explain(before, DATA / "conv_03_cublas.ncu-rep", model=None)
    assert found.baseline == "conv_03_cublas.csv"
    assert found.total.ratio == pytest.approx(1, rel=0.01)
    mixed = perfml.explain(before, perfml.read(before), model=None)
    assert mixed.total.ratio == 1
    assert len(perfml.advise(before).table) == len(perfml.advise(perfml.read(before)).table) > 0
    assert after.name not in repr(found)


def test_report_writes_the_page_and_plot_draws(tmp_path):
    path = tmp_path / "page.html"
    document = perfml.report(DATA / "conv_03_cublas.csv", out=path)
    assert "<html" in path.read_text("utf-8")
    assert document.lines
    ax = perfml.plot("kernels", DATA / "conv_03_cublas.csv", layer="conv_03")
    assert ax.figure is not None


@pytest.mark.parametrize("name", sorted(set(perfml.__all__) - {"read"}))
def test_help_says_how_a_name_is_called_and_not_how_it_is_maintained(name):
    said = inspect.getdoc(getattr(perfml, name))
    assert re.search("^(Parameters|Examples)\n-", said, re.M)
    assert re.search(r"^Examples\n-+\n(>>> |.*::\n)", said, re.M)
    assert "Here to change" not in said


def test_what_the_verbs_answer_python_answers_too(layers):
    from typer.testing import CliRunner

    from perfml.cli import app

    def verb(*words):
        done = CliRunner().invoke(app, [*map(str, words), "--json"])
        return json.loads(done.stdout)

    left, right = DATA / "conv_03_cublas.csv", DATA / "conv_03_range.csv"
    said = verb("gate", left, left)
    assert perfml.gate(left, left).to_dict().items() <= said.items()
    assert perfml.gate(left, right).exit_code == verb("gate", left, right)["exit_code"]
    where = ["batch=1", "precision=fp32"]
    asked = [word for each in where for word in ("--where", each)]
    rows = verb("roofline", "h200-yolov4-tiny", *asked)["rows"]
    found = perfml.roofline(layers)
    assert found["layer"].tolist() == [row["layer"] for row in rows]
    assert found["time_us"].tolist() == pytest.approx([row["time_us"] for row in rows])
    assert found["bound"].tolist() == [row["bound"] for row in rows]


def test_inspect_holds_what_the_verb_prints():
    from typer.testing import CliRunner

    from perfml.cli import app

    path = DATA / "conv_03_cublas.csv"
    said = json.loads(CliRunner().invoke(app, ["inspect", str(path), "--json"]).stdout)
    found = perfml.inspect(path)
    assert (found.kind, found.rows) == (said["kind"], said["rows"])
    assert found.kernels["kernel"].tolist() == [row["kernel"] for row in said["kernels"]]
    assert found.kernels["total_us"].tolist() == [row["total_us"] for row in said["kernels"]]
    assert found.metrics.to_dict("records") == said["metrics"]
    assert found.runs["us_per_iteration"].tolist() == [
        row["us_per_iteration"] for row in said["runs"]
    ]


@pytest.fixture(scope="module")
def layers():
    return perfml.load_dataset("h200-yolov4-tiny", where=["batch=1", "precision=fp32"])


@pytest.fixture(scope="module")
def fitted(layers):
    """Return a ranking and scores of a few columns."""
    columns = ["layer", "dram_utilization", "achieved_occupancy", "stall_sync", "time_us"]
    words = {"y": "time_us", "groups": "layer", "models": ["dt"]}
    few = {"resamples": 2, "permutations": 20, "methods": "builtin"}
    table = layers[columns]
    return perfml.rank(table, **few, **words), perfml.evaluate(table, splits=2, **words)


def test_results_draw_themselves(layers, fitted):
    sides = [layers[layers["backend"] == name] for name in ("cublas", "cudnn")]
    found = perfml.explain(*sides, model=None, top=1)
    assert "cudnn" in found.plot().get_xlabel() or found.plot().get_xlabel()
    assert len(found.details[0].plot().patches) > 1
    ranking, scores = fitted
    assert ranking.to_frame().equals(ranking.summary)
    assert scores.plot().collections


@pytest.mark.parametrize(
    "module",
    [
        "perfml.datasets.frames",
        "perfml.datasets.inspected",
        "perfml.gate.python",
        "perfml.modeling.ranking.rank",
        "perfml.modeling.scoring.evaluate",
        "perfml.report.figures.registry",
    ],
)
def test_examples_are_right(module):
    found = doctest.testmod(importlib.import_module(module))
    assert found.attempted > 0
    assert found.failed == 0


def test_results_fit_a_terminal_and_say_what_they_leave_out(fitted):
    ranking, scores = fitted
    kernels = perfml.read(DATA / "conv_03_cublas.csv")
    advice = perfml.advise(kernels)
    for result in (ranking, scores, advice):
        lines = repr(result).splitlines()
        assert max(map(len, lines)) <= 80
        assert len(lines) < 40
    assert "chance" in repr(ranking)
    assert re.search(r"\d %  +[\d.]+\n", repr(ranking))
    assert re.search(r"\d %  [\d.]+ % to [\d.]+ %", repr(scores))
    assert "leave-one-group-out" in repr(scores)


@pytest.fixture(scope="module")
def results(fitted):
    """Return a result of every function of the reference that returns one."""
    kernels = perfml.read(DATA / "conv_03_cublas.csv")
    slower = kernels.assign(time_us=kernels["time_us"] * 2)
    sides = perfml.load_dataset("h200-yolov4-tiny", where=["batch=1", "precision=fp32"])
    left, right = (sides[sides["backend"] == name] for name in ("cublas", "cudnn"))
    layer = PredictedLayer("conv", None, "net", "cudnn", "fp32", 1, "NVIDIA H200", 1, 20.0)
    return [
        *fitted,
        perfml.advise(kernels),
        perfml.explain(left, right, model=None),
        perfml.gate(kernels, slower),
        perfml.inspect(DATA / "conv_03_cublas.csv"),
        perfml.report(left, right, out=None),
        perfml.report(DATA / "conv_03_cublas.csv", out=None),
        Prediction("others", 3, 30, (layer,), 0.9, None),
    ]


def test_every_result_prints_shows_a_table_and_becomes_json(results):
    assert len({type(result) for result in results}) == 8
    for result in results:
        lines = repr(result).splitlines()
        assert max(map(len, lines)) <= 80, type(result)
        assert 1 < len(lines) < 50, type(result)
        assert "<table" in result._repr_html_()
        assert isinstance(json.loads(json.dumps(result.to_dict(), allow_nan=False)), dict)


def test_a_report_of_two_sides_compares_them_by_name_and_by_table(tmp_path):
    one = DATA / "conv_03_cublas.csv"
    sides = (one, tmp_path / "slower.parquet")
    kernels = perfml.read(one)
    tables = (kernels, kernels.assign(time_us=kernels["time_us"] * 2))
    write_table(tables[1], sides[1], kind="kernels", provenance={})
    page = perfml.report(*sides, out=tmp_path / "page.html")
    assert page.brand == perfml.report(*tables, out=None).brand != "perfml report"
    assert (tmp_path / "page.html").read_text("utf-8").count("<table") > 0


def test_a_number_and_its_unit_stay_on_one_line():
    text = "at or below 1.00 in 95 % of the cases, about 48.6 us instead of 153 and 4.22 TB/s"
    for width in range(12, 60):
        lines = folded(text, width, "- ", "  ")
        assert not any(line.strip().startswith(("%", "us", "TB/s")) for line in lines)
        assert " ".join(line[2:] for line in lines) == text


def test_the_name_of_a_kernel_longer_than_a_line_loses_its_middle_and_a_path_does_not():
    name = "cutlass_80_wmma_tensorop_f16_s161616gemm_f16_64x64_128x2_tn_align8"
    cut = "(sm80_xmma_fprop_implicit_gemm_…_execute_kernel__5x_cudnn)"
    path = "/home/somebody/profiles/of_a_network/with_a_long_name/kernels.parquet"
    lines = folded(f"one {name} two {cut} three {path}", 50, "  ", "    ")
    assert [line.strip() for line in lines if len(line) > 50] == [path]
    said = " ".join(line.strip() for line in lines)
    assert "cutlass_80_" in said
    assert "_tn_align8" in said
    assert said.count("…") == 2
    assert folded(name, 80) == [name]


def test_columns_go_from_the_last_and_words_lose_their_end():
    frame = pd.DataFrame(
        {
            "layer": ["a_very_long_name_of_a_layer_that_goes_on"],
            "value": [1.23456],
            "what": ["a sentence that is longer than there is room"],
            "none": [None],
            "more": [1],
        }
    )
    text = screen("title", [], frame, rest=".table", width=40)
    assert max(map(len, text.splitlines())) <= 40
    assert "1.235" in text
    assert "…" in text
    assert re.search(r"\(without .*more.*: all in\s+\.table\)", text)
    assert shorter("one two three", 8) == "one two…"
    assert shorter("abcdefghij", 7) == "abc…hij"
    many = screen("title", ["w"] * 5, pd.concat([frame] * 20), most=3)
    assert "(2 more warnings)" in many
    assert "17 more rows" in many
