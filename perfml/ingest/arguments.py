"""Runs of one program with different arguments: other work, so no repeats of each other."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from perfml.tables import Kernels

SHOWN = 60
"""Characters of an argument that a name or a warning holds."""


@dataclass(frozen=True)
class Started:
    """How one run was started: its program and arguments, empty where the profile does not tell.

    Runs that share a `condition` (workload, backend, precision, batch) count as repeats.
    """

    run_id: str
    condition: tuple[Any, ...]
    command: tuple[str, ...]


def command_of(manifest: dict[str, Any], profiles: Sequence[Kernels]) -> tuple[str, ...]:
    """Return the program and its arguments, from the manifest or what the profiler wrote."""
    program = manifest.get("program")
    if isinstance(program, list) and all(isinstance(word, str) for word in program):
        return tuple(program)
    for kernels in profiles:
        command = kernels.provenance.get("command")
        if isinstance(command, str) and command.strip():
            try:
                return tuple(shlex.split(command))
            except ValueError:  # quotes that do not end
                return tuple(command.split())
    return ()


CONDITION = ("workload", "backend", "precision", "batch")
"""What runs share that count as repeats."""


@dataclass(frozen=True)
class ToldApart:
    """Runs of one program that are other work, and a sentence a workload on what was done.

    `names` has the workload of each run whose arguments differ, by its place; none where the user
    has named them all.
    """

    names: dict[int, str]
    warnings: list[str]


def told_apart(runs: Sequence[Started], user: str | None) -> ToldApart:
    """Give runs of one program with different arguments workloads of their own.

    `runs` are all that are read together. A `user` who named a workload has said that the runs are
    one.
    """
    labels = differing_arguments(runs)
    names: dict[int, str] = {}
    warnings = []
    for workload in dict.fromkeys(str(run.condition[0]) for run in runs):
        members = [
            place
            for place, run in enumerate(runs)
            if labels[place] and run.condition[0] == workload
        ]
        if not members:
            continue
        arguments = ", ".join(dict.fromkeys(labels[place] for place in members))
        warning = (
            f"{workload}: {len(members)} runs were started with different arguments ({arguments})"
        )
        if user is not None:
            warnings.append(
                f"{warning}; they count as repeats, because --label workload names them all"
            )
            continue
        names |= {place: f"{workload} {labels[place]}" for place in members}
        warnings.append(
            f"{warning}, so they are workloads of their own. If they are repeats of each other, "
            f"add --label workload={workload}"
        )
    return ToldApart(names, warnings)


def started_by(manifest: dict[str, Any]) -> Started:
    """Return how a run was started, from its manifest alone."""
    condition = tuple(str(manifest.get(name)) for name in CONDITION)
    return Started(str(manifest.get("run_id")), condition, command_of(manifest, ()))


def differing_arguments(runs: Sequence[Started]) -> list[str]:
    """Return, for each run, the arguments that other repeats of it were not started with.

    It is empty for a run that no other run of its condition and program differs from.

    Examples
    --------
    >>> same = ("gemm", "eager", "fp32", 1)
    >>> differing_arguments([
    ...     Started("a", same, ("./gemm", "--size", "512")),
    ...     Started("b", same, ("./gemm", "--size", "1024")),
    ... ])
    ['--size 512', '--size 1024']
    """
    groups: dict[tuple[Any, ...], list[int]] = {}
    for place, run in enumerate(runs):
        if run.command:
            program = PurePath(run.command[0]).name
            groups.setdefault((*run.condition, program), []).append(place)
    labels = [""] * len(runs)
    for places in groups.values():
        commands = [runs[place].command[1:] for place in places]
        if len(set(commands)) < 2:
            continue
        for place, arguments in zip(places, commands, strict=True):
            labels[place] = _own(arguments, commands)[:SHOWN] or "no arguments"
    return labels


def _own(arguments: tuple[str, ...], commands: Sequence[tuple[str, ...]]) -> str:
    """Return the arguments of one command that are not the same in all, with their options."""
    if len(set(map(len, commands))) == 1:
        differs = [len({command[at] for command in commands}) > 1 for at in range(len(arguments))]
    else:
        common = set(commands[0]).intersection(*commands[1:])
        differs = [word not in common for word in arguments]
    words: list[str] = []
    for at, word in enumerate(arguments):
        if not differs[at]:
            continue
        before = arguments[at - 1] if at else ""
        if before.startswith("-") and "=" not in before and not differs[at - 1]:
            words.append(before)
        words.append(word)
    return " ".join(words)
