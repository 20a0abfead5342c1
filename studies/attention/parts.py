"""What studies/attention/measure.py measures, each part in a process of its own on the GPU.

A part prints a line of JSON for every result at once, so that a kernel that hangs or stops the
process takes only itself away.
"""

from __future__ import annotations

import json
import math
import statistics
import sys
from collections.abc import Callable, Iterator
from typing import Any

from collectors.workloads.cuda import Module, build
from collectors.workloads.session import KernelSession, Layer
from studies.workloads.attention import launch
from studies.workloads.attention.problems import SETS, Problem, parse_sizes
from studies.workloads.attention.variants import LADDER, VARIANTS
from studies.workloads.attention.workload import source_of

MARK = "RESULT "
HEADS = 48
"""Batch 4, 12 heads."""
TOKENS = 25_600
ODD = 1000
"""Tokens of a check: no multiple of any tile, so that the last ones are masked."""
LONGEST_S = 1.5
"""Of one measurement of the fp32 ladder: it has fewer repeats then."""
SHORTEST_MS = 2.0
"""Launches are repeated between two events until they take this long."""


def emit(**result: Any) -> None:
    """Print one result."""
    sys.stdout.write(MARK + json.dumps(result) + "\n")
    sys.stdout.flush()


def timed(run: Callable[[], None], launches: int = 1) -> float:
    """Return milliseconds of a launch, by CUDA events around some of them."""
    import torch

    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(launches):
        run()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end)) / launches


def compare(runs: dict[str, Callable[[], None]], repeats: int) -> dict[str, list[float]]:
    """Time launches in turns, so that a drift of the clock hits all alike."""
    launches = {}
    for name, run in runs.items():
        timed(run)
        launches[name] = max(1, min(50, int(SHORTEST_MS / max(timed(run), 1e-3))))
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(repeats):
        for name, run in runs.items():
            times[name].append(timed(run, launches[name]))
    return times


def spread(times: list[float]) -> float:
    """Return (largest - smallest) / median."""
    return (max(times) - min(times)) / statistics.median(times)


def checked(made: Layer, seed: int) -> float:
    """Return the largest relative error of the workload's own check."""
    errors = [row.error for row in KernelSession([made], {}, seed=seed).check()]
    return max(errors, key=lambda error: error if math.isfinite(error) else math.inf)


def finite(error: float) -> float | None:
    """Return a number that JSON has."""
    return error if math.isfinite(error) else None


def runner(
    backend: str, problem: Problem, variant: str, tensors: launch.Tensors
) -> tuple[Callable[[], None], Module | None]:
    """Compile and return the launch of a backend, and its module."""
    source = source_of(backend, problem, variant)
    if source is None:
        return launch.torch_launch(backend, tensors), None
    module = build({"it": source})["it"]
    if backend in LADDER:
        return launch.rung_launch(backend, module, tensors), module
    return launch.variant_launch(VARIANTS[backend][variant], module, tensors), module


def all_sources() -> dict[str, Any]:
    """Return every source that the benchmark compiles, to compile them all at once."""
    found: dict[str, Any] = {}
    for dim in (64, 128):
        for backend, variants in VARIANTS.items():
            names = [name for name, variant in variants.items() if variant.fits(dim)]
            for causal in (False, True):
                # the tiles of wmma are compared at head dimension 64, without a mask
                chosen = names if dim == 64 and not causal else _few(backend, names)
                for name in chosen:
                    problem = Problem(1, ODD, dim, causal)
                    found[f"{backend} {name} {dim} {causal}"] = source_of(backend, problem, name)
    for dim in (32, 64):
        found[f"ladder {dim}"] = source_of("fused", Problem(1, 128, dim), "")
    return found


def _few(backend: str, names: list[str]) -> list[str]:
    return names[:1] if backend == "wmma" else names[:3]


# ---- parts ---------------------------------------------------------------------------------------


def part_build(_: dict[str, Any]) -> None:
    """Compile everything, so that later parts find it in the cache."""
    emit(compiled=len(build(all_sources())))


def part_variants(given: dict[str, Any]) -> None:
    """Check every variant of a backend and time it at 25,600 tokens, head dimension 64."""
    backend, skip = given["backend"], set(given["skip"])
    small, large = Problem(6, ODD, 64), Problem(HEADS, TOKENS, 64)
    checks = launch.allocate(small, "fp16", 1)
    data = launch.allocate(large, "fp16", 1)
    for seed, (name, variant) in enumerate(VARIANTS[backend].items()):
        if not variant.fits(64) or name in skip:
            continue
        emit(start=name)
        run, module = runner(backend, small, name, checks)
        error = checked(launch.layer(small.name, checks, run, "fp16"), 100 + seed)
        assert module is not None
        needs = launch.describe(module.kernel(variant.kernel).resources(), variant.shared_bytes(64))
        times = [float("nan")]
        if error <= launch.LIMITS["fp16"]:
            run, _ = runner(backend, large, name, data)
            times = compare({name: run}, 3)[name]
        ms = statistics.median(times)
        emit(
            backend=backend, variant=name, error=finite(error), ms=finite(ms), **needs,
            threads=variant.threads, query_rows=variant.query_rows, flops=large.flops,
        )  # fmt: skip


def part_tokens(given: dict[str, Any]) -> None:
    """Time the best variants and PyTorch's attention side by side over the number of tokens."""
    backends = {name: v for name, v in given["backends"].items() if name not in given["skip"]}
    # The most tokens first: they decide.
    for problem in parse_sizes(SETS["tokens"])[::-1]:
        runs, errors = {}, {}
        for name, variant in backends.items():
            emit(start=name)
            data = launch.allocate(problem, "fp16", 5)
            runs[name], _ = runner(name, problem, variant, data)
            errors[name] = checked(launch.layer(problem.name, data, runs[name], "fp16"), 77)
        emit(start="timing")
        for name, times in compare(runs, given["repeats"]).items():
            emit(
                backend=name, variant=backends[name], tokens=problem.tokens,
                ms=statistics.median(times), spread=spread(times), error=finite(errors[name]),
                flops=problem.flops,
            )  # fmt: skip


def part_other(given: dict[str, Any]) -> None:
    """Causal masks and head dimension 128: checks at an odd size, times at 12,800 tokens."""
    skip = set(given["skip"])
    for dim, causal in ((64, True), (128, False), (128, True)):
        small, large = Problem(4, ODD, dim, causal), Problem(HEADS, 12_800, dim, causal)
        checks, data = (launch.allocate(each, "fp16", 2) for each in (small, large))
        for backend, name in _candidates(dim, given["backends"]):
            label = f"{backend} {name} d{dim}{' causal' if causal else ''}"
            if label in skip:
                continue
            emit(start=label)
            run, _ = runner(backend, small, name, checks)
            error = checked(launch.layer(small.name, checks, run, "fp16"), 11)
            run, _ = runner(backend, large, name, data)
            times = compare({label: run}, 3)[label]
            emit(
                backend=backend, variant=name, dim=dim, causal=causal, error=finite(error),
                ms=statistics.median(times), flops=large.flops, label=label,
            )  # fmt: skip


def _candidates(dim: int, backends: list[str]) -> Iterator[tuple[str, str]]:
    for backend in backends:
        if backend in VARIANTS:
            names = [name for name, variant in VARIANTS[backend].items() if variant.fits(dim)]
            for name in _few(backend, names):
                yield backend, name
        else:
            yield backend, ""


def part_ladder(given: dict[str, Any]) -> None:
    """Check the fp32 versions, then time them at the sizes that the published ladder compares."""
    rungs = [name for name in (*LADDER, "torch-efficient") if name not in given["skip"]]
    for dim in (32, 64):
        problem = Problem(3, 512, dim)
        data = launch.allocate(problem, "fp32", 3)
        for name in rungs:
            emit(start=name)
            run, module = runner(name, problem, "", data)
            error = checked(launch.layer(problem.name, data, run, "fp32"), 21 + dim)
            needs: dict[str, Any] = {}
            if module is not None and LADDER[name].kernel:
                kernel = module.kernel(LADDER[name].kernel)
                needs = launch.describe(kernel.resources(), LADDER[name].shared_bytes(dim))
            emit(check=name, dim=dim, error=finite(error), **needs)
    sizes = parse_sizes(SETS[given["sizes"]])
    for number, problem in enumerate(sizes):
        data = launch.allocate(problem, "fp32", 4)
        for name in rungs:
            # Tiles of Q in one block: minutes where there are few problems with many tokens.
            alone = name in LADDER and not LADDER[name].split
            if alone and number > 0 and given["sizes"] == "published":
                continue
            emit(start=name)
            run, _ = runner(name, problem, "", data)
            first = timed(run)
            repeats = max(1, min(5, int(LONGEST_S * 1000 / first)))
            times = compare({name: run}, repeats)[name] if repeats > 1 else [first]
            emit(rung=name, size=problem.name, ms=statistics.median(times), flops=problem.flops)


def part_once(given: dict[str, Any]) -> None:
    """Launch every tile of wmma once, for a profiler around this process."""
    problem = Problem(HEADS, given["tokens"], 64)
    data = launch.allocate(problem, "fp16", 6)
    for name in given["variants"]:
        runner("wmma", problem, name, data)[0]()
    import torch

    torch.cuda.synchronize()


PARTS = {
    "build": part_build,
    "variants": part_variants,
    "tokens": part_tokens,
    "other": part_other,
    "ladder": part_ladder,
    "once": part_once,
}
