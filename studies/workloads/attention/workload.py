"""The workload: versions of attention as backends, problems and tiles as layers."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

from collectors.workloads.base import Ladder, Options, Session, check_options, read_settings
from collectors.workloads.cuda import Source, build
from collectors.workloads.session import KernelSession, Layer
from perfml.errors import InputError
from studies.workloads.attention import launch

from .problems import SETS, Problem, parse_sizes, times
from .variants import FASTEST, FOLDER, LADDER, ROWS, VARIANTS, Variant

DEFAULTS = {"sizes": "small", "causal": "0", "variants": "default"}
_LADDER_DIMS, _TENSOR_DIMS, _TRITON_DIMS = (32, 64), (64, 128), (32, 64, 128)
_PRECISIONS = {
    **dict.fromkeys(LADDER, ("fp32",)),
    **dict.fromkeys(VARIANTS, ("fp16",)),
    **{name: precisions for name, (_, precisions) in launch.YARDSTICKS.items()},
    launch.TRITON: ("fp16",),
}


class AttentionWorkload(Ladder):
    """softmax(Q Kᵀ / √d) V, from separate fp32 kernels to Hopper's tensor cores.

    Settings: ``sizes`` (see `parse_sizes`), ``causal`` (0, 1), and for wmma, mma and wgmma
    ``variants``: names of `VARIANTS`, ``all``, or ``default``.
    """

    name = "attention"
    summary = "attention: a fp32 ladder, three tensor-core kernels, Triton's and PyTorch's"
    check_first = True
    versions = _PRECISIONS

    def default_backends(self) -> tuple[str, ...]:
        """Return the fp32 ladder: the precision that is measured by default."""
        return tuple(LADDER)

    def steps(self) -> tuple[tuple[str, str], ...]:
        """Return the ladders' steps: (version before, version after)."""
        rungs = tuple(LADDER)
        return (*pairwise(rungs), ("wmma", "mma"), ("mma", "wgmma"))

    def session(self, options: Options) -> Session:
        """Compile what the options ask for and allocate the problems."""
        check_options(self, options)
        work = plan(options)
        if options.device != "cuda":
            what, cure = "this workload runs on a GPU only", "Use --device cuda."
            raise InputError(what, where="--device", found=options.device, cure=cure)
        return _session(options, work)


def plan(options: Options) -> list[tuple[str, Problem, str]]:
    """Return what a session runs: layer, problem, variant (empty for a backend without variants).

    Raises
    ------
    InputError
        If a setting is unknown, or a backend cannot do a size.
    """
    settings = read_settings(options, DEFAULTS)
    if settings["causal"] not in ("0", "1"):
        what = "causal is 0 or 1"
        raise InputError(what, where="--set causal", found=settings["causal"])
    causal = settings["causal"] == "1"
    sizes = parse_sizes(settings["sizes"])
    if options.backend in VARIANTS and settings["sizes"] in SETS:
        # Of a named set, the sizes that tensor-core kernels are made for.
        sizes = tuple(each for each in sizes if each.dim in _TENSOR_DIMS)
    problems = [replace(times(each, options.batch), causal=causal) for each in sizes]
    for problem in problems:
        _check_problem(options.backend, problem)
    if options.backend not in VARIANTS:
        if settings["variants"] != "default":
            what, cure = "this backend has no variants", f"These have: {', '.join(VARIANTS)}."
            raise InputError(what, where="--set variants", found=options.backend, cure=cure)
        return [(problem.name, problem, "") for problem in problems]
    return [
        (_layer_name(problem, name, settings["variants"]), problem, name)
        for problem in problems
        for name in choose_variants(options.backend, settings["variants"], problem.dim)
    ]


def _layer_name(problem: Problem, variant: str, asked: str) -> str:
    return problem.name if asked == "default" else f"{problem.name}_{variant}"


def choose_variants(backend: str, asked: str, dim: int) -> tuple[str, ...]:
    """Return the names of the variants for a head dimension.

    Raises
    ------
    InputError
        If there is no such variant, or it does not fit the head dimension.
    """
    known = VARIANTS[backend]
    fitting = [name for name, variant in known.items() if variant.fits(dim)]
    if asked == "default":
        return (FASTEST[backend, dim],)
    if asked == "all":
        return tuple(fitting)
    names = tuple(name.strip() for name in asked.split(","))
    for name in names:
        if name not in fitting or names.count(name) > 1:
            what = f"{backend} has no such variant for head dimension {dim}, or it is given twice"
            cure = f"Choose all, default, or of: {', '.join(fitting)}."
            raise InputError(what, where="--set variants", found=name, cure=cure)
    return names


def _check_problem(backend: str, problem: Problem) -> None:
    dims = _dims_of(backend)
    if dims and problem.dim not in dims:
        *most, last = map(str, dims)
        what = f"{backend} is made for the head dimensions {', '.join(most)} and {last}"
        raise InputError(what, where="--set sizes", found=problem.name)
    if backend in LADDER and problem.tokens % ROWS:
        what = f"the fp32 ladder takes multiples of {ROWS} tokens"
        raise InputError(what, where="--set sizes", found=problem.name)
    if backend in LADDER and problem.causal:
        what = "the fp32 ladder has no causal mask"
        raise InputError(what, where="--set causal", found=backend)
    if problem.count > _GRID_Y and backend in (*VARIANTS, launch.TRITON):
        what = f"at most {_GRID_Y} problems at once"
        raise InputError(what, where="--set sizes", found=problem.name)


def _dims_of(backend: str) -> tuple[int, ...]:
    if backend == launch.TRITON:
        return _TRITON_DIMS
    return _LADDER_DIMS if backend in LADDER else _TENSOR_DIMS if backend in VARIANTS else ()


_GRID_Y = 65535


def source_of(backend: str, problem: Problem, variant: str) -> Source | None:
    """Return what has to be compiled, None for PyTorch's attention and for Triton's kernel."""
    if backend in LADDER:
        return Source(FOLDER / "ladder.cu", {"HEAD_DIM": problem.dim})
    if backend in VARIANTS:
        return VARIANTS[backend][variant].compiled_for(problem.dim, causal=problem.causal)
    return None


def _session(options: Options, work: list[tuple[str, Problem, str]]) -> KernelSession:
    backend = options.backend
    sources: dict[str, Source] = {}
    for _, problem, variant in work:
        source = source_of(backend, problem, variant)
        if source is not None:
            sources[_key(problem, variant)] = source
    modules = build(sources)
    layers: list[Layer] = []
    kernels: dict[str, Any] = {}
    tensors: dict[Problem, launch.Tensors] = {}
    for name, problem, variant in work:
        if problem not in tensors:
            tensors[problem] = launch.allocate(problem, options.precision, options.seed)
        data = tensors[problem]
        module = modules.get(_key(problem, variant))
        if module is None:
            library = backend == launch.TRITON
            run = launch.triton_launch(data) if library else launch.torch_launch(backend, data)
        elif backend in LADDER:
            run = launch.rung_launch(backend, module, data)
            kernels[name] = _rung_needs(backend, module, problem)
        else:
            chosen: Variant = VARIANTS[backend][variant]
            run = launch.variant_launch(chosen, module, data)
            needs = module.kernel(chosen.kernel).resources()
            kernels[name] = {
                "variant": variant, **chosen.defines,
                **launch.describe(needs, chosen.shared_bytes(problem.dim)),
            }  # fmt: skip
        layers.append(launch.layer(name, data, run, options.precision))
    compilers = {module.compiler for module in modules.values()}
    without = "triton" if backend == launch.TRITON else "torch"
    about = {"compiler": next(iter(compilers), without), "kernels": kernels}
    if backend in LADDER:
        about["step"] = LADDER[backend].step
    return KernelSession(layers, about, seed=options.seed)


def _key(problem: Problem, variant: str) -> str:
    return f"{problem.dim} {problem.causal} {variant}"


def _rung_needs(backend: str, module: Any, problem: Problem) -> dict[str, Any]:
    rung = LADDER[backend]
    if not rung.kernel:
        return {"variant": "five kernels"}
    return launch.describe(
        module.kernel(rung.kernel).resources(), rung.shared_bytes(problem.dim)
    )  # fmt: skip


WORKLOAD = AttentionWorkload()
