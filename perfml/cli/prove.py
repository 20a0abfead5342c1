"""The verb that asks kernels by experiment what limits them; no counters, no permissions."""

from __future__ import annotations

import math
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perfml.cli import options as shared
from perfml.cli.output import Output
from perfml.cli.verb import verb
from perfml.errors import PerfmlError

if TYPE_CHECKING:
    from perfml.experiments.findings import Examination
    from perfml.experiments.limits import Breakdown
    from perfml.experiments.record import Experiments
    from perfml.experiments.responses import Responses
    from perfml.experiments.verdicts import Verdict

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
    rounds: Annotated[
        int, typer.Option(min=3, max=50, help="Times that each condition is measured.")
    ] = 7,
    cause: Annotated[
        str | None, typer.Option(help="Say of this cause whether it is proven: global_atomics, ...")
    ] = None,
    explained: Annotated[
        Path | None,
        typer.Option(help="What perfml explain --json printed: are its first causes proven?"),
    ] = None,
    layer: shared.Layers = None,
    top: shared.Top = 20,
    timeout: shared.Timeout = 600,
    out: Annotated[Path, shared.OUT] = Path("prove"),
) -> None:
    """Find what limits each kernel launch by experiment, on the GPU.

    Each launch is run again with fewer multiprocessors, fewer resident warps, less cache, and
    traffic on memory. The program's memory is put back, so its results do not change.

    Example: perfml prove yolov4-tiny --backend cudnn

    Example: perfml prove --seconds 20 -- ./my_program

    Example: perfml prove prove/ --layer conv_11 --cause dram_bytes

    Example: perfml prove slow/ --explained explain.json
    """
    out_ = output
    from perfml.experiments.limits import breakdown
    from perfml.experiments.record import FILE, read_experiments
    from perfml.experiments.responses import responses

    folder = Path(what[0])
    if len(what) == 1 and (folder / FILE).is_file():
        experiments = read_experiments(folder / FILE)
    else:
        options = (
            shared.only_one("--backend", backend),
            shared.only_one("--precision", precision, "fp32"),
            shared.only_one("--batch", batch, 1),
        )
        experiments = _measured(out_, what, options, seconds, rounds, timeout, out)
    found = [(each, breakdown(each)) for each in responses(experiments)]
    found.sort(key=lambda pair: -pair[0].time_us)
    if layer:
        found = _inside(found, layer)
    verdicts = [_verdict(each, cause) for each, _ in found]
    examined = _findings(explained, [each for each, _ in found])
    out_.result(_document(experiments, found, verdicts, examined))
    if explained is not None:
        rows = [
            [each.finding.layer, each.finding.label, each.finding.certainty, each.said]
            for each in examined
        ]
        out_.table(["layer", "first cause", "by counters", "by experiment"], rows)
        return
    head = ["range", "kernel", "µs", "limit", "share", "answers"]
    rows = [_row(*pair) for pair in found[:top]]
    if cause is not None:
        head = [*head[:3], cause, *head[3:]]
        for row, said in zip(rows, verdicts, strict=False):
            row.insert(3, _briefly(said))
    out_.table(head, rows)
    if output.as_json:
        return
    for kernel, reason in experiments.skipped[:5]:
        out_.warn(f"{kernel}: not examined ({reason})")
    if experiments.left:
        out_.warn(f"{experiments.left} launches were left open; raise --seconds")
    if experiments.shortened:
        out_.warn(f"{experiments.shortened} long launches have fewer rounds or conditions")


def _inside(
    found: list[tuple[Responses, Breakdown]], layers: Sequence[str]
) -> list[tuple[Responses, Breakdown]]:
    """Return the launches in some ranges."""
    from perfml.datasets.choosing import layer_names

    known = sorted({name for each, _ in found for name in each.launch.ranges})
    wanted = set(layer_names(known, layers))
    return [pair for pair in found if wanted & set(pair[0].launch.ranges)]


def _briefly(said: Verdict | None) -> str:
    if said is None or math.isnan(said.share):
        return "-" if said is None else said.verdict
    return f"{said.verdict} ({100 * said.share:.0f} %)"


def _verdict(responses: Responses, cause: str | None) -> Verdict | None:
    from perfml.experiments.verdicts import LIMITS_OF, verdict

    if cause is None:
        return None
    if cause not in LIMITS_OF:
        msg = "no experiment on one launch can tell this cause"
        raise PerfmlError(msg, found=cause, cure=f"It can tell: {', '.join(sorted(LIMITS_OF))}.")
    return verdict(responses, cause)


def _measured(
    out_: Output,
    what: list[str],
    options: tuple[str | None, str, int],
    seconds: float,
    rounds: int,
    timeout: float,
    out: Path,
) -> Experiments:
    """Run the experiments, and keep them in a folder."""
    from collectors.profilers.experiments import examine
    from collectors.workloads import is_workload
    from perfml.experiments.record import FILE, experiments_csv
    from perfml.util.files import write_text

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
                rounds=rounds,
                iterations=built_in,
            )
    write_text(out / FILE, experiments_csv(experiments))
    return experiments


def _workload(name: str, options: tuple[str | None, str, int], scratch: Path) -> list[str]:
    from collectors.workloads import default_backends

    backend, precision, batch = options
    command = [sys.executable, "-m", "collectors.workloads.runner", name]
    command += ["--backend", backend or default_backends(name)[0], "--precision", precision]
    return [*command, "--batch", str(batch), *_ITERATIONS, "--out", str(scratch)]


def _findings(explained: Path | None, launches: Sequence[Responses]) -> Sequence[Examination]:
    from perfml.experiments.findings import examine, read_findings

    return [] if explained is None else examine(read_findings(explained), launches)


def _row(responses: Responses, breakdown: Breakdown) -> list[Any]:
    from perfml.experiments.limits import LIMITS
    from perfml.kernel_names import short_kernel

    launch = responses.launch
    answers = ", ".join(
        f"{name} ×{response.ratio:.2f}"
        for name, response in responses.by_condition.items()
        if name in ("sm_half", "warps_half", "dram_traffic")
    )
    share = f"{100 * breakdown.shares[breakdown.largest]:.0f} %"
    limit = LIMITS[breakdown.largest] + ("" if breakdown.limit else " (among others)")
    if math.isnan(breakdown.shares["fixed"]):
        limit, share = "not known", "-"
    inner = launch.ranges[-1] if launch.ranges else "-"
    return [inner, short_kernel(launch.kernel), responses.time_us, limit, share, answers]


def _document(
    experiments: Experiments,
    found: list[tuple[Responses, Breakdown]],
    verdicts: Sequence[Verdict | None],
    examined: Sequence[Examination],
) -> dict[str, Any]:
    from perfml.experiments.responses import LEVEL

    return {
        "device": {
            "multiprocessors": experiments.multiprocessors,
            "l2_bytes": experiments.l2_bytes,
            "empty_us": experiments.empty_us,
        },
        "interval": {"level": LEVEL, "over": "rounds of one launch in one process"},
        "left": experiments.left,
        "shortened": experiments.shortened,
        "skipped": [{"kernel": kernel, "reason": why} for kernel, why in experiments.skipped],
        "findings": [
            {
                "layer": each.finding.layer,
                "cause": each.finding.cause,
                "certainty": each.finding.certainty,
                "verdict": None if each.verdict is None else asdict(each.verdict),
                "sentence": each.said,
            }
            for each in examined
        ],
        "launches": [
            {
                "ranges": list(responses.launch.ranges),
                "kernel": responses.launch.kernel,
                "grid": responses.launch.grid,
                "block": responses.launch.block,
                "time_us": responses.time_us,
                "limit": breakdown.limit,
                "shares": breakdown.shares,
                "verdict": None if said is None else asdict(said),
                "responses": [
                    {
                        "condition": name,
                        "ratio": each.ratio,
                        "low": each.low,
                        "high": each.high,
                        "amount": each.amount,
                        "elasticity": each.elasticity,
                    }
                    for name, each in responses.by_condition.items()
                ],
            }
            for (responses, breakdown), said in zip(found, verdicts, strict=True)
        ],
    }
