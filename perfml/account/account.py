"""The account of a step: what each device did while a person waited for it.

A step ends when the host has left it and the device has done what was launched in it. From one
such end to the next a person waits, so that the walls of all steps add up to the time from the
first step's start to the last activity's end, whether the host runs ahead or not. What a device did
meanwhile is a `DeviceTime`, of unions on the clock.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from perfml.account.device_time import DeviceTime
from perfml.account.host import Waiting
from perfml.account.window import WINDOW
from perfml.util.json_values import json_object

ACCOUNT = "step"
"""Key of an account in what a reader notes of its source."""
BESIDE = ".step.json"
"""Ending of the file beside a trace with steps that were timed without a profiler."""
UNRECORDED = "unrecorded"
"""State of idle time of which nobody recorded what the host did."""
WARM_UP = 1.25
"""A first step longer than all others by this factor may be out of line."""
_APART = 3.0
"""It is if it lies this many times as far from them as they lie apart."""
AGREE = 1.1
"""Steps that differ by less than this factor agree. Of the 22 recordings of three steps of
2026-11-25 the second and third agree to 1.1 in 16 (``studies/truth/steps.py``)."""


@dataclass(frozen=True)
class Idle:
    """Idle time of a step: what the host did, and in which range."""

    state: str
    us: float
    where: str


@dataclass(frozen=True)
class Part:
    """Kernels of one kind in a step.

    Attributes
    ----------
    zone
        ``recomputed``, ``optimizer``, ``attention`` (written out), ``communication``, or empty.
    operator, backward
        What they were launched for.
    kernel
        Label of the kernel.
    does, traits
        What its name tells (`perfml.kernel_names.KernelTraits`).
    where
        The range or module.
    us
        Microseconds of a step in which they run and none that is counted before does.
    launches
        Of a step.
    """

    zone: str
    operator: str
    backward: bool
    kernel: str
    does: str
    traits: tuple[str, ...]
    where: str = ""
    us: float = 0.0
    launches: float = 0.0


@dataclass(frozen=True)
class Copies:
    """Copies or fills of one kind in a step; `us` is what passes while no kernel runs."""

    kind: str
    pageable: bool
    us: float
    bytes: float
    times: float


@dataclass(frozen=True)
class DeviceAccount:
    """What one device did in a step: the mean of the steps that count.

    Attributes
    ----------
    device
        Its number.
    step
        The mean of `steps`.
    steps
        Those that count.
    idle
        Of `step`, by what the host did.
    parts, copies
        What it computed and copied; with `idle` they add up to the wall.
    launches
        Kernels launched in a step.
    communication_us
        While a kernel of communication ran, beside computing or not.
    recorded
        From the start of its first operation to the end of its last one: kernels, copies, fills.
    """

    device: int
    step: DeviceTime
    steps: tuple[DeviceTime, ...]
    idle: tuple[Idle, ...]
    parts: tuple[Part, ...]
    copies: tuple[Copies, ...]
    launches: float
    communication_us: float = 0.0
    recorded: DeviceTime | None = None

    @functools.cached_property
    def traits(self) -> frozenset[str]:
        """What the names of its kernels tell."""
        return frozenset(trait for part in self.parts for trait in part.traits)


@dataclass(frozen=True)
class Account:
    """The clock of a recording, whatever tool wrote it: what devices did, as a whole and a step.

    Attributes
    ----------
    marked_by
        The range that marks the steps; empty where the whole recording is one.
    walls_us
        Every recorded step on the clock.
    warm_up
        Whether the first one is out of line, and does not count.
    devices
        One account each; never added up.
    waits
        Where the host waits for a device.
    trains
        Whether there is a backward pass.
    pytorch
        Whether PyTorch ran it.
    cut
        Numbers of steps that the recording cut at its beginning or end; they do not count.
    host
        Whether it was recorded what the host did; else nothing is known of why a device was idle.
    bare_us
        A step without a profiler (`perfml.time_step`); None where nobody timed it.
    repeated
        Where nothing marks steps, the account of what repeats in it.
    unknown
        What the recording's audit makes unknown: ids of `perfml.account.audit`.
    amd
        Whether its devices are AMD's, whose tools record them.
    """

    marked_by: str
    walls_us: tuple[float, ...]
    warm_up: bool
    devices: tuple[DeviceAccount, ...]
    waits: tuple[Waiting, ...]
    trains: bool
    pytorch: bool = True
    cut: tuple[int, ...] = ()
    host: bool = True
    bare_us: float | None = None
    repeated: Account | None = None
    unknown: tuple[str, ...] = ()
    amd: bool = False

    @property
    def unit(self) -> str:
        """What it is of: a step, a repeat of what nothing marks, a window, or the recording."""
        if self.marked_by:
            return WINDOW if self.marked_by == WINDOW else "step"
        return "repeat" if len(self.walls_us) > 1 else "recording"

    @property
    def kept_us(self) -> tuple[float, ...]:
        """The walls of the steps that count."""
        out = {*self.cut, *([0] if self.warm_up else ())}
        return tuple(wall for number, wall in enumerate(self.walls_us) if number not in out)

    @property
    def step_us(self) -> float:
        """The headline: a step on the clock."""
        return math.fsum(self.kept_us) / len(self.kept_us)

    @property
    def waited_us(self) -> float:
        """What a person waits for a step: without a profiler, where that was timed."""
        return self.step_us if self.bare_us is None else self.bare_us

    @property
    def idle_scale(self) -> float:
        """Which part of the idle time is the program's: what it takes longer is the profiler's."""
        step = self.busiest.step
        if self.bare_us is None or not step.idle_us:
            return 1.0
        return min(1.0, max(0.0, self.bare_us - step.busy_us) / step.idle_us)

    @property
    def agree(self) -> bool:
        """Whether the steps that count agree; a single one says nothing of that."""
        return max(self.kept_us) <= AGREE * min(self.kept_us)

    @property
    def busiest(self) -> DeviceAccount:
        """The device that is idle least."""
        return min(self.devices, key=lambda each: each.step.idle_us)

    to_dict = json_object

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Account:
        """Return what `to_dict` wrote."""
        return cls(
            str(document["marked_by"]),
            tuple(map(float, document["walls_us"])),
            bool(document["warm_up"]),
            tuple(map(_device, document["devices"])),
            tuple(Waiting(**row) for row in document["waits"]),
            bool(document["trains"]),
            bool(document["pytorch"]),
            tuple(map(int, document.get("cut", ()))),
            bool(document.get("host", True)),
            document.get("bare_us"),
            cls.from_dict(again) if (again := document.get("repeated")) else None,
            tuple(map(str, document.get("unknown", ()))),
            bool(document.get("amd", False)),
        )


def _device(document: Mapping[str, Any]) -> DeviceAccount:
    return DeviceAccount(
        int(document["device"]),
        DeviceTime.from_dict(document["step"]),
        tuple(map(DeviceTime.from_dict, document["steps"])),
        tuple(Idle(**row) for row in document["idle"]),
        tuple(Part(**{**row, "traits": tuple(row["traits"])}) for row in document["parts"]),
        tuple(Copies(**row) for row in document["copies"]),
        float(document["launches"]),
        float(document["communication_us"]),
        DeviceTime.from_dict(document.get("recorded") or document["step"]),
    )


def is_warm_up(walls: Sequence[float]) -> bool:
    """Return whether the first of three or more steps is out of line with the others."""
    rest = walls[1:]
    if len(rest) < 2 or walls[0] <= WARM_UP * max(rest):
        return False
    return walls[0] - max(rest) >= _APART * (max(rest) - min(rest))
