"""Causes of a layer's difference in time, from counters alone: no model, nothing fitted.

A layer's time is a sum over its kernels, and a kernel's time a product of work and cost. The
logarithmic mean carries the logarithms of the products through the sum without a remainder: with
L(a, b) = (a - b) / ln(a / b), kernel k contributes L(t_k, b_k) / L(t, b) * ln(t_k / b_k), and a
kernel that only one side has contributes its time over L(t, b) (B. W. Ang, "The LMDI approach to
decomposition analysis", Energy Policy 33, 2005). Kernels that answer to each other are split
further, each in the work of the unit that is busiest on its slower side.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from perfml.explain.counters.evidence import Told, find_untold
from perfml.explain.counters.refine import log_mean
from perfml.explain.counters.resources import Resource, candidate_resources
from perfml.explain.counters.rivals import count_in, find_rival
from perfml.explain.counters.terms import TERMS, Contribution
from perfml.explain.launches import PAIRED, Change, Launch, Launches, kernel_label
from perfml.explain.results import Causes, PairCauses

WHOLE_LAYER = "whole layer"
NO_LAUNCHES = "kernels table (to tell kernels that vanished or appeared from those that changed)"

_WANTED = (
    "theoretical_occupancy",
    "waves_per_sm",
    "achieved_occupancy",
    "inst_executed",
    "ipc",
    "dram_read_bytes",
    "dram_write_bytes",
    "l2_read_transactions",
    "global_load_requests",
)
_ARITHMETIC = re.compile(r"gemm|conv(?!ert)|fprop|dgrad|wgrad|winograd|mma|attention|flash", re.I)
"""Names of kernels that do a layer's arithmetic; what is added around them is not called so."""


@dataclass(frozen=True)
class Match:
    """Launches that answer to each other, or (one of the two missing) a launch of one side."""

    label: str
    before: Launch | None
    after: Launch | None


def kernel_causes(
    changes: Sequence[Change], before: Launches, after: Launches, *, same_device: bool
) -> Causes:
    """Return the causes of a layer, kernel by kernel.

    Parameters
    ----------
    changes
        From `perfml.explain.launches.changes_between`.
    before, after
        The layer on both sides, with launches.
    same_device
        Whether busy fractions of the two sides are fractions of the same peak.

    Returns
    -------
    Causes
        They add up to the logarithm of the layer's time ratio.
    """
    assert before.launches is not None
    assert after.launches is not None
    matches = [
        match for change in changes for match in matches_of(change, before.launches, after.launches)
    ]
    return decompose_layer(_rejoined(matches), same_device=same_device, single=True)


def layer_causes(before: Launch, after: Launch, *, same_device: bool) -> Causes:
    """Return the causes of a layer of which only the merged rows are known; see `kernel_causes`."""
    single = before["kernels"] == 1 and after["kernels"] == 1
    matches = [Match(WHOLE_LAYER, before, after)]
    causes = decompose_layer(matches, same_device=same_device, single=single)
    return replace(causes, missing=(NO_LAUNCHES, *causes.missing))


def matches_of(change: Change, left: Sequence[Launch], right: Sequence[Launch]) -> list[Match]:
    """Return the launches of a change as they answer to each other.

    A kernel answers to the one of its name. Of kernels that others replace, those answer to each
    other that do the arithmetic.
    """
    before = [left[index] for index in change.baseline]
    after = [right[index] for index in change.target]
    if change.kind in PAIRED:
        return [Match(_label(one), one, two) for one, two in zip(before, after, strict=True)]
    matches = []
    for one in list(before):
        two = next((each for each in after if each.kernel == one.kernel), None)
        if two is not None:
            matches.append(Match(_label(one), one, two))
            before.remove(one)
            after.remove(two)
    if before and after:
        main = [
            side.pop(max(range(len(side)), key=lambda index: _weight(side[index])))
            for side in (before, after)
        ]
        label = " -> ".join(_label(launch) for launch in main)
        matches.append(Match(label, main[0], main[1]))
    matches += [Match(_label(launch), launch, None) for launch in before]
    matches += [Match(_label(launch), None, launch) for launch in after]
    return matches


def _rejoined(matches: Sequence[Match]) -> list[Match]:
    """Return the matches; kernels of one name in different places of the order are joined."""
    joined = list(matches)
    for gone in matches:
        if gone.before is None or gone.after is not None:
            continue
        name = gone.before.kernel
        alone = (new for new in joined if new.before is None and new.after is not None)
        new = next((new for new in alone if new.after and new.after.kernel == name), None)
        if new is not None:
            joined[joined.index(gone)] = Match(gone.label, gone.before, new.after)
            joined.remove(new)
    return joined


def _label(launch: Launch) -> str:
    return kernel_label(launch.kernel, 64)


def _weight(launch: Launch) -> tuple[float, float, float]:
    """Order the kernels of a replaced run: first the one that does the arithmetic.

    By name, since a warpgroup instruction keeps the tensor pipe busy for longer than its level
    says; then by how busy the arithmetic pipes were, then by time.
    """
    tensor = launch["tensor_utilization"]
    if math.isnan(tensor):
        tensor = launch["tensor_cycles_utilization"]
    levels = (tensor, launch["single_precision_fu_utilization"])
    worked = sum(level for level in levels if not math.isnan(level)) * launch.duration_us
    named = launch.time_us if _ARITHMETIC.search(launch.kernel) else 0.0
    return named, worked, launch.time_us


def decompose_layer(matches: Sequence[Match], *, same_device: bool, single: bool) -> Causes:
    """Return the contributions of all kernels, weighted so that they add up to the layer's ratio.

    Parameters
    ----------
    matches
        The layer's launches.
    same_device
        Whether busy fractions of the two sides are fractions of the same peak.
    single
        Whether rows are single launches, not means over several.
    """
    before = sum(match.before.time_us for match in matches if match.before is not None)
    after = sum(match.after.time_us for match in matches if match.after is not None)
    whole = log_mean(after, before)
    pairs, told = [], []
    for match in matches:
        if match.before is not None and match.after is not None:
            share = log_mean(match.after.time_us, match.before.time_us) / whole
            resource, contributions = decompose_pair(
                match.before, match.after, same_device=same_device, single=single
            )
            weighted = tuple(replace(one, log_ratio=share * one.log_ratio) for one in contributions)
            label = None if resource is None else resource.label
            pairs.append(PairCauses(match.label, label, weighted))
            told.append(Told(match.before, match.after, weighted))
        elif match.before is not None:
            time = match.before.time_us
            gone = Contribution(TERMS["kernels_vanished"], time, 0.0, -time / whole)
            pairs.append(PairCauses(match.label, None, (gone,)))
        elif match.after is not None:
            time = match.after.time_us
            new = Contribution(TERMS["kernels_appeared"], 0.0, time, time / whole)
            pairs.append(PairCauses(match.label, None, (new,)))
    ratio = math.log(after / before)
    others = [
        one
        for pair in pairs
        for one in pair.contributions
        if one.term.id in ("kernels_vanished", "kernels_appeared")
    ]
    untold = None
    if same_device:
        untold = find_untold(told, others, ratio) or find_rival(told, ratio, single=single)
    return Causes(tuple(pairs), ratio, _missing(matches, same_device), untold)


def decompose_pair(
    before: Launch, after: Launch, *, same_device: bool, single: bool
) -> tuple[Resource | None, tuple[Contribution, ...]]:
    """Return the resource that a pair was counted in, and terms that add up to its log ratio."""
    resources = candidate_resources(before, after, same_device=same_device)
    resource = resources[0] if resources else None
    return resource, count_in(resource, before, after, single=single)


def _missing(matches: Sequence[Match], same_device: bool) -> tuple[str, ...]:
    """Return what would split the terms further and was not collected."""
    paired = [
        launch
        for match in matches
        if match.before is not None and match.after is not None
        for launch in (match.before, match.after)
    ]

    def absent(name: str) -> bool:
        return bool(paired) and all(math.isnan(launch[name]) for launch in paired)

    missing = [name for name in _WANTED if absent(name)]
    if absent("sm_efficiency"):
        missing.append("sm_efficiency (without it, pipe times are of active multiprocessors only)")
    if not same_device:
        missing.append("peaks of both devices (busy fractions of different devices do not compare)")
    return tuple(missing)
