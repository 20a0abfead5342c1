"""The verbs that run where the GPU is; the only place that imports collectors, and lazily."""

from __future__ import annotations

import shlex
import shutil
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from perfml.cli._output import Json, Output, Quiet, Verbose
from perfml.errors import PerfmlError


class Profiler(StrEnum):
    """Which profiler measures."""

    auto = "auto"
    ncu = "ncu"
    nvprof = "nvprof"


class Timing(StrEnum):
    """How a program that is no built-in workload is timed."""

    auto = "auto"
    cupti = "cupti"
    ncu = "ncu"


class Cache(StrEnum):
    """Whether caches are flushed before each pass."""

    all = "all"
    none = "none"


class Replay(StrEnum):
    """How Nsight Compute repeats launches to collect all counters."""

    kernel = "kernel"
    application = "application"


def register(app: typer.Typer) -> None:
    """Add this room's verbs to the command line."""
    app.command()(doctor)
    app.command(no_args_is_help=True)(collect)


def doctor(
    measure_peaks: Annotated[
        bool,
        typer.Option("--measure-peaks", help="Also measure copy and GEMM rates, with torch."),
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="With --measure-peaks: write them to this JSON file.")
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Say what works on this machine, and the cure for what does not.

    Example: perfml doctor;
    perfml doctor --measure-peaks --out peaks.json
    """
    out_ = Output(as_json, quiet, verbose)
    from collectors.doctor import diagnose, measured_peaks

    if out is not None and not measure_peaks:
        msg = "--out is the file of the measured peaks"
        raise PerfmlError(msg, where=str(out), cure="Add --measure-peaks.")
    checks = diagnose()
    document = None
    if measure_peaks:
        document, found = measured_peaks()
        checks += found
        if document is not None and out is not None:
            from perfml.explain.peaks import save_peaks

            save_peaks(document, out)
    out_.result({"checks": [vars(each) for each in checks], "peaks": document})
    out_.table(
        ["", "what", "found", "cure"],
        [[each.status, each.name, each.found, each.cure] for each in checks],
    )
    if any(each.status == "fail" for each in checks):
        raise typer.Exit(1)


def collect(
    what: Annotated[
        list[str],
        typer.Argument(
            help="A built-in workload (yolov4-tiny, attention, ...), or -- and any command."
        ),
    ],
    backend: Annotated[
        list[str] | None,
        typer.Option(
            help="cublas, cudnn, inductor, tensorrt; repeatable. Of the workloads of "
            "perfml's own kernels, all versions by default."
        ),
    ] = None,
    precision: Annotated[
        list[str] | None, typer.Option(help="fp32, tf32, fp16, int8; repeatable.")
    ] = None,
    batch: Annotated[list[int] | None, typer.Option(help="Batch size; repeatable.")] = None,
    iterations: Annotated[int, typer.Option(min=1, help="Timed iterations.")] = 10,
    metric_iterations: Annotated[int, typer.Option(min=1, help="Profiled iterations.")] = 3,
    warmup: Annotated[int, typer.Option(min=0, help="Iterations before the measured ones.")] = 5,
    profiler: Annotated[Profiler, typer.Option(help="auto takes what supports the GPU.")] = (
        Profiler.auto
    ),
    metrics: Annotated[
        list[str] | None,
        typer.Option(help="published, stalls, roofline, metric names, or a file; repeatable."),
    ] = None,
    layers: Annotated[
        str | None, typer.Option(help="Profile only layers whose name matches, e.g. 'conv_.*'.")
    ] = None,
    replay: Annotated[Replay, typer.Option(help="How launches are repeated.")] = Replay.kernel,
    cache_control: Annotated[
        Cache, typer.Option(help="all flushes caches before each pass, none does not.")
    ] = Cache.all,
    timing: Annotated[
        Timing, typer.Option(help="For a program: cupti (no counters), or ncu's own durations.")
    ] = Timing.auto,
    dedupe: Annotated[
        bool, typer.Option("--dedupe", help="Profile layers that launch the same only once.")
    ] = False,
    cfg: Annotated[
        Path | None, typer.Option(help="Darknet cfg instead of the built-in network.")
    ] = None,
    weights: Annotated[
        Path | None, typer.Option(help="Darknet weights instead of random ones.")
    ] = None,
    cudnn_benchmark: Annotated[
        bool, typer.Option(help="Let cuDNN measure which kernels to use; off, as in PyTorch.")
    ] = False,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="KEY=VALUE, a setting of the workload's own; repeatable."),
    ] = None,
    layer_map: Annotated[
        Path | None, typer.Option(help="Ordered kernel patterns, for programs without NVTX ranges.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder of the runs.")] = Path("runs"),
    launcher: Annotated[
        str, typer.Option(help="Goes in front of every command: 'srun --gres=gpu:1'.")
    ] = "",
    timeout: Annotated[float, typer.Option(min=1, help="Seconds each command may take.")] = 1800,
    seed: Annotated[int, typer.Option(help="Seed of weights and inputs.")] = 0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print the commands.")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Profile a built-in workload, or any program, layer by layer.

    Finished runs are kept: the same command after an interruption does only what is missing.

    Every kernel of attention, conv, qkv and planted is first compared with a reference in double
    precision, on fresh random inputs; a wrong one fails its run and is not measured.

    Example: perfml collect yolov4-tiny --backend cublas --backend cudnn --out run/

    Example: perfml collect --out run/ -- python train.py --steps 3
    """
    out_ = Output(as_json, quiet, verbose)
    from collectors.collect import collect as measure
    from collectors.workloads import default_backends, workloads

    built_in = len(what) == 1 and what[0] in workloads()
    if len(what) == 1 and not built_in and not launcher and shutil.which(what[0]) is None:
        msg = f"no workload and no program is called {what[0]!r}"
        cure = f"Workloads are: {', '.join(workloads())}. Any command goes behind --."
        raise PerfmlError(msg, cure=cure)
    if settings and not built_in:
        msg = "--set is for built-in workloads"
        raise PerfmlError(msg, cure="Give a program its own arguments behind --.")
    with out_.progress("collecting") as progress:
        results = measure(
            what[0] if built_in else None,
            command=() if built_in else what,
            backends=backend or (default_backends(what[0]) if built_in else ()),
            precisions=precision or ("fp32",),
            batches=batch or (1,),
            iterations=iterations,
            metric_iterations=metric_iterations,
            warmup=warmup,
            seed=seed,
            profiler=profiler.value,
            metrics=metrics or ("published",),
            layers=layers,
            replay=replay.value,
            cache_control=cache_control.value,
            timing=timing.value,
            dedupe=dedupe,
            workload_options=(
                _options(cfg, weights, cudnn_benchmark, settings or []) if built_in else ()
            ),
            layer_map=layer_map,
            out=out,
            launcher=launcher,
            timeout_s=timeout,
            dry_run=dry_run,
            progress=progress,
        )
    for each in results:
        for warning in each.warnings:
            out_.warn(f"{each.run_id}: {warning}")
    out_.result({"out": str(out), "runs": [vars(each) for each in results]})
    out_.table(
        ["run", "status", "folder", ""],
        [
            [each.run_id, each.status, str(each.folder), each.message or _checked(each.record)]
            for each in results
        ],
    )
    if dry_run and not as_json:
        for each in results:
            out_.result({}, [shlex.join(command) for command in each.commands])
    failed = [each for each in results if each.status == "failed"]
    if failed:
        told = f"{len(failed)} of {len(results)} runs failed"
        out_.fail(told, "The same command does only those again.")


def _checked(record: dict[str, Any] | None) -> str:
    """Say what a finished run's check found, if it had one."""
    outputs = ((record or {}).get("check") or {}).get("outputs")
    if not outputs:
        return ""
    shares = [(each["relative_error"] / each["limit"], each) for each in outputs]
    _, nearest = max(shares, key=lambda share: share[0])
    error, limit = nearest["relative_error"], nearest["limit"]
    return f"{len(outputs)} outputs right: errors up to {error:.1e}, limit {limit:.0e}"


def _options(
    cfg: Path | None, weights: Path | None, cudnn_benchmark: bool, settings: list[str]
) -> list[str]:
    """Return the options that go to the built-in workload as they are."""
    from collectors.workloads import parse_settings

    words = ["--cudnn-benchmark"] if cudnn_benchmark else []
    # their order means nothing, so it is not part of what the run is
    for key, value in sorted(dict(parse_settings(settings)).items()):
        words += ["--set", f"{key}={value}"]
    for name, path in (("--cfg", cfg), ("--weights", weights)):
        if path is not None:
            if not path.is_file():
                msg = f"{name} names no file"
                raise PerfmlError(msg, found=str(path), cure="Check the path.")
            words += [name, str(path.resolve())]
    return words
