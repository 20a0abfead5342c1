"""The notebooks run without a GPU, show what they say, and lie in git without outputs."""

from __future__ import annotations

import base64
import re
import struct
import warnings

import nbformat
import pandas as pd
import pytest

from perfml.datasets import to_published
from perfml.ingest.merge.rule import merge
from perfml.ingest.profiles import ingest
from perfml.report import figures
from perfml.tables import Table
from tests.support.notebooks import FOLDER
from tests.support.paths import ROOT

pytestmark = pytest.mark.page

PROFILES = ROOT / "tests" / "data" / "ncu"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
NOWHERE = "http://127.0.0.1:9"
"""A proxy that refuses: the published file cannot be downloaded, here and everywhere."""
FOUR_LAYERS = """
from dataclasses import replace

from perfml.reproduce import published

whole = published.find_recording()
names = ["conv_03", "conv_15", "conv_18", "conv_20"]
layers, kernels = (table[table["layer"].isin(names)].reset_index(drop=True)
                   for table in (whole.layers, whole.kernels))
part = replace(whole, layers=layers, kernels=kernels)
published.find_recording = lambda: part
"""
"""Runs before a reproduction on a recording, which has 21 layers: half a minute of fits."""


@pytest.fixture
def run(kernel, tmp_path, monkeypatch):
    """Return a function that executes a notebook, then a check on its variables."""
    for name in ("PERFML_DATA", "MPLBACKEND"):
        monkeypatch.delenv(name, raising=False)
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, NOWHERE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))

    def execute(name, check, **options):
        notebook = kernel.run(name, check, **options)
        assert "Traceback" not in shown(notebook, "stderr")
        return notebook

    return execute


def outputs(notebook):
    """Return every output of every cell."""
    return [each for cell in notebook.cells for each in cell.get("outputs", [])]


def shown(notebook, stream="stdout"):
    """Return what the cells printed."""
    return "".join(
        each.text
        for each in outputs(notebook)
        if each.output_type == "stream" and each.name == stream
    )


def pages(notebook):
    """Return the HTML of every object that showed itself."""
    return [
        each.data["text/html"] for each in outputs(notebook) if "text/html" in each.get("data", {})
    ]


def pictures(notebook):
    """Return width and height of every picture."""
    found = []
    for each in outputs(notebook):
        if "image/png" in each.get("data", {}):
            png = base64.b64decode(each.data["image/png"])
            assert png.startswith(b"\x89PNG")
            found.append(struct.unpack(">II", png[16:24]))
    return found


def alternatives(notebook):
    """Return what every picture says to those who do not see it."""
    return [
        each.metadata["image/png"]["alt"]
        for each in outputs(notebook)
        if "image/png" in each.get("data", {})
    ]


def test_there_are_notebooks_in_reading_order():
    assert [path.name[:2] for path in NOTEBOOKS] == ["01", "02", "03", "04", "05", "06"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_committed_notebook_has_no_outputs(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert code
    assert all(cell.outputs == [] and cell.execution_count is None for cell in code)
    assert notebook.metadata.kernelspec.name == "python3"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_uses_public_functions_and_defines_none(path):
    notebook = nbformat.read(path, as_version=4)
    source = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "code")
    assert not re.search(r"^\s*(def|class|lambda) ", source, re.M)
    assert not re.search(r"(from|import) perfml\S*\._|import _", source)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_links_and_files_that_a_notebook_names_exist(path):
    notebook = nbformat.read(path, as_version=4)
    prose = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")
    code = "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "code")
    links = re.findall(r"\]\(([^)#:]+)\)", prose)
    files = re.findall(r'"(\.\./[^"]+)"', code)
    rooted = re.findall(r"`((?:tests|datasets)/[^`]+)`", prose)
    for name in [*links, *files]:
        assert (FOLDER / name).exists(), name
    for name in rooted:
        assert (FOLDER.parent / name).exists(), name


def test_a_report_of_ones_own_leads_to_what_to_do_first(run):
    notebook = run(
        "01_your_report",
        "assert layers['layer'].nunique() == 21\n"
        "assert len(advice.of_layers) > 20\n"
        "assert why.total.ratio > 1.5",
    )
    assert shown(notebook, "stderr") == ""
    assert "likely saves" in shown(notebook)
    assert len(pictures(notebook)) == 2
    assert all(alternatives(notebook))


@pytest.mark.slow
def test_why_it_is_slower_has_causes_of_a_pair_and_finds_no_difference_in_one_run(run):
    notebook = run(
        "02_why_is_it_slower",
        "assert found.total.ratio > 1.5\n"
        "assert conv_20.time.ratio > 2 > 1 > conv_03.time.ratio\n"
        "assert set(same.layers['verdict']) <= {'no difference', 'undecided'}",
    )
    assert "the wrong direction" in shown(notebook)
    assert len(pictures(notebook)) == 3
    assert all(alternatives(notebook))


@pytest.mark.slow
def test_a_table_with_columns_of_ones_own_is_scored_and_ranked_beside_noise(run):
    notebook = run(
        "03_your_table",
        "assert 'layer' not in table\n"
        "assert set(scores.scores['protocol']) == {'random', 'leave-one-group-out'}\n"
        "noise = ranking.summary['members'].str.contains('noise')\n"
        "assert ranking.summary.loc[noise, 'p_value'].item() > 0.05",
        fewer=[("resamples=20", "resamples=5, permutations=20")],
    )
    assert "explain more than chance" in shown(notebook)
    assert len(pictures(notebook)) == 2
    assert all(alternatives(notebook))


@pytest.mark.slow
def test_the_study_without_its_file_is_repeated_on_a_recording(run):
    notebook = run(
        "04_the_study",
        "assert not found.source.published\n"
        "assert top.shape == (10, 6)\n"
        "assert abs(shares.sum() - 1).max() < 1e-9\n"
        "assert len({ax.get_xlim() for ax in axes.flat}) == 1",
        before=FOUR_LAYERS,
    )
    assert "not testable on this data" in "".join(pages(notebook))
    assert len(pictures(notebook)) == 2


@pytest.mark.slow
def test_the_study_takes_the_file_that_the_environment_names(run, tmp_path, monkeypatch):
    files = sorted((ROOT / "studies/data/h200-sweep").glob("*_b1*.csv.xz"))
    layers = merge(ingest(files).frame)
    two = layers[layers["layer"].isin(["conv_03", "conv_20"])]
    path = tmp_path / "named.csv"
    to_published(two).to_csv(path, index=False)
    monkeypatch.setenv("PERFML_DATA", str(path))
    check = f"assert found.results['data']['rows'] == {len(two)}"
    notebook = run("04_the_study", check, before=FOUR_LAYERS)
    assert "named.csv" in "".join(
        each.data["text/plain"]
        for each in outputs(notebook)
        if "text/plain" in each.get("data", {})
    )


def test_from_a_pytorch_model_to_its_slow_layers(run):
    notebook = run(
        "05_pytorch_model",
        "assert slow[0] == 'conv_20'\n"
        "assert set(advice.table['layer']) <= set(slow)\n"
        "assert found.total.ratio < 1",
    )
    assert "faster" in shown(notebook)
    assert len(pictures(notebook)) == 2
    assert all(alternatives(notebook))


def test_proof_by_experiment_shows_responses_and_verdicts_with_measured_gains(run):
    notebook = run(
        "06_proof_by_experiment",
        "assert set(verdicts['verdict']) == {'proven'}\n"
        "assert (abs(savings['saved'] - savings['repaired']) < 0.16).all()\n"
        "assert list(ratios.loc['barriers'].dropna().nsmallest(1).index) == ['no_barriers']\n"
        "assert abs(shares.sum(axis=1) - 1).max() < 0.05",
    )
    assert shown(notebook).count("Refuted by experiment") == 3
    assert len(pictures(notebook)) == 3


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_has_a_picture_for_the_gallery(path):
    captions = [cell.metadata.get("gallery") for cell in nbformat.read(path, as_version=4).cells]
    assert 1 <= len([each for each in captions if each]) <= 3
    assert all(each.endswith(".") and len(each.split()) <= 20 for each in captions if each)


def test_a_figure_shows_itself_at_twice_its_size_in_points():
    kernels = ingest([PROFILES / "conv_03_cublas.csv"]).frame
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a layout that does not fit is a warning
        png, size = figures.kernel_shares(kernels, layer="conv_03")._repr_png_()
    width, height = struct.unpack(">II", png[16:24])
    assert (width, height) == (2 * size["width"], 2 * size["height"])


def test_tables_show_their_runs_and_fold_many_warnings():
    kernels = ingest([PROFILES / "conv_03_cublas.csv"])
    page = kernels._repr_html_()
    assert "5 launches" in page
    assert "<b>Warning:</b> conv_03_cublas.csv: shared_efficiency" in page
    assert "<details>" not in page
    hostile = {"warnings": [f"<script>{number}</script>" for number in range(4)]}
    page = Table(merge(kernels.frame), "layers", hostile)._repr_html_()
    assert "<summary><b>4 warnings</b></summary>" in page
    assert "<script>" not in page
    assert "1 layer, " in page


def test_a_long_text_is_shown_whole():
    from perfml.util.shown import section

    assert "x" * 200 in section("title", [], pd.DataFrame({"evidence": ["x" * 200]}))
