"""Repairs tried in a copy of the source: which places are known, and what is compared."""

from types import SimpleNamespace

import pytest

from collectors.profilers import trial
from perfml.errors import PerfmlError
from perfml.experiments.proof import proof
from perfml.experiments.record import read_experiments
from tests.support.paths import ROOT

RECORDED = ROOT / "studies" / "data" / "h200-experiments" / "transpose.csv.xz"
KERNEL = """
// __global__ void transposeCoalesced(float *in) { is not here }
template <typename T = float>
__global__ void __launch_bounds__(256, 4) transposeCoalesced(float *out, const float* in, int n) {
  __shared__ float tile[32][32];
  for (int k = 0; k < n; ++k) { tile[0][k] = in[k] * 2.5; }
  out[0] = tile[0][0] + 1e-3 + 2.0f; // }
}
__global__ void other(float *out) { __shared__ float tile[8][8]; out[0] = 2.5; }
"""


@pytest.mark.parametrize(
    ("mutation", "with_", "without"),
    [
        ("no_conflicts", "float tile[32][32 + 1];", "tile[8][8 + 1]"),
        ("single_precision", "in[k] * 2.5f; }", "2.0ff"),
        ("single_precision", "1e-3f + 2.0f", "out[0] = 2.5f"),
        ("read_only_loads", "float *__restrict__ out, const float* __restrict__ in", "other(f *_"),
        ("more_registers", "__launch_bounds__(256) transposeCoalesced", "(256, 4)"),
        ("unrolled_loops", "  #pragma unroll 4\n  for (int k", "unroll 4\n__global__"),
    ],
)  # fmt: skip
def test_a_change_is_made_in_the_definition_of_the_kernel_alone(mutation, with_, without):
    ((_, edits, _),) = trial._in_source(mutation, "transposeCoalesced", {"a.cu": KERNEL})
    assert with_ in edits["a.cu"]
    assert without not in edits["a.cu"]
    assert not [*trial._in_source(mutation, "elsewhere", {"a.cu": KERNEL})]


@pytest.fixture
def tried(tmp_path, monkeypatch):
    """Return a function that tries repairs of a source with a compiler that copies."""
    folder = tmp_path / "source"
    folder.mkdir()
    (folder / "nvcc").write_text('#!/bin/sh\necho "# $*" > main\ncat main.cu >> main\n')
    (folder / "nvcc").chmod(0o755)

    def trace(program, injected, *, log, timeout_s, cwd):
        text = (cwd / program[0]).read_text()
        us = 4 if "+ 1]" in text else 10
        launch = SimpleNamespace(bytes=None, kernel="transposeCoalesced(float*)",
                                 start_ns=0, end_ns=1000 * us)  # fmt: skip
        result = 1.0 if us == 10 else float(program[1])
        log.write_text(f"$ main\nsum {result}\ntook {id(launch)} ns\n")
        return SimpleNamespace(launches=[launch])

    monkeypatch.setattr(trial, "trace", trace)
    monkeypatch.setattr(trial, "library", lambda name: None)

    def asked(result="1.0", build="./nvcc main.cu -o main", source=KERNEL):
        (folder / "main.cu").write_text(source)
        before = {path.name: path.read_bytes() for path in folder.iterdir()}
        words = {"log": tmp_path / "log.txt", "timeout_s": 60}
        recorded = proof(read_experiments(RECORDED))
        made = trial.try_repairs(recorded, build, ["./main", result], folder, **words)
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
        return {(each.mutation, each.kernel): each for each in made}

    return asked


def test_a_change_is_built_and_run_in_a_copy_and_compared_with_the_program(tried):
    made = tried()["no_conflicts", "transposeCoalesced"]
    assert (made.before_us, made.after_us, made.outputs) == (10, 4, "the same")
    assert made.factor == pytest.approx(0.457, abs=0.005)
    # what two runs of the unchanged program print otherwise is no difference
    assert "50 %" in tried("0.5")["no_conflicts", "transposeCoalesced"].outputs


def test_a_source_behind_a_link_stays_as_it_is(tried, tmp_path):
    (tmp_path / "real.cu").write_text("")
    (tmp_path / "source" / "main.cu").symlink_to(tmp_path / "real.cu")
    assert tried()["no_conflicts", "transposeCoalesced"].after_us == 4
    assert (tmp_path / "real.cu").read_text() == KERNEL


def test_what_has_no_known_place_is_said_and_not_tried(tried):
    others = [each for key, each in tried().items() if key[0] == "dense_stores"]
    assert others
    assert all(each.after_us != each.after_us and "not known" in each.outputs for each in others)


@pytest.mark.parametrize("build", ["make && make install", "", "nvcc a.cu > log"])
def test_a_build_command_is_one_command(tried, build):
    with pytest.raises(PerfmlError, match="one command"):
        tried(build=build)


def test_a_program_that_does_not_build_is_an_error(tried):
    with pytest.raises(PerfmlError, match="does not build"):
        tried(build="false")
