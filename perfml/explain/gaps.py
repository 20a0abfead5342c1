"""What passes between kernels: how long a device waits or copies, which no kernel's time shows.

A trace (Nsight Systems, torch.profiler) says when kernels began, and so does the timing of a
program by ``perfml collect``. The difference between two sides on the clock is told in microseconds
that add up (`perfml.account.device_time`),

    wall = kernels - what ran side by side + copies and fills + idle

so that what is small cannot hide behind what is large. The causes are ``launch_gaps`` (idle) and
``memory_moves`` (copies and memsets, counted while no kernel runs: `perfml.readers.moves`).
Recordings of ``perfml collect`` from before it timed copies have them as gaps. Each device has an
account of its own, and a saving ends at what the busiest one leaves.

One gap is one event of the host. In one recorded iteration of blocks of PyTorch on an H200 gaps of
6 ms (an allocation, most likely) stood before kernels that wait for nothing without a profiler. So
of a side of which one iteration is known, its longest gap proves nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from perfml.account.device_time import DeviceTime
from perfml.explain.tree.causes import TERMS, Term
from perfml.util.json_values import json_object
from perfml.util.words import Readable, count, micros, number

_COPIES = TERMS["memory_moves"]
WAYS = {
    "to_host": "copied to the host",
    "to_device": "copied from the host",
    "copied": "copied on the device",
    "filled": "filled (memset)",
}
"""Ids of `perfml.tables.MOVED_COLUMNS`, in words."""
_ACTIONS = {
    "to_host": "Leave it on the device: in PyTorch no .cpu(), .numpy(), .tolist() or .item() in a "
    "step. The host waits for such a copy, and the device then for the host.",
    "to_device": "Make it on the device, or copy it once before the loop. Copy what is new in each "
    "step from pinned memory, while kernels run. "
    'In PyTorch: pin_memory=True and .to("cuda", non_blocking=True).',
    "copied": "Let the kernel before write it where it is needed (in PyTorch: fewer .contiguous(), "
    ".clone() and torch.cat).",
    "filled": "Let the first kernel that writes there overwrite it, so that nothing has to be "
    "cleared.",
}


@dataclass(frozen=True)
class Move:
    """What is copied one way, or filled: microseconds without a kernel, and bytes."""

    us: float
    bytes: float


@dataclass(frozen=True)
class Moved:
    """What some launches copy and fill."""

    # by the ids of the columns, the longest first; without those in which nothing is moved
    ways: Mapping[str, Move]

    @property
    def total_us(self) -> float:
        """All of the time."""
        return sum(each.us for each in self.ways.values())

    def words(self) -> str:
        """Say how much is moved where, the longest first.

        Examples
        --------
        >>> Moved({"to_host": Move(640.0, 4e6), "to_device": Move(2.0, 4e3)}).words()
        '4.00 MB copied to the host in 640 µs'
        """
        return ", ".join(
            f"{_bytes(each.bytes)} {WAYS[way]} in {micros(each.us)}"
            for way, each in self.ways.items()
            if each.us >= SHOWN * self.total_us
        )

    def action(self) -> str:
        """Say what to do about what takes longest, or about all where that is not known."""
        return _ACTIONS[next(iter(self.ways))] if self.total_us else _COPIES.action


NOTHING = Moved({})


def _bytes(size: float) -> str:
    """Return a number of bytes in words; a thousand is a kB.

    Examples
    --------
    >>> _bytes(4194304), _bytes(12)
    ('4.19 MB', '12 bytes')
    """
    for unit, least in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= least:
            return f"{number(size / least)} {unit}"
    return f"{size:.0f} bytes"


GRAPH_GAP_US = 0.3
"""From one kernel's end to the next one's start in a CUDA graph: 0.26 to 0.29 us in the median on
an H200 (``tests/data/torch_trace/gaps``)."""
SHOWN = 0.1  # a smaller part of the time is not spoken of, saved or different
_PART = 0.01  # a smaller part of what the sides differ by is left out of a sentence
UNSEEN = (
    "the kernels alone show no difference; copies, memsets and waits for the host between them "
    "were not recorded. Record both sides with perfml collect or nsys profile --trace cuda,nvtx"
)
"""What cannot be told of sides whose kernels, timed one at a time, are as fast."""
_TERM = TERMS["launch_gaps"]


@dataclass(frozen=True)
class Timeline:
    """What the clock shows of an iteration or a layer: the usual one, by its time on the clock."""

    name: str  # what the side is called; empty where there is one
    devices: tuple[DeviceTime, ...]  # the account of each device, the one that worked longest first
    iterations: int = 1  # how many are known, of which this is the usual one
    moved: Moved = NOTHING  # what was copied and filled while no kernel ran, where that is known
    clock: bool = True  # whether it is known what is idle

    @property
    def busiest(self) -> DeviceTime:
        """The device that worked longest."""
        return self.devices[0]

    @property
    def wall_us(self) -> float:
        """Of the busiest device the time from its first kernel's start to its last one's end."""
        return self.busiest.wall_us

    @property
    def idle_us(self) -> float:
        """Of it the device had nothing to do: no kernel, no copy."""
        return self.busiest.idle_us

    @property
    def chance_us(self) -> float:
        """What may be one event of the host: one iteration's longest gap."""
        return self.busiest.longest_us if self.iterations == 1 else 0.0

    @property
    def as_graph_us(self) -> float:
        """What it would take as one CUDA graph: no device works less than it does."""
        longest = max(
            each.busy_us + (each.launches - 1) * GRAPH_GAP_US if each.launches else 0.0
            for each in self.devices
        )
        return min(self.wall_us, longest)

    def sentence(self) -> str | None:
        """Say how much is idle and what to do; None where that would save little."""
        if self.as_graph_us > (1 - SHOWN) * self.wall_us:
            return None
        whose = f"{self.name}: " if self.name else ""
        return f"{whose}{self.idle_text()}. {self.idle_action()}"

    def idle_text(self) -> str:
        """Say how long each device is idle."""
        said = [
            f"{self._called(each)} is idle {micros(each.idle_us)} of {micros(each.wall_us)} "
            f"({Readable(each.idle_us / each.wall_us):.0%})"
            for each in self.devices
            if each is self.busiest or each.idle_us >= SHOWN * each.wall_us
        ]
        return (
            f"between its kernels {', '.join(said)}, {micros(self.busiest.gap_us)} at a launch "
            "in the median, which times of kernels do not show"
        )

    def _called(self, device: DeviceTime) -> str:
        return "the device" if len(self.devices) == 1 else f"device {device.device}"

    def idle_action(self) -> str:
        """Say what to do about that, and what it gives at most."""
        return f"{_TERM.action} As one CUDA graph it would take about {micros(self.as_graph_us)}."

    def moved_sentence(self, name: str = "") -> str | None:
        """Say what is copied and filled and what to do; None where that is little."""
        device = self.busiest
        if device.copying_us < SHOWN * device.wall_us:
            return None
        whose = f"{name or self.name}: " if name or self.name else ""
        share = Readable(device.copying_us / device.wall_us)
        what = f": {self.moved.words()}" if self.moved.total_us else ""
        return (
            f"{whose}{micros(device.copying_us)} of {micros(device.wall_us)} ({share:.0%}) are "
            f"copies and fills of memory while no kernel runs{what}. {self.moved.action()}"
        )

    def account(self) -> tuple[str, ...]:
        """Say of each device what its time on the clock is made of."""
        of = count(self.iterations, "iteration") if self.iterations > 1 else ""
        usual = f" (the median of {of})" if of else ""
        whose = (
            "" if len(self.devices) == 1 else f", device {each.device}" for each in self.devices
        )
        return tuple(
            f"On the clock{which}{usual}: {micros(each.wall_us)} = {' + '.join(_amounts(each))}."
            for which, each in zip(whose, self.devices, strict=True)
        )

    JSON: ClassVar = ("devices", "as_graph_us", ("moved", "moved.ways"))
    JSON_OPTIONAL: ClassVar = ("moved",)
    to_dict = json_object


def _amounts(device: DeviceTime) -> list[str]:
    beside = ""
    if device.side_by_side_us > _PART * device.kernels_us:
        beside = f" ({micros(device.kernels_us)} of kernels, side by side)"
    parts = [
        (device.computing_us, f"computing{beside}"),
        (device.copying_us, "copying"),
        (device.idle_us, "idle"),
    ]
    return [f"{micros(us)} {what}" for us, what in parts if us]


_WORDS = {
    "kernels": "the kernels themselves",
    "side_by_side": "kernels side by side",
    "copies": _COPIES.label,
    "idle": "idle between kernels",
}
"""What two sides may differ by on the clock."""


@dataclass(frozen=True)
class Waterfall:
    """Two sides on the clock: what makes one longer, in microseconds that add up."""

    baseline: Timeline
    target: Timeline

    @property
    def wall_us(self) -> float:
        """By how much the target takes longer."""
        return self.target.wall_us - self.baseline.wall_us

    @cached_property
    def parts(self) -> dict[str, float]:
        """What makes the difference, in microseconds by `_WORDS`; adds up to `wall_us`."""
        before, after = self.baseline.busiest, self.target.busiest
        differences = (
            after.kernels_us - before.kernels_us,
            before.side_by_side_us - after.side_by_side_us,
            after.copying_us - before.copying_us,
            after.idle_us - before.idle_us,
        )
        return dict(zip(_WORDS, differences, strict=True))

    @property
    def _proven_idle_us(self) -> float:
        """The difference in what is idle, without what may be chance of one gap."""
        whole = self.parts["idle"]
        proven = whole - (self.target.chance_us - self.baseline.chance_us)
        return math.copysign(min(abs(proven), abs(whole)), whole) if proven * whole > 0 else 0.0

    @property
    def between_us(self) -> float:
        """The difference in what passes between kernels, without what may be chance of one gap."""
        return self._proven_idle_us + self.parts["copies"]

    @property
    def between_share(self) -> float:
        """The size of that, as a part of the shorter side's time."""
        return abs(self.between_us) / min(self.baseline.wall_us, self.target.wall_us)

    @property
    def computing_us(self) -> float:
        """By how much longer at least one kernel runs."""
        return self.parts["kernels"] + self.parts["side_by_side"]

    @property
    def cause(self) -> Term:
        """The cause to look at first, of gaps and copies."""
        # A host that waits for its copies leaves the device idle after them, so that half as much
        # in copies as in gaps is enough.
        copies = abs(self.parts["copies"])
        return _COPIES if copies > abs(self._proven_idle_us) / 2 else _TERM

    @property
    def cause_us(self) -> float:
        """What this cause makes of the difference."""
        return self.parts["copies" if self.cause is _COPIES else "idle"]

    @property
    def hidden(self) -> bool:
        """Whether times of kernels hide more than a third of what happened."""
        return abs(self.between_us) > abs(self.computing_us) / 2

    @property
    def dominate(self) -> bool:
        """Whether gaps and copies make more of what happened than the kernels do."""
        # Gaps that come with more launches are theirs: each has one before it.
        return abs(self.between_us) > abs(self.computing_us) and not self._of_launches

    @property
    def _of_launches(self) -> bool:
        """Whether one side is idle longer for its launches alone, before each of them no longer."""
        sides = sorted((self.baseline.busiest, self.target.busiest), key=lambda each: each.idle_us)
        less, more = (side.idle_us / max(side.launches - 1, 1) for side in sides)
        return self.cause is _TERM and 0 < more <= less

    def action(self) -> str:
        """Say what to do on the side that waits or copies longer."""
        waiting = self.target if self.cause_us > 0 else self.baseline
        copies = self.cause is _COPIES
        return f"do in {waiting.name}: {waiting.moved.action() if copies else _TERM.action}"

    def points(self) -> tuple[str, str]:
        """Say it of a layer, and what to do."""
        return self.of_layer(), self.action()

    def sentence(self) -> str | None:
        """Say what gaps and copies account for; None where that is little, or may be chance."""
        if self.between_share < SHOWN:
            return None
        if not self.baseline.clock:
            return self.of_layer()
        return self.in_words("from the first kernel to the last")

    def of_layer(self) -> str:
        """Say it of a layer."""
        if not self.baseline.clock:
            return self.in_words("with copies and fills of memory")
        return self.in_words("with what was idle before each of its kernels")

    def in_words(self, span: str) -> str:
        """Say how both sides differ on the clock, over a span in words, the largest part first."""
        seen = "on the clock" if self.baseline.clock else "by their times"
        parts = sorted(self.parts.items(), key=lambda part: -abs(part[1]))
        least = _PART * abs(parts[0][1])
        told = [f"{_WORDS[name]} {_signed(us)}" for name, us in parts if abs(us) > least]
        held = [
            f"{side.name}: {side.moved.words()}"
            for side in (self.target, self.baseline)
            if side.moved.total_us >= SHOWN * side.wall_us
        ]
        moved = f" ({'; '.join(held)})" if held else ""
        return (
            f"{seen}, {span}, {self.target.name} takes {micros(self.target.wall_us)} and "
            f"{self.baseline.name} {micros(self.baseline.wall_us)} ({_signed(self.wall_us)}): "
            f"{', '.join(told) or 'no difference'}{moved}"
        )

    def sentences(self) -> tuple[str, ...]:
        """Say it of both sides and of each."""
        sides = (self.baseline, self.target)
        said = [self.sentence(), *(side.sentence() for side in sides)]
        said += [side.moved_sentence() for side in sides]
        return tuple(each for each in said if each is not None)

    JSON: ClassVar = ("baseline", "target", "wall_us", "parts", ("term", "cause"))
    to_dict = json_object


def _signed(us: float) -> str:
    """Return a difference in microseconds with its sign.

    Examples
    --------
    >>> _signed(300.0), _signed(-1234.0)
    ('+300 µs', '-1,234 µs')
    """
    return f"{'-' if us < 0 else '+'}{micros(abs(us))}"
