"""The workload: versions of the convolution as backends, problems as layers, and their sessions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from collectors.workloads.base import Ladder, Options, check_options, read_settings
from collectors.workloads.cuda import Module, Source, build, import_cupy
from collectors.workloads.session import KernelSession, Layer
from perfml.errors import InputError

from .problems import DEFAULT_SIZES, Problem, parse_sizes, parts_of, reference

LIMITS = {"fp32": 1e-5, "tf32": 2e-3, "fp16": 2e-3}
"""Largest relative error. A product of two operands of 11 bits, each rounded, is off by 4e-4 on
average; sums are kept in fp32."""
STREAMS = 4
CONSTANT_FLOATS = 16384
"""What constant memory holds: 64 KiB."""
DEVICE = "cuda"
_FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Version:
    """One version of the kernel.

    Attributes
    ----------
    source
        File of the kernels.
    defines
        Macros of the variant.
    precision
        Of the products; data are fp32 before and after.
    against
        The version it changes one thing of.
    streams
        Streams that the images are divided among.
    """

    source: str
    against: str
    defines: Mapping[str, int] = field(default_factory=dict)
    precision: str = "fp32"
    streams: int = 1


VERSIONS = {
    "unroll": Version("separate.cu", ""),
    "streams": Version("separate.cu", "unroll", streams=STREAMS),
    "fused": Version("fused.cu", "unroll"),
    "restrict": Version("fused.cu", "fused", {"RESTRICT": 1}),
    "constant": Version("fused.cu", "restrict", {"RESTRICT": 1, "CONSTANT": 1}),
    "rolled": Version("fused.cu", "restrict", {"RESTRICT": 1, "INNER": 1}),
    "unrolled": Version("fused.cu", "restrict", {"RESTRICT": 1, "INNER": 2}),
    "tile8": Version("fused.cu", "restrict", {"RESTRICT": 1, "TILE": 8}),
    "tile32": Version("fused.cu", "restrict", {"RESTRICT": 1, "TILE": 32}),
    "wmma_tf32": Version("wmma.cu", "restrict", {"HALF": 0}, "tf32"),
    "wmma_fp16": Version("wmma.cu", "wmma_tf32", {"HALF": 1}, "fp16"),
    # two steps at once: does one of them gain more where the other has been made?
    "fused_streams": Version("fused.cu", "fused", streams=STREAMS),
    "rolled_tile8": Version("fused.cu", "tile8", {"RESTRICT": 1, "INNER": 1, "TILE": 8}),
    "rolled_tile32": Version("fused.cu", "tile32", {"RESTRICT": 1, "INNER": 1, "TILE": 32}),
    "constant_tile8": Version("fused.cu", "tile8", {"RESTRICT": 1, "CONSTANT": 1, "TILE": 8}),
    "wmma_fp16_rolled": Version("wmma.cu", "wmma_fp16", {"HALF": 1, "UNROLL": 1}, "fp16"),
    "wmma_fp16_unrolled": Version("wmma.cu", "wmma_fp16_rolled", {"HALF": 1, "UNROLL": 4}, "fp16"),
    "wmma_fp16_tile16": Version("wmma.cu", "wmma_fp16", {"HALF": 1, "PIXELS": 16}, "fp16"),
}
CONSTANT = frozenset(name for name, each in VERSIONS.items() if each.defines.get("CONSTANT"))
YARDSTICK = "cudnn"
_INTS = ("images", "maps", "channels", "height", "width", "size", "pad", "out_height", "out_width")


def shape_argument(problem: Problem, images: int | None = None) -> Any:
    """Return the structure ``Shape`` that kernels take by value, of some or all of the images."""
    import numpy as np

    values = [getattr(problem, name) for name in _INTS]
    values[0] = problem.images if images is None else images
    return np.array([tuple(values)], dtype=[(name, np.int32) for name in _INTS])


def grid_of(problem: Problem, version: str, images: int = 0) -> tuple[int, int, int]:
    """Return the grid of a fused version: tiles of pixels, tiles of maps, images (0: all)."""
    chosen = VERSIONS[version]
    tensor = chosen.source == "wmma.cu"
    pixels = chosen.defines.get("PIXELS", 64) if tensor else chosen.defines.get("TILE", 16)
    maps = 16 if tensor else pixels
    return -(-problem.pixels // pixels), -(-problem.maps // maps), images or problem.images


_PRECISIONS = {
    **{name: (version.precision,) for name, version in VERSIONS.items()},
    YARDSTICK: tuple(LIMITS),
}


DEFAULTS = {"sizes": DEFAULT_SIZES, "copies": "0"}


def _check_copies(backend: str, copies: str) -> None:
    if copies not in ("0", "1"):
        what = "copies is 0 or 1"
        raise InputError(what, where="--set copies", found=copies)
    if copies == "1" and backend == YARDSTICK:
        what, cure = "the library is measured without copies", "Leave --set copies=1 out."
        raise InputError(what, where="--set copies", found=backend, cure=cure)


class ConvWorkload(Ladder):
    """Forward convolution, without padding as in a course project, and two layers of YOLOv4-Tiny.

    Settings: ``sizes``, the problems (see `parse_sizes`), and ``copies``: 1 brings the images from
    the host's pinned memory and the outputs back to it, as a part of every launch.
    """

    name = "conv"
    summary = "forward convolution: unrolled, fused, on tensor cores, and cuDNN"
    check_first = True
    versions = _PRECISIONS

    def default_backends(self) -> tuple[str, ...]:
        """Return what multiplies in fp32, the precision that is measured by default."""
        return tuple(name for name in self.backends() if "fp32" in self.precisions(name))

    def steps(self) -> tuple[tuple[str, str], ...]:
        """Return the ladder's steps: (version before, version after)."""
        pairs = [(each.against, name) for name, each in VERSIONS.items() if each.against]
        beside = ("restrict", "wmma_tf32", "wmma_fp16")
        # nvcc unrolls the inner loop by itself: what that brings shows against "rolled"
        more = (("rolled", "unrolled"), ("restrict", "wmma_fp16"))
        return (*pairs, *more, *((name, YARDSTICK) for name in beside))

    def problems(self, options: Options) -> tuple[Problem, ...]:
        """Return the problems that a backend solves; constant memory does not hold all weights."""
        check_options(self, options)
        if options.batch != 1:
            what, cure = "the batch is a part of a problem's name", "Use --set sizes=conv1_b100."
            raise InputError(what, where="--batch", found=str(options.batch), cure=cure)
        settings = read_settings(options, DEFAULTS)
        _check_copies(options.backend, settings["copies"])
        asked = parse_sizes(settings["sizes"])
        if options.backend not in CONSTANT:
            return asked
        found = tuple(each for each in asked if each.weights <= CONSTANT_FLOATS)
        if not found:
            what = "the weights of these problems do not fit in constant memory"
            raise InputError(what, where="--set sizes", found=", ".join(e.name for e in asked))
        return found

    def session(self, options: Options) -> KernelSession:
        """Build a session."""
        problems = self.problems(options)
        if options.device != "cuda":
            what, cure = "these are CUDA kernels", "Use --device cuda."
            raise InputError(what, where="--device", found=options.device, cure=cure)
        if options.backend == YARDSTICK:
            return cudnn_session(options, problems)
        return kernel_session(options, problems)


WORKLOAD = ConvWorkload()


@dataclass
class _Data:
    """Tensors of one problem.

    `host_images` and `host_outputs` are None but where copies are a part of a launch.
    """

    problem: Problem
    weights: Any
    images: Any
    outputs: dict[str, Any]
    host_images: Any = None
    host_outputs: Any = None

    def fill(self, seed: int) -> None:
        """Draw weights and images; outputs are then about N(0, 1) too."""
        import torch

        generator = torch.Generator(DEVICE).manual_seed(seed)
        self.weights.normal_(0.0, self.problem.depth**-0.5, generator=generator)
        self.images.normal_(generator=generator)
        if self.host_images is not None:
            self.host_images.copy_(self.images)
            # a launch that forgot a copy computes with this, and so does its reference
            self.images.fill_(float("nan"))

    def layer(
        self,
        launch: Callable[[], None],
        limit: float,
        renewed: Callable[[], None] = lambda: None,
    ) -> Layer:
        def renew(seed: int) -> None:
            self.fill(seed)
            renewed()

        def expected() -> dict[str, Any]:
            return {"y": reference(self.problem, self.weights, self.images)}

        outputs = self.outputs if self.host_outputs is None else {"y": self.host_outputs}
        about = self.problem.about()
        return Layer(self.problem.name, launch, outputs, expected, limit, renew, about)

    def copied(self, launch: Callable[..., None], first: int, count: int) -> Callable[..., None]:
        """Return the launch of some images with their copies around it, if there are any."""
        if self.host_images is None:
            return launch
        import torch

        part = slice(first, first + count)

        def whole(stream: Any = None) -> None:
            with torch.cuda.stream(stream):
                self.images[part].copy_(self.host_images[part], non_blocking=True)
                launch(stream)
                self.host_outputs[part].copy_(self.outputs["y"][part], non_blocking=True)

        return whole


def _data(problem: Problem, seed: int, *, with_output: bool = True, copies: bool = False) -> _Data:
    import torch

    made = _Data(
        problem,
        torch.empty(problem.maps, problem.channels, problem.size, problem.size, device=DEVICE),
        torch.empty(problem.images, problem.channels, problem.height, problem.width, device=DEVICE),
        {},
    )
    if with_output:
        shape = (problem.images, problem.maps, problem.out_height, problem.out_width)
        made.outputs["y"] = torch.empty(shape, device=DEVICE)
    if copies:
        pinned = DEVICE == "cuda"
        made.host_images = torch.empty(made.images.shape, pin_memory=pinned)
        made.host_outputs = torch.empty(made.outputs["y"].shape, pin_memory=pinned)
    made.fill(seed)
    return made


def kernel_session(options: Options, problems: Sequence[Problem]) -> KernelSession:
    """Return the session of one version of perfml's own kernels."""
    version = VERSIONS[options.backend]
    source = Source(_FOLDER / version.source, version.defines)
    limit = LIMITS[version.precision]
    copies = read_settings(options, DEFAULTS)["copies"] == "1"
    data = [_data(each, options.seed, copies=copies) for each in problems]
    # weights in constant memory are a part of a module, so every problem has a module of its own;
    # CuPy loads one file once, so the modules differ by a macro
    constant = options.backend in CONSTANT
    names = [each.name for each in problems] if constant else ["all"]
    modules = build(
        {
            name: replace(source, defines={**version.defines, "MODULE": number})
            if constant
            else source
            for number, name in enumerate(names)
        }
    )
    kernels: tuple[str, ...] = ("unroll", "multiply", "permute")
    if version.source == "separate.cu":
        layers = _separate_layers(options.backend, modules["all"], data, limit)
    else:
        kernels = ("fused_wmma" if version.source == "wmma.cu" else "fused",)
        layers = [
            _fused_layer(
                options.backend, modules.get(each.problem.name, modules[names[0]]), each, limit
            )
            for each in data
        ]
    module = modules[names[0]]
    settings = {
        "compiler": module.compiler,
        "architecture": module.architecture,
        "source": version.source,
        "defines": dict(version.defines),
        "changes": version.against or None,
        "streams": version.streams,
        "copies": copies,
        "kernels": {name: vars(module.kernel(name).resources()) for name in kernels},
    }
    return KernelSession(layers, settings, seed=options.seed)


def _fused_layer(backend: str, module: Module, data: _Data, limit: float) -> Layer:
    tensor = VERSIONS[backend].source == "wmma.cu"
    kernel = module.kernel("fused_wmma" if tensor else "fused")
    tile = VERSIONS[backend].defines.get("TILE", 16)
    block = (2 * VERSIONS[backend].defines.get("PIXELS", 64),) if tensor else (tile, tile)

    def some(first: int, count: int) -> Callable[..., None]:
        grid, shape = grid_of(data.problem, backend, count), shape_argument(data.problem, count)
        images, outputs = data.images[first:], data.outputs["y"][first:]

        def launch(stream: Any = None) -> None:
            kernel(grid, block, data.weights, images, outputs, shape, stream=stream)

        return launch

    launch = _divided(data, VERSIONS[backend].streams, some)
    if backend not in CONSTANT:
        return data.layer(launch, limit)

    def to_constant() -> None:
        _copy_to_symbol(module, "constant_filters", data.weights)

    to_constant()
    return data.layer(launch, limit, to_constant)


def _copy_to_symbol(module: Module, name: str, tensor: Any) -> None:
    """Copy a tensor to a module's global variable."""
    import torch

    runtime = import_cupy().cuda.runtime
    size = tensor.numel() * tensor.element_size()
    torch.cuda.synchronize()
    to_device = runtime.memcpyDeviceToDevice
    runtime.memcpy(module.address(name), tensor.data_ptr(), size, to_device)
    torch.cuda.synchronize()


def _separate_layers(
    backend: str, module: Module, data: Sequence[_Data], limit: float
) -> list[Layer]:
    import torch

    # the problems run one after another, so they share what lies between the kernels
    columns = torch.empty(
        max(each.problem.depth * each.problem.images * each.problem.pixels for each in data),
        device=DEVICE,
    )
    product = torch.empty(max(each.outputs["y"].numel() for each in data), device=DEVICE)

    def poison_scratch() -> None:
        columns.fill_(float("nan"))
        product.fill_(float("nan"))

    def layer(each: _Data) -> Layer:
        def some(first: int, count: int) -> Callable[..., None]:
            return _three_kernels(module, each, columns, product, first, count)

        launch = _divided(each, VERSIONS[backend].streams, some)
        return each.layer(launch, limit, poison_scratch)

    return [layer(each) for each in data]


def _three_kernels(
    module: Module, data: _Data, columns: Any, product: Any, first: int, count: int
) -> Callable[..., None]:
    """Return what launches the three kernels for `count` images from `first` on."""
    problem = data.problem
    unroll, multiply, permute = (module.kernel(n) for n in ("unroll", "multiply", "permute"))
    shape = shape_argument(problem, count)
    images, outputs = data.images[first:], data.outputs["y"][first:]
    own_columns = columns[first * problem.depth * problem.pixels :]
    own_product = product[first * problem.maps * problem.pixels :]
    tiles = (-(-count * problem.pixels // 16), -(-problem.maps // 16))
    blocks = (-(-problem.pixels // 256), count)

    def launch(stream: Any = None) -> None:
        unroll(blocks, (256,), images, own_columns, shape, stream=stream)
        multiply(tiles, (16, 16), data.weights, own_columns, own_product, shape, stream=stream)
        permute(blocks, (256,), own_product, outputs, shape, stream=stream)

    return launch


def _divided(
    data: _Data, streams: int, some: Callable[[int, int], Callable[..., None]]
) -> Callable[[], None]:
    """Return the launch of all images, on the current stream or divided among `streams`."""
    import torch

    images = data.problem.images
    if streams == 1:
        return data.copied(some(0, images), 0, images)
    own = [torch.cuda.Stream() for _ in range(streams)]
    parts = [
        data.copied(some(first, count), first, count) for first, count in parts_of(images, streams)
    ]

    def launch() -> None:
        main = torch.cuda.current_stream()
        used = list(zip(parts, own, strict=False))
        for part, stream in used:
            stream.wait_stream(main)
            part(stream)
        for _, stream in used:
            main.wait_stream(stream)

    return launch


class _CudnnSession(KernelSession):
    """cuDNN under the flags of the options."""

    flags: dict[str, Any]

    @contextmanager
    def active(self) -> Iterator[None]:
        """Put cuDNN into the session's settings."""
        from torch.backends import cudnn

        with super().active(), cudnn.flags(enabled=True, deterministic=False, **self.flags):
            yield


def cudnn_session(options: Options, problems: Sequence[Problem]) -> KernelSession:
    """Return the session of the yardstick."""
    import torch

    half = options.precision == "fp16"
    flags = {"benchmark": options.cudnn_benchmark, "allow_tf32": options.precision == "tf32"}
    layers = []
    for problem in problems:
        data = _data(problem, options.seed, with_output=False)
        layers.append(_cudnn_layer(data, LIMITS[options.precision], half=half))
    settings = {"library": "cudnn", "version": torch.backends.cudnn.version(), **flags}
    session = _CudnnSession(layers, settings, seed=options.seed)
    session.flags = flags
    return session


def _cudnn_layer(data: _Data, limit: float, *, half: bool) -> Layer:
    from torch.nn.functional import conv2d

    operands: dict[str, Any] = {}

    def convert() -> None:
        operands["x"] = data.images.half() if half else data.images
        operands["w"] = data.weights.half() if half else data.weights

    def launch() -> None:
        # the library makes its own output: the last result is what a check compares
        data.outputs["y"] = conv2d(operands["x"], operands["w"], padding=data.problem.pad)

    convert()
    return data.layer(launch, limit, convert)
