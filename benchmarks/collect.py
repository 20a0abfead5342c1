"""What counters cost: CUPTI with the program's iterations as replay, beside Nsight Compute.

``python -m benchmarks.collect --out costs.json`` on a machine with a GPU, torch and torchvision:
YOLOv4-Tiny and ResNet-34, the same metrics on both sides, in one run. Whole commands are divided by
the launches they measured; beside it stands what the counter passes alone took.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from collectors.profilers import cupti, ncu
from collectors.profilers.counter_record import PassCost
from collectors.profilers.gpu import gpus
from perfml.metrics import load_catalogue

ROOT = Path(__file__).resolve().parents[1]
LIMIT_S = 600.0
TIMED = 10
LEFT_OVER = 15
"""Iterations more than are needed, in programs that do not ask how many are wanted."""


@dataclass(frozen=True)
class Cost:
    """What one command took.

    Attributes
    ----------
    network, tool, metrics
        What was measured, by what, which set.
    launches, passes
        Measured launches, and counter passes.
    seconds
        Of the whole command.
    ms_a_launch
        The whole command over the launches.
    counter_ms_a_launch
        Of the passes alone: the first complete measurement, which opens the session.
    again_ms_a_launch
        The same for a measurement in an open session; None if there was one measurement. It holds
        a pass of instrumented code only where the program's work differed (`cupti`).
    pass_us
        Of the last measurement: us a launch to begin, work and end, pass by pass; the last pass is
        that of instrumented code. Empty for Nsight Compute.
    outside_ms_a_launch
        Of the command without the passes: the start of the program, its timed iterations, opening
        the sessions, reading values. None for Nsight Compute.
    """

    network: str
    tool: str
    metrics: str
    launches: int
    passes: int
    seconds: float
    ms_a_launch: float
    counter_ms_a_launch: float
    again_ms_a_launch: float | None
    pass_us: tuple[tuple[float, float, float], ...] = ()
    outside_ms_a_launch: float | None = None


def program(network: str, iterations: int, folder: Path) -> list[str]:
    """Return the command that repeats a network's inference."""
    if network == "resnet34":
        return [sys.executable, str(ROOT / "tests/gpu/programs/resnet34.py"), str(iterations)]
    words = [sys.executable, "-m", "collectors.workloads.runner", network, "--backend", "cudnn"]
    words += ["--iterations", str(iterations), "--mode", "profile", "--out", str(folder / "aside")]
    return words


def by_iterations(network: str, metrics: str, sets: int, folder: Path) -> Cost:
    """Measure with CUPTI; iterations take the place of replay."""
    request = load_catalogue().ncu_request((metrics,))
    options = cupti.CuptiOptions(request, sets=sets, timed=TIMED)
    command = program(network, TIMED + sets * LEFT_OVER, folder)
    began = time.perf_counter()
    profile = cupti.profile(
        options, command, folder=folder, log=folder / "log.txt", timeout_s=LIMIT_S, env=_paths()
    )
    seconds = time.perf_counter() - began
    first, again = passes_alone(profile.pass_costs)
    launches = len(profile.rows)
    return Cost(
        network,
        f"cupti, {sets} x",
        metrics,
        launches,
        profile.measurement.passes,
        round(seconds, 3),
        round(1e3 * seconds / launches, 2),
        round(first, 2),
        None if again is None else round(again, 2),
        last_passes(profile.pass_costs),
        round(1e3 * (seconds - sum(cost.seconds for cost in profile.pass_costs)) / launches, 2),
    )


def last_passes(costs: Sequence[PassCost]) -> tuple[tuple[float, float, float], ...]:
    """Return us a launch to begin, work and end, for each pass of the last measurement."""
    groups = measurements(costs)
    rows = []
    for cost in (cost for group in groups.values() for cost in group[-1]):
        parts = (cost.start_s, cost.work_s, cost.stop_s)
        rows.append(tuple(round(1e6 * part / cost.launches, 1) for part in parts))
    return tuple((start, work, stop) for start, work, stop in rows)


def passes_alone(costs: Sequence[PassCost]) -> tuple[float, float | None]:
    """Return ms a launch of the first measurement, and of the mean of the ones after it.

    Counters that are read in passes of their own, as those of instrumented code, belong to the
    first measurement with the first time, and to the ones after it with the others.
    """
    first, more, sets = 0.0, 0.0, 1
    for group in measurements(costs).values():
        each = [1e3 * sum(cost.seconds for cost in one) / one[0].launches for one in group]
        first += each[0]
        more += sum(each[1:])
        sets = max(sets, len(each))
    return first, more / (sets - 1) if sets > 1 else None


def measurements(costs: Sequence[PassCost]) -> dict[int, list[list[PassCost]]]:
    """Return the passes of each measurement, by group of metrics."""
    groups: dict[int, list[list[PassCost]]] = {}
    for cost in costs:
        group = groups.setdefault(cost.group, [])
        if cost.number == 0:
            group.append([])
        group[-1].append(cost)
    return groups


def by_ncu(network: str, metrics: str, folder: Path) -> Cost:
    """Measure one iteration with Nsight Compute's kernel replay, caches as they are."""
    request = load_catalogue().ncu_request((metrics,))
    options = ncu.NcuOptions(request, include=("iter_0/",), cache_control="none")
    began = time.perf_counter()
    profile = ncu.profile(
        options,
        program(network, 1, folder),
        folder=folder,
        log=folder / "log.txt",
        timeout_s=LIMIT_S,
        env=_paths(),
    )
    seconds = time.perf_counter() - began
    return Cost(
        network,
        f"ncu {ncu.version()}",
        metrics,
        profile.launches,
        profile.passes,
        round(seconds, 3),
        round(1e3 * seconds / profile.launches, 2),
        round(1e3 * profile.seconds_per_launch, 2),
        None,
    )


def _paths() -> dict[str, str]:
    return {"PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))}


def table(costs: Sequence[Cost]) -> str:
    """Return the costs as a table in Markdown."""
    head = "network | metrics | tool | launches | passes | whole, ms a launch | counters | again"
    lines = [f"| {head} |", "|---|---|---|---|---|---|---|---|"]
    for cost in costs:
        again = "" if cost.again_ms_a_launch is None else str(cost.again_ms_a_launch)
        cells = (cost.network, cost.metrics, cost.tool, cost.launches, cost.passes)
        shown = [*map(str, cells), str(cost.ms_a_launch), str(cost.counter_ms_a_launch), again]
        lines.append(f"| {' | '.join(shown)} |")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print the table and write the numbers."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--network", action="append", choices=("yolov4-tiny", "resnet34"))
    parser.add_argument("--metrics", action="append", help="a set or a metric; repeatable")
    parser.add_argument("--tool", action="append", choices=("cupti", "ncu"))
    parser.add_argument("--sets", action="append", type=int, help="measurements a run; repeatable")
    parser.add_argument("--out", type=Path, help="the numbers as JSON")
    given = parser.parse_args(arguments)
    costs: list[Cost] = []
    for network in given.network or ("yolov4-tiny", "resnet34"):
        for metrics in given.metrics or ("default", "published"):
            with tempfile.TemporaryDirectory(prefix="perfml-collect-") as name:
                folder = Path(name)
                tools = given.tool or ("cupti", "ncu")
                for sets in (given.sets or (3, 30)) if "cupti" in tools else ():
                    costs.append(by_iterations(network, metrics, sets, folder))
                    print(costs[-1], flush=True)
                if "ncu" in tools:
                    costs.append(by_ncu(network, metrics, folder))
                    print(costs[-1], flush=True)
            if given.out:
                document = {"gpu": asdict(gpus()[0]), "costs": [asdict(cost) for cost in costs]}
                given.out.write_text(json.dumps(document, indent=1) + "\n")
    print(table(costs))
    return 0


if __name__ == "__main__":
    sys.exit(main())
