"""The verb that measures many runs: a plan, a line a change, a summary with costs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from perfml.cli import options
from perfml.cli.output import INTERRUPTED, Output
from perfml.cli.verb import verb
from perfml.errors import PerfmlError

if TYPE_CHECKING:
    from collectors.sweep.driver import Change, Outcome
    from collectors.sweep.executors import Executor
    from collectors.sweep.spec import Sweep


@verb(no_args_is_help=True)
def sweep(
    output: Output,
    file: Annotated[Path, typer.Argument(metavar="SWEEP.yaml", help="The matrix of runs.")],
    scheduler: Annotated[
        str | None,
        typer.Option(
            metavar="ADDRESS", help="Use the workers of a Dask scheduler: tcp://head:8786."
        ),
    ] = None,
    gpus: Annotated[
        str | None,
        typer.Option(help="How many GPUs of this machine (2), or which (0,2); default all."),
    ] = None,
    out: options.OptionalOut = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on: measure what is missing or failed.")
    ] = False,
    dry_run: options.DryRun = False,
) -> None:
    """Profile a matrix of runs, on every GPU at once.

    A run that fails does not stop the others; after an interruption --resume does what is left.
    Runs go to the folder --out, or else the file's out, or runs.

    Example: perfml sweep sweep.yaml --dry-run

    Example: perfml sweep sweep.yaml --gpus 2 --out runs/
    """
    from collectors.sweep.spec import read_sweep

    plan = read_sweep(file)
    folder = out or plan.out or Path("runs")
    if plan.twins and not output.quiet:
        output.warn(f"{plan.twins} combinations are the same run as another and are measured once")
    if dry_run:
        _show_plan(output, plan, folder)
        return
    where = _executor(scheduler, gpus)
    from collectors.sweep.driver import run_sweep

    try:
        observer = (lambda change: None) if output.quiet else _line
        outcome = run_sweep(plan, folder, where, resume=resume, observer=observer)
    except KeyboardInterrupt:
        sys.stderr.write(
            "interrupted: no run is half written; go on with\n"
            f"  perfml sweep {file} --out {folder} --resume\n"
        )
        raise typer.Exit(INTERRUPTED) from None
    _show_outcome(output, plan, outcome)


def _executor(scheduler: str | None, gpus: str | None) -> Executor:
    from collectors.sweep.executors import Executor, choose_gpus

    if scheduler is None:
        return Executor(choose_gpus(gpus))
    if gpus is not None:
        msg = "--gpus are those of this machine, and --scheduler has workers of its own"
        raise PerfmlError(msg, cure="A Dask worker says itself which GPU it has.")
    return Executor(address=scheduler)


def _show_plan(output: Output, plan: Sweep, folder: Path) -> None:
    from collectors.sweep.driver import finished_runs

    kept = finished_runs(plan.runs, folder)
    rows = [[run_id, "done" if run_id in kept else "planned"] for run_id in plan.runs]
    document = {
        "out": str(folder),
        "runs": [{"run_id": run_id, "state": state} for run_id, state in rows],
    }
    left = len(plan.runs) - len(kept)
    summary = f"{len(rows)} runs, {len(kept)} done before, {left} to measure into {folder}"
    output.table(["run", "state"], rows)
    output.result(document, [summary])


def _show_outcome(output: Output, plan: Sweep, outcome: Outcome) -> None:
    for run_id, sentences in outcome.warnings.items():
        for sentence in sentences:
            output.warn(f"{run_id}: {sentence}")
    if len(outcome.devices) > 1:
        shares = ", ".join(f"{count} on {name}" for name, count in outcome.devices.items())
        output.warn(f"these runs were measured on different GPUs, so do not mix them: {shares}")
    counts = dict.fromkeys(("done", "failed", "pending"), 0)
    for state in outcome.states:
        counts[state.state] = counts.get(state.state, 0) + 1
    summary = {
        "runs": len(outcome.states),
        **counts,
        "kept": outcome.kept,
        "lost_attempts": outcome.lost,
        "seconds": outcome.seconds,
        "seconds_to_first_run": outcome.waited,
        "gpu_seconds": outcome.gpu_seconds,
        "launches": outcome.launches,
        "runs_of_other_files": outcome.others,
        "devices": outcome.devices,
    }
    document = {
        "file": str(plan.path),
        "out": str(outcome.out),
        "summary": summary,
        "runs": outcome.states,
    }
    output.result(document)
    output.table(
        ["run", "state", "GPU", "attempts", "s", "launches", ""],
        [
            [
                each.run_id,
                each.state,
                f"{each.host}:{each.gpu}" if each.host else "-",
                each.attempts,
                each.seconds if each.attempts else None,
                each.launches,
                each.message.splitlines()[0] if each.message else "",
            ]
            for each in outcome.states
        ],
    )
    measured = counts["done"] - outcome.kept
    if not output.as_json:
        text = (
            f"{len(outcome.states)} runs: {measured} measured, {outcome.kept} kept, "
            f"{counts['failed']} failed; {_duration(outcome.seconds)}, "
            f"{_duration(outcome.gpu_seconds)} of GPU time, {outcome.launches:,} launches"
        )
        lost = f"; {outcome.lost} attempts lost with their worker" if outcome.lost else ""
        output.result({}, [text + lost])
    if outcome.failed:
        what = f"{len(outcome.failed)} of {len(outcome.states)} runs failed"
        output.fail(what, "--resume does only those again.")


def _line(change: Change) -> None:
    """Write one change as one line on stderr."""
    if change.state == "kept":
        return
    place = f" on GPU {change.gpu} of {change.host}" if change.host else ""
    text = f"[{change.finished}/{change.total}] {change.state} {change.run_id}{place}"
    if change.attempt > 1:
        text += f", attempt {change.attempt}"
    if change.state == "done":
        rate = change.seconds_per_launch
        each = f" at {rate:.3f} s" if rate else ""
        text += f": {change.seconds or 0:.1f} s, {change.launches or 0} launches{each}"
    elif change.message:
        text += ": " + change.message.splitlines()[0]
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def _duration(seconds: float) -> str:
    """Return a duration as people say it."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60:02d} min"
