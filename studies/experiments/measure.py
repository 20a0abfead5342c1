"""How often limits found by experiment are right, what verdicts prove, and another GPU's times.

Run: ``python -m studies.experiments.measure``; a minute, no GPU. Writes ``results.json`` and
``responses.svg`` here.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from perfml.experiments.limits import FELT, QUEUES, SATURATED, breakdown
from perfml.experiments.verdicts import IMPLAUSIBLE, LIMITS_OF, OPEN, PLAUSIBLE, verdict
from studies.experiments import picture, repaired
from studies.experiments.recorded import LEVELS, RIGHT, Case, network, planted, truth

GRID = tuple(
    itertools.product(
        (1.5, 2.0, 2.5, 3.0), (0.05, 0.1, 0.15, 0.2, 0.3), (0.05, 0.08, 0.12, 0.16, 0.2)
    )
)
BANDWIDTH = {"h100": 3350.0, "h200": 4800.0}
"""GB/s: data sheets of the SXM cards."""
RIVALS = (
    "fp32_pipe_time",
    "dram_busy_time",
    "global_atomics",
    "theoretical_occupancy",
    "sm_imbalance",
)
"""One cause of each limit; those that share no limit with the planted cause are the wrong ones."""


def right(case: Case, thresholds: Sequence[float] = (QUEUES, SATURATED, FELT)) -> bool:
    """Whether the largest share stands for the limit by counters."""
    return breakdown(case.responses, *thresholds).largest in RIGHT[case.limit]


def held_out(cases: Sequence[Case]) -> int:
    """Return how many limits are right with thresholds fitted to all families but the case's."""
    correct = np.array([[right(case, each) for each in GRID] for case in cases])
    families = np.array([case.family for case in cases])
    hits = 0
    for family in dict.fromkeys(families):
        mine = families == family
        totals = correct[~mine].sum(axis=0)
        # of equally good ones the middle of the grid
        best = np.flatnonzero(totals == totals.max())
        hits += int(correct[mine][:, best[len(best) // 2]].sum())
    return hits


def limits(cases: Sequence[Case]) -> dict[str, Any]:
    """Count right limits."""
    table = Counter((case.limit, breakdown(case.responses).largest) for case in cases)
    return {
        "kernels": len(cases),
        "right": sum(right(case) for case in cases),
        "by counters and by experiment": {f"{a} / {b}": n for (a, b), n in sorted(table.items())},
        "wrong": [f"{case.layer} {case.level}".strip() for case in cases if not right(case)],
    }


def verdicts(cases: Sequence[Case], level: str) -> dict[str, Any]:
    """Ask for the planted cause of a level, and for a cause of every limit that it cannot have."""
    terms = {each["family"]: each["cause"]["terms"] for each in truth()}
    said: dict[str, Counter[str]] = {"right": Counter(), "wrong": Counter()}
    misses = []
    for case in cases:
        causes = [name for name in terms[case.family] if name in LIMITS_OF]
        if case.level != level or not causes:
            continue
        found = {verdict(case.responses, name).verdict for name in causes}
        best = next(each for each in (PLAUSIBLE, OPEN, IMPLAUSIBLE) if each in found)
        said["right"][best] += 1
        if best != PLAUSIBLE:
            misses.append(f"{case.layer}: {causes[0]} {best}")
        possible = frozenset().union(*(LIMITS_OF[name] for name in causes))
        for rival in RIVALS:
            if not LIMITS_OF[rival] & possible:
                said["wrong"][verdict(case.responses, rival).verdict] += 1
    return {name: dict(counts) for name, counts in said.items()} | {"not plausible": misses}


def other_gpu(cases: Sequence[Case]) -> dict[str, Any]:
    """Forecast times on an H200 from those on an H100: by shares of the time, and by a roofline.

    Only DRAM and the latency of busy memory differ between the two. The ratio of the bandwidths is
    that of the data sheets; that of the latencies is fitted to the other families' kernels.
    """
    ratio = BANDWIDTH["h100"] / BANDWIDTH["h200"]
    change = np.array([case.on_h200_us / case.responses.time_us for case in cases])
    shares = [breakdown(case.responses).shares for case in cases]
    dram = np.array([each["dram"] for each in shares])
    latency = np.array([each["memory_latency"] for each in shares])
    answers = [c.responses.elasticity_beyond_launch("dram_traffic") for c in cases]
    # latency without a queue is the same on both
    loaded = np.where(np.array(answers) < QUEUES, latency, 0.0)
    memory = dram + latency + np.array([each["l2"] for each in shares])
    families = np.array([case.family for case in cases])
    bound = np.array([case.dram_bound for case in cases])
    by_bandwidth = 1 - dram * (1 - ratio)
    forecasts = {
        "shares": np.array(
            [
                by_bandwidth[i] - loaded[i] * (1 - _faster(change, by_bandwidth, loaded, others))
                for i, others in enumerate(families != family for family in families)
            ]
        ),
        "roofline": np.where(bound, ratio, 1.0),
        "unchanged": np.ones(len(cases)),
    }
    made = {}
    for name, chosen in {
        "all": memory >= 0,
        "memory makes half of the time": memory >= 0.5,
    }.items():
        errors = {each: np.abs(f / change - 1)[chosen] for each, f in forecasts.items()}
        made[name] = {
            "launches": int(chosen.sum()),
            "median error": {each: round(float(np.median(e)), 3) for each, e in errors.items()},
            "90 % below": {
                each: round(float(np.quantile(e, 0.9)), 3) for each, e in errors.items()
            },
        }
    return made


def _faster(change: Any, by_bandwidth: Any, latency: Any, chosen: Any) -> float:
    """Return the ratio of the latencies of memory by the kernels that mostly wait for it."""
    chosen = chosen & (latency >= 0.5)
    return float(np.median(1 - (by_bandwidth - change)[chosen] / latency[chosen]))


def main() -> None:
    """Write the results."""
    cases, others, there = planted(), network(), planted("h200")
    long = [case for case in others if case.responses.launch_share < 0.5]
    made = {
        "planted": limits(cases) | {"right, families held out": held_out(cases)},
        "YOLOv4-Tiny on cuDNN": limits(others),
        "YOLOv4-Tiny, less than half of the time launch overhead": limits(long),
        "verdicts": {level: verdicts(cases, level) for level in LEVELS[1:]},
        "verdicts on an H200": {level: verdicts(there, level) for level in LEVELS[1:]},
        "planted on an H200": limits(there),
        "H200 from H100": other_gpu([*cases, *others]),
        "repairs of pairs": repaired.gains(repaired.pairs()),
        "repairs of planted kernels": repaired.gains(repaired.planted()),
        "repairs of planted kernels on an H200": repaired.gains(repaired.planted("h200")),
    }
    drawn = Path(__file__).with_name("responses.svg")
    drawn.write_text(picture.svg(picture.rows()), encoding="utf-8")
    path = Path(__file__).with_name("results.json")
    path.write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
