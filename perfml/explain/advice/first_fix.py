"""What to do first about a slower side: the action of its largest cause, and what that may save."""

from __future__ import annotations

import math
from collections.abc import Sequence

from perfml.explain.advice.after_fix import Estimate, estimate, estimate_of
from perfml.explain.advice.calls import in_pytorch, of_library
from perfml.explain.advice.cannot_say import cannot_say
from perfml.explain.advice.fix import CannotSay, Fix
from perfml.explain.advice.only_there import time_without_them
from perfml.explain.advice.persons import Person, person_of
from perfml.explain.launches import Launch, kernel_label
from perfml.explain.ratio import Ratio
from perfml.explain.tree.causes import ONE_SIDED, Kind, Term
from perfml.explain.tree.library_kernels import is_product
from perfml.explain.tree.remedies import action_here
from perfml.explain.tree.speedup import time_after
from perfml.explain.tree.told import Causes

_OF_LIBRARY = {
    Kind.WORK: "allow a smaller type (TF32, FP16), or let the library choose again (autotuning)",
    Kind.MEMORY: "pass contiguous, aligned data in the layout that the library works in, or fuse "
    "this layer with the next",
    Kind.OCCUPANCY: "give the library more work a launch (a larger batch, layers in one call)",
    Kind.WAVES: "give the library more work a launch (a larger batch, layers in one call)",
    Kind.STALL: "let the library choose again (autotuning, more workspace)",
    Kind.LAUNCH: "put the launches into one CUDA graph",
}
_OF_PYTORCH = {
    Kind.WORK: "fuse it with its neighbours (torch.compile), or use a smaller type (autocast)",
    Kind.MEMORY: "fuse it with its neighbours (torch.compile), and keep tensors contiguous",
    Kind.OCCUPANCY: "give it more work a launch: a larger batch, or torch.compile",
    Kind.WAVES: "give it more work a launch: a larger batch, or torch.compile",
    Kind.STALL: "fuse it with its neighbours (torch.compile)",
    Kind.LAUNCH: "fuse the launches (torch.compile), or record them as one CUDA graph",
}
"""What a user of a kernel can do, where only its author can do what the term says."""

_MORE_WORK = 1.5
"""Times the instructions from which on a call is said to ask for more."""
_WORK_ASKED = ("instructions", "global_requests", "redundant_traffic", "integer_arithmetic")
"""Causes that grow with what a call asks for."""
_REPEATED = 4
_ASKED = (
    "see what the calls ask for: this kernel runs on both sides; it executes {asked:.3g} times "
    "the instructions here (options, such as a mask in place of is_causal; sizes; padding)"
)
_AT_ONCE = (
    "let one call do what {number} launches of the same kernel do (a larger batch, or bmm "
    "in place of a loop)"
)
"""Launches of one kernel that the other side lacks: from so many on they are a loop's."""


def first_fix(
    time: Ratio,
    causes: Causes,
    names: tuple[str, str],
    launches: tuple[Sequence[Launch], Sequence[Launch]],
    *,
    tables: bool = False,
) -> Fix | None:
    """Return what to do about the largest cause of the slower side.

    Parameters
    ----------
    time, causes
        Of the layer.
    names, launches
        Of the baseline and of the target.
    tables
        Whether the sides are two profiles, of which none can be taken as a library can.

    Returns
    -------
    Fix or None
        None where the sides do not differ, or the largest part is what no counter separates.
    """
    if time.verdict not in ("slower", "faster"):
        return None
    slow = 1 if time.verdict == "slower" else 0
    sign = 1.0 if slow else -1.0
    along = [each for each in causes.totals if sign * each.log_ratio > 0]
    if not along or along[0].term.residual or along[0].term.kind is Kind.MEASUREMENT:
        return None
    term = along[0].term
    places: dict[str, list[float]] = {}
    for pair in causes.pairs:
        for part in pair.contributions:
            if part.term == term:
                places.setdefault(pair.kernels, []).append(sign * part.log_ratio)
    place = max(places, key=lambda kernels: sum(places[kernels]))
    label = place.split(" -> ")[-1 if slow else 0]
    fixed = [one for one in launches[slow] if not one.kernel or _label(one) == label]
    now = (time.baseline_us, time.target_us)[slow]
    other = (names[1 - slow], max(time.ratio, 1 / time.ratio)) if names[0] != names[1] else None
    alike = len(places[place])
    asked = _instructions(fixed, launches[1 - slow])
    action = action_for(
        term, fixed[0] if fixed else Launch(label, now, {}), other, alike, asked, tables=tables
    )
    unsaid = cannot_say(term.id, causes, launches[slow], launches[1 - slow])
    if term.id in ONE_SIDED:
        after = (
            estimate_of(time_without_them(causes, launches[slow], slow), now)
            if unsaid is None
            else None
        )
    else:
        after = _after(term, launches_with(term.id, causes, launches[slow], slow), now)
        after = after if unsaid is None else None
    if after is None and unsaid is None:
        unsaid = CannotSay.COUNTERS
    untold = causes.untold
    tells = "" if untold is None else untold.what_tells()
    return Fix(names[slow], term, label, action, now, after, unsaid, causes.confidence, tells)


def launches_with(term: str, causes: Causes, launches: Sequence[Launch], slow: int) -> list[Launch]:
    """Return the slower side's launches in which a cause is, of all kernels of the layer."""
    sign = 1.0 if slow else -1.0
    labels = {
        pair.kernels.split(" -> ")[-1 if slow else 0]
        for pair in causes.pairs
        if sum(sign * one.log_ratio for one in pair.contributions if one.term.id == term) > 0
    }
    return [one for one in launches if not one.kernel or _label(one) in labels]


def _instructions(fixed: Sequence[Launch], others: Sequence[Launch]) -> float:
    """Return how many times the instructions a kernel executes here; NaN if not known."""
    if not fixed:
        return math.nan
    same = [one["inst_executed"] for one in others if one.kernel == fixed[0].kernel != ""]
    return fixed[0]["inst_executed"] / max(same) if same and max(same) > 0 else math.nan


def _label(launch: Launch) -> str:
    return kernel_label(launch.kernel, 64)


def _after(term: Term, launches: Sequence[Launch], now_us: float) -> Estimate | None:
    saved = sum(one.time_us * (1 - time_after(one, term.id)) for one in launches)
    # a cause without an estimate gives NaN
    if not 0 < saved < now_us:
        return None
    return estimate(now_us, 1 - saved / now_us, launches, term.id)


def action_for(
    term: Term,
    launch: Launch,
    other: tuple[str, float] | None,
    alike: int = 1,
    asked: float = math.nan,
    *,
    tables: bool = False,
) -> str:
    """Return what the person concerned can do: the author of a kernel, or who calls it.

    Parameters
    ----------
    term
        The cause.
    launch
        Of the kernel.
    other
        The faster side, and how many times as fast it is; None where it has no name of its own.
    alike
        Launches of this kernel that have the cause.
    asked
        How many times the instructions that the same kernel executes on the faster side; NaN where
        it does not run there.
    tables
        Whether the sides are two profiles.
    """
    person = person_of(launch.kernel)
    actions = {Person.LIBRARY: _OF_LIBRARY, Person.PYTORCH: _OF_PYTORCH}.get(person, {})
    if term.kind not in actions:
        return action_here(term.id, launch) or term.action
    take = ""
    if other is not None:
        what = (
            f"the kernels that {other[0]} ran"
            if tables
            else f"the {other[0]} version of this layer"
        )
        take = f"take {what} ({other[1]:.2f} times as fast here), or "
    if person is Person.LIBRARY and asked >= _MORE_WORK and term.id in _WORK_ASKED:
        can = _ASKED.format(asked=asked)
    else:
        can = _by_user(term, launch.kernel, person, alike)
    return f"the kernel is {person.whose}: {take}{can}."


def _by_user(term: Term, kernel: str, person: Person, alike: int) -> str:
    """Return what who calls a kernel can do about a cause."""
    actions = _OF_PYTORCH if person is Person.PYTORCH else _OF_LIBRARY
    own = in_pytorch(term, kernel) if person is Person.PYTORCH else of_library(term, kernel)
    if is_product(kernel) and term.id in ONE_SIDED and alike >= _REPEATED:
        return f"{_AT_ONCE.format(number=alike)}, or {actions[term.kind]}"
    return actions[term.kind] if own is None else own
