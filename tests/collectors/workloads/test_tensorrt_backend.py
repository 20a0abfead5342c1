"""TensorRT: the ONNX model against the reference, real engines built without a GPU, refusals."""

import json
import types
from functools import cache

import numpy as np
import pytest

from collectors.workloads import Options, workload
from collectors.workloads.ranges import Ranges
from collectors.workloads.yolov4_tiny.backends import tensorrt as backend
from collectors.workloads.yolov4_tiny.engine_layers import inspector_layers, plan_layers
from collectors.workloads.yolov4_tiny.onnx_export import INPUT, layer_of_node
from collectors.workloads.yolov4_tiny.quantize import MaxCalibrator, quantize_kernel
from collectors.workloads.yolov4_tiny.workload import build_problem
from perfml.errors import InputError, MissingExtraError, PerfmlError
from tests.support.paths import ROOT

SMALL = ROOT / "tests" / "data" / "darknet" / "every-layer.cfg"


def problem(**options):
    return build_problem(Options("tensorrt", **options))


@cache
def exported(precision, cfg):
    """Return a problem of two images and its ONNX model, which int8 runs the network to make."""
    one = problem(cfg=cfg, precision=precision, batch=2)
    return one, backend.onnx_bytes(one)


@pytest.fixture(scope="module")
def trt():
    return backend.import_tensorrt()


def run_on_cpu(one, model):
    import onnxruntime as runtime

    session = runtime.InferenceSession(model, providers=["CPUExecutionProvider"])
    dtype = np.float16 if one.options.precision == "fp16" else np.float32
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, {INPUT: one.images.astype(dtype)}), strict=True))


@pytest.mark.extras
@pytest.mark.parametrize("precision", ["fp32", "fp16", "int8"])
@pytest.mark.parametrize(
    "cfg",
    [
        pytest.param(None, marks=pytest.mark.long, id="yolov4-tiny"),
        pytest.param(SMALL, id="own-cfg"),
    ],
)
def test_the_onnx_model_computes_the_reference_network(cfg, precision):
    one, model = exported(precision, cfg)
    rows = one.compare(run_on_cpu(one, model))
    assert all(row.passed and row.error > 0 for row in rows), rows


@pytest.mark.extras
@pytest.mark.slow
def test_int8_really_quantizes():
    """Eight bits cost accuracy: an int8 model as exact as fp32 would not be quantized at all."""
    errors = [
        max(row.error for row in one.compare(run_on_cpu(one, model)))
        for one, model in (exported("fp32", None), exported("int8", None))
    ]
    assert errors[1] > 1000 * errors[0]


@pytest.mark.extras
@pytest.mark.long
def test_every_onnx_node_is_named_after_its_layer():
    import onnx

    one, exchanged = exported("int8", None)
    model = onnx.load_from_string(exchanged)
    onnx.checker.check_model(model, full_check=True)
    owners = {layer_of_node(node.name) for node in model.graph.node}
    assert owners <= set(one.layer_names())
    assert {f"conv_{i:02d}" for i in range(1, 22)} <= owners
    names = [node.name for node in model.graph.node]
    assert len(names) == len(set(names))


def test_the_calibrator_keeps_the_largest_magnitude_of_every_image():
    one = problem(cfg=SMALL)
    calibrator = MaxCalibrator(one.network, one.folded)
    calibrator.observe(one.images)
    first = dict(calibrator.largest)
    calibrator.observe(3 * one.images)
    assert calibrator.largest[-1] == pytest.approx(3 * first[-1])
    assert set(calibrator.largest) == {-1, *range(len(one.network.layers))}
    assert calibrator.scale(-1) == pytest.approx(calibrator.largest[-1] / 127)


def test_a_quantized_kernel_is_within_half_a_step_and_survives_a_zero_filter():
    kernel = np.random.default_rng(0).normal(size=(5, 3, 3, 3))
    kernel[2] = 0
    small, scales = quantize_kernel(kernel)
    back = small * scales[:, None, None, None]
    assert np.abs(back - kernel).max() <= 0.5001 * scales.max()
    assert (np.abs(small).max(axis=(1, 2, 3)) == [127, 127, 0, 127, 127]).all()


@pytest.mark.extras
@pytest.mark.long
@pytest.mark.parametrize("precision", ["fp32", "tf32", "fp16", "int8"])
def test_a_real_engine_keeps_the_names_of_all_fused_layers(trt, precision):
    one, model = exported(precision, None)
    plan = backend.build_plan(trt, model, tf32=precision == "tf32", target="8.9")
    steps = plan_layers(plan, one.layer_names())
    named = {layer for step in steps for layer in step.layers}
    assert {layer.name for layer in one.network.convolutions} <= named
    assert {"pool_01", "pool_02", "pool_03", "upsample_01", "yolo_01", "yolo_02"} <= named
    assert any(len(step.layers) > 1 for step in steps)
    # A route that only hands a tensor on, or writes in place, is no step of its own.
    assert set(one.layer_names()) - named <= {f"route_{i:02d}" for i in range(1, 12)}


@pytest.mark.extras
def test_fused_layers_are_listed_in_network_order(trt):
    one, model = exported("fp32", None)
    plan = backend.build_plan(trt, model, tf32=False, target="8.9")
    fused = [s.layer for s in plan_layers(plan, one.layer_names()) if len(s.layers) > 1]
    assert "conv_19+upsample_01+route_11" in fused


@pytest.mark.extras
def test_the_tf32_choice_reaches_the_engine(trt):
    _, model = exported("fp32", SMALL)
    with_tf32, without = (
        backend.build_plan(trt, model, tf32=choice, target="8.9") for choice in (True, False)
    )
    assert b"tf32=1" in with_tf32
    assert b"tf32=0" in without


@pytest.mark.extras
def test_a_target_the_library_does_not_build_for_is_refused_with_those_it_does(trt):
    _, model = exported("fp32", SMALL)
    with pytest.raises(PerfmlError, match=r"8\.9") as caught:
        backend.build_plan(trt, model, tf32=False, target="9.0")
    assert caught.value.found == "9.0"


@pytest.mark.extras
def test_a_model_that_is_no_onnx_is_refused_in_the_vendors_words(trt):
    with pytest.raises(PerfmlError, match="cannot read the network") as caught:
        backend.build_plan(trt, b"not a model", tf32=False, target="8.9")
    assert caught.value.found != "TensorRT gave no reason"


def test_a_plan_without_a_listing_is_an_error_not_an_empty_list():
    with pytest.raises(InputError, match="no listing"):
        plan_layers(b"\x00\x01 some other engine \nmain {\n}\n", ["conv_01"])


INSPECTED = {
    "Layers": [
        {
            "Name": "conv_19 + PWN(conv_19/leaky)",
            "LayerType": "CaskConvolution",
            "TacticName": "sm80_xmma_fprop_implicit_gemm",
            "Metadata": "[ONNX Layer: conv_19]\u001e[ONNX Layer: conv_19/leaky]",
        },
        {
            "Name": "__myl_ResiConc",
            "LayerType": "kgen",
            "TacticName": "__myl_ResiConc_0x12",
            "Metadata": "[ONNX Layer: route_11]\u001f[ONNX Layer: upsample_01]",
        },
        {"Name": "conv_20 + PWN(conv_20/leaky)", "LayerType": "CaskConvolution"},
        {"Name": "Reformatting CopyNode for Input Tensor 0", "LayerType": "Reformat"},
    ]
}
NAMES = ("conv_19", "upsample_01", "route_11", "conv_20")


def test_the_inspectors_json_gives_every_fused_layer_all_its_names():
    steps = inspector_layers(json.dumps(INSPECTED), NAMES)
    assert [step.layer for step in steps] == ["conv_19", "upsample_01+route_11", "conv_20", ""]
    assert steps[0].kernel == "sm80_xmma_fprop_implicit_gemm"


def test_an_engine_without_details_is_refused():
    with pytest.raises(InputError, match="layer names only"):
        inspector_layers(json.dumps({"Layers": ["conv_19 + conv_20"]}), NAMES)
    for text in ("", "[]", "{}"):
        with pytest.raises(InputError, match="not the JSON"):
            inspector_layers(text, NAMES)


class FakeLibrary:
    """TensorRT's Python interface as far as the backend uses it, on a GPU that is not there."""

    __name__ = "tensorrt"
    __version__ = "0.fake"
    ERRORS = ("Unsupported SM 0x900", "Supported SMs: 8.0 8.6 8.9 12.0 12.1")

    class ILogger:
        ERROR, INTERNAL_ERROR, INFO = "error", "internal", "info"

        def __init__(self):
            pass

    class IProfiler:
        def __init__(self):
            pass

    def __init__(self, *, loads):
        self.NetworkDefinitionCreationFlag = types.SimpleNamespace(STRONGLY_TYPED=1)
        self.ProfilingVerbosity = types.SimpleNamespace(DETAILED="detailed")
        self.BuilderFlag = types.SimpleNamespace(TF32="tf32")
        self.LayerInformationFormat = types.SimpleNamespace(JSON="json")
        self.ComputeCapability = types.SimpleNamespace(__members__={"SM89": 1, "NONE": 0})
        self.loads = loads
        self.config = types.SimpleNamespace(flags=set())
        self.config.set_flag = self.config.flags.add
        self.config.clear_flag = self.config.flags.discard

    def Builder(self, logger):  # noqa: N802 - TensorRT's name
        return types.SimpleNamespace(
            create_network=lambda flags: flags,
            create_builder_config=lambda: self.config,
            build_serialized_network=lambda network, config: b"plan",
        )

    def OnnxParser(self, network, logger):  # noqa: N802
        return types.SimpleNamespace(parse=lambda model: True)

    def Runtime(self, logger):  # noqa: N802
        def load(plan):
            if not self.loads:
                for message in self.ERRORS:
                    logger.log("error", message)
                logger.log("info", "not a reason")
                return None
            return types.SimpleNamespace(
                create_execution_context=lambda: FakeContext(),
                create_engine_inspector=lambda: types.SimpleNamespace(
                    get_engine_information=lambda form: json.dumps(INSPECTED)
                ),
            )

        return types.SimpleNamespace(deserialize_cuda_engine=load)


class FakeContext:
    profiler = None

    def __init__(self):
        self.addresses = {}

    def set_tensor_address(self, name, address):
        self.addresses[name] = address

    def execute_async_v3(self, stream):
        if self.profiler is not None:
            for entry in INSPECTED["Layers"]:
                self.profiler.report_layer_time(entry["Name"], 0.0025)
        return True


@pytest.fixture
def gpu(monkeypatch):
    """Let torch claim an H200 while its tensors stay on the CPU."""
    import torch

    properties = types.SimpleNamespace(name="NVIDIA H200", major=9, minor=0)
    monkeypatch.setattr(backend, "torch_device", lambda *_: torch.device("cpu"))
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda *_: properties)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    stream = types.SimpleNamespace(cuda_stream=0)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: stream)


@pytest.mark.extras
def test_an_unsupported_gpu_is_refused_with_the_vendors_reason_and_the_ways_out(gpu):
    with pytest.raises(PerfmlError, match="refuses to run on this GPU") as caught:
        backend.TensorRTSession(problem(cfg=SMALL), FakeLibrary(loads=False))
    error = caught.value
    assert error.where == "NVIDIA H200, compute capability 9.0"
    assert error.found == "; ".join(FakeLibrary.ERRORS)
    assert "8.9" in error.cure
    assert "--backend inductor" in error.cure


@pytest.mark.extras
def test_times_of_a_loaded_engine_go_to_the_fused_layers(gpu, monkeypatch):
    one = problem(cfg=SMALL)
    monkeypatch.setattr(type(one), "layer_names", lambda self: NAMES)
    library = FakeLibrary(loads=True)
    session = backend.TensorRTSession(one, library)
    assert library.config.profiling_verbosity == "detailed"
    assert session.layer_names() == ("conv_19", "upsample_01+route_11", "conv_20")
    rows = session.timed_kernels(2)
    assert [row.iteration for row in rows] == [0] * 4 + [1] * 4
    assert [row.layer for row in rows[:4]] == ["conv_19", "upsample_01+route_11", "conv_20", ""]
    assert rows[0].time_us == 2.5
    assert rows[2].kernel == "conv_20 + PWN(conv_20/leaky)"
    with session.active():
        outputs = session.run(Ranges())
    assert outputs["yolo_01"].shape == (1, 14, 10, 12)
    assert set(session._context.addresses) == {INPUT, "yolo_01"}
    assert session.describe()["settings"]["engine_layers"][1]["layer"] == "upsample_01+route_11"


def test_a_missing_library_names_the_extra(monkeypatch):
    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(backend.importlib, "import_module", missing)
    with pytest.raises(MissingExtraError, match=r"pip install .*\[tensorrt\]"):
        backend.import_tensorrt.__wrapped__()


@pytest.mark.extras
def test_the_backend_on_the_cpu_says_that_tensorrt_needs_a_gpu(trt):
    with pytest.raises(PerfmlError, match="GPUs only"):
        workload("yolov4-tiny").session(Options("tensorrt", device="cpu", cfg=SMALL))
