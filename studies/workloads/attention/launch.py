"""Layers of the attention workload: tensors of one problem, and what is launched on them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from collectors.workloads.cuda import Module, Resources
from collectors.workloads.session import Layer
from perfml.errors import InputError

from .problems import Problem, reference
from .variants import LADDER, Rung, Variant

LIMITS = {"fp32": 2e-5, "fp16": 2e-3}
"""Largest relative error against double precision: inputs from N(0, 1), with rising scores too."""
ELEMENT_BYTES = {"fp32": 4, "fp16": 2}
RAISED = (0.1, 32.0)
"""Factors of the first and the last key where scores are to grow: to 90 and more, whose exponential
fp32 does not hold."""
LOG2_E = 1.4426950408889634
PANEL = 2048
"""Columns of S that the separate kernels hold at once."""
YARDSTICKS = {
    "torch-fa2": ("FLASH_ATTENTION", ("fp16",)),
    "torch-cudnn": ("CUDNN_ATTENTION", ("fp16",)),
    "torch-efficient": ("EFFICIENT_ATTENTION", ("fp32", "fp16")),
    "torch-math": ("MATH", ("fp32", "fp16")),
}
"""Backend to PyTorch's name of it and its precisions."""
TRITON = "triton"
HEADS = 12
DEVICE = "cuda"
MATH_SCORES = 1 << 32
"""Scores that PyTorch's unfused attention may hold: 16 GiB of floats, several times over."""


@dataclass
class Tensors:
    """Q, K, V and O of one problem on the GPU.

    Attributes
    ----------
    values
        torch tensors of shape (problems, tokens, dim); ``o`` is replaced by backends that make
        their own output.
    """

    problem: Problem
    values: dict[str, Any]

    def renew(self, seed: int) -> None:
        """Fill Q, K and V with N(0, 1)."""
        import torch

        generator = torch.Generator(device=self.values["q"].device).manual_seed(seed)
        for name in ("q", "k", "v"):
            self.values[name].normal_(generator=generator)

    def raise_scores(self) -> None:
        """Scale K so that the scores of a row grow along it, by dozens of powers of two.

        Kernels that rescale a row only when its largest score rises by much (`LAZY`) never do so in
        mid-row on N(0, 1), and those that subtract no maximum are right there.
        """
        import torch

        keys = self.values["k"]
        steps = torch.linspace(*RAISED, keys.shape[1], device=keys.device, dtype=keys.dtype)
        keys.mul_(steps[None, :, None])

    def expected(self) -> dict[str, Any]:
        """Return O in double precision."""
        q, k, v = (self.values[name] for name in ("q", "k", "v"))
        return {"o": reference(q, k, v, causal=self.problem.causal)}


def allocate(problem: Problem, precision: str, seed: int) -> Tensors:
    """Return random inputs and an output on the GPU."""
    import torch

    dtype = torch.float32 if precision == "fp32" else torch.float16
    shape = (problem.count, problem.tokens, problem.dim)
    made = {name: torch.empty(shape, dtype=dtype, device=DEVICE) for name in ("q", "k", "v", "o")}
    tensors = Tensors(problem, made)
    tensors.renew(seed)
    return tensors


def layer(name: str, tensors: Tensors, launch: Callable[[], None], precision: str) -> Layer:
    """Return the layer that runs `launch` on the tensors."""
    outputs = _Output(tensors)
    about = tensors.problem.about(ELEMENT_BYTES[precision])
    return Layer(
        name, launch, outputs, tensors.expected, LIMITS[precision], tensors.renew, about,
        changes={"rising scores": tensors.raise_scores},
    )  # fmt: skip


class _Output(dict[str, Any]):
    """The output as it is now: PyTorch's attention makes a new one at every call."""

    def __init__(self, tensors: Tensors) -> None:
        super().__init__(o=None)
        self._tensors = tensors

    def __getitem__(self, key: str) -> Any:
        return self._tensors.values[key]

    def values(self) -> Any:
        return [self._tensors.values["o"]]

    def items(self) -> Any:
        return [("o", self._tensors.values["o"])]


def rung_launch(name: str, module: Module, tensors: Tensors) -> Callable[[], None]:
    """Return the launch of a version of the fp32 ladder."""
    import torch

    rung, problem = LADDER[name], tensors.problem
    rows = problem.count * problem.tokens
    running = [torch.empty(rows, device=DEVICE) for _ in range(2)]
    if not rung.kernel:
        return _separate_launch(module, tensors, running)
    kernel = module.kernel(rung.kernel)
    grid = rung_grid(rung, problem)
    shared, scale = rung.shared_bytes(problem.dim), problem.dim**-0.5
    values = tensors.values

    def launch() -> None:
        kernel(
            grid, rung.rows, values["q"], values["k"], values["v"], values["o"], *running,
            problem.tokens, scale, shared=shared,
        )  # fmt: skip

    return launch


def rung_grid(rung: Rung, problem: Problem) -> tuple[int, int]:
    """Return the blocks of a version of one kernel: problems, tiles of Q."""
    return problem.count, problem.tokens // rung.rows if rung.split else 1


def _separate_launch(module: Module, tensors: Tensors, running: list[Any]) -> Callable[[], None]:
    """Five kernels a panel of columns of S."""
    import torch

    problem, values = tensors.problem, tensors.values
    tokens, dim = problem.tokens, problem.dim
    rows = problem.count * tokens
    width = panel(tokens)
    scores = torch.empty(rows * width, device=DEVICE)
    largest, sums = (torch.empty(rows, device=DEVICE) for _ in range(2))
    names = ("scores", "row_max", "exp", "row_sum", "update")
    kernels = {name: module.kernel(f"separate_{name}") for name in names}
    by_score, by_row, by_out = (-(-work // 256) for work in (rows * width, rows, rows * dim))

    def launch() -> None:
        for first in range(0, tokens, width):
            kernels["scores"](
                by_score, 256, values["q"], values["k"], scores, rows, tokens, first, width,
                dim**-0.5,
            )  # fmt: skip
            kernels["row_max"](by_row, 256, scores, largest, rows, width)
            kernels["exp"](by_score, 256, scores, largest, rows, width)
            kernels["row_sum"](by_row, 256, scores, sums, rows, width)
            kernels["update"](
                by_out, 256, scores, values["v"], largest, sums, values["o"], *running, rows,
                tokens, first, width,
            )  # fmt: skip

    return launch


def panel(tokens: int) -> int:
    """Return the columns of S a panel: the largest divisor of `tokens` up to `PANEL`."""
    return next(width for width in range(min(tokens, PANEL), 0, -1) if tokens % width == 0)


def variant_launch(variant: Variant, module: Module, tensors: Tensors) -> Callable[[], None]:
    """Return the launch of a tensor-core kernel."""
    from .tensor_map import on_device

    problem, values = tensors.problem, tensors.values
    kernel = module.kernel(variant.kernel)
    grid = (-(-problem.tokens // variant.query_rows), problem.count)
    shared = variant.shared_bytes(problem.dim)
    factor = problem.dim**-0.5 * LOG2_E
    if variant.maps:
        kv_rows = variant.defines["KV_ROWS"]
        maps = on_device([values[name] for name in ("q", "k", "v")], [64, kv_rows, kv_rows])
        first: tuple[Any, ...] = (maps,)
    else:
        first = (values["q"], values["k"], values["v"])

    def launch() -> None:
        kernel(grid, variant.threads, *first, values["o"], problem.tokens, factor, shared=shared)

    return launch


def torch_launch(backend: str, tensors: Tensors) -> Callable[[], None]:
    """Return the launch of one of PyTorch's attentions, and of no other.

    Raises
    ------
    InputError
        If unfused attention would hold too many scores.
    """
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.nn.functional import scaled_dot_product_attention

    problem, values = tensors.problem, tensors.values
    if backend == "torch-math" and problem.count * problem.tokens**2 > MATH_SCORES:
        what, cure = "unfused attention holds all scores", "Choose a smaller size."
        raise InputError(what, where="--set sizes", found=problem.name, cure=cure)
    heads = HEADS if problem.count % HEADS == 0 else 1
    shape = (problem.count // heads, heads, problem.tokens, problem.dim)
    q, k, v = (values[name].view(shape) for name in ("q", "k", "v"))
    chosen = getattr(SDPBackend, YARDSTICKS[backend][0])

    def launch() -> None:
        with sdpa_kernel(chosen):
            made = scaled_dot_product_attention(q, k, v, is_causal=problem.causal)
        values["o"] = made.reshape(problem.count, problem.tokens, problem.dim)

    return launch


def triton_launch(tensors: Tensors) -> Callable[[], None]:
    """Return the launch of the kernel that Triton compiles."""
    try:
        from .triton_kernel import launch_of
    except ImportError as error:
        what, cure = (
            "triton cannot be imported",
            "It comes with PyTorch for CUDA.",
        )
        raise InputError(what, where="--backend", found=str(error), cure=cure) from error
    return launch_of(tensors.problem, tensors.values)


def describe(resources: Resources, shared: int) -> dict[str, Any]:
    """Return what a kernel needs as JSON values."""
    return {**vars(resources), "shared_bytes": resources.shared_bytes + shared}
