"""Gaps between kernels: how long a device waits for the host, which no kernel's time shows.

A trace (Nsight Systems, torch.profiler) says when kernels began, and so does the timing of a
program by ``perfml collect``. From the first kernel of an iteration to the last the clock shows
what the kernels take and what the device is idle, so

    wall ratio = ratio of what the kernels take x ratio of (wall / what the kernels take)

and the second factor is the cause ``launch_gaps``. Where copies and fills are known beside the
kernels (`perfml.explain.moved`) they are part of the wall time and no gaps, and the second factor
is that of two causes, ``launch_gaps`` and ``memory_moves``. Since

    wall / kernels = 1 + idle / kernels + moved / kernels

is a sum, its logarithm is shared out by the logarithmic mean (B. W. Ang, 2005), without a rest.
Recordings of ``perfml collect`` from before it timed copies have them as gaps.

One gap is one event of the host. In one recorded iteration of blocks of PyTorch on an H200 gaps of
6 ms (an allocation, most likely) stood before kernels that wait for nothing without a profiler. So
of a side of which one iteration is known, its longest gap proves nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from perfml.explain import moved as moves
from perfml.explain.moved import NOTHING, Moved
from perfml.explain.tree.causes import TERMS, Contribution
from perfml.explain.tree.parts import log_mean
from perfml.util.words import Readable, micros

GRAPH_GAP_US = 0.3
"""From one kernel's end to the next one's start in a CUDA graph: 0.26 to 0.29 us in the median on
an H200 (``tests/data/torch_trace/gaps``)."""
SHOWN = 0.1
"""Smaller savings are not spoken of, and factors nearer to 1."""
UNSEEN = (
    "the kernels alone show no difference: if the program is slower, its time lies between them "
    "(copies from and to the host, memsets, waiting for the host, kernels one after another in one "
    "stream), of which a profiler of counters records nothing; look there with perfml collect, or "
    "record both sides by nsys profile --trace cuda,nvtx and give the traces to perfml explain"
)
"""What cannot be told of sides whose kernels, timed one at a time, are as fast."""
_TERM = TERMS["launch_gaps"]


@dataclass(frozen=True)
class Timeline:
    """What the clock shows of an iteration: the usual one, by its wall time.

    Attributes
    ----------
    name
        What the side is called; empty where there is one.
    kernels
        Launches.
    wall_us
        From the start of the first kernel to the end of the last.
    idle_us
        Of it the device had nothing to do: no kernel, no copy.
    gap_us
        Median of the gaps.
    longest_us
        The longest of them.
    iterations
        How many are known, of which this is the usual one.
    moved
        Copies and fills of memory while no kernel runs.
    clock
        Whether it is known what is idle.
    """

    name: str
    kernels: int
    wall_us: float
    idle_us: float
    gap_us: float
    longest_us: float = 0.0
    iterations: int = 1
    moved: Moved = NOTHING
    clock: bool = True

    @property
    def busy_us(self) -> float:
        """What kernels and copies take."""
        return self.wall_us - self.idle_us

    @property
    def idle_share(self) -> float:
        """The part of the wall time that is idle."""
        return self.idle_us / self.wall_us

    @property
    def moved_share(self) -> float:
        """The part of the wall time that are copies and fills."""
        return self.moved.total_us / self.wall_us

    @property
    def kernels_us(self) -> float:
        """What kernels take."""
        return self.busy_us - self.moved.total_us

    @property
    def chance_us(self) -> float:
        """What may be one event of the host: one iteration's longest gap."""
        return self.longest_us if self.iterations == 1 else 0.0

    @property
    def as_graph_us(self) -> float:
        """What it would take as one CUDA graph, from its first kernel to its last."""
        return min(self.wall_us, self.busy_us + (self.kernels - 1) * GRAPH_GAP_US)

    def sentence(self) -> str | None:
        """Say how much is idle and what to do; None where that would save little."""
        if self.as_graph_us > (1 - SHOWN) * self.wall_us:
            return None
        whose = f"{self.name}: " if self.name else ""
        return f"{whose}{self.idle_text()}. {self.idle_action()}"

    def idle_text(self) -> str:
        """Say how long the device is idle."""
        return (
            f"between its kernels the device is idle {micros(self.idle_us)} of "
            f"{micros(self.wall_us)} ({Readable(self.idle_share):.0%}), {micros(self.gap_us)} "
            "at a launch in the median, which times of kernels do not show"
        )

    def idle_action(self) -> str:
        """Say what to do about that, and what it gives at most."""
        return f"{_TERM.action} As one CUDA graph it would take about {micros(self.as_graph_us)}."

    def moved_sentence(self) -> str | None:
        """Say what is copied and filled and what to do; None where that is little."""
        if self.moved_share < SHOWN:
            return None
        whose = f"{self.name}: " if self.name else ""
        return (
            f"{whose}{micros(self.moved.total_us)} of {micros(self.wall_us)} "
            f"({Readable(self.moved_share):.0%}) are copies and fills of memory while no kernel "
            f"runs: {self.moved.words()}. {self.moved.action()}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        moved = self.moved.to_dict()
        return {
            "kernels": self.kernels,
            "wall_us": self.wall_us,
            "idle_us": self.idle_us,
            "gap_us": self.gap_us,
            "as_graph_us": self.as_graph_us,
            **({"moved": moved} if moved else {}),
        }


@dataclass(frozen=True)
class Gaps:
    """Two sides on the clock, and what gaps between kernels, copies and fills account for."""

    baseline: Timeline
    target: Timeline

    @property
    def wall_ratio(self) -> float:
        """Time of the target over that of the baseline, on the clock."""
        return self.target.wall_us / self.baseline.wall_us

    @property
    def contribution(self) -> Contribution:
        """The cause: idle shares of both sides, and the logarithm of its factor."""
        shares = (self.baseline.idle_share, self.target.idle_share)
        return Contribution(_TERM, *shares, self._between((0.0, 0.0))[0])

    @property
    def copies(self) -> Contribution:
        """The cause: shares of copies and fills of both sides, and their factor's logarithm."""
        shares = (self.baseline.moved_share, self.target.moved_share)
        return Contribution(moves.TERM, *shares, self._between((0.0, 0.0))[1])

    @property
    def most(self) -> Contribution:
        """The cause of the two to look at first.

        A host that waits for its copies leaves the device idle after them, so that half as much in
        copies as in gaps is enough.
        """
        copies = self.copies
        gaps = self._proven_gaps
        return copies if abs(copies.log_ratio) > abs(gaps) / 2 else self.contribution

    def _between(self, chance: tuple[float, float]) -> tuple[float, float]:
        """Return the logarithms of the factors of gaps and of moves.

        `chance` is left out of what is idle on both sides, in microseconds.
        """
        sides = (self.baseline, self.target)
        whole = [
            (side.wall_us - left_out) / side.kernels_us
            for side, left_out in zip(sides, chance, strict=True)
        ]
        step = math.log(whole[1] / whole[0])
        moved = [side.moved.total_us / side.kernels_us for side in sides]
        copies = 0.0 if moved[0] == moved[1] else (moved[1] - moved[0]) / log_mean(*whole)
        return step - copies, copies

    @property
    def proven(self) -> float:
        """The logarithm of both causes' factors, without what may be chance of one gap."""
        return self._proven_gaps + self.copies.log_ratio

    @property
    def _proven_gaps(self) -> float:
        proven, _ = self._between((self.baseline.chance_us, self.target.chance_us))
        whole = self.contribution.log_ratio
        return math.copysign(min(abs(proven), abs(whole)), whole) if proven * whole > 0 else 0.0

    def sentence(self) -> str | None:
        """Say what gaps account for; None where that is little, or may be chance."""
        if abs(self.proven) < SHOWN:
            return None
        if not self.baseline.clock:
            return self.of_layer()
        return self.in_words("from the first kernel to the last")

    @property
    def hidden(self) -> bool:
        """Whether times of kernels hide more than a third of what happened."""
        return abs(self.proven) > abs(self._kernels) / 2

    @property
    def dominate(self) -> bool:
        """Whether gaps make more of what happened than the kernels do.

        Gaps that come with more launches are theirs: each has one before it.
        """
        return abs(self.proven) > abs(self._kernels) and not self._of_launches

    @property
    def _of_launches(self) -> bool:
        """Whether one side is idle longer for its launches alone, before each of them no longer."""
        sides = sorted((self.baseline, self.target), key=lambda side: side.idle_us)
        less, more = (side.idle_us / max(side.kernels - 1, 1) for side in sides)
        return self.most.term is _TERM and 0 < more <= less

    @property
    def _kernels(self) -> float:
        between = self.contribution.log_ratio + self.copies.log_ratio
        return math.log(self.wall_ratio) - between

    def action(self) -> str:
        """Say what to do on the side that waits or copies longer."""
        most = self.most
        waiting = self.target if most.log_ratio > 0 else self.baseline
        what = waiting.moved.action() if most.term is moves.TERM else _TERM.action
        return f"do in {waiting.name}: {what}"

    def points(self) -> tuple[str, str]:
        """Say it of a layer, and what to do."""
        return self.of_layer(), self.action()

    def of_layer(self) -> str:
        """Say it of a layer."""
        if not self.baseline.clock:
            return self.in_words("with copies and fills of memory")
        return self.in_words("with what was idle before each of its kernels")

    def in_words(self, span: str) -> str:
        """Say how both sides differ on the clock, over a span in words."""
        factors = []
        seen = "on the clock" if self.baseline.clock else "by their times"
        if self.baseline.clock:
            factors.append(f"{_TERM.label} ×{math.exp(self.contribution.log_ratio):.2f}")
        if self.baseline.moved_share or self.target.moved_share:
            held = [
                f"{side.name}: {side.moved.words()}"
                for side in (self.target, self.baseline)
                if side.moved_share >= SHOWN
            ]
            told = f" ({'; '.join(held)})" if held else ""
            factors.append(f"{moves.TERM.label} ×{math.exp(self.copies.log_ratio):.2f}{told}")
        return (
            f"{seen}, {span}, {self.target.name} takes "
            f"{micros(self.target.wall_us)} and {self.baseline.name} "
            f"{micros(self.baseline.wall_us)} "
            f"(×{self.wall_ratio:.2f}): {', '.join(factors)}, the kernels themselves "
            f"×{math.exp(self._kernels):.2f}"
        )

    def sentences(self) -> tuple[str, ...]:
        """Say it of both sides and of each."""
        sides = (self.baseline, self.target)
        said = [self.sentence(), *(side.sentence() for side in sides)]
        said += [side.moved_sentence() for side in sides]
        return tuple(each for each in said if each is not None)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        return {
            "baseline": self.baseline.to_dict(),
            "target": self.target.to_dict(),
            "wall_ratio": self.wall_ratio,
            "term": _TERM.id,
            "log_ratio": self.contribution.log_ratio,
            **({"moves_log_ratio": self.copies.log_ratio} if self.copies.log_ratio else {}),
        }
