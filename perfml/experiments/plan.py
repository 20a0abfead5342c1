"""Which experiments come first: those that tell two causes apart best per millisecond.

A cause predicts by how much a launch slows down under each condition: by the elasticities of the
limits at which it can hold the launch. Two causes differ under a condition by the logarithm of the
ratio of their predictions; it costs the time of the condition, and of its control where that is not
measured yet.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from perfml.experiments.findings import Finding
from perfml.experiments.limits import LIMITS, QUEUES
from perfml.experiments.mutation.catalog import RECOMPILED, mutations_of
from perfml.experiments.verdicts import LIMITS_OF

ANY = "*"
"""Stands for every range."""
Plan = dict[str, tuple[str, ...]]
"""A range, or `ANY`, to the conditions of its launches, the best first."""
_AMOUNTS = {
    "sm_most": 0.79, "sm_half": 0.55, "warps_half": 0.5,
    "dram_traffic": 0.78, "l2_traffic": 0.83, "atomic_traffic": 0.78,
}  # fmt: skip
"""What is left of the resource, as on an H100 (``studies/data/h100-experiments``)."""
_CONTROLS = {"warps_half": ("l1_large", "l1_small")} | dict.fromkeys(
    ("dram_traffic", "l2_traffic", "atomic_traffic"), ("sm_most",)
)
_MULTIPROCESSORS = {"sm_most": 1.0, "sm_half": 1.0}
_ELASTICITIES: dict[str, dict[str, float]] = {
    "multiprocessor": _MULTIPROCESSORS,
    "warps": _MULTIPROCESSORS | {"warps_half": 1.0},
    "dram": {"dram_traffic": 1.0, "l2_traffic": 1.0, "atomic_traffic": 1.0},
    "l2": {"l2_traffic": 1.0, "atomic_traffic": 1.0},
    "memory_latency": {"dram_traffic": QUEUES, "l2_traffic": 1.0, "atomic_traffic": 1.0},
}
"""Of the time of a launch that stands at a limit; 0 where there is none (`limits`)."""


def order(first: str = "", second: str = "") -> tuple[str, ...]:
    """Return the conditions that a verdict needs, those that tell two causes apart best first.

    A cause that no launch can tell stands for any limit.
    """
    pairs = [LIMITS_OF.get(cause, frozenset(LIMITS)) for cause in (first, second)]
    left = dict(_AMOUNTS)
    made = ["all"]
    while left:
        best = max(left, key=lambda name: _power(name, pairs) / _cost(name, made))
        made += [*(each for each in _CONTROLS.get(best, ()) if each not in made), best]
        left = {name: amount for name, amount in left.items() if name not in made}
    return tuple(made)


def plan(findings: Sequence[Finding]) -> Plan:
    """Return what to measure for findings: their layers only, the best conditions first.

    Without ranges a layer is a kernel: then everything is examined.
    """
    if not findings:
        return {ANY: order()}
    return {
        ANY if each.layer == each.kernel else each.layer: order(each.cause, each.second)
        for each in findings
    }


def mutations(findings: Sequence[Finding]) -> frozenset[str] | None:
    """Return the mutations that decide on the causes of findings, if any; None for all."""
    if not findings:
        return None
    known = mutations_of()
    causes = {name for each in findings for name in (each.cause, each.second)}
    chosen = {m for kind in known.values() for cause in causes for m in kind.get(cause, ())}
    return frozenset({*chosen, RECOMPILED} if chosen else ())


def _power(condition: str, pairs: Sequence[frozenset[str]]) -> float:
    """Return by how much the logarithms of the times differ that two causes predict."""
    one, other = (_elasticity(condition, limits) for limits in pairs)
    # limits that both have in common are told apart a little, so that all are asked in the end
    spread = max(_elasticity(condition, [each]) for each in LIMITS)
    return (abs(one - other) + 0.01 * spread) * math.log(1 / _AMOUNTS[condition])


def _cost(condition: str, made: Sequence[str]) -> float:
    """Return how many launches as it is a condition takes."""
    controls = sum(each not in made for each in _CONTROLS.get(condition, ()))
    return 1 / _AMOUNTS[condition] + controls


def _elasticity(condition: str, limits: Sequence[str] | frozenset[str]) -> float:
    known = [_ELASTICITIES.get(each, {}).get(condition, 0.0) for each in limits]
    return sum(known) / len(known)
