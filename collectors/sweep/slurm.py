"""Slurm through dask-jobqueue: one job a GPU, each with one worker."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable
from typing import Any

from perfml.errors import InputError
from perfml.util.installed import import_extra

_TEXTS = ("queue", "account", "walltime", "memory", "interface", "local_directory", "python")
_LISTS = ("directives", "prologue")
_NUMBERS = ("jobs", "cores")
OPTIONS = (*_NUMBERS, *_TEXTS, *_LISTS)
_WALLTIME = re.compile(r"(\d+-)?\d{1,3}(:\d{2}){1,2}|\d+")

FOREIGN = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MALLOC_TRIM_THRESHOLD_")
"""Variables that Dask sets for its workers, and that no measured program should get from it."""

_PLAIN_ENVIRONMENT = "export DASK_DISTRIBUTED__NANNY__PRE_SPAWN_ENVIRON=" + shlex.quote(
    str(dict.fromkeys(FOREIGN))
)
"""Dask reads this as a Python literal; None takes a variable out of what it sets for workers."""


def check_options(options: dict[str, Any], where: Callable[[str], str]) -> None:
    """Refuse options that are unknown, of the wrong kind, or misunderstood by dask-jobqueue.

    They are ``jobs`` (how many at most), ``cores``, ``memory``, ``queue``, ``account``,
    ``walltime``, ``directives`` (lines of the job script, such as ``--gres=gpu:1``), ``prologue``
    (shell lines before the worker starts), ``interface``, ``local_directory``, ``python``. `where`
    gives an option's place in the sweep's file, for the `InputError`.
    """
    for name, value in options.items():
        if name not in OPTIONS:
            msg = f"there is no option {name!r} for Slurm"
            raise InputError(msg, where=where(name), cure=f"Known: {', '.join(OPTIONS)}.")
        number = isinstance(value, int) and not isinstance(value, bool)
        if name in _NUMBERS:
            _require(number and value >= 1, "a whole number from 1", name, value, where)
        elif name in _LISTS:
            lines = isinstance(value, list) and all(
                isinstance(line, str) and "\n" not in line for line in value
            )
            _require(lines, "a list of lines", name, value, where)
        else:
            line = isinstance(value, str) and value.strip() and "\n" not in value
            _require(bool(line), "one line of text", name, value, where)
    walltime = options.get("walltime")
    if walltime is not None and not _WALLTIME.fullmatch(walltime):
        msg = "a time limit is written like 02:00:00 or 1-00:00:00, in quotes"
        raise InputError(msg, where=where("walltime"), found=walltime)


def _require(right: bool, what: str, name: str, value: Any, where: Callable[[str], str]) -> None:
    if not right:
        msg = f"{name} must be {what}"
        raise InputError(msg, where=where(name), found=repr(value)[:100])


def slurm_cluster(options: dict[str, Any], *, preload: str, log_directory: str) -> Any:
    """Return a `dask_jobqueue.SLURMCluster` with no job yet.

    Every job asks for one GPU unless ``directives`` ask for GPUs in the site's own words, and
    runs one worker that measures one run at a time.

    `options` are those of `check_options`; a worker imports the module `preload` when it starts.

    Raises `MissingExtraError` if dask-jobqueue is not installed.
    """
    jobqueue = import_extra("dask_jobqueue", "distributed", "--executor slurm", "dask-jobqueue")
    directives = list(options.get("directives", []))
    if not any("gpu" in line or "gres" in line for line in directives):
        directives.append("--gres=gpu:1")
    optional = {
        name: options[name]
        for name in ("queue", "account", "interface", "local_directory")
        if name in options
    }
    return jobqueue.SLURMCluster(
        job_name="perfml",
        cores=options.get("cores", 4),
        processes=1,
        memory=options.get("memory", "16GB"),
        walltime=options.get("walltime", "01:00:00"),
        job_extra_directives=directives,
        job_script_prologue=[_PLAIN_ENVIRONMENT, *options.get("prologue", [])],
        worker_extra_args=["--resources", "GPU=1", "--preload", preload],
        log_directory=log_directory,
        python=options.get("python", sys.executable),
        scheduler_options={"dashboard": False},
        **optional,
    )
