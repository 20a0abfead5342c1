"""A sweep's file is validated whole and expanded to runs; the manifest keeps their states."""

import json
from itertools import product

import pytest
from typer.testing import CliRunner

pytest.importorskip("yaml")

from collectors import run_folder as folders
from collectors.collect import collect
from collectors.sweep.manifest import FILE, Manifest
from collectors.sweep.spec import longest_first, read_sweep
from perfml.cli import app
from perfml.errors import InputError, PerfmlError
from tests.support.sweeps import read_states

FULL = """\
out: results
timeout: 600
launcher: srun --gres=gpu:1
defaults:
  iterations: 4
  metrics: [published]
matrix:
  workload: yolov4-tiny
  backend: [cublas, cudnn, inductor]
  precision: [fp32, fp16]
  batch: [1, 8]
exclude:
  - {backend: inductor, batch: 8}
include:
  - {backend: cudnn, cudnn_benchmark: true}
  - {command: python train.py --steps 3, layers: fc.*}
"""


@pytest.fixture
def reads(tmp_path):
    def read(text):
        path = tmp_path / "sweep.yaml"
        path.write_text(text)
        return read_sweep(path)

    return read


def test_a_matrix_is_every_combination_less_the_excluded_and_more_the_included(reads, tmp_path):
    sweep = reads(FULL)
    shapes = [(r.backend, r.precision, r.batch) for r in sweep.runs.values()]
    every = product(("cublas", "cudnn", "inductor"), ("fp32", "fp16"), (1, 8))
    expected = [each for each in every if not (each[0] == "inductor" and each[2] == 8)]
    assert shapes == [*expected, (None, None, None)]
    for run in sweep.runs.values():
        benchmark = "--cudnn-benchmark" in run.settings.workload_options
        assert benchmark == (run.backend == "cudnn")
    program = list(sweep.runs.values())[-1]
    assert program.program == ("python", "train.py", "--steps", "3")
    assert program.settings.layers == "fc.*"
    assert {run.settings.iterations for run in sweep.runs.values()} == {4}
    assert sweep.out == tmp_path / "results"
    assert (sweep.timeout_s, sweep.launcher) == (600.0, ("srun", "--gres=gpu:1"))


def test_a_run_has_the_id_that_collect_gives_it(reads, tmp_path):
    cfg = tmp_path / "own.cfg"
    cfg.write_text("[net]")
    sweep = reads(
        "matrix: {workload: [yolov4-tiny], backend: [cudnn], precision: [tf32], batch: [2]}\n"
        "defaults: {seed: 3, metrics: [stalls, published], cfg: own.cfg}\n"
    )
    (planned,) = collect(
        "yolov4-tiny",
        backends=["cudnn"],
        precisions=["tf32"],
        batches=[2],
        seed=3,
        metrics=["stalls", "published"],
        workload_options=["--cfg", str(cfg)],
        out=tmp_path,
        launcher="x",
        dry_run=True,
    )
    assert list(sweep.runs) == [planned.run_id]


def test_the_same_run_twice_is_measured_once(reads):
    sweep = reads("matrix: {workload: yolov4-tiny, batch: [1, 2, 1]}\n")
    assert len(sweep.runs) == 2
    assert sweep.twins == 1


def test_lists_of_metrics_are_values_of_an_axis(reads, tmp_path):
    (tmp_path / "mine.txt").write_text("achieved_occupancy\n")
    sweep = reads("matrix: {command: [./a], metrics: [published, [stalls, roofline], mine.txt]}")
    sizes = [len(run.settings.metrics) for run in sweep.runs.values()]
    assert sizes[0] == 19
    assert sizes[1] > 5
    assert sizes[2] == 1


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("", None, "no sweep"),
        ("- 1\n", None, "no sweep"),
        ("matrix: {workload: [yolov4-tiny}\n", 1, "not YAML"),
        ("matrix:\n  workload: yolov4-tiny\n\tbatch: 1\n", 3, "not YAML"),
        ("matrx: {}\n", 1, "Did you mean matrix?"),
        ("matrix:\n  workload: yolov4-tiny\n  bach: [1]\n", 3, "Did you mean batch?"),
        ("matrix:\n  workload: yolov4-tiny\n  batch: []\n", 3, "no value"),
        ("matrix:\n  workload: yolov4-tiny\n  batch: [1, two]\n", 3, "a whole number from 1"),
        ("matrix:\n  workload: yolov4-tiny\n  batch: [1, true]\n", 3, "a whole number from 1"),
        ("matrix:\n  workload: yolov4-tiny\n  batch: 1\n  batch: 2\n", 4, "the same key twice"),
        ("matrix:\n  workload:\n  - yolov4\n", 3, "no built-in workload"),
        ("matrix:\n  workload: yolov4-tiny\n  backend: cudn\n", 3, "cudn"),
        ("matrix:\n  workload: yolov4-tiny\n  precision: [fp32,\n    int8]\n", 4, "does not offer"),
        ("matrix: {workload: yolov4-tiny}\ndefaults:\n  layers: '('\n", 3, "regular expression"),
        ("matrix: {workload: yolov4-tiny}\ndefaults:\n  metrics: publishd\n", 3, "publishd"),
        ("matrix: {workload: yolov4-tiny}\ndefaults:\n  cfg: no.cfg\n", 3, "names no file"),
        ("matrix: {workload: yolov4-tiny}\ndefaults:\n  replay: range\n", 3, "one of kernel"),
        ("matrix: {workload: yolov4-tiny}\nexclude:\n  - batch: 2\n", 3, "no axis"),
        ("matrix:\n  workload: yolov4-tiny\n  batch: 1\nexclude:\n- batch: 2\n", 5, "nothing"),
        ("matrix: {workload: yolov4-tiny}\ninclude: [7]\n", 2, "a set of options"),
        ("matrix:\n  backend: [cudnn]\n", 2, "a workload or a command"),
        ("matrix:\n  command: [./a]\n  backend: [cudnn]\n", 3, "a command has no backend"),
        ("matrix:\n  command: ['./a \"b']\n", 2, "a command line"),
        ("matrix: {command: [./a]}\nlauncher: srun 'x\n", 2, "quotes"),
        ("matrix: {command: [./a]}\ntimeout: soon\n", 2, "seconds"),
        ("matrix: {command: [2020-01-01]}\n", 1, "quotes"),
        ("matrix: !!python/object/apply:os.system [ls]\n", 1, "must be"),
        ("matrix:\n  ? [a]\n  : 1\n", 2, "a key must be a word"),
        ("matrix: &a\n  command: *a\n", None, ""),
        ("matrix: {seed: " + "[" * 3000 + "]" * 3000 + "}", None, ""),
        ("matrix:\n  command: [./a]\n  seed: [" + "1, " * 30_000 + "]\n", None, "more in it"),
    ],
)
def test_a_wrong_file_is_refused_with_its_line(reads, tmp_path, text, line, says):
    with pytest.raises(InputError) as error:
        reads(text)
    message = str(error.value)
    assert says in message
    assert len(message.splitlines()) <= 2
    where = tmp_path / "sweep.yaml"
    assert message.startswith(f"{where}:{line}: " if line else str(where))


def test_all_faulty_lines_are_told_at_once(reads):
    with pytest.raises(InputError) as error:
        reads("matrix:\n  workload: yolov4-tiny\n  batch:\n  - 1\n  - none\n  - 0\n  - 2\n  - x\n")
    assert "sweep.yaml:5:" in str(error.value)
    assert "Also wrong: line 6, 8." in str(error.value)


def test_a_matrix_too_large_is_refused_before_it_is_expanded(reads):
    axis = "[" + ", ".join(map(str, range(1, 101))) + "]"
    text = "matrix:\n  workload: yolov4-tiny\n"
    text += "".join(f"  {name}: {axis}\n" for name in ("batch", "seed", "iterations", "warmup"))
    with pytest.raises(InputError, match="100,000,000"):
        reads(text)


def test_aliases_that_multiply_are_refused(reads):
    lines = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    for level in range(1, 7):
        lines.append(f"a{level}: &a{level} [" + f"*a{level - 1}, " * 10 + "]")
    with pytest.raises(InputError, match="more in it"):
        reads("\n".join(lines))


def test_a_missing_file_is_one_error(tmp_path):
    with pytest.raises(InputError, match="cannot read the sweep"):
        read_sweep(tmp_path / "none.yaml")


def test_runs_with_more_passes_iterations_or_images_start_first(reads):
    runs = reads(
        """
matrix: {workload: yolov4-tiny, metric_iterations: 1}
defaults: {metrics: published}
include:
  - {workload: yolov4-tiny, metric_iterations: 4, batch: 8}
  - {workload: yolov4-tiny, metric_iterations: 2, metrics: achieved_occupancy}
  - {workload: yolov4-tiny, metric_iterations: 4, batch: 3}
  - {command: ./a, metric_iterations: 2}
"""
    ).runs
    published, images, one_pass, few, program = runs
    assert longest_first(runs) == [images, few, program, published, one_pass]


def test_the_plan_is_printed_and_nothing_is_started(reads, tmp_path):
    reads("matrix: {workload: yolov4-tiny, backend: [cublas, cudnn]}\ninclude: [{command: ./a}]")
    out = tmp_path / "runs"
    arguments = ["sweep", str(tmp_path / "sweep.yaml"), "--out", str(out), "--dry-run"]
    said = CliRunner().invoke(app, arguments)
    assert said.exit_code == 0, said.output
    assert "3 runs, 0 done before, 3 to measure" in said.stdout
    document = json.loads(CliRunner().invoke(app, [*arguments, "--json"]).stdout)
    assert [each["state"] for each in document["runs"]] == ["planned"] * 3
    assert not out.exists()
    finished = out / document["runs"][0]["run_id"]
    finished.mkdir(parents=True)
    folders.write_json(finished / "run.json", {"run_id": finished.name})
    assert "3 runs, 1 done before, 2 to measure" in CliRunner().invoke(app, arguments).stdout


def test_gpus_of_this_machine_and_a_scheduler_elsewhere_do_not_go_together(reads, tmp_path):
    reads("matrix: {command: [./a]}")
    command = ["sweep", str(tmp_path / "sweep.yaml"), "--out", str(tmp_path / "runs")]
    said = CliRunner().invoke(app, [*command, "--scheduler", "tcp://x:1", "--gpus", "1"])
    assert said.exit_code == 1
    assert "--scheduler" in said.stderr
    assert not (tmp_path / "runs").exists()


def test_the_manifest_keeps_states_and_attempts(reads, tmp_path):
    runs = reads("matrix: {command: [./a, ./b, ./c]}").runs
    one, two, three = runs
    manifest = Manifest(tmp_path)
    manifest.plan(runs, {three: 7})
    assert manifest.begin(one, "gpu-0", "host", "0", since=100.0) == 1
    assert manifest.begin(one, "gpu-1", "host", "1", since=130.0) == 2
    manifest.begin(two, "gpu-0", "host", "0", since=140.0)
    manifest.end(two, "failed", message="why\ncure")
    states = read_states(tmp_path)
    assert [states[name]["state"] for name in runs] == ["running", "failed", "done"]
    assert [states[name]["attempts"] for name in runs] == [2, 1, 0]
    assert (states[one]["gpu"], states[one]["seconds"]) == ("1", 30.0)
    assert states[two]["message"] == "why\ncure"
    assert states[three]["launches"] == 7
    again = Manifest(tmp_path)  # the driver was killed: nothing is running any more
    again.plan(runs, {three: 7})
    assert [state.state for state in again.states.values()].count("pending") == 2
    assert again.begin(one, "gpu-0", "host", "0", since=200.0) == 3
    assert again.states[one].seconds == 30.0


@pytest.mark.parametrize("text", ["{", "[]", '{"runs": [{"run_id": "a", "colour": 1}]}', "7"])
def test_a_damaged_or_foreign_manifest_is_one_error(tmp_path, text):
    (tmp_path / FILE).write_text(text)
    with pytest.raises(PerfmlError, match="--resume"):
        Manifest(tmp_path)
