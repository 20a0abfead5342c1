"""The torch backends on CPU tensors, and the runner."""

import csv
import json
import sys

import pytest

from collectors.workloads import Options, workload
from collectors.workloads import runner as run
from collectors.workloads.ranges import Ranges
from collectors.workloads.yolov4_tiny.torch_network import TorchSession
from collectors.workloads.yolov4_tiny.workload import build_problem
from tests.support import checked_workload
from tests.support.paths import ROOT
from tests.support.processes import ran
from tests.support.ranges import ListedRanges

DATA = ROOT / "tests" / "data"
SMALL = DATA / "darknet" / "every-layer.cfg"


def session(backend, **options):
    return workload("yolov4-tiny").session(Options(backend, device="cpu", **options))


@pytest.mark.extras
@pytest.mark.parametrize("backend", ["cublas", "cudnn"])
@pytest.mark.parametrize("batch", [1, 2])
def test_a_torch_backend_computes_the_reference_network(backend, batch):
    rows = session(backend, batch=batch).check()
    assert [row.output for row in rows] == ["yolo_01", "yolo_02"]
    assert all(row.passed and row.error > 0 for row in rows), rows


@pytest.mark.extras
@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_a_users_own_cfg_runs_and_matches_the_reference(precision):
    rows = session("cublas", cfg=SMALL, precision=precision, batch=3).check()
    assert [row.output for row in rows] == ["yolo_01"]
    assert rows[0].passed, rows


@pytest.mark.extras
@pytest.mark.slow
@pytest.mark.parametrize(
    ("precision", "layout"), [("fp32", "contiguous_format"), ("tf32", "channels_last")]
)
def test_the_compiled_blocks_compute_the_reference_network(precision, layout):
    import torch._inductor.config as config

    # half of the time is the compiler's: trying the processor's vectors, compiling all headers
    quickly = {"cpp.vec_isa_ok": False, "cpp_cache_precompile_headers": False}
    with config.patch(quickly):
        made = session("inductor", cfg=SMALL, batch=2, precision=precision)
        rows = made.check()
    assert rows[0].passed, rows
    assert made.describe()["settings"]["memory_format"] == layout


@pytest.mark.extras
def test_activations_stay_channels_last_through_every_layer_of_the_built_in_network():
    import torch

    made = TorchSession(build_problem(Options("cudnn", device="cpu", batch=2)), cudnn=True)
    turned = TorchSession(
        build_problem(Options("cudnn", device="cpu", batch=2)), cudnn=True, channels_last=True
    )
    orders = []

    def watch(layer, step):
        def run_step(*inputs):
            orders.append((layer.name, inputs[0].is_contiguous(memory_format=torch.channels_last)))
            return step(*inputs)

        return layer, run_step

    turned._steps = [watch(layer, step) for layer, step in turned._steps]
    with turned.active():
        outputs, plain = turned.run(Ranges()), made.run(Ranges())
    assert len(orders) == 38
    assert [name for name, last in orders if not last] == []
    for name, tensor in plain.items():
        # 38 layers round in another order: what is near zero is right to the tensor's scale only
        scale = float(tensor.abs().max())
        torch.testing.assert_close(outputs[name], tensor, rtol=1e-4, atol=1e-4 * scale)


@pytest.mark.extras
def test_every_layer_runs_in_its_own_range_inside_the_iteration():
    made = session("cudnn", cfg=SMALL)
    ranges = ListedRanges()
    with made.active(), ranges.iteration(4):
        made.run(ranges)
    assert ranges.paths == ["iter_4", *(f"iter_4/{name}" for name in made.layer_names())]


@pytest.mark.extras
def test_the_libraries_settings_last_for_the_block_only():
    import torch

    before = torch.backends.cudnn.enabled, torch.backends.cuda.matmul.allow_tf32
    with session("cublas", precision="tf32", cfg=SMALL).active():
        assert not torch.backends.cudnn.enabled
        assert torch.backends.cuda.matmul.allow_tf32
        assert torch.backends.cudnn.allow_tf32
    assert (torch.backends.cudnn.enabled, torch.backends.cuda.matmul.allow_tf32) == before
    with session("cudnn", cfg=SMALL, cudnn_benchmark=True).active():
        assert torch.backends.cudnn.enabled
        assert torch.backends.cudnn.benchmark
        assert not torch.backends.cudnn.allow_tf32


@pytest.mark.extras
def test_without_a_gpu_the_error_says_what_torch_was_built_for(tmp_path, capsys):
    import torch

    if torch.cuda.is_available():
        assert session("cublas").layer_names()
        return
    code = run.main(["yolov4-tiny", "--backend", "cublas", "--out", str(tmp_path)])
    assert code == 1
    assert "torch finds no NVIDIA GPU" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.extras
def test_the_check_mode_prints_every_error_and_writes_the_run(tmp_path, capsys):
    command = ["yolov4-tiny", "--backend", "cublas", "--device", "cpu", "--mode", "check"]
    command += ["--cfg", str(SMALL), "--batch", "2", "--warmup", "1", "--out", str(tmp_path)]
    assert run.main(command) == 0
    assert "yolo_01: relative error" in capsys.readouterr().out
    record = json.loads((tmp_path / "run.json").read_text())
    assert record["backend"] == "cublas"
    assert record["batch"] == 2
    assert record["settings"]["cudnn_enabled"] is False
    assert record["environment"]["torch"]
    assert [layer["layer"] for layer in record["layers"]][:2] == ["conv_01", "pool_01"]
    assert record["check"]["outputs"][0]["relative_error"] < 1e-5
    assert [p.name for p in tmp_path.iterdir()] == ["run.json"]


@pytest.fixture
def stand_in(monkeypatch):
    """Let a session stand in whose first output is no number and whose second is right."""
    monkeypatch.setenv("FAKE_ERRORS", '{"cublas": [NaN, 9e-6]}')
    monkeypatch.setattr(run, "workload", lambda name: checked_workload.Workload(False))


@pytest.mark.usefixtures("stand_in")
def test_an_output_above_its_limit_fails_the_run(tmp_path, capsys):
    command = ["yolov4-tiny", "--backend", "cublas", "--mode", "check", "--out", str(tmp_path)]
    assert run.main(command) == 1
    assert "ABOVE the limit 1e-05" in capsys.readouterr().out
    outputs = json.loads((tmp_path / "run.json").read_text())["check"]["outputs"]
    assert [row["passed"] for row in outputs] == [False, True]
    assert outputs[0]["relative_error"] is None


@pytest.mark.usefixtures("stand_in")
def test_the_timing_table_has_one_row_a_kernel_and_empty_unknowns(tmp_path):
    command = ["yolov4-tiny", "--backend", "cublas", "--mode", "timing", "--out", str(tmp_path)]
    assert run.main([*command, "--iterations", "3"]) == 0
    with (tmp_path / "timing.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["iteration"] for row in rows] == ["0", "1", "2"]
    assert rows[0] == {
        "iteration": "0", "layer": "n8", "kernel": "k", "time_us": "2.5",
        "start_us": "", "grid": "", "block": "",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        (["--backend", "caffe"], "no backend of this name"),
        (["--backend", "cublas", "--precision", "int8"], "does not offer this precision"),
        (["--backend", "cublas", "--iterations", "0"], "iterations start at 1"),
        (["--backend", "cublas", "--device", "cpu"], "measures GPU kernels"),
        (["--backend", "cublas", "--cfg", "/none.cfg"], "cannot be read"),
    ],
)
def test_a_wrong_request_is_one_message_and_exit_code_1(tmp_path, capsys, extra, message):
    assert run.main(["yolov4-tiny", *extra, "--out", str(tmp_path)]) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert message in error
    assert "Traceback" not in error


def test_the_runner_is_a_module_with_usage_errors_of_code_2(tmp_path):
    command = [sys.executable, "-m", "collectors.workloads.runner", "yolov4-tiny"]
    done = ran(*command)
    assert done.returncode == 2
    assert "--backend" in done.stderr


def test_the_base_ranges_close_when_the_block_raises():
    ranges = ListedRanges()
    with pytest.raises(ValueError, match="x"), ranges.range("a"), ranges.range("b"):
        raise ValueError("x")
    with ranges.range("c"), Ranges().range("silent"):
        pass
    assert ranges.paths == ["a", "a/b", "c"]
