"""What a command says of a name that is nearly right, and of a place where it cannot write."""

import subprocess
import sys
from pathlib import Path

import pytest

from perfml.cli import output
from perfml.errors import PerfmlError
from perfml.metrics import load_catalogue
from perfml.tables import write_table
from tests.support.command_line import run
from tests.support.report_data import layers


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Return the file of a small Layers table."""
    path = tmp_path_factory.mktemp("mistakes") / "layers.parquet"
    write_table(layers(layers=6), path, kind="layers", provenance={})
    return path


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (("train", "h200-yolo4-tiny"), "h200-yolov4-tiny"),
        (("datasets", "nazir"), "nazir2024"),
        (("plot", "tims", "{table}"), "times"),
        (("plot", "stalls", "{table}", "--layer", "conv_001"), "conv_01"),
        (("explain", "{table}", "--baseline", "cublas", "--target", "cudn"), "cudnn"),
        (("advise", "{table}", "--layer", "conv_99"), "conv_"),
        (("train", "{table}", "--model", "gbrr"), "gbr"),
        (("metrics", "sm__warp_active.avg.pct_of_peak_sustained_active"), "sm__warps_active"),
        (("rank", "{table}", "--predict", "backends"), "backend"),
        (("rank", "{table}", "--where", "bakend=cublas"), "backend"),
        (("rank", "{table}", "--features", "gld_efficiency,stall_sycn"), "stall_sync"),
        (("advise", "{table}", "--layer", "conv_1"), "conv_01? "),
        (("train", "{table}", "--where", "backend=cudn"), "cudnn"),
        (("collect", "yolov4", "--dry-run"), "yolov4-tiny"),
    ],
)
def test_a_name_that_is_nearly_right_gets_a_proposal(words, meant, table):
    result = run(*(word.format(table=table) for word in words))
    assert result.exit_code in (1, 2)
    said = " ".join(result.output.split())
    assert "Did you mean" in said, said
    assert meant in said.partition("Did you mean")[2]


@pytest.mark.parametrize("verb", ["ingest", "inspect", "explain", "gate"])
def test_a_file_that_is_nearly_called_so_is_proposed_and_one_of_the_same_ending_is_not(
    verb, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    for name in ("nightly_conv.ncu-rep", "mm.ncu-rep"):
        (tmp_path / name).write_bytes(b"")
    said = run(verb, *["nightly_cnv.ncu-rep"] * (2 if verb == "gate" else 1)).output
    assert "Did you mean nightly_conv.ncu-rep?" in said
    assert "mm.ncu-rep" not in said
    assert "Did you mean" not in run(verb, *["qx.ncu-rep"] * (2 if verb == "gate" else 1)).output


def test_counters_of_nsight_compute_lead_to_the_metrics_that_read_them():
    catalogue = load_catalogue()
    assert "achieved_occupancy" in catalogue.read_from("sm__warps_active.avg.pct")
    assert "achieved_occupancy" in catalogue.read_from("sm__warps_active...")
    result = run("metrics", "sm__warps_active")
    assert result.exit_code == 0
    assert "achieved_occupancy" in result.output
    with pytest.raises(PerfmlError, match="no metric is read from"):
        catalogue.read_from("smsp__nothing")


@pytest.mark.parametrize("verb", ["train", "rank", "report", "select", "plot"])
def test_a_place_that_cannot_be_written_is_said_before_the_work(verb, table, tmp_path):
    out = tmp_path / "nowhere" / ("x.txt" if verb == "select" else "x.svg")
    words = ("plot", "times", table) if verb == "plot" else (verb, table)
    result = run(*words, "--out", out)
    assert result.exit_code == 1
    assert "cannot write here" in result.output
    assert "warning" not in result.output
    assert not out.parent.exists()


def test_a_name_that_promises_another_format_is_no_report(table, tmp_path):
    result = run("report", table, "--out", tmp_path / "report.docx")
    assert result.exit_code == 1
    assert ".html or .md" in result.output
    assert list(tmp_path.iterdir()) == []


def test_doctor_says_before_it_measures_that_it_cannot_write(tmp_path):
    result = run("doctor", "--measure-peaks", "--out", tmp_path / "nowhere" / "x.json")
    assert result.exit_code == 1
    assert "cannot write here" in result.output
    assert "python" not in result.output


@pytest.mark.process
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
@pytest.mark.parametrize("words", ["--help", "--version", "metrics", "metrics --json"])
def test_an_output_that_is_full_is_no_traceback(words, monkeypatch):
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)  # what is written fails late
    command = f"exec {sys.executable} -m perfml {words} >/dev/full"
    done = subprocess.run(command, shell=True, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert "No space left" in done.stderr
    assert len(done.stderr.splitlines()) <= 2
    assert "internal error" not in done.stderr


@pytest.mark.process
def test_a_closed_output_is_one_clear_message():
    done = subprocess.run(
        f"exec {sys.executable} -m perfml metrics gld_efficiency >&-",
        shell=True,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("error: standard output is closed")


@pytest.mark.parametrize("value", ["nan", "inf", "-1", "x"])
def test_a_number_that_is_none_is_refused(value, table):
    sides = ("--baseline", "cublas", "--target", "cudnn")
    assert run("explain", table, *sides, "--tolerance", value).exit_code in (1, 2)


@pytest.mark.parametrize(
    ("lost", "cure"),
    [(Path(output.__file__).parents[1] / "metrics" / "gone.toml", "install"), ("x/y", "name it")],
)
def test_a_missing_file_asks_for_no_space(lost, cure, capsys):
    output.refused(FileNotFoundError(2, "No such file or directory", str(lost)))
    said = capsys.readouterr().err
    assert cure in said
    assert "space" not in said
