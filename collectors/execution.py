"""What is measured, where, and under what limits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collectors.profilers.gpu import Gpu
from collectors.run_folder import LOG_FILE
from collectors.run_spec import Run


@dataclass(frozen=True)
class ExecutionContext:
    """Where and under what limits runs are measured."""

    gpu: Gpu | None  # the GPU of this machine; None if the launcher goes to another one
    launcher: tuple[str, ...] = ()  # goes in front of every command
    timeout_s: float = 1800.0  # limit of each command
    # Takes sentences on how long a run will take, while it is measured
    tell: Callable[[str], None] | None = None
    # Asked, with a sentence on how long, before counting takes over five minutes; None: never
    agrees: Callable[[str], bool] | None = None


@dataclass(frozen=True)
class Job:
    """One run to be measured, and the empty folder for its tables, exports and ``log.txt``."""

    subject: Run
    folder: Path
    context: ExecutionContext

    @property
    def log(self) -> Path:
        """What every program prints is appended to it."""
        return self.folder / LOG_FILE

    @property
    def cache(self) -> Path:
        """Where JAX keeps what it compiled from one pass to the next."""
        return self.folder / "cache"

    @property
    def limits(self) -> dict[str, Any]:
        """What every profiler is told of a program, by the names of its parameters."""
        return {
            "log": self.log,
            "timeout_s": self.context.timeout_s,
            "launcher": self.context.launcher,
            "env": self.subject.environment(self.cache),
        }
