"""Run a sweep: give its runs to workers, note what becomes of each, and survive what goes wrong.

Results lie in the run folders that `collectors.collect` makes, whole or not at all; the manifest
beside them says what state each run is in. A run counts as done when its folder is finished,
whoever finished it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import os
import queue
import secrets
import socket
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from collectors import run_folder as folders
from collectors.run_spec import Run
from collectors.sweep.executors import RESOURCE, Executor, ExecutorError, workers
from collectors.sweep.manifest import FILE, Manifest, RunState, State
from collectors.sweep.spec import Sweep, longest_first
from perfml.errors import InputError
from perfml.util.files import cannot_write, interruptible

_LOCK = ".sweep.lock"
_POLL_S = 0.5
_ALONE_S = 120.0
_STOP_S = 20.0


@dataclass(frozen=True)
class Change:
    """Something that happened to a run."""

    run_id: str  # which one
    state: str  # `kept` (was finished before), `running`, `done` or `failed`
    # worker, host, gpu: where
    worker: str = ""
    host: str = ""
    gpu: str = ""
    attempt: int = 0  # how often it was begun, this time included
    # seconds, launches, seconds_per_launch: what it took and gave, when done
    seconds: float | None = None
    launches: int | None = None
    seconds_per_launch: float | None = None
    message: str = ""  # why it failed
    # finished, total: runs done or failed so far, and all
    finished: int = 0
    total: int = 0


@dataclass(frozen=True)
class Outcome:
    """What a sweep did."""

    out: Path  # folder of the results
    states: tuple[State, ...]  # the manifest of this sweep's runs, in the order of its file
    kept: int  # how many runs had been finished before
    seconds: float  # wall-clock time of this start
    gpu_seconds: float  # GPU time of this start, lost and failed attempts included
    launches: int  # launches profiled by this start
    lost: int  # attempts of this start that ended with their worker
    # Run id to the warnings of a run that was measured now
    warnings: dict[str, list[str]] = field(default_factory=dict)
    others: int = 0  # runs in the folder that are not of this sweep's file
    # Seconds from this start to its first run: the workers' start. NaN if none was begun.
    waited: float = math.nan
    # GPU model to how many of this sweep's finished runs were measured on it. A sweep that was
    # resumed on another machine may have several.
    devices: dict[str, int] = field(default_factory=dict)

    @property
    def failed(self) -> tuple[State, ...]:
        """The runs that failed."""
        return tuple(state for state in self.states if state.state == "failed")


Observer = Callable[[Change], None]


def run_sweep(
    sweep: Sweep,
    out: Path,  # folder of the run folders and the manifest
    executor: Executor,
    *,
    # Go on in a folder where a sweep was begun; what is missing or failed is measured
    resume: bool = False,
    observer: Observer | None = None,  # called with every change, in this thread
) -> Outcome:
    """Measure a sweep's runs into a folder.

    Raises `PerfmlError` if another sweep is at work in the folder, one was begun there and `resume`
    is not set, or there are no workers. A run that fails raises nothing. Raises `KeyboardInterrupt`
    on Ctrl-C or SIGTERM, after the running runs were stopped and their half results removed.
    """
    with _alone(out), interruptible():
        manifest = Manifest(out)
        _check_resumed(manifest, out, resume)
        return _Driver(sweep, out.resolve(), executor, manifest, observer).drive()


def finished_runs(run_ids: Iterable[str], out: Path) -> dict[str, int | None]:
    """Return the runs whose folder is finished, and their launches."""
    found: dict[str, int | None] = {}
    for run_id in run_ids:
        record = folders.finished(out, run_id)
        if record is not None:
            found[run_id] = record.get("launches_profiled")
    return found


def _check_resumed(manifest: Manifest, out: Path, resume: bool) -> None:
    before = manifest.states.values()
    if before and not resume:
        done = sum(state.state == "done" for state in before)
        msg = "a sweep was begun in this folder"
        cure = "Go on with --resume, or name another folder with --out."
        found = f"{done} of {len(before)} runs done"
        raise InputError(msg, where=str(out / FILE), found=found, cure=cure)


@contextlib.contextmanager
def _alone(out: Path) -> Iterator[None]:
    """Let one driver at a time into a folder; the claim ends with the process."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        handle = os.open(out / _LOCK, os.O_CREAT | os.O_RDWR, 0o666)
    except OSError as error:
        raise cannot_write(out, error) from error
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            msg = "another sweep is at work in this folder"
            found = os.read(handle, 500).decode("utf-8", "replace").strip()
            cure = "Wait for it, or name another folder with --out."
            raise InputError(msg, where=str(out), found=found or None, cure=cure) from error
        os.ftruncate(handle, 0)
        owner = {"pid": os.getpid(), "host": socket.gethostname(), "since": folders.now()}
        os.write(handle, json.dumps(owner).encode())
        yield
    finally:
        os.close(handle)


class _Driver:
    """One start of a sweep."""

    def __init__(
        self,
        sweep: Sweep,
        out: Path,
        executor: Executor,
        manifest: Manifest,
        observer: Observer | None,
    ) -> None:
        self.sweep, self.out, self.executor = sweep, out, executor
        self.manifest = manifest
        self.observer = observer or (lambda change: None)
        self.topic = f"perfml-{secrets.token_hex(8)}"
        self.events: queue.Queue[tuple[str, Any]] = queue.Queue()
        self.began: dict[str, tuple[float, dict[str, Any], int]] = {}
        self.open: set[str] = set()
        self.flying: dict[str, Any] = {}
        self.total = len(sweep.runs)
        self.gpu_seconds = 0.0
        self.launches = 0
        self.lost = 0
        self.warnings: dict[str, list[str]] = {}
        self.started = time.monotonic()
        self.waited = math.nan

    def drive(self) -> Outcome:
        runs = self.sweep.runs
        kept = finished_runs(runs, self.out)
        self.manifest.plan(runs, kept)
        left = {run_id: run for run_id, run in runs.items() if run_id not in kept}
        self.open = set(left)
        for number, run_id in enumerate(kept, 1):
            self.observer(Change(run_id, "kept", finished=number, total=self.total))
        if left:
            self._measure(left)
        states = self.manifest.states
        own = tuple(states[run_id] for run_id in runs)
        return Outcome(
            self.out,
            own,
            len(kept),
            round(time.monotonic() - self.started, 3),
            round(self.gpu_seconds, 3),
            self.launches,
            self.lost,
            self.warnings,
            len(states) - len(own),
            self.waited,
            self._devices(),
        )

    def _devices(self) -> dict[str, int]:
        records = (folders.finished(self.out, run_id) for run_id in self.sweep.runs)
        return dict(
            Counter(record["device"] for record in records if record and record.get("device"))
        )

    def _measure(self, runs: dict[str, Run]) -> None:
        waiting = deque(longest_first(runs))
        with workers(self.executor) as client:
            client.subscribe_topic(self.topic, self._heard)
            try:
                self._follow(client, waiting)
            except BaseException:
                self._stop(client)
                raise
            finally:
                with contextlib.suppress(Exception):
                    client.unsubscribe_topic(self.topic)

    def _heard(self, event: tuple[float, Any]) -> None:
        message = event[1]
        ended = "status" in message
        self.events.put(("ended", (message["run_id"], message)) if ended else ("begun", message))

    def _submit(self, client: Any, run_id: str) -> None:
        from collectors.sweep.task import Task, measure_run

        limits = (self.sweep.launcher, self.sweep.timeout_s)
        task = Task(self.sweep.runs[run_id], run_id, str(self.out), *limits, self.topic)
        key = f"{run_id}-{self.topic}"
        future = client.submit(measure_run, task, key=key, pure=False, resources={RESOURCE: 1})
        self.flying[run_id] = future
        future.add_done_callback(lambda each: self._ended(run_id, each))

    def _ended(self, run_id: str, future: Any) -> None:
        """Take a future's result; called in a thread of the client."""
        if future.status == "cancelled":
            self.events.put(("gone", run_id))
            return
        try:
            self.events.put(("ended", (run_id, future.result(timeout=30))))
        except Exception as error:
            self.events.put(("broken", (run_id, error)))

    def _follow(self, client: Any, waiting: deque[str]) -> None:
        """Hand out runs and handle what becomes of them until every one has ended.

        No more are handed out than there are workers: Dask would hold a run that only waits at a
        worker to blame for that worker's death, as much as the one that was measured.
        """
        seen = time.monotonic()
        while self.open:
            count = _workers(client)
            while waiting and len(self.flying) < count:
                self._submit(client, waiting.popleft())
            if count:
                seen = time.monotonic()
            elif time.monotonic() - seen > _ALONE_S:
                msg = "no worker is left"
                found = f"{len(self.open)} runs are not done"
                raise ExecutorError(msg, found=found, cure=_RESUME) from None
            with contextlib.suppress(queue.Empty):
                self._handle(*self.events.get(timeout=_POLL_S))

    def _handle(self, kind: str, content: Any) -> None:
        if kind == "begun":
            self._begun(content)
            return
        if kind == "gone":
            msg = "the scheduler went away, or dropped a run"
            found = f"{len(self.open)} runs are not done"
            raise ExecutorError(msg, found=found, cure=_RESUME)
        run_id = content[0]
        self.flying.pop(run_id, None)
        if kind == "ended":
            self._result(content[1])
        else:
            self._broken(run_id, content[1])

    def _begun(self, message: dict[str, Any]) -> None:
        run_id = message["run_id"]
        if run_id not in self.open:
            return
        if run_id in self.began:
            self._close_attempt(run_id)
            self.lost += 1
        place = {name: str(message.get(name, "")) for name in ("worker", "host", "gpu")}
        attempt = self.manifest.begin(run_id, since=time.time(), **place)
        self.began[run_id] = (time.monotonic(), place, attempt)
        if math.isnan(self.waited):
            self.waited = round(time.monotonic() - self.started, 3)
        self.observer(self._change(run_id, "running"))

    def _close_attempt(self, run_id: str) -> None:
        """Count the GPU time of an attempt that has ended, or whose worker is gone."""
        if run_id in self.began:
            self.gpu_seconds += time.monotonic() - self.began.pop(run_id)[0]

    def _change(self, run_id: str, state: str, **details: Any) -> Change:
        _, place, attempt = self.began.get(run_id, (0.0, {}, 0))
        finished = self.total - len(self.open)
        return Change(
            run_id,
            state,
            **place,
            attempt=attempt,
            finished=finished,
            total=self.total,
            **details,
        )

    def _result(self, result: dict[str, Any]) -> None:
        run_id, status, message = result["run_id"], result["status"], result["message"]
        if run_id not in self.open:
            return
        if run_id not in self.began and result.get("begun"):
            self._begun(result["begun"])  # the message itself is late
        record = folders.finished(self.out, run_id) if status in ("done", "kept") else None
        if record is not None:
            self._done(record, result.get("warnings", ()), result.get("seconds"))
            return
        if status in ("done", "kept"):
            message = (
                f"{run_id}: the worker finished it, but not into this folder\n"
                "The folder must be on a file system that all machines share."
            )
        elif status == "busy":
            message = f"{run_id}: {message}\nWait for it, then go on with --resume."
        self._close(run_id, "failed", message, seconds=result.get("seconds"))

    def _done(
        self, record: dict[str, Any], warnings: Iterable[str] = (), seconds: float | None = None
    ) -> None:
        """Close a run whose folder is finished, whether or not its worker lived to say so."""
        run_id, launches = record["run_id"], record.get("launches_profiled")
        told = list(warnings) or record.get("warnings")
        if told:
            self.warnings[run_id] = list(told)
        if run_id in self.began:  # else another process measured it meanwhile
            self.launches += launches or 0
            seconds = seconds or time.monotonic() - self.began[run_id][0]
        rate = record.get("seconds_per_launch")
        self._close(run_id, "done", "", launches, seconds=seconds, seconds_per_launch=rate)

    def _close(
        self,
        run_id: str,
        state: RunState,
        message: str,
        launches: int | None = None,
        **details: Any,
    ) -> None:
        """Note that a run has ended, and tell it."""
        self.open.discard(run_id)
        change = self._change(run_id, state, message=message, launches=launches, **details)
        self._close_attempt(run_id)
        self.manifest.end(run_id, state, message=message, launches=launches)
        self.observer(change)

    def _broken(self, run_id: str, error: Exception) -> None:
        """Give a run up that took its workers down, or that could not be sent.

        A run that is finished is done: only its result was lost, with the worker that held it.
        """
        record = folders.finished(self.out, run_id)
        if record is not None:
            self._done(record)
            return
        if type(error).__name__ == "KilledWorker":
            place = self.began.get(run_id, (0.0, {}, 0))[1]
            what = (
                f"{run_id}: every worker that measured it died, the last on "
                f"{place.get('host') or 'an unknown host'}\n"
                "Out of memory is the usual cause; --resume tries it again."
            )
            self.lost += 1
        else:
            what = (
                f"{run_id}: the worker could not do it: {type(error).__name__}: "
                f"{str(error)[:300]}\nWorkers need perfml in the same version as the driver."
            )
        self._close(run_id, "failed", what)

    def _stop(self, client: Any) -> None:
        """End what runs now and leave nothing half done; as much of it as the workers allow."""
        from collectors.sweep.task import stop

        end = time.monotonic() + _STOP_S
        with contextlib.suppress(Exception):
            while not all(client.run(stop, self.topic, on_error="ignore").values()):
                if time.monotonic() > end:
                    break
                time.sleep(0.1)
        with contextlib.suppress(Exception):
            client.cancel(list(self.flying.values()), force=True)
        for run_id in list(self.open):
            # a run may have been finished while the stop was on its way
            record = folders.finished(self.out, run_id)
            state: RunState = "pending" if record is None else "done"
            launches = None if record is None else record.get("launches_profiled")
            self._close_attempt(run_id)
            self.manifest.end(run_id, state, launches=launches)


_RESUME = "Go on with --resume; finished runs are kept."


def _workers(client: Any) -> int:
    """Return how many workers with a GPU there are now."""
    try:
        found = client.scheduler_info()["workers"].values()
    except Exception:  # the scheduler may be gone: then there are none
        return 0
    return sum(bool(each.get("resources", {}).get(RESOURCE)) for each in found)
