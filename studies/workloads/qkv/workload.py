"""The workload: versions of the product as backends, shapes and warps a block as layers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from collectors.workloads.base import Ladder, Options, check_options, read_settings
from collectors.workloads.cuda import Module, Source, build
from collectors.workloads.session import KernelSession, Layer
from perfml.errors import InputError

from .shapes import (
    SHAPES,
    WARPS,
    Shape,
    blocks_of,
    layer_name,
    parse_blocks,
    parse_shapes,
    parse_warps,
)

LIMIT = 1e-5
"""Largest relative error: sums of up to 512 fp32 products, one after another, are off by 4e-7."""
VERSIONS = ("base", "base_w2", "strip", "strip_w2", "base_lean", "strip_lean")
PLAIN = ("base", "strip")
"""Versions that read the weights as they are, not rearranged."""
YARDSTICK = "cublas"
_DEFAULTS = {
    "shapes": ",".join(SHAPES),
    "warps": ",".join(str(each) for each in WARPS),
    "blocks": "0",
}
DEVICE = "cuda"
_SOURCE = Path(__file__).parent / "qkv.cu"


class QkvWorkload(Ladder):
    """Query, key and value product: how threads are assigned and how weights are laid out.

    Settings: ``shapes``, ``warps`` a block, and ``blocks`` (0 is one a multiprocessor, -2 are two).
    """

    name = "qkv"
    summary = "query, key and value product of a transformer layer, and cuBLAS"
    check_first = True
    versions = dict.fromkeys((*VERSIONS, YARDSTICK), ("fp32",))

    def default_backends(self) -> tuple[str, ...]:
        """Return all: a ladder means every version."""
        return self.backends()

    def steps(self) -> tuple[tuple[str, str], ...]:
        """Return the ladder's steps: (version before, version after)."""
        return (
            ("base", "base_w2"),
            ("base", "strip"),
            ("base_w2", "strip_w2"),
            ("strip", "strip_w2"),
            ("base_w2", "base_lean"),
            ("strip_w2", "strip_lean"),
            ("base_lean", "strip_lean"),
            ("strip_w2", YARDSTICK),
        )

    def layers(self, options: Options) -> tuple[tuple[Shape, int], ...]:
        """Return shape and warps a block of every layer."""
        check_options(self, options)
        if options.batch != 1:
            what, cure = "the words of all samples are a part of a shape", "Leave --batch out."
            raise InputError(what, where="--batch", found=str(options.batch), cure=cure)
        settings = read_settings(options, _DEFAULTS)
        parse_blocks(settings["blocks"])
        warps = parse_warps(settings["warps"])
        return tuple((shape, each) for shape in parse_shapes(settings["shapes"]) for each in warps)

    def session(self, options: Options) -> KernelSession:
        """Build a session."""
        layers = self.layers(options)
        if options.device != "cuda":
            what, cure = "these are CUDA kernels", "Use --device cuda."
            raise InputError(what, where="--device", found=options.device, cure=cure)
        return _session(options, layers)


WORKLOAD = QkvWorkload()


def reference(weights: Any, words: Any) -> Any:
    """Return the product, words (words, model) by weights (qkv, model), in double precision."""
    return words.double() @ weights.double().T


class _Data:
    """Tensors of one shape; its layers share the inputs."""

    def __init__(self, shape: Shape, seed: int, module: Module | None) -> None:
        import torch

        self.shape, self._module = shape, module
        self.weights = torch.empty(shape.qkv, shape.model, device=DEVICE)
        self.words = torch.empty(shape.words, shape.model, device=DEVICE)
        self.rearranged = torch.empty(shape.model, shape.qkv, device=DEVICE)
        self.fill(seed)

    def fill(self, seed: int) -> None:
        """Draw weights and words, and rearrange the weights."""
        import torch

        generator = torch.Generator(DEVICE).manual_seed(seed)
        self.weights.normal_(0.0, self.shape.model**-0.5, generator=generator)
        self.words.normal_(generator=generator)
        if self._module is not None:
            self.rearranged.fill_(float("nan"))
            kernel = self._module.kernel(f"rearrange_{self.shape.name}")
            kernel(132, 256, self.weights, self.rearranged)


class _Session(KernelSession):
    """A session whose library keeps to fp32."""

    @contextmanager
    def active(self) -> Iterator[None]:
        """Switch TF32 off."""
        import torch

        matmul = torch.backends.cuda.matmul
        before = matmul.allow_tf32
        matmul.allow_tf32 = False
        try:
            with super().active():
                yield
        finally:
            matmul.allow_tf32 = before


def _session(options: Options, wanted: tuple[tuple[Shape, int], ...]) -> KernelSession:
    import torch

    library = options.backend == YARDSTICK
    module = None if library else build({"qkv": Source(_SOURCE)})["qkv"]
    multiprocessors = torch.cuda.get_device_properties(0).multi_processor_count
    asked = parse_blocks(read_settings(options, _DEFAULTS)["blocks"])
    blocks = blocks_of(asked, multiprocessors)
    data = {
        name: _Data(SHAPES[name], options.seed, module)
        for name in dict.fromkeys(shape.name for shape, _ in wanted)
    }
    layers = []
    for shape, warps in wanted:
        out = torch.empty(shape.words, shape.qkv, device=DEVICE)
        launch = _launch(options.backend, data[shape.name], out, module, blocks, warps)
        about = {**shape.about(), "warps": warps, "blocks": blocks}
        name = layer_name(shape, warps, asked)
        layers.append(_layer(data[shape.name], name, launch, out, about))
    settings: dict[str, Any] = {"multiprocessors": multiprocessors, "blocks": blocks}
    if module is None:
        # its layers are one and the same product: a library chooses its own blocks
        settings |= {"library": "cublas", "allow_tf32": False}
    else:
        names = [f"{options.backend}_{name}" for name in data]
        settings |= {
            "compiler": module.compiler,
            "architecture": module.architecture,
            "kernels": {name: vars(module.kernel(name).resources()) for name in names},
        }
    return _Session(layers, settings, seed=options.seed)


def _launch(
    backend: str, data: _Data, out: Any, module: Module | None, blocks: int, warps: int
) -> Callable[[], None]:
    import torch

    if module is None:

        def library() -> None:
            torch.matmul(data.words, data.weights.T, out=out)

        return library
    kernel = module.kernel(f"{backend}_{data.shape.name}")
    weights = data.weights if backend in PLAIN else data.rearranged

    def own() -> None:
        kernel(blocks, 32 * warps, weights, data.words, out, data.shape.words)

    return own


def _layer(
    data: _Data, name: str, launch: Callable[[], None], out: Any, about: dict[str, Any]
) -> Layer:
    def expected() -> dict[str, Any]:
        return {"qkv": reference(data.weights, data.words)}

    return Layer(name, launch, {"qkv": out}, expected, LIMIT, data.fill, about)
