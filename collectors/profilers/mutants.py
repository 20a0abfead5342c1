"""Kernels of a program run again as their mutants, in a process of its own.

The program is started once more with the library of the launch experiments. A launch whose kernel
has PTX runs as each of its mutants, with its own arguments; memory is put back before each, and the
program goes on with its own kernel. A mutant that does not end, or after which the GPU does nothing
any more, ends the process: the program is run again without that mutant.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from collectors.profilers.experiment_record import Settings, hung, launches_of, rows_of
from perfml.experiments.mutation.catalog import OFF, Mutant, mutants
from perfml.experiments.plan import mutations, plan
from perfml.experiments.record import Examined, Experiments

MOST_RUNS = 8
"""Runs of the program at most: a mutant that crashes or hangs it costs one of them."""
_PATIENCE = {"PERFML_EXPERIMENTS_PATIENCE": "3"}
"""Seconds until a mutant is said not to end."""
_NO_PTX = "no repair is measured: its PTX is not in the program (vendors' libraries have none)"


def with_mutants(
    experiments: Experiments, modules: Mapping[str, str], settings: Settings, timeout_s: float
) -> Experiments:
    """Run a program's kernels as their mutants; return the experiments with these conditions.

    `modules` are a kernel's mangled name to the PTX module that holds it; `timeout_s` is for all
    runs.
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
    end = time.monotonic() + timeout_s
    for _ in range(MOST_RUNS):
        if not left or time.monotonic() >= end:
            break
        rows = _run(left, settings, end - time.monotonic())
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


def _run(left: Sequence[Mutant], settings: Settings, timeout_s: float) -> list[list[str]]:
    """Run the program once; return what the library wrote, as far as it came."""
    with TemporaryDirectory(prefix="perfml-mutants-") as name:
        folder, lines = Path(name), []
        for number, mutant in enumerate(left):
            path = folder / f"{number}.ptx"
            path.write_text(mutant.ptx, encoding="utf-8")
            switched = "1" if mutant.switched else "0"
            lines.append([mutant.kernel, mutant.mutation, str(path), switched, *mutant.variables])
        ranges = [[name] for name in plan(settings.findings)]
        impatient = replace(settings, env={**settings.env, **_PATIENCE})
        impatient.run(folder, timeout_s, {"MUTANTS": lines, "PLAN": ranges})
        return [row for path in sorted(folder.glob("*.tsv")) for row in rows_of(path)]
