"""A time taken while counters were read says so wherever it is shown."""

import json

import pandas as pd
import pytest

from perfml.account.time_sources import time_note
from perfml.datasets import load
from perfml.explain import advise, explain
from perfml.gate.render import markdown, text
from perfml.gate.verdict import judge
from perfml.ingest.merge.batches import merge_files
from perfml.modeling import evaluate, rank
from perfml.report.build import build_report
from perfml.report.figures.registry import Request, draw_plot
from perfml.report.render.markdown import to_markdown
from perfml.report.render.text import to_text
from perfml.report.sections.explanation import explanation_document
from perfml.report.verbs import advice_document
from perfml.tables import write_table
from tests.support.command_line import run
from tests.support.tables import make_kernels

pytestmark = pytest.mark.long

UNDER = "from under the profiler: Nsight Compute's"


@pytest.fixture(scope="module")
def recorded():
    layers = load("h200-yolov4-tiny").frame
    chosen = layers[(layers["batch"] == 8) & (layers["precision"] == "fp32")]
    return chosen[chosen["backend"].isin(["cublas", "cudnn"])].reset_index(drop=True)


@pytest.mark.parametrize("source", ["timing", "apportioned", "nsys", "torch", "nvprof"])
def test_times_without_counters_need_no_label(source):
    assert time_note(pd.DataFrame({"time_source": [source, source]})) is None
    assert time_note(pd.DataFrame({"time_us": [1.0]})) is None


def test_times_from_under_a_profiler_are_named_with_their_share():
    note = time_note(pd.DataFrame({"time_source": ["ncu", "ncu"]}), "cudnn")
    assert note is not None
    assert note.startswith(f"cudnn: times {UNDER}")
    assert "rows" not in note
    some = time_note(pd.DataFrame({"time_source": ["ncu+timing", "timing", None]}))
    assert some is not None
    assert "in 1 of 3 rows" in some


def test_explain_names_the_side_whose_times_are_a_profilers(recorded):
    sides = [
        recorded[recorded["backend"] == name].assign(time_source=source)
        for name, source in (("cublas", "timing"), ("cudnn", "ncu"))
    ]
    explanation = explain(*sides, model=None, top=1)
    (note,) = explanation.time_notes
    assert note.startswith(f"target: times {UNDER}")
    assert note in " ".join(to_text(explanation_document(explanation)).split())
    assert json.loads(json.dumps(explanation.to_dict()))["time_notes"] == [note]


def test_advice_and_the_report_say_it_once_a_place(recorded):
    profiled = recorded.assign(time_source="ncu")
    advice = advise(profiled)
    assert UNDER in " ".join(to_text(advice_document(advice, 3)).split())
    report = build_report(profiled)
    assert dict(report.facts)["times"] == "from under the profiler"  # a tile has room for no more
    assert UNDER in to_markdown(report)
    assert "times" not in dict(build_report(recorded.assign(time_source="timing")).facts)


def test_models_of_such_times_say_it_and_those_of_the_backend_do_not(recorded):
    profiled = recorded.assign(time_source="ncu")
    options = {"models": "dt", "protocols": "random", "splits": 2}
    assert any(UNDER in each for each in evaluate(profiled, **options).warnings)
    of_backend = evaluate(profiled, task="classification", **options)
    assert not any(UNDER in each for each in of_backend.warnings)
    ranking = rank(profiled, models="dt", resamples=2, permutations=20, methods="builtin")
    assert any(UNDER in each for each in ranking.warnings)


def test_the_roofline_says_it_under_its_table_and_in_json(recorded, tmp_path):
    path = tmp_path / "layers.parquet"
    profiled = recorded.assign(time_source="ncu")
    write_table(profiled, path, kind="layers", provenance={})
    assert UNDER in " ".join(run("roofline", str(path)).stdout.split())
    told = json.loads(run("roofline", str(path), "--json").stdout)
    assert UNDER in told["time_notes"][0]


def test_the_gate_names_the_side_whose_times_are_a_profilers(recorded):
    mine = recorded[recorded["backend"] == "cudnn"]
    result = judge(mine.assign(time_source="timing"), mine.assign(time_source="cupti"))
    (note,) = result.to_dict()["time_notes"]
    assert note.startswith("new version: times from under the profiler: CUPTI's")
    assert note in text(result, "main", "new")
    assert note in markdown(result, "main", "new")
    assert judge(mine.assign(time_source="timing"), mine).time_notes == ()


def test_a_merge_says_it_of_its_rows_on_stderr_and_in_json(tmp_path):
    rows = [
        {"layer": "a", "time_source": "ncu"},
        {"layer": "b", "time_source": "timing"},
        {"layer": "c", "time_source": None},
    ]
    kernels, layers = tmp_path / "kernels.parquet", tmp_path / "layers.parquet"
    write_table(make_kernels(rows), kernels, kind="kernels", provenance={})
    (note,) = merge_files(kernels, layers).time_notes
    assert "(in 1 of 3 rows)" in note
    done = run("merge", str(kernels), "--out", str(layers))
    assert UNDER in done.stderr
    done = run("merge", str(kernels), "--out", str(layers), "--json", "-q")
    assert json.loads(done.stdout)["time_notes"] == [note]


@pytest.mark.parametrize(
    ("figure", "source", "labelled"),
    [("times", "ncu", True), ("times", "timing", False)],
)
def test_a_picture_of_such_times_says_it_within_itself(recorded, figure, source, labelled):
    ax = draw_plot(figure, Request(recorded.assign(time_source=source)))
    label = " ".join(ax.figure.get_supxlabel().split())
    assert (UNDER in label) == labelled


@pytest.mark.parametrize(("source", "labelled"), [("ncu", True), ("timing", False)])
def test_advice_and_roofline_of_a_report_say_it_below_such_times(recorded, source, labelled):
    profiled = recorded.assign(time_source=source)
    document = build_report(profiled, advice={"fp32 b8": advise(profiled)})
    sections = {each.anchor: each for each in document.sections}
    for anchor in ("times", "advice", "roofline"):
        assert (UNDER in repr(sections[anchor])) == labelled, anchor


def kernels_alike(source):
    times = (10.0, 10.01, 9.99)
    kernels = make_kernels([{"iteration": i, "time_us": us} for i, us in enumerate(times)])
    return kernels.assign(time_source=source)


@pytest.mark.parametrize(("source", "said"), [("ncu", True), ("cupti", True), ("timing", False)])
def test_equal_kernels_of_a_counter_profiler_send_the_reader_between_them(source, said):
    found = explain(kernels_alike(source), kernels_alike(source), model=None)
    (detail,) = found.details
    assert detail.time.verdict == "no difference"
    assert bool(detail.unseen) is said
    assert ("between them were not recorded" in to_text(explanation_document(found))) is said
    assert detail.to_dict()["unseen"] == detail.unseen


def test_kernels_that_differ_are_explained_and_say_nothing_of_what_is_between():
    slow = kernels_alike("ncu")
    found = explain(kernels_alike("ncu"), slow.assign(time_us=slow["time_us"] * 2), model=None)
    assert found.details[0].unseen == ""
