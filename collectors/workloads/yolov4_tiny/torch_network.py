"""The network in torch, run layer by layer: what cublas, cudnn and inductor have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from collectors.workloads.base import CheckRow
from collectors.workloads.ranges import Ranges
from perfml.errors import PerfmlError
from perfml.util.installed import import_extra

from .network import IMAGE, LEAKY_SLOPE, Layer
from .workload import Problem

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray

    Step = Callable[..., torch.Tensor]


def import_torch() -> Any:
    """Import torch.

    Raises `MissingExtraError` if it is not installed.
    """
    return import_extra("torch", "gpu", "this backend")


class TorchSession:
    """Run a problem's network in torch, one call a layer, with one library doing the convolutions.

    Parameters
    ----------
    problem
        Network, weights and inputs.
    cudnn
        Whether torch may use cuDNN; without it, convolutions are im2col and cuBLAS GEMM.
    wrap
        Applied to every convolution block (convolution, bias and activation), e.g. a compiler.
    channels_last
        Keep activations and kernels in NHWC order instead of NCHW.

    Raises
    ------
    PerfmlError
        If the options ask for a GPU and torch finds none.
    """

    def __init__(
        self,
        problem: Problem,
        *,
        cudnn: bool,
        wrap: Callable[[Step], Step] | None = None,
        channels_last: bool = False,
    ) -> None:
        self._torch = torch = import_torch()
        self._problem, self._cudnn = problem, cudnn
        self._device = torch_device(torch, problem.options.device)
        half = problem.options.precision == "fp16"
        self._dtype = torch.float16 if half else torch.float32
        self._format = torch.channels_last if channels_last else torch.contiguous_format
        self._images = self._tensor(problem.images)
        self._steps = [(layer, self._step(layer, wrap)) for layer in problem.network.layers]
        self._last = problem.network.last_reader()

    def _step(self, layer: Layer, wrap: Callable[[Step], Step] | None) -> Step:
        if layer.type == "route":
            return _route(self._torch, layer, self._format)
        if layer.type != "conv":
            return _STEPS[layer.type](self._torch, layer)
        kernel, bias = self._problem.folded[layer.name]
        moved_bias = self._torch.from_numpy(bias).to(self._device, self._dtype)
        step = _conv(self._torch, layer, self._tensor(kernel), moved_bias)
        return wrap(step) if wrap else step

    def _tensor(self, values: NDArray[np.floating]) -> torch.Tensor:
        moved = self._torch.from_numpy(values).to(self._device, self._dtype)
        return moved.contiguous(memory_format=self._format)

    def layer_names(self) -> tuple[str, ...]:
        """Names of all ranges that :meth:`run` opens, in order."""
        return self._problem.layer_names()

    def describe(self) -> dict[str, Any]:
        """Everything about the network and torch's settings, as JSON values."""
        options = self._problem.options
        tf32 = options.precision == "tf32"
        settings = {
            "cudnn_enabled": self._cudnn,
            "cudnn_benchmark": self._cudnn and options.cudnn_benchmark,
            "allow_tf32": tf32,
            "memory_format": str(self._format).removeprefix("torch."),
        }
        return self._problem.describe() | {"settings": settings}

    @contextmanager
    def active(self) -> Iterator[None]:
        """Put torch into this session's settings; they are process-wide, so it is a block."""
        torch, options = self._torch, self._problem.options
        tf32 = options.precision == "tf32"
        before = torch.backends.cuda.matmul.allow_tf32
        torch.backends.cuda.matmul.allow_tf32 = tf32
        flags = torch.backends.cudnn.flags(
            enabled=self._cudnn,
            benchmark=self._cudnn and options.cudnn_benchmark,
            deterministic=False,
            allow_tf32=tf32,
        )
        try:
            with flags, torch.no_grad():
                yield
        finally:
            torch.backends.cuda.matmul.allow_tf32 = before

    def run(self, ranges: Ranges) -> dict[str, Any]:
        """Run one inference inside :meth:`active`, a range a layer; return head to output."""
        values = {IMAGE: self._images}
        for layer, step in self._steps:
            inputs = [values[i] for i in layer.inputs]
            with ranges.range(layer.name):
                values[layer.index] = step(*inputs)
            del inputs
            # Freed as soon as the last reader is done, so that torch's allocator reuses memory
            # as an inference engine would.
            for i in set(layer.inputs):
                if self._last[i] == layer.index:
                    del values[i]
        return {layer.name: values[layer.index] for layer in self._problem.network.outputs}

    def synchronize(self) -> None:
        """Wait until the device is idle."""
        if self._device.type == "cuda":
            self._torch.cuda.synchronize()

    def check(self) -> list[CheckRow]:
        """Run one inference and compare its outputs with the double-precision reference."""
        with self.active():
            outputs = self.run(Ranges())
        return self._problem.compare(
            {name: tensor.float().cpu().numpy() for name, tensor in outputs.items()}
        )


def torch_device(torch: Any, name: str) -> torch.device:
    """Return the device, or raise PerfmlError if it is a GPU and there is none."""
    if name == "cuda" and not torch.cuda.is_available():
        build = torch.version.cuda
        what = "torch finds no NVIDIA GPU"
        found = f"torch {torch.__version__}, built {f'for CUDA {build}' if build else 'for CPUs'}"
        cure = "Run it where nvidia-smi lists a GPU, with a CUDA build of torch; --device cpu runs"
        cure += " the same network without a GPU, which --mode check can use."
        raise PerfmlError(what, where="--device cuda", found=found, cure=cure)
    return torch.device(name)


def _activation(torch: Any, layer: Layer) -> Step:
    if layer.activation == "leaky":
        return lambda x: torch.nn.functional.leaky_relu(x, LEAKY_SLOPE)
    return lambda x: x


def _conv(torch: Any, layer: Layer, kernel: torch.Tensor, bias: torch.Tensor) -> Step:
    convolve, activate = torch.nn.functional.conv2d, _activation(torch, layer)
    stride, pad, groups = layer.stride, layer.pad, layer.groups

    def conv(x: torch.Tensor) -> torch.Tensor:
        return activate(convolve(x, kernel, bias, stride=stride, padding=pad, groups=groups))

    return conv


def _pool(torch: Any, layer: Layer) -> Step:
    functional = torch.nn.functional
    pads = (layer.pad, layer.pad_end) * 2

    def pool(x: torch.Tensor) -> torch.Tensor:
        if any(pads):
            x = functional.pad(x, pads, value=-torch.inf)
        return functional.max_pool2d(x, layer.size, layer.stride)

    return pool


def _route(torch: Any, layer: Layer, memory_format: Any) -> Step:
    def part(x: torch.Tensor) -> torch.Tensor:
        # The copy that a batch needs belongs to the route, not to the convolution that reads it.
        share = x.chunk(layer.groups, dim=1)[layer.group_id]
        return share.contiguous(memory_format=memory_format)

    def route(*inputs: torch.Tensor) -> torch.Tensor:
        parts = [part(x) for x in inputs] if layer.groups > 1 else inputs
        return parts[0] if len(parts) == 1 else torch.cat(tuple(parts), dim=1)

    return route


def _upsample(torch: Any, layer: Layer) -> Step:
    return lambda x: torch.nn.functional.interpolate(x, scale_factor=layer.stride, mode="nearest")


def _yolo(torch: Any, layer: Layer) -> Step:
    scale, shift = layer.scale_x_y, -0.5 * (layer.scale_x_y - 1.0)

    def yolo(x: torch.Tensor) -> torch.Tensor:
        batch, channels, height, width = x.shape
        # A view in NCHW, a copy in NHWC: anchors and box entries then lie inside one stride.
        boxes = x.reshape(batch, layer.anchors, layer.classes + 5, height, width)
        centre, size, scores = boxes[:, :, :2], boxes[:, :, 2:4], boxes[:, :, 4:]
        centre, scores = torch.sigmoid(centre), torch.sigmoid(scores)
        centre = centre * scale + shift
        return torch.cat((centre, size, scores), dim=2).reshape(batch, channels, height, width)

    return yolo


_STEPS: dict[str, Callable[[Any, Layer], Step]] = {
    "pool": _pool,
    "upsample": _upsample,
    "yolo": _yolo,
}
