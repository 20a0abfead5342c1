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
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from perfml.explain.launches import PAIRED, Change, Launch, Launches
from perfml.explain.tree.causes import TERMS, Contribution
from perfml.explain.tree.confidence import Answered, find_ambiguity
from perfml.explain.tree.engine import decompose_pair
from perfml.explain.tree.layer_causes import Causes, PairCauses
from perfml.explain.tree.library_kernels import (
    as_calls,
    as_passes,
    does_arithmetic,
    is_product,
    judge_by_work,
    of_library,
    of_others,
)
from perfml.explain.tree.pair import log_mean
from perfml.util.words import say

WHOLE_LAYER = "whole layer"

_WANTED = (
    *("theoretical_occupancy", "waves_per_sm", "achieved_occupancy", "inst_executed", "ipc"),
    *("dram_read_bytes", "dram_write_bytes", "l2_read_transactions", "global_load_requests"),
)


@dataclass(frozen=True)
class Match:
    """Launches that answer to each other, or (one of the two missing) a launch of one side."""

    label: str
    before: Launch | None
    after: Launch | None
    # where they are different kernels: what either side runs in this place
    runs: tuple[Sequence[Launch], Sequence[Launch]] | None = None

    @property
    def times_us(self) -> tuple[float, float]:
        """The times of both launches; 0 of one that is missing."""
        before, after = (
            0.0 if each is None else each.time_us for each in (self.before, self.after)
        )
        return before, after


def kernel_causes(
    changes: Sequence[Change], before: Launches, after: Launches, *, same_device: bool
) -> Causes:
    """Return the causes of a layer, kernel by kernel; they add up to the log of its time ratio.

    `changes` are from `perfml.explain.launches.changes_between`.
    """
    matches = layer_matches(changes, before, after)
    return decompose_layer(matches, same_device=same_device, single=True)


def layer_matches(changes: Sequence[Change], before: Launches, after: Launches) -> list[Match]:
    """Return the launches of a layer as they answer to each other; see `kernel_causes`."""
    assert before.launches is not None
    assert after.launches is not None
    return _rejoined(
        [
            match
            for change in changes
            for match in matches_of(change, before.launches, after.launches)
        ]
    )


def layer_causes(before: Launch, after: Launch, *, same_device: bool) -> Causes:
    """Return the causes of a layer of which only the merged rows are known; see `kernel_causes`."""
    single = before["kernels"] == 1 and after["kernels"] == 1
    matches = [Match(WHOLE_LAYER, before, after)]
    causes = decompose_layer(matches, same_device=same_device, single=single)
    return replace(causes, missing=(say("explain.note.no_launches"), *causes.missing))


def matches_of(change: Change, left: Sequence[Launch], right: Sequence[Launch]) -> list[Match]:
    """Return the launches of a change as they answer to each other."""
    # A kernel answers to the one of its name. Of kernels that others replace, those answer to each
    # other that do the arithmetic; a loop that launches another kernel as often answers to the loop
    # launch by launch.
    before = [left[index] for index in change.baseline]
    after = [right[index] for index in change.target]
    if change.kind in PAIRED:
        return [Match(one.label, one, two) for one, two in zip(before, after, strict=True)]
    before, after = as_calls(before), as_calls(after)
    runs = (tuple(before), tuple(after))
    matches = []
    for one in list(before):
        two = next((each for each in after if each.kernel == one.kernel), None)
        if two is not None:
            matches.append(Match(one.label, one, two))
            before.remove(one)
            after.remove(two)
    before, after = as_passes(before, after), as_passes(after, before)
    if _is_loop(before, after):
        return [*matches, *(_replaced(one, two) for one, two in zip(before, after, strict=True))]
    if before and after:
        main = [
            side.pop(max(range(len(side)), key=lambda index: _weight(side[index])))
            for side in (before, after)
        ]
        label = " -> ".join(launch.label for launch in main)
        matches.append(
            Match(label, main[0], main[1], runs if of_others(*before, *after, *main) else None)
        )
    matches += [Match(launch.label, launch, None) for launch in before]
    matches += [Match(launch.label, None, launch) for launch in after]
    return matches


def _is_loop(before: Sequence[Launch], after: Sequence[Launch]) -> bool:
    """Return whether either side launches one kernel again and again, as often as the other."""
    kernels = [{one.kernel for one in side} for side in (before, after)]
    return len(before) == len(after) > 1 and all(len(each) == 1 for each in kernels)


def _replaced(before: Launch, after: Launch) -> Match:
    """Return the match of a launch and of the one that does its work on the other side."""
    label = " -> ".join((before.label, after.label))
    runs = ((before,), (after,)) if of_others(before, after) else None
    return Match(label, before, after, runs)


def _rejoined(matches: Sequence[Match]) -> list[Match]:
    """Return the matches; what answers to each other in different places of the order is joined."""
    # These are kernels of one name, and a library's kernels for arithmetic: a product that is done
    # before a copy on one side and after it on the other is no kernel that appeared.
    joined = list(matches)
    for gone in matches:
        if gone.before is None or gone.after is not None:
            continue
        alone = (each for each in joined if each.before is None and each.after is not None)
        same = (each for each in alone if each.after and each.after.kernel == gone.before.kernel)
        if (new := next(same, None)) is not None:
            joined[joined.index(gone)] = Match(gone.label, gone.before, new.after)
            joined.remove(new)
    return _products_joined(joined)


def _products_joined(matches: list[Match]) -> list[Match]:
    """Return the matches; the longest arithmetic that a library does on either side is joined."""
    lone = [each for each in matches if (each.before is None) != (each.after is None)]
    gone = [each for each in lone if each.before and is_product(each.before.kernel)]
    new = [each for each in lone if each.after and is_product(each.after.kernel)]
    if not (gone and new):
        return matches
    old, other = (max(some, key=lambda each: sum(each.times_us)) for some in (gone, new))
    assert old.before is not None
    assert other.after is not None
    joined = _replaced(old.before, other.after)
    return [joined if each is other else each for each in matches if each is not old]


def _weight(launch: Launch) -> tuple[float, float, float]:
    """Order the kernels of a replaced run: first the one that does the arithmetic."""
    # By name, since a warpgroup instruction keeps the tensor pipe busy for longer than its level
    # says; then by how busy the arithmetic pipes were, then by time.
    tensor = launch["tensor_utilization"]
    if math.isnan(tensor):
        tensor = launch["tensor_cycles_utilization"]
    levels = (tensor, launch["single_precision_fu_utilization"])
    worked = sum(level for level in levels if not math.isnan(level)) * launch.duration_us
    named = launch.time_us if does_arithmetic(launch.kernel) else 0.0
    return named, worked, launch.time_us


def decompose_layer(matches: Sequence[Match], *, same_device: bool, single: bool) -> Causes:
    """Return the contributions of all kernels, weighted so that they add up to the layer's ratio.

    `same_device` says that busy fractions of both sides are fractions of the same peak, `single`
    that rows are single launches, not means over several.
    """
    answered, others, ratio = answers_of(matches, single=single)
    answers, lone = iter(answered), iter(others)
    pairs = []
    for match in matches:
        if match.before is None or match.after is None:
            pairs.append(PairCauses(match.label, None, (next(lone),), match.times_us))
            continue
        answer, unlike = next(answers), match.runs is not None
        parts = (match.label, answer.found.limiter, answer.contributions, match.times_us)
        product = unlike and any(map(of_library, (match.before, match.after)))
        pairs.append(PairCauses(*parts, unlike, product, answer.found.denied))
    untold, sure = find_ambiguity(answered, others, ratio)
    return Causes(tuple(pairs), ratio, _missing(matches, same_device), untold, sure)


def answers_of(
    matches: Sequence[Match], *, single: bool = True
) -> tuple[list[Answered], list[Contribution], float]:
    """Return the parts of pairs of launches, those of launches without one, and the log ratio."""
    before, after = (sum(match.times_us[at] for match in matches) for at in (0, 1))
    whole = log_mean(after, before)
    counts = _counts(matches)
    answered, others = [], []
    for match in matches:
        if match.before is None or match.after is None:
            others.append(_one_sided(match, counts, whole))
            continue
        share = log_mean(match.after.time_us, match.before.time_us) / whole
        found = decompose_pair(match.before, match.after, single=single)
        contributions = found.contributions
        if match.runs is not None:
            contributions = judge_by_work(contributions, *match.runs)
        weighted = tuple(one.with_part(share * one.log_ratio) for one in contributions)
        unlike = match.runs is not None
        answered.append(Answered(match.before, match.after, found, weighted, by_work=unlike))
    return answered, others, math.log(after / before)


def _counts(matches: Sequence[Match]) -> tuple[Counter[str], Counter[str]]:
    """Return how often either side launches each kernel, or the one that stands in its place."""
    # A loop of one kernel that does the work of one launch of another launches it more often.
    before = Counter(match.before.kernel for match in matches if match.before)
    after = Counter(match.after.kernel for match in matches if match.after)
    for match in matches:
        if match.before is not None and match.after is not None:
            one, other = match.before.kernel, match.after.kernel
            if after[one] == 0 and before[other] == 0:
                after[one], before[other] = after[other], before[one]
    return before, after


def _one_sided(match: Match, counts: Sequence[Counter[str]], whole: float) -> Contribution:
    """Return what a launch without a counterpart contributes."""
    # It is one more of a kernel that both sides launch, or a kernel that one side lacks.
    launch, sign = (match.after, 1.0) if match.before is None else (match.before, -1.0)
    assert launch is not None
    value = sign * launch.time_us / whole
    often = [count[launch.kernel] for count in counts]
    if min(often) > 0:
        return Contribution(TERMS["launch_count"], often[0], often[1], value)
    if match.before is None:
        return Contribution(TERMS["kernels_appeared"], 0.0, launch.time_us, value)
    return Contribution(TERMS["kernels_vanished"], launch.time_us, 0.0, value)


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
