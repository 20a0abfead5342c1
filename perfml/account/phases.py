"""The steps of a program that generates token by token, found in what the device ran.

A server's host shows one call per step: the replay of a CUDA graph. So steps are found as what
repeats. The sequence of launches is cut before each launch of one kernel (or replay of one graph),
and of all such cuts the one is taken that describes it shortest: the launches of its different
pieces, and two words for each piece. Layers as pieces are many, requests are long. Between the
sampling of one token and the first layer of the next the longest idle time is the boundary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from perfml.kernel_names import kernel_class, kernel_phase
from perfml.util.typing import Floats, Ints

PREFILL, DECODE, MIXED, STEP = "prefill", "decode", "mixed", "step"
_ENDS = frozenset({"sampling", "softmax", "sort", "random"})
"""What chooses the next token."""
_LAYERS = frozenset(
    {"product", "attention", "normalisation", "rotary", "cache", "convolution", "state_space"}
)
_BY_TOKEN = frozenset({"normalisation", "elementwise", "rotary", "cache", "quantization"})
"""Classes of kernels whose threads grow with the tokens of a step."""
_TAIL = _ENDS | {"reduction"}
_LONGER = 4.0
"""A step of this many times the threads of the usual one works on a prompt: prompts have tens of
tokens a sequence, and a decode step one (or the few that are speculated)."""
_LEAST = 3
"""Steps that have to be alike, or nothing repeats."""
SAMPLED = 0.8
"""Part of the steps that end in sampling, where a program generates tokens."""
_NAMING = 2
"""Words that a piece takes in the description. So steps win over the layers in them from half as
many steps on as a layer has launches, and over equal requests up to half as many as a step has."""
_SURER = 2.0
"""A cut at the sampling may be longer by this factor than the shortest: each step ends in one."""
_NEAR = 1.5
"""Of cuts at a sampling whose descriptions are that near the one with fewest pieces holds."""
_LOOKED_AT = 100_000
"""Launches among which the cut is chosen."""
_CANDIDATES, _ALIKE = 128, 8
"""Kernels that are tried, and of those that run equally often."""


@dataclass(frozen=True)
class Launches:
    """Launches of one device in the order of their launch.

    Attributes
    ----------
    names
        Of the kernels.
    gaps
        Microseconds that the device had been idle before each, NaN where not known, shape (n,).
    threads, times
        Threads and microseconds of each, NaN where not known, shape (n,).
    replays
        Number of the replay of a CUDA graph that each is part of; -1 outside one, shape (n,).
    """

    names: Sequence[str]
    gaps: Floats
    threads: Floats
    times: Floats
    replays: Ints

    @property
    def replayed(self) -> float:
        """Which part of the time is that of replays."""
        times = np.nan_to_num(self.times, nan=1.0)
        return float(times[self.replays >= 0].sum() / max(times.sum(), 1e-12))


@dataclass(frozen=True)
class Phase:
    """One step: launches from `first` up to `end`, of a `kind` such as ``decode``."""

    kind: str
    first: int
    end: int


def find_phases(launches: Launches) -> tuple[Phase, ...]:
    """Return the steps of a program that generates tokens; none where nothing repeats."""
    classes = np.array([kernel_class(name).id for name in launches.names], dtype=object)
    bounds = _bounds(launches, classes)
    if bounds is None:
        return ()
    works = np.add.reduceat(np.isin(classes, list(_LAYERS)), bounds)
    # what prepares a step, or copies after the last one, is none itself
    bounds = np.r_[0, bounds[1:][(works[1:] > 0) & (np.cumsum(works)[:-1] > 0)]]
    spans = list(zip(bounds.tolist(), [*bounds[1:].tolist(), len(classes)], strict=True))
    kinds = _kinds(launches, classes, spans)
    return tuple(Phase(kind, *span) for kind, span in zip(kinds, spans, strict=True))


def class_layers(launches: Launches, phases: Sequence[Phase]) -> list[str]:
    """Return the layer of each launch: its class, in a step also what the step is for.

    What follows the last product of a step chooses the next token from the logits, so a softmax or
    a sort there is sampling.
    """
    layers = [kernel_class(name).layer for name in launches.names]
    ids = [kernel_class(name).id for name in launches.names]
    for phase in phases:
        rows = range(phase.first, phase.end)
        head = max((row for row in rows if ids[row] == "product"), default=phase.end)
        samples = "sampling" in ids[head : phase.end]
        for row in rows:
            tail = samples and row > head and ids[row] in _TAIL
            layers[row] = f"{phase.kind}/{'sampling' if tail else layers[row]}"
    return layers


def _bounds(launches: Launches, classes: npt.NDArray[np.object_]) -> npt.NDArray[np.int64] | None:
    """Return where the steps begin, the first one at 0; None where nothing repeats."""
    codes, firsts = _words(launches)
    kinds = np.where(launches.replays[firsts] >= 0, "replay", classes[firsts])
    gaps = launches.gaps[firsts]
    sizes = np.diff(np.r_[firsts, len(classes)])
    anchor = _anchor(codes[:_LOOKED_AT], sizes[:_LOOKED_AT], kinds, gaps)
    if anchor is None:
        return None
    in_layers = np.isin(kinds, ["replay", *_LAYERS])
    layers, known = np.flatnonzero(in_layers), np.flatnonzero(in_layers | np.isin(kinds, [*_ENDS]))
    bounds = {0}
    places = np.flatnonzero(codes == anchor)
    untils = np.r_[layers, len(codes) - 1][np.searchsorted(layers, places)]
    sinces = np.r_[-1, known][np.searchsorted(known, untils)] + 1
    idle = np.nan_to_num(gaps)
    for since, until in zip(sinces.tolist(), untils.tolist(), strict=True):
        bounds.add(since + int(idle[since : until + 1].argmax()))
    return np.array(firsts[sorted(bounds)], dtype=np.int64)


def _words(launches: Launches) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return a number for each launch outside graphs and each replay, and its first row.

    Replays of the same kernels have the same number, in whatever order branches ran.
    """
    numbers = {name: number for number, name in enumerate(dict.fromkeys(launches.names))}
    codes = np.array([numbers[name] for name in launches.names], dtype=np.int64)
    replays = launches.replays
    begins = np.r_[True, (replays[1:] != replays[:-1]) | (replays[1:] < 0)]
    firsts = np.flatnonzero(begins)
    words = _signatures(codes, firsts)
    return np.asarray(np.unique(words, return_inverse=True)[1], dtype=np.int64), firsts


def _signatures(
    codes: npt.NDArray[np.int64], firsts: npt.NDArray[np.int64]
) -> npt.NDArray[np.uint64]:
    """Return a number for what each piece holds, in any order."""
    drawn = np.random.default_rng(0).integers(1, 1 << 62, int(codes.max()) + 1, dtype=np.uint64)
    return np.add.reduceat(drawn[codes], firsts)


def _anchor(
    codes: npt.NDArray[np.int64],
    sizes: npt.NDArray[np.int64],
    kinds: npt.NDArray[np.str_],
    gaps: Floats,
) -> int | None:
    """Return the word before which to cut: the shortest description, at a sampling if it can be."""
    counts = np.bincount(codes)
    begun = {code: place for place, code in reversed([*enumerate(codes.tolist())])}
    ends = {code for code, place in begun.items() if kinds[place] == "sampling"}
    by_count: dict[int, list[int]] = {}
    for code in sorted(begun, key=lambda code: (code not in ends, begun[code])):
        if counts[code] >= _LEAST:
            by_count.setdefault(int(counts[code]), []).append(code)
    tried = [code for same in by_count.values() for code in same[:_ALIKE]]
    costs: dict[int, int] = {}
    for code in tried[:_CANDIDATES]:
        cuts = np.unique(np.r_[0, np.flatnonzero(codes == code)])
        pieces = _signatures(codes, cuts)
        _, first, often = np.unique(pieces, return_index=True, return_counts=True)
        if often.max() >= _LEAST:
            lengths = np.add.reduceat(sizes, cuts)
            costs[code] = int(lengths[first].sum()) + _NAMING * len(cuts)
    if not costs or min(costs.values()) >= sizes.sum():
        return None
    best = min(costs.values())
    sampling = {code: costs[code] for code in ends & {*costs} if costs[code] <= _SURER * best}
    chosen = sampling or costs
    # routers choose experts by the kernels that choose tokens, but more often
    near = (_NEAR if sampling else 1.1) * min(chosen.values())

    def order(code: int) -> tuple[int, float]:
        idle = float(np.median(np.nan_to_num(gaps[: len(codes)][codes == code])))
        return int(counts[code]) if sampling else 0, -idle

    return min((code for code, cost in chosen.items() if cost <= near), key=order)


def _kinds(
    launches: Launches, classes: npt.NDArray[np.object_], spans: Sequence[tuple[int, int]]
) -> list[str]:
    """Return what each step is for: by the names of its attention kernels, else by its size."""
    named = np.array([kernel_phase(name) for name in launches.names])
    firsts = np.array([first for first, _ in spans])
    size = np.where(np.isin(classes, list(_BY_TOKEN)), launches.threads, 0.0)
    if np.isnan(size).all():
        size = launches.times
    sizes = np.add.reduceat(np.nan_to_num(size), firsts)
    usual = float(np.median(sizes))
    longer = sizes > _LONGER * usual
    samples = np.mean([_samples(classes[first:end]) for first, end in spans]) >= SAMPLED
    generates = samples and (longer.any() or launches.replayed >= 0.5)
    kinds = []
    for (first, end), long in zip(spans, longer.tolist(), strict=True):
        told = set(named[first:end].tolist()) - {""}
        if told == {PREFILL, DECODE}:
            kinds.append(MIXED)
        elif told:
            kinds.append(told.pop())
        elif generates:
            # a prompt is seldom replayed: no two have one length
            kinds.append(PREFILL if long else DECODE)
        else:
            kinds.append(STEP)
    return kinds


def _samples(classes: npt.NDArray[np.object_]) -> bool:
    """Return whether a step ends in choosing a token: after its last product."""
    products = np.flatnonzero(classes == "product")
    return bool(products.size and (classes[products[-1] :] == "sampling").any())
