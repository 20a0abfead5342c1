"""Does advice name the hazard of the newer planted families, from the slow launch alone?

Run: ``python -m studies.truth.advised [--out FILE]``, or with ``--fit`` to print
``perfml/explain/advice/probability.toml``: how probable a finding is, a logistic model of what
speaks for it, fitted on all findings of the exams' slow sides and of the slow planted launches, and
on those of healthy ones (pairs of equal kernels, planted families at their base), which are wrong;
what is counted leaves out one exam (an author) or family at a time.

A case is a family at a level that takes at least `EFFECT` times as long as its base; right first is
a finding with a cause of `RULES` before all others. At the base itself such a finding is a false
alarm. Of the exams by other people it is counted how often the first finding is right of high,
medium or low confidence.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression

from perfml.datasets import find
from perfml.explain import advise, load_tables
from perfml.explain.advice.finding import table_of
from perfml.explain.advice.findings import (
    Layer,
    evidence_of,
    in_order,
    launch_findings,
)
from perfml.explain.advice.layer_findings import layer_findings
from perfml.explain.advice.referee import LEAST
from perfml.explain.advice.table import layers_of, representative_launches
from perfml.explain.confidence import Confidence, confidence_of, load_fitted
from studies.truth.intervals import PROMISED
from studies.truth.labels import causes_of_rules
from studies.truth.scores import EFFECT, run_study
from studies.truth.strangers import EXAMS, HALVES, Exam, accepted_rules, score
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
PARTS = (0.6, 0.5, 0.4, 0.3, 0.2)
"""What the least may be, of the logarithm of what is estimated."""
SETS = {"H200": "h200-planted-causes", "H100": "h100-planted-causes"}


def cases(name: str) -> list[dict[str, Any]]:
    """Return what advice says of each family, level and size of a data set."""
    layers, kernels = load_tables(find(name))
    times = layers.groupby(["backend", "layer"])["time_us"].median()
    found = []
    for level in times.index.unique("backend"):
        part = kernels[kernels["backend"] == level]
        advice = advise(layers[layers["backend"] == level], kernels=part)
        table = table_of(advice.of_layers)
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


PLANTED_WEIGHT = 0.2
"""Of a planted finding: families are in twelve variants."""
_LEAST = 0.02  # of the layer's time: findings that promise less are not listed


@dataclass(frozen=True)
class Judged:
    """A finding of one side, what speaks for it, and whether its cause is the labelled one."""

    group: str  # exam or family, which is left out together
    case: str  # empty of a healthy launch, of which no finding is right
    weight: float
    gain: float
    evidence: Mapping[str, float]
    right: bool


def _judged(
    group: str, case: str, weight: float, layer: Layer, wanted: set[str]
) -> Iterator[Judged]:
    for row in in_order([*launch_findings(layer), *layer_findings(layer)]):
        if row.lost >= _LEAST:
            right = not wanted.isdisjoint(row.rules)
            yield Judged(group, case, weight, row.lost, evidence_of(row), right)


def _layers(kernels: pd.DataFrame) -> dict[str, Layer]:
    usual = representative_launches(kernels)
    return {str(layer.row["layer"]): layer for layer in layers_of(usual, None)}


def judged() -> list[Judged]:
    """Return all findings of slow launches whose cause is known, and of healthy ones."""
    found: list[Judged] = []
    for name, exam in EXAMS.items():
        sides = exam.sides(exam.recordings[0])
        layers = [_layers(side.kernels) for side in sides if side.kernels is not None]
        for layer, accepted in exam.counted().items():
            both = [side[layer] for side in layers if layer in side]
            if len(both) == 2:
                slow = max(both, key=lambda each: each.time_us)
                case, wanted = (layer, accepted_rules(accepted)) if accepted else ("", set())
                found += _judged(name, case, 1.0, slow, wanted)
    for device, name in SETS.items():
        layers_table, kernels = load_tables(find(name))
        times = layers_table.groupby(["backend", "layer"])["time_us"].median()
        for level in times.index.unique("backend"):
            for layer, slow in _layers(kernels[kernels["backend"] == level]).items():
                family = layer.rsplit("_s", 1)[0]
                if family in RULES and level == "base":
                    found += _judged(family, "", PLANTED_WEIGHT, slow, set())
                elif family in RULES and times[level, layer] >= EFFECT * times["base", layer]:
                    case, wanted = f"{device} {layer} {level}", causes_of_rules(RULES[family])
                    found += _judged(family, case, PLANTED_WEIGHT, slow, wanted)
    return found


def fitted(some: Sequence[Judged], names: Sequence[str]) -> LogisticRegression:
    """Return the model of what speaks for findings."""
    model = LogisticRegression(max_iter=2000)
    model.fit(_matrix(some, names), [one.right for one in some], [one.weight for one in some])
    return model


def _matrix(some: Sequence[Judged], names: Sequence[str]) -> list[list[float]]:
    return [[one.evidence.get(name, 0.0) for name in names] for one in some]


def fit() -> str:
    """Return the weights as TOML, and how often first findings of each word are right."""
    found = judged()
    names = sorted({name for one in found for name in one.evidence})
    model = fitted(found, names)
    weights = {"intercept": model.intercept_[0], **dict(zip(names, model.coef_[0], strict=True))}
    counts = {}
    for group in dict.fromkeys(one.group for one in found):
        mine = [one for one in found if one.group == group]
        left_out = fitted([one for one in found if one.group != group], names)
        sure = left_out.predict_proba(_matrix(mine, names))[:, 1]
        firsts: dict[str, tuple[float, float, bool]] = {}
        for one, probability in zip(mine, sure, strict=True):
            if not one.case:
                continue
            own = (probability * one.gain, probability, one.right)
            firsts[one.case] = max(firsts.get(one.case, own), own)
        answers = [(confidence_of(probability), right) for _, probability, right in firsts.values()]
        counts[group] = _by_confidence(answers)
    rows = [
        "# How probable a finding of one side is: a logistic model of what speaks for it",
        "# (findings.py, `evidence_of`). Made by python -m studies.truth.advised --fit.",
        "# First findings of exams by word, right and wrong, that exam left out of the fit:",
        *(f"# {group}: {dict(counted)}" for group, counted in counts.items() if group in EXAMS),
        "[words]",
        *(f"{word} = {bound}" for word, bound in load_fitted()["words"].items()),
        "",
        "[weights]",
        *(f"{name} = {value:.3f}" for name, value in weights.items()),
    ]
    return "\n".join(rows) + "\n"


@dataclass(frozen=True)
class Bounded:
    """What the first finding of a pair promises, and what the pair's difference is, of its time."""

    author: str  # the exam
    right: bool
    low: float
    high: float
    saved: float

    def holds(self, part: float = LEAST) -> bool:
        """Return whether it lies between, were the least that `part` of the logarithm."""
        return 1 - (1 - self.low) ** (part / LEAST) <= self.saved <= self.high


def bounded() -> list[Bounded]:
    """Return the first findings of the exams' slow sides beside what was measured."""
    found = []
    for author, exam in EXAMS.items():
        sides = exam.sides(exam.recordings[0])
        layers = [_layers(side.kernels) for side in sides if side.kernels is not None]
        for name, accepted in exam.labelled().items():
            both = sorted((s[name] for s in layers if name in s), key=lambda each: each.time_us)
            first = in_order([*launch_findings(both[-1]), *layer_findings(both[-1])])[:1]
            for one in first if len(both) == 2 else ():
                right = not accepted_rules(accepted).isdisjoint(one.rules)
                ends = one.least_us / one.holds.us, one.part_high
                found.append(Bounded(author, right, *ends, 1 - both[0].time_us / both[1].time_us))
    return found


def covered(rows: Sequence[Bounded]) -> dict[str, Any]:
    """Return how often the difference lies between least and most, also of other authors.

    The most is by laws and is not fitted. The least is the part of the logarithm, of `PARTS` the
    largest, with which four of five pairs of a half of the authors are held; it is asked of the
    other half.
    """
    authors = list(dict.fromkeys(one.author for one in rows))
    others = {}
    for half in (authors[::2], authors[1::2]):
        own, asked = ([o for o in rows if (o.author in half) == mine] for mine in (True, False))
        held = (p for p in PARTS if np.mean([one.holds(p) for one in own]) >= PROMISED)
        part = next(held, PARTS[-1])
        others[" ".join(half)] = [part, sum(one.holds(part) for one in asked), len(asked)]
    right = [one for one in rows if one.right]
    return {
        "all": [sum(one.holds() for one in rows), len(rows)],
        "right": [sum(one.holds() for one in right), len(right)],
        "width": round(float(np.median([(1 - o.low) / max(1 - o.high, 0.01) for o in rows])), 2),
        "authors": {
            name: [sum(one.holds() for one in own), len(own)]
            for name in authors
            for own in [[one for one in rows if one.author == name]]
        },
        "others": others,
    }


def measure() -> dict[str, Any]:
    """Return the counts of each data set, families kept aside apart."""
    found = {}
    for device, name in SETS.items():
        rows = cases(name)
        shown = [row for row in rows if not row["held_out"]]
        found[f"18 newer families, {device}"] = summary(shown)
        found[f"six families kept aside, {device}"] = summary([r for r in rows if r["held_out"]])
    exams = {name: exam_confidence(EXAMS[name]) for name in EXAMS}
    return {"families": found, "exams": exams, "covered": covered(bounded())}


if __name__ == "__main__":
    if sys.argv[1:] == ["--fit"]:
        sys.stdout.write(fit())
        sys.exit(0)
    sys.exit(run_study(measure, __doc__))
