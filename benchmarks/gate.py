"""Stop a change that makes perfml slower: ratios to a yardstick in the same process, not seconds.

Each piece of work is timed in turns with a yardstick of the same kind, in processor time, which
other programs change little, and the best turns are compared. A limit is about three times what was
measured when it was set, so only a change of that size fails, on any machine.

Run: ``python -m benchmarks.gate`` (about ten seconds). Exit 1 if a limit is passed.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks import data

TURNS = 7


@dataclass(frozen=True)
class Gate:
    """One limit.

    Attributes
    ----------
    name
        What is measured, and beside what.
    work, yardstick
        Both are run in turns.
    limit
        Times the yardstick that the work may take.
    """

    name: str
    work: Callable[[], Any]
    yardstick: Callable[[], Any]
    limit: float

    def ratio(self) -> float:
        """Return how many times the yardstick the work takes, best turn of each."""
        best = [np.inf, np.inf]
        for turn in range(TURNS + 1):
            for side, run in enumerate((self.work, self.yardstick)):
                start = processor_time()
                run()
                if turn:
                    best[side] = min(best[side], processor_time() - start)
        return best[0] / best[1]


def processor_time() -> float:
    """Return the seconds of processor time of this process and of its ended children."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def gates(folder: Path) -> list[Gate]:
    """Return the limits."""
    from perfml.ingest.merge.rule import merge
    from perfml.modeling import LinearModelTreeRegressor
    from perfml.readers import read

    path = folder / "export.csv"
    data.write_export(path, 20_000, data.chosen_metrics())
    frame = read(path).frame.assign(run_id="run")
    rng = np.random.default_rng(0)
    x = rng.random((500, 16))
    y = 1 + x @ rng.random(16) + (x[:, 0] > 0.5)

    def pandas_reads() -> Any:
        return pd.read_csv(path, skiprows=[1], thousands=",", engine="c")

    def pandas_groups() -> Any:
        inside = frame[frame["layer"].notna()]
        return inside.groupby(["iteration", "layer"], sort=False)["time_us"].sum()

    def solves() -> Any:
        return [np.linalg.lstsq(x, y, rcond=None) for _ in range(20)]

    def started(code: str) -> Callable[[], Any]:
        return lambda: subprocess.run([sys.executable, "-c", code], check=True)

    return [
        Gate("read an ncu CSV / pandas.read_csv", lambda: read(path), pandas_reads, 6.0),
        Gate("merge / one pandas groupby sum", lambda: merge(frame), pandas_groups, 20.0),
        Gate(
            "fit a linear model tree / 20 least squares",
            lambda: LinearModelTreeRegressor().fit(x, y),
            solves,
            60.0,
        ),
        Gate("import perfml.cli / import pandas", started("import perfml.cli"),
             started("import pandas"), 0.9),
    ]  # fmt: skip


def main() -> int:
    slow = 0
    with tempfile.TemporaryDirectory(prefix="perfml-gate-") as folder:
        for gate in gates(Path(folder)):
            found = gate.ratio()
            held = found <= gate.limit
            slow += not held
            print(f"{'ok  ' if held else 'SLOW'} {gate.name}: {found:.2f} (limit {gate.limit:g})")
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main())
