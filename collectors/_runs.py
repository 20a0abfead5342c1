"""What one run is: a workload or a program under fixed settings, and the commands it takes."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from perfml._digest import sha256_of, sha256_of_file
from perfml.errors import InputError

PROFILERS = ("auto", "ncu", "nvprof")
TIMINGS = ("auto", "cupti", "ncu")
_RAW_METRIC = re.compile(r"[a-z0-9]+__\w+(\.\w+)*")
"""A metric under Nsight Compute's own name, which the catalogue need not know."""


@dataclass(frozen=True)
class Settings:
    """How to measure; the same for every run of a `collect`.

    Attributes
    ----------
    iterations
        Timed iterations of a built-in workload.
    metric_iterations
        Profiled iterations; a program's ranges called ``iter_N`` or ``step_N`` are limited to as
        many.
    warmup, seed
        Of a built-in workload.
    profiler
        One of `PROFILERS`.
    metrics
        nvprof's names, for the catalogue.
    raw_metrics
        Further metrics under Nsight Compute's names.
    layers
        Regular expression: only launches in layers whose name it matches are profiled.
    replay, cache_control
        See `collectors.profilers.ncu.NcuOptions`.
    timing
        How a program that is no built-in workload is timed, one of `TIMINGS`.
    dedupe
        Measure identical launches once.
    workload_options
        Further arguments of the built-in workload (``--cfg FILE``).
    """

    iterations: int = 10
    metric_iterations: int = 3
    warmup: int = 5
    seed: int = 0
    profiler: str = "auto"
    metrics: tuple[str, ...] = ("published",)
    raw_metrics: tuple[str, ...] = ()
    layers: str | None = None
    replay: str = "kernel"
    cache_control: str = "all"
    timing: str = "auto"
    dedupe: bool = False
    workload_options: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for option, number in (
            ("--iterations", self.iterations),
            ("--metric-iterations", self.metric_iterations),
        ):
            if number < 1:
                msg = "at least one iteration is needed"
                raise InputError(msg, where=option, found=str(number))
        for option, value, known in (
            ("--profiler", self.profiler, PROFILERS),
            ("--timing", self.timing, TIMINGS),
        ):
            if value not in known:
                msg = f"must be one of {', '.join(known)}"
                raise InputError(msg, where=option, found=value)
        if self.layers is not None:
            try:
                re.compile(self.layers)
            except re.error as error:
                msg = "not a regular expression"
                raise InputError(msg, where="--layers", found=str(error)) from error


@dataclass(frozen=True)
class Run:
    """One run: a built-in workload in one configuration, or a program.

    Attributes
    ----------
    workload
        Name of the built-in workload, or the program's file name.
    backend, precision, batch
        Of a built-in workload; None for a program.
    program
        Argument list of a program; empty for a built-in workload.
    layer_map
        The layer map as a document, for a program without NVTX ranges.
    """

    workload: str
    backend: str | None = None
    precision: str | None = None
    batch: int | None = None
    program: tuple[str, ...] = ()
    layer_map: dict[str, Any] | None = None
    settings: Settings = field(default_factory=Settings)

    @property
    def run_id(self) -> str:
        """A name that tells what the run is, and changes with anything that defines it."""
        identity = json.dumps(
            {**asdict(self), "files": [_digest(each) for each in self._words]},
            sort_keys=True,
            default=str,
        )
        digest = sha256_of(identity.encode())[:10]
        parts = [self.workload, self.backend, self.precision]
        parts += [f"b{self.batch}"] if self.batch is not None else []
        words = [re.sub(r"[^A-Za-z0-9.]+", "-", str(part)).strip("-.") for part in parts if part]
        return "-".join([*(word for word in words if word), digest])[-120:]

    @property
    def _words(self) -> tuple[str, ...]:
        return self.program or self.settings.workload_options

    @property
    def built_in(self) -> bool:
        """Whether this is a workload that perfml brings."""
        return not self.program

    def command(self, mode: str, folder: Path) -> list[str]:
        """Return the argument list of the program to measure.

        Parameters
        ----------
        mode
            ``profile`` or ``timing``; a program of the user's runs the same in both.
        folder
            Where a built-in workload writes what it records.
        """
        if not self.built_in:
            return list(self.program)
        profiled = mode == "profile"
        options = {
            "backend": self.backend,
            "precision": self.precision,
            "batch": self.batch,
            "iterations": (
                self.settings.metric_iterations if profiled else self.settings.iterations
            ),
            "warmup": self.settings.warmup,
            "seed": self.settings.seed,
            "mode": mode,
            "out": folder,
        }
        command = [sys.executable, "-m", "collectors.workloads.run", self.workload]
        for name, value in options.items():
            command += [f"--{name}", str(value)]
        return [*command, *self.settings.workload_options]

    def environment(self, cache: Path | None = None) -> dict[str, str]:
        """Return the variables the program needs on top of perfml's own.

        Parameters
        ----------
        cache
            Where JAX may keep what it compiled from one pass to the next.
        """
        if self.built_in:
            root = str(Path(__file__).resolve().parent.parent)
            return {
                "PYTHONPATH": os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
            }
        # JAX reserves three quarters of the GPU's memory, which a counter profiler would save and
        # restore for every pass: 40 s a launch instead of 0.15 (an H200, JAX 0.11)
        variables = {_PREALLOCATE: os.environ.get(_PREALLOCATE, "false")}
        if cache is not None:
            # all passes run the same compiled code, and none tries kernels out in between
            variables |= {
                "JAX_COMPILATION_CACHE_DIR": str(cache),
                "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
                "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
            }
        return variables


def _digest(argument: str) -> str | None:
    """Return the hash of the file an argument names: a program built anew is another run."""
    path = Path(shutil.which(argument) or argument)
    try:
        if not path.is_file() or path.stat().st_size > _LARGEST_HASHED:
            return None
        return sha256_of_file(path)
    except (OSError, ValueError):
        return None


_LARGEST_HASHED = 64 * 1024 * 1024
_PREALLOCATE = "XLA_PYTHON_CLIENT_PREALLOCATE"


def metric_names(given: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Split what the user asked for into catalogue metrics and raw ones.

    Parameters
    ----------
    given
        Names of metrics or sets, or files with one name a line (``#`` starts a comment).

    Raises
    ------
    PerfmlError
        If a name is neither known nor in Nsight Compute's form.
    """
    from perfml.metrics import load_catalogue

    words: list[str] = []
    for name in given:
        path = Path(name)
        if os.sep in name or path.suffix in (".txt", ".csv", ".list"):
            words += _metric_file(path)
        else:
            words += [word for word in name.split(",") if word]
    catalogue = load_catalogue()
    raw = tuple(dict.fromkeys(word for word in words if _RAW_METRIC.fullmatch(word)))
    known = catalogue.select([word for word in words if word not in raw])
    if not known and not raw:
        msg = "no metric to collect"
        raise InputError(msg, where="--metrics", cure="Sets are: published, stalls, roofline.")
    return known, raw


def _metric_file(path: Path) -> list[str]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        msg = "cannot read the list of metrics"
        raise InputError(msg, where=str(path), found=str(error)[:200]) from error
    lines = [line.partition("#")[0].strip() for line in text.splitlines()]
    return [line for line in lines if line]
