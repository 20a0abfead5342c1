"""Does advice name the hazard of the newer planted families, from the slow launch alone?

Run: ``python -m studies.truth.advised [--out FILE]``. A case is a family at a level that takes at
least `EFFECT` times as long as its base; right first is a finding with a cause of `RULES` before
all others. At the base itself such a finding is a false alarm. Of the exams by other people it is
counted how often the first finding is right of high, medium or low confidence.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from typing import Any

from perfml.datasets import find
from perfml.explain import advise, load_tables
from perfml.explain.confidence import Confidence
from studies.truth.labels import causes_of_rules
from studies.truth.scores import EFFECT, run_study
from studies.truth.strangers import EXAMS, HALVES, Exam, score
from studies.workloads.planted.families import BY_NAME

RULES: dict[str, tuple[str, ...]] = {
    "atomic_contention": ("global_atomics",),
    "atomic_count": ("global_atomics",),
    "shared_atomics": ("shared_atomics",),
    "local_array": ("local_memory",),
    "spills": ("local_memory",),
    "narrow_access": ("narrow_access",),
    "redundant_traffic": ("repeated_loads", "dram_bound"),
    "reloaded_values": ("repeated_loads", "l2_bound"),
    "async_copy": ("shallow_copies", "memory_latency"),
    "memory_fence": ("memory_fences",),
    "constant_divergence": ("constant_serialization",),
    "confound_traffic_arithmetic": ("repeated_loads", "dram_bound"),
    "confound_atomics_occupancy": ("global_atomics",),
    "conversions": ("special_functions",),
    "reciprocal_roots": ("special_functions",),
    "doubles_from_none": ("double_precision",),
    "bit_rotations": ("integer_bound",),
    "address_arithmetic": ("integer_bound",),
    "lane_exchange": ("lane_exchange",),
    "tensor_cores": ("tensor_cores_unused", "fp32_pipe_bound"),
    "uneven_blocks": ("occupancy_reached", "uneven_blocks"),
    "uneven_multiprocessors": ("uneven_multiprocessors",),
    "tiny_blocks": ("block_slots",),
}
"""Rules of their day that name what a family plants (`studies.truth.labels.retired_rules` has their
causes); ``launch_gaps`` has no slow launch."""
CONFIDENCES: tuple[Confidence, ...] = ("high", "medium", "low")
"""How sure advice is without an experiment."""
SETS = {"H200": "h200-planted-causes", "H100": "h100-planted-causes"}


def cases(name: str) -> list[dict[str, Any]]:
    """Return what advice says of each family, level and size of a data set."""
    layers, kernels = load_tables(find(name))
    times = layers.groupby(["backend", "layer"])["time_us"].median()
    found = []
    for level in times.index.unique("backend"):
        part = kernels[kernels["backend"] == level]
        table = advise(layers[layers["backend"] == level], kernels=part, min_whole=0.0).table
        for layer in times[level].index:
            family = layer.rsplit("_s", 1)[0]
            if family not in RULES:
                continue
            ratio = float(times[level, layer] / times["base", layer])
            said = table[table["layer"] == layer]
            named = [set(rules) & causes_of_rules(RULES[family]) for rules in said["rules"]]
            found.append(
                {
                    "family": family,
                    "level": level,
                    "layer": layer,
                    "slow": ratio >= EFFECT,
                    "held_out": BY_NAME[family].held_out,
                    "first": bool(named) and bool(named[0]),
                    "confidence": said["confidence"].iloc[0] if len(said) else "low",
                    "named": any(named),
                    "said": ["+".join(rules) for rules in said["rules"]],
                }
            )
    return found


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the counts of some cases."""
    slow = [row for row in rows if row["slow"]]
    base = [row for row in rows if row["level"] == "base"]
    return {
        "cases": len(slow),
        "first": sum(row["first"] for row in slow),
        "named": sum(row["named"] for row in slow),
        "bases": len(base),
        "alarms": sum(row["named"] for row in base),
        "missed": sorted({row["family"] for row in slow if not row["first"]}),
        "confidence": _by_confidence((row["confidence"], row["first"]) for row in slow),
    }


def _by_confidence(answers: Iterable[tuple[Confidence, bool]]) -> dict[str, list[int]]:
    """Return how many first findings of each confidence are right, and wrong."""
    found: dict[str, list[int]] = {name: [0, 0] for name in CONFIDENCES}
    for confidence, right in answers:
        found[confidence][0 if right else 1] += 1
    return found


def exam_confidence(exam: Exam) -> dict[str, dict[str, list[int]]]:
    """Return how sure advice on an exam's slow launches is, right and wrong, of each half."""
    answers = exam.ask(exam.recordings[0])
    return {
        half: _by_confidence(
            (
                next((each["confidence"] for each in answers[name]["advice"]), "low"),
                score(answers[name], accepted).advised > 0,
            )
            for name, accepted in exam.labelled((half,)).items()
        )
        for half in HALVES
    }


def measure() -> dict[str, Any]:
    """Return the counts of each data set, families kept aside apart."""
    found = {}
    for device, name in SETS.items():
        rows = cases(name)
        shown = [row for row in rows if not row["held_out"]]
        found[f"18 newer families, {device}"] = summary(shown)
        found[f"six families kept aside, {device}"] = summary([r for r in rows if r["held_out"]])
    return {"families": found, "exams": {name: exam_confidence(EXAMS[name]) for name in EXAMS}}


if __name__ == "__main__":
    sys.exit(run_study(measure, __doc__))
