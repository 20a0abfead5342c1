"""The frame of the workloads with CUDA sources: settings, ptxas's report, sessions and checks."""

import json
import sys

import pytest
from typer.testing import CliRunner

from collectors.sweep.spec import read_sweep
from collectors.workloads import Options, default_backends, workload
from collectors.workloads.base import parse_settings, read_settings
from collectors.workloads.cuda import Resources, Source, compile_cubin, nvcc_command, read_ptxas
from collectors.workloads.session import KernelSession, Layer, poison, relative_error
from perfml.cli import app
from perfml.errors import PerfmlError
from tests.support.ranges import ListedRanges

PTXAS = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'plain' for 'sm_90a'
ptxas info    : Function properties for plain
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 10 registers, used 0 barriers
ptxas info    : Compiling entry function 'spilling' for 'sm_90a'
ptxas info    : Function properties for spilling
    64 bytes stack frame, 40 bytes spill stores, 48 bytes spill loads
ptxas info    : Used 32 registers, used 1 barriers, 64 bytes cumulative stack size, 4096 bytes smem
"""


def test_the_report_of_ptxas_is_read_kernel_by_kernel():
    assert read_ptxas(PTXAS) == {
        "plain": Resources(10, 0, 0, 0, 0),
        "spilling": Resources(32, 4096, 64, 40, 48),
    }


def test_a_variant_is_its_macros_and_flags(tmp_path):
    source = Source(tmp_path / "a.cu", {"TILE": 32, "TYPE": "float"}, ("-maxrregcount=64",))
    words = nvcc_command("nvcc", source, "90a", tmp_path / "out")
    assert "-gencode=arch=compute_90a,code=[sm_90a,compute_90a]" in words
    assert [word for word in words if word.startswith("-D")] == ["-DTILE=32", "-DTYPE=float"]
    assert "-maxrregcount=64" in words


FAKE = """#!{python}
import pathlib, sys
if "--version" in sys.argv:
    sys.exit(print("release 13.0"))
source = pathlib.Path(sys.argv[-1])
calls = source.with_suffix(".calls")
calls.write_text(calls.read_text() + "x" if calls.exists() else "x")
if "refuse" in source.read_text():
    sys.exit("a.cu(1): error: expected a declaration")
pathlib.Path(sys.argv[sys.argv.index("-o") + 1]).write_text("machine code")
sys.stderr.write("ptxas info : done")
"""


@pytest.fixture
def nvcc(tmp_path):
    path = tmp_path / "nvcc"
    path.write_text(FAKE.format(python=sys.executable))
    path.chmod(0o755)
    return str(path)


def test_a_source_is_compiled_once_and_again_after_a_change_of_it_or_of_a_header(tmp_path, nvcc):
    path, header = tmp_path / "a.cu", tmp_path / "common.cuh"
    path.write_text("one")
    header.write_text("one")

    def calls():
        cubin, report = compile_cubin(nvcc, Source(path), "90a", tmp_path / "cache")
        assert (cubin.read_text(), report) == ("machine code", "ptxas info : done")
        return len((tmp_path / "a.calls").read_text())

    assert [calls(), calls()] == [1, 1]
    path.write_text("two")
    assert calls() == 2
    header.write_text("two")
    assert [calls(), calls()] == [3, 3]


def test_a_source_that_nvcc_refuses_is_an_error_with_its_message(tmp_path, nvcc):
    path = tmp_path / "a.cu"
    path.write_text("refuse")
    with pytest.raises(PerfmlError, match="expected a declaration"):
        compile_cubin(nvcc, Source(path), "90a", tmp_path / "cache")
    assert not list((tmp_path / "cache").glob("*.cubin"))


def test_settings_are_read_and_completed_and_unknown_ones_refused():
    options = Options("x", settings=parse_settings(["size=small", "tile = 32", "size=large"]))
    assert read_settings(options, {"size": "all", "tile": "16", "causal": "no"}) == {
        "size": "large",
        "tile": "32",
        "causal": "no",
    }
    with pytest.raises(PerfmlError, match="no setting of this name"):
        read_settings(options, {"size": "all"})
    for wrong in ("size", "=3", ""):
        with pytest.raises(PerfmlError, match="KEY=VALUE"):
            parse_settings([wrong])


def planned(*words):
    done = CliRunner().invoke(app, ["collect", *words, "--dry-run", "--json"])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)["runs"]


def test_a_setting_reaches_the_command_and_the_run_id_whatever_the_order():
    plain, *_ = planned("yolov4-tiny")
    one, *_ = planned("yolov4-tiny", "--set", "b=1", "--set", "a=2")
    same, *_ = planned("yolov4-tiny", "--set", "a=2", "--set", "b=1")
    other, *_ = planned("yolov4-tiny", "--set", "a=3", "--set", "b=1")
    command = one["commands"][0]
    assert [command[i + 1] for i, word in enumerate(command) if word == "--set"] == ["a=2", "b=1"]
    assert one["run_id"] == same["run_id"]
    assert len({plain["run_id"], one["run_id"], other["run_id"]}) == 3


def test_a_setting_is_refused_for_a_program_and_by_a_workload_without_settings():
    done = CliRunner().invoke(app, ["collect", "--set", "a=1", "--dry-run", "--", sys.executable])
    assert done.exit_code == 1
    assert "--set is for built-in workloads" in done.output
    with pytest.raises(PerfmlError, match="no setting of this name"):
        workload("yolov4-tiny").session(Options("cublas", settings=(("a", "1"),), device="cpu"))
    assert default_backends("yolov4-tiny") == ("cublas",)


def test_a_sweep_has_settings_too_and_the_run_has_the_id_that_collect_gives_it(tmp_path):
    path = tmp_path / "sweep.yaml"
    path.write_text(
        "matrix: {workload: planted, backend: [base, level_1], set: [sizes=1, [sizes=2, "
        "families=special]]}\n"
    )
    runs = list(read_sweep(path).runs.values())
    assert [(run.backend, run.settings.workload_options) for run in runs] == [
        (backend, words)
        for backend in ("base", "level_1")
        for words in (("--set", "sizes=1"), ("--set", "families=special", "--set", "sizes=2"))
    ]
    (same,) = planned("planted", "--backend", "base", "--set", "sizes=1")
    assert same["run_id"] == runs[0].run_id
    path.write_text("matrix: {workload: planted, set: [sizes]}\n")
    with pytest.raises(PerfmlError, match="KEY=VALUE"):
        read_sweep(path)


def doubling(torch, *, wrong=0.0, whole=True):
    """Return a session of one layer that doubles a vector on the CPU."""
    given, out = torch.ones(8), torch.zeros(8)

    def launch():
        torch.mul(given, 2.0 + wrong, out=out) if whole else out[:4].copy_(given[:4] * 2)

    def renew(seed):
        given.copy_(torch.rand(8, generator=torch.Generator().manual_seed(seed)) + 1)

    layer = Layer("n8", launch, {"out": out}, lambda: {"out": given.double() * 2}, 1e-6, renew)
    made = KernelSession([layer], {"compiler": "none"}, files={"truth.json": {"cause": "x"}})
    made.synchronize = lambda: None
    return made


@pytest.mark.extras
def test_a_session_opens_its_ranges_and_checks_on_fresh_inputs():
    import torch

    made = doubling(torch)
    ranges = ListedRanges()
    made.run(ranges)
    assert tuple(ranges.paths) == made.layer_names() == ("n8",)
    (row,) = made.check()
    assert row.passed
    assert row.output == "n8/out"
    assert made.files() == {"truth.json": {"cause": "x"}}
    assert made.describe()["layers"] == [{"layer": "n8"}]


@pytest.mark.extras
def test_changed_inputs_are_checked_too_and_the_sessions_own_come_back():
    import torch

    given, out, seeds = torch.ones(8), torch.zeros(8), []

    def renew(seed):
        seeds.append(seed)
        given.fill_(float(seed))

    def launch():
        torch.mul(given.clamp(max=1000), 2, out=out)

    def expected():
        return {"out": given.double() * 2}

    words = ("n8", launch, {"out": out}, expected, 1e-6)
    changes = {"large": lambda: given.mul_(1000)}
    made = KernelSession([Layer(*words, renew, changes=changes)], {}, seed=6)
    made.synchronize = lambda: None
    assert {row.output: row.passed for row in made.check()} == {
        "n8/out, large": False,
        "n8/out": True,
    }
    assert (seeds, given.tolist()) == ([7, 7, 6], [6.0] * 8)
    with pytest.raises(PerfmlError, match="would stay changed"):
        Layer(*words, changes=changes)


@pytest.mark.extras
def test_a_check_sees_a_wrong_factor_and_an_output_that_was_not_written():
    import torch

    (wrong,) = doubling(torch, wrong=1e-3).check()
    assert wrong.error == pytest.approx(5e-4, rel=1e-3)
    assert not wrong.passed
    (half,) = doubling(torch, whole=False).check()
    assert half.error != half.error
    assert not half.passed


@pytest.mark.extras
def test_integers_are_poisoned_too_and_errors_are_relative_to_the_norm():
    import torch

    whole = torch.zeros(3, dtype=torch.int32)
    poison(whole)
    assert whole.tolist() == [-(2**31)] * 3
    zero = torch.zeros(4)
    assert relative_error(zero, zero) == 0.0
    assert relative_error(zero + 1, zero) == float("inf")
    with pytest.raises(PerfmlError, match="another shape"):
        relative_error(zero, torch.zeros(5))
