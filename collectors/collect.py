"""Collect: one command measures a matrix of runs, keeps what is finished, and goes on after a kill.

Each run becomes a folder ``OUT/RUN_ID`` with ``run.json``, ``metrics.csv``, ``metrics.ncu-rep``,
``timing.csv`` and ``log.txt``; ``OUT/manifest.jsonl`` has one line a run. A folder is there whole
or not at all. Run ids are made from everything that defines a run, so the same command finds its
own results again.

Workloads of perfml's own kernels are compared with their references before they are measured
(`collectors.workloads.Workload.check_first`), and what is wrong fails its run: ``check`` in
``run.json`` has the errors and their limits.
"""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from collectors import run_folder as folders
from collectors.execution import ExecutionContext, Job
from collectors.measure import measure, planned_commands
from collectors.profilers.gpu import Gpu, NoGpuError, gpus
from collectors.run_spec import Run, metric_names
from collectors.settings import Settings
from perfml.errors import InputError, PerfmlError
from perfml.util.files import interruptible

Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class RunResult:
    """What became of one run.

    Attributes
    ----------
    run_id
        Name of the run and of its folder.
    status
        ``done``, ``kept`` (was finished before), ``failed``, ``busy`` (another process is at it)
        or ``planned``.
    folder
        Where the results lie, or would lie.
    message
        Why it failed, with the cure; else empty.
    commands
        The argument lists that were run, or would be.
    warnings
        Sentences for the user.
    record
        The run's manifest, if it is finished.
    """

    run_id: str
    status: Literal["done", "kept", "failed", "busy", "planned"]
    folder: Path
    message: str = ""
    commands: tuple[tuple[str, ...], ...] = ()
    warnings: tuple[str, ...] = ()
    record: dict[str, Any] | None = None


def collect(
    workload: str | None = None,
    *,
    command: Sequence[str] = (),
    backends: Sequence[str] = ("cublas",),
    precisions: Sequence[str] = ("fp32",),
    batches: Sequence[int] = (1,),
    metrics: Sequence[str] = ("default",),
    layer_map: str | Path | None = None,
    workload_options: Sequence[str] = (),
    out: str | Path = "runs",
    launcher: str = "",
    timeout_s: float = 1800.0,
    dry_run: bool = False,
    progress: Progress | None = None,
    tell: Callable[[str], None] | None = None,
    agrees: Callable[[str], bool] | None = None,
    **settings: Any,
) -> list[RunResult]:
    """Measure every combination of backend, precision and batch, or one program.

    Parameters
    ----------
    workload
        A built-in workload; None with `command`.
    command
        Argument list of any program; its NVTX ranges are the layers.
    backends, precisions, batches
        The matrix of a built-in workload.
    metrics
        Metrics or sets (``default``, ``published``, ``stalls``, ``roofline``), Nsight Compute's
        own names, or files with one name a line.
    layer_map
        A file of ordered kernel patterns, for a program without ranges.
    workload_options
        Further arguments of the built-in workload, such as ``("--cfg", "my.cfg")``.
    out
        Folder of the runs.
    launcher
        Goes in front of every command, split like a shell would (``srun --gres=gpu:1``); no shell
        sees it.
    timeout_s
        Limit of each command; it is killed with its children.
    dry_run
        Only tell what would be run.
    progress
        Called as ``progress(done, total, what)``.
    tell
        Called with a sentence on how long a run will take, while it is measured.
    agrees
        Called with such a sentence before launches are repeated for over five minutes: False
        leaves the run out. None: nobody is asked.
    settings
        Options of `collectors.settings.Settings` by name, such as ``iterations=20``. For a
        program, ``metric_iterations`` limits profiling to its first ranges called ``iter_N``.

    Returns
    -------
    list of RunResult
        One a run, in order. A run that fails does not stop the others.

    Raises
    ------
    PerfmlError
        If the request itself is wrong, or there is no GPU here and no launcher.
    KeyboardInterrupt
        On Ctrl-C or SIGTERM, after the running command was killed and its half run removed.
    """
    known, raw = metric_names(metrics)
    chosen = Settings(
        metrics=known, raw_metrics=raw, workload_options=tuple(workload_options), **settings
    )
    runs = _matrix(workload, command, backends, precisions, batches, layer_map, chosen)
    words = _split(launcher)
    gpu = _gpu(bool(words), dry_run)
    context = ExecutionContext(gpu, words, timeout_s, tell=tell, agrees=agrees)
    root = Path(out)
    if dry_run:
        return [_planned(run, context, root) for run in runs]
    results: list[RunResult] = []
    with interruptible():
        for number, each in enumerate(runs):
            if progress is not None:
                progress(number, len(runs), each.run_id)
            results.append(collect_one(each, context, root))
    if progress is not None:
        progress(len(runs), len(runs), "done")
    return results


def collect_one(subject: Run, context: ExecutionContext, out: Path) -> RunResult:
    """Measure one run into ``OUT/RUN_ID``, unless it is finished or another process is at it."""
    run_id, final = subject.run_id, out / subject.run_id
    with folders.claimed(out, run_id) as mine:
        if not mine:
            return RunResult(run_id, "busy", final, "another perfml process is measuring this run")
        record = folders.finished(out, run_id)
        if record is not None:
            return RunResult(run_id, "kept", final, record=record)
        try:
            with folders.building(out, run_id) as folder:
                # a program may change a file it was given, and with it what its id would be now
                record = {**measure(Job(subject, folder, context)).as_dict(), "run_id": run_id}
                folders.write_json(folder / folders.RUN_FILE, record)
        except PerfmlError as error:
            return _failed(out, run_id, error)
        except OSError as error:
            msg = "the results cannot be written"
            found = error.strerror or str(error)
            wrapped = InputError(msg, where=str(out), found=found, cure="Free some space.")
            return _failed(out, run_id, wrapped)
        commands = tuple(tuple(each) for each in record.get("commands", []))
        warnings = tuple(record.get("warnings", []))
        entry = {"run_id": run_id, "status": "done", "launches": record.get("launches_profiled")}
        try:
            folders.note(out, entry)
        except OSError as error:
            # the run itself is in context: only its line in the list of runs is lost
            lost = f"{folders.MANIFEST} cannot be written: {error.strerror or error}"
            warnings = (*warnings, lost)
        return RunResult(run_id, "done", final, "", commands, warnings, record)


def _failed(out: Path, run_id: str, error: PerfmlError) -> RunResult:
    log = folders.failed_log(out, run_id)
    message = str(error).replace("log.txt", str(log)) if log.is_file() else str(error)
    with contextlib.suppress(OSError):  # the disk may be what failed
        folders.note(out, {"run_id": run_id, "status": "failed", **error.as_dict()})
    return RunResult(run_id, "failed", out / run_id, message)


def _planned(subject: Run, context: ExecutionContext, out: Path) -> RunResult:
    status: Literal["kept", "planned"] = (
        "kept" if folders.finished(out, subject.run_id) is not None else "planned"
    )
    folder = out / subject.run_id
    commands = planned_commands(Job(subject, folder, context))
    return RunResult(
        subject.run_id, status, folder, commands=tuple(tuple(command) for command in commands)
    )


def _matrix(
    workload: str | None,
    command: Sequence[str],
    backends: Sequence[str],
    precisions: Sequence[str],
    batches: Sequence[int],
    layer_map: str | Path | None,
    settings: Settings,
) -> list[Run]:
    if (workload is None) == (not command):
        msg = "name a workload, or a program after --"
        found = "both" if command else "neither"
        cure = "Either: perfml collect yolov4-tiny, or: perfml collect -- ./program"
        raise InputError(msg, found=found, cure=cure)
    if command:
        mapped = None
        if layer_map is not None:
            from perfml.ingest.layer_map import read_layer_map

            mapped = read_layer_map(layer_map).as_dict()
        name = program_name(command)
        return [Run(name, program=tuple(command), layer_map=mapped, settings=settings)]
    if layer_map is not None:
        msg = "a layer map is for programs without ranges"
        cure = "The built-in workloads name their layers themselves; leave it out."
        raise InputError(msg, where="--layer-map", cure=cure)
    from collectors.workloads import workload as find

    assert workload is not None
    find(workload)
    for batch in batches:
        if batch < 1:
            msg = "a batch has at least one image"
            raise InputError(msg, where="--batch", found=str(batch))
    base = Run(workload, settings=settings)
    return [
        replace(base, backend=backend, precision=precision, batch=batch)
        for backend in dict.fromkeys(backends)
        for precision in dict.fromkeys(precisions)
        for batch in dict.fromkeys(batches)
    ]


def program_name(command: Sequence[str]) -> str:
    """Name a program by its script where an interpreter runs one."""
    words = [Path(word).name for word in command]
    if words[0].startswith("python") and len(words) > 1:
        scripts = [Path(word).stem for word in command[1:] if word.endswith(".py")]
        return scripts[0] if scripts else words[0]
    return words[0]


def _split(launcher: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(launcher))
    except ValueError as error:
        msg = "quotes do not match"
        raise InputError(msg, where="--launcher", found=launcher) from error


def _gpu(launched: bool, dry_run: bool) -> Gpu | None:
    """Return this machine's first GPU; a launcher may go where this machine has none."""
    if launched:
        return None
    try:
        return gpus()[0]
    except NoGpuError:
        if dry_run:
            return None
        raise
