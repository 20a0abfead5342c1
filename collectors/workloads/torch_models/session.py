"""Run a PyTorch model under one backend, every kernel in the range of a module."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from collectors.workloads.base import CheckRow, Options
from collectors.workloads.module_ranges import ModuleRanges
from collectors.workloads.ranges import Ranges
from collectors.workloads.session import relative_error
from collectors.workloads.turns import wait_for_turn
from perfml.errors import PerfmlError
from perfml.util.installed import import_extra, version_of

from .names import ModelName
from .sources import build, settle_statistics
from .work import layer_rows, tensors

LIMITS = {"fp32": 1e-3, "tf32": 2e-2, "fp16": 2e-2, "bf16": 1e-1}
"""Largest ``|output - reference| / |reference|`` that passes, the reference in fp32 on the CPU.

Wider than of one kernel, since errors grow through a network that nobody trained; a kernel that is
wrong gives about 1.
"""

SETTLED_LIMIT = 2.5e-1
"""The same where batch normalisations take the statistics of a few inputs, which makes errors grow.

resnet101 has 0.11 in fp16, inception_v3 0.08, on the CPU.
"""


class TorchModelSession:
    """A model, its inputs, and its layers by module path.

    Raises a `PerfmlError` if there is no such model or no GPU, or the model does not run.
    """

    def __init__(self, name: ModelName, options: Options, settings: Mapping[str, str]) -> None:
        self._torch = torch = import_extra("torch", "gpu", "this workload")
        self._name, self._options, self._settings = name, options, settings
        self._built = built = build(name, options.batch, options.seed, settings)
        self._expected = self._in_fp32_on_the_cpu()
        # a library's model is drawn at random; a user's file may have loaded what it has learnt
        drawn = options.precision == "fp16" and name.library is not None
        self._settled = drawn and not all(map(_fp16_holds, self._expected))
        if self._settled:
            settle_statistics(built)
            self._expected = self._in_fp32_on_the_cpu()
        wait_for_turn()
        if options.device == "cuda" and not torch.cuda.is_available():
            what, cure = "torch finds no NVIDIA GPU", "Run it where nvidia-smi lists one."
            raise PerfmlError(what, where="--device cuda", cure=cure)
        self._device = torch.device(options.device)
        half = {"fp16": torch.float16, "bf16": torch.bfloat16}
        self._dtype = half.get(options.precision, torch.float32)
        self._model = copy.deepcopy(built.model).to(self._device, self._dtype)
        self._arguments = self._on_device(built.arguments)
        self._keywords = self._on_device(dict(built.keywords))
        self._whole = options.backend == "inductor" and settings["compile"] == "model"
        self._named = ModuleRanges(self._model, Ranges(), numbered=True)
        with self.active(), self._named, self._explained():
            self._layers = layer_rows(self._model, self._named, self._call_eagerly)
        self._callable: Callable[..., Any] = self._model
        if options.backend == "inductor":
            self._compile()

    def _in_fp32_on_the_cpu(self) -> list[Any]:
        """Return the output tensors that the GPU's are compared with."""
        built = self._built
        with self._torch.no_grad(), self._explained():
            return list(tensors([built.model(*built.arguments, **built.keywords)]))

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except PerfmlError:
            raise
        except Exception as error:
            # a library's or the user's own forward pass: whatever it raises
            what = "the model does not run on these inputs"
            raised = f"{type(error).__name__}: {error}"
            cure = "Give the shape of one sample: --set input=3x224x224; or another precision."
            raise PerfmlError(what, where=self._name.name, found=raised, cure=cure) from error

    def _call_eagerly(self) -> Any:
        return self._model(*self._arguments, **self._keywords)

    def _on_device(self, value: Any) -> Any:
        if isinstance(value, self._torch.Tensor):
            dtype = self._dtype if value.is_floating_point() else value.dtype
            return value.to(self._device, dtype)
        if isinstance(value, dict):
            return {key: self._on_device(part) for key, part in value.items()}
        if isinstance(value, (list, tuple)):
            return type(value)(self._on_device(part) for part in value)
        return value

    def _compile(self) -> None:
        torch = self._torch
        from torch._inductor import config as inductor_config

        # a profiler follows a pool of compiler processes as well
        inductor_config.compile_threads = 1
        if self._whole:
            self._callable = compiled = torch.compile(self._model, dynamic=False)
            self._named = ModuleRanges(compiled, Ranges(), numbered=True)
            return
        leaves = [module for _, module in self._named.modules() if not any(module.children())]
        # leaves of one class share the code of forward, and each counts as a recompilation of it
        config = torch._dynamo.config
        config.recompile_limit = max(config.recompile_limit, 2 * len(leaves))
        for module in leaves:
            # the forward, not the module: its hooks stay outside the graph
            module.forward = torch.compile(module.forward, dynamic=False)

    def layer_names(self) -> tuple[str, ...]:
        """Names of all layers that run something, in order, and of compiled ranges so far."""
        names = [row["layer"] for row in self._layers]
        return tuple(dict.fromkeys([*names, *(self._named.opened if self._whole else ())]))

    def describe(self) -> dict[str, Any]:
        """Everything about the model and torch's settings, as JSON values."""
        options, known = self._options, [row["flops"] for row in self._layers]
        inputs = tensors([self._arguments, self._keywords])
        return {
            "model": self._name.name,
            "library": self._name.library,
            "library_version": version_of(self._name.library) if self._name.library else None,
            "weights": "random",
            "classes": None,
            "input": ["x".join(map(str, tensor.shape)) for tensor in inputs],
            "flops": None if None in known else sum(known),
            "parameters": sum(tensor.numel() for tensor in self._model.parameters()),
            "settings": {
                "cudnn_enabled": options.backend != "cublas",
                "cudnn_benchmark": self._benchmark,
                "allow_tf32": options.precision == "tf32",
                "attention": self._settings["attention"],
                "compile": self._settings["compile"] if options.backend == "inductor" else None,
            },
            "layers": [*self._layers, *self._compiled_layers()],
            "warnings": self._warnings(),
        }

    def _compiled_layers(self) -> list[dict[str, Any]]:
        """Return the kind of each layer that only the compiled model has."""
        known = {row["layer"] for row in self._layers}
        kinds = self._named.operators.items()
        return [{"layer": name, "kind": kind} for name, kind in kinds if name not in known]

    def _warnings(self) -> list[str]:
        warnings = []
        if self._whole:
            warnings.append(
                "the model is compiled whole, so a kernel of several modules is in the layer of "
                "one. --set compile=layers compiles each module by itself"
            )
        unknown = [row["layer"] for row in self._layers if row["flops"] is None]
        if unknown:
            warnings.append(f"the FLOPs of {', '.join(unknown[:3])} are not known ({len(unknown)})")
        return warnings

    @property
    def _benchmark(self) -> bool:
        return self._options.backend != "cublas" and self._options.cudnn_benchmark

    @contextmanager
    def active(self) -> Iterator[None]:
        """Put torch into this session's settings; they are process-wide, so it is a block."""
        torch, tf32 = self._torch, self._options.precision == "tf32"
        matmul = torch.backends.cuda.matmul
        before = matmul.allow_tf32
        with ExitStack() as stack:
            stack.callback(setattr, matmul, "allow_tf32", before)
            matmul.allow_tf32 = tf32
            stack.enter_context(
                torch.backends.cudnn.flags(
                    enabled=self._options.backend != "cublas",
                    benchmark=self._benchmark,
                    deterministic=False,
                    allow_tf32=tf32,
                )
            )
            kernels = _attention_kernels(self._settings["attention"])
            if kernels is not None:
                stack.enter_context(torch.nn.attention.sdpa_kernel(kernels))
            stack.enter_context(torch.no_grad())
            yield

    def run(self, ranges: Ranges) -> Any:
        """Run one inference inside :meth:`active`, every layer in its range."""
        self._named.ranges = ranges
        with self._named:
            return self._callable(*self._arguments, **self._keywords)

    def synchronize(self) -> None:
        """Wait until the device is idle."""
        if self._device.type == "cuda":
            self._torch.cuda.synchronize()

    def check(self) -> list[CheckRow]:
        """Compare the floating-point outputs with those of the model in fp32 on the CPU."""
        with self.active():
            outputs = list(tensors([self.run(Ranges())]))
        expected = self._expected
        if len(outputs) != len(expected) or not outputs:
            what = "the model has other outputs than on the CPU"
            raise PerfmlError(what, found=f"{len(outputs)} and {len(expected)} tensors")
        limit = SETTLED_LIMIT if self._settled else LIMITS[self._options.precision]
        rows = [
            CheckRow(f"output_{number}", _error(output, reference), limit)
            for number, (output, reference) in enumerate(zip(outputs, expected, strict=True))
            if reference.is_floating_point()
        ]
        if any(row.error != row.error for row in rows):
            sys.stdout.write("an output is not finite, here or in fp32 on the CPU\n")
        return rows


def _fp16_holds(output: Any) -> bool:
    """Return whether the size of an output's values is well inside the range of fp16."""
    if not output.is_floating_point() or output.numel() == 0:
        return True
    size = float(output.double().square().mean().sqrt())
    return 1e-2 < size < 1e3  # NaN is outside


def _error(output: Any, reference: Any) -> float:
    """Return the relative error; NaN if any value is not finite."""
    if not bool(output.isfinite().all()) or not bool(reference.isfinite().all()):
        return float("nan")
    return relative_error(output, reference)


def _attention_kernels(choice: str) -> list[Any] | None:
    """Return what torch's attention may use; None leaves it to torch."""
    if choice == "default":
        return None
    from torch.nn.attention import SDPBackend

    kernels = {
        "flash": SDPBackend.FLASH_ATTENTION,
        "efficient": SDPBackend.EFFICIENT_ATTENTION,
        "cudnn": SDPBackend.CUDNN_ATTENTION,
        "math": SDPBackend.MATH,
    }
    return [kernels[choice]]
