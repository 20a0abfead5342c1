"""Kernels of a program run again as their mutants, in a process of its own.

The program is started once more with the library of the launch experiments. A launch whose kernel
has PTX runs as each of its mutants, with its own arguments; memory is put back before each, and the
program goes on with its own kernel. A mutant that does not end, or after which the GPU does nothing
any more, ends the process: the program is run again without that mutant.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from collectors.profilers.experiment_record import hung, launches_of, rows_of
from collectors.profilers.inject import EXPERIMENTS, library, run_injected
from perfml.experiments.findings import Finding
from perfml.experiments.mutation.catalog import OFF, Mutant, mutants
from perfml.experiments.plan import ANY, mutations
from perfml.experiments.record import Examined, Experiments

MOST_RUNS = 8
"""Of the program: after so many mutants that end it, the kernels that are left have none."""
_PATIENCE_S = 3
_NO_PTX = "no repair is measured: its PTX is not in the program (vendors' libraries have none)"


@dataclass(frozen=True)
class Settings:
    """How a program is run.

    Attributes
    ----------
    command
        Argument list, with what starts it.
    log
        File for its output.
    timeout_s
        Seconds until it is killed.
    seconds
        Of experiments, in all.
    rounds
        Times a launch and mutant.
    env
        Variables for it, those of the library among them.
    findings
        Whose causes alone are asked; of none every mutation.
    """

    command: tuple[str, ...]
    log: Path
    timeout_s: float
    seconds: float
    rounds: int
    env: Mapping[str, str]
    findings: Sequence[Finding] = ()


def with_mutants(
    experiments: Experiments, modules: Mapping[str, str], settings: Settings
) -> Experiments:
    """Run a program's kernels as their mutants; return the experiments with these conditions.

    Parameters
    ----------
    experiments
        Of the same program.
    modules
        Mangled name of a kernel to the PTX module that holds it.
    settings
        How the program is run.
    """
    symbols = dict.fromkeys(each.symbol for each in experiments.launches)
    names = [name for name in symbols if name in modules]
    chosen = mutations(settings.findings)
    left = [
        mutant
        for name in names
        for mutant in mutants(modules[name], name)
        if chosen is None or mutant.mutation in chosen
    ]
    without = {each.kernel for each in experiments.launches if each.symbol not in modules}
    skipped = [(kernel, _NO_PTX) for kernel in sorted(without)]
    measured: dict[tuple[object, ...], Examined] = {}
    end = time.monotonic() + settings.timeout_s
    for _ in range(MOST_RUNS):
        if not left or time.monotonic() >= end:
            break
        rows = _run(left, replace(settings, timeout_s=end - time.monotonic()))
        done = launches_of(rows)
        measured |= {_identity(each): each for each in done}
        skipped += [(row[2], row[3]) for row in rows if row[0] == "S"]
        stopped = hung(rows)
        if stopped is None:
            break
        kernel, condition = stopped
        mutation = condition.removesuffix(f".{OFF}")
        skipped.append((kernel, f"{mutation or 'it'} does not end, or ends the process"))
        unfinished = {e.symbol for e in experiments.launches if _identity(e) not in measured}
        changed = any(each.mutation == mutation for each in left)
        left = [
            each
            for each in left
            if each.kernel in unfinished
            and not (each.kernel == kernel and (not changed or each.mutation == mutation))
        ]
    launches = tuple(
        replace(each, conditions=each.conditions + found.conditions)
        if (found := measured.get(_identity(each)))
        else each
        for each in experiments.launches
    )
    return replace(
        experiments, launches=launches, skipped=(*experiments.skipped, *dict.fromkeys(skipped))
    )


def _identity(launch: Examined) -> tuple[object, ...]:
    return (launch.ranges, launch.symbol, launch.grid, launch.block, launch.dynamic_shared)


def _run(left: Sequence[Mutant], settings: Settings) -> list[list[str]]:
    """Run the program once; return what the library wrote, as far as it came."""
    with TemporaryDirectory(prefix="perfml-mutants-") as name:
        folder, records = Path(name), Path(name) / "records"
        records.mkdir()
        lines = []
        for number, mutant in enumerate(left):
            path = folder / f"{number}.ptx"
            path.write_text(mutant.ptx, encoding="utf-8")
            switched = "1" if mutant.switched else "0"
            fields = [mutant.kernel, mutant.mutation, str(path), switched, *mutant.variables]
            lines.append("\t".join(fields))
        plan = folder / "plan.txt"
        ranges = [each.layer for each in settings.findings] or [ANY]
        plan.write_text("".join(f"{name}\n" for name in ranges), encoding="utf-8")
        listed = folder / "mutants.tsv"
        listed.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        variables = {
            **settings.env,
            "PERFML_EXPERIMENTS_PATIENCE": str(_PATIENCE_S),
            "PERFML_EXPERIMENTS_DIR": str(records),
            "PERFML_EXPERIMENTS_MUTANTS": str(listed),
            "PERFML_EXPERIMENTS_PLAN": str(plan),
            "PERFML_EXPERIMENTS_SECONDS": str(math.ceil(settings.seconds)),
            "PERFML_EXPERIMENTS_ROUNDS": str(settings.rounds),
        }
        run_injected(
            library(EXPERIMENTS),
            settings.command,
            log=settings.log,
            timeout_s=settings.timeout_s,
            env=variables,
        )
        return [row for path in sorted(records.glob("*.tsv")) for row in rows_of(path)]
