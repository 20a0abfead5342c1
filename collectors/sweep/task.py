"""What a Dask worker does for a sweep: measure one run at a time on the GPU it was given."""

from __future__ import annotations

import ctypes
import functools
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collectors.collect import collect_one
from collectors.execution import ExecutionContext
from collectors.profilers.gpu import Gpu, gpus
from collectors.profilers.process import ProfilerError
from collectors.run_folder import finished
from collectors.run_spec import Run
from collectors.sweep import guard as guard_script
from perfml import __version__
from perfml.errors import PerfmlError

MARK = "PERFML_SWEEP_WORKER"
_VISIBLE = "CUDA_VISIBLE_DEVICES"


class Stopped(BaseException):
    """Thrown into a task that measures, so that it ends its children and removes its half run."""


@dataclass(frozen=True)
class Task:
    """One run, as it travels to a worker."""

    run: Run
    run_id: str  # its id where the driver is; a program that differs here would give another
    out: str  # absolute path of the results, the same on every machine
    # launcher, timeout_s: as of `collectors.execution.ExecutionContext`
    launcher: tuple[str, ...]
    timeout_s: float
    sweep: str  # name of this start of the sweep: the topic of its messages
    version: str = __version__  # perfml's version where the driver is


@dataclass
class _Worker:
    """The part of this process in sweeps: its guard, and the task it is at."""

    guard: subprocess.Popen[bytes] | None = None
    thread: int | None = None
    sweep: str = ""
    stopped: frozenset[str] = frozenset()


_STATE = _Worker()
_LOCK = threading.Lock()


def dask_setup(worker: Any) -> None:
    """Let a Ctrl-C at the terminal reach the driver alone; Dask calls this at a worker's start."""
    del worker
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def measure_run(task: Task) -> dict[str, Any]:
    """Measure one run; return what became of it as plain values.

    Returns
    -------
    dict
        ``run_id``, ``status`` (as of `collectors.collect.RunResult`, or ``stopped``), ``message``,
        ``warnings``, ``seconds``, and ``begun``, the message that `announce` sent. A run that is
        finished is ``kept`` and not begun: Dask asks again if a worker dies with its result.
    """
    with _LOCK:
        if task.sweep in _STATE.stopped:
            return _answer(task, "stopped")
        _STATE.thread, _STATE.sweep = threading.get_ident(), task.sweep
    began = time.monotonic()
    try:
        return _measured(task, began)
    except Stopped:
        return _answer(task, "stopped")
    except PerfmlError as error:
        return _answer(task, "failed", message=str(error))
    finally:
        with _LOCK:
            _STATE.thread = None


def _measured(task: Task, began: float) -> dict[str, Any]:
    _check_same(task)
    if finished(Path(task.out), task.run_id) is not None:
        return _answer(task, "kept")
    _hold_gpu(task.timeout_s)
    begun = announce(task)
    gpu = None if task.launcher else own_gpu()
    context = ExecutionContext(gpu, task.launcher, task.timeout_s)
    found = collect_one(task.run, context, Path(task.out))
    answer = _answer(
        task,
        found.status,
        message=found.message,
        warnings=list(found.warnings),
        seconds=round(time.monotonic() - began, 3),
        begun=begun,
    )
    _tell(task, answer)  # Dask keeps results with the worker, which the next run may kill
    return answer


def _answer(task: Task, status: str, **details: Any) -> dict[str, Any]:
    return {"run_id": task.run_id, "status": status, "message": "", **details}


def _check_same(task: Task) -> None:
    if task.version != __version__:
        msg = "this worker has another version of perfml than the driver"
        cure = "Install the same on both."
        found = f"{__version__} here on {socket.gethostname()}, {task.version} there"
        raise ProfilerError(msg, found=found, cure=cure)
    if task.run.run_id != task.run_id:
        msg = "the program, or a file it is given, is not what it was when the sweep was planned"
        cure = "Put it on a file system that all machines share, and leave it alone meanwhile."
        raise ProfilerError(msg, where=socket.gethostname(), found=task.run.run_id, cure=cure)


def announce(task: Task) -> dict[str, str]:
    """Tell the driver that a run begins, and where; return the same message."""
    from distributed import get_worker

    message = {
        "run_id": task.run_id,
        "worker": str(get_worker().name),
        "host": socket.gethostname(),
        "gpu": os.environ.get(_VISIBLE, ""),
    }
    _tell(task, message)
    return message


def _tell(task: Task, message: dict[str, Any]) -> None:
    """Send a message to the driver.

    Waits until the scheduler has it: `Worker.log_event` alone may lose what it was told, if the
    worker is killed at once.
    """
    from distributed import get_worker
    from distributed.utils import sync

    worker = get_worker()
    sync(worker.loop, worker.scheduler.log_event, topic=task.sweep, msg=message)


@functools.cache
def own_gpu() -> Gpu:
    """Return the GPU that this process sees first; ``nvidia-smi`` always shows all.

    A worker keeps its GPU as long as it lives, so the driver is asked once and not for each run.
    """
    found = gpus()
    first = os.environ.get(_VISIBLE, "").split(",")[0].strip()
    if first.isdigit() and int(first) < len(found):
        return found[int(first)]
    return found[0]


def _hold_gpu(patience_s: float) -> None:
    """Claim the GPU for this process, once; wait for what a killed predecessor left there.

    Also gives the process a temporary folder of its own: Nsight Compute takes a lock there,
    which would let profilers on different GPUs wait for each other.
    """
    if _STATE.guard is not None and _STATE.guard.poll() is None:
        return
    name = os.environ.get(_VISIBLE, "").replace(",", "-").replace("/", "-") or "any"
    folder = shared_folder()
    mark = secrets.token_hex(16)
    guard = subprocess.Popen(  # noqa: S603
        [
            sys.executable,
            "-S",
            "-E",
            guard_script.__file__,
            str(lock_of(name)),
            f"{MARK}={mark}",
            str(patience_s),
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
        env={key: value for key, value in os.environ.items() if key != MARK},
    )
    assert guard.stdout is not None
    if guard.stdout.readline().decode().strip() != guard_script.READY:
        msg = "the GPU is in use by another sweep"
        cure = "Wait for it, or choose other GPUs with --gpus."
        raise ProfilerError(msg, where=f"GPU {name} of {socket.gethostname()}", cure=cure)
    temporary = folder / f"gpu-{name}"
    temporary.mkdir(exist_ok=True, mode=0o700)
    os.environ |= {MARK: mark, "TMPDIR": str(temporary)}
    _STATE.guard = guard


def shared_folder() -> Path:
    """Return this user's folder for locks on this machine; private, as a lock must be."""
    # of this module's start: TMPDIR is changed later
    folder = Path(_TEMPORARY) / f"perfml-{os.getuid()}"
    folder.mkdir(exist_ok=True, mode=0o700)
    if folder.stat().st_uid != os.getuid():
        msg = "the folder for locks belongs to somebody else"
        raise ProfilerError(msg, where=str(folder), cure="Set TMPDIR to a folder of your own.")
    return folder


def lock_of(gpu: str) -> Path:
    """Return the lock that whoever measures on a GPU of this machine holds."""
    return shared_folder() / f"gpu-{gpu}.lock"


_TEMPORARY = tempfile.gettempdir()


def stop(sweep: str) -> bool:
    """Stop what this worker measures for a sweep; return whether nothing is left of it.

    Runs in the worker's event loop while the task runs in its thread: the task gets an exception,
    ends its children and removes its half run. Call it again until it returns True.
    """
    with _LOCK:
        first = sweep not in _STATE.stopped
        _STATE.stopped |= {sweep}
        if _STATE.thread is None or _STATE.sweep != sweep:
            return True
        if first:
            target = ctypes.c_ulong(_STATE.thread)
            ctypes.pythonapi.PyThreadState_SetAsyncExc(target, ctypes.py_object(Stopped))
        return False
