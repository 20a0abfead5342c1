"""The verb plot: every figure from the command line, and what it says when it cannot."""

from __future__ import annotations

import json

import pytest

from perfml.cli.report import Figure
from perfml.errors import PerfmlError
from perfml.ingest.merge.rule import merge
from perfml.report.figures.registry import PLOTS, Request, draw_plot, named_apart
from perfml.tables import write_table
from tests.support.command_line import run
from tests.support.report_data import kernels, shapes

pytestmark = pytest.mark.long

SIDES = ("--baseline", "cublas", "--target", "cudnn")
WORDS = {
    "kernels": ("--layer", "conv_03"),
    "importances": ("--model", "dt", "--resamples", 2),
    "models": ("--resamples", 2, "--top", 4),
    "ranks": ("--model", "dt", "--resamples", 2),
    "predictions": ("--model", "dt"),
    "ratios": SIDES,
    "attribution": SIDES,
}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Write a Kernels table, its Layers table with shapes, and one of two batches."""
    folder = tmp_path_factory.mktemp("plot")
    frame = kernels(layers=6).assign(device="NVIDIA H200")
    table = merge(frame).assign(flops=1e9, arithmetic_intensity=50.0)
    write_table(frame, folder / "kernels.parquet", kind="kernels", provenance={})
    for name, rows in (("layers", table), ("both", merge(kernels(batches=(1, 8))))):
        write_table(rows, folder / f"{name}.parquet", kind="layers", provenance=shapes(6))
    return folder


@pytest.mark.parametrize(
    "name",
    [pytest.param(each, marks=pytest.mark.slow) if each == "models" else each for each in Figure],
)
def test_every_figure_is_drawn_into_a_file(name, files, tmp_path):
    table = files / ("kernels.parquet" if name == "kernels" else "layers.parquet")
    out = tmp_path / "figure.svg"
    result = run("plot", name, table, "--out", out, "--json", "-q", *WORDS.get(name, ()))
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["out"] == str(out)
    assert document["bytes"] == out.stat().st_size > 1000
    assert out.read_text(encoding="utf-8").lstrip().startswith("<?xml")


def test_list_describes_every_figure():
    assert all(name in run("plot", "--list").stdout for name in PLOTS)
    document = json.loads(run("plot", "--list", "--json").stdout)
    assert [each["figure"] for each in document["figures"]] == list(PLOTS)


@pytest.mark.parametrize(("suffix", "magic"), [("png", b"\x89PNG"), ("pdf", b"%PDF")])
def test_format_follows_the_name(files, tmp_path, suffix, magic):
    out = tmp_path / f"times.{suffix}"
    assert run("plot", "times", files / "layers.parquet", "--out", out).exit_code == 0
    assert out.read_bytes().startswith(magic)


def test_without_a_name_the_figure_gives_it(files, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run("plot", "times", files / "layers.parquet")
    assert (tmp_path / "times.png").exists()
    assert f"Figure: {tmp_path / 'times.png'}" in result.stdout


def test_backends_of_several_datasets_are_told_apart(files, tmp_path):
    out = tmp_path / "t.svg"
    tables = (files / "layers.parquet", files / "kernels.parquet")
    assert run("plot", "times", *tables, "--out", out).exit_code == 0
    frame = merge(kernels(layers=1, repeats=1, backends=("a",)))
    both = named_apart([frame, frame], ["x", "x"])
    assert [each["backend"].iloc[0] for each in both] == ["x (1): a", "x (2): a"]
    assert named_apart([frame], ["x"])[0] is frame


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("times", "both.parquet"), "Choose one first"),
        (("times", "layers.parquet", "--layer", "nope"), "no layer is called 'nope'"),
        (("times", "layers.parquet", "--model", "dt"), "does not take --model"),
        (("kernels", "layers.parquet"), "need the Kernels table"),
        (("ratios", "layers.parquet"), "--baseline A --target B"),
        (("times", "layers.parquet", "--out", "t.gif"), "Name it FILE.png"),
        (("times", "missing.parquet"), "no such file"),
        (("roofline", "layers.parquet", "--layer", "nope"), "no layer is called 'nope'"),
        (("stalls", "layers.parquet", "--layer", "nope"), "no layer is called"),
    ],
)
def test_what_cannot_be_drawn_says_why_and_leaves_no_file(words, said, files, monkeypatch):
    monkeypatch.chdir(files)
    before = sorted(files.iterdir())
    result = run("plot", *words)
    assert result.exit_code == 1, result.output
    assert said in result.stderr
    assert "Traceback" not in result.output
    assert sorted(files.iterdir()) == before


def test_figure_and_dataset_are_needed():
    result = run("plot")
    assert result.exit_code == 2
    assert "perfml plot --list" in result.output
    with pytest.raises(PerfmlError, match="Figures are: times"):
        draw_plot("nope", Request(merge(kernels(layers=1))))
