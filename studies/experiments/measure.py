"""How often limits found by experiment are right, what verdicts prove, and another GPU's times.

Run: ``python -m studies.experiments.measure``; a minute, no GPU. Writes ``results.json`` here.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from perfml.datasets import load_h100_planted_causes, load_h200_planted_causes
from perfml.experiments.limits import Thresholds, breakdown
from perfml.experiments.verdicts import LIMITS_OF, OPEN, PROVEN, REFUTED, verdict
from studies.experiments.recorded import RIGHT, Case, network, planted

GRID = tuple(
    Thresholds(*values)
    for values in itertools.product(
        (1.5, 2.0, 2.5, 3.0), (0.05, 0.1, 0.15, 0.2, 0.3), (0.05, 0.08, 0.12, 0.16, 0.2)
    )
)
BANDWIDTH = {"h100": 3350.0, "h200": 4800.0}
"""GB/s: data sheets of the SXM cards."""
TRUTH = Path(__file__).parents[2] / "datasets" / "h100-planted-causes" / "truth.json"
BINS = (0.0, 0.1, 0.25, 0.5, 0.8, 1.0)
RIVALS = ("fp32_pipe_time", "dram_busy_time", "global_atomics", "theoretical_occupancy", "sm_imbalance")
"""One cause of each limit; those that share no limit with the planted cause are the wrong ones."""


def right(case: Case, thresholds: Thresholds = Thresholds()) -> bool:
    """Whether the largest share stands for the limit by counters."""
    return breakdown(case.responses, thresholds).largest in RIGHT[case.limit]


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
    terms = {
        each["family"]: each["cause"]["terms"]
        for each in json.loads(TRUTH.read_text(encoding="utf-8"))["families"]
    }
    said: dict[str, Counter[str]] = {"right": Counter(), "wrong": Counter()}
    misses = []
    for case in cases:
        causes = [name for name in terms[case.family] if name in LIMITS_OF]
        if case.level != level or not causes:
            continue
        found = {verdict(case.responses, name).verdict for name in causes}
        best = next(each for each in (PROVEN, OPEN, REFUTED) if each in found)
        said["right"][best] += 1
        if best != PROVEN:
            misses.append(f"{case.layer}: {causes[0]} {best}")
        possible = frozenset().union(*(LIMITS_OF[name] for name in causes))
        for rival in RIVALS:
            if not LIMITS_OF[rival] & possible:
                said["wrong"][verdict(case.responses, rival).verdict] += 1
    return {name: dict(counts) for name, counts in said.items()} | {"not proven": misses}


def likelihoods(cases: Sequence[Case]) -> list[dict[str, float]]:
    """Return how often a limit is the one by counters, by the share of the time that it makes."""
    pairs = []
    for case in cases:
        shares = breakdown(case.responses).shares
        for name, ids in RIGHT.items():
            pairs.append((sum(shares[each] for each in ids), name == case.limit))
    made = []
    for start, end in itertools.pairwise(BINS):
        inside = [hit for share, hit in pairs if start <= share < end or (end == 1 == share)]
        # one more of each: no share is certain
        made.append({"from": start, "to": end, "pairs": len(inside),
                     "right": round((sum(inside) + 1) / (len(inside) + 2), 2)})  # fmt: skip
    return made


def other_gpu(cases: Sequence[Case]) -> dict[str, Any]:
    """Forecast times on an H200 from those on an H100: by shares of the time, and by a roofline."""
    ratio = BANDWIDTH["h100"] / BANDWIDTH["h200"]
    frames = [load(as_frame=True).frame for load in (load_h100_planted_causes, load_h200_planted_causes)]
    here, there = (f.groupby(["backend", "layer"]).median(numeric_only=True) for f in frames)
    errors: dict[str, list[float]] = {"shares": [], "roofline": [], "unchanged": []}
    for case in cases:
        key = (case.level, case.layer)
        if key not in there.index:
            continue
        before, after = here.loc[key], there.loc[key].time_us
        dram = breakdown(case.responses).shares["dram"]
        pipes = max(before.issue_slot_utilization, before.alu_utilization,
                    before.single_precision_fu_utilization)  # fmt: skip
        factors = {
            "shares": 1 - dram + dram * ratio,
            "roofline": ratio if before.dram_utilization > pipes else 1.0,
            "unchanged": 1.0,
        }
        for name, factor in factors.items():
            errors[name].append(abs(before.time_us * factor / after - 1))
    return {
        "launches": len(errors["shares"]),
        "median error": {name: round(float(np.median(each)), 4) for name, each in errors.items()},
        "90 % of errors below": {
            name: round(float(np.quantile(each, 0.9)), 4) for name, each in errors.items()
        },
    }


def main() -> None:
    """Write the results."""
    cases, others = planted(), network()
    long = [case for case in others if case.responses.launch_share < 0.5]
    made = {
        "planted": limits(cases) | {"right, families held out": held_out(cases)},
        "YOLOv4-Tiny on cuDNN": limits(others),
        "YOLOv4-Tiny, less than half of the time launch overhead": limits(long),
        "verdicts": {level: verdicts(cases, level) for level in ("level_1", "level_2", "level_3")},
        "likelihood": likelihoods([*cases, *others]),
        "H200 from H100": other_gpu(cases),
    }
    path = Path(__file__).with_name("results.json")
    path.write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
