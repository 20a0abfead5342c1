"""The verbs that run where the GPU is; the only place that imports collectors, and lazily."""

from __future__ import annotations

import shlex
import shutil
import sys
from collections.abc import Sequence
from inspect import Parameter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perfml.cli import options
from perfml.cli.output import Output
from perfml.cli.verb import verb
from perfml.errors import PerfmlError, did_you_mean

if TYPE_CHECKING:
    from collectors.collect import RunResult
    from perfml.explain.advice.hazards import Advice


def _settings() -> list[Parameter]:
    """Return the options of `collectors.settings` that ``**settings`` stand for."""
    from collectors.settings import command_line_options

    return [option for option in command_line_options() if option.name != "layers"]


@verb()
def doctor(
    output: Output,
    measure_peaks: Annotated[
        bool,
        typer.Option("--measure-peaks", help="Also measure copy and GEMM rates, with torch."),
    ] = False,
    out: options.OptionalOut = None,
) -> None:
    """Say what works on this machine, and the cure for what does not.

    With --measure-peaks, --out is the JSON file for them.

    Example: perfml doctor;
    perfml doctor --measure-peaks --out peaks.json
    """
    from collectors.doctor import diagnose, measured_peaks

    if out is not None and not measure_peaks:
        msg = "--out is the file of the measured peaks"
        raise PerfmlError(msg, where=str(out), cure="Add --measure-peaks.")
    output.place(out)
    checks = diagnose()
    document = None
    if measure_peaks:
        document, found = measured_peaks()
        checks += found
        if document is not None and out is not None:
            from perfml.explain.roofs.peaks import save_peaks

            save_peaks(document, out)
    output.result({"checks": checks, "peaks": document})
    output.table(
        ["", "what", "found"],
        [[check.status, check.name, check.found] for check in checks],
    )
    cures = [f"  {check.name}: {check.cure}" for check in checks if check.cure]
    if cures and not output.as_json:
        output.result({}, ["", "What helps, where you need it:", *cures])
    if any(check.status == "fail" for check in checks):
        raise typer.Exit(1)


@verb(no_args_is_help=True)
def attach(
    output: Output,
    what: Annotated[
        list[str], typer.Argument(help="A process that was started so, or -- and the command.")
    ],
    duration: Annotated[
        float, typer.Option(min=0.1, help="Seconds for which it is measured.")
    ] = 10,
    share: Annotated[
        float, typer.Option(help="Part of each second in which kernels are recorded; 1: all.")
    ] = 0.05,
    out: Annotated[Path, options.OUT] = Path("runs"),
) -> None:
    """Time the kernels of a program that runs already.

    Start it with perfml loaded first. The process keeps CUPTI afterwards: until it ends, a kernel
    of a CUDA graph takes about 0.2 us more, and another launch up to 0.8 us.

    Example: perfml attach -- python server.py

    Example: perfml attach 4711 --duration 10 --out runs/
    """
    from collectors.attach import attach as measured
    from collectors.attach import start

    if len(what) > 1 or not what[0].isdecimal():
        start(what)
    folder = measured(int(what[0]), seconds=duration, share=share, out=out)
    output.result({"folder": str(folder)}, [str(folder)])


@verb(no_args_is_help=True, more=_settings())
def collect(
    output: Output,
    what: Annotated[
        list[str],
        typer.Argument(
            help="A built-in workload (yolov4-tiny, attention, ...), a PyTorch model, or -- and "
            "any command. Models: torch:torchvision/NAME, torch:timm/NAME, "
            "torch:transformers/NAME, torch:FILE.py:FUNCTION."
        ),
    ],
    backend: options.Backends = None,
    precision: options.Precisions = None,
    batch: options.Batches = None,
    layer: options.Layers = None,
    metrics: Annotated[
        list[str] | None,
        typer.Option(
            help="default, causes, published, stalls, roofline, all, names or a file; repeatable."
        ),
    ] = None,
    cfg: Annotated[
        Path | None, typer.Option(help="Darknet cfg instead of the built-in network.")
    ] = None,
    cudnn_benchmark: Annotated[
        bool, typer.Option(help="Let cuDNN measure which kernels to use; off, as in PyTorch.")
    ] = False,
    own: Annotated[
        list[str] | None,
        typer.Option("--set", help="KEY=VALUE, a setting of the workload's own; repeatable."),
    ] = None,
    layer_map: options.LayerMap = None,
    out: Annotated[Path, options.OUT] = Path("runs"),
    launcher: Annotated[
        str, typer.Option(help="Goes in front of every command: 'srun --gres=gpu:1'.")
    ] = "",
    timeout: options.Timeout = 1800,
    dry_run: options.DryRun = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="Count launch by launch, however long that takes.")
    ] = False,
    prove: Annotated[
        bool, typer.Option("--prove", help="Then prove what it suffers from, by experiment.")
    ] = False,
    **settings: Any,
) -> None:
    """Profile a built-in workload, or any program, layer by layer.

    Finished runs are kept: the same command after an interruption does only what is missing. Of
    the workloads of perfml's own kernels all backends are measured where none is named.

    Every kernel of attention, conv, qkv and planted is first compared with a reference in double
    precision, on fresh random inputs; a wrong one fails its run and is not measured.

    Example: perfml collect yolov4-tiny --backend cublas --backend cudnn --out run/

    Example: perfml collect torch:torchvision/resnet18 --precision fp16 --out run/

    Example: perfml collect --prove --out run/ -- python train.py --steps 3
    """
    from collectors.collect import collect as measure
    from collectors.workloads import default_backends, is_workload, workloads

    built_in = len(what) == 1 and is_workload(what[0])
    if len(what) == 1 and not built_in and not launcher and shutil.which(what[0]) is None:
        msg = f"no workload and no program is called {what[0]!r}"
        cure = f"Workloads are: {', '.join(workloads())}, torch:LIBRARY/NAME. "
        cure += "Any command goes behind --."
        raise PerfmlError(msg, cure=did_you_mean(what[0], workloads(), cure))
    if own and not built_in:
        msg = "--set is for built-in workloads"
        raise PerfmlError(msg, cure="Give a program its own arguments behind --.")
    if built_in:
        _check_choices(what[0], backend or [], precision or [])
    if not settings.get("lines"):
        _tell_what_is_lacking(output, metrics)
    with output.progress("collecting") as progress:
        more = _options(cfg, cudnn_benchmark, own or []) if built_in else []
        results = measure(
            what[0] if built_in else None,
            command=() if built_in else what,
            backends=backend or (default_backends(what[0]) if built_in else ()),
            precisions=precision or ("fp32",),
            batches=batch or (1,),
            metrics=metrics or ("default",),
            workload_options=more,
            layer_map=layer_map,
            out=out,
            launcher=launcher,
            timeout_s=timeout,
            dry_run=dry_run,
            progress=progress,
            tell=output.tell,
            agrees=None if yes else _agrees,
            layers="|".join(layer) if layer else None,
            **settings,
        )
    for each in results:
        for warning in each.warnings:
            output.warn(f"{each.run_id}: {warning}")
    started = (shlex.split(launcher), timeout, more) if prove else None
    answers = [] if dry_run else _answers(output, what, results, started)
    shown = {each.run_id: answer.to_dict()["answer"] for each, answer in answers if prove}
    output.result({"out": str(out), "runs": results} | ({"answers": shown} if prove else {}))
    output.table(
        ["run", "status", "folder", "note"],
        [
            [each.run_id, each.status, str(each.folder), each.message or _checked(each.record)]
            for each in results
        ],
    )
    lines = [each for result in results for each in (result.record or {}).get("hot_lines", ())]
    if lines:
        output.table(
            ["line that is waited for", "kernel", "of all waiting", "reason", "by warps at"],
            [
                [
                    _place(line),
                    str(line["kernel"])[:60],
                    f"{line['share']:.0%}",
                    line["reason"],
                    line["waits_at"] or "the same line",
                ]
                for line in lines
            ],
        )
    if dry_run and not output.as_json:
        for each in results:
            output.result({}, map(shlex.join, each.commands), whole=True)
    if prove and not output.as_json:
        _say_first(output, answers)
    failed = [each for each in results if each.status == "failed"]
    if failed:
        told = f"{len(failed)} of {len(results)} runs failed"
        output.fail(told, "The same command does only those again.")


def _answers(
    output: Output,
    what: Sequence[str],
    results: Sequence[RunResult],
    started: tuple[list[str], float, list[str]] | None,
) -> list[tuple[RunResult, Advice]]:
    """Keep the answer of each run that is there in its folder, with `started` after experiments.

    `started` is how its program is run: launcher, time limit, and further options of a workload.
    """
    from perfml.cli.prove import kept_findings, measured
    from perfml.experiments.verdicts import ANSWER
    from perfml.explain import advise
    from perfml.explain.advice.measured import keep_answer

    made = []
    for each in results:
        if each.status not in ("done", "kept"):
            continue
        answer = keep_answer(each.folder, advise, output.warn)
        if started is not None:
            launcher, timeout, options = started
            run = each.record or {}
            chosen = (run.get("backend"), run.get("precision") or "fp32", run.get("batch") or 1)
            try:
                measured(
                    *(output, what, each.folder, chosen, options),
                    findings=kept_findings(output, each.folder / ANSWER),
                    launcher=launcher,
                    timeout_s=timeout,
                )
            except Exception as error:  # the run is measured: it is told all the same
                said = str(error) if isinstance(error, PerfmlError) else repr(error)
                output.warn(f"{each.run_id}: not proven: {said}")
            answer = keep_answer(each.folder, advise, output.warn) or answer
        if answer is not None:
            made.append((each, answer))
    return made


def _say_first(output: Output, answers: Sequence[tuple[RunResult, Advice]]) -> None:
    from perfml.explain.brief import brief_advice

    for each, answer in answers:
        output.result({}, brief_advice(answer, (str(each.folder),), ()).lines)


def _agrees(said: str) -> bool:
    """Ask whether to count for over five minutes; nobody to ask does not agree."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    return typer.confirm(f"{said} Go on?", err=True)


def _place(line: dict[str, Any]) -> str:
    return f"{Path(line['file']).name}:{line['line']}" if line["file"] else "(no -lineinfo)"


def _check_choices(name: str, backends: list[str], precisions: list[str]) -> None:
    """Raise `PerfmlError` before anything runs if a backend or precision does not exist."""
    from collectors.workloads import workload

    found = workload(name)
    _check_known(name, "--backend", backends, found.backends())
    named = backends or found.backends()
    offered = dict.fromkeys(
        precision for backend in named for precision in found.precisions(backend)
    )
    _check_known(name, "--precision", precisions, tuple(offered))


def _check_known(name: str, option: str, chosen: list[str], known: Sequence[str]) -> None:
    for value in chosen:
        if value not in known:
            msg = f"{name} has no such {option.removeprefix('--')}"
            cure = did_you_mean(value, known, f"Choose among: {', '.join(known)}.")
            raise PerfmlError(msg, where=option, found=value, cure=cure)


def _tell_what_is_lacking(output: Output, metrics: list[str] | None) -> None:
    """Say before anything runs which counters an explanation will miss."""
    from collectors.run_spec import metric_names
    from perfml.metrics import load_catalogue
    from perfml.util.words import first_few

    if not metrics:
        return
    known, _ = metric_names(metrics)
    lacking = load_catalogue().lacking(known)
    if lacking:
        output.warn(f"explain will lack {first_few(lacking)}; --metrics default measures them too")


def _checked(record: dict[str, Any] | None) -> str:
    """Say what a finished run's check found, if it had one."""
    outputs = ((record or {}).get("check") or {}).get("outputs")
    if not outputs:
        return ""
    shares = [(output["relative_error"] / output["limit"], output) for output in outputs]
    _, nearest = max(shares, key=lambda share: share[0])
    error, limit = nearest["relative_error"], nearest["limit"]
    return f"{len(outputs)} outputs right: errors up to {error:.1e}, limit {limit:.0e}"


def _options(cfg: Path | None, cudnn_benchmark: bool, settings: list[str]) -> list[str]:
    """Return the options that go to the built-in workload as they are."""
    from collectors.workloads import parse_settings

    words = ["--cudnn-benchmark"] if cudnn_benchmark else []
    # their order means nothing, so it is not part of what the run is
    for key, value in sorted(dict(parse_settings(settings)).items()):
        words += ["--set", f"{key}={value}"]
    if cfg is not None:
        if not cfg.is_file():
            msg = "--cfg names no file"
            raise PerfmlError(msg, found=str(cfg), cure="Check the path.")
        words += ["--cfg", str(cfg.resolve())]
    return words
