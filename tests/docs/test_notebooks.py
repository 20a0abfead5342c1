"""The notebooks run without a GPU, show what they say, and lie in git without outputs."""

from __future__ import annotations

import base64
import re
import struct
import sys
import warnings

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

nbformat = pytest.importorskip("nbformat", reason="needs the extra notebooks")

PROFILES = ROOT / "tests" / "data" / "ncu"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
NOWHERE = "http://127.0.0.1:9"
"""A proxy that refuses: the published file cannot be downloaded, here and everywhere."""
FOUR_LAYERS = """
from dataclasses import replace

from perfml.reproduce import source

whole = source.find_recording()
names = ["conv_03", "conv_15", "conv_18", "conv_20"]
layers, kernels = (table[table["layer"].isin(names)].reset_index(drop=True)
                   for table in (whole.layers, whole.kernels))
part = replace(whole, layers=layers, kernels=kernels)
source.find_recording = lambda: part
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
    numbers = [path.name[:2] for path in NOTEBOOKS]
    assert numbers == sorted(set(numbers))
    assert {"01", "02", "03", "04", "06", "07", "08"} <= set(numbers)


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


@pytest.mark.slow
def test_a_first_look_shows_layers_kernels_and_times(run):
    notebook = run(
        "01_first_look",
        "assert set(layers['backend']) == {'cublas', 'cudnn', 'inductor'}\n"
        "assert layers['layer'].nunique() == 21\n"
        "assert len(launches) > len(layers)",
    )
    assert shown(notebook, "stderr") == ""
    assert "3,780 rows of 21 layers" in pages(notebook)[0]
    assert len(pictures(notebook)) == 3


def test_collect_and_merge_weighs_by_hand_what_merge_weighs(run):
    notebook = run(
        "02_collect_and_merge",
        "import math\n"
        "row = layers.iloc[0]\n"
        "by_hand = (weights * launches['achieved_occupancy']).sum()\n"
        "assert math.isclose(row['achieved_occupancy'], by_hand)\n"
        "assert math.isclose(row['gld_efficiency'], over_loads)\n"
        "assert over_loads > with_a_zero\n"
        "measured = whole.frame['achieved_occupancy'].iloc[0]\n"
        "assert math.isclose(measured, by_hand, rel_tol=0.02)",
    )
    assert shown(notebook, "stderr") == ""
    assert "ncu --metrics" in shown(notebook)
    assert "over the kernels that load: 0.907" in shown(notebook)
    assert len(pictures(notebook)) == 1


@pytest.mark.slow
def test_feature_importances_trains_six_models_by_both_protocols(run):
    notebook = run(
        "03_feature_importances",
        "both = [times.scores, libraries.scores]\n"
        "models = [set(each.loc[~each['baseline'], 'model']) for each in both]\n"
        "assert models == [{'dt', 'gbr', 'lmt'}, {'dt', 'lr', 'rf'}], models\n"
        "protocols = {'random', 'leave-one-layer-out'}\n"
        "assert all(set(each['protocol']) == protocols for each in both)\n"
        "assert (by_time.summary['rank_low'] <= by_time.summary['rank_high']).all()\n"
        "assert any(len(group) > 1 for group in by_time.groups)",
        fewer=[('"resamples": 10, "permutations": 20', '"resamples": 2, "permutations": 20')],
    )
    html = "".join(pages(notebook))
    assert "<progress" in html
    assert "interchangeable metrics" in html
    assert "leave-one-layer-out" in html
    assert len(pictures(notebook)) == 4
    assert all(alternatives(notebook))


@pytest.mark.slow
def test_the_reproduction_without_the_file_says_that_it_is_a_stand_in(run):
    notebook = run(
        "04_reproduce_the_study",
        "assert not found.source.published\nassert len(found.claims) > 20",
        before=FOUR_LAYERS,
    )
    html = "".join(pages(notebook))
    assert "The published file is not at hand" in html
    assert "not testable on this data" in html
    assert len(pictures(notebook)) == 5


@pytest.mark.slow
def test_the_reproduction_takes_the_file_that_the_environment_names(run, tmp_path, monkeypatch):
    files = sorted((ROOT / "studies/data/h200-sweep").glob("*_b1*.csv.xz"))
    layers = merge(ingest(files).frame)
    two = layers[layers["layer"].isin(["conv_03", "conv_20"])]
    path = tmp_path / "named.csv"
    to_published(two).to_csv(path, index=False)
    monkeypatch.setenv("PERFML_DATA", str(path))
    check = f"assert found.results['data']['rows'] == {len(two)}"
    notebook = run("04_reproduce_the_study", check, before=FOUR_LAYERS)
    html = "".join(pages(notebook))
    assert "named.csv is not the file of the study" in html
    assert "The published file is not at hand" not in html


def test_from_a_pytorch_model_to_its_slow_layers(run):
    notebook = run(
        "07_pytorch_model",
        "assert slow[0] == 'conv_20'\n"
        "assert set(roofs['bound']) <= {'compute', 'dram', 'l2', 'l1', 'unknown'}\n"
        "assert set(advice.table['layer']) <= set(slow)\n"
        "assert found.target == 'inductor'",
    )
    assert re.search(r"^ncu .*torch:torchvision/resnet18 --backend cudnn", shown(notebook), re.M)
    assert "faster" in shown(notebook)
    assert len(pictures(notebook)) == 1
    assert all(alternatives(notebook))
    assert not (FOLDER / "run").exists()


def test_your_own_program_prints_the_commands_and_ingests_a_recorded_run(run):
    notebook = run(
        "06_your_own_program",
        "assert len(launches) == 7\n"
        "assert document.answer.first[0].title.startswith('reduce: ')\n"
        "assert why.total.ratio > 1\n"
        "assert set(layers['layer']) == {'update/scale', 'update', 'reduce'}\n"
        "assert set(layers['iteration']) == {0, 1}",
    )
    assert shown(notebook, "stderr") == ""
    assert re.search(r"^ncu .*--nvtx.* python train.py --steps 3$", shown(notebook), re.M)
    assert len(pictures(notebook)) == 2
    assert not (FOLDER / "runs").exists()


def test_proof_by_experiment_shows_responses_and_verdicts_with_measured_gains(run):
    notebook = run(
        "08_proof_by_experiment",
        "assert set(verdicts['verdict']) == {'proven'}\n"
        "assert (abs(verdicts['saved'] - verdicts['real']) < 0.16).all()\n"
        "assert list(ratios.loc['barriers'].dropna().nsmallest(1).index) == ['no_barriers']\n"
        "assert abs(shares.sum(axis=1) - 1).max() < 0.05",
    )
    assert shown(notebook).count("Refuted by experiment") == 3
    assert len(pictures(notebook)) == 3
    assert all(alternatives(notebook))


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
    from perfml.util.html import section

    assert "x" * 200 in section("title", [], pd.DataFrame({"evidence": ["x" * 200]}))


@pytest.mark.parametrize("installed", [True, False])
def test_progress_outside_a_notebook_draws_nothing(installed, capsys, monkeypatch):
    from perfml.util.notebook import progress

    if not installed:
        monkeypatch.setitem(sys.modules, "IPython", None)
    show = progress()
    show(1, 2, "fits")
    assert capsys.readouterr() == ("", "")
