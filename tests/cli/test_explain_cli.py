"""perfml explain: in process, and as the program a user starts."""

import json

import pytest

from perfml.ingest.merge.rule import merge
from perfml.ingest.profiles import ingest
from perfml.tables import write_table
from tests.support.command_line import run as command
from tests.support.paths import DATA

pytestmark = pytest.mark.long

SIDES = ("--baseline", "cublas", "--target", "cudnn")


def run(*words):
    return command("explain", *words)


@pytest.fixture(scope="module")
def tables(tmp_path_factory, sweep):
    """Return files of two backends' tables: all of both, and a kernels table of each at batch 1."""
    folder = tmp_path_factory.mktemp("explain")
    found = ingest(sorted(sweep.glob("*_c*_fp32_b*.csv.xz")))
    frame = found.frame
    files = {name: folder / f"{name}.parquet" for name in ("kernels", "layers", "cublas", "cudnn")}
    write_table(frame, files["kernels"], kind="kernels", provenance=found.provenance)
    write_table(merge(frame), files["layers"], kind="layers", provenance=found.provenance)
    for backend in ("cublas", "cudnn"):
        rows = frame[(frame["backend"] == backend) & (frame["batch"] == 1)]
        write_table(rows, files[backend], kind="kernels", provenance=found.provenance)
    return files


def test_a_layer_asked_for_comes_first_and_of_all_others_the_sum(tables):
    words = (tables["kernels"], *SIDES, "--where", "batch=1", "-q", "--model", "none")
    asked, all_layers = run(*words, "--layer", "conv_20").stdout, run(*words).stdout
    assert asked.startswith("== conv_20: slower")
    assert "all layers of both: slower" in asked
    assert "Every layer" not in asked
    assert all_layers.startswith("== cudnn against cublas, all layers of both")
    assert "Every layer" in all_layers


def test_of_a_single_kernel_the_answer_begins_with_it_and_says_nothing_twice():
    words = ("--kernel", "healthy_copy", "--kernel-b", "uncoalesced_load", "-q")
    report = DATA / "ncu" / "rules_hazards.csv.xz"
    shown = run(report, *words).stdout
    first, said, *_ = shown.splitlines()
    assert "uncoalesced_load against " in first
    assert ": healthy_copy -> uncoalesced_load (aligned: " in first
    assert said.startswith("Slower: 9.015 times the baseline's time (")
    assert "all layers of both" not in shown
    assert "Every layer" not in shown
    back = run(report, "--kernel", "uncoalesced_load", "--kernel-b", "healthy_copy", "-q").stdout
    assert "Faster: 0.111 times the baseline's time, 9.01 times as fast (" in back


@pytest.mark.slow
def test_two_tables_are_two_sides_and_agree_with_two_sides_of_one(tables):
    pair = run(tables["cublas"], tables["cudnn"], "--layer", "conv_20", "--json", "-q")
    one = run(tables["kernels"], *SIDES, "--where", "batch=1", "--layer", "conv_20", "--json", "-q")
    left, right = (json.loads(each.stdout)["details"][0] for each in (pair, one))
    assert left["time"] == right["time"]
    assert left["causes"] == right["causes"]


@pytest.mark.slow
def test_layers_of_other_names_are_aligned_by_the_shapes_in_the_provenance(tmp_path, sweep):
    found = ingest([sweep])
    frame = found.frame[(found.frame["backend"] == "cudnn") & (found.frame["batch"] == 1)]
    renamed = frame.assign(layer=frame["layer"].str.replace("conv_", "block."))
    shapes = [
        {**row, "layer": row["layer"].replace("conv_", "block.")}
        for row in found.provenance["layers"]
    ]
    files = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    write_table(frame, files[0], kind="kernels", provenance=found.provenance)
    write_table(
        renamed, files[1], kind="kernels", provenance={**found.provenance, "layers": shapes}
    )
    result = run(*files, "--layer", "conv_20", "--model", "none", "-q")
    assert result.exit_code == 0, result.output
    assert "== conv_20 -> block.20 (aligned: shape): no difference" in result.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["layers.parquet"], "needs --baseline and --target"),
        (["layers.parquet", *SIDES], "mixes several values of batch"),
        (["layers.parquet", *SIDES, "--where", "colour=1"], "--where needs COLUMN=VALUE"),
        (["layers.parquet", *SIDES, "--where", "batch=1", "--model", "oracle"], "oracle"),
        (
            ["cublas.parquet", "cudnn.parquet", "--baseline", "cublas"],
            "two tables are two sides already",
        ),
    ],
)
def test_errors_say_what_to_do_without_a_traceback(tables, words, said):
    result = run(
        *[
            tables.get(word.removesuffix(".parquet"), word) if word.endswith(".parquet") else word
            for word in words
        ]
    )
    assert result.exit_code == 1
    assert said in result.stderr
    assert "Traceback" not in result.stderr
    assert len(result.stderr.strip().splitlines()) >= 2
