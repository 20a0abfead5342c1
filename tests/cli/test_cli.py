"""Every command in this process; as the program a user starts where the process is the matter."""

import json
import os
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from perfml.explain import Peaks
from perfml.report.render.text import to_text
from perfml.report.verbs import roofline_document
from perfml.tables import write_table
from tests.support.command_line import run
from tests.support.processes import PATIENCE_S
from tests.support.report_data import on_h200

pytestmark = pytest.mark.process


def start(*words: object, env=None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "perfml", *map(str, words)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        env={**os.environ, **(env or {})},
        check=False,
    )


def test_a_table_of_ones_own_is_ranked_by_the_column_that_is_named(tmp_path):
    generator = np.random.default_rng(0)
    size = np.repeat(generator.uniform(size=12), 3)
    own = pd.DataFrame(
        {
            "op": np.repeat([f"op_{number}" for number in range(12)], 3),
            "bytes": size,
            "noise": generator.uniform(size=36),
            "latency": [f"{each:.4f} ms" for each in 1 + size + generator.normal(size=36) / 20],
        }
    )
    own.to_csv(tmp_path / "own.csv", index=False)
    own.to_parquet(tmp_path / "own.parquet", index=False)
    few = ("--model", "dt", "--resamples", "3", "--permutations", "20", "--json", "-q")
    named = ("--target", "latency", "--groups", "op", *few)
    first, second = (
        json.loads(run("rank", tmp_path / name, *named).stdout)
        for name in ("own.csv", "own.parquet")
    )
    assert first["summary"][0]["members"] == "bytes"
    assert any("op" not in score["protocol"] for score in first["unseen"])
    assert {**first, "dataset": ""} == {**second, "dataset": ""}
    wrong = run("rank", tmp_path / "own.csv", "--target", "latencies", *few)
    assert "latency" in json.loads(wrong.stdout)["error"]["cure"]


@pytest.fixture(scope="module")
def tables(tmp_path_factory, recorded):
    """Return the tables of the two recorded exports, made by the command line."""
    folder = tmp_path_factory.mktemp("tables")
    kernels, layers = folder / "k.parquet", folder / "layers.parquet"
    exports = sorted((recorded / "ncu").glob("yolov4tiny_*_b1_fp32.csv.xz"))
    assert run("ingest", *exports, "--out", kernels, "-q").exit_code == 0
    assert run("merge", kernels, "--out", layers, "-q").exit_code == 0
    return kernels, layers


def test_the_version_is_printed():
    from perfml import __version__

    assert start("--version").stdout.strip() == f"perfml {__version__}"


def test_merge_writes_the_published_schema(tables, tmp_path):
    out = tmp_path / "dataset.csv"
    assert run("merge", tables[0], "--out", out, "-q").exit_code == 0
    lines = out.read_text().splitlines()
    header = lines[0].split(",")
    assert (header[0], header[-1], len(header)) == ("type", "time", 21)
    assert len(lines) == 43


def test_merge_keeps_the_layers_asked_for(tables, tmp_path):
    out = tmp_path / "layers.parquet"
    words = ("--layer", "conv_0[1-3]", "--out", out, "--json", "-q")
    assert json.loads(run("merge", tables[0], *words).stdout)["layers"] == 3
    result = run("merge", tables[0], "--layer", "pool", "--out", out)
    assert result.exit_code == 1
    assert "no layer's name matches" in result.stderr


def test_a_random_split_is_never_shown_alone(tables):
    words = ("--model", "dt", "--splits", "2", "--protocol", "random", "--json", "-q")
    document = json.loads(run("train", tables[1], *words).stdout)
    assert "leave-one-layer-out" in {row["protocol"] for row in document["scores"]}


def test_a_roofline_without_bytes_says_what_is_known(tmp_path):
    _, table = on_h200(layers=2)
    path = tmp_path / "layers.parquet"
    write_table(table, path, kind="layers", provenance={})
    printed = run("roofline", str(path)).stdout
    assert "bytes that each memory moved were not counted" in " ".join(printed.split())
    assert "unknown" not in printed
    (line,) = (each for each in printed.splitlines() if each.startswith("conv_01  cublas"))
    rate = 1e9 / (1.01 * 5e-6)
    assert f"{rate / 1e12:.4g}" in line


def test_a_roofline_of_many_layers_shows_those_that_take_longest_first():
    times = [float(number) for number in range(1, 61)]
    rows = pd.DataFrame({"layer": [f"l{time:.0f}_" for time in times], "time_us": times})
    rows = rows.assign(flops=1e9, flop_rate=1e12, flops_source="counted", fraction=0.5)
    rows["bound"] = "compute"
    peaks = Peaks("a GPU", {"fp32": 4e12}, {"fp32": "given"})
    shown = to_text(roofline_document(rows, peaks, by_kernel=False), width=100)
    assert shown.index("l60_") < shown.index("l59_")
    assert "l20_" not in shown
    assert "(20 more rows with -v or --json)" in shown


def test_advice_leaves_out_the_launches_of_layers_that_the_table_lacks(tmp_path):
    frame, table = on_h200(layers=3)
    paths = [str(tmp_path / f"{name}.parquet") for name in ("kernels", "layers")]
    write_table(frame, paths[0], kind="kernels", provenance={})
    some = table[table["layer"] == "conv_01"].reset_index(drop=True)
    write_table(some, paths[1], kind="layers", provenance={})
    found = json.loads(run("advise", paths[1], "--launches", paths[0], "--json").stdout)
    assert found["layers"] == len(some["backend"].unique())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["ingest", "none.csv"], "no such file"),
        (["merge", "none.parquet"], "no such file"),
        (["train", "no-such-dataset"], "no such file or dataset"),
        (["metrics", "gld_eficiency"], "Did you mean gld_efficiency"),
        (["datasets", "nothing"], "no dataset is called"),
        (["collect", "yolov4-tiny", "--precision", "fp8", "--dry-run"], "has no such precision"),
        (["collect", "conv", "--backend", "wmma_fp61", "--dry-run"], "Did you mean wmma_fp16"),
        (["collect", "yolov4tiny"], "Workloads are: yolov4-tiny"),
    ],
)
def test_errors_are_two_lines_on_stderr_and_exit_1(words, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = run(*words)
    assert done.exit_code == 1
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) <= 2
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "words", [["merge"], ["train", "x", "--predict", "clustering"], ["nonsense"]]
)
def test_wrong_usage_exits_2(words):
    assert run(*words).exit_code == 2


@pytest.mark.parametrize("damage", ["cut", "locale", "empty", "unknown"])
def test_damaged_input_leaves_no_output_behind(damage, tmp_path, recorded):
    import lzma

    whole = lzma.decompress((recorded / "ncu" / "yolov4tiny_cudnn_b1_fp32.csv.xz").read_bytes())
    lines = whole.split(b"\n")
    content = {
        "cut": whole.rstrip(b"\n")[:-1],
        "locale": whole.replace(b'"6.624000"', b'"6.624,00"'),
        "empty": b"\n".join(lines[:2]) + b"\n",
        "unknown": b"one,two\n1,2\n",
    }[damage]
    path = tmp_path / "profile.csv"
    path.write_bytes(content)
    done = run("ingest", path, "--out", tmp_path / "k.parquet")
    assert done.exit_code == 1, done.stdout
    assert str(path) in done.stderr
    assert 1 <= len(done.stderr.strip().splitlines()) <= 2
    assert [each.name for each in tmp_path.iterdir()] == ["profile.csv"]


def test_an_internal_error_is_one_clear_message_and_vv_shows_where(monkeypatch, tables):
    import perfml.datasets.opening

    def broken(*args: object, **kwargs: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(perfml.datasets.opening, "read_table", broken)
    result = run("inspect", tables[0])
    assert result.exit_code == 1
    assert "ZeroDivisionError" in result.stderr
    assert "-vv" in result.stderr
    result = run("inspect", tables[0], "-vv")
    assert isinstance(result.exception, ZeroDivisionError)


def test_output_into_a_closed_pipe_is_no_error():
    done = subprocess.run(
        f"{sys.executable} -m perfml metrics | head -1", shell=True, capture_output=True, check=True
    )
    assert b"Traceback" not in done.stderr


def test_no_color_and_no_terminal_mean_no_escape_codes():
    assert "\x1b" not in start("metrics", env={"NO_COLOR": "1"}).stdout
    assert "\x1b" not in start("metrics", env={"TERM": "xterm-256color"}).stdout


def test_of_many_warnings_alike_one_stands_for_all(capsys):
    from perfml.cli.output import Output

    alike = [f"run_{number}: {number} launches (layers a, b) were odd" for number in range(5)]
    Output().warn_all([*alike, "x: other", "y: 3 more"])
    printed = capsys.readouterr().err.splitlines()
    assert printed[0].endswith("were odd [and 4 more of this kind; -v lists them]")
    assert printed[1:] == ["warning: x: other", "warning: y: 3 more"]
    Output(verbose=1).warn_all(alike)
    assert len(capsys.readouterr().err.splitlines()) == 5


def test_the_folder_of_the_datasets_is_named_by_its_path_from_here(root, monkeypatch):
    monkeypatch.chdir(root)
    monkeypatch.setenv("COLUMNS", "80")
    lines = run("datasets").stdout.splitlines()
    assert lines[-1] == "here: in datasets"
    assert max(map(len, lines)) <= 80
