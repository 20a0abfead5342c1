"""TensorRT: the network as ONNX, built into an engine that fuses layers as it likes.

Works with ``tensorrt`` (10 and later) and with TensorRT for RTX (``tensorrt_rtx_bindings``). An
RTX engine can be built without a GPU, for any GPU the library supports. Layers get no NVTX ranges
from perfml here: the engine runs as a whole, and TensorRT opens its own (domain ``TensorRT``),
named after the engine's layers because it is built with detailed profiling verbosity.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from collectors.workloads.base import CheckRow, TimedKernel
from collectors.workloads.ranges import Ranges
from collectors.workloads.yolov4_tiny.engine_layers import (
    EngineLayer,
    inspector_layers,
    plan_layers,
)
from collectors.workloads.yolov4_tiny.onnx_export import INPUT, onnx_model
from collectors.workloads.yolov4_tiny.quantize import MaxCalibrator
from collectors.workloads.yolov4_tiny.torch_network import import_torch, torch_device
from collectors.workloads.yolov4_tiny.weights import random_images
from collectors.workloads.yolov4_tiny.workload import Problem
from perfml.errors import PerfmlError
from perfml.util.installed import missing_extra

_MODULES = ("tensorrt", "tensorrt_rtx", "tensorrt_rtx_bindings")
CALIBRATION_IMAGES = 4
# Calibration must not see the images that the check uses.
_CALIBRATION_SEED = 1_000_003


def session(problem: Problem) -> TensorRTSession:
    """Build the engine for the GPU at hand and load it."""
    return TensorRTSession(problem, import_tensorrt())


@functools.cache
def import_tensorrt() -> Any:
    """Import TensorRT, or TensorRT for RTX if that is what is installed, or raise."""
    for name in _MODULES:
        try:
            module = importlib.import_module(name)
        except (ImportError, OSError):
            continue
        if hasattr(module, "Builder"):
            return module
    package, purpose = "tensorrt or tensorrt-rtx-cu13-bindings", "the backend tensorrt"
    raise missing_extra(package, "tensorrt", purpose)


@functools.cache
def _logger(trt: Any) -> Any:
    # One logger a process: TensorRT keeps the first it is given and ignores later ones.
    class Logger(trt.ILogger):  # type: ignore[misc]
        """Keep the vendor's own words for error messages."""

        def __init__(self) -> None:
            trt.ILogger.__init__(self)
            self.errors: list[str] = []

        def log(self, severity: Any, message: str) -> None:
            if severity in (trt.ILogger.ERROR, trt.ILogger.INTERNAL_ERROR):
                self.errors.append(message)

    return Logger()


def _refusal(trt: Any, what: str, where: str) -> PerfmlError:
    """Return an error with TensorRT's own reason and the ways out."""
    errors = _logger(trt).errors
    found = "; ".join(dict.fromkeys(errors)) or "TensorRT gave no reason"
    cure = "Ways out: 1. another GPU"
    if targets := compute_capabilities(trt):
        cure += f" (this library builds for compute capability {', '.join(targets)})"
    cure += "; 2. the other library (tensorrt for data-centre GPUs, tensorrt-rtx for GeForce and"
    cure += " RTX); 3. --backend inductor, which fuses too and runs wherever torch does."
    return PerfmlError(what, where=where, found=found, cure=cure)


def compute_capabilities(trt: Any) -> dict[str, Any]:
    """Return the compute capabilities that engines can be built for, e.g. ``{"8.9": ...}``.

    Empty for ``tensorrt``, which builds for the GPU at hand only.
    """
    members = getattr(getattr(trt, "ComputeCapability", None), "__members__", {})
    digits = {name.removeprefix("SM"): member for name, member in members.items()}
    return {f"{k[:-1]}.{k[-1]}": member for k, member in digits.items() if k.isdigit()}


def onnx_bytes(problem: Problem) -> bytes:
    """Return the problem's network as an ONNX file, in the types of its precision."""
    precision, calibrator = problem.options.precision, None
    if precision == "int8":
        calibrator = MaxCalibrator(problem.network, problem.folded)
        seed = problem.options.seed + _CALIBRATION_SEED
        calibrator.observe(random_images(problem.network, CALIBRATION_IMAGES, seed))
    model = onnx_model(
        problem.network,
        problem.folded,
        problem.options.batch,
        half=precision == "fp16",
        calibrator=calibrator,
    )
    data: bytes = model.SerializeToString()
    return data


def build_plan(trt: Any, model: bytes, *, tf32: bool, target: str | None = None) -> bytes:
    """Build a serialized engine with the module `trt`, or raise with TensorRT's own reason.

    The types of the ONNX file `model` are kept as they are (a strongly typed network), so that fp16
    and int8 mean the same in every library; `tf32` lets float32 convolutions run in TF32. `target`
    is the compute capability to build for, such as ``8.9``, which only TensorRT for RTX offers;
    None is the library's default: the GPU at hand, for RTX any GPU it supports.
    """
    logger = _logger(trt)
    logger.errors.clear()
    # Without a usable GPU the constructor itself may raise, TypeError and RuntimeError alike.
    try:
        builder = trt.Builder(logger)
    except (TypeError, RuntimeError) as error:
        raise _refusal(trt, "TensorRT cannot start here", "tensorrt") from error
    typed = int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED)
    network = builder.create_network(1 << typed)
    parser = trt.OnnxParser(network, logger)
    if not parser.parse(model):
        logger.errors.extend(parser.get_error(i).desc() for i in range(parser.num_errors))
        raise _refusal(trt, "TensorRT cannot read the network", "ONNX model")
    config = builder.create_builder_config()
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
    (config.set_flag if tf32 else config.clear_flag)(trt.BuilderFlag.TF32)
    _set_target(trt, config, target)
    plan = builder.build_serialized_network(network, config)
    if plan is None:
        raise _refusal(trt, "TensorRT refuses to build this engine", f"target {target or 'here'}")
    return bytes(plan)


def _set_target(trt: Any, config: Any, target: str | None) -> None:
    if target is None:
        return
    targets = compute_capabilities(trt)
    if target not in targets:
        what = "this library cannot build an engine for that compute capability"
        cure = f"It builds for: {', '.join(targets) or 'the GPU at hand only'}."
        raise PerfmlError(what, where="target", found=target, cure=cure)
    config.num_compute_capabilities = 1
    config.set_compute_capability(targets[target], 0)


class TensorRTSession:
    """Run an engine on a GPU that TensorRT supports, or raise; torch holds its buffers."""

    def __init__(self, problem: Problem, trt: Any) -> None:
        self._problem, self._trt, self._torch = problem, trt, import_torch()
        if problem.options.device != "cuda":
            what = "TensorRT runs on GPUs only"
            raise PerfmlError(what, where="--device cpu", cure="Use --device cuda.")
        device = torch_device(self._torch, problem.options.device)
        self._tf32 = problem.options.precision == "tf32"
        properties = self._torch.cuda.get_device_properties(device)
        target: str | None = f"{properties.major}.{properties.minor}"
        if target not in compute_capabilities(trt):
            target = None  # then loading the engine fails in the vendor's own words
        self._plan = build_plan(trt, onnx_bytes(problem), tf32=self._tf32, target=target)
        self._runtime = trt.Runtime(_logger(trt))
        self._engine = self._runtime.deserialize_cuda_engine(self._plan)
        context = self._engine and self._engine.create_execution_context()
        if not context:
            raise _refusal(trt, "TensorRT refuses to run on this GPU", self._gpu())
        self._context = context
        self.engine_layers = self._inspect()
        self._bind(device)

    def _gpu(self) -> str:
        properties = self._torch.cuda.get_device_properties(0)
        return f"{properties.name}, compute capability {properties.major}.{properties.minor}"

    def _inspect(self) -> list[EngineLayer]:
        names = self._problem.layer_names()
        inspector = self._engine.create_engine_inspector()
        inspector.execution_context = self._context
        text = inspector.get_engine_information(self._trt.LayerInformationFormat.JSON)
        inspected = inspector_layers(text, names)
        if len(inspected) > 1:
            return inspected
        # TensorRT for RTX compiles the whole network into one layer; the plan lists its steps.
        return plan_layers(self._plan, names)

    def _bind(self, device: Any) -> None:
        torch, half = self._torch, self._problem.options.precision == "fp16"
        dtype = torch.float16 if half else torch.float32
        self._images = torch.from_numpy(self._problem.images).to(device, dtype)
        batch = self._problem.options.batch
        self._outputs = {
            layer.name: torch.full((batch, *layer.out_shape), torch.nan, dtype=dtype, device=device)
            for layer in self._problem.network.outputs
        }
        for name, tensor in {INPUT: self._images, **self._outputs}.items():
            self._context.set_tensor_address(name, tensor.data_ptr())

    def layer_names(self) -> tuple[str, ...]:
        """Names of the engine's layers, those of a fused one joined by ``+``."""
        return tuple(dict.fromkeys(step.layer for step in self.engine_layers if step.layer))

    def describe(self) -> dict[str, Any]:
        """Everything about the network, the library and the engine, as JSON values."""
        settings = {
            "library": self._trt.__name__,
            "library_version": self._trt.__version__,
            "allow_tf32": self._tf32,
            "engine_bytes": len(self._plan),
            "engine_layers": [
                {"name": step.name, "kind": step.kind, "kernel": step.kernel, "layer": step.layer}
                for step in self.engine_layers
            ],
        }
        return self._problem.describe() | {"settings": settings}

    @contextmanager
    def active(self) -> Iterator[None]:
        """Nothing to set: precision is part of the engine."""
        yield

    def run(self, ranges: Ranges) -> dict[str, Any]:
        """Run one inference; ``ranges`` is not used, TensorRT opens its own."""
        del ranges
        stream = self._torch.cuda.current_stream()
        if not self._context.execute_async_v3(stream.cuda_stream):
            raise _refusal(self._trt, "TensorRT could not run the engine", self._gpu())
        return self._outputs

    def synchronize(self) -> None:
        """Wait until the device is idle."""
        self._torch.cuda.synchronize()

    def timed_kernels(self, iterations: int) -> list[TimedKernel]:
        """Time every engine layer with TensorRT's own profiler, as rows of the timing table.

        torch's profiler does not see TensorRT's ranges. ``kernel`` is the tactic where TensorRT
        names it, else the engine layer; starts, grids and blocks are not reported.
        """
        profiler = _layer_profiler(self._trt)
        self._context.profiler = profiler
        steps = {step.name: step for step in self.engine_layers}
        rows = []
        for iteration in range(iterations):
            profiler.times.clear()
            self.run(Ranges())
            self.synchronize()
            for name, milliseconds in profiler.times:
                step = steps.get(name)
                kernel, layer = (step.kernel or name, step.layer) if step else (name, "")
                time_us = round(milliseconds * 1000.0, 3)
                rows.append(TimedKernel(iteration, layer, kernel, time_us, np.nan, "", ""))
        return rows

    def check(self) -> list[CheckRow]:
        """Run one inference and compare its outputs with the double-precision reference."""
        for tensor in self._outputs.values():
            tensor.fill_(self._torch.nan)
        self.run(Ranges())
        self.synchronize()
        return self._problem.compare(
            {name: tensor.float().cpu().numpy() for name, tensor in self._outputs.items()}
        )


def _layer_profiler(trt: Any) -> Any:
    class LayerProfiler(trt.IProfiler):  # type: ignore[misc]
        """Collect (engine layer, milliseconds) of one inference."""

        def __init__(self) -> None:
            trt.IProfiler.__init__(self)
            self.times: list[tuple[str, float]] = []

        def report_layer_time(self, layer_name: str, ms: float) -> None:
            self.times.append((layer_name, ms))

    return LayerProfiler()
