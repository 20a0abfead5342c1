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

from collectors.settings import Settings
from collectors.workloads.torch_models.names import PREFIX
from perfml.errors import InputError
from perfml.util.files import sha256_of, sha256_of_file

_RAW_METRIC = re.compile(r"[a-z0-9]+__\w+(\.\w+)*")
"""A metric under Nsight Compute's own name, which the catalogue need not know."""


@dataclass(frozen=True)
class Run:
    """One run: a built-in workload in one configuration, or a program."""

    workload: str  # name of the built-in workload, or the program's file name
    # backend, precision, batch: of a built-in workload; None for a program
    backend: str | None = None
    precision: str | None = None
    batch: int | None = None
    program: tuple[str, ...] = ()  # argument list of a program; empty for a built-in workload
    # The layer map as a document, for a program without NVTX ranges
    layer_map: dict[str, Any] | None = None
    settings: Settings = field(default_factory=Settings)

    @property
    def run_id(self) -> str:
        """A name that tells what the run is, and changes with anything that defines it."""
        identity = json.dumps(
            {**asdict(self), "files": [_digest(word) for word in self._words]},
            sort_keys=True,
            default=str,
        )
        digest = sha256_of(identity.encode())[:10]
        parts = [self.workload, self.backend, self.precision]
        parts += [f"b{self.batch}"] if self.batch is not None else []
        words = [re.sub(r"[^A-Za-z0-9.]+", "-", str(part)).strip("-.") for part in parts if part]
        # cut, a name must not begin like an option or a hidden file
        return "-".join([*(word for word in words if word), digest])[-120:].lstrip("-.")

    @property
    def _words(self) -> tuple[str, ...]:
        """The arguments that may name files, whose contents are part of what the run is."""
        file = self.workload.removeprefix(PREFIX).rpartition(":")[0] if self.built_in else ""
        own = (file,) if file and self.workload.startswith(PREFIX) else ()
        return self.program or (*self.settings.workload_options, *own)

    @property
    def built_in(self) -> bool:
        """Whether this is a workload that perfml brings."""
        return not self.program

    def command(self, mode: str, folder: Path, *, iterations: int | None = None) -> list[str]:
        """Return the argument list of the program to measure.

        `mode` is ``profile``, ``timing``, ``counters`` or ``check``; a program of the user's runs
        the same in all. `iterations` are by default those to profile in the mode ``profile``, and
        those to time in the others.
        """
        if not self.built_in:
            return list(self.program)
        if iterations is None:
            profiled = mode == "profile"
            settings = self.settings
            iterations = settings.metric_iterations if profiled else settings.iterations
        options = {
            "backend": self.backend,
            "precision": self.precision,
            "batch": self.batch,
            "iterations": iterations,
            "warmup": self.settings.warmup,
            "seed": self.settings.seed,
            "mode": mode,
            "out": folder,
        }
        command = [sys.executable, "-m", "collectors.workloads.runner", self.workload]
        for name, value in options.items():
            command += [f"--{name}", str(value)]
        return [*command, *self.settings.workload_options]

    def environment(self, cache: Path | None = None) -> dict[str, str]:
        """Return the variables the program needs on top of perfml's own.

        JAX keeps what it compiled from one pass to the next in `cache`.
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
    """Split names, sets and files (one name a line, ``#``) into catalogue metrics and raw ones.

    Raises `PerfmlError` if a name is neither known nor in Nsight Compute's form.
    """
    from perfml.metrics import EVERY, load_catalogue

    words: list[str] = []
    for name in given:
        path = Path(name)
        if os.sep in name or path.suffix in (".txt", ".csv", ".list"):
            words += _metric_file(path)
        else:
            words += [word for word in name.split(",") if word]
    catalogue = load_catalogue()
    raw = tuple(dict.fromkeys(word for word in words if _RAW_METRIC.fullmatch(word)))
    named = [word for word in words if word not in raw]
    # "all" stays a word: it means more to nvprof than what the catalogue knows
    known = (EVERY,) if EVERY in named else catalogue.select(named)
    if not known and not raw:
        msg = "no metric to collect"
        raise InputError(
            msg, where="--metrics", cure="Sets are: default, published, stalls, roofline, all."
        )
    return known, raw


def _metric_file(path: Path) -> list[str]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        msg = "cannot read the list of metrics"
        raise InputError(msg, where=str(path), found=str(error)[:200]) from error
    lines = [line.partition("#")[0].strip() for line in text.splitlines()]
    return [line for line in lines if line]
