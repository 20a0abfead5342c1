"""The verb that asks kernels by experiment what limits them; no counters, no permissions."""

from __future__ import annotations

import math
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perfml.cli import options as shared
from perfml.cli.output import Output
from perfml.cli.verb import verb
from perfml.errors import PerfmlError

if TYPE_CHECKING:
    from perfml.experiments.proof import LaunchProof
    from perfml.experiments.record import Experiments
    from perfml.experiments.verdicts import Finding, Verdict

_ITERATIONS = ("--iterations", "2", "--warmup", "2")
"""Of a built-in workload: the second measured iteration is examined."""


@verb(no_args_is_help=True)
def prove(
    output: Output,
    what: Annotated[
        list[str],
        typer.Argument(
            help="A built-in workload, a PyTorch model (torch:LIBRARY/NAME), -- and any command, "
            "or a folder that this verb has written."
        ),
    ],
    backend: shared.Backends = None,
    precision: shared.Precisions = None,
    batch: shared.Batches = None,
    seconds: Annotated[
        float, typer.Option(min=1, help="Of experiments; later launches are left open.")
    ] = 60,
    cause: Annotated[
        str | None, typer.Option(help="Say of this cause whether it is proven: global_atomics, ...")
    ] = None,
    explained: Annotated[
        Path | None,
        typer.Option(help="What perfml explain --json printed: are its first causes proven?"),
    ] = None,
    repairs: Annotated[
        bool,
        typer.Option(help="Run kernels with PTX once more without each of their habits."),
    ] = True,
    layer: shared.Layers = None,
    top: shared.Top = 20,
    timeout: shared.Timeout = 600,
    out: Annotated[Path, shared.OUT] = Path("prove"),
) -> None:
    """Find what limits each kernel launch by experiment, on the GPU.

    Each launch is run again with fewer multiprocessors, fewer resident warps, less cache, and
    traffic on memory. The program's memory is put back, so its results do not change. Kernels with
    PTX then run as mutants, without one habit each: their times bound what a repair gains.

    Example: perfml prove yolov4-tiny --backend cudnn

    Example: perfml prove --seconds 20 -- ./my_program

    Example: perfml prove prove/ --layer conv_11 --cause dram_bytes

    Example: perfml prove slow/ --explained explain.json
    """
    from perfml.datasets.choosing import layer_names
    from perfml.experiments.proof import proof
    from perfml.experiments.record import FILE, read_experiments
    from perfml.experiments.verdicts import read_findings

    findings = [] if explained is None else read_findings(explained)
    folder = Path(what[0])
    if len(what) == 1 and (folder / FILE).is_file():
        experiments = read_experiments(folder / FILE)
    else:
        options = (
            shared.only_one("--backend", backend),
            shared.only_one("--precision", precision, "fp32"),
            shared.only_one("--batch", batch, 1),
        )
        limits = (seconds, timeout)
        experiments = _measured(output, what, options, limits, repairs, out, findings)
    names = sorted({name for launch in experiments.launches for name in launch.ranges})
    layers = layer_names(names, layer) if layer else []
    made = proof(experiments, layers=layers, cause=cause, findings=findings)
    if output.as_json:
        output.result(made.to_dict())
        return
    if explained is None:
        output.table(*_table(made.launches[:top], cause))
    else:
        rows = [
            [e.finding.layer, e.finding.label, e.finding.confidence, e.said] for e in made.findings
        ]
        output.table(["layer", "first cause", "by counters", "by experiment"], rows)
    for skipped in made.skipped[:5]:
        output.warn(f"{skipped.kernel}: not examined ({skipped.reason})")
    if experiments.left:
        output.warn(f"{experiments.left} launches were left open; raise --seconds")
    if experiments.shortened:
        output.warn(f"{experiments.shortened} long launches have fewer rounds or conditions")


def _table(launches: Sequence[LaunchProof], cause: str | None) -> tuple[list[str], list[list[Any]]]:
    """Return what the columns are called, and a row a launch."""
    head = ["range", "kernel", "µs", "limit", "share", "answers"]
    rows = [_row(launch) for launch in launches]
    if cause is not None:
        head.insert(3, cause)
        for row, each in zip(rows, launches, strict=True):
            row.insert(3, _briefly(each.verdict))
    if any(launch.repairs for launch in launches):
        head.append("best repair")
        for row, each in zip(rows, launches, strict=True):
            row.append(_best(each))
    return head, rows


def _briefly(said: Verdict | None) -> str:
    if said is None or math.isnan(said.share):
        return "-" if said is None else said.verdict
    return f"{said.verdict} ({100 * said.share:.0f} %)"


def _best(launch: LaunchProof) -> str:
    """Say the repair that gains most, where it surely gains something."""
    from perfml.util.words import number

    best = next((repair for repair in launch.repairs if repair.high < 1), None)
    if best is None:
        return "-"
    gains = [number(each) for each in (best.gain_us, best.gain_low_us, best.gain_high_us)]
    return f"{best.words}: ×{best.factor:.2f}, {gains[0]} µs less ({gains[1]} to {gains[2]})"


def _measured(
    out_: Output,
    what: list[str],
    options: tuple[str | None, str, int],
    limits: tuple[float, float],
    repairs: bool,
    out: Path,
    findings: list[Finding],
) -> Experiments:
    """Run the experiments, and keep them in a folder."""
    from collectors.profilers.experiments import examine
    from collectors.workloads import is_workload
    from perfml.experiments.record import FILE, experiments_csv
    from perfml.util.files import write_text

    seconds, timeout = limits
    built_in = len(what) == 1 and is_workload(what[0])
    if options[0] and not built_in:
        msg = "--backend is for built-in workloads"
        raise PerfmlError(msg, cure="Give a program its own arguments behind --.")
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="perfml-prove-") as scratch:
        program = _workload(what[0], options, Path(scratch)) if built_in else what
        with out_.progress("experimenting"):
            experiments = examine(
                program,
                log=out / "log.txt",
                timeout_s=timeout,
                seconds=seconds,
                iterations=built_in,
                repairs=repairs,
                findings=findings,
            )
    write_text(out / FILE, experiments_csv(experiments))
    return experiments


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
