"""Profiles as arguments: every verb takes them as they are, and names what it refuses."""

import csv
import json
import shutil
import subprocess
import sys

import pytest

from benchmarks.gate import processor_time
from tests.support.command_line import run
from tests.support.others_files import REFUSED, others_files
from tests.support.processes import PATIENCE_S

pytestmark = pytest.mark.long

OTHERS = others_files()
REPORTED = {
    "ada_cc89_torch_metrics_with_stdout.csv",
    "csc746_nsys_report1.sqlite.xz",
    "darknet19_v100_metrics_all.txt",
    "l4_ptx_mma_ncu_set_full.txt",
    "mobilenet.qat.onnx.engine.profile.json",
    "pytorch_chrome_trace_rank0.json.gz",
    "rtx2060s_histogram_10_launches.ncu-rep",
    "thor_print_summary_per_kernel_excerpt.csv",
    "titanxp_babelstream_print_gpu_trace.txt",
    "titanxp_cfd_gpu_summary_unified_memory.csv",
    "traffic_metrics_sqlite.nvprof.gz",
}
"""A file of each format."""
QUICK = [
    name if name.rpartition("/")[2] in REPORTED else pytest.param(name, marks=pytest.mark.slow)
    for name, path in OTHERS.items()
    if path.stat().st_size < 700_000
]


def document(*words):
    result = run(*words, "--json", "-q")
    assert result.exit_code in (0, 3), result.stderr  # a gate that cannot tell has answered
    return json.loads(result.stdout)


@pytest.fixture
def report(recorded, tmp_path, monkeypatch):
    """Return a recorded profile of seven launches, in a folder that is the working one."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(recorded / "ncu" / "vectors.csv", tmp_path / "vectors.csv")
    return "vectors.csv"


def test_verbs_take_a_profile_and_leave_nothing_beside_it(report, recorded, tmp_path):
    assert len(document("explain", report, report, "--model", "none")["layers"]) == 3
    assert document("advise", report)["layers"] == 3
    assert document("inspect", report)["rows"] == 7
    assert document("plot", "times", report, "--out", "times.png")["bytes"] > 0
    assert document("merge", report, "--out", "layers.parquet")["layers"] == 3
    hazards = recorded / "ncu" / "rules_hazards.csv.xz"
    peaks = tmp_path / "peaks.json"
    peaks.write_text(json.dumps({"peaks": {"fp32": 1e12, "dram": 1e12, "l2": 1e13}}))
    words = ("--kernel", "copy", "--peaks", peaks)
    assert len(document("roofline", hazards, *words)["rows"]) == 1
    assert document("gate", hazards, hazards)["verdict"] in ("same", "cannot tell")
    made = {"times.png", "layers.parquet", "peaks.json", report}
    assert {path.name for path in tmp_path.iterdir()} == made


def test_advise_says_nothing_about_a_backend_that_a_profile_does_not_name(recorded):
    said = run("advise", recorded / "ncu" / "rules_hazards.csv.xz").stdout
    assert "what to do:" in said
    assert "unknown" not in said


@pytest.mark.parametrize(
    ("verb", "words"),
    [
        ("train", ("--splits", "2")),
        ("rank", ("--resamples", "2")),
        ("select", ()),
        ("select", ("--passes", "3")),
    ],
)
def test_verbs_that_learn_take_a_profile_too(verb, words, report):
    result = run(verb, report, "--model", "dt", *words, "--json")
    error = json.loads(result.stdout)["error"] if result.exit_code else None
    # three layers are too few for some; that is their answer, and no complaint about the file
    assert error is None or "layer" in f"{error['what']} {error['cure']}"


def test_a_report_page_is_made_of_a_profile(report, tmp_path):
    words = ("--models", "--out", "report.md")
    assert run("report", report, *words).exit_code == 0
    assert "update/scale" in (tmp_path / "report.md").read_text()
    assert run("report", report, report, "--out", "both.md").exit_code == 0


def test_two_launches_and_two_kernels_of_one_profile_are_two_sides(report):
    places = document("explain", f"{report}@2", f"{report}@3", "--model", "none")
    assert (places["baseline"], places["target"]) == ("vectors@2", "vectors@3")
    assert places["total"]["baseline_us"] == pytest.approx(5.28)
    assert places["total"]["target_us"] == pytest.approx(8.768)
    words = ("--kernel", "add", "--kernel-b", "reduce", "--model", "none")
    kernels = document("explain", report, *words)
    assert (kernels["baseline"], kernels["target"]) == ("vectors add", "vectors reduce")
    assert kernels["total"]["repeats"] == [2, 2]


def test_the_second_pattern_chooses_the_target_s_kernel_and_skip_leaves_out_the_first(report):
    words = ("--kernel", "scale", "--skip", "1", "--model", "none")
    assert document("explain", report, report, *words)["total"]["repeats"] == [2, 2]


def test_what_tells_the_sides_apart_is_no_difference_besides(report, tmp_path):
    (tmp_path / "both").mkdir()
    for name in ("first", "second"):
        shutil.copy(report, tmp_path / "both" / f"{name}.csv")
    words = ("both", "--by", "workload", "--baseline", "first", "--target", "second")
    found = document("explain", *words, "--model", "none")
    assert not [text for text in found["warnings"] if "workload" in text]


def test_one_side_alone_says_how_to_make_two(report):
    result = run("explain", report)
    assert result.exit_code == 1
    assert "--kernel ONE --kernel-b OTHER" in result.stderr
    assert "scale, add, reduce" in result.stderr


def test_without_ranges_a_table_of_kernels_comes_behind_the_clock_and_pairs_are_said(recorded):
    trace = recorded / "nvprof" / "trace.csv"
    result = run("explain", trace, trace, "--model", "none", "-q")
    assert "2 kernels are paired: 2 by name" in result.stdout
    clock, table, *layers = result.stdout.split("\n== ")
    assert "on the clock" in clock
    assert "im2col" in table
    assert len(layers) == 2
    found = document("explain", trace, trace, "--model", "none")
    assert [row["layer"] for row in found["layers"]] == ["gemm", "im2col"]


@pytest.mark.parametrize("name", QUICK)
def test_a_file_of_others_is_answered_or_named(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    check(name, ("advise", OTHERS[name]))


@pytest.mark.slow
@pytest.mark.parametrize("name", OTHERS)
def test_a_file_of_others_is_answered_or_named_by_every_verb(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = OTHERS[name]
    check(name, ("roofline", path))
    if path.name in REFUSED:  # the others: test_one_account
        check(name, ("gate", path, path))
        check(name, ("inspect", path))
    if path.name in REFUSED or path.name in REPORTED:
        # reports fit models, so that explain needs none here
        check(name, ("explain", path, path, "--model", "none"))
    if path.name in REPORTED:
        check(name, ("report", path, "--models"))


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(OTHERS, key=lambda name: OTHERS[name].stat().st_size)[-1:])
def test_the_largest_files_cost_no_minute_of_processor_time(name):
    words = [sys.executable, "-m", "perfml", "explain", OTHERS[name], OTHERS[name]]
    began = processor_time()
    subprocess.run(words, capture_output=True, check=False, timeout=PATIENCE_S)
    assert processor_time() - began < 60


def check(name, words):
    """Run a verb on a file: it answers, or says in two lines what the file is."""
    result = run(*words)
    assert result.exception is None or isinstance(result.exception, SystemExit)
    assert "internal error" not in result.stderr
    errors = result.stderr.partition("error: ")[2].strip().splitlines()
    assert len(errors) <= 2
    refused = REFUSED.get(name.rpartition("/")[2])
    if refused is not None and words[0] != "inspect":
        assert result.exit_code in (1, 3, 6)
        assert refused in errors[0]


def test_a_profile_without_durations_has_no_time_and_none_is_said_to_be_the_profilers(
    report, tmp_path
):
    rows = list(csv.reader((tmp_path / report).read_text().splitlines()))
    keep = [place for place, name in enumerate(rows[0]) if not name.startswith("gpu__time")]
    with (tmp_path / "timeless.csv").open("w", newline="") as stream:
        writer = csv.writer(stream, quoting=csv.QUOTE_ALL, lineterminator="\n")
        writer.writerows([row[place] for place in keep] for row in rows)
    found = document("inspect", "timeless.csv")
    assert (found["runs"][0]["us_per_iteration"], found["time_notes"]) == (None, [])
    timed = document("inspect", report)
    assert timed["runs"][0]["us_per_iteration"] > 0
    assert "Nsight Compute" in timed["time_notes"][0]
