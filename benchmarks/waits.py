"""How long people wait: processor time of commands, as ratios to ``import pandas`` in the same run.

``python -m benchmarks.waits [--turns 3] [COMMAND ...]`` prints a line a command and exits with 1
where one takes a tenth more than `WAITS` says. A ratio depends little on the machine; the least of
the turns is taken, since other work on the machine only adds to it, and no further turn is run of
a command within its limit.
"""

from __future__ import annotations

import argparse
import resource
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_NETWORK = "h200-yolov4-tiny --where precision=fp32 --where batch=1"

WAITS: dict[str, tuple[str, float]] = {
    "report": (f"report {_NETWORK} --out OUT/report.html", 8.0),
    "report of a .ncu-rep": (
        "report tests/data/ncu/conv_03_cublas.ncu-rep --out OUT/report.html",
        2.5,
    ),
    "explain": (f"explain {_NETWORK} --baseline cublas --target cudnn", 3.0),
    "explain, model": (f"explain {_NETWORK} --baseline cublas --target cudnn --model gbr", 8.0),
    "rank": (f"rank {_NETWORK} --resamples 20", 12.5),
}
"""Command, and a limit of its processor time over that of ``import pandas``: a round number, set.

The least of three turns was 8.8, 2.7, 2.7, 8.3 and 12.8 on an AMD EPYC with two cores, where
other programs ran (``python -m benchmarks.waits``, 29 November 2026).
"""

GROWN = 1.1
"""Times the limit of `WAITS` from which on a command counts as slower."""


def processor_time(*command: str) -> float:
    """Return the seconds that a program computes; raises `CalledProcessError` if it fails."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *command], cwd=ROOT, check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def show(names: Sequence[str] = tuple(WAITS), turns: int = 3) -> int:
    """Print the ratios of some commands; return how many grew."""
    least: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="perfml-waits-") as folder:
        lines = {name: WAITS[name][0].replace("OUT", folder) for name in names}
        programs = {name: ("-m", "perfml", *shlex.split(line)) for name, line in lines.items()}
        longer = dict(programs)
        for _ in range(turns):
            for name, program in {"": ("-c", "import pandas"), **longer}.items():
                least[name] = min(least.get(name, float("inf")), processor_time(*program))
            longer = {name: programs[name] for name in longer if _grew(name, least)}
            if not longer:
                break
    unit, grown = least[""], 0
    for name in names:
        seconds, before = least[name], WAITS[name][1]
        ratio = seconds / unit
        grown += _grew(name, least)
        note = "  a tenth more than its limit" if _grew(name, least) else ""
        print(f"{name:22}{seconds:7.2f} s{ratio:7.1f} times import pandas{before:7.1f}{note}")
    return grown


def _grew(name: str, least: Mapping[str, float]) -> bool:
    """Whether the least processor time of a command is a tenth above its limit."""
    return least[name] / least[""] > GROWN * WAITS[name][1]


def main() -> int:
    """Print the ratios; return 1 where one grew."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("commands", nargs="*", default=list(WAITS), metavar="COMMAND")
    parser.add_argument("--turns", type=int, default=3)
    given = parser.parse_args()
    if unknown := set(given.commands) - set(WAITS):
        parser.error(f"no command is called {min(unknown)}; there are {', '.join(WAITS)}")
    return 1 if show(given.commands, given.turns) else 0


if __name__ == "__main__":
    sys.exit(main())
