"""The account of a step: what each device did while a person waited for it.

A step ends when the host has left it and the device has done what was launched in it. From one
such end to the next a person waits, so that the walls of all steps add up to the time from the
first step's start to the last activity's end, whether the host runs ahead or not. What a device did
meanwhile is a `DeviceTime`, of unions on the clock.
"""

from __future__ import annotations

import functools
import math
import re
import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

import msgspec

from perfml.account.audit import CLOCK
from perfml.account.device_time import DeviceTime
from perfml.account.host import Waiting
from perfml.account.phases import SAMPLED
from perfml.account.steps import PROFILER, SERVED
from perfml.account.window import WINDOW
from perfml.kernel_names import kernel_class
from perfml.util.findings import Of
from perfml.util.json_values import json_object

ACCOUNT = "step"
"""Key of an account in what a reader notes of its source."""
BESIDE = ".step.json"
"""Ending of the file beside a trace with steps that were timed without a profiler."""
WARM_UP = 1.25
"""A first step longer than all others by this factor may be out of line."""
SUM = "sum"
"""Unit of an account of sums, without a clock."""
FEW_BLOCKS = "few_blocks"
"""The trait of a kernel that its launch has, and not its name: most of the device is idle."""
_SEQUENCES = frozenset({"attention", "cache", "rotary", "state_space"})
"""What networks launch that work on sequences of tokens."""
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
    launches, threads
        Of a step.
    elements, bytes, off_rows, extents
        Of the operands of the operators that launched them, in a step
        (`perfml.account.recording.Operands`); 0 where nobody recorded shapes.
    filled_us
        Of `us` the part of the device's lanes that have a thread; 0 of kernels with enough blocks.
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
    threads: float = 0.0
    elements: float = 0.0
    bytes: float = 0.0
    off_rows: float = 0.0
    extents: float = 0.0
    filled_us: float = 0.0


AMOUNTS = ("us", "launches", "threads", "elements", "bytes", "off_rows", "extents", "filled_us")
"""What of a `Part` adds up."""


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

    def within(self, step_us: float) -> DeviceAccount:
        """Return the same in a step of another length, which idle time makes up for."""
        busy, idle = self.step.busy_us, self.step.idle_us
        by = min(1.0, step_us / busy) if busy and idle else step_us / (busy or idle or step_us)
        of_idle = (step_us - by * busy) / idle if idle else 0.0
        step = replace(
            self.step,
            **{name: by * getattr(self.step, name) for name in ("computing_us", "copying_us")},
            both_us=by * self.step.both_us,
            idle_us=of_idle * idle,
            longest_us=of_idle * self.step.longest_us,
        )
        return replace(
            self,
            step=step,
            idle=tuple(replace(each, us=each.us * of_idle) for each in self.idle),
            parts=tuple(replace(each, us=each.us * by) for each in self.parts),
            copies=tuple(replace(each, us=each.us * by) for each in self.copies),
        )

    def part(self, share: float) -> DeviceAccount:
        """Return the same of a part of the work, which is the same work all along."""
        names = ("computing_us", "copying_us", "both_us", "idle_us")
        return replace(
            self,
            step=replace(self.step, **{name: share * getattr(self.step, name) for name in names}),
            idle=_mean_rows([(self.idle, share)]),
            parts=_mean_rows([(self.parts, share)]),
            copies=_mean_rows([(self.copies, share)]),
            launches=share * self.launches,
            communication_us=share * self.communication_us,
        )

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
    bare_steps_us
        Steps without a profiler (`perfml.time_step`); empty where nobody timed them.
    repeated
        Where nothing marks steps, the account of what repeats in it.
    unknown
        What the recording's audit makes unknown: ids of `perfml.account.audit`.
    amd
        Whether its devices are AMD's, whose tools record them.
    shows
        What its ranges show of how it is written (`shown_by`): ``workers``, ``sharded``.
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
    bare_steps_us: tuple[float, ...] = ()
    repeated: Account | None = None
    unknown: tuple[str, ...] = ()
    amd: bool = False
    shows: tuple[str, ...] = ()

    @property
    def unit(self) -> str:
        """What it is of: a step, a range marked once, a repeat, a window, or the recording.

        ``sum`` of all operations, where nobody knows when they ran.
        """
        if CLOCK in self.unknown:
            return SUM
        if len(self.walls_us) == 1 and self.marked_by not in ("", PROFILER, SERVED, WINDOW):
            return "range"
        if self.marked_by:
            return WINDOW if self.marked_by == WINDOW else "step"
        return "repeat" if len(self.walls_us) > 1 else "recording"

    @property
    def of(self) -> Of:
        """What times of it are of: a step, or all where nothing marks steps."""
        return "step" if self.marked_by else "recording"

    @property
    def kept_us(self) -> tuple[float, ...]:
        """The walls of the steps that count."""
        out = {*self.cut, *([0] if self.warm_up else ())}
        return tuple(wall for number, wall in enumerate(self.walls_us) if number not in out)

    @property
    def step_us(self) -> float:
        """The headline: a step on the clock, or the median one without a profiler."""
        if self.bare_us is not None and self.walls_us == self.bare_steps_us:
            return self.bare_us
        return math.fsum(self.kept_us) / len(self.kept_us)

    @property
    def bare_us(self) -> float | None:
        """The median step without a profiler; None where nobody timed one."""
        return statistics.median(self.bare_steps_us) if self.bare_steps_us else None

    @functools.cached_property
    def bare(self) -> Account:
        """The account without the profiler's own time, which is idle time; as it is if unknown.

        Work that takes longer than the step without a profiler is as long as that.
        """
        if self.bare_us is None:
            return self
        return replace(
            self,
            walls_us=self.bare_steps_us,
            warm_up=False,
            cut=(),
            devices=tuple(each.within(self.bare_us) for each in self.devices),
        )

    def part(self, share: float) -> Account:
        """Return the account of a part of its work, where that is the same work all along."""
        walls = tuple(share * us for us in self.kept_us)
        devices = tuple(device.part(share) for device in self.devices)
        return replace(self, walls_us=walls, warm_up=False, cut=(), devices=devices, repeated=None)

    @functools.cached_property
    def launched(self) -> Mapping[str, float]:
        """Launches of a step by what they do, as the names of kernels and operators tell."""
        counts: defaultdict[str, float] = defaultdict(float)
        for part in (part for device in self.devices for part in device.parts):
            for does in {part.does, kernel_class(part.operator).id}:
                counts[does] += part.launches
        return counts

    @functools.cached_property
    def kind(self) -> str:
        """What the program is, by what it launches: ``unknown`` where no network is seen.

        A recommender looks up embeddings and exchanges them between all ranks; so do mixtures of
        experts, which have attention. A decode step ends in sampling, or writes a cache of keys.
        """
        launched = self.launched
        attends = not _SEQUENCES.isdisjoint(launched)
        exchanges = any("all_to_all" in device.traits for device in self.devices)
        seen = {
            "training": self.trains,
            "recommender": exchanges and "embedding" in launched and not attends,
            "decoding": attends
            and ("cache" in launched or launched.get("sampling", 0.0) >= SAMPLED),
            # a transformer of images has one, and many products
            "convolutional": launched.get("convolution", 0.0) > launched.get("product", 0.0),
            "inference": attends
            or "normalisation" in launched
            or (self.pytorch and "product" in launched),
        }
        return next((kind for kind, shows in seen.items() if shows), "unknown")

    @property
    def agree(self) -> bool:
        """Whether the steps that count agree; a single one says nothing of that."""
        return max(self.kept_us) <= AGREE * min(self.kept_us)

    @property
    def busiest(self) -> DeviceAccount:
        """The device that is idle least."""
        return min(self.devices, key=lambda each: each.step.idle_us)

    @classmethod
    def of_processes(cls, accounts: Sequence[Account]) -> Account:
        """Return one account of a program that ran several times: all steps are its repeats."""
        first = accounts[0]
        numbers = {tuple(each.device for each in account.devices) for account in accounts}
        if len(accounts) == 1 or len(numbers) > 1:
            return first
        times = [len(account.kept_us) for account in accounts]
        shares = [each / sum(times) for each in times]
        devices = zip(*(account.devices for account in accounts), strict=True)
        walls = tuple(us for account in accounts for us in account.kept_us)
        joined = tuple(_mean_device(own, shares) for own in devices)
        return replace(first, walls_us=walls, warm_up=False, cut=(), devices=joined, repeated=None)

    to_dict = json_object

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Account:
        """Return what `to_dict` wrote."""
        return msgspec.convert(document, cls, strict=False)


def _mean_device(devices: Sequence[DeviceAccount], shares: Sequence[float]) -> DeviceAccount:
    """Return the account of a device over several processes, by how many steps each has."""
    steps = tuple(step for each in devices for step in each.steps)
    weighted = list(zip(devices, shares, strict=True))
    return replace(
        devices[0],
        step=DeviceTime.mean(steps),
        steps=steps,
        idle=_mean_rows((each.idle, share) for each, share in weighted),
        parts=_mean_rows((each.parts, share) for each, share in weighted),
        copies=_mean_rows((each.copies, share) for each, share in weighted),
        launches=sum(each.launches * share for each, share in weighted),
        communication_us=sum(each.communication_us * share for each, share in weighted),
        recorded=DeviceTime.mean([each.recorded or each.step for each in devices]),
    )


_Row = TypeVar("_Row", Idle, Part, Copies)


def _mean_rows(sides: Iterable[tuple[Sequence[_Row], float]]) -> tuple[_Row, ...]:
    """Return the mean amounts of rows that are alike in all else, the longest first."""
    means: dict[_Row, _Row] = {}
    for rows, share in sides:
        for row in rows:
            names = [f.name for f in fields(row) if isinstance(getattr(row, f.name), float)]
            nothing: dict[str, Any] = dict.fromkeys(names, 0.0)
            alike = replace(row, **nothing)
            held = means.get(alike, alike)
            sums = {n: getattr(held, n) + share * getattr(row, n) for n in nothing}
            means[alike] = replace(held, **sums)
    return tuple(sorted(means.values(), key=lambda row: -row.us))


_TRAINING = re.compile(
    r"backward|wgrad|(?<![a-z])wrw|bn_bw|NormBwd|bwtr|bprop|_bwd|Optimizer\.step|"
    r"multi_tensor_apply(?!.*\bCopy<)|fused_?(adam|sgd)",
    re.IGNORECASE,
)
"""Names of kernels and ranges of training (MIOpen's: NormBwd, wrw); a transposed convolution runs
``dgrad`` without it, and a server copies many tensors at once."""


def shows_training(names: Iterable[str]) -> bool:
    """Return whether some names of kernels or ranges are those of backward or an optimizer."""
    return any(_TRAINING.search(name) for name in names)


_SHOWS = {
    "workers": re.compile(r"MultiProcessingDataLoaderIter"),
    "tensorrt": re.compile(r"^Reformatting CopyNode for |\{ForeignNode\["),
    "sharded": re.compile(r"\b(FSDP|fsdp)::|FullyShardedDataParallel"),
}
"""What PyTorch and TensorRT call ranges, operators and modules where a program is written so."""


def shown_by(names: Iterable[str]) -> list[str]:
    """Return what ranges, operators and modules show: batches of workers, a sharded model.

    Examples
    --------
    >>> shown_by(["enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", "mm"])
    ['workers']
    >>> shown_by(["FSDP::all_gather (layers.0)"]), shown_by(["DistributedDataParallel.forward"])
    (['sharded'], [])
    """
    return [shown for shown, form in _SHOWS.items() if any(map(form.search, names))]


def is_warm_up(walls: Sequence[float]) -> bool:
    """Return whether the first of three or more steps is out of line with the others."""
    rest = walls[1:]
    if len(rest) < 2 or walls[0] <= WARM_UP * max(rest):
        return False
    return walls[0] - max(rest) >= _APART * (max(rest) - min(rest))
