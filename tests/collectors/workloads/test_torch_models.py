"""Any PyTorch model as a workload: its name, its layers, what they compute and move."""

import functools
import json
import math
import sys

import pytest
from typer.testing import CliRunner

from collectors.run_spec import Run
from collectors.workloads import Options, runner, workload
from collectors.workloads.torch_models.session import LIMITS, SETTLED_LIMIT
from perfml.cli import app
from perfml.errors import InputError, MissingExtraError, PerfmlError
from tests.support.paths import ROOT
from tests.support.ranges import ListedRanges

FILE = ROOT / "tests" / "support" / "small_torch_net.py"
NET = f"torch:{FILE}:net"
LIBRARY = """
from types import SimpleNamespace
import torch
def list_models(): return ["tiny", "fading", "clip"]
def get_model_builder(name): return {"tiny": tiny, "fading": fading, "clip": clip}[name]
def get_model_weights(name):
    crop = lambda: SimpleNamespace(crop_size=(8, 6))
    return SimpleNamespace(DEFAULT=SimpleNamespace(meta={"min_temporal_size": 18}, transforms=crop))
def clip(*, weights="DEFAULT"):
    return torch.nn.Sequential(torch.nn.AvgPool3d((17, 8, 6)))
clip.__module__ = "torchvision.models.video.clip"
def tiny(*, weights="DEFAULT", progress=True):
    assert weights is None, "would download"
    return torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU())
def fading(*, weights="DEFAULT"):
    from tests.support.small_torch_net import fading
    return torch.nn.Sequential(torch.nn.Conv2d(3, 8, 1), *fading(1)[0])
"""


def session(function="net", *, backend="cudnn", **options):
    given = Options(backend, device="cpu", **options)
    return workload(f"torch:{FILE}:{function}").session(given)


@pytest.fixture
def torchvision(tmp_path, monkeypatch):
    """Put a library of one model where torchvision would be."""
    package = tmp_path / "torchvision"
    package.mkdir()
    (package / "__init__.py").write_text("from . import models\n")
    (package / "models.py").write_text(LIBRARY)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "torchvision", raising=False)
    yield
    for name in ("torchvision", "torchvision.models"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("torch:resnet18", "names no PyTorch model"),
        ("torch:keras/resnet18", "names no PyTorch model"),
        ("torch:timm/hf-hub:someone/model", "names no PyTorch model"),
        ("torch:transformers/../distilbert", "names no PyTorch model"),
        ("torch:nowhere.py:net", "no such file"),
        (f"torch:{FILE}:net; rm -rf", "no name of a function"),
    ],
)
def test_a_name_that_leads_to_no_model_is_refused_before_anything_runs(name, told):
    with pytest.raises(InputError, match=told):
        workload(name)


def test_a_run_id_is_a_safe_name_of_a_folder():
    run_id = Run("torch:torchvision/resnet18", "cudnn", "fp16", 8).run_id
    assert run_id.startswith("torch-torchvision-resnet18-cudnn-fp16-b8-")
    long = Run(f"torch:{'/.hidden' * 30}/net.py:net", "cudnn", "fp16", 8).run_id
    assert len(long) <= 120
    assert long[0].isalnum()
    assert not set("/:\\ ") & set(run_id + long)


def test_a_changed_model_file_is_another_run(tmp_path):
    file = tmp_path / "model.py"
    file.write_text("def net(): ...\n")
    first = Run(f"torch:{file}:net", "cudnn", "fp32", 1)
    before = first.run_id
    file.write_text("def net(): return 1\n")
    assert first.run_id != before


def test_the_command_line_plans_a_model_under_each_backend(tmp_path):
    words = ["collect", "torch:timm/resmlp_12_224", "--backend", "cudnn", "--backend", "inductor"]
    words += ["--precision", "bf16", "--set", "compile=layers", "--dry-run", "--json"]
    done = CliRunner().invoke(app, [*words, "--out", str(tmp_path)])
    assert done.exit_code == 0, done.output
    runs = json.loads(done.stdout)["runs"]
    assert len(runs) == 2
    for run in runs:
        assert "torch:timm/resmlp_12_224" in run["commands"][0]
        assert "compile=layers" in run["commands"][0]


@pytest.mark.extras
def test_layers_are_modules_by_path_and_what_is_between_them():
    layers = session(batch=2).describe()["layers"]
    assert [(row["layer"], row["kind"]) for row in layers] == [
        ("body.0.conv1", "Conv2d"),
        ("body.0.relu", "ReLU"),
        ("body.0.conv2", "Conv2d"),
        ("body.0.after_conv2", "add"),
        ("body.0.relu#2", "ReLU"),
        ("Net.after_body", "mean"),
        ("attention", "MultiheadAttention"),
        ("lstm", "LSTM"),
        ("fc", "Linear"),
    ]


@pytest.mark.extras
def test_work_and_least_bytes_are_those_of_a_count_by_hand():
    rows = {row["layer"]: row for row in session(batch=2).describe()["layers"]}
    image = 2 * 3 * 8 * 8 * 4
    conv = rows["body.0.conv1"]
    assert (conv["input"], conv["output"]) == ("2x3x8x8", "2x3x8x8")
    assert (conv["size"], conv["filters"], conv["parameters"]) == ([3, 3], 3, 81)
    assert conv["flops"] == 2 * (3 * 3 * 3) * 3 * (2 * 8 * 8)
    sizes = {"m": 2 * 8 * 8, "n": 3, "k": 3, "dtype": "float32", "count": 1}
    assert conv["products"] == [{"operator": "convolution", **sizes}]
    assert [conv[f"{what}_bytes"] for what in ("weight", "input", "output")] == [324, image, image]
    added = rows["body.0.after_conv2"]
    assert (added["flops"], added["input_bytes"], added["output_bytes"]) == (0, 2 * image, image)
    # queries, keys, values and the output product; scores and their sum; for 16 vectors of 8
    assert rows["attention"]["flops"] == 2 * 16 * (4 * 8 * 8) + 4 * 16 * 8 * 8
    assert rows["lstm"]["flops"] == 2 * 16 * (16 * 8 + 16 * 4)
    assert rows["fc"]["flops"] == 2 * 16 * 4 * 5
    assert rows["fc"]["output_bytes"] == 16 * 5 * 4


@pytest.mark.extras
def test_half_precision_halves_the_bytes_and_keeps_the_flops():
    full, half = (
        {row["layer"]: row for row in session(precision=name).describe()["layers"]}["fc"]
        for name in ("fp32", "bf16")
    )
    assert half["weight_bytes"] * 2 == full["weight_bytes"]
    assert half["input_bytes"] * 2 == full["input_bytes"]
    assert half["flops"] == full["flops"]


@pytest.mark.extras
def test_an_embedding_reads_the_rows_it_returns():
    (row,) = session("embedding").describe()["layers"]
    assert row["weight_bytes"] == row["output_bytes"] == 3 * 4 * 4
    assert row["parameters"] == 400


@pytest.mark.extras
def test_no_range_lies_in_another_and_every_layer_is_entered_once():
    model = session()
    ranges = ListedRanges()
    with model.active():
        model.run(ranges)
    assert not [path for path in ranges.paths if "/" in path]
    assert set(model.layer_names()) < set(ranges.paths)
    assert len(set(ranges.paths)) == len(ranges.paths)


@pytest.mark.extras
def test_a_model_agrees_with_itself_in_fp32_on_the_cpu_and_less_in_bf16():
    (exact,), (half,) = (session(precision=name).check() for name in ("fp32", "bf16"))
    assert exact.passed
    assert half.passed
    assert half.error > exact.error


@pytest.mark.extras
def test_an_output_that_is_not_finite_fails(capsys):
    (row,) = session("infinite", settings=(("input", "2x2"),)).check()
    assert math.isnan(row.error)
    assert not row.passed
    assert "not finite" in capsys.readouterr().out


@pytest.mark.extras
@pytest.mark.parametrize(
    ("function", "settings", "told"),
    [
        ("no_module", {}, "must return a torch.nn.Module"),
        ("nothing", {}, "no such function"),
        ("net", {"attention": "fast"}, "no such choice"),
        ("net", {"config.layers": "2"}, "only a transformers model"),
        ("infinite", {"input": "3,2"}, "sizes between x"),
    ],
)
def test_what_cannot_be_built_is_said(function, settings, told):
    with pytest.raises(PerfmlError, match=told):
        session(function, settings=tuple(settings.items()))


@pytest.mark.extras
def test_a_model_that_does_not_run_says_what_it_raised(tmp_path):
    file = tmp_path / "wide.py"
    file.write_text("import torch\ndef net(): return torch.nn.Linear(7, 2)\n")
    with pytest.raises(PerfmlError, match=r"does not run on these inputs.*RuntimeError"):
        workload(f"torch:{file}:net").session(Options("cudnn", device="cpu"))


@pytest.mark.extras
@pytest.mark.usefixtures("torchvision")
def test_a_librarys_model_is_built_without_weights():
    options = Options("cublas", device="cpu", batch=2, settings=(("input", "3x16x16"),))
    model = workload("torch:torchvision/tiny").session(options)
    assert [row["output"] for row in model.describe()["layers"]] == ["2x4x14x14"] * 2
    with pytest.raises(InputError, match="no such model"):
        workload("torch:torchvision/resnet999").session(options)


@pytest.mark.extras
def test_a_library_that_is_missing_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(MissingExtraError, match="pip install timm"):
        workload("torch:timm/resmlp_12_224").session(Options("cudnn", device="cpu"))


def compile_without_a_compiler(monkeypatch):
    """Trace and cut graphs as torch.compile does, and run them as they are."""
    import torch

    real = torch.compile
    monkeypatch.setattr(torch, "compile", functools.partial(real, backend="eager"))


@pytest.mark.extras
@pytest.mark.slow
def test_a_model_compiled_whole_says_that_kernels_span_modules(monkeypatch):
    compile_without_a_compiler(monkeypatch)
    model = session(backend="inductor")
    about = model.describe()
    assert about["layers"] == session().describe()["layers"]
    assert "several modules" in about["warnings"][0]
    ranges = ListedRanges()
    with model.active():
        model.run(ranges)
    # nothing but inductor's code can open ranges inside
    assert len(ranges.paths) == 1
    assert set(ranges.paths) <= set(model.layer_names())
    assert all(row.passed for row in model.check())


@pytest.mark.extras
@pytest.mark.slow
def test_modules_compiled_one_by_one_keep_their_names(monkeypatch):
    compile_without_a_compiler(monkeypatch)
    model = session(backend="inductor", settings=(("compile", "layers"),))
    assert model.layer_names() == session().layer_names()
    assert all(row.passed for row in model.check())


@pytest.mark.extras
def test_the_runner_checks_a_model_and_writes_it_down(tmp_path):
    words = [NET, "--backend", "cudnn", "--device", "cpu", "--mode", "check"]
    assert runner.main([*words, "--warmup", "0", "--out", str(tmp_path)]) == 0
    record = json.loads((tmp_path / "run.json").read_text())
    assert record["check"]["passed"]


@pytest.mark.extras
@pytest.mark.usefixtures("torchvision")
def test_a_video_is_of_the_size_that_its_network_was_trained_with():
    model = workload("torch:torchvision/clip").session(Options("cudnn", batch=1, device="cpu"))
    assert model.describe()["input"] == ["1x3x18x8x6"]


@pytest.mark.extras
def test_what_nobody_trained_stays_within_fp16(torchvision):

    def check(precision):
        settings = (("input", "3x16x16"),)
        given = Options("cudnn", precision=precision, batch=2, device="cpu", settings=settings)
        return workload("torch:torchvision/fading").session(given).check()[0]

    row = check("fp16")
    assert row.error < 0.05
    assert row.limit == SETTLED_LIMIT
    assert check("fp32").limit == LIMITS["fp32"]


@pytest.mark.extras
def test_what_a_user_s_model_has_learnt_stays():
    import torch

    made = session("fading", precision="fp16", batch=2)
    norms = [part for part in made._model.modules() if isinstance(part, torch.nn.BatchNorm2d)]
    assert norms
    for norm in norms:
        assert norm.running_mean.eq(0).all()
        assert norm.running_var.eq(1).all()
    assert made.check()[0].limit == LIMITS["fp16"]


@pytest.mark.extras
def test_statistics_that_inputs_do_not_have_stay_as_they_were():
    import torch

    from collectors.workloads.torch_models.sources import Built, settle_statistics

    first, second = torch.nn.BatchNorm1d(4), torch.nn.BatchNorm1d(4)
    first.running_mean.fill_(3)
    model = torch.nn.Sequential(first, torch.nn.Flatten(), second).eval()
    settle_statistics(Built(model, (torch.randn(1, 4),)))  # one value a channel has none
    assert first.running_mean.eq(3).all()
    assert first.momentum == 0.1
    assert not any(norm.training for norm in (first, second))


@pytest.mark.extras
def test_grouped_queries_are_counted():
    made = session("grouped", batch=3)
    # scores and their sum over the values: 2 x 2 x batch x heads x 10 x 10 x 8
    assert made.describe()["flops"] == 2 * 2 * 3 * 4 * 10 * 10 * 8


@pytest.mark.extras
def test_a_matrix_of_zeros_is_drawn_in_a_library_s_model(torchvision, monkeypatch):
    import torch

    from collectors.workloads.torch_models import sources

    monkeypatch.setattr(torch.nn.Conv2d, "reset_parameters", _to_zero)
    built = sources.build(sources.ModelName("torchvision", "tiny"), 1, 0, {"input": ""})
    weight = built.model[0].weight
    assert weight.count_nonzero() == weight.numel()
    assert not built.model[0].bias.any()


def _to_zero(module):
    module.weight.data.zero_()
    module.bias.data.zero_()
