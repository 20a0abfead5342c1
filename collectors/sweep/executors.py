"""Where a sweep's runs are measured: Dask clusters whose workers have one GPU each.

Either one worker process is started a GPU of this machine, or those of a scheduler that is there
are used. Both give a Dask client; runs ask for the resource ``GPU``, of which every worker has one,
so no two of them share a GPU.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collectors.profilers.gpu import gpus
from perfml.errors import InputError, PerfmlError
from perfml.util.installed import import_extra

FOREIGN = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MALLOC_TRIM_THRESHOLD_")
"""Variables that Dask sets for its workers, and that no measured program should get from it."""

RESOURCE = "GPU"
PRELOAD = "collectors.sweep.task"
_WORKERS_S = 60.0
_CONFIG = {
    # the third worker that a run takes down with it is the last
    "distributed.scheduler.allowed-failures": 2,
    # runs take minutes; a worker that waits for a profiler is not idle
    "distributed.scheduler.work-stealing": True,
    "distributed.worker.profile.enabled": False,
    "distributed.admin.event-loop": "asyncio",
    # else the measured program would run with one thread, unlike under perfml collect
    "distributed.nanny.pre-spawn-environ": {
        **dict.fromkeys(FOREIGN),
        "DASK_LOGGING__DISTRIBUTED": "critical",
    },
}


class ExecutorError(PerfmlError):
    """The workers of a sweep cannot be had, or went away."""


@dataclass(frozen=True)
class Executor:
    """How to get workers."""

    gpus: tuple[str, ...] = ()  # of this machine, by the numbers of `nvidia-smi`
    address: str = ""  # or of a scheduler that is there, like `tcp://host:8786`


def choose_gpus(asked: str | None) -> tuple[str, ...]:
    """Return the GPUs of this machine to use.

    `asked` is ``"2"`` for the first two, ``"0,2"`` or ``"3,"`` for these, None for all. What
    ``CUDA_VISIBLE_DEVICES`` hides is not there.

    Raises `PerfmlError` if there are not as many, or no such ones.
    """
    numbers = [str(index) for index in range(len(gpus()))]
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        numbers = [number.strip() for number in visible.split(",") if number.strip() in numbers]
    if asked is None:
        chosen = numbers
    elif "," in asked:
        chosen = list(dict.fromkeys(word.strip() for word in asked.split(",") if word.strip()))
    else:
        few = asked.isdigit() and 0 < int(asked) <= len(numbers)
        chosen = numbers[: int(asked)] if few else []
    if not chosen or not set(chosen) <= set(numbers):
        msg = "there are no such GPUs here"
        cure = "Give how many (2), or which (0,2); CUDA_VISIBLE_DEVICES may hide some."
        found = f"{asked}; here are {', '.join(numbers) or 'none'}"
        raise InputError(msg, where="--gpus", found=found, cure=cure)
    return tuple(chosen)


@contextlib.contextmanager
def workers(executor: Executor) -> Iterator[Any]:
    """Give a Dask client whose workers measure; they are ended with the block.

    Raises `MissingExtraError` if Dask is not installed. Raises `ExecutorError` if a GPU is in use
    by another sweep, or no worker with a GPU can be reached.
    """
    needed = ("distributed", "perfml sweep", "dask")  # one package is told for both modules
    dask, distributed = (import_extra(package, *needed) for package in ("dask", "distributed"))
    # what happens to workers is told in the sweep's own words
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    with dask.config.set(_CONFIG), contextlib.ExitStack() as stack:
        if executor.address:
            client = stack.enter_context(_connected(distributed, executor.address))
            _require_gpus(client, executor.address)
        else:
            cluster = stack.enter_context(_local(distributed, executor))
            client = stack.enter_context(distributed.Client(cluster, set_as_default=False))
        yield client


@contextlib.contextmanager
def _connected(distributed: Any, address: str) -> Iterator[Any]:
    try:
        client = distributed.Client(address, timeout="10s", set_as_default=False)
    except (OSError, ValueError) as error:
        msg = "no Dask scheduler answers"
        cure = "Start one with: dask scheduler; it prints its address."
        found = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        raise ExecutorError(msg, where=address, found=found, cure=cure) from error
    try:
        yield client
    finally:
        client.close(timeout=5)


def _require_gpus(client: Any, address: str) -> None:
    """Without a worker that offers the resource, every run would wait for ever."""
    end = time.monotonic() + _WORKERS_S
    while True:
        found = client.scheduler_info()["workers"].values()
        if any(each.get("resources", {}).get(RESOURCE) for each in found):
            return
        if found or time.monotonic() >= end:
            break
        time.sleep(0.5)
    msg = "no worker of this scheduler offers a GPU"
    cure = (
        "Start one a GPU: CUDA_VISIBLE_DEVICES=0 dask worker "
        f"{address} --nthreads 1 --resources GPU=1 --preload {PRELOAD}"
    )
    raise ExecutorError(msg, where=address, found=f"{len(found)} workers", cure=cure)


@contextlib.contextmanager
def _local(distributed: Any, executor: Executor) -> Iterator[Any]:
    _require_free(executor.gpus)
    folder = Path(tempfile.mkdtemp(prefix="perfml-dask-"))
    security = _security(distributed)
    specification = {
        f"gpu-{gpu}": {
            "cls": distributed.Nanny,
            "options": {
                "nthreads": 1,
                "resources": {RESOURCE: 1},
                "memory_limit": 0,
                "local_directory": str(folder),
                "preload": [PRELOAD],
                "security": security,
                # numbers as nvidia-smi gives them, not fastest first as CUDA would
                "env": {"CUDA_VISIBLE_DEVICES": gpu, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"},
            },
        }
        for gpu in executor.gpus
    }
    scheduler = {
        "cls": distributed.Scheduler,
        "options": {
            "host": "127.0.0.1",
            "port": 0,
            "dashboard": False,
            "security": security,
            "protocol": "tls" if security else "tcp",
        },
    }
    try:
        with distributed.SpecCluster(
            workers=specification,
            scheduler=scheduler,
            security=security,
            silence_logs="CRITICAL",
            shutdown_on_close=True,
        ) as cluster:
            yield cluster
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _security(distributed: Any) -> Any:
    """Return one-time keys, so that nobody else on this machine can give the workers tasks.

    Without the package cryptography there are none, and the workers listen on loopback only.
    """
    try:
        return distributed.Security.temporary()
    except ImportError:
        return None


def _require_free(chosen: Sequence[str]) -> None:
    """Refuse GPUs that another sweep measures on; the workers' own locks make it sure."""
    from collectors.sweep.task import lock_of

    for gpu in chosen:
        handle = os.open(lock_of(gpu), os.O_CREAT | os.O_RDWR, 0o600)
        try:
            end = time.monotonic() + _FREED_S
            while not _free(handle):
                if time.monotonic() >= end:
                    msg = "another sweep measures on this GPU"
                    cure = "Wait for it, or choose other GPUs with --gpus."
                    raise ExecutorError(msg, where=f"GPU {gpu}", cure=cure)
                time.sleep(0.1)
        finally:
            os.close(handle)


_FREED_S = 25.0
"""A sweep that was killed has let go of its GPUs after this many seconds at most."""


def _free(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
