"""The verb that measures many runs: a plan, a live table, a summary with costs."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from perfml.cli.output import INTERRUPTED, Json, Output, Quiet, Verbose
from perfml.errors import PerfmlError

if TYPE_CHECKING:
    from collectors.sweep.driver import Change, Outcome
    from collectors.sweep.executors import Executor
    from collectors.sweep.spec import Sweep


class Where(StrEnum):
    """Where the runs are measured."""

    local = "local"
    dask = "dask"
    slurm = "slurm"


def register(app: typer.Typer) -> None:
    """Add this room's verbs to the command line."""
    app.command(no_args_is_help=True)(sweep)


def sweep(
    file: Annotated[Path, typer.Argument(metavar="SWEEP.yaml", help="The matrix of runs.")],
    executor: Annotated[
        Where,
        typer.Option(help="local: one worker a GPU here; dask: --scheduler; slurm: a job a GPU."),
    ] = Where.local,
    scheduler: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="A Dask scheduler: tcp://head:8786.")
    ] = None,
    gpus: Annotated[
        str | None,
        typer.Option(help="How many GPUs of this machine (2), or which (0,2); default all."),
    ] = None,
    pin: Annotated[
        bool, typer.Option("--pin", help="Give each GPU's runs their own share of the processors.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="Folder of the runs; default: the file's out, or runs.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on: measure what is missing or failed.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only print the plan.")] = False,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = 0,
) -> None:
    """Profile a matrix of runs, on every GPU at once.

    A run that fails does not stop the others; after an interruption --resume does what is left.

    Example: perfml sweep sweep.yaml --dry-run

    Example: perfml sweep sweep.yaml --gpus 2 --out runs/
    """
    out_ = Output(as_json, quiet, verbose)
    from collectors.sweep.spec import read_sweep

    plan = read_sweep(file)
    folder = out or plan.out or Path("runs")
    if plan.twins and not quiet:
        out_.warn(f"{plan.twins} combinations are the same run as another and are measured once")
    if dry_run:
        _show_plan(out_, plan, folder)
        return
    where = _executor(executor, scheduler, gpus, pin, plan)
    from collectors.sweep.driver import run_sweep

    try:
        with _progress(out_, plan) as observer:
            outcome = run_sweep(plan, folder, where, resume=resume, observer=observer)
    except KeyboardInterrupt:
        sys.stderr.write(
            "interrupted: no run is half written; go on with\n"
            f"  perfml sweep {file} --out {folder} --resume\n"
        )
        raise typer.Exit(INTERRUPTED) from None
    _show_outcome(out_, plan, outcome)


def _executor(
    executor: Where, scheduler: str | None, gpus: str | None, pin: bool, plan: Sweep
) -> Executor:
    from collectors.sweep.executors import Executor, choose_gpus

    local = executor is Where.local
    if not local and (gpus is not None or pin):
        msg = "--gpus and --pin are for --executor local"
        cure = "A Dask worker says itself which GPU it has; Slurm gives every job one."
        raise PerfmlError(msg, cure=cure)
    numbers = choose_gpus(gpus) if local else ()
    options = plan.slurm if executor is Where.slurm else {}
    return Executor(executor.value, numbers, scheduler or "", options, pin)


def _show_plan(out_: Output, plan: Sweep, folder: Path) -> None:
    from collectors.sweep.driver import finished_runs

    kept = finished_runs(plan.runs, folder)
    rows = [[run_id, "done" if run_id in kept else "planned"] for run_id in plan.runs]
    document = {
        "out": str(folder),
        "runs": [{"run_id": run_id, "state": state} for run_id, state in rows],
    }
    left = len(plan.runs) - len(kept)
    summary = f"{len(rows)} runs, {len(kept)} done before, {left} to measure into {folder}"
    out_.table(["run", "state"], rows)
    out_.result(document, [summary])


def _show_outcome(out_: Output, plan: Sweep, outcome: Outcome) -> None:
    for run_id, sentences in outcome.warnings.items():
        for sentence in sentences:
            out_.warn(f"{run_id}: {sentence}")
    if len(outcome.devices) > 1:
        shares = ", ".join(f"{count} on {name}" for name, count in outcome.devices.items())
        out_.warn(f"these runs were measured on different GPUs, so do not mix them: {shares}")
    counts = dict.fromkeys(("done", "failed", "pending"), 0)
    for each in outcome.states:
        counts[each.state] = counts.get(each.state, 0) + 1
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
    out_.result(document)
    out_.table(
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
    if not out_.as_json:
        text = (
            f"{len(outcome.states)} runs: {measured} measured, {outcome.kept} kept, "
            f"{counts['failed']} failed; {_duration(outcome.seconds)}, "
            f"{_duration(outcome.gpu_seconds)} of GPU time, {outcome.launches:,} launches"
        )
        lost = f"; {outcome.lost} attempts lost with their worker" if outcome.lost else ""
        out_.result({}, [text + lost])
    if outcome.failed:
        what = f"{len(outcome.failed)} of {len(outcome.states)} runs failed"
        out_.fail(what, "--resume does only those again.")


@contextmanager
def _progress(out_: Output, plan: Sweep) -> Iterator[Callable[[Change], None]]:
    """Give an observer: a live table on a terminal, a line a change elsewhere."""
    if out_.quiet:
        yield lambda change: None
    elif not sys.stderr.isatty():
        yield _line
    else:
        from rich.console import Console
        from rich.live import Live

        table = _LiveTable(len(plan.runs))
        console = Console(stderr=True)
        with Live(
            get_renderable=table.render, console=console, refresh_per_second=4, transient=True
        ):
            yield table


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


class _LiveTable:
    """What every worker is at, and how far the sweep is; drawn anew several times a second."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.began = time.monotonic()
        self.counts = {"kept": 0, "done": 0, "failed": 0}
        self.busy: dict[str, tuple[Change, float]] = {}
        self.failures: list[str] = []

    def __call__(self, change: Change) -> None:
        """Take a change in."""
        if change.state == "running":
            self.busy[change.worker] = (change, time.monotonic())
            return
        self.counts[change.state] += 1
        self.busy = {
            worker: entry for worker, entry in self.busy.items() if entry[0].run_id != change.run_id
        }
        if change.state == "failed":
            self.failures.append(change.message.splitlines()[0])

    def render(self) -> Any:
        """Return the table."""
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        now = time.monotonic()
        table = Table(box=None, pad_edge=False)
        for name in ("GPU", "run", "attempt", "s"):
            table.add_column(name, justify="right" if name in ("attempt", "s") else "left")
        for worker, (change, since) in sorted(self.busy.items()):
            place = f"{change.host}:{change.gpu}" if change.gpu else worker
            cells = (place, change.run_id, str(change.attempt), f"{now - since:.0f}")
            table.add_row(*map(Text, cells))
        lines = [Text(each, style="red") for each in self.failures[-3:]]
        return Group(table, *lines, Text(self._so_far(now)))

    def _so_far(self, now: float) -> str:
        ended = sum(self.counts.values())
        text = ", ".join(f"{count} {state}" for state, count in self.counts.items() if count)
        text = f"{ended}/{self.total}" + (f" ({text})" if text else "")
        measured = self.counts["done"] + self.counts["failed"]
        spent = now - self.began
        if measured:
            left = spent / measured * (self.total - ended)
            return f"{text}, {_duration(spent)}, about {_duration(left)} left"
        return f"{text}, {_duration(spent)}"


def _duration(seconds: float) -> str:
    """Return a duration as people say it."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60:02d} min"
