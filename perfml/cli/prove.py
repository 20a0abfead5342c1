"""The verb that asks kernels by experiment what limits them; no counters, no permissions."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perfml.cli import options as shared
from perfml.cli.output import Output
from perfml.cli.verb import verb
from perfml.errors import PerfmlError
from perfml.util.files import temporary_folder

if TYPE_CHECKING:
    from collectors.profilers.trial import Trial
    from perfml.experiments.proof import LaunchProof, Proof
    from perfml.experiments.record import Experiments
    from perfml.experiments.verdicts import Finding

_ITERATIONS = ("--iterations", "2", "--warmup", "2")
"""Of a built-in workload: the second measured iteration is examined."""
SECONDS, EVERYTHING_S = 24.0, 300.0
"""Of experiments: with those of 20 kernels a program that starts in a second ends within 30 s."""


@verb(no_args_is_help=True)
def prove(
    output: Output,
    what: Annotated[
        list[str],
        typer.Argument(
            help="A built-in workload, a PyTorch model (torch:LIBRARY/NAME), -- and any command. "
            "Or what this verb has written: a folder or a table."
        ),
    ],
    backend: shared.Backends = None,
    precision: shared.Precisions = None,
    batch: shared.Batches = None,
    seconds: Annotated[
        float | None,
        typer.Option(min=1, help="Of experiments; a launch has its part of the clock. 24, or 300."),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Try everything on every launch; nothing decides.")
    ] = False,
    cause: Annotated[
        str | None, typer.Option(help="Say of this cause whether it is proven: global_atomics, ...")
    ] = None,
    explained: Annotated[
        Path | None,
        typer.Option(help="What perfml explain --json printed: are its first causes proven?"),
    ] = None,
    trial: Annotated[
        bool, typer.Option("--try", help="Try the repairs in a copy of the source; with --build.")
    ] = False,
    build: Annotated[
        str, typer.Option(help="The command that builds the program, as you type it.")
    ] = "",
    source: Annotated[
        Path, typer.Option(help="The folder of the source, in which --build runs.")
    ] = Path(),
    layer: shared.Layers = None,
    top: shared.Top = 20,
    timeout: shared.Timeout = 600,
    out: Annotated[Path, shared.OUT] = Path("prove"),
) -> None:
    """Find what limits each kernel launch by experiment, on the GPU.

    Each launch is run again with fewer multiprocessors, fewer resident warps, less cache, and
    traffic on memory. The program's memory is put back, so its results do not change. Kernels with
    PTX then run as mutants, without one habit each: their times bound what a repair gains. Causes
    of the answer in --out are asked first, until one is decided.

    Example: perfml prove yolov4-tiny --backend cudnn

    Example: perfml prove --seconds 20 -- ./my_program

    Example: perfml prove --try --build "nvcc -O3 main.cu -o main" -- ./main

    Example: perfml prove prove/ --layer conv_11 --cause dram_bytes
    """
    from perfml.datasets.choosing import layer_names
    from perfml.experiments.proof import proof
    from perfml.experiments.record import FILE, read_experiments
    from perfml.experiments.verdicts import ANSWER, read_findings

    findings = [] if explained is None else read_findings(explained)
    file = Path(what[0]) / FILE if Path(what[0]).is_dir() else Path(what[0])
    recorded = len(what) == 1 and file.is_file() and ".csv" in file.suffixes
    if trial and (recorded or not build):
        msg = "--try builds and runs the program"
        cure = 'Like: perfml prove --try --build "nvcc -O3 main.cu -o main" -- ./main'
        raise PerfmlError(msg, found="a folder" if recorded else "no --build", cure=cure)
    if recorded:
        experiments = read_experiments(file)
    else:
        # a layer without ranges is a kernel: then all of them are examined
        ranged = all(one.layer != one.kernel for one in findings)
        leading = findings or kept_findings(output, out / ANSWER)
        built_in = (
            shared.only_one("--backend", backend),
            shared.only_one("--precision", precision, "fp32"),
            shared.only_one("--batch", batch, 1),
        )
        given = seconds or (EVERYTHING_S if everything else SECONDS)
        experiments = measured(
            output,
            *(what, out, built_in),
            seconds=given,
            timeout_s=timeout,
            findings=leading,
            layers=[one.layer for one in findings if ranged],
            everything=everything,
        )
    names = sorted({name for launch in experiments.launches for name in launch.ranges})
    layers = layer_names(names, layer) if layer else []
    made = proof(experiments, layers=layers, cause=cause, findings=findings)
    tried: Sequence[Trial] = ()
    if trial:
        from collectors.profilers.trial import try_repairs

        with output.progress("building"):
            tried = try_repairs(made, build, what, source, log=out / "log.txt", timeout_s=timeout)
    if output.as_json:
        output.result({**made.to_dict(), "trials": tried})
        return
    if tried:
        head = ["change", "kernel", "outputs", "µs before", "µs after", "×", "× of the mutant"]
        output.table(head, [each.row for each in tried])
    _print(output, made, top)


def _print(output: Output, made: Proof, top: int) -> None:
    if made.findings:
        rows = [
            [e.finding.layer, e.finding.label, e.finding.confidence or "-", e.said]
            for e in made.findings
        ]
        output.table(["layer", "cause", "by counters", "by experiment"], rows[:top])
    else:
        head = ["range", "kernel", "µs", "limit", "share", "answers", "best repair"]
        output.table(head, [[*_row(each), _best(each)] for each in made.launches[:top]])
    for line in _skipped_lines(made):
        output.warn(line)
    if untried := sorted({name for each in made.launches for name in each.answer.launch.not_tried}):
        output.note(f"not tried: {', '.join(untried)}; --all tries everything")
    if left := made.experiments.left:
        output.warn(f"{left} launches take little of the clock and were not asked; --all asks them")
    if shortened := made.experiments.shortened:
        output.warn(f"{shortened} long launches have fewer rounds or conditions")


def _skipped_lines(made: Proof, most: int = 5) -> list[str]:
    """Return what was not measured, a line a reason with its kernels, and how many are left out."""
    from perfml.kernel_names.labels import short_kernel
    from perfml.util.words import first_few

    kernels: dict[str, dict[str, None]] = {}
    for skipped in made.skipped:
        kernels.setdefault(skipped.reason, {})[short_kernel(skipped.kernel)] = None
    lines = [f"{first_few([*names], 3)}: {reason}" for reason, names in kernels.items()]
    if len(lines) > most:
        more = f"{len(lines) - most} more reasons why something was not measured: --json"
        lines[most:] = [more]
    return lines


def _best(launch: LaunchProof) -> str:
    """Say the repair that gains most, where it surely gains something and a change can match it."""
    from perfml.experiments.repairs import UNREACHED
    from perfml.util.words import number

    reached = (repair for repair in launch.repairs if repair.mutation not in UNREACHED)
    best = next((repair for repair in reached if repair.high < 1), None)
    if best is None:
        return "-"
    gains = [number(each) for each in (best.gain_us, best.gain_low_us, best.gain_high_us)]
    return f"{best.words}: ×{best.factor:.2f}, {gains[0]} µs less ({gains[1]} to {gains[2]})"


def measured(
    output: Output,
    what: Sequence[str],
    out: Path,
    built_in: tuple[str | None, str, int],
    options: Sequence[str] = (),
    *,
    findings: Sequence[Finding] = (),
    **settings: Any,
) -> Experiments:
    """Run the experiments on a workload or a program, and keep them in a folder.

    `built_in` are backend, precision and batch of a workload, and `options` its further ones;
    `settings` those of `collectors.profilers.experiments.examine`. An answer in the folder is made
    anew.
    """
    from collectors.profilers.experiments import examine
    from collectors.workloads import is_workload
    from perfml.experiments.record import FILE, experiments_csv
    from perfml.experiments.verdicts import ANSWER
    from perfml.explain import advise
    from perfml.explain.advice.measured import keep_answer
    from perfml.util.files import write_text

    workload = len(what) == 1 and is_workload(what[0])
    if built_in[0] and not workload:
        msg = "--backend is for built-in workloads"
        raise PerfmlError(msg, cure="Give a program its own arguments behind --.")
    if out.is_file():
        msg = "experiments are kept in a folder"
        raise PerfmlError(msg, where=str(out), found="a file", cure="Name a folder with --out.")
    out.mkdir(parents=True, exist_ok=True)
    with temporary_folder("prove") as scratch:
        own = [*_workload(what[0], built_in, scratch), *options] if workload else what
        with output.progress("experimenting"):
            experiments = examine(
                own,
                log=out / "log.txt",
                iterations=workload,
                repairs=True,
                findings=findings,
                **settings,
            )
    write_text(out / FILE, experiments_csv(experiments))
    if (out / ANSWER).is_file():
        keep_answer(out, advise, output.warn)
    return experiments


def kept_findings(output: Output, answer: Path) -> list[Finding]:
    """Return the findings of the answer in a folder; none, and a warning, if it is damaged."""
    from perfml.experiments.verdicts import read_findings

    try:
        return read_findings(answer) if answer.is_file() else []
    except PerfmlError as error:
        output.warn(" ".join(str(error).split()))
        return []


def _workload(name: str, options: tuple[str | None, str, int], scratch: Path) -> list[str]:
    from collectors.workloads import default_backends

    backend, precision, batch = options
    command = [sys.executable, "-m", "collectors.workloads.runner", name]
    command += ["--backend", backend or default_backends(name)[0], "--precision", precision]
    return [*command, "--batch", str(batch), *_ITERATIONS, "--out", str(scratch)]


def _row(proven: LaunchProof) -> list[Any]:
    from perfml.experiments.limits import LIMITS
    from perfml.kernel_names import short_kernel

    answer, divided = proven.answer, proven.breakdown
    answers = ", ".join(
        f"{name} ×{answer.ratio(name):.2f}"
        for name in ("sm_half", "warps_half", "dram_traffic")
        if name in answer.by_condition
    )
    share = f"{100 * divided.shares[divided.largest]:.0f} %"
    limit = LIMITS[divided.largest] + ("" if divided.limit else " (among others)")
    if math.isnan(divided.shares["fixed"]):
        limit, share = "not known", "-"
    launch = answer.launch
    inner = launch.ranges[-1] if launch.ranges else "-"
    return [inner, short_kernel(launch.kernel), answer.time_us, limit, share, answers]
