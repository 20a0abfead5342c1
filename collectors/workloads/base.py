"""What a workload is to the runner: options in, a session out."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from perfml.errors import InputError

from .ranges import Ranges


@dataclasses.dataclass(frozen=True)
class Options:
    """What to run."""

    # backend, precision: one of the workload's backends and one of that backend's precisions
    backend: str
    precision: str = "fp32"
    batch: int = 1  # images (or sequences) in one inference
    seed: int = 0  # seed of random weights and inputs
    device: str = "cuda"  # `cuda`, or `cpu` to run the same definition without a GPU
    # Let cuDNN time its algorithms during the warm-up and keep the fastest
    cudnn_benchmark: bool = True
    cfg: Path | None = None  # the user's own network (Darknet); None for the built-in one
    # The workload's own settings as (key, value), in the order given (`--set KEY=VALUE`)
    settings: tuple[tuple[str, str], ...] = ()


@dataclasses.dataclass(frozen=True)
class CheckRow:
    """One output compared with the reference."""

    output: str  # name of the output
    error: float  # ‖output - reference‖ / ‖reference‖
    limit: float  # largest error that passes

    @property
    def passed(self) -> bool:
        """Whether the error is within the limit; NaN never passes."""
        return self.error <= self.limit


@dataclasses.dataclass(frozen=True)
class TimedKernel:
    """One kernel launch of a measured iteration, as a backend's own library times it."""

    iteration: int  # counted from 0
    layer: str  # innermost layer around the launch, empty if there is none
    kernel: str
    time_us: float  # duration in microseconds
    # Start in microseconds after the first one; NaN if the library reports durations only
    start_us: float
    # grid, block: launch configuration as `(x, y, z)`, empty if not known
    grid: str
    block: str


class Session(Protocol):
    """One workload under one backend, ready to run again and again on the same inputs."""

    def layer_names(self) -> tuple[str, ...]:
        """Names of all ranges that :meth:`run` opens, in order."""

    def describe(self) -> dict[str, Any]:
        """Everything about the workload and the backend's settings, as JSON values."""

    def active(self) -> AbstractContextManager[None]:
        """Put the library into this session's settings for a ``with`` block."""

    def run(self, ranges: Ranges) -> Any:
        """Run one inference, every layer inside its range, and return the outputs."""

    def synchronize(self) -> None:
        """Wait until the device is idle."""

    def check(self) -> list[CheckRow]:
        """Run one inference and compare every output with the reference.

        Afterwards inputs and memory are as they were before.
        """


class Workload(Protocol):
    """A built-in workload."""

    name: str
    summary: str
    check_first: bool
    """Whether every output is compared with the reference before a run is timed: where that takes
    a second or two. A workload with a dearer reference is checked by ``--mode check`` only."""

    def backends(self) -> tuple[str, ...]:
        """Names of the backends that implement it."""

    def precisions(self, backend: str) -> tuple[str, ...]:
        """Precisions of a backend; InputError if there is no such backend."""

    def session(self, options: Options) -> Session:
        """Build a session; imports the backend's library."""


class Ladder:
    """What workloads whose backends are versions of one kernel have in common."""

    versions: Mapping[str, tuple[str, ...]]
    """Backend to its precisions, in the order of the ladder."""

    def backends(self) -> tuple[str, ...]:
        """Return the versions in the order of the ladder, then the yardsticks."""
        return tuple(self.versions)

    def precisions(self, backend: str) -> tuple[str, ...]:
        """Return the precisions of a backend; InputError if there is no such version."""
        if backend not in self.versions:
            what, cure = "there is no such version", f"Choose one of: {', '.join(self.versions)}."
            raise InputError(what, where="--backend", found=backend, cure=cure)
        return self.versions[backend]


def parse_settings(given: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Read what follows ``--set``: words of the form KEY=VALUE.

    Raises `InputError` if a word has no ``=`` or no key.
    """
    pairs = [word.partition("=") for word in given]
    for word, (key, mark, _) in zip(given, pairs, strict=True):
        if not key.strip() or not mark:
            what, cure = "a setting is KEY=VALUE", "Example: --set sizes=small."
            raise InputError(what, where="--set", found=word, cure=cure)
    return tuple((key.strip(), value.strip()) for key, _, value in pairs)


def read_settings(options: Options, defaults: Mapping[str, str]) -> dict[str, str]:
    """Return a workload's settings, completed by their defaults.

    Raises `InputError` if a key is none of the workload's.
    """
    for key, _ in options.settings:
        if key not in defaults:
            known = ", ".join(f"{name}={value}" for name, value in defaults.items())
            what = "the workload has no setting of this name"
            cure = f"There are (with their defaults): {known}." if known else "It has none."
            raise InputError(what, where="--set", found=key, cure=cure)
    return {**defaults, **dict(options.settings)}


def check_options(workload: Workload, options: Options) -> None:
    """Raise InputError if the workload does not offer what the options ask for."""
    if options.precision not in workload.precisions(options.backend):
        what = f"the backend {options.backend} does not offer this precision"
        cure = f"Choose one of: {', '.join(workload.precisions(options.backend))}."
        raise InputError(what, where="--precision", found=options.precision, cure=cure)
    if options.batch < 1:
        what = "a batch holds at least one image"
        raise InputError(what, where="--batch", found=str(options.batch))
    if options.seed < 0:
        what = "a seed is an integer from 0"
        raise InputError(what, where="--seed", found=str(options.seed))
