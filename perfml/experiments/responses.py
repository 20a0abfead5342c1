"""How much longer a launch takes with less of a resource: ratios, elasticities and intervals.

The elasticity of the time t for a resource of which the share a is left is

    e = log(t_condition / t_control) / log(1 / a)

It is 1 where the resource alone makes the time, and 0 where there is enough of it. It is an average
over the change from 1 to a, as for a finite change in economics.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from perfml.experiments.record import Condition, Examined, Experiments

DRAWS = 400
"""Bootstrap resamples of the rounds; quantiles at 5 and 95 % then rest on 20 of them."""
LEVEL = 0.9
"""Of the intervals: over the rounds of one launch in one process."""
TRAFFIC = {"dram_traffic": "dram", "l2_traffic": "l2", "atomic_traffic": "atomics"}
"""Conditions whose amount is that of the kernel of known limit under the same condition."""


@dataclass(frozen=True)
class Response:
    """How a launch answers to one condition.

    Attributes
    ----------
    condition
        Its name.
    ratio, low, high
        Time over the control's, and the interval of `LEVEL`.
    amount
        Of the resource that is left; 1 where the condition has no amount.
    """

    condition: str
    ratio: float
    low: float
    high: float
    amount: float

    JSON: ClassVar = ("condition", "ratio", "low", "high", "amount", "elasticity")

    @property
    def elasticity(self) -> float:
        """Per cent of time for a per cent of the resource; NaN where no amount is known."""
        known = 0 < self.amount < 1 and self.ratio > 0
        return math.log(self.ratio) / math.log(1 / self.amount) if known else math.nan


@dataclass(frozen=True)
class Responses:
    """All responses of one launch.

    Attributes
    ----------
    launch
        The launch.
    time_us
        In the program alone, where that is known; else as experiments launch it: the median.
    empty_us
        What an empty kernel takes so.
    by_condition
        Name of a condition to its response.
    """

    launch: Examined
    time_us: float
    empty_us: float
    by_condition: dict[str, Response]

    def elasticity_beyond_launch(self, condition: str) -> float:
        """Return the elasticity of the time that is not launch overhead.

        An empty kernel's time does not answer to any resource: it is taken from both sides of the
        ratio. NaN where the condition did not apply, or the launch does nothing else.
        """
        response = self.by_condition.get(condition)
        work = 1 - self.launch_share
        if response is None or not 0 < response.amount < 1 or not work > 0:
            return math.nan
        ratio = 1 + (response.ratio - 1) / work
        return math.log(ratio) / math.log(1 / response.amount) if ratio > 0 else math.nan

    @property
    def launch_share(self) -> float:
        """The share of the time that an empty kernel takes as well."""
        return min(self.empty_us / self.time_us, 1.0)

    def ratio(self, condition: str) -> float:
        """Return a ratio; NaN where the condition did not apply."""
        response = self.by_condition.get(condition)
        return math.nan if response is None else response.ratio


def responses(experiments: Experiments, seed: int = 0) -> list[Responses]:
    """Return the responses of every launch, in launch order.

    Where the program's own time of a launch is known, what launching adds to it is taken off the
    times of all its conditions, and off an empty kernel's. `seed` is of the bootstrap.
    """
    random = np.random.default_rng(seed)
    left = {
        name: _calibrated(experiments, name, kernel, random) for name, kernel in TRAFFIC.items()
    }
    launches = [_without_floor(each, experiments.empty_us) for each in experiments.launches]
    floors = [floor for _, floor in launches if floor is not None]
    empty_us = experiments.empty_us - (float(np.median(floors)) if floors else 0.0)
    return [
        Responses(launch, _time_us(launch), empty_us, _responses(launch, left, random))
        for launch, _ in launches
    ]


def _time_us(launch: Examined) -> float:
    return _median(launch, "all") if math.isnan(launch.own_us) else launch.own_us


_SHORT_US = 50.0
"""The floor of an empty kernel is that of launches below it: there it shows beside the kernel."""


def _without_floor(launch: Examined, most_us: float) -> tuple[Examined, float | None]:
    """Return a launch less what launching it adds, and that of a short one in a batch.

    `most_us` is what an empty kernel takes in a batch: launching adds no more than that. Launches
    that are timed one at a time have a floor of their own, as long as an empty kernel's several.
    """
    own = launch.own_us
    if math.isnan(own):
        return launch, None
    floors = {}
    for name, most in (("all", most_us), ("single", _SINGLE * most_us), ("original", most_us)):
        most = most if launch.replay == "warm" else _SINGLE * most_us
        measured = _median(launch, name)
        floors[name] = 0.0 if math.isnan(measured) else min(max(measured - own, 0.0), most)
    original = {each.name: each.control for each in launch.conditions}

    def base(name: str) -> str:
        while original.get(name, name) != name:
            name = original[name]
        return name

    conditions = tuple(
        replace(each, times_us=tuple(us - floors.get(base(each.name), 0.0) for us in each.times_us))
        for each in launch.conditions
    )
    short = launch.replay == "warm" and own < _SHORT_US
    return replace(launch, conditions=conditions), floors["all"] if short else None


_SINGLE = 13.0
"""One launch between two events takes at most so many times as long as one of a graph of empty
kernels: 7.6 and 0.6 us on an H200 (2026-11-28, ``tests/gpu/programs/replayed.cu``)."""


def resampled(responses: Responses, draws: int, seed: int = 0) -> list[Responses]:
    """Return the responses of bootstrap resamples of the rounds of one launch."""
    random = np.random.default_rng(seed)
    medians = {
        each.name: _medians(np.asarray(each.times_us, dtype=float), random, draws)
        for each in responses.launch.conditions
        if each.times_us
    }
    controls = {each.name: each.control for each in responses.launch.conditions}
    made = []
    for draw in range(draws):
        drawn = {
            name: replace(each, ratio=float(medians[name][draw] / medians[controls[name]][draw]))
            for name, each in responses.by_condition.items()
        }
        made.append(replace(responses, by_condition=drawn))
    return made


def _calibrated(
    experiments: Experiments, condition: str, kernel: str, random: np.random.Generator
) -> float:
    """Return the share of a resource that traffic leaves: the known kernel takes so much longer."""
    for launch in experiments.calibrations:
        if launch.kernel == kernel:
            response = _responses(launch, {}, random).get(condition)
            if response is not None and response.ratio > 1:
                return 1 / response.ratio
    return math.nan


def _responses(
    launch: Examined, amounts: dict[str, float], random: np.random.Generator
) -> dict[str, Response]:
    by_name = {each.name: each for each in launch.conditions}
    made = {}
    for name, condition in by_name.items():
        control = by_name.get(condition.control)
        if control is None or control is condition:
            continue
        low, ratio, high = _interval(condition, control, random)
        amount = amounts.get(name, condition.amount)
        made[name] = Response(name, ratio, low, high, amount)
    return made


def _interval(
    condition: Condition, control: Condition, random: np.random.Generator
) -> tuple[float, float, float]:
    """Return lower end, ratio of the medians, and upper end; rounds are drawn on each side."""
    above, below = (np.asarray(each.times_us, dtype=float) for each in (condition, control))
    drawn = _medians(above, random) / _medians(below, random)
    ends = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(ends[0]), float(np.median(above) / np.median(below)), float(ends[1])


def _medians(
    times: npt.NDArray[Any], random: np.random.Generator, draws: int = DRAWS
) -> npt.NDArray[Any]:
    drawn = random.integers(0, times.size, (draws, times.size))
    medians: npt.NDArray[Any] = np.median(times[drawn], axis=1)
    return medians


def _median(launch: Examined, name: str) -> float:
    times = next((each.times_us for each in launch.conditions if each.name == name), ())
    return float(np.median(times)) if times else math.nan
