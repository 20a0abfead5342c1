"""How to measure: every option of ``perfml collect`` that holds for all runs, once.

A field of `Settings` with an `Option` is an option of the command line (`command_line_options`),
a key of a sweep's file (`collectors.sweep.options`), a part of the run's id, and a line of
``run.json`` under ``options``.
"""

from __future__ import annotations

import re
import sys
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from inspect import Parameter
from typing import Annotated, Any

from perfml.errors import InputError

PROFILERS = ("auto", "cupti", "ncu", "nvprof")
TIMINGS = ("auto", "cupti", "ncu")


@dataclass(frozen=True)
class Option:
    """What there is to know of an option besides its name and default."""

    help: str  # what it does, as the command line says it
    choices: tuple[str, ...] = ()  # the words it may be; empty for any
    least: int | None = None  # the smallest number it may be; None for any
    flag: str | None = None  # the option's spelling where it is only switched on


def _option(default: Any, help: str, **rest: Any) -> Any:
    return field(default=default, metadata={"option": Option(help, **rest)})


@dataclass(frozen=True)
class Settings:
    """How to measure; the same for every run of a `collect`.

    The help of each option says what it does. Three fields come out of several options:
    ``metrics`` (nvprof's names, for the catalogue), ``raw_metrics`` (further metrics under Nsight
    Compute's names) and ``workload_options`` (arguments of the built-in workload, ``--cfg FILE``).

    Raises
    ------
    InputError
        If a value is none of the choices, too small, or no regular expression.
    """

    iterations: int = _option(10, "Timed iterations.", least=1)
    metric_iterations: int = _option(3, "Profiled iterations.", least=1)
    processes: int = _option(
        1, "Time the run in this number of fresh processes, and take intervals over them.", least=1
    )
    warmup: int = _option(5, "Iterations before the measured ones.", least=0)
    seed: int = _option(0, "Seed of all random choices.", least=0)
    profiler: str = _option("auto", "auto takes the best that works here.", choices=PROFILERS)
    metrics: tuple[str, ...] = ("default",)
    raw_metrics: tuple[str, ...] = ()
    layers: str | None = _option(None, "Profile only layers whose name matches, e.g. 'conv_.*'.")
    kernel: str | None = _option(
        None, "Only kernels with this in their name, or a regular expression."
    )
    launches: str | None = _option(
        None,
        "Count these launches of --kernel alone, from 0: 3:5 is ncu's --launch-skip 3 "
        "--launch-count 2.",
    )
    replay: str = _option("kernel", "How ncu repeats launches.", choices=("kernel", "application"))
    cache_control: str = _option(
        "all",
        "With ncu: all flushes caches before each pass, none does not.",
        choices=("all", "none"),
    )
    timing: str = _option(
        "auto", "For a program: cupti (no counters), or ncu's own durations.", choices=TIMINGS
    )
    lines: bool = _option(
        False,
        "Also sample at which lines of the source warps wait, and why; compile with -lineinfo.",
        flag="--lines",
    )
    workload_options: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name, option in OPTIONS.items():
            value = getattr(self, name)
            where = f"--{name.replace('_', '-')}"
            if option.choices and value not in option.choices:
                msg = f"must be one of {', '.join(option.choices)}"
                raise InputError(msg, where=where, found=str(value))
            if option.least is not None and value < option.least:
                msg = f"must be at least {option.least}"
                raise InputError(msg, where=where, found=str(value))
        for where, pattern in (("--layer", self.layers), ("--kernel", self.kernel)):
            try:
                re.compile(pattern or "")
            except re.error as error:
                msg = "not a regular expression"
                raise InputError(msg, where=where, found=str(error)) from error
        first, end = self.chosen
        if self.launches is not None and (self.kernel is None or first >= end):
            msg = "launches are counted of a kernel" if self.kernel is None else "no launch"
            cure = "Say which: --kernel NAME --launches 3:5 (3 and 4; 3 alone, 3: and :5 too)."
            raise InputError(msg, where="--launches", found=self.launches, cure=cure)

    @property
    def chosen(self) -> tuple[int, int]:
        """The first of the launches that are asked for, and the one behind the last."""
        if self.launches is None:
            return 0, sys.maxsize
        first, colon, end = self.launches.partition(":")
        if not (first + end).isdecimal():
            return 0, 0
        begin = int(first or 0)
        return begin, int(end) if end else sys.maxsize if colon else begin + 1

    @property
    def ncu_metrics(self) -> tuple[str, ...]:
        """Everything to measure, under Nsight Compute's names."""
        from perfml.metrics import load_catalogue

        request = load_catalogue().ncu_request(self.metrics)
        return tuple(dict.fromkeys([*request, *self.raw_metrics]))

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON values, for ``run.json``."""
        values = asdict(self)
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in values.items()
        }


OPTIONS: dict[str, Option] = {
    each.name: each.metadata["option"] for each in fields(Settings) if "option" in each.metadata
}
"""The options by the name of their field."""


def command_line_options() -> list[Parameter]:
    """Return the options as typer wants them: annotated parameters of a function."""
    return [
        Parameter(
            each.name,
            Parameter.KEYWORD_ONLY,
            default=each.default,
            annotation=_annotated(each.name, each.default, OPTIONS[each.name]),
        )
        for each in fields(Settings)
        if each.name in OPTIONS
    ]


def _annotated(name: str, default: Any, option: Option) -> Any:
    import typer

    spelling = [option.flag] if option.flag else []
    given = typer.Option(*spelling, help=option.help, min=option.least)
    if option.choices:
        # typer lists the choices of an enum, and takes no others
        return Annotated[StrEnum(name, {word: word for word in option.choices}), given]
    return Annotated[str | None if default is None else type(default), given]
