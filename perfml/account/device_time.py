"""What a device did in a time on the clock, in microseconds that add up.

    wall = computing + copying + both + idle

It is the account of a step of a trace (`perfml.account.build`), which begins where the host begins
it, and of an iteration or a layer of a table with starts: there it goes from the start of the first
kernel to the end of the last one, and what was idle before is no part of it. Devices are never
added up: each has an account of its own.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pandas as pd

from perfml.account.intervals import group_times, union

RECORDED = "recorded_iteration"
"""Column of the iteration that a launch ran in, where every launch counts as one of its own."""

OFTEN = "launches_an_iteration"
"""Column of how often the kernel of such a launch is launched in a recorded iteration."""


def repeat_keys(launches: pd.DataFrame) -> list[str]:
    """Return the columns that tell the repeats of a program apart."""
    iteration = RECORDED if RECORDED in launches.columns else "iteration"
    wanted = ["run_id", "process", iteration]
    if "device_id" not in launches.columns:
        # numbered devices run at one time, each with its own account
        wanted.append("device")
    return [name for name in wanted if name in launches.columns]


@dataclass(frozen=True)
class DeviceTime:
    """The account of one device over a step, an iteration, or a layer of it.

    Attributes
    ----------
    launches
        Kernels, or CUDA graphs traced as a whole; of a mean of steps no whole number.
    kernels_us
        The sum of their times.
    computing_us
        While at least one of them ran, and no copy that is counted in `both_us`.
    copying_us
        While memory was copied or filled and no kernel ran.
    idle_us
        None of it.
    gap_us
        Median of what was idle before a launch; of a step, of its idle times.
    longest_us
        The longest of it.
    device
        Which of the devices of a profile.
    both_us
        While kernels ran and memory was copied: known of a trace. A table of kernels does not tell
        it apart, and has it in `computing_us`.
    """

    launches: float
    kernels_us: float
    computing_us: float
    copying_us: float
    idle_us: float
    gap_us: float = 0.0
    longest_us: float = 0.0
    device: int = 0
    both_us: float = 0.0

    JSON: ClassVar = (
        *("launches", "kernels_us", "computing_us", "copying_us", "idle_us", "gap_us"),
        *("longest_us", "device", "wall_us", "both_us"),
    )
    JSON_OPTIONAL: ClassVar = ("both_us",)

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> DeviceTime:
        """Return what JSON has of one."""
        return cls(**{name: value for name, value in document.items() if name != "wall_us"})

    @property
    def busy_us(self) -> float:
        """While the device worked: computing, copying, or both."""
        return self.computing_us + self.copying_us + self.both_us

    @property
    def wall_us(self) -> float:
        """The time on the clock."""
        return self.busy_us + self.idle_us

    @property
    def side_by_side_us(self) -> float:
        """By how much kernels that ran side by side make their sum longer than the clock shows."""
        return self.kernels_us - self.computing_us - self.both_us

    @classmethod
    def mean(cls, times: Sequence[DeviceTime]) -> DeviceTime:
        """Return the mean of several times of one device."""
        rows = np.array([dataclasses.astuple(each) for each in times], dtype=float)
        names = (field.name for field in dataclasses.fields(cls))
        means = dict(zip(names, rows.mean(axis=0).tolist(), strict=True))
        return cls(**{**means, "device": times[0].device})


def device_of(launches: pd.DataFrame) -> npt.NDArray[np.int64]:
    """Return the number of each launch's device, 0 where the table does not say, shape (n,)."""
    if "device_id" not in launches.columns:
        return np.zeros(len(launches), dtype=np.int64)
    return launches["device_id"].fillna(0).to_numpy(dtype=np.int64)


def on_busiest_device(launches: pd.DataFrame) -> pd.DataFrame:
    """Return, of each run, the launches of the device whose kernels take longest.

    A sum over kernels of several devices is no time that anybody waits for.
    """
    device = device_of(launches)
    if not len(device) or (device == device[0]).all():
        return launches
    number = launches["launches"].fillna(1) if "launches" in launches.columns else 1.0
    time = (launches["time_us"] * number).to_numpy(dtype=float)
    run = launches.groupby("run_id", sort=False, dropna=False).ngroup().to_numpy()
    sums = pd.Series(time).groupby([run, device]).sum()
    longest = np.array([device for _, device in sums.groupby(level=0).idxmax()])
    kept: pd.DataFrame = launches[device == longest[run]]
    return kept.reset_index(drop=True)


def busy_on_one_device(launches: pd.DataFrame, keys: Sequence[str]) -> pd.Series:
    """Return how long the device that worked longest computed in each group of launches.

    The launches have ``start_us``, ``time_us`` and, of several devices, ``device_id``; `keys` tell
    groups apart. Returned are microseconds by `keys`, named ``time_us``; NaN where a start is not
    known.
    """
    groups = launches.assign(account=device_of(launches)).groupby(
        [*keys, "account"], dropna=False, sort=False
    )
    times = group_times(groups.ngroup(), launches["start_us"], launches["time_us"])
    busy = groups.size().astype(float)
    busy[:] = times.busy_us
    longest: pd.Series = busy.groupby(level=list(range(len(keys))), dropna=False, sort=False).max()
    return longest.rename_axis(list(keys)).rename("time_us")


def device_times(
    launches: pd.DataFrame, keys: Sequence[str], copied_us: npt.NDArray[np.float64] | None = None
) -> pd.DataFrame:
    """Return the account of every group of launches and device.

    Parameters
    ----------
    launches
        With ``start_us``, ``time_us``, ``gap_us`` (what was idle before each, NaN where that is
        not known) and, of several devices, ``device_id``, shape (n,).
    keys
        Columns that tell groups apart. Before the first launch of a device in a repeat
        (`repeat_keys`) nothing counts as idle.
    copied_us
        Copies and fills before each launch, while no kernel runs, shape (n,); NaN where not known.
        None where they lie between the launches, are work where ``gap_us`` is concerned, and take
        what is left of the time from the first start to the last end.

    Returns
    -------
    DataFrame
        A row a group and device, in order of first launch: `keys`, and the attributes of
        `DeviceTime`. Without groups of which a start or a time is missing.
    """
    frame = launches.reset_index(drop=True)
    repeat = repeat_keys(frame)
    frame = frame[[*dict.fromkeys([*keys, *repeat]), "start_us", "time_us", "gap_us"]].assign(
        device=device_of(launches), copied=0.0 if copied_us is None else copied_us
    )
    frame = frame.sort_values("start_us", kind="stable")
    first = frame.groupby([*repeat, "device"], dropna=False, sort=False).cumcount() == 0
    frame["gap_us"] = frame["gap_us"].where(~first, 0.0).fillna(0.0)
    frame["inner"] = frame["gap_us"].where(~first)
    groups = frame.groupby([*keys, "device"], dropna=False, sort=False, observed=True)
    found: pd.DataFrame = groups.agg(
        launches=("gap_us", "size"),
        kernels_us=("time_us", "sum"),
        idle_us=("gap_us", "sum"),
        gap_us=("inner", "median"),
        longest_us=("inner", "max"),
    )
    times = group_times(groups.ngroup().to_numpy(), frame["start_us"], frame["time_us"])
    found["computing_us"] = times.busy_us
    if copied_us is None:
        copying = _neither(frame, groups["start_us"].min(), times.wall_us)
        # what rounding leaves is no copy
        found["copying_us"] = np.where(copying > 1e-6 * times.wall_us, copying, 0.0)
    else:
        known = groups["copied"].count() == found["launches"]
        found["copying_us"] = groups["copied"].sum().where(known, 0.0)
    found = found.fillna({"gap_us": 0.0, "longest_us": 0.0})
    return found[found["computing_us"] > 0].reset_index()


def _neither(
    frame: pd.DataFrame, first: pd.Series, wall_us: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Return how long, in each group's time, no kernel of its device ran and it was not idle."""
    begin = first.to_numpy()
    device = first.index.get_level_values("device").to_numpy()
    left = np.array(wall_us)
    for number in np.unique(device):
        rows = frame[frame["device"] == number]
        told = union(rows["start_us"] - rows["gap_us"], rows["start_us"] + rows["time_us"])
        edges = np.stack([told.start, told.end], axis=1).ravel()
        until = np.stack([told.end * 0, told.end - told.start], axis=1).ravel().cumsum()
        mine = device == number
        ends = (begin + wall_us)[mine]
        left[mine] -= np.interp(ends, edges, until) - np.interp(begin[mine], edges, until)
    return left


def account_of(row: pd.Series) -> DeviceTime:
    """Return a row of `device_times` as an account."""
    names = ("kernels_us", "computing_us", "copying_us", "idle_us", "gap_us", "longest_us")
    times = {name: float(row[name]) for name in names}
    return DeviceTime(launches=int(row["launches"]), device=int(row["device"]), **times)
